//! Real workers, a consumer, a bank, a broker and a database that can go away, scraped by a real Prometheus.

use std::process::Stdio;

use sqlx::ConnectOptions as _;
use symphony::event::Event;
use symphony_lab::sandbox::{Sandbox, Settings};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use uuid::Uuid;

use crate::consumers::program::{Consuming, Program, consume_nats, started};
use crate::support::brokers::NatsServer;
use crate::support::folder::Folder;
use crate::support::prometheus::Prometheus;
use crate::support::proxy::without_socket;
use crate::support::valve::Valve;
use crate::support::{TestDb, payment, until};
use crate::triggers::manifest;

pub struct Stage {
    pub db: TestDb,
    folder: Folder,
    /// Before the database, for workers; the test itself goes around it.
    pub database: Valve,
    pub bank: Valve,
    pub broker: NatsServer,
    pub program: Program,
    pub consumer: Consuming,
    pub prometheus: Prometheus,
    _sandbox: Sandbox,
}

/// A worker that is killed with this handle.
pub struct Worker {
    pub child: Child,
    pub address: String,
}

const CONFIG: &str = r#"
[worker]
lease_seconds = 6
lease_margin_ms = 300
poll_ms = [50, 150]
repair_ms = [200, 400]
[rails.bank]
kind = "sandbox"
url = "http://127.0.0.1:BANK"
timeout_ms = 1000
breaker_failures = 3
breaker_open_ms = 300
breaker_open_max_ms = 500
[buses.main]
kind = "nats"
url = "nats://127.0.0.1:BROKER"
timeout_ms = 1000
connect_timeout_ms = 500
breaker_failures = 3
breaker_open_ms = 300
breaker_open_max_ms = 500
setup.topics = [{ name = "TRANSFERS", types = ["events.transfers.*"] }, { name = "DEAD", types = ["dead.*"] }]
setup.consumers = [{ name = "balances", topic = "TRANSFERS", visibility_timeout_seconds = 5, in_flight_max = 100 }]
[events]
retry_seconds = [0, 1, 1, 2]
[[events.routes]]
type = "events.transfers.*"
bus = "main"
topic = "TRANSFERS"
[triggers]
timeout_max_seconds = 2
"#;

impl Stage {
    pub async fn new(rules: &str, program: Program) -> Self {
        let db = TestDb::new().await;
        let folder = Folder::new();
        let sandbox = Sandbox::start(Settings::new(folder.0.join("record.jsonl"))).await.unwrap();
        let bank = Valve::before(sandbox.address().port()).await;
        let database = Valve::before(db.options.get_port()).await;
        let broker = NatsServer::start().await;
        let config = CONFIG.replace("BANK", &bank.port.to_string());
        let config = config.replace("BROKER", &broker.port.to_string());
        folder.write("symphony.toml", &config);
        let to = program.start().await;
        let prometheus = Prometheus::start(rules).await;
        let set_up = Self::symphony(&folder, &db.options, &["bus", "setup"]).output().await;
        assert!(set_up.as_ref().unwrap().status.success(), "{set_up:?}");
        let mut consume = consume_nats(&broker.url(), "TRANSFERS", &to);
        // It fails for as long as the test says, and is not dead-lettered meanwhile.
        consume.env("SYMPHONY__CONSUMER__RECEIVES_MAX", "1000");
        consume.env("SYMPHONY__CONSUMER__RETRY_DELAY_MS", "200");
        consume.args(["--dead-letter", "dead.events"]);
        let consumer = started(consume).await;
        Self {
            db,
            folder,
            database,
            bank,
            broker,
            program,
            consumer,
            prometheus,
            _sandbox: sandbox,
        }
    }

    fn symphony(
        folder: &Folder,
        database: &sqlx::postgres::PgConnectOptions,
        arguments: &[&str],
    ) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_symphony"));
        command
            .args(arguments)
            .arg("--config")
            .arg(folder.0.join("symphony.toml"))
            .env("DATABASE_URL", database.to_url_lossy().as_str())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// A worker of payments and events, once it works.
    pub async fn worker(&self) -> Worker {
        self.worker_of("payments,events").await
    }

    /// The same of these lanes.
    pub async fn worker_of(&self, served: &str) -> Worker {
        let database = without_socket(&self.db.options, self.database.port);
        let arguments = ["run", "--lanes", served, "--api", "127.0.0.1:0"];
        let mut child = Self::symphony(&self.folder, &database, &arguments).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        loop {
            let line = lines.next_line().await.unwrap();
            let line = line.unwrap_or_else(|| panic!("it ended before it worked: {said:?}"));
            said.push(line.clone());
            if line.contains(" working ") {
                let address = line.split("address=").nth(1).unwrap();
                let address = address.split(' ').next().unwrap().to_owned();
                // Its later lines are read, so that it never waits for us.
                tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
                return Worker { child, address };
            }
        }
    }

    /// Scrape these workers, and the consumer.
    pub fn scrape(&self, workers: &[&Worker]) {
        let mut addresses = vec![self.consumer.address.as_str()];
        addresses.extend(workers.iter().map(|worker| worker.address.as_str()));
        self.prometheus.scrape(&addresses);
    }

    /// Payments by the bank.
    pub async fn pay(&self, count: usize) {
        for _ in 0..count {
            self.db.enqueue(&payment(&Uuid::new_v4().to_string(), "acme", "bank")).await;
        }
    }

    /// An app that runs once for each entry.
    pub async fn run(&self, count: usize) {
        let mut app = manifest(&[("placed", "kv", "*")]);
        app["scripts"][0]["source"] = "export default async function () { return {}; }".into();
        self.db.push("orders", &app).await;
        for n in 0..count {
            self.db.kv_set("orders", &format!("order/{n}"), &serde_json::json!({"n": n})).await;
        }
    }

    /// Facts that occurred just now, or some seconds ago.
    pub async fn tell(&self, numbers: std::ops::Range<u64>, seconds_ago: i64) {
        let at = chrono::Utc::now() - chrono::TimeDelta::seconds(seconds_ago);
        let at = at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
        let events: Vec<Event> = numbers
            .map(|n| {
                let id = Uuid::new_v4();
                Event::parse(&format!(
                    r#"{{"envelope": {{"v": 1, "eventId": "{id}", "occurredAt": "{at}", "tenantId": "tnt_1",
                        "type": "events.transfers.submitted"}}, "key": {{"transferId": "{id}"}}, "payload": {{"number": {n}}}}}"#
                ))
                .unwrap()
            })
            .collect();
        self.db.tell(&events).await;
    }

    pub async fn until_paid(&self) {
        until("all is paid", async || {
            self.db.count("payment_outbox_pending WHERE hold IS NULL").await == 0
        })
        .await;
    }

    pub async fn until_applied(&self, number: u64) {
        until("the consumer has it", async || self.program.numbers().contains(&number)).await;
    }
}
