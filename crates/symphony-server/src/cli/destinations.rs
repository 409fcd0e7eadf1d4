//! The options of `rail` and `bus`.

use clap::{Args, Subcommand};

use super::ActOptions;

/// What `rail --help` teaches.
pub(super) const RAIL_HELP: &str = "Examples:\n  symphony rail                    all of them, and how they are\n  \
     symphony rail sepa               one of them\n  \
     symphony rail sepa --fifo true --reason 'the bank wants order'\n  \
     symphony rail reset sepa --reason 'the bank says it is back'\n\n\
     OPEN: it is in trouble and left alone; one payment at a time finds out when it is well again. Each worker has its own view: the \
     worst of them is shown. Reset is not needed for that; it only saves the seconds until the next probe.";

/// What `bus --help` teaches.
pub(super) const BUS_HELP: &str = "Examples:\n  symphony bus                     every topic, and how it is\n  \
     symphony bus show main/transfers.fifo\n  symphony bus reset main/transfers.fifo --reason 'the policy is mended'\n  \
     symphony bus reset main --reason 'the broker is back'    all topics of the bus\n  symphony bus setup --dry-run\n\n\
     Each topic (of http: each endpoint) is left alone by itself: one in trouble stops no other.";

/// What else to do with rails.
#[derive(Debug, Clone, Subcommand)]
pub enum RailAct {
    /// All rails, and how they are
    List,
    /// One rail: its breaker, its troubles, its calls, its settings
    Show {
        /// The rail
        name: String,
    },
    /// Have it tried at once by every worker that leaves it alone
    Reset(Reset),
}

/// Options of a reset.
#[derive(Debug, Clone, Args)]
pub struct Reset {
    /// The rail, the topic as BUS/TOPIC, or the bus
    pub name: String,
    /// Who and why.
    #[command(flatten)]
    pub act: ActOptions,
}

/// Options of `rail`.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Rail {
    /// What else.
    #[command(subcommand)]
    pub what: Option<RailAct>,
    /// The rail; without it, all of them are shown
    pub name: Option<String>,
    /// Strict order per participant; changes only while the rail has nothing pending
    #[arg(long, value_name = "BOOL", requires_all = ["name", "reason"])]
    pub fifo: Option<bool>,
    /// What a FAILED head does to its FIFO lane
    #[arg(long, value_name = "WHAT", value_parser = ["block", "continue"], requires_all = ["name", "reason"])]
    pub on_failed: Option<String>,
    /// It can neither deduplicate nor be asked: sending is marked before the first byte leaves
    #[arg(long, value_name = "BOOL", requires_all = ["name", "reason"])]
    pub marks_sending: Option<bool>,
    /// How long an item is tried while the rail is busy or away, before it is FAILED with GIVEN_UP
    #[arg(long, value_name = "SECONDS", requires_all = ["name", "reason"])]
    pub give_up_after_seconds: Option<i32>,
    /// Why; needed to change something
    #[arg(long)]
    pub reason: Option<String>,
    /// Who you are [default: $SUDO_USER, else $USER]
    #[arg(long, value_name = "NAME")]
    pub actor: Option<String>,
    /// Do it; without this, only say what would change
    #[arg(long)]
    pub yes: bool,
}

/// What to do with buses.
#[derive(Debug, Subcommand)]
pub enum Bus {
    /// Create topics, queues, subscriptions and policies, or streams and consumers, as [buses.NAME.setup] says
    #[command(
        after_help = "Changes only what differs and deletes nothing: it can be run again at any time. Prints the least \
                      permissions of the producer and of each consumer."
    )]
    Setup(BusSetup),
    /// All topics of buses that live workers serve, and how they are
    List,
    /// One topic, or those of a bus: breaker, troubles, calls
    Show {
        /// BUS/TOPIC, or the bus
        name: String,
    },
    /// Have it tried at once by every worker that leaves it alone
    Reset(Reset),
}

/// Options of `bus setup`.
#[derive(Debug, Clone, Args)]
pub struct BusSetup {
    /// The bus; without it, all of them
    pub name: Option<String>,
    /// Only say what would be done
    #[arg(long)]
    pub dry_run: bool,
}
