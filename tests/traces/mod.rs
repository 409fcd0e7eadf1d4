//! Traces as a collector sees them that shares no code with us: `receiver.py` takes OTLP apart by hand, and is also the
//! bank, the webhook's receiver and the web service whose calls must name the dispatch they come from.

mod canary;
mod life;
mod trouble;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use uuid::Uuid;

use crate::support::folder::Folder;
use crate::support::processes::{Signal, signal};
use crate::support::{TestDb, until};

const CANARY: &str = "canary-7f3a9e";
/// The producers' spans of three lanes.
const PRODUCERS: [&str; 3] = [
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203332-01",
    "00-2af7651916cd43dd8448eb211c80319c-b7ad6b7169203333-01",
];

fn trace_of(traceparent: &str) -> &str {
    traceparent.split('-').nth(1).unwrap()
}

fn span_of(traceparent: &str) -> &str {
    traceparent.split('-').nth(2).unwrap()
}

struct Receiver {
    folder: Folder,
    port: String,
    _process: Child,
}

/// What the receiver has noted.
struct Noted {
    spans: Vec<Value>,
    calls: Vec<Value>,
}

impl Receiver {
    async fn start() -> Self {
        let folder = Folder::new();
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces/receiver.py");
        let mut process = Command::new("python3")
            .arg(program)
            .arg(folder.0.join("journal"))
            .arg(&folder.0)
            .arg(CANARY)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let port = lines.next_line().await.unwrap().expect("the receiver's port");
        Self { folder, port, _process: process }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn noted(&self) -> Noted {
        let text = std::fs::read_to_string(self.folder.0.join("journal")).unwrap_or_default();
        let lines: Vec<Value> = text
            .lines()
            .filter(|line| line.ends_with('}'))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        for line in &lines {
            assert_ne!(line["has_canary"], true, "something of a payload is in a span");
        }
        Noted {
            spans: lines.iter().filter_map(|line| line.get("span")).cloned().collect(),
            calls: lines.into_iter().filter(|line| line.get("call").is_some()).collect(),
        }
    }

    /// A configuration with a rail, a webhook and apps, all of which end here.
    fn config(&self, more: &str) -> String {
        let (pay, hook, traces) = (self.url("/pay"), self.url("/hook"), self.url("/v1/traces"));
        format!(
            "[rails.bank]\nkind = \"http\"\nurl = \"{pay}\"\ninquiry_url = \"{pay}/{{key}}\"\n\
             not_found_code = \"NOT_FOUND\"\ndestination = \"any\"\nallow_private_addresses = true\n\
             timeout_ms = 1500\nkey_lifetime_seconds = 86400\n\
             [buses.hooks]\nkind = \"http\"\nallow_private_addresses = true\n\
             [buses.hooks.endpoints.books]\nurl = \"{hook}\"\nsecret_env = \"HOOK_SECRET\"\ntimeout_ms = 1500\n\
             [events]\nretry_seconds = [1]\n\
             [[events.routes]]\ntype = \"events.*\"\nbus = \"hooks\"\ntopic = \"books\"\n\
             [triggers]\nenabled = true\nhttp_listen = \"127.0.0.1:0\"\ntimeout_max_seconds = 1\n\
             [triggers.fetch]\nallow_private_addresses = true\n\
             [log]\nformat = \"json\"\n\
             [traces]\nendpoint = \"{traces}\"\nheader_env = {{ Authorization = \"OTLP_AUTHORIZATION\" }}\n{more}"
        )
    }
}

impl Noted {
    /// The spans of one trace.
    fn of(&self, trace: &str) -> Vec<&Value> {
        self.spans.iter().filter(|span| span["trace"] == trace).collect()
    }

