//! The event lane's part of the demo: merchants tell what happened, the same worker processes publish it as signed
//! webhooks, and a receiver that fails on purpose keeps its own record. At the end that is held against the ledger.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use crate::receiver::{Arrivals, Receiver, ReceiverFaults, ReceiverSettings};
use serde::Serialize;
use symphony::db::{Database, EventFigures};
use symphony::event::Event;
use symphony_connect::buses::webhook_signature;
use tokio::time::{MissedTickBehavior, interval};
use uuid::Uuid;

use super::producers::MERCHANTS;
use super::story::Story;
use crate::LabError;
use crate::host::Tone;

/// The variable the workers find the secret in.
pub(super) const SECRET_ENV: &str = "DEMO_RECEIVER_SECRET";
const TICK: Duration = Duration::from_millis(50);
/// More arrivals than the demo can make, repeated ones included.
const ARRIVALS_MAX: usize = 1_000_000;
const FAULTS: ReceiverFaults =
    ReceiverFaults { seed: 7, fail_per_mille: 40, hang_per_mille: 0, drop_per_mille: 30 };

/// Who hears the events.
pub(super) struct EventReceiver {
    pub(super) receiver: Receiver,
    pub(super) secret: String,
}

impl EventReceiver {
    pub(super) async fn listen() -> Result<Self, LabError> {
        let secret = webhook_signature::new_secret();
        let settings = ReceiverSettings {
            arrivals_max: ARRIVALS_MAX,
            faults: FAULTS,
            ..ReceiverSettings::new(secret.clone())
        };
        let receiver = Receiver::start(settings).await.map_err(|error| {
            LabError::new(format!("cannot start the receiver of events: {error}"))
        })?;
        Ok(Self { receiver, secret })
    }

    /// The part of the workers' configuration that leads here. A killed worker's calls end soon, and whatever the
    /// receiver refuses is tried again at once.
    pub(super) fn configuration(&self) -> String {
        format!(
            "[events]\nretry_seconds = [0, 1]\nattempts_max = 100\n\
             [[events.routes]]\ntype = \"*\"\nbus = \"hooks\"\ntopic = \"shop\"\n\
             [buses.hooks]\nkind = \"http\"\nallow_private_addresses = true\nbreaker_failures = 1_000\n\
             [buses.hooks.endpoints.shop]\nurl = \"{}\"\nsecret_env = \"{SECRET_ENV}\"\ntimeout_ms = 1_000\n\n",
            self.receiver.url()
        )
    }
}

fn event(merchant: u32, number: u32, payload: &str) -> Result<Event, LabError> {
    let event_id = Uuid::new_v4();
    Event::parse(&format!(
        r#"{{"envelope": {{"v": 1, "eventId": "{event_id}", "occurredAt": "{}", "tenantId": "merchant-{merchant:02}",
            "type": "events.invoices.issued"}}, "key": {{"invoice": "m{merchant:02}-{}"}}, "payload": {payload}}}"#,
        chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true),
        number / MERCHANTS % 5,
    ))
    .map_err(|defect| LabError::new(defect.to_string()))
}

