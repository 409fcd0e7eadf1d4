//! A real HTTP server on this machine that answers as it is told and remembers what it was asked.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

pub(super) struct TestServer {
    pub(super) url: String,
    asked: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl TestServer {
    /// Gives each request this answer, byte for byte, and hangs up; an empty one is never given.
    pub(super) async fn start(answer: impl Into<String>) -> Self {
        Self::start_bytes(answer.into().into_bytes()).await
    }

    /// The same for an answer that is no text.
    pub(super) async fn start_bytes(answer: Vec<u8>) -> Self {
        Self::answering_bytes(move |_| answer.clone()).await
    }

    /// Gives each request the answer that is made of it.
    pub(super) async fn deciding(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self::answering_bytes(move |asked| answer(&String::from_utf8_lossy(asked)).into_bytes())
            .await
    }

    async fn answering_bytes(answer: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answer, record) = (Arc::new(answer), Arc::clone(&asked));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (answer, record) = (Arc::clone(&answer), Arc::clone(&record));
                tokio::spawn(async move {
                    let mut text = Vec::new();
                    while !is_whole(&text) {
                        if stream.read_buf(&mut text).await.unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    let answer = answer(&text);
                    record.lock().unwrap().push(text);
                    if answer.is_empty() {
                        std::future::pending::<()>().await;
                    }
                    // A client that has seen enough hangs up.
                    let _written = stream.write_all(&answer).await;
                });
            }
        });
        Self { url, asked }
    }

    /// A whole answer with this status and body.
    pub(super) async fn answering(status: u16, body: &str) -> Self {
        Self::start(whole_answer(status, body)).await
    }

    pub(super) fn asked(&self) -> Vec<String> {
        let asked = self.asked_bytes().into_iter();
        asked.map(|asked| String::from_utf8(asked).unwrap()).collect()
    }

    pub(super) fn asked_bytes(&self) -> Vec<Vec<u8>> {
        self.asked.lock().unwrap().clone()
    }
}

/// An answer with this status and body.
pub(super) fn whole_answer(status: u16, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nX-Two: a\r\nX-Two: b\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

fn is_whole(asked: &[u8]) -> bool {
    let Some(end) = asked.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&asked[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    asked.len() - end - 4 >= length.map_or(0, |length| length.parse().unwrap())
}