    /// The calls to one path, by what they say caused them.
    fn callers(&self, path: &str) -> Vec<&str> {
        let calls = self.calls.iter().filter(|call| call["call"] == path);
        calls.map(|call| call["headers"]["traceparent"].as_str().unwrap_or("")).collect()
    }
}

/// Their names with the attempts they belong to, in the order of their beginnings.
fn told(spans: &[&Value]) -> Vec<String> {
    let mut spans = spans.to_vec();
    spans.sort_by_key(|span| span["start"].as_u64().unwrap());
    spans
        .iter()
        .map(|span| {
            let attribute = |name: &str| span["attributes"].get(name).cloned();
            let mut text = format!(
                "{} {}",
                span["name"].as_str().unwrap(),
                attribute("symphony.attempt").unwrap()
            );
            for name in ["symphony.outcome", "error.type"] {
                if let Some(Value::String(value)) = attribute(name) {
                    text.push_str(&format!(" {value}"));
                }
            }
            text
        })
        .collect()
}

/// Every one of them is, by its parents, a part of this span.
fn assert_all_part_of(spans: &[&Value], producer: &str) {
    assert!(!spans.is_empty());
    let ids: BTreeSet<&str> = spans.iter().map(|span| span["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), spans.len(), "each span is told of once");
    for span in spans {
        let mut parent = span["parent"].as_str().unwrap();
        for _ in 0..10 {
            let above = spans.iter().find(|above| above["id"] == parent);
            parent = above.map_or(parent, |above| above["parent"].as_str().unwrap());
        }
        assert_eq!(parent, producer, "{span}");
        assert!(span["start"].as_u64() <= span["end"].as_u64(), "{span}");
    }
}

/// A worker process that works everything.
struct Worker {
    process: Child,
    apps: SocketAddr,
    api: String,
    log: Arc<Mutex<Vec<String>>>,
}

impl Worker {
    async fn start(db: &TestDb, folder: &Folder, config: &str) -> Self {
        use sqlx::ConnectOptions as _;
        let name = Uuid::new_v4();
        let config = folder.write(&format!("{name}.toml"), config);
        let mut process = Command::new(env!("CARGO_BIN_EXE_symphony"))
            .args(["run", "--api", "127.0.0.1:0", "--config"])
            .arg(config)
            .env("DATABASE_URL", db.options.to_url_lossy().as_str())
            .env("SYMPHONY_DATA", &folder.0)
            .env("HOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
            .env("OTLP_AUTHORIZATION", "Bearer collector")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let mut addresses = Vec::new();
        while addresses.len() < 2 {
            let line = lines.next_line().await.unwrap().expect("it ended before it worked");
            let said: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
            addresses.extend(said["address"].as_str().map(str::to_owned));
            log.lock().unwrap().push(line);
        }
        let kept = log.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                kept.lock().unwrap().push(line);
            }
        });
        Self { process, api: addresses[0].clone(), apps: addresses[1].parse().unwrap(), log }
    }

    /// The lines of its log with this message.
    fn said(&self, message: &str) -> Vec<Value> {
        let log = self.log.lock().unwrap();
        let lines = log.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["message"].as_str().unwrap().contains(message)).collect()
    }

    /// Stop in order, which hands over the last spans.
    async fn stop(mut self) {
        signal(self.process.id().unwrap(), Signal::TERM);
        assert_eq!(self.process.wait().await.unwrap().code(), Some(0));
    }
}

async fn until_paid(db: &TestDb, payments: i64) {
    until("all is paid", async || {
        db.count("payment_outbox_attempts WHERE state = 'DISPATCHED'").await == payments
    })
    .await;
}

async fn tell_event(db: &TestDb, traceparent: &str) {
    let event = json!({
        "envelope": { "v": 1, "eventId": Uuid::new_v4(), "occurredAt": "2026-11-15T12:00:00Z", "tenantId": "tnt_1",
                      "type": "events.transfers.submitted", "traceparent": traceparent },
        "key": { "transferId": "t-1" }, "payload": { "memo": CANARY }
    });
    let event = serde_json::value::to_raw_value(&event).unwrap();
    db.database.producer().enqueue_events(&[&event]).await.unwrap().remove(0).unwrap();
}