/// Tell so many facts over some seconds; the ids of what was accepted, in the order of their telling by key.
pub(super) async fn tell(
    database: &Database,
    events: u32,
    over_seconds: u32,
) -> Result<AcceptedEvents, LabError> {
    let producer = database.producer();
    let ticks = over_seconds * 20;
    let mut clock = interval(TICK);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = AcceptedEvents::default();
    for tick in 0..ticks {
        clock.tick().await;
        let batch: Vec<Event> = (events * tick / ticks..events * (tick + 1) / ticks)
            .map(|number| event(number % MERCHANTS, number, &format!(r#"{{"number": {number}}}"#)))
            .collect::<Result<_, _>>()?;
        if batch.is_empty() {
            continue;
        }
        let bodies: Vec<_> = batch.iter().map(Event::body).collect();
        let answers = producer.enqueue_events(&bodies).await?;
        if answers.iter().any(Result::is_err) {
            return Err(LabError::new("a producer's event was refused"));
        }
        for event in batch {
            told.by_key.entry(event.key().to_owned()).or_default().push(event.event_id());
        }
    }
    Ok(told)
}

/// What producers were told yes to.
#[derive(Debug, Default)]
pub(super) struct AcceptedEvents {
    by_key: BTreeMap<String, Vec<Uuid>>,
}

/// An event with personal data is refused, and named.
pub(super) async fn make_a_mistake(database: &Database, story: &Story<'_>) -> Result<(), LabError> {
    let careless = event(3, 0, r#"{"customer": {"id": 17, "email": "someone"}}"#)?;
    let answers = database.producer().enqueue_events(&[careless.body()]).await?;
    match answers.first() {
        Some(Err(refusal)) if refusal.to_string().starts_with("payload.customer.email ") => story
            .tell(
                Tone::Good,
                "refused",
                "an event with payload.customer.email: events carry ids, not personal data (P7005)",
            ),
        other => Err(LabError::new(format!("personal data was not refused: {other:?}"))),
    }
}

/// What the receiver's record and the ledger say, and where they disagree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct EventProof {
    /// Producers were told yes.
    pub(super) told: u64,
    /// In the ledger as published.
    pub(super) published: u64,
    /// Arrived, with a good signature.
    pub(super) arrived: u64,
    /// Arrived again: no answer is not a failure, and the bus is at-least-once.
    pub(super) repeated: u64,
    /// Times the receiver failed on purpose.
    pub(super) faults: u64,
    /// Never arrived, or not in the ledger: must be 0.
    pub(super) lost: u64,
    /// Arrived for the first time after a later one of its key: must be 0.
    pub(super) overtaken: u64,
    /// Arrived though nobody told it, or with a bad signature: must be 0.
    pub(super) strange: u64,
}

/// Compare what was told with what arrived, and with the ledger.
pub(super) fn judge(
    told: &AcceptedEvents,
    arrivals: &Arrivals,
    ledger: &EventFigures,
) -> EventProof {
    let mut first_of_key: HashMap<&str, Vec<Uuid>> = HashMap::new();
    let mut seen = HashSet::new();
    for arrival in &arrivals.kept {
        if seen.insert(arrival.event_id) {
            first_of_key.entry(&arrival.key).or_default().push(arrival.event_id);
        }
    }
    let known: HashSet<&Uuid> = told.by_key.values().flatten().collect();
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let lost = known.iter().filter(|id| !seen.contains(**id)).count();
    let overtaken = told.by_key.iter().map(|(key, ids)| {
        let arrived = first_of_key.get(key.as_str()).map_or(&[][..], Vec::as_slice);
        let expected = ids.iter().filter(|id| seen.contains(*id));
        expected.zip(arrived).filter(|(expected, arrived)| expected != arrived).count()
    });
    let ledger_lost = ledger.lost + ledger.pending + ledger.failed + ledger.inversions;
    EventProof {
        told: number(known.len()),
        published: u64::try_from(ledger.sent).unwrap_or(0),
        arrived: number(seen.len()),
        repeated: arrivals.repeated,
        faults: arrivals.faults,
        lost: number(lost) + u64::try_from(ledger_lost).unwrap_or(u64::MAX),
        overtaken: overtaken.map(number).sum(),
        strange: arrivals.refused + number(seen.iter().filter(|id| !known.contains(id)).count()),
    }
}

impl EventProof {
    /// What is not as it must be.
    pub(super) fn wrong(&self) -> Vec<&'static str> {
        [
            ("no event was told", self.told == 0),
            ("events published and told differ", self.published != self.told),
            ("events lost", self.lost != 0),
            ("events overtaken", self.overtaken != 0),
            ("strange events", self.strange != 0),
        ]
        .into_iter()
        .filter_map(|(problem, wrong)| wrong.then_some(problem))
        .collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::receiver::Arrival;

    use super::*;

    fn arrival(key: &str, event_id: Uuid) -> Arrival {
        let body = serde_json::value::RawValue::from_string("{}".to_owned()).unwrap();
        Arrival { event_id, key: key.to_owned(), position: None, body, is_repeated: false }
    }

    #[test]
    fn every_kind_of_lie_is_found() {
        let ids: Vec<Uuid> = (0..3).map(|_| Uuid::new_v4()).collect();
        let told = AcceptedEvents { by_key: BTreeMap::from([("a".to_owned(), ids.clone())]) };
        let ledger = EventFigures {
            events: 3,
            sent: 3,
            failed: 0,
            pending: 0,
            outcomes: 3,
            lost: 0,
            inversions: 0,
        };
        let arrived = |order: &[usize]| Arrivals {
            kept: order.iter().map(|n| arrival("a", *ids.get(*n).unwrap())).collect(),
            ..Arrivals::default()
        };
        let wrong = |arrivals: &Arrivals, ledger| judge(&told, arrivals, &ledger).wrong();
        assert!(wrong(&arrived(&[0, 0, 1, 0, 2]), ledger).is_empty(), "repeats are absorbed");
        assert_eq!(wrong(&arrived(&[0, 2, 1]), ledger), ["events overtaken"]);
        assert_eq!(wrong(&arrived(&[0, 1]), ledger), ["events lost"]);
        let mut strange = arrived(&[0, 1, 2]);
        strange.kept.push(arrival("b", Uuid::new_v4()));
        assert_eq!(wrong(&strange, ledger), ["strange events"]);
        let forged = Arrivals { refused: 1, ..arrived(&[0, 1, 2]) };
        assert_eq!(wrong(&forged, ledger), ["strange events"]);
        let all = arrived(&[0, 1, 2]);
        assert_eq!(wrong(&all, EventFigures { lost: 1, ..ledger }), ["events lost"]);
        assert_eq!(
            wrong(&all, EventFigures { sent: 2, ..ledger }),
            ["events published and told differ"]
        );
    }
}
