//! The night of docs/OPERATING.md, played as it stands there: every command is typed, and what it prints is what the page says.
//!
//! Commands are run with the operator's grant, those of `kim$` with the approver's, the worker has the executor's. Lines of the page that begin with `#` say what happens
//! outside, and are done here. Ids, times and figures of the page stand for any others; `…` for lines that are left out.

mod page;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use sqlx::ConnectOptions as _;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use uuid::Uuid;

use crate::support::{TestDb, payment, until};
use page::{Person, Step, steps};

/// The exit code of an act that waits for a second person.
const ASKED: i32 = 3;

struct Night {
    db: TestDb,
    folder: PathBuf,
    operator: String,
    approver: String,
    port: String,
    bank: Option<Child>,
    worker: Option<Child>,
    went_back: Option<Instant>,
}

impl Night {
    async fn new() -> Self {
        let db = TestDb::new().await;
        let folder = std::env::temp_dir().join(format!("symphony-night-{}", Uuid::new_v4()));
        std::fs::create_dir(&folder).unwrap();
        db.require_approval("payment").await;
        let operator = db.login("symphony_operator").await.to_url_lossy().to_string();
        let approver = db.login("symphony_approver").await.to_url_lossy().to_string();
        Self {
            db,
            folder,
            operator,
            approver,
            port: "0".to_owned(),
            bank: None,
            worker: None,
            went_back: None,
        }
    }

    async fn start_bank(&mut self) {
        let program =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/payments/night/bank.py");
        let mut bank = Command::new("python3")
            .arg(program)
            .arg(&self.port)
            .arg(self.folder.join("book"))
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(bank.stdout.take().unwrap()).lines();
        self.port = lines.next_line().await.unwrap().expect("the bank's port");
        self.bank = Some(bank);
    }

    /// What the bank itself has executed: key and reference.
    fn book(&self) -> Vec<(String, String)> {
        let text = std::fs::read_to_string(self.folder.join("book")).unwrap_or_default();
        let read = |line: &str| {
            let entry: Value = serde_json::from_str(line).unwrap();
            let field = |name: &str| entry[name].as_str().unwrap().to_owned();
            (field("key"), field("reference"))
        };
        text.lines().map(read).collect()
    }

