//! What can be asked of `symphony`: every command, option and default, defined and validated here.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A money-grade transactional outbox for PostgreSQL.
#[derive(Debug, Parser)]
#[command(
    name = "symphony",
    version,
    about = "A money-grade transactional outbox for PostgreSQL",
    long_about = "Symphony carries out what a service committed: payments to rails, once, with a ledger nobody can \
                  rewrite.\n\nWithout --database-url it runs a private PostgreSQL of its own.",
    after_help = "Try:\n  symphony demo                       the tour\n  symphony migrate                    install the schema\n  \
                  symphony enqueue payment --help     ask for a payment\n  symphony status                     lanes at a glance\n  \
                  symphony doctor                     is everything as declared?"
)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// The database, as postgres://user@host:5432/name; without it, a private PostgreSQL
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, global = true, value_name = "URL")]
    pub database_url: Option<String>,
    /// Print JSON for scripts instead of tables for people
    #[arg(long, global = true)]
    pub json: bool,
    /// Where the private PostgreSQL keeps its data [default: /var/lib/symphony as root, else ~/.local/share/symphony]
    #[arg(long, env = "SYMPHONY_DATA", global = true, value_name = "FOLDER")]
    pub data_folder: Option<PathBuf>,
    /// The private PostgreSQL's loopback port [default: any free one]
    #[arg(long, global = true, value_name = "PORT")]
    pub private_port: Option<u16>,
    /// The folder of the PostgreSQL server's programs [default: searched for]
    #[arg(long, env = "SYMPHONY_POSTGRES_BIN", global = true, value_name = "FOLDER")]
    pub postgres_binaries: Option<PathBuf>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The tour: payments through the database, with duplicates, a lost worker and an unknown outcome
    Demo,
    /// Install or update the schema, in one transaction
    Migrate(Migrate),
    /// Produce from a shell
    Enqueue {
        /// What.
        #[command(subcommand)]
        what: Enqueue,
    },
    /// Lanes at a glance
    Status {
        /// Refresh every second until Ctrl-C
        #[arg(long)]
        watch: bool,
    },
    /// The life of one item, event by event
    Show {
        /// An outbox id or an instruction id
        id: String,
    },
    /// Is everything as declared? Server, schema, privileges, owners, bloat, invariants
    Doctor,
    /// Scan sources for writes that go around the database's functions
    Guard {
        /// Files and folders to scan
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
    /// Measure on this machine, beside the raw limit
    Bench {
        /// What.
        #[command(subcommand)]
        what: Bench,
    },
    /// Run the private PostgreSQL in the foreground and say how to connect
    Database,
    /// Run the simulated provider, with its own record of every transfer it executed
    #[command(
        after_help = "Loopback unless --listen says otherwise. Faults are replaced while it runs with PUT /faults, for example\n  \
                      {\"seed\": 7, \"per_mille\": {\"reset_after\": 20, \"delay:250\": 50}, \"inquiry_per_mille\": {\"error:503\": 100},\n   \
                      \"script\": [{\"instruction\": \"inv-7\", \"faults\": [\"hang_after\", \"none\", \"refuse:AC04\"]}]}"
    )]
    Sandbox(Sandbox),
}

/// Options of `migrate`.
#[derive(Debug, Clone, Args)]
#[allow(clippy::struct_excessive_bools)] // they are flags
pub struct Migrate {
    /// Only say whether the database is up to date; exit 1 if it is not
    #[arg(long, conflicts_with_all = ["print", "replace_legacy", "fresh"])]
    pub check: bool,
    /// Print the SQL instead of applying it; needs no database
    #[arg(long, conflicts_with_all = ["replace_legacy", "fresh"])]
    pub print: bool,
    /// Drop an older installation (payment_outbox, outbox_status) that holds no unfinished rows
    #[arg(long)]
    pub replace_legacy: bool,
    /// Drop everything of Symphony's in this database first, the ledger included; needs --yes
    #[arg(long, requires = "yes")]
    pub fresh: bool,
    /// Yes, really
    #[arg(long)]
    pub yes: bool,
}

/// What to enqueue.
#[derive(Debug, Subcommand)]
pub enum Enqueue {
    /// Ask for one payment, or for many from a file
    #[command(
        after_help = "Examples:\n  symphony enqueue payment --instruction inv-1 --participant acme --key 1 --rail sepa \\\n      \
                            --payload '{\"amount\": {\"value\": \"10.00\", \"currency\": \"EUR\"}}'\n  \
                            symphony enqueue payment --lines payments.jsonl\n\nA line of the file is \
                            {\"instruction_id\": …, \"participant_id\": …, \"idempotency_key\": …, \"rail_type\": …, \"payload\": {…}}."
    )]
    Payment(EnqueuePayment),
}

/// Options of `enqueue payment`.
#[derive(Debug, Clone, Args)]
pub struct EnqueuePayment {
    /// The business instruction it carries out
    #[arg(long, required_unless_present = "lines", value_name = "ID")]
    pub instruction: Option<String>,
    /// Whose stream it joins
    #[arg(long, required_unless_present = "lines", value_name = "ID")]
    pub participant: Option<String>,
    /// The idempotency key: repeating it never pays twice
    #[arg(long, required_unless_present = "lines")]
    pub key: Option<String>,
    /// The rail that shall carry it
    #[arg(long, required_unless_present = "lines")]
    pub rail: Option<String>,
    /// The payload, a JSON object; - reads it from standard input
    #[arg(long, required_unless_present = "lines", value_name = "JSON")]
    pub payload: Option<String>,
    /// W3C trace context to carry along
    #[arg(long)]
    pub traceparent: Option<String>,
    /// One request a line, as JSON; - reads standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["instruction", "participant", "key", "rail", "payload", "traceparent"])]
    pub lines: Option<PathBuf>,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// The payment lane in SQL: enqueue, claim and complete, each beside the raw limit
    #[command(
        after_help = "Makes a database of its own (symphony_bench) on the server, and drops it afterwards. Ratios are \
                            within one run: compare them, not the figures of two machines."
    )]
    Sql(BenchSql),
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

/// Options of `sandbox`.
#[derive(Debug, Clone, Args)]
pub struct Sandbox {
    /// Where to listen; port 0 is any free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// The record's file, continued if it exists [default: a new one in the temporary folder]
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// The faults to start with, as JSON
    #[arg(long, value_name = "FILE")]
    pub faults: Option<PathBuf>,
    /// Transfers must be signed with the secret in this environment variable
    #[arg(long, value_name = "NAME")]
    pub secret_env: Option<String>,
    /// Inquiries find a transfer only this long after it was executed
    #[arg(long, default_value_t = 0, value_name = "MILLISECONDS")]
    pub settle_ms: u64,
    /// Forget keys after this long: sending again then executes again [default: never]
    #[arg(long, value_name = "SECONDS")]
    pub key_lifetime_seconds: Option<u64>,
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
