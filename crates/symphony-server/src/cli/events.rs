//! The options of what is done with events.

use std::path::PathBuf;

use chrono::{DateTime, TimeDelta, Utc};
use clap::Args;
use symphony::lanes::events::TypePattern;
use uuid::Uuid;

use super::ApprovedAct;

/// Options of `enqueue event`.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub struct EnqueueEvent {
    /// One event, a JSON list of events, or one event a line; - reads standard input
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// One event, as JSON
    #[arg(long, value_name = "JSON")]
    pub event: Option<String>,
    /// Print the JSON Schema of an event and nothing else; needs no database
    #[arg(long)]
    pub json_schema: bool,
}

/// What `enqueue event --help` teaches.
pub(super) const ENQUEUE_HELP: &str = r#"Examples:
  symphony enqueue event --event '{"envelope": {"v": 1,
      "eventId": "5f0c6f3e-8d1b-4c63-9a0e-2f1d7c3b5a91",
      "occurredAt": "2027-01-31T12:00:00Z", "tenantId": "tnt_1",
      "type": "events.transfers.submitted"},
      "key": {"transferId": "tr_1"}, "payload": {"amount": "10.00"}}'
  symphony enqueue event events.jsonl
  symphony enqueue event --json-schema > event.schema.json

All or nothing: if one event is bad, nothing of the file is written, so that a
corrected event keeps its place. Only a file of more than 10,000 events (or
64 MiB) goes in pieces of that size, each all or nothing, up to the first bad
one. Repeating a file is safe: an event id that is known is not written twice.

A program tells an event in the transaction of what it tells about: examples/
has it in eight languages."#;

/// What `status --help` teaches.
pub(super) const STATUS_HELP: &str = "Figures:
  due           could go out now
  in flight     held by a worker; expired: by one that did not report in time
  scheduled     wait for their retry
  waiting       payments behind a FIFO head or a pause,
                events behind a FAILED one of their key
  parked        payments that wait for a person; events are never parked
  dead letters  ended FAILED and not redriven: symphony dlq list
  incidents     late outcomes that contradict the ledger: symphony incident list
  approvals     acts that wait for a second person: symphony approval list";

/// Options of `redrive`: of one payment, or of events.
#[derive(Debug, Clone, Args)]
pub struct Redrive {
    /// A payment: an outbox id, or an instruction id that has one item
    #[arg(value_name = "ITEM")]
    pub id: Option<String>,
    /// Events, by their ids; may be given several times
    #[arg(long, value_name = "ID", value_delimiter = ',', value_parser = event_id, help_heading = "Events")]
    pub event_id: Vec<Uuid>,
    /// Events of a type, of all types below one ('events.transfers.*'), or of any ('*')
    #[arg(long, value_name = "TYPE", value_parser = event_type, help_heading = "Events")]
    pub event_type: Option<String>,
    /// Events of this key
    #[arg(long, value_name = "KEY", help_heading = "Events")]
    pub key: Option<String>,
    /// Events of this tenant
    #[arg(long, value_name = "ID", help_heading = "Events")]
    pub tenant: Option<String>,
    /// FAILED payments of this rail
    #[arg(long, value_name = "NAME", help_heading = "Payments")]
    pub rail: Option<String>,
    /// FAILED payments of this participant
    #[arg(long, value_name = "ID", help_heading = "Payments")]
    pub participant: Option<String>,
    /// FAILED executions of this app, again with the script as it is now
    #[arg(long, value_name = "NAME", help_heading = "Apps", conflicts_with_all = ["rail", "participant"])]
    pub app: Option<String>,
    /// Those that ended with this code
    #[arg(
        long,
        value_name = "CODE",
        visible_alias = "code",
        help_heading = "Filters of every lane"
    )]
    pub error_code: Option<String>,
    /// Events committed, others ended at or after this time: 2027-01-31T12:00:00Z, or how long ago, such as 2h
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Filters of every lane")]
    pub since: Option<DateTime<Utc>>,
    /// Events committed, others ended before this time
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Filters of every lane")]
    pub until: Option<DateTime<Utc>>,
    /// Events that were SENT, too; with a filter, those instead of the FAILED ones
    #[arg(long, help_heading = "Events")]
    pub sent: bool,
    /// How long the bus swallows a repeated event id: an event waits until this long after its last attempt
    #[arg(long, default_value_t = DEDUP_WINDOW_SECONDS, value_name = "SECONDS", help_heading = "Events",
          value_parser = clap::value_parser!(i32).range(0..=604_800))]
    pub dedup_window: i32,
    /// At most so many, the earliest first
    #[arg(long, default_value_t = 100, help_heading = "Filters of every lane", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub limit: u32,
    /// Who and why.
    #[command(flatten)]
    pub act: ApprovedAct,
    /// A payment: the rail never said what became of an earlier try: act all the same, and let --reason say how you know
    #[arg(long, requires = "id")]
    pub despite_unknown: bool,
}

