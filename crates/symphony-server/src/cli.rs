//! What can be asked of `symphony`: every command, option and default, defined and validated here.

mod acts;
mod app;
mod approvals;
mod bench;
mod consume;
mod dead_letters;
mod destinations;
mod events;
mod resolve_as;
mod restore;
mod token;
mod usage;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use symphony::db::Schema;
use symphony_lab::demo::DemoOptions;

pub use acts::{
    ActOptions, ApprovedAct, IncidentLane, Incidents, ItemAct, PauseTarget, SendingAct,
    SwitchTarget,
};
pub use app::{
    App, AppAct, AppExecutions, AppMail, AppPush, AppRun, AppSecret, AppTest, ExecutionAct,
    ExecutionState, Kv, MailAct,
};
pub use approvals::{ApprovalList, ApprovalState, Approvals, Decide, RequireApproval};
pub use bench::Bench;
pub use consume::{Consume, SourceName};
pub use dead_letters::{Cursor, Dlq, DlqClose, DlqLane, DlqList, Inquire, Resolve, ResolveAs};
pub use destinations::{Bus, BusSetup, Rail, RailAct, Reset};
pub use events::{DEDUP_WINDOW_SECONDS, EnqueueEvent, Redrive, Skip};
pub use restore::{AcceptServer, Restore};
pub use token::{Token, TokenCreate, TokenScope};

/// A money-grade transactional outbox for PostgreSQL.
#[derive(Debug, Parser)]
#[command(
    name = "symphony",
    version,
    before_help = "Symphony carries out what a service committed: payments to rails, once, with a ledger nobody can \
                  rewrite.",
    after_help = "The database is --database-url, else DATABASE_URL, else [database] url of symphony.toml. Without any, \
                  demo, up, database and bench run a private PostgreSQL of their own; others use it with --private. Its data \
                  is in /var/lib/symphony for root, else in ~/.local/share/symphony.\n\nTry:\n  symphony demo                       the tour\n  symphony up                         try it: everything in one process\n  symphony migrate                    install the schema\n  \
                  symphony enqueue payment --help     ask for a payment\n  symphony enqueue event --help       tell an event\n  symphony status                     lanes at a glance\n  \
                  symphony dlq list                   what waits for a person\n  \
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
    /// The database: postgres://user@host:5432/name
    #[arg(long, env = "DATABASE_URL", value_name = "URL", global = true, hide_env_values = true, help_heading = EVERYWHERE)]
    pub database_url: Option<String>,
    /// Use the private PostgreSQL
    #[arg(long, env = "SYMPHONY_PRIVATE", global = true, hide_env_values = true, help_heading = EVERYWHERE)]
    pub private: bool,
    /// The configuration [default: symphony.toml]
    #[arg(long, global = true, value_name = "FILE", help_heading = EVERYWHERE)]
    pub config: Option<PathBuf>,
    /// The schema Symphony lives in [default: symphony]
    #[arg(long, env = "SYMPHONY_SCHEMA", global = true, hide_env_values = true, value_name = "NAME", help_heading = EVERYWHERE)]
    pub schema: Option<Schema>,
    /// Print JSON for scripts
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub json: bool,
    /// The private PostgreSQL's data
    #[arg(long, env = "SYMPHONY_DATA", global = true, hide_env_values = true, value_name = "FOLDER", help_heading = EVERYWHERE)]
    pub data_folder: Option<PathBuf>,
    /// Its loopback port [default: any free one]
    #[arg(long, global = true, value_name = "PORT", help_heading = EVERYWHERE)]
    pub private_port: Option<u16>,
    /// PostgreSQL's programs [default: searched for]
    #[arg(long, env = "SYMPHONY_POSTGRES_BIN", global = true, hide_env_values = true, value_name = "FOLDER", help_heading = EVERYWHERE)]
    pub postgres_binaries: Option<PathBuf>,
}

