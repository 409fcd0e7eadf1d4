//! The options of what waits for a person: listing, closing, settling by filter or by a bank's statement, asking.

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand, ValueEnum};
use uuid::Uuid;

use super::events::time;
use super::resolve_as::ResolveAsParser;
use super::{ApprovedAct, ItemAct};

/// What of the dead letters.
#[derive(Debug, Subcommand)]
pub enum Dlq {
    /// List what waits for a person, longest first, with the command to type next
    #[command(
        after_help = "Examples:\n  symphony dlq list\n  symphony dlq list --lane events --json\n  \
                      symphony dlq list --rail sepa --code AC04 --since 2h --newest\n\n\
                      A page ends with the command that prints the next one."
    )]
    List(DlqList),
    /// How many wait, by lane, state, place and code
    Count,
    /// Say that FAILED ones need nothing more, so that they are not listed any more
    #[command(
        after_help = "Example:\n  symphony dlq close inv-1 --reason 'paid by hand, ticket 4711' --yes\n\n\
                      It stays FAILED, and can still be redriven. One that blocks a lane or a key is skipped or redriven first."
    )]
    Close(DlqClose),
}

/// A lane whose dead letters are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DlqLane {
    /// Payments that are parked or FAILED
    Payments,
    /// Events that are FAILED
    Events,
    /// Executions that are FAILED
    Triggers,
}

/// Options of `dlq list`.
#[derive(Debug, Clone, Args)]
#[allow(clippy::struct_excessive_bools)] // they are flags
pub struct DlqList {
    /// Only this lane's [default: all]
    #[arg(long, value_enum)]
    pub lane: Option<DlqLane>,
    /// Only parked payments
    #[arg(long, conflicts_with = "failed")]
    pub parked: bool,
    /// Only FAILED ones that nobody has redriven or closed
    #[arg(long)]
    pub failed: bool,
    /// Only this rail's payments
    #[arg(long, value_name = "NAME")]
    pub rail: Option<String>,
    /// Only this participant's payments
    #[arg(long, value_name = "ID")]
    pub participant: Option<String>,
    /// Only events to this topic, or to BUS/TOPIC
    #[arg(long, value_name = "NAME")]
    pub topic: Option<String>,
    /// Only this app's executions
    #[arg(long, value_name = "NAME")]
    pub app: Option<String>,
    /// Only those with this code, ours or the rail's
    #[arg(long, value_name = "CODE", visible_alias = "error-code")]
    pub code: Option<String>,
    /// Only what has waited since then or later: 2027-01-31T12:00:00Z, or how long ago, such as 2h
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub since: Option<DateTime<Utc>>,
    /// Only what has waited since before
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub until: Option<DateTime<Utc>>,
    /// The newest first
    #[arg(long)]
    pub newest: bool,
    /// Go on after this one, as the page before says
    #[arg(long, value_name = "CURSOR", value_parser = Cursor::parse)]
    pub after: Option<Cursor>,
    /// At most so many of each lane
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
}

/// Where a page ended: when it began to wait, and its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// Since when the last one of the page waits.
    pub since: DateTime<Utc>,
    /// Which one.
    pub id: Uuid,
}

impl Cursor {
    fn parse(text: &str) -> Result<Self, String> {
        let read = || {
            let (micros, id) = text.split_once('.')?;
            let since = DateTime::from_timestamp_micros(micros.parse().ok()?)?;
            Some(Self { since, id: id.parse().ok()? })
        };
        read().ok_or_else(|| "must be a cursor, as the page before printed it".to_owned())
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.since.timestamp_micros(), self.id)
    }
}

/// Options of `dlq close`.
#[derive(Debug, Clone, Args)]
pub struct DlqClose {
    /// A payment's outbox or instruction id, an event's or an execution's id; may be given several times
    #[arg(required = true, value_name = "ID")]
    pub ids: Vec<String>,
    /// Who and why.
    #[command(flatten)]
    pub act: ApprovedAct,
}

/// Options of `inquire`.
#[derive(Debug, Clone, Args)]
pub struct Inquire {
    /// The item, who and why.
    #[command(flatten)]
    pub item: ItemAct,
    /// How long to wait for the answer
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub wait: u32,
}

