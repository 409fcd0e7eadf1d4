//! Real `symphony run --lanes events` processes. One dies at a named point, one at any moment in the middle; each is
//! followed by another.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use sqlx::ConnectOptions as _;
use tokio::process::{Child, Command};

use super::stage::Stage;
use crate::payments::chaos::dice::Dice;
use crate::support::processes::{Signal, signal};

/// Everything but the bus and the routes to it.
pub const WORKER: &str = "
[worker]
lease_seconds = 6
lease_margin_ms = 300
poll_ms = [50, 150]
repair_ms = [200, 400]
[events]
window_max = 20
retry_seconds = [0, 1, 1, 2]
attempts_max = 500
[[events.routes]]
type = \"events.transfers.*\"
bus = \"main\"
topic = \"TOPIC\"
";

pub struct Dispatchers {
    stage: Arc<Stage>,
    config: PathBuf,
    running: Vec<Child>,
}

impl Dispatchers {
    /// Three: the first kills itself when it has published so many times.
    pub fn start(stage: &Arc<Stage>, config: &Path) -> Self {
        let mut all = Self { stage: stage.clone(), config: config.to_owned(), running: Vec::new() };
        let mut dice = Dice::of(stage.seed, "the first to die");
        let passes = dice.between(5, 25);
        let point = dice.pick(&["after_send", "before_send", "before_complete"]);
        all.spawn(Some(&format!("{point}:{passes}")));
        all.spawn(None);
        all.spawn(None);
        all
    }

    fn spawn(&mut self, kill_at: Option<&str>) {
        let log = self.stage.folder.join("dispatchers.log");
        let log = OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_symphony"));
        command
            .args(["run", "--lanes", "events", "--api", "off", "--config"])
            .arg(&self.config)
            .env("DATABASE_URL", self.stage.db.options.to_url_lossy().as_str())
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .env("PROOF_SECRET", super::webhooks::SECRET)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true);
        if let Some(kill_at) = kill_at {
            command.env("SYMPHONY_KILL_AT", kill_at);
        }
        self.running.push(command.spawn().unwrap());
    }

    /// Two are killed and replaced while events are published.
    pub async fn die_in_the_middle(&mut self) {
        let mut first = self.running.remove(0);
        let suicide = tokio::select! {
            status = first.wait() => status.unwrap(),
            () = self.stage.until("one dies", 100, |now| now.sent) => panic!("it lived to see the end"),
        };
        assert_eq!(suicide.signal(), Some(9), "{suicide}: see {}", self.stage.folder.display());
        self.stage.tally.add("killed at a point");
        self.spawn(None);
        let share = Dice::of(self.stage.seed, "the second to die").between(30, 60);
        self.stage.until("half is sent", usize::try_from(share).unwrap(), |now| now.sent).await;
        let mut victim = self.running.remove(0);
        victim.kill().await.unwrap();
        self.stage.tally.add("killed anywhere");
        self.spawn(None);
    }

    /// When everything is sent: all leave in order.
    pub async fn leave(mut self) {
        self.stage.until("all is sent", 100, |now| now.sent).await;
        for child in &self.running {
            signal(child.id().expect("it runs"), Signal::TERM);
        }
        for child in &mut self.running {
            let status = child.wait().await.unwrap();
            assert!(status.success(), "{status}: see {}", self.stage.folder.display());
        }
        self.stage.write("finished", "");
    }
}

/// `symphony bus setup` for a configuration.
pub async fn set_up_bus(config: &Path) {
    let output = Command::new(env!("CARGO_BIN_EXE_symphony"))
        .args(["bus", "setup", "--config"])
        .arg(config)
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
