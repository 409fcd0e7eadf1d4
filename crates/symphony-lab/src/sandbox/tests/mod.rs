//! The sandbox from outside: a raw TCP client, and the record's file.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod faults;
mod plan;
mod record;
mod throughput;
mod transfers;
mod wire;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use uuid::Uuid;

use super::{Sandbox, Settings};

/// A payment that the provider executes.
const BODY: &str =
    r#"{"amount": {"value": "10.00", "currency": "EUR"}, "destination": {"id": "acme"}}"#;

/// A sandbox on a record of its own, which is removed with it.
struct Fixture {
    sandbox: Option<Sandbox>,
    settings: Settings,
}

impl Fixture {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::new(unique_path());
        change(&mut settings);
        let sandbox = Some(Sandbox::start(settings.clone()).await.unwrap());
        Self { sandbox, settings }
    }

    async fn with_faults(plan: &str) -> Self {
        let plan = super::Plan::from_json(plan.as_bytes()).unwrap();
        Self::with(|settings| settings.faults = plan).await
    }

    fn sandbox(&self) -> &Sandbox {
        self.sandbox.as_ref().unwrap()
    }

    async fn client(&self) -> Client {
        let stream = TcpStream::connect(self.sandbox().address()).await.unwrap();
        Client { stream, buffer: Vec::new() }
    }

    /// Stop it, do something to the file, and start it again on the same record.
    async fn restart(&mut self, meanwhile: impl FnOnce(&PathBuf)) {
        self.sandbox.take().unwrap().stop().await.unwrap();
        meanwhile(&self.settings.record);
        self.sandbox = Some(Sandbox::start(self.settings.clone()).await.unwrap());
    }

    /// Until a fault has struck a transfer.
    async fn until_struck(&self) {
        while self.sandbox().faults().injected.is_empty() {
            tokio::task::yield_now().await;
        }
    }

    /// How often a key moved money, by the file.
    fn executions_of(&self, key: &str) -> u64 {
        let record = super::Record::read(&self.settings.record).unwrap();
        record.executions_by_key().get(key).copied().unwrap_or_default()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        std::fs::remove_file(&self.settings.record).unwrap();
    }
}

fn unique_path() -> PathBuf {
    std::env::temp_dir().join(format!("symphony-sandbox-test-{}.jsonl", Uuid::new_v4()))
}

struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Answer {
    status: u16,
    about_key: Option<String>,
    closes: bool,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Status and body, to compare in one line.
    fn told(&self) -> (u16, String) {
        (self.status, String::from_utf8(self.body.clone()).unwrap())
    }
}

impl Client {
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// The next answer; `None` if the connection ended or what came is no HTTP.
    async fn answer(&mut self) -> Option<Answer> {
        loop {
            let mut headers = [httparse::EMPTY_HEADER; 16];
            let mut parsed = httparse::Response::new(&mut headers);
            let header = |parsed: &httparse::Response<'_, '_>, name: &str| {
                let found = parsed.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
                found.map(|h| String::from_utf8(h.value.to_vec()).unwrap())
            };
            if let httparse::Status::Complete(head) = parsed.parse(&self.buffer).ok()? {
                let end = head + header(&parsed, "content-length")?.parse::<usize>().unwrap();
                if self.buffer.len() >= end {
                    let answer = Answer {
                        status: parsed.code.unwrap(),
                        about_key: header(&parsed, "idempotency-key"),
                        closes: header(&parsed, "connection").as_deref() == Some("close"),
                        body: self.buffer[head..end].to_vec(),
                    };
                    self.buffer.drain(..end);
                    return Some(answer);
                }
            }
            if self.stream.read_buf(&mut self.buffer).await.ok()? == 0 {
                return None;
            }
        }
    }

    async fn transfer(&mut self, key: &str, body: &str) -> Option<Answer> {
        self.send(transfer(key, "", body)).await;
        self.answer().await
    }

    async fn pay(&mut self, key: &str) -> (u16, String) {
        self.transfer(key, BODY).await.unwrap().told()
    }

    async fn get(&mut self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: sandbox\r\n\r\n")).await;
        self.answer().await.unwrap()
    }

    async fn put(&mut self, path: &str, body: &str) -> Answer {
        let length = body.len();
        self.send(format!("PUT {path} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}")).await;
        self.answer().await.unwrap()
    }

    /// Everything until the end, and whether the end was a reset.
    async fn read_to_the_end(&mut self) -> (Vec<u8>, bool) {
        let mut bytes = Vec::new();
        let end = self.stream.read_to_end(&mut bytes).await;
        (bytes, end.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset))
    }

    /// Nothing comes although the connection is open.
    async fn is_silent(&mut self) -> bool {
        let mut byte = [0];
        tokio::time::timeout(Duration::from_millis(100), self.stream.read(&mut byte)).await.is_err()
    }
}

fn transfer(key: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST /transfers HTTP/1.1\r\nIdempotency-Key: {key}\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    )
}

fn created(number: u64) -> (u16, String) {
    (201, format!(r#"{{"code":"ACSC","reference":"SBX-{number}","replayed":false}}"#))
}

fn replayed(number: u64) -> (u16, String) {
    (200, format!(r#"{{"code":"ACSC","reference":"SBX-{number}","replayed":true}}"#))
}

fn coded(status: u16, code: &str) -> (u16, String) {
    (status, format!(r#"{{"code":"{code}"}}"#))
}
