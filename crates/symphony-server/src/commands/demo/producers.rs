//! The merchants: what they ask for, and the mistakes producers make.

use std::collections::BTreeSet;
use std::time::Duration;

use symphony::db::{Database, DbError, Ingest, Role};
use symphony::domain::{Payload, PaymentRequest};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::story::{Story, Tone, grouped};
use crate::output::Failure;

pub(super) const MERCHANTS: u32 = 10;
/// The merchant whose payments must arrive in order, and how many there are.
pub(super) const ORDERED_MERCHANT: &str = "merchant-01";
pub(super) const ORDERED: u32 = 24;
/// Of those: its account is closed, so that the others wait for a person.
pub(super) const BLOCKS_ITS_LANE: u32 = 8;
/// Of those: executed, but the connection broke before the answer, so that the others wait for an inquiry.
pub(super) const DOUBTED_IN_ORDER: u32 = 15;
/// The payment whose life is shown at the end: executed without an answer, and the first inquiry fails too.
pub(super) const STORY: &str = "invoice-00007";
/// The payment nobody but a person can settle.
pub(super) const CANNOT_BE_SETTLED: &str = "wire-invoice-1";
/// The payment that is wrong.
pub(super) const INVALID: &str = "careless-invoice-1";

const PRODUCERS: u32 = 4;
const TICK: Duration = Duration::from_millis(50);
const BATCH_ITEMS: usize = 500;

/// The name of a payment in the strict order.
pub(super) fn ordered(number: u32) -> String {
    format!("instant-invoice-{number:02}")
}

fn request(
    instruction: String,
    participant: String,
    rail: &str,
    amount: &str,
) -> Result<PaymentRequest, Failure> {
    let payload = format!(
        r#"{{"amount": {{"value": {amount}, "currency": "EUR"}}, "destination": {{"iban": "DE89370400440532013000"}}}}"#
    );
    Ok(PaymentRequest {
        instruction_id: instruction,
        participant_id: participant,
        idempotency_key: "pay".to_owned(),
        rail_type: rail.to_owned(),
        payload: Payload::parse(&payload).map_err(|error| Failure::new(error.to_string()))?,
        traceparent: None,
    })
}

fn sepa(number: u32) -> Result<PaymentRequest, Failure> {
    let amount = format!(r#""{}.{:02}""#, 1 + number % 500, number % 100);
    let merchant = format!("merchant-{:02}", number % MERCHANTS);
    request(format!("invoice-{number:05}"), merchant, "sepa", &amount)
}

/// What all merchants ask for over some seconds; the keys of what was accepted.
pub(super) async fn produce(
    database: &Database,
    payments: u32,
    over_seconds: u32,
) -> Result<BTreeSet<String>, Failure> {
    let ticks = over_seconds * 20;
    let mut producers = JoinSet::new();
    for producer in 0..PRODUCERS {
        let ingest = database.ingest();
        producers.spawn(async move {
            let mine: Vec<u32> = (producer..payments).step_by(PRODUCERS as usize).collect();
            let mut clock = interval(TICK);
            clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut accepted = Vec::new();
            for tick in 0..ticks as usize {
                clock.tick().await;
                let (from, to) = (mine.len() * tick, mine.len() * (tick + 1));
                let due = mine.get(from / ticks as usize..to / ticks as usize).unwrap_or_default();
                let requests: Vec<_> = due.iter().map(|n| sepa(*n)).collect::<Result<_, _>>()?;
                if !requests.is_empty() {
                    accepted.extend(ask(&ingest, &requests).await?);
                }
            }
            Ok::<_, Failure>(accepted)
        });
    }
    let mut accepted = BTreeSet::new();
    while let Some(ended) = producers.join_next().await {
        accepted.extend(ended.map_err(|error| Failure::new(error.to_string()))??);
    }
    Ok(accepted)
}

async fn ask(ingest: &Ingest, requests: &[PaymentRequest]) -> Result<Vec<String>, Failure> {
    let mut accepted = Vec::with_capacity(requests.len());
    for answer in ingest.enqueue_batch_alone(requests).await? {
        match answer.outbox_id {
            Some(id) if answer.error_code.is_none() => accepted.push(id.to_string()),
            _ => return Err(Failure::new("a producer's payment was refused")),
        }
    }
    Ok(accepted)
}

/// A producer whose connection broke asks for everything again.
pub(super) async fn repeat(
    database: &Database,
    payments: u32,
    story: &Story,
) -> Result<(), Failure> {
    let requests: Vec<_> = (0..payments).map(sepa).collect::<Result<_, _>>()?;
    let (mut known, mut written) = (0_usize, 0_usize);
    for batch in requests.chunks(BATCH_ITEMS) {
        for answer in database.ingest().enqueue_batch_alone(batch).await? {
            known += usize::from(answer.duplicate == Some(true));
            written += usize::from(answer.duplicate != Some(true));
        }
    }
    story.tell(
        Tone::Good,
        "repeated",
        &format!("every request once more: {} answered with the payment they already are, {written} written", grouped(known)),
    )
}

/// Payments with a part of their own in the story; the keys of what was accepted.
pub(super) async fn ask_for_the_special_ones(database: &Database) -> Result<Vec<String>, Failure> {
    let ingest = database.ingest();
    let mut requests = vec![
        request(CANNOT_BE_SETTLED.to_owned(), "merchant-02".to_owned(), "wire", r#""75000.00""#)?,
        request(INVALID.to_owned(), "merchant-03".to_owned(), "sepa", "10.1")?,
    ];
    for number in 0..ORDERED {
        let amount = format!(r#""{}.00""#, 100 + number);
        requests.push(request(ordered(number), ORDERED_MERCHANT.to_owned(), "instant", &amount)?);
    }
    ask(&ingest, &requests).await
}

/// What producers do wrong, and what comes of it.
pub(super) async fn make_mistakes(database: &Database, story: &Story) -> Result<(), Failure> {
    let ingest = database.ingest();
    let mut other = sepa(1)?;
    ingest.enqueue_alone(&other).await?;
    other.payload = request(String::new(), String::new(), "sepa", r#""999999.00""#)?.payload;
    match ingest.enqueue_alone(&other).await {
        Err(DbError::KeyReused { .. }) => {
            story.tell(Tone::Good, "refused", "the same key with another amount (P7004)")?;
        }
        other => return Err(Failure::new(format!("a reused key was not refused: {other:?}"))),
    }
    // State and intent commit together: a service that rolls back has asked for nothing.
    let mut transaction = database.begin(Role::Ingest).await?;
    let never =
        request("never-invoice-1".to_owned(), "merchant-04".to_owned(), "sepa", r#""1.00""#)?;
    Ingest::enqueue(&mut transaction, &never).await?;
    drop(transaction);
    story.tell(
        Tone::Good,
        "rolled back",
        "one producer's transaction: its payment never existed, its number was given back",
    )
}
