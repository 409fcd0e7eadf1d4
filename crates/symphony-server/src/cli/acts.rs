//! The options of acts: who, why and on what.

use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
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

/// Options of an act on one item.
#[derive(Debug, Clone, Args)]
pub struct ItemAct {
    /// An outbox id, or an instruction id that has one item
    pub id: String,
    /// Who and why.
    #[command(flatten)]
    pub act: ActOptions,
    /// The second person, where one is needed
    #[arg(long, value_name = "NAME")]
    pub approver: Option<String>,
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
        after_help = "Example:\n  symphony incident close 17 --reason 'the bank has returned the second transfer, R2' --yes"
    )]
    Close {
        /// The incident's number, as `incident list` prints it
        number: i64,
        /// Its lane
        #[arg(long, value_enum, default_value = "payments")]
        lane: IncidentLane,
        /// Who and why.
        #[command(flatten)]
        act: ActOptions,
        /// The second person, where one is needed
        #[arg(long, value_name = "NAME")]
        approver: Option<String>,
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

/// Options of `resolve`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "  --as dispatched  the money moved; --reference is the proof\n  --as failed      it did not move and shall not\n  \
                        --as retry       it did not move and shall be sent; nothing will be inquired first: be sure"
)]
pub struct Resolve {
    /// What became of it
    #[arg(long = "as", value_parser = ResolveAsParser, value_name = "OUTCOME")]
    pub outcome: ResolveAs,
    /// The rail's reference, the proof that the money moved
    #[arg(long, required_if_eq("outcome", "dispatched"))]
    pub reference: Option<String>,
    /// The item, who and why.
    #[command(flatten)]
    pub act: SendingAct,
}

/// What became of a parked item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ResolveAs {
    /// The money moved
    Dispatched,
    /// It did not move and shall not
    Failed,
    /// It did not move and shall be sent
    Retry,
}

/// Reads [`ResolveAs`]. Whoever writes another word for it is told the right one: by its letters `paid` is nearest to
/// `failed`, which would be said of money that has moved.
#[derive(Clone)]
struct ResolveAsParser;

impl TypedValueParser for ResolveAsParser {
    type Value = ResolveAs;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<ResolveAs, clap::Error> {
        let meant = match value.to_str().map(str::to_ascii_lowercase).as_deref() {
            Some(
                "paid" | "sent" | "settled" | "executed" | "accepted" | "success" | "succeeded"
                | "done",
            ) => "dispatched",
            Some("unpaid" | "refused" | "rejected" | "returned" | "cancelled" | "canceled") => {
                "failed"
            }
            Some("again" | "resend" | "redo") => "retry",
            _ => return EnumValueParser::<ResolveAs>::new().parse_ref(command, argument, value),
        };
        let problem = format!(
            "--as {}: did you mean --as {meant}? dispatched: the money moved; failed: it did not and shall not; retry: it did \
             not and shall be sent\n",
            value.to_string_lossy()
        );
        Err(clap::Error::raw(clap::error::ErrorKind::InvalidValue, problem).with_cmd(command))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(ResolveAs::value_variants().iter().filter_map(ValueEnum::to_possible_value)))
    }
}

/// What to pause or resume.
#[derive(Debug, Clone, Subcommand)]
pub enum SwitchTarget {
    /// All payments
    #[command(visible_alias = "payments")]
    Lane {
        /// Who and why.
        #[command(flatten)]
        act: ActOptions,
    },
    /// All events; enqueueing goes on, and what is in flight ends as it does
    #[command(
        after_help = "Example:\n  symphony pause events --reason 'the broker moves' --yes\n  symphony resume events --reason 'it has moved' --yes"
    )]
    Events {
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
}
