//! The options of acts: who, why and on what.

use clap::{Args, Subcommand, ValueEnum};

/// Who acts and why. Without --yes an act is a dry run.
#[derive(Debug, Clone, Args)]
pub struct ActOptions {
    /// Why; kept in the ledger, so no account numbers
    #[arg(long)]
    pub reason: String,
    /// Who you are [default: $SUDO_USER, else $USER]
    #[arg(long, value_name = "NAME")]
    pub actor: Option<String>,
    /// Do it; without this, only say what would change
    #[arg(long)]
    pub yes: bool,
}

/// Who acts and why, and whether a second person shall agree.
#[derive(Debug, Clone, Args)]
pub struct ApprovedAct {
    /// Who and why.
    #[command(flatten)]
    pub act: ActOptions,
    /// Ask a second person to approve it, also where that is not required
    #[arg(long)]
    pub request_approval: bool,
}

/// Options of an act on one item.
#[derive(Debug, Clone, Args)]
pub struct ItemAct {
    /// An outbox id, or an instruction id that has one item
    pub id: String,
    /// Who and why.
    #[command(flatten)]
    pub act: ApprovedAct,
}

/// Options of an act after which something may be sent again.
#[derive(Debug, Clone, Args)]
pub struct SendingAct {
    /// The item, who and why.
    #[command(flatten)]
    pub item: ItemAct,
    /// The rail never said what became of an earlier try: act all the same, and let --reason say how you know
    #[arg(long)]
    pub despite_unknown: bool,
}

/// What to do with incidents.
#[derive(Debug, Subcommand)]
pub enum Incidents {
    /// Late outcomes that contradict the ledger and that nobody has closed
    List,
    /// Say what became of one, so that it is not listed any more
    #[command(
        after_help = "Example:\n  symphony incident close 17 --reason 'the bank has returned R2' --yes"
    )]
    Close {
        /// The incident's number, as `incident list` prints it
        number: i64,
        /// Its lane
        #[arg(long, value_enum, default_value = "payments")]
        lane: IncidentLane,
        /// Who and why.
        #[command(flatten)]
        act: ApprovedAct,
    },
}

/// A lane that has incidents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IncidentLane {
    /// Payments
    Payments,
    /// Events
    Events,
    /// Triggers
    Triggers,
}

/// What to pause.
#[derive(Debug, Clone, Subcommand)]
pub enum PauseTarget {
    /// Everything that is paused, with who did it and why
    List,
    /// Something.
    #[command(flatten)]
    Switch(SwitchTarget),
}

/// What to pause or resume: a lane, or a part of one. Enqueueing goes on, and what is in flight ends as it does.
#[derive(Debug, Clone, Subcommand)]
pub enum SwitchTarget {
    /// All payments
    Payments {
        /// Who and why.
        #[command(flatten)]
        act: ActOptions,
    },
    /// All events
    #[command(
        after_help = "Example:\n  symphony pause events --reason 'the broker moves' --yes\n  symphony resume events --reason 'it has moved' --yes"
    )]
    Events {
        /// Who and why.
        #[command(flatten)]
        act: ActOptions,
    },
    /// One topic of a bus; other topics and keys go on
    #[command(
        after_help = "Example:\n  symphony pause topic main/orders --reason 'a consumer is broken' --yes\n  symphony resume topic main/orders --reason 'it is repaired' --yes"
    )]
    Topic {
        /// The bus and its topic, as bus/topic
        #[arg(value_name = "BUS/TOPIC")]
        name: String,
        /// Who and why.
        #[command(flatten)]
        act: ActOptions,
    },
    /// All scripts of all apps
    Triggers {
        /// Who and why.
        #[command(flatten)]
        act: ActOptions,
    },
    /// One rail
    Rail {
        /// The rail
        name: String,
        /// Who and why.
        #[command(flatten)]
        act: ActOptions,
    },
    /// One participant
    Participant {
        /// The participant
        id: String,
        /// Who and why.
        #[command(flatten)]
        act: ActOptions,
    },
    /// One app; what fires it is written and waits, and clients of its synchronous routes get 504
    App {
        /// The app
        name: String,
        /// Who and why.
        #[command(flatten)]
        act: ActOptions,
    },
}
