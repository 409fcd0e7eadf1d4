//! Apps from end to end: a real HTTP client, a real SMTP client, real QuickJS, real processes that are killed.

mod bodies;
mod callers;
mod commits;
mod contention;
mod examples;
mod http;
mod kills;
mod leased;
mod mail;
mod secrets;
mod slots;
mod sources;
mod stuck;
mod web;

use std::net::SocketAddr;

use serde_json::{Value, json};
use symphony::engine::Points;
use symphony_server::config::Config;
use symphony_server::worker::{Plan, Workers};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::TestDb;

/// Workers of the trigger lane, with HTTP and mail, in this process.
pub(super) struct Platform {
    workers: Workers,
}

impl Platform {
    pub(super) async fn start(db: &TestDb) -> Self {
        Self::start_with(db, "").await
    }

    pub(super) async fn start_with(db: &TestDb, settings: &str) -> Self {
        let mail = "[triggers.email]\nlisten = '127.0.0.1:0'\n";
        Self::start_with_mail(db, &format!("{settings}\n{mail}")).await
    }

    pub(super) async fn start_with_mail(db: &TestDb, settings: &str) -> Self {
        // Who may ask for statuses and hand mail in is a matter of tests of its own.
        let open = if settings.contains("status_auth") {
            ""
        } else {
            "status_auth = 'none'\nmail_auth = 'none'\n"
        };
        let text = format!("[triggers]\nhttp_listen = '127.0.0.1:0'\n{open}{settings}");
        let file =
            std::env::temp_dir().join(format!("symphony-apps-{}.toml", uuid::Uuid::new_v4()));
        std::fs::write(&file, text).unwrap();
        let config = Config::load(Some(&file)).unwrap();
        std::fs::remove_file(&file).unwrap();
        let plan = Plan::new(&config, &[symphony_server::cli::LaneName::Triggers], &[]).unwrap();
        let start = plan.start(&config, &db.database, db.options.clone(), Points::default());
        Self { workers: Box::pin(start).await.unwrap() }
    }

    pub(super) fn http(&self) -> SocketAddr {
        self.workers.apps_address().unwrap()
    }

    /// Who its workers are.
    pub(super) fn worker_id(&self) -> String {
        self.workers.ids()
    }

    pub(super) fn smtp(&self) -> SocketAddr {
        self.workers.mail_address().unwrap()
    }

    pub(super) async fn stop(self) {
        assert_eq!(self.workers.stop().await, 0);
    }
}

impl TestDb {
    /// The value of an entry, as JSON text.
    pub(super) async fn entry(&self, app: &str, key: &str) -> Option<String> {
        self.one(&format!(
            "SELECT (SELECT e.value::text FROM kv_entries e JOIN apps a ON a.id = e.app_id WHERE a.name = '{app}' AND e.key = '{key}')"
        ))
        .await
    }

    /// Nothing is left to run.
    pub(super) async fn is_idle(&self) -> bool {
        self.count("trigger_outbox_pending").await == 0
    }
}

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// One HTTP request; `None` if the connection was lost before there was an answer.
pub(super) async fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
) -> Option<Answer> {
    let kind = "Content-Type: application/json\r\n";
    request_with(address, &format!("{method} {path}"), kind, body).await
}

/// The same with these header lines.
pub(super) async fn request_with(
    address: SocketAddr,
    line: &str,
    headers: &str,
    body: &str,
) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let head = format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, head: head.to_owned(), body: body.to_owned() })
}

pub fn script(name: &str, source: &str) -> Value {
    json!({ "name": name, "source": source, "timeoutMs": 5_000 })
}

pub(super) fn route(method: &str, path: &str, script: &str) -> Value {
    json!({ "method": method, "path": path, "script": script })
}

pub fn trigger(name: &str, kind: &str, filter: &str, script: &str) -> Value {
    json!({ "name": name, "kind": kind, "filter": filter, "script": script, "backoffSeconds": [0], "attempts": 3 })
}
