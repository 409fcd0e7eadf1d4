//! The merchants: what they ask for, and the mistakes producers make.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::judge::Accepted;
use symphony::db::{Database, DbError, Producer, Role};
use symphony::domain::{Payload, PaymentRequest};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::story::{Story, grouped};
use crate::LabError;
use crate::host::Tone;

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
) -> Result<PaymentRequest, LabError> {
    let payload = format!(
        r#"{{"amount": {{"value": {amount}, "currency": "EUR"}}, "destination": {{"iban": "DE89370400440532013000"}}}}"#
    );
    Ok(PaymentRequest {
        instruction_id: instruction,
        participant_id: participant,
        idempotency_key: "pay".to_owned(),
        rail_type: rail.to_owned(),
        payload: Payload::parse(&payload).map_err(|error| LabError::new(error.to_string()))?,
        traceparent: None,
    })
}

fn sepa(number: u32) -> Result<PaymentRequest, LabError> {
    let amount = format!(r#""{}.{:02}""#, 1 + number % 500, number % 100);
    let merchant = format!("merchant-{:02}", number % MERCHANTS);
    request(format!("invoice-{number:05}"), merchant, "sepa", &amount)
}

/// What producers were told yes to, by outbox id.
pub(super) type AcceptedPayments = BTreeMap<String, Accepted>;

/// What all merchants ask for over some seconds; what was accepted.
pub(super) async fn produce(
    database: &Database,
    payments: u32,
    over_seconds: u32,
) -> Result<AcceptedPayments, LabError> {
    let ticks = over_seconds * 20;
    let mut producers = JoinSet::new();
    for first in 0..PRODUCERS {
        let producer = database.producer();
        producers.spawn(async move {
            let mine: Vec<u32> = (first..payments).step_by(PRODUCERS as usize).collect();
            let mut clock = interval(TICK);
            clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut accepted = AcceptedPayments::new();
            for tick in 0..ticks as usize {
                clock.tick().await;
                let (from, to) = (mine.len() * tick, mine.len() * (tick + 1));
                let due = mine.get(from / ticks as usize..to / ticks as usize).unwrap_or_default();
                let requests: Vec<_> = due.iter().map(|n| sepa(*n)).collect::<Result<_, _>>()?;
                if !requests.is_empty() {
                    accepted.extend(ask(&producer, &requests).await?);
                }
            }
            Ok::<_, LabError>(accepted)
        });
    }
    let mut accepted = AcceptedPayments::new();
    while let Some(ended) = producers.join_next().await {
        accepted.extend(ended.map_err(|error| LabError::new(error.to_string()))??);
    }
    Ok(accepted)
}

async fn ask(
    producer: &Producer,
    requests: &[PaymentRequest],
) -> Result<AcceptedPayments, LabError> {
    let mut accepted = AcceptedPayments::new();
    let answers = producer.enqueue_payments(requests).await?;
    if answers.len() != requests.len() {
        return Err(LabError::new("a producer was not told of every payment"));
    }
    for (request, answer) in requests.iter().zip(answers) {
        match answer {
            Ok(item) => {
                accepted.insert(item.outbox_id.to_string(), terms(request)?);
            }
            Err(_) => return Err(LabError::new("a producer's payment was refused")),
        }
    }
    Ok(accepted)
}

/// What was asked for, as the judge compares it.
fn terms(request: &PaymentRequest) -> Result<Accepted, LabError> {
    let payload: serde_json::Value = serde_json::from_str(request.payload.as_str())
        .map_err(|error| LabError::new(error.to_string()))?;
    let amount = match payload.pointer("/amount/value") {
        Some(serde_json::Value::String(text)) => format!("{text} EUR"),
        Some(other) => format!("{other} EUR"),
        None => String::new(),
    };
    Ok(Accepted {
        instruction_id: request.instruction_id.clone(),
        participant_id: request.participant_id.clone(),
        rail_type: request.rail_type.clone(),
        amount,
    })
}

/// A producer whose connection broke asks for everything again.
pub(super) async fn repeat(
    database: &Database,
    payments: u32,
    story: &Story<'_>,
) -> Result<(), LabError> {
    let requests: Vec<_> = (0..payments).map(sepa).collect::<Result<_, _>>()?;
    let (mut known, mut written) = (0_usize, 0_usize);
    for batch in requests.chunks(BATCH_ITEMS) {
        for answer in database.producer().enqueue_payments(batch).await? {
            let is_known = answer.is_ok_and(|item| item.duplicate);
            known += usize::from(is_known);
            written += usize::from(!is_known);
        }
    }
    story.tell(
        Tone::Good,
        "repeated",
        &format!("every request once more: {} answered with the payment they already are, {written} written", grouped(known)),
    )
}

/// Payments with a part of their own in the story; what was accepted.
pub(super) async fn ask_for_the_special_ones(
    database: &Database,
) -> Result<AcceptedPayments, LabError> {
    let producer = database.producer();
    let mut requests = vec![
        request(CANNOT_BE_SETTLED.to_owned(), "merchant-02".to_owned(), "wire", r#""75000.00""#)?,
        request(INVALID.to_owned(), "merchant-03".to_owned(), "sepa", "10.1")?,
    ];
    for number in 0..ORDERED {
        let amount = format!(r#""{}.00""#, 100 + number);
        requests.push(request(ordered(number), ORDERED_MERCHANT.to_owned(), "instant", &amount)?);
    }
    ask(&producer, &requests).await
}

/// What producers do wrong, and what comes of it.
pub(super) async fn make_mistakes(database: &Database, story: &Story<'_>) -> Result<(), LabError> {
    let producer = database.producer();
    let mut other = sepa(1)?;
    producer.enqueue_payment(&other).await?;
    other.payload = request(String::new(), String::new(), "sepa", r#""999999.00""#)?.payload;
    match producer.enqueue_payment(&other).await {
        Err(DbError::KeyReused { .. }) => {
            story.tell(Tone::Good, "refused", "the same key with another amount (P7004)")?;
        }
        other => return Err(LabError::new(format!("a reused key was not refused: {other:?}"))),
    }
    // State and intent commit together: a service that rolls back has asked for nothing.
    let mut transaction = database.begin(Role::Producer).await?;
    let never =
        request("never-invoice-1".to_owned(), "merchant-04".to_owned(), "sepa", r#""1.00""#)?;
    symphony::payments::enqueue(&mut transaction, &never).await?;
    drop(transaction);
    story.tell(
        Tone::Good,
        "rolled back",
        "one producer's transaction: its payment never existed, its number was given back",
    )
}
