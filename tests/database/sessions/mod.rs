//! Sessions at the border: logins with exactly their documented grant, a pooler in between, a database that must be
//! named. Everything here is a process of its own, and none of its logins is a superuser.

mod databases;
pub mod grants;
mod masked;
mod pooled;
mod refusals;

use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;
use symphony_lab::sandbox::{Sandbox, Settings};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::support::folder::Folder;
use crate::support::processes::{Signal, signal};

async fn sandbox(folder: &Folder) -> Sandbox {
    Sandbox::start(Settings::new(folder.0.join("record.jsonl"))).await.unwrap()
}

fn sandbox_rail(sandbox: &Sandbox) -> String {
    format!("[rails.sandbox]\nkind = \"sandbox\"\nurl = \"http://{}\"\n", sandbox.address())
}

/// An event bus that nobody listens on.
const EVENTS: &str = "[[events.routes]]\ntype = \"*\"\nbus = \"hooks\"\ntopic = \"hook\"\n\
    [buses.hooks]\nkind = \"http\"\nallow_private_addresses = true\n[buses.hooks.endpoints.hook]\nurl = \"http://127.0.0.1:9/\"\nsecret_env = \"HOOK_SECRET\"\n";

/// `symphony run` as a process.
struct Worker {
    child: Child,
    address: String,
    said: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Worker {
    /// Start it and wait until it works; the words it ended with if it does not.
    async fn start(
        database: &PgConnectOptions,
        folder: &Folder,
        config: &str,
        lanes: &str,
    ) -> Result<Self, String> {
        let config = folder.write(&format!("{}.toml", Uuid::new_v4()), config);
        let mut child = Command::new(env!("CARGO_BIN_EXE_symphony"))
            .args(["run", "--api", "127.0.0.1:0", "--lanes", lanes, "--config"])
            .arg(config)
            .env("DATABASE_URL", database.to_url_lossy().as_str())
            .env("HOOK_SECRET", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut before = String::new();
        let address = loop {
            match output.next_line().await.unwrap() {
                None => return Err(before),
                Some(line) if line.contains(" working ") => {
                    break line
                        .split("address=")
                        .nth(1)
                        .unwrap()
                        .split(' ')
                        .next()
                        .unwrap()
                        .to_owned();
                }
                Some(line) => before += &(line + "\n"),
            }
        };
        let said = Arc::new(Mutex::new(before));
        let kept = said.clone();
        let reader = tokio::spawn(async move {
            while let Ok(Some(line)) = output.next_line().await {
                *kept.lock().unwrap() += &(line + "\n");
            }
        });
        Ok(Self { child, address, said, reader })
    }

    /// Status and body of a page.
    async fn page(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nX-Symphony-Actor: dana\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// How it ended, and everything it said.
    async fn ended(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().await.unwrap();
        self.reader.await.unwrap();
        (status, self.said.lock().unwrap().clone())
    }

    async fn terminate(self) -> (ExitStatus, String) {
        signal(self.child.id().unwrap(), Signal::TERM);
        self.ended().await
    }
}
