//! A server made of nothing but a socket: it records what arrived, byte for byte, and answers the bytes it is told.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    /// Which connection it came on, from 0.
    pub(crate) connection: usize,
    pub(crate) method: String,
    pub(crate) target: String,
    /// Names in small letters.
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// What the server does with a request.
pub(crate) enum Reaction {
    /// Write these bytes and wait for the next request.
    Answer(Vec<u8>),
    /// Write these bytes and hang up.
    AnswerAndClose(Vec<u8>),
    /// A byte every now and then.
    Drip(Vec<u8>),
    /// Drop the connection so that the other side sees a reset.
    Reset,
    /// Say nothing, keep the connection.
    Hang,
}

type Behaviour = dyn Fn(&Received) -> Reaction + Send + Sync;

pub(crate) struct Server {
    pub(crate) port: u16,
    received: Arc<Mutex<Vec<Received>>>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(
        behaviour: impl Fn(&Received) -> Reaction + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let received = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&received);
        let behaviour: Arc<Behaviour> = Arc::new(behaviour);
        let task = tokio::spawn(async move {
            let mut connection = 0;
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(talk(stream, connection, Arc::clone(&record), Arc::clone(&behaviour)));
                connection += 1;
            }
        });
        Self { port, received, task }
    }

    /// Always the same answer.
    pub(crate) async fn answering(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::start(move |_| Reaction::Answer(bytes.clone())).await
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An answer with its length and a JSON body.
pub(crate) fn json(status: u16, body: &str) -> Vec<u8> {
    response(status, "Content-Type: application/json\r\n", body)
}

/// An answer with its length and more headers, each with its line break.
pub(crate) fn response(status: u16, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}

async fn talk(
    mut stream: TcpStream,
    connection: usize,
    record: Arc<Mutex<Vec<Received>>>,
    behaviour: Arc<Behaviour>,
) {
    while let Some(request) = read(&mut stream, connection).await {
        record.lock().unwrap().push(request.clone());
        match behaviour(&request) {
            Reaction::Answer(bytes) => stream.write_all(&bytes).await.unwrap_or(()),
            Reaction::AnswerAndClose(bytes) => return stream.write_all(&bytes).await.unwrap_or(()),
            Reaction::Drip(bytes) => {
                let mut beat = tokio::time::interval(Duration::from_millis(20));
                for byte in bytes {
                    beat.tick().await;
                    if stream.write_all(&[byte]).await.is_err() {
                        return;
                    }
                }
            }
            Reaction::Reset => return stream.set_zero_linger().unwrap_or(()),
            Reaction::Hang => std::future::pending().await,
        }
    }
}

/// One request; `None` when the other side has hung up.
pub(crate) async fn read<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    connection: usize,
) -> Option<Received> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let mut words = lines.next().unwrap().split(' ');
    let (method, target) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Received { connection, method, target, headers, body })
}