/// The heading of the options above.
const EVERYWHERE: &str = "Options of every command";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The tour: payments through failing banks and a killed worker, and the proof that no money moved twice
    #[command(
        after_help = "Everything happens on the private PostgreSQL, in a database of its own that is dropped at the end. \
                      Exit code 0 only if the banks' own records and the ledger agree on every payment."
    )]
    Demo(DemoOptions),
    /// Everything in one process on loopback, until Ctrl-C: database, worker, sandbox provider, metrics
    #[command(
        after_help = "Rails of symphony.toml are served too. Without one of that name, rail sandbox is the simulated \
                      provider, whose record of executed transfers is kept in the data folder."
    )]
    Up(Up),
    /// Work: claim what is due, send it, write down what became of it; until SIGTERM
    #[command(
        after_help = "Needs a section [rails.NAME] in symphony.toml for each rail it shall serve (`symphony config` shows one). \
                      Run any number of them on any number of hosts: the database decides who holds what."
    )]
    Run(Run),
    /// The documented defaults of symphony.toml
    Config {
        /// Instead say whether your own file is right, rails and contradictions included
        #[arg(long)]
        check: bool,
    },
    /// Install or update the schema, in one transaction
    Migrate(Migrate),
    /// Produce from a shell
    Enqueue {
        /// What.
        #[command(subcommand)]
        what: Enqueue,
    },
    /// Hand events from a queue to a program on this machine, which answers 2xx when it has applied them
    Consume(Consume),
    /// Lanes at a glance
    #[command(after_help = events::STATUS_HELP)]
    Status {
        /// Again every SECONDS until Ctrl-C: in place at a terminal, block by block in a pipe, with --json a line each
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = clap::value_parser!(u32).range(1..=3_600))]
        watch: Option<u32>,
    },
    /// Lanes, rails, buses and workers in full screen, until q
    #[command(
        after_help = "Keys: q quits, left and right choose a list, up and down scroll it, ? explains.\n\nWithout a terminal: \
                      symphony status --watch. Reads what status reads, with the same grant."
    )]
    Top,
    /// The life of one payment, one event or one execution, outcome by outcome
    #[command(
        after_help = "Examples:\n  symphony show inv-1\n  symphony show 5f0c6f3e-8d1b-4c63-9a0e-2f1d7c3b5a91 --json"
    )]
    Show {
        /// A payment's outbox or instruction id, an event id, or an execution's id
        id: String,
    },
    /// What waits for a person: parked and failed payments, failed events and executions
    Dlq {
        /// What.
        #[command(subcommand)]
        what: Dlq,
    },
    /// Go on after the database was restored, copied or promoted
    Restore {
        /// What.
        #[command(subcommand)]
        what: Restore,
    },
    /// Late outcomes that contradict the ledger: a yes against FAILED, a second reference
    Incident {
        /// What.
        #[command(subcommand)]
        what: Incidents,
    },
    /// Acts that wait for a second person: look at them, approve or reject them
    #[command(after_help = approvals::HELP)]
    Approval {
        /// What.
        #[command(subcommand)]
        what: Approvals,
    },
    /// Take a pending item out of the machine's hands
    Park(ItemAct),
    /// Give a parked item back to the machine, which asks the rail first where it must
    Release(SendingAct),
    /// Settle parked items by what you have found out, or by the bank's statement
    #[command(after_help = dead_letters::RESOLVE_HELP)]
    Resolve(Resolve),
    /// Have the rail asked now what became of a payment
    #[command(after_help = dead_letters::INQUIRE_HELP)]
    Inquire(Inquire),
    /// Try FAILED payments again, publish events again, or run executions again
    #[command(after_help = events::REDRIVE_HELP)]
    Redrive(Redrive),
    /// Let a FIFO lane go on past its head, or a key past its FAILED event
    #[command(after_help = events::SKIP_HELP)]
    Skip(Skip),
    /// Stop claiming from a lane, a rail, a participant, a topic or an app
    Pause {
        /// What.
        #[command(subcommand)]
        what: PauseTarget,
    },
    /// Claim again from a lane, a rail, a participant, a topic or an app
    Resume {
        /// What.
        #[command(subcommand)]
        what: SwitchTarget,
    },
    /// Rails: how they are, what the database knows of them, and changing that
    #[command(after_help = destinations::RAIL_HELP)]
    Rail(Rail),
    /// Buses: how they are, and what they publish to and their consumers read from
    #[command(after_help = destinations::BUS_HELP)]
    Bus {
        /// What; without it, all of them are shown.
        #[command(subcommand)]
        what: Option<Bus>,
    },
    /// Apps: scripts that HTTP requests, entries, ticks, messages and email fire
    #[command(after_help = app::HELP)]
    App {
        /// What.
        #[command(subcommand)]
        what: App,
    },
    /// Access tokens of the HTTP API: make, list and revoke them
    #[command(after_help = token::HELP)]
    Token {
        /// What.
        #[command(subcommand)]
        what: Token,
    },
    /// Is everything as declared? Server, schema, privileges, owners, settings, bloat, and whether the data agrees
    Doctor {
        /// Compare every row of every lane, however many there are; without it, up to 1 GB
        #[arg(long)]
        deep: bool,
    },
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
                      {\"seed\": 7, \"per_mille\": {\"reset_after\": 20, \"delay:250\": 50},\n   \
                      \"inquiry_per_mille\": {\"error:503\": 100},\n   \
                      \"script\": [{\"instruction\": \"inv-7\",\n     \
                      \"faults\": [\"hang_after\", \"none\", \"refuse:AC04\"]}]}"
    )]
    Sandbox(Sandbox),
    /// What a shell completes after `symphony`
    #[command(
        after_help = "Examples:\n  symphony completions bash > /etc/bash_completion.d/symphony\n  \
                      symphony completions zsh > /usr/local/share/zsh/site-functions/_symphony\n  \
                      symphony completions fish > ~/.config/fish/completions/symphony.fish"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// The manual pages
    #[command(after_help = "Example:\n  symphony man --dir /usr/local/share/man/man1")]
    Man {
        /// Write all of them into this folder; without it, the first one is printed
        #[arg(long, value_name = "FOLDER")]
        dir: Option<PathBuf>,
    },
}