    async fn start_worker(&mut self) {
        let url = format!("http://127.0.0.1:{}/payments", self.port);
        let config = self.folder.join("symphony.toml");
        let text = format!(
            "[rails.sepa]\nkind = \"http\"\nurl = \"{url}\"\ninquiry_url = \"{url}/{{key}}\"\ndestination = \"any\"\n\
             allow_private_addresses = true\ntimeout_ms = 5000\n"
        );
        std::fs::write(&config, text).unwrap();
        let login = self.db.login("symphony_executor").await;
        let log = std::fs::File::create(self.folder.join("log")).unwrap();
        let worker = Command::new(env!("CARGO_BIN_EXE_symphony"))
            .args(["run", "--api", "127.0.0.1:0", "--config"])
            .arg(config)
            .env("DATABASE_URL", login.to_url_lossy().as_str())
            // A witness of its own: the databases of these tests are clones of one.
            .env("SYMPHONY_DATA", &self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        self.worker = Some(worker);
        until("the worker works", async || self.log().contains("working")).await;
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    async fn pay(&self, names: impl Iterator<Item = String>) {
        for name in names {
            self.db.enqueue(&payment(&name, "acme", "sepa")).await;
        }
    }

    /// What a line of the page that begins with `#` stands for.
    async fn happen(&mut self, what: &str) {
        match what {
            "the bank executes inv-lost, and its answer is lost" => {
                self.pay(["inv-lost".to_owned()].into_iter()).await;
                until("it is parked", async || {
                    self.db.count("payment_outbox_pending WHERE hold = 'PARKED'").await == 1
                })
                .await;
            }
            "the bank goes down; twenty payments are asked for" => {
                let mut bank = self.bank.take().unwrap();
                bank.kill().await.unwrap();
                self.pay((1..=20).map(|n| format!("inv-{n}"))).await;
                until("the worker has noticed", async || self.log().contains("BREAKER_OPENED"))
                    .await;
                // As after an hour of it: nobody's next try is near.
                until("nothing is in flight, and it is reported", async || {
                    self.db.count("payment_outbox_pending WHERE lease_token IS NOT NULL").await == 0
                        && self.db.count("outbox_destinations WHERE breaker = 'OPEN'").await == 1
                })
                .await;
                self.db
                    .sql("UPDATE payment_outbox_pending SET next_attempt_at = next_attempt_at + INTERVAL '1 hour' WHERE hasten_from IS NOT NULL")
                    .await;
            }
            "the bank sends its statement" => {
                let mut text = "key,reference,result\n".to_owned();
                for (key, reference) in self.book() {
                    text.push_str(&format!("{key},{reference},executed\n"));
                }
                text.push_str("TX-4711,R-0,executed\n");
                std::fs::write(self.folder.join("statement.csv"), text).unwrap();
            }
            "the bank is back" => {
                self.start_bank().await;
                self.went_back = Some(Instant::now());
                until("everything has ended", async || {
                    self.db.count("payment_outbox_pending").await == 0
                })
                .await;
                let drained = self.went_back.unwrap().elapsed();
                println!(
                    "twenty payments were through {} ms after the bank was back",
                    drained.as_millis()
                );
                assert!(drained < Duration::from_secs(10), "{drained:?}");
            }
            other => panic!("nobody knows what this stands for: {other}"),
        }
    }

    /// Type a command of the page; what it prints, on both sides.
    async fn run(&self, person: Person, words: &[String]) -> String {
        let (login, name) = match person {
            Person::Dana => (&self.operator, "dana"),
            Person::Kim => (&self.approver, "kim"),
        };
        match words.first().map(String::as_str) {
            Some("symphony") => {
                let output = Command::new(env!("CARGO_BIN_EXE_symphony"))
                    .args(&words[1..])
                    .current_dir(&self.folder)
                    .env("DATABASE_URL", login)
                    .env("USER", name)
                    .env_remove("SUDO_USER")
                    .env("COLUMNS", "80")
                    .stdin(Stdio::null())
                    .output()
                    .await
                    .unwrap();
                // Beside an answer stands only which database gave it.
                let content = matches!(output.status.code(), Some(0 | ASKED));
                let error = if content { Vec::new() } else { output.stderr };
                String::from_utf8(output.stdout).unwrap() + &String::from_utf8(error).unwrap()
            }
            Some("grep") => filtered(&self.log(), &words[1]),
            Some("curl") => filtered(&self.metrics().await, words.last().unwrap()),
            other => panic!("the page types {other:?}"),
        }
    }

    /// The worker's /metrics, as anything that speaks HTTP reads it.
    async fn metrics(&self) -> String {
        let log = self.log();
        let address = log.split("address=").nth(1).unwrap().split_whitespace().next().unwrap();
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

impl Drop for Night {
    fn drop(&mut self) {
        drop((self.worker.take(), self.bank.take()));
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

fn filtered(text: &str, pattern: &str) -> String {
    text.lines()
        .filter(|line| line.contains(pattern) && !line.starts_with('#'))
        .map(|line| line.to_owned() + "\n")
        .collect()
}

#[tokio::test]
async fn the_night_of_the_documents_goes_as_it_is_told() {
    let mut night = Night::new().await;
    night.start_bank().await;
    night.start_worker().await;
    let steps = steps();
    assert!(steps.len() > 10, "the page tells a night");
    for step in &steps {
        match step {
            Step::Happens(what) => night.happen(what).await,
            Step::Types { person, words, prints } => {
                let printed = night.run(*person, words).await;
                if std::env::var_os("SYMPHONY_PRINT_NIGHT").is_some() {
                    println!("$ {}\n{printed}", words.join(" "));
                    continue;
                }
                page::assert_told(words, prints, &printed);
            }
        }
    }
    // What the page does not show: the bank's own book and the ledger agree, payment by payment.
    let book = night.book();
    assert_eq!(book.len(), 21, "each was executed once");
    let ledger: Vec<(String, String)> = sqlx::query_as(
        "SELECT payment_rail_key(outbox_id)::text, rail_reference FROM payment_outbox_attempts WHERE state = 'DISPATCHED'",
    )
    .fetch_all(&mut night.db.admin().await)
    .await
    .unwrap();
    let sorted = |mut entries: Vec<(String, String)>| {
        entries.sort();
        entries
    };
    assert_eq!(sorted(book), sorted(ledger));
    let log = night.log();
    assert_eq!(log.matches("BREAKER_OPENED").count(), 1, "{log}");
    assert_eq!(log.matches("BREAKER_CLOSED").count(), 1, "{log}");
    night.db.assert_ledger_holds().await;
}
