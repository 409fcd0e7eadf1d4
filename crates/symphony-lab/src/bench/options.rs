//! What to measure, as the command line says it.

use clap::{Args, ValueEnum};

/// Options of `bench events`.
#[derive(Debug, Clone, Args)]
pub struct BenchEvents {
    /// Events per timed run
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(5_000..=200_000))]
    pub items: u32,
    /// Runs of each workload; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=9))]
    pub runs: u32,
    /// events.window_max
    #[arg(long, default_value_t = 100, value_name = "EVENTS")]
    pub window: usize,
    /// events.buckets_max
    #[arg(long, default_value_t = 16, value_name = "BUCKETS")]
    pub buckets: usize,
    /// Only these workloads
    #[arg(long, value_enum, value_delimiter = ',')]
    pub only: Vec<EventWorkload>,
}

/// The workloads of `bench events`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EventWorkload {
    /// Enqueue 500 a call
    Bulk,
    /// Enqueue one a call, 8 clients
    Single,
    /// Claim and complete in SQL
    Drain,
    /// By a worker process with a bus that does nothing
    Run,
    /// One key blocked with 50,000 behind it
    Blocked,
    /// Under a held snapshot
    Snapshot,
    /// 100 producers whose transactions last 100 ms
    Busy,
}

/// Options of `bench run`.
#[derive(Debug, Clone, Args)]
pub struct BenchRun {
    /// Items per timed run
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1_000..=200_000))]
    pub items: u32,
    /// Runs of each workload; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=9))]
    pub runs: u32,
    /// How long to measure latency
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    pub latency_seconds: u32,
    /// worker.batch_items_max
    #[arg(long, default_value_t = 1_000, value_name = "ITEMS")]
    pub batch: usize,
    /// worker.gather_ms
    #[arg(long, default_value_t = 1, value_name = "MS")]
    pub gather_ms: u64,
    /// Calls at once, for the rail that does nothing
    #[arg(long, default_value_t = 2_000, value_name = "CALLS")]
    pub concurrency_noop: usize,
    /// Calls at once, over HTTP
    #[arg(long, default_value_t = 64, value_name = "CALLS")]
    pub concurrency_http: usize,
    /// Only these workloads
    #[arg(long, value_enum, value_delimiter = ',')]
    pub only: Vec<WorkerWorkload>,
}

/// The workloads of `bench run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WorkerWorkload {
    /// Drain with a rail that does nothing
    Noop,
    /// Drain with the sandbox provider over HTTP
    Sandbox,
    /// From commit to dispatch at 100/s
    Latency,
    /// A lost worker's items
    Recovery,
}

/// Options of `bench sql`.
#[derive(Debug, Clone, Args)]
pub struct BenchSql {
    /// Items per timed run
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(5_000..=200_000))]
    pub items: u32,
    /// The depth of the deep backlog
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(10_000..=5_000_000))]
    pub deep: u32,
    /// Runs of each workload; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=9))]
    pub runs: u32,
    /// Only these workloads
    #[arg(long, value_enum, value_delimiter = ',')]
    pub only: Vec<Workload>,
}

/// The workloads of `bench sql`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Bulk enqueue, 500 a call
    Bulk,
    /// Single enqueue, 8 clients
    Single,
    /// Claim 500, complete 500
    Drain,
    /// The same from a deep backlog
    Deep,
    /// The same while an old snapshot is held
    Snapshot,
    /// The same beside a FIFO lane blocked with 50,000 behind its head
    Fifo,
    /// The same beside a paused rail with a deep backlog
    Paused,
    /// The same with statistics empty and stale
    Statistics,
    /// The same with routine events recorded
    Routine,
}

/// Options of `bench triggers`.
#[derive(Debug, Clone, Args)]
pub struct BenchTriggers {
    /// Requests of one timed run; with few clients, a quarter of it
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(400..=1_000_000))]
    pub requests: u32,
    /// Clients at once
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub clients: u32,
    /// Clients of the hostile app
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..=1_000))]
    pub hostile_clients: u32,
    /// Messages in the queue
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub messages: u32,
    /// Runs of each workload; the one with the median p99 counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=9))]
    pub runs: u32,
    /// Only these workloads
    #[arg(long, value_enum, value_delimiter = ',')]
    pub only: Vec<TriggerWorkload>,
}

/// The workloads of `bench triggers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TriggerWorkload {
    /// Beside an axum handler that commits one row
    Sync,
    /// The same with a script that writes an entry
    Write,
    /// A queue of many messages
    Queue,
    /// Beside an app of endless loops and memory bombs
    Neighbour,
}

/// Options of `bench idle`.
#[derive(Debug, Clone, Args)]
pub struct BenchIdle {
    /// Worker processes
    #[arg(long, default_value_t = 64)]
    pub workers: usize,
    /// How long to watch them
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
}
