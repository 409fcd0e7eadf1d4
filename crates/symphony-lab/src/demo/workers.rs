//! The worker processes: the same binary as `symphony run`, each on its own, with settings under which a lost
//! worker's payments come back within seconds.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;

use super::banks::Banks;
use super::events::{EventReceiver, SECRET_ENV};
use super::orders::Shop;
use crate::LabError;

pub(super) const WORKERS: usize = 3;
/// How long a killed worker's payments stay untouched.
pub(super) const LEASE_SECONDS: u64 = 4;
/// A worker that has nothing to do ends within this.
const STOP_MAX: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A worker process. Dropping it kills it.
pub(super) struct Worker {
    pub(super) name: String,
    child: Child,
    log: PathBuf,
    ended: bool,
}

/// Write the workers' configuration.
pub(super) fn configure(
    folder: &Path,
    banks: &Banks,
    event_receiver: &EventReceiver,
    shop: &Shop,
) -> Result<PathBuf, LabError> {
    let (main, forgetful) = (banks.main.address(), banks.forgetful.address());
    // Every rail has the same short limits; 503 is this bank's promise that nothing was executed.
    let limits = "timeout_ms = 1_000\ninquiry_timeout_ms = 700\nconnect_timeout_ms = 1_000\n\
                  concurrency_max = 32\nbreaker_open_ms = 500\nbreaker_open_max_ms = 1_000\ndestination = \"iban\"\n\
                  codes = { \"http:503\" = \"retryable\" }\n";
    let text = format!(
        "[database]\nwitness = \"{}\"\n\n[worker]\nlease_seconds = {LEASE_SECONDS}\nlease_margin_ms = 500\npoll_ms = [100, 300]\n\
         repair_ms = [300, 700]\nshutdown_seconds = 5\n\n\
         [api]\nlisten = \"off\"\n\n\
         [rails.sepa]\nkind = \"sandbox\"\nurl = \"http://{main}\"\n{limits}\n\
         [rails.instant]\nkind = \"sandbox\"\nurl = \"http://{main}\"\n{limits}\n\
         [rails.wire]\nkind = \"http\"\nurl = \"http://{forgetful}/transfers\"\n\
         inquiry_url = \"http://{forgetful}/transfers/{{key}}\"\nnot_found = \"proves_nothing\"\n\
         allow_private_addresses = true\n{limits}\n{}{}",
        folder.join("witness").display(),
        event_receiver.configuration(),
        shop.configuration()
    );
    let path = folder.join("workers.toml");
    fs::write(&path, text)
        .map_err(|error| LabError::new(format!("cannot write {}: {error}", path.display())))?;
    Ok(path)
}

impl Worker {
    pub(super) fn start(
        number: usize,
        folder: &Path,
        config: &Path,
        database: &PgConnectOptions,
        secret: &str,
    ) -> Result<Self, LabError> {
        let cannot = |error| LabError::new(format!("cannot start a worker: {error}"));
        let log = folder.join(format!("worker-{number}.log"));
        let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
        command
            .args(["run", "--until-input-ends", "--config"])
            .arg(config)
            // By the environment, which only we can read; arguments are for everybody.
            .env("DATABASE_URL", database.to_url_lossy().as_str())
            .env(SECRET_ENV, secret)
            // Its end tells the worker that we are gone, however that came about.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(File::create(&log).map_err(cannot)?)
            // Ctrl-C is for us; we end them ourselves.
            .process_group(0);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SYMPHONY_") {
                command.env_remove(name);
            }
        }
        let child = command.spawn().map_err(cannot)?;
        Ok(Self { name: format!("worker {number}"), child, log, ended: false })
    }

    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<(), LabError> {
        let process = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let process = process.ok_or_else(|| LabError::new("the worker has no process"))?;
        kill_process(process, signal)
            .map_err(|error| LabError::new(format!("{}: {error}", self.name)))
    }

    /// SIGKILL: no destructor, no commit, no goodbye.
    pub(super) fn kill(&mut self) -> Result<(), LabError> {
        self.ended = true;
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// An error if it ended without being asked to.
    pub(super) fn check(&mut self) -> Result<(), LabError> {
        if self.ended || self.child.try_wait()?.is_none() {
            return Ok(());
        }
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        let last = said.lines().last().unwrap_or("it said nothing");
        Err(LabError::new(format!("{} ended by itself: {last}", self.name)))
    }

    /// Let it stop in order.
    pub(super) async fn stop(&mut self) -> Result<(), LabError> {
        drop(self.child.stdin.take());
        let asked = tokio::time::Instant::now();
        while !self.ended {
            if let Some(status) = self.child.try_wait()? {
                self.ended = true;
                if !status.success() {
                    return Err(LabError::new(format!("{} stopped with {status}", self.name)));
                }
            } else if asked.elapsed() > STOP_MAX {
                return Err(LabError::new(format!("{} does not stop", self.name)));
            } else {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.ended {
            // It may have ended meanwhile; either way it is gone then.
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}
