//! The bus and the local receiver, one against the other.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use chrono::Utc;
use symphony::event::envelope::{Binding, Format};
use symphony::lanes::events::bus::{Bus as _, Cause, Message, Publication};
use symphony_connect::buses::http::{EndpointSettings, HttpBus, HttpBusSettings};
use uuid::Uuid;

use super::{Receiver, ReceiverFaults, ReceiverSettings};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER_SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

/// One endpoint, `billing`, at this URL.
fn settings(url: &str) -> HttpBusSettings {
    let endpoint = EndpointSettings {
        url: url.to_owned(),
        secret_env: "SECRET".to_owned(),
        timeout_ms: 500,
        ..EndpointSettings::default()
    };
    HttpBusSettings {
        endpoints: [("billing".to_owned(), endpoint)].into(),
        allow_private_addresses: true,
        ..HttpBusSettings::default()
    }
}

fn environment(name: &str) -> Option<String> {
    match name {
        "SECRET" => Some(SECRET.to_owned()),
        "BOTH" => Some(format!("{OTHER_SECRET} {SECRET}")),
        "WRONG" => Some(OTHER_SECRET.to_owned()),
        _ => None,
    }
}

fn bus(url: &str) -> HttpBus {
    HttpBus::new(&settings(url), environment).unwrap()
}

fn message(position: i64) -> Message {
    let event_id = Uuid::new_v4();
    let body = format!(
        r#"{{ "envelope":{{"v":1, "eventId":"{event_id}","occurredAt":"2026-11-02T09:30:00Z",
        "tenantId":"tnt é","type":"events.transfers.submitted"}},
        "key":{{"transferId":"tr_{position}"}}, "payload":{{"n":1.10, "text":"ü \u00fc \/"}} }}"#
    );
    let format = Format::own(Binding::Http);
    Message::new(&format, &body, position, Utc::now()).unwrap()
}

fn in_words(publication: &Publication) -> String {
    match publication {
        Publication::Accepted { .. } => "accepted".to_owned(),
        Publication::Refused(trouble) => format!("refused {}", trouble.code),
        Publication::Again { trouble, unknown, cause, .. } => {
            let unknown = if *unknown { " unknown" } else { "" };
            let unwell = if *cause == Cause::Message { "" } else { " unwell" };
            format!("again {}{unknown}{unwell}", trouble.code)
        }
    }
}

async fn started(faults: ReceiverFaults) -> Receiver {
    Receiver::start(ReceiverSettings { faults, ..ReceiverSettings::new(SECRET) }).await.unwrap()
}

#[tokio::test]
async fn what_is_published_arrives_once_and_a_repeat_is_told_from_a_first() {
    let receiver = started(ReceiverFaults::default()).await;
    let bus = bus(&receiver.url());
    let (one, two) = (message(7), message(8));
    for answer in bus.publish("billing", &[&one, &two]).await {
        assert_eq!(in_words(&answer), "accepted");
    }
    bus.publish("billing", &[&one]).await;
    let arrivals = receiver.stop().await;
    assert_eq!((arrivals.first, arrivals.repeated, arrivals.refused), (2, 1, 0));
    let last = arrivals.kept.last().unwrap();
    assert_eq!((last.event_id, last.key.as_str(), last.position), (one.event_id, "tr_7", Some(7)));
    assert_eq!(last.body.get(), one.body);
    assert!(last.is_repeated);
}

#[tokio::test]
async fn what_is_signed_with_another_secret_is_not_taken() {
    let receiver = started(ReceiverFaults::default()).await;
    let mut settings = settings(&receiver.url());
    settings.endpoints.get_mut("billing").unwrap().secret_env = "WRONG".to_owned();
    let stranger = HttpBus::new(&settings, environment).unwrap();
    // A wrong secret is an operator's to mend.
    let answer = &stranger.publish("billing", &[&message(1)]).await[0];
    assert_eq!(in_words(answer), "again NOT_AUTHORIZED unwell");
    // With both secrets, as while one is being changed, it is.
    settings.endpoints.get_mut("billing").unwrap().secret_env = "BOTH".to_owned();
    let changing = HttpBus::new(&settings, environment).unwrap();
    assert_eq!(in_words(&changing.publish("billing", &[&message(1)]).await[0]), "accepted");
    let arrivals = receiver.arrivals();
    assert_eq!((arrivals.first, arrivals.refused), (1, 1));
    assert!(Receiver::start(ReceiverSettings::new("x")).await.is_err());
    assert!(Receiver::start(ReceiverSettings::new(OTHER_SECRET)).await.is_ok());
}

#[tokio::test]
async fn an_event_under_another_id_is_not_taken() {
    let receiver = started(ReceiverFaults::default()).await;
    let other = Message { event_id: uuid::Uuid::new_v4(), ..message(1) };
    let answer = bus(&receiver.url()).publish("billing", &[&other]).await;
    assert_eq!(in_words(&answer[0]), "again REJECTED");
    assert_eq!(receiver.arrivals().refused, 1);
}

#[tokio::test]
async fn it_fails_hangs_and_drops_as_it_is_told() {
    for (faults, expected, first) in [
        (
            ReceiverFaults { fail_per_mille: 1_000, ..ReceiverFaults::default() },
            "again RECEIVER_FAILED unknown unwell",
            0,
        ),
        (
            ReceiverFaults { hang_per_mille: 1_000, ..ReceiverFaults::default() },
            "again TIMEOUT unknown unwell",
            1,
        ),
        (
            ReceiverFaults { drop_per_mille: 1_000, ..ReceiverFaults::default() },
            "again CONNECTION_LOST unknown unwell",
            1,
        ),
    ] {
        let receiver = started(faults).await;
        let (bus, message) = (bus(&receiver.url()), message(1));
        assert_eq!(in_words(&bus.publish("billing", &[&message]).await[0]), expected);
        receiver.set_faults(ReceiverFaults::default());
        assert_eq!(in_words(&bus.publish("billing", &[&message]).await[0]), "accepted");
        let arrivals = receiver.arrivals();
        assert_eq!((arrivals.first, arrivals.repeated), (1, first), "{faults:?}");
        assert_eq!(arrivals.faults, 1);
    }
}

#[tokio::test]
async fn with_some_faults_every_event_arrives_in_the_end_and_memory_stays_bounded() {
    let faults =
        ReceiverFaults { seed: 7, fail_per_mille: 300, drop_per_mille: 200, hang_per_mille: 0 };
    let settings = ReceiverSettings { faults, arrivals_max: 20, ..ReceiverSettings::new(SECRET) };
    let receiver = Receiver::start(settings).await.unwrap();
    let bus = bus(&receiver.url());
    let messages: Vec<Message> = (0..100).map(message).collect();
    let mut left: Vec<&Message> = messages.iter().collect();
    while !left.is_empty() {
        let mut again = Vec::new();
        for batch in left.chunks(10) {
            let answers = bus.publish("billing", batch).await;
            again.extend(batch.iter().zip(answers).filter_map(|(message, answer)| {
                (!matches!(answer, Publication::Accepted { .. })).then_some(*message)
            }));
        }
        left = again;
    }
    let arrivals = receiver.stop().await;
    assert_eq!((arrivals.first, arrivals.kept.len()), (100, 20));
    assert!(
        arrivals.faults > 20 && arrivals.repeated > 5,
        "{} {}",
        arrivals.faults,
        arrivals.repeated
    );
}
