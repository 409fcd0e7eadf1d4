//! `symphony bench idle`: what workers cost that have nothing to do, and how many of them one enqueue wakes.
//! Real processes against a PostgreSQL of the benchmark's own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Serialize;
use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;
use symphony::db::{Database, RoleSource, migrate};
use symphony::domain::{Payload, PaymentRequest};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};

use super::BenchIdle;
use crate::LabError;
use crate::private_postgres::{PrivatePostgres, Settings};
use crate::sandbox::{Sandbox, Settings as SandboxSettings};

const ENQUEUES: u64 = 20;
/// Less than this share of a core per process, in hundredths of a per cent.
const CORE_SHARE_MAX: u64 = 100;
/// How many workers one enqueue may wake.
const WOKEN_MAX: u64 = 3;

/// What idle workers cost.
#[derive(Debug, Serialize)]
pub struct IdleReport {
    /// Worker processes.
    pub workers: usize,
    /// Hundredths of a per cent of a core.
    pub core_share_per_process: u64,
    /// The same of the one that spends most.
    pub core_share_most: u64,
    /// What the server spends on all of them, by worker.
    pub core_share_of_server_per_process: u64,
    /// Of all workers.
    pub claims_per_second: u64,
    /// Payments asked for, one after another.
    pub enqueues: u64,
    /// Workers woken by them.
    pub wakeups: u64,
}

impl IdleReport {
    /// Whether the targets are met.
    pub fn holds(&self) -> bool {
        self.core_share_per_process + self.core_share_of_server_per_process < CORE_SHARE_MAX
            && self.wakeups <= self.enqueues * WOKEN_MAX
    }
}

/// Measure, in a folder of its own.
pub async fn measure(
    options: &BenchIdle,
    postgres_binaries: Option<PathBuf>,
) -> Result<IdleReport, LabError> {
    let folder = std::env::temp_dir().join(format!("symphony-idle-{}", std::process::id()));
    let result = measure_in(&folder, options, postgres_binaries).await;
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    result
}

async fn measure_in(
    folder: &Path,
    options: &BenchIdle,
    binaries: Option<PathBuf>,
) -> Result<IdleReport, LabError> {
    std::fs::create_dir_all(folder)?;
    let settings = Settings {
        binaries,
        extra_settings: vec![(
            "max_connections".to_owned(),
            (options.workers * 4 + 20).to_string(),
        )],
        ..Settings::new(folder.join("data"))
    };
    let postgres = PrivatePostgres::start(&settings).await?;
    let result = with_server(options, folder, &postgres).await;
    postgres.stop().await?;
    result
}