/// Options of `up`.
#[derive(Debug, Clone, Args)]
pub struct Up {
    /// Where to serve the API, /metrics, /healthz and /readyz, or off [default: api.listen of the configuration]
    #[arg(long, value_name = "ADDR")]
    pub api: Option<String>,
    /// Where the sandbox provider listens, or off
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8089")]
    pub sandbox: String,
}

/// Options of `run`.
#[derive(Debug, Clone, Args)]
pub struct Run {
    /// The lanes to work [default: all that are configured]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LANES")]
    pub lanes: Vec<LaneName>,
    /// Only these rails of the configuration [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub rails: Vec<String>,
    /// Where to serve the API, /metrics, /healthz and /readyz, or off [default: api.listen of the configuration]
    #[arg(long, value_name = "ADDR")]
    pub api: Option<String>,
    /// Also stop when standard input ends: a worker that must not outlive whoever started it
    #[arg(long, hide = true)]
    pub until_input_ends: bool,
}

/// The lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LaneName {
    /// Payments to rails
    Payments,
    /// Events to buses
    Events,
    /// Triggers to scripts
    Triggers,
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
    /// Drop an older installation (payment_outbox, outbox_status) that holds no unfinished rows; needs --yes
    #[arg(long, requires = "yes")]
    pub replace_legacy: bool,
    /// Drop everything of Symphony's in this database first, the ledger included; needs --yes
    #[arg(long, requires = "yes")]
    pub fresh: bool,
    /// Yes, really
    #[arg(long)]
    pub yes: bool,
    /// How long to wait for a lock before saying who holds it
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub lock_timeout: u64,
}

/// What to enqueue.
#[derive(Debug, Subcommand)]
pub enum Enqueue {
    /// Ask for one payment, or for many from a file
    #[command(
        after_help = "Examples:\n  symphony enqueue payment --instruction inv-1 --participant acme \\\n      \
                            --key 1 --rail sepa \\\n      --payload '{\"amount\": {\"value\": \"10.00\", \"currency\": \"EUR\"}}'\n  \
                            symphony enqueue payment --lines payments.jsonl\n\nA line of the file is \
                            {\"instruction_id\": …, \"participant_id\": …, \"idempotency_key\": …, \"rail_type\": …, \"payload\": {…}}."
    )]
    Payment(EnqueuePayment),
    /// Tell one event, or many from a file
    #[command(after_help = events::ENQUEUE_HELP)]
    Event(EnqueueEvent),
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

/// Options of `sandbox`.
#[derive(Debug, Clone, Args)]
pub struct Sandbox {
    /// Where to listen; port 0 is any free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS", value_parser = listen_address)]
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

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "it must look like 127.0.0.1:8089, or [::1]:8089".to_owned())
}
