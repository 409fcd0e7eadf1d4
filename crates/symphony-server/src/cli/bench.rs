//! `symphony bench`: what to measure, and how.

use clap::Subcommand;
use symphony_lab::bench::{BenchEvents, BenchIdle, BenchRun, BenchSql, BenchTriggers};

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// The payment lane in SQL: enqueue, claim and complete, each beside the raw limit
    #[command(
        after_help = "Makes a database of its own (symphony_bench) on the server, and drops it afterwards. Ratios are \
                            within one run: compare them, not the figures of two machines."
    )]
    Sql(BenchSql),
    /// The worker process: a rail that does nothing, the sandbox over HTTP, latency, recovery
    #[command(
        after_help = "Makes a database of its own (symphony_bench) on the server, and drops it afterwards."
    )]
    Run(BenchRun),
    /// The event lane: in SQL, by a worker process, with a blocked key, under a held snapshot
    #[command(
        after_help = "Makes a database of its own (symphony_bench) on the server, and drops it afterwards."
    )]
    Events(BenchEvents),
    /// The trigger lane: synchronous requests through the outbox, and beside a hostile neighbour
    #[command(
        after_help = "Makes a database of its own (symphony_bench) on the server, and drops it afterwards. Settings come \
                      from the configuration file and the environment, as for `run`."
    )]
    Triggers(BenchTriggers),
    /// What idle worker processes cost, and how many of them one enqueue wakes
    #[command(
        after_help = "Starts a PostgreSQL of its own in the temporary folder, whatever --database-url says."
    )]
    Idle(BenchIdle),
}