async fn with_server(
    options: &BenchIdle,
    folder: &Path,
    postgres: &PrivatePostgres,
) -> Result<IdleReport, LabError> {
    let database = postgres.connect_options();
    migrate::migrate(&database, migrate::Options::default()).await?;
    let sandbox = Sandbox::start(SandboxSettings::new(folder.join("record.jsonl")))
        .await
        .map_err(|error| LabError::new(error.to_string()))?;
    let config = folder.join("symphony.toml");
    std::fs::write(
        &config,
        format!(
            "[database]\nwitness = \"off\"\n[rails.sandbox]\nkind = \"sandbox\"\nurl = \"http://{}\"\n",
            sandbox.address()
        ),
    )?;
    let mut workers = Vec::new();
    for _ in 0..options.workers {
        workers.push(Worker::start(&config, &database).await?);
    }
    for worker in &workers {
        while worker.figure("listener_up").await? == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let postmaster = postmaster(postgres)?;
    let claims_before = total(&workers, "claim_batches_total").await?;
    let before: Vec<u64> =
        workers.iter().map(|worker| ticks(worker.process)).collect::<Result<_, _>>()?;
    let server_before = family_ticks(postmaster)?;
    tokio::time::sleep(Duration::from_secs(options.seconds)).await;
    let after: Vec<u64> =
        workers.iter().map(|worker| ticks(worker.process)).collect::<Result<_, _>>()?;
    let server = family_ticks(postmaster)?.saturating_sub(server_before);
    let claims = total(&workers, "claim_batches_total").await?.saturating_sub(claims_before);

    let woken_before = total(&workers, "notify_wakeups_total").await?;
    enqueue(&database).await?;
    while sandbox.summary().await.map_err(|error| LabError::new(error.to_string()))?.executed
        < ENQUEUES
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let wakeups = total(&workers, "notify_wakeups_total").await?.saturating_sub(woken_before);
    // A tick is a hundredth of a second: per second, that is a per cent.
    let share = |ticks: u64| ticks * 100 / options.seconds;
    let spent: Vec<u64> =
        after.iter().zip(&before).map(|(after, before)| after.saturating_sub(*before)).collect();
    let count = workers.len() as u64;
    Ok(IdleReport {
        workers: workers.len(),
        core_share_per_process: share(spent.iter().sum::<u64>()) / count.max(1),
        core_share_most: share(spent.iter().copied().max().unwrap_or(0)),
        core_share_of_server_per_process: share(server) / count.max(1),
        claims_per_second: claims / options.seconds,
        enqueues: ENQUEUES,
        wakeups,
    })
}

async fn enqueue(database: &PgConnectOptions) -> Result<(), LabError> {
    let ingest =
        Database::connect(database.clone(), 1, RoleSource::EachTransaction).await?.producer();
    let payload = Payload::parse(r#"{"amount": {"value": "10.00", "currency": "EUR"}}"#)
        .map_err(|error| LabError::new(error.to_string()))?;
    for n in 0..ENQUEUES {
        let request = PaymentRequest {
            instruction_id: format!("idle-{n}"),
            participant_id: "acme".to_owned(),
            idempotency_key: "key".to_owned(),
            rail_type: "sandbox".to_owned(),
            payload: payload.clone(),
            traceparent: None,
        };
        ingest.enqueue_payment(&request).await?;
        // Apart, so that each is a hint of its own.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// A worker process; killed when dropped.
struct Worker {
    process: u32,
    address: String,
    _child: Child,
}

impl Worker {
    async fn start(config: &PathBuf, database: &PgConnectOptions) -> Result<Self, LabError> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["run", "--api", "127.0.0.1:0", "--config"])
            .arg(config)
            .env("DATABASE_URL", database.to_url_lossy().as_str())
            .env_remove("SYMPHONY_SCHEMA")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(process), Some(stderr)) = (child.id(), child.stderr.take()) else {
            return Err(LabError::new("a worker ended at once"));
        };
        let mut lines = BufReader::new(stderr).lines();
        while let Some(line) = lines.next_line().await? {
            if let Some(address) =
                line.split("address=").nth(1).and_then(|rest| rest.split(' ').next())
            {
                let address = address.to_owned();
                // Read on, so that it never waits for us.
                tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
                return Ok(Self { process, address, _child: child });
            }
        }
        Err(LabError::new("a worker ended at once"))
    }

    /// One of its figures.
    async fn figure(&self, name: &str) -> Result<u64, LabError> {
        let mut stream = tokio::net::TcpStream::connect(&self.address).await?;
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .await?;
        let mut page = String::new();
        stream.read_to_string(&mut page).await?;
        page.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix("{lane=\"payments\"} "))
            .and_then(|value| value.parse().ok())
            .ok_or_else(|| LabError::new(format!("a worker does not say {name}")))
    }
}

async fn total(workers: &[Worker], name: &str) -> Result<u64, LabError> {
    let mut sum = 0;
    for worker in workers {
        sum += worker.figure(name).await?;
    }
    Ok(sum)
}

/// Processor time of a process, in hundredths of a second.
fn ticks(process: u32) -> Result<u64, LabError> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // After the name, which may contain anything: user and system time are fields 14 and 15.
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |n: usize| fields.get(n).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    Ok(field(11) + field(12))
}

fn postmaster(postgres: &PrivatePostgres) -> Result<u32, LabError> {
    let file = postgres.data_folder().join("postgres/postmaster.pid");
    std::fs::read_to_string(file)?
        .lines()
        .next()
        .and_then(|line| line.trim().parse().ok())
        .ok_or_else(|| LabError::new("the server has no process"))
}

/// Of the server and all its children.
fn family_ticks(postmaster: u32) -> Result<u64, LabError> {
    let mut sum = ticks(postmaster)?;
    let children =
        std::fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children"))?;
    for child in children.split_whitespace().filter_map(|text| text.parse().ok()) {
        // It may have ended meanwhile.
        sum += ticks(child).unwrap_or(0);
    }
    Ok(sum)
}
