//! What needs a person, and one person who should not be let in.

use std::time::{Duration, Instant};

use crate::sandbox::{Execution, Sandbox};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use symphony::db::{
    Database, DbError, LetterFilter, PaymentAttemptRow, PaymentLife, WaitingItem, WaitingQuery,
};
use symphony::domain::{Act, OutboxId, Resolution};

use super::producers::{BLOCKS_ITS_LANE, CANNOT_BE_SETTLED, INVALID, ORDERED, ORDERED_MERCHANT};
use super::story::Story;
use crate::LabError;
use crate::host::Tone;

pub(super) const PERSON: &str = "dana@bank.example";
/// Nothing in the demo takes that long, unless it is broken.
const WAIT_MAX: Duration = Duration::from_mins(1);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

fn act(reason: &str) -> Act {
    Act {
        actor: PERSON.to_owned(),
        reason: reason.to_owned(),
        dry_run: false,
        despite_unknown: false,
    }
}

/// Look again and again until there is an answer.
pub(super) async fn wait_for<T>(
    what: &str,
    mut look: impl AsyncFnMut() -> Result<Option<T>, LabError>,
) -> Result<T, LabError> {
    let started = Instant::now();
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if started.elapsed() > WAIT_MAX {
            return Err(LabError::new(format!("waited a minute in vain for {what}")));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// The one item of an instruction, once it is in a state.
async fn once(
    database: &Database,
    instruction: &str,
    state: &str,
) -> Result<PaymentLife, LabError> {
    let auditor = database.auditor();
    wait_for(&format!("{instruction} to be {state}"), async || {
        let Some(item) = auditor.find_payments(instruction).await?.first().copied() else {
            return Ok(None);
        };
        Ok(auditor.payment_life(item).await?.filter(|life| life.state == state))
    })
    .await
}

/// Make a rail keep each merchant's order.
pub(super) async fn make_ordered(database: &Database, rail: &str) -> Result<(), LabError> {
    let reason = act("payments of a merchant must arrive in order");
    database.operator().configure_rail(rail, &reason, Some(true), None, None, None).await?;
    Ok(())
}

/// A payment with a JSON number as its amount ends before it is sent.
pub(super) async fn see_the_invalid_one_fail(
    database: &Database,
    story: &Story<'_>,
) -> Result<(), LabError> {
    let life = once(database, INVALID, "FAILED").await?;
    let code =
        life.attempts.last().and_then(|attempt: &PaymentAttemptRow| attempt.error_code.clone());
    story.tell(
        Tone::Good,
        "invalid",
        &format!(
            "{INVALID}, whose amount is a JSON number instead of text: FAILED ({}), never sent",
            code.unwrap_or_default()
        ),
    )
}

/// Until it fails: whatever no machine can find out is parked, and settled from the banks' own books.
pub(super) async fn settle_what_is_parked(
    database: &Database,
    banks: &[&Sandbox],
    story: &Story<'_>,
) -> LabError {
    let query = WaitingQuery {
        parked: true,
        failed: false,
        rail_type: None,
        participant_id: None,
        filter: LetterFilter { limit: 10, ..LetterFilter::default() },
    };
    loop {
        let settled = async {
            for item in database.auditor().waiting(query).await? {
                settle(database, banks, story, &item).await?;
            }
            Ok(())
        };
        if let Err(failure) = settled.await {
            return failure;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn settle(
    database: &Database,
    banks: &[&Sandbox],
    story: &Story<'_>,
    item: &WaitingItem,
) -> Result<(), LabError> {
    let name = &item.instruction_id;
    let why = if name == CANNOT_BE_SETTLED {
        "sent, no answer, and this bank's \"not found\" proves nothing"
    } else {
        "it may have been sent, and cannot be sent again"
    };
    story.tell(Tone::Bad, "parked", &format!("{name}: {why}: for a person to settle"))?;
    // Time to read the line, and to look into the banks' statements.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let key = database.auditor().rail_key(item.outbox_id).await?.to_string();
    let mut found = None;
    for bank in banks {
        let record = bank.record().map_err(|error| LabError::new(error.to_string()))?;
        let execution = record.executions().find(|execution| execution.key == key);
        found = found.or(execution.map(Execution::reference));
    }
    let (resolution, told) = match found {
        Some(rail_reference) => {
            let told = format!("who found {rail_reference} in the bank's statement: it was paid");
            (Resolution::Dispatched { rail_reference }, told)
        }
        None => (
            Resolution::Retry,
            "who found nothing in the bank's statement: to be tried again".to_owned(),
        ),
    };
    let reason =
        Act { despite_unknown: true, ..act("looked it up in the bank's statement of today") };
    database.operator().resolve_payment(item.outbox_id, &resolution, &reason).await?;
    story.tell(Tone::Good, "resolved", &format!("by {PERSON}, {told}"))
}

/// A refused payment blocks its strict order until it is redriven in its place; the redrive's key.
pub(super) async fn unblock_the_order(
    database: &Database,
    rail: &str,
    story: &Story<'_>,
) -> Result<OutboxId, LabError> {
    let auditor = database.auditor();
    let query = WaitingQuery {
        parked: false,
        failed: true,
        rail_type: Some(rail),
        participant_id: None,
        filter: LetterFilter { limit: 1, ..LetterFilter::default() },
    };
    let blocked = wait_for("the blocked lane", async || {
        Ok(auditor.waiting(query).await?.into_iter().find(|item| item.blocks_its_lane))
    })
    .await?;
    story.tell(
        Tone::Bad,
        "blocked",
        &format!(
            "{ORDERED_MERCHANT}'s strict order: {} was refused ({}), the {} behind it wait",
            blocked.instruction_id,
            blocked.rail_code.unwrap_or_default(),
            ORDERED - BLOCKS_ITS_LANE - 1
        ),
    )?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let redriven = database
        .operator()
        .redrive_payment(blocked.outbox_id, &act("the account was reopened"))
        .await?;
    story.tell(
        Tone::Good,
        "redriven",
        &format!("by {PERSON}, in its place and under a new key; the others follow in order"),
    )?;
    redriven.redriven_as.ok_or_else(|| LabError::new("the redrive made no new payment"))
}

/// A superuser wants to rewrite the ledger.
pub(super) async fn refuse_rewriting(
    options: &PgConnectOptions,
    story: &Story<'_>,
) -> Result<(), LabError> {
    let mut connection = options.connect().await?;
    // symphony-guard: allow, this must be refused
    let attempt = sqlx::raw_sql("UPDATE symphony.payment_outbox_attempts SET state = 'FAILED'")
        .execute(&mut connection)
        .await;
    connection.close().await?;
    match attempt.map_err(DbError::from) {
        Err(DbError::AppendOnly { .. }) => story.tell(
            Tone::Good,
            "refused",
            "a superuser who wanted to rewrite the ledger (P0001)",
        ),
        other => Err(LabError::new(format!("the ledger could be rewritten: {other:?}"))),
    }
}