/// What `inquire --help` teaches.
pub(super) const INQUIRE_HELP: &str = "Example:\n  symphony inquire inv-1 --reason 'the customer asks' --yes\n\n\
     A worker that serves its rail asks, and what the rail knows enters the ledger. A parked payment is never sent by this: what the \
     rail cannot settle is parked again.";

/// Options of `resolve`: of one payment, of parked ones like this, or of what a bank's statement says.
#[derive(Debug, Clone, Args)]
#[allow(clippy::struct_excessive_bools)] // they are flags
pub struct Resolve {
    /// An outbox id, or an instruction id that has one item
    #[arg(required_unless_present_any = ["statement", "rail", "participant", "code", "since", "until"],
          conflicts_with_all = ["statement", "rail", "participant", "code", "since", "until"])]
    pub id: Option<String>,
    /// What became of it
    #[arg(
        long = "as",
        value_parser = ResolveAsParser,
        value_name = "OUTCOME",
        required_unless_present = "statement",
        conflicts_with = "statement"
    )]
    pub outcome: Option<ResolveAs>,
    /// The rail's reference, the proof that the money moved
    #[arg(long, required_if_eq("outcome", "dispatched"), conflicts_with = "statement")]
    pub reference: Option<String>,
    /// A bank's statement: CSV with a header and the columns key, reference and result (executed or refused); - reads standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rail", "participant", "code", "since", "until"])]
    pub statement: Option<PathBuf>,
    /// Leave out the lines of the statement that contradict the ledger or cannot be read; without it, one of them stops everything
    #[arg(long, requires = "statement")]
    pub skip_contradictions: bool,
    /// All parked ones of this rail
    #[arg(long, value_name = "NAME", help_heading = "Many at once")]
    pub rail: Option<String>,
    /// All parked ones of this participant
    #[arg(long, value_name = "ID", help_heading = "Many at once")]
    pub participant: Option<String>,
    /// All parked ones whose last outcome has this code, ours or the rail's
    #[arg(long, value_name = "CODE", visible_alias = "error-code", help_heading = "Many at once")]
    pub code: Option<String>,
    /// All that were parked then or later: 2027-01-31T12:00:00Z, or how long ago, such as 2h
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Many at once")]
    pub since: Option<DateTime<Utc>>,
    /// All that were parked before
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Many at once")]
    pub until: Option<DateTime<Utc>>,
    /// At most so many, those that wait longest first
    #[arg(long, default_value_t = 100, help_heading = "Many at once", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub limit: u32,
    /// Who and why.
    #[command(flatten)]
    pub act: ApprovedAct,
    /// The rail never said what became of an earlier try: act all the same, and let --reason say how you know
    #[arg(long, requires = "id")]
    pub despite_unknown: bool,
}

/// What `resolve --help` teaches.
pub(super) const RESOLVE_HELP: &str = "  --as dispatched  the money moved; --reference is the proof\n  --as failed      it did not move and shall not\n  \
     --as retry       it did not move and shall be sent; nothing will be inquired first: be sure\n\n\
     Examples:\n  symphony resolve inv-1 --as dispatched --reference R-77 --reason 'the bank confirmed it'\n  \
     symphony resolve --statement today.csv --reason 'statement of 16 November'\n  \
     symphony resolve --rail sepa --as failed --since 2h --reason 'the bank rejected the file'\n\n\
     Many at once leaves alone whatever the rail never answered: such a payment is settled one at a time, or by the bank's statement.";

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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_printed_and_nothing_else_is() {
        let cursor = Cursor {
            since: DateTime::from_timestamp_micros(1_793_000_000_123_456).unwrap(),
            id: Uuid::from_u128(7),
        };
        assert_eq!(Cursor::parse(&cursor.to_string()), Ok(cursor));
        for bad in ["", "7", "7.", ".7", "x.00000000-0000-0000-0000-000000000007"] {
            assert!(Cursor::parse(bad).unwrap_err().contains("cursor"), "{bad}");
        }
    }
}