/// SNS FIFO's: the longest of the buses here, unless configured otherwise.
pub const DEDUP_WINDOW_SECONDS: i32 = 300;

/// What `redrive --help` teaches.
pub(super) const REDRIVE_HELP: &str = "A payment becomes a new item with a new key to the rail. An event goes out \
     again under the same event id, in its place in its key.\n\nExamples:\n  \
     symphony redrive inv-1 --reason 'account was corrected'\n  \
     symphony redrive --event-id 5f0c6f3e-8d1b-4c63-9a0e-2f1d7c3b5a91 \\\n      --reason 'the receiver is mended'\n  \
     symphony redrive --event-type 'events.transfers.*' --since 2h \\\n      --error-code RETRY_CEILING --reason 'the receiver is mended'\n  \
     symphony redrive --sent --key tr_123 --reason 'consumer lost its data'\n  \
     symphony redrive --rail sepa --code AC04 --since 2h \\\n      --reason 'the bank corrected its list'\n  \
     symphony redrive --app shop --code SCRIPT_ERROR --reason 'the script is mended'\n\n\
     Many payments at once: what the rail never answered is left alone.\n\n\
     A bus that deduplicates (SNS FIFO: 300 seconds) swallows a repeated event id without a word. So an event waits until \
     --dedup-window has passed since its last attempt; the answer says until when. Later events of its key wait behind it.";

/// Options of `skip`: of a FIFO lane's head, or of an event.
#[derive(Debug, Clone, Args)]
pub struct Skip {
    /// The lane's participant
    #[arg(long, value_name = "ID", required_unless_present = "event_id", requires = "rail")]
    pub participant: Option<String>,
    /// The lane's rail
    #[arg(
        long,
        value_name = "NAME",
        required_unless_present = "event_id",
        requires = "participant"
    )]
    pub rail: Option<String>,
    /// A FAILED event that blocks its key
    #[arg(long, value_name = "ID", value_parser = event_id, conflicts_with_all = ["participant", "rail"])]
    pub event_id: Option<Uuid>,
    /// Who and why.
    #[command(flatten)]
    pub act: ApprovedAct,
}

/// What `skip --help` teaches.
pub(super) const SKIP_HELP: &str = "Examples:\n  \
     symphony skip --participant acme --rail sepa --reason 'settled by hand'\n  \
     symphony skip --event-id 5f0c6f3e-8d1b-4c63-9a0e-2f1d7c3b5a91 \\\n      --reason 'nobody reads it any more'\n\n\
     A skipped event stays FAILED: consumers do not get it, unless it is redriven later, out of its turn.";

fn event_type(text: &str) -> Result<String, String> {
    TypePattern::parse(text).map(|_| text.to_owned())
}

/// A time, or how long ago it was.
pub(super) fn time(text: &str) -> Result<DateTime<Utc>, String> {
    DateTime::parse_from_rfc3339(text).map(|at| at.to_utc()).ok().or_else(|| ago(text)).ok_or_else(
        || {
            "must be a time such as 2027-01-31T12:00:00Z, or how long ago, such as 90s, 30m, 2h or 7d"
                .to_owned()
        },
    )
}

fn ago(text: &str) -> Option<DateTime<Utc>> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit_seconds: i64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    let number: u32 = number.parse().ok()?;
    let length = TimeDelta::try_seconds(i64::from(number).checked_mul(unit_seconds)?)?;
    Utc::now().checked_sub_signed(length)
}

fn event_id(text: &str) -> Result<Uuid, String> {
    let example = "5f0c6f3e-8d1b-4c63-9a0e-2f1d7c3b5a91";
    text.parse().map_err(|_| {
        format!("an event's id looks like {example}; `symphony dlq list` has those that wait")
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_given_as_such_or_as_how_long_ago() {
        assert_eq!(
            time("2027-01-31T12:00:00+01:00").unwrap().to_rfc3339(),
            "2027-01-31T11:00:00+00:00"
        );
        let ago = |text: &str| {
            let at = time(text).unwrap();
            (Utc::now() - at).num_seconds()
        };
        assert_eq!((ago("90s"), ago("2h"), ago("7d")), (90, 7_200, 604_800));
        for bad in ["", "h", "yesterday", "-5m", "2027-01-31", "5€", "99999999999d"] {
            assert!(time(bad).unwrap_err().contains("2027-01-31T12:00:00Z"), "{bad}");
        }
    }
}
