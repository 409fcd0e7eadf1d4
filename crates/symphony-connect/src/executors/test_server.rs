//! A real HTTP server on this machine that answers as it is told and remembers what it was asked.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

pub(super) struct TestServer {
    pub(super) url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl TestServer {
    /// Gives each request this answer, byte for byte, and hangs up; an empty one is never given.
    pub(super) async fn start(answer: impl Into<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answer, record) = (answer.into(), Arc::clone(&asked));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (answer, record) = (answer.clone(), Arc::clone(&record));
                tokio::spawn(async move {
                    let mut text = Vec::new();
                    while !is_whole(&text) {
                        if stream.read_buf(&mut text).await.unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    record.lock().unwrap().push(String::from_utf8(text).unwrap());
                    if answer.is_empty() {
                        std::future::pending::<()>().await;
                    }
                    stream.write_all(answer.as_bytes()).await.unwrap();
                });
            }
        });
        Self { url, asked }
    }

    /// A whole answer with this status and body.
    pub(super) async fn answering(status: u16, body: &str) -> Self {
        let length = body.len();
        Self::start(format!(
            "HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nX-Two: a\r\nX-Two: b\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        ))
        .await
    }

    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn is_whole(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}
