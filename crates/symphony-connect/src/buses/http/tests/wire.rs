//! What goes over the wire, and what is made of what comes back.

use std::time::Duration;

use chrono::Utc;
use symphony::lanes::events::bus::{Bus as _, Cause, Message, Publication};
use tokio::net::TcpListener;
use tokio::sync::Barrier;

use super::{OTHER_SECRET, SECRET, TRACE, bus, environment, message, settings};
use crate::buses::http::{HttpBus, HttpBusSettings};
use crate::buses::webhook_signature::{Secret, verify};
use crate::rails::http::tests::server::{Reaction, Server, json, response};

fn url(server: &Server) -> String {
    format!("http://127.0.0.1:{}/hooks?from=a%20b", server.port)
}

async fn publish(bus: &HttpBus, message: &Message) -> Publication {
    let answers = bus.publish("billing", &[message]).await;
    let [answer] = &answers[..] else { panic!("one answer: {answers:?}") };
    answer.clone()
}

async fn answer_to(bytes: impl Into<Vec<u8>>) -> Publication {
    let server = Server::answering(bytes).await;
    publish(&bus(&url(&server)), &message(1)).await
}

#[tokio::test]
async fn an_event_is_posted_byte_for_byte_signed_and_labelled() {
    let server = Server::answering(json(200, "{}")).await;
    let message = message(42);
    let answer = publish(&bus(&url(&server)), &message).await;
    assert_eq!(answer, Publication::Accepted { reference: "http:200".to_owned() });

    let [request] = &server.received()[..] else { panic!("one request") };
    let line = (request.method.as_str(), request.target.as_str());
    assert_eq!(line, ("POST", "/hooks?from=a%20b"));
    assert_eq!(request.body, message.body.as_bytes());
    for (name, value) in [
        ("host", format!("127.0.0.1:{}", server.port)),
        ("content-type", "application/json".to_owned()),
        ("webhook-id", message.event_id.to_string()),
        ("symphony-position", "42".to_owned()),
        ("symphony-event-type", "events.transfers.submitted".to_owned()),
        ("symphony-tenant-id", "tnt%20%C3%A9".to_owned()),
        ("traceparent", TRACE.to_owned()),
    ] {
        assert_eq!(request.headers.get(name), Some(&value), "{name}");
    }
    let signature = &request.headers["webhook-signature"];
    let timestamp = &request.headers["webhook-timestamp"];
    let (id, now) = (message.event_id.to_string(), Utc::now().timestamp());
    let secrets = Secret::parse_list(SECRET).unwrap();
    verify(&secrets, &id, timestamp, signature, &request.body, now).unwrap();
}

#[tokio::test]
async fn while_a_secret_is_being_changed_both_sign() {
    let server = Server::answering(json(204, "")).await;
    let mut settings = settings(&url(&server));
    settings.endpoints.get_mut("billing").unwrap().secret_env = "BOTH".to_owned();
    publish(&HttpBus::new(&settings, environment).unwrap(), &message(1)).await;
    let request = &server.received()[0];
    let (id, timestamp) = (&request.headers["webhook-id"], &request.headers["webhook-timestamp"]);
    for secret in [SECRET, OTHER_SECRET] {
        let secrets = Secret::parse_list(secret).unwrap();
        let signature = &request.headers["webhook-signature"];
        let now = Utc::now().timestamp();
        verify(&secrets, id, timestamp, signature, &request.body, now).unwrap();
    }
}

#[tokio::test]
async fn the_id_is_the_same_on_every_try_and_so_is_the_body() {
    let server = Server::answering(response(503, "", "")).await;
    let (bus, message) = (bus(&url(&server)), message(1));
    for _ in 0..3 {
        assert!(matches!(publish(&bus, &message).await, Publication::Again { unknown: true, .. }));
    }
    let received = server.received();
    assert_eq!(received.len(), 3);
    for request in received {
        assert_eq!(request.headers["webhook-id"], message.event_id.to_string());
        assert_eq!(request.body, message.body.as_bytes());
    }
}

#[tokio::test]
async fn every_status_means_what_the_table_says() {
    for (status, headers, expected) in [
        (200, "", "accepted"),
        (201, "", "accepted"),
        (202, "", "accepted"),
        (204, "", "accepted"),
        (410, "", "again GONE until mended"),
        (413, "", "refused OVERSIZE"),
        (429, "Retry-After: 7\r\n", "again THROTTLED unwell after 7"),
        (429, "", "again THROTTLED unwell"),
        (400, "", "again REJECTED"),
        (401, "", "again NOT_AUTHORIZED until mended"),
        (403, "", "again NOT_AUTHORIZED until mended"),
        (404, "", "again NO_SUCH_TOPIC until mended"),
        (405, "", "again NO_SUCH_TOPIC until mended"),
        (415, "", "again WRONG_ENVELOPE until mended"),
        (408, "", "again REJECTED"),
        (422, "", "again REJECTED"),
        (302, "Location: http://127.0.0.1/\r\n", "again REDIRECTED until mended"),
        (500, "", "again RECEIVER_FAILED unknown unwell"),
        (502, "", "again RECEIVER_FAILED unknown unwell"),
        (503, "Retry-After: 30\r\n", "again RECEIVER_FAILED unknown unwell after 30"),
        (599, "", "again RECEIVER_FAILED unknown unwell"),
    ] {
        let answer = answer_to(response(status, headers, "")).await;
        assert_eq!(in_words(&answer), expected, "HTTP {status}: {answer:?}");
    }
}

#[tokio::test]
async fn without_an_answer_it_is_unknown_and_without_a_connection_it_was_not_taken() {
    type React = Box<dyn Fn() -> Reaction + Send + Sync>;
    let cases: Vec<(&str, React)> = vec![
        ("again TIMEOUT unknown unwell", Box::new(|| Reaction::Hang)),
        ("again CONNECTION_LOST unknown unwell", Box::new(|| Reaction::Reset)),
        ("again CONNECTION_LOST unknown unwell", Box::new(|| Reaction::AnswerAndClose(Vec::new()))),
        (
            "again BAD_RESPONSE unknown unwell",
            Box::new(|| Reaction::Answer(b"garbage\r\n\r\n".to_vec())),
        ),
    ];
    for (expected, reaction) in cases {
        let server = Server::start(move |_| reaction()).await;
        let answer = publish(&bus(&url(&server)), &message(1)).await;
        assert_eq!(in_words(&answer), expected);
        assert_eq!(server.received().len(), 1, "sent once");
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let answer = publish(&bus(&closed), &message(1)).await;
    assert_eq!(in_words(&answer), "again CONNECT_FAILED unwell");
}

#[tokio::test]
async fn a_yes_counts_whatever_follows_it() {
    let page = "x".repeat(1 << 20);
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf".to_vec();
    assert_eq!(in_words(&answer_to(json(200, &page)).await), "accepted");
    assert_eq!(
        in_words(&answer_to(json(500, &page)).await),
        "again RECEIVER_FAILED unknown unwell"
    );
    let server = Server::start(move |_| Reaction::AnswerAndClose(cut.clone())).await;
    assert_eq!(in_words(&publish(&bus(&url(&server)), &message(1)).await), "accepted");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Server::answering(json(200, "{}")).await;
    for status in [301, 302, 303, 307, 308] {
        let location = format!("Location: http://127.0.0.1:{}/\r\n", elsewhere.port);
        let answer = answer_to(response(status, &location, "")).await;
        assert_eq!(in_words(&answer), "again REDIRECTED until mended");
    }
    assert!(elsewhere.received().is_empty());
}

#[tokio::test]
async fn the_messages_of_a_batch_go_out_at_once_and_are_answered_in_their_order() {
    // Nobody is answered before all have arrived.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let barrier = std::sync::Arc::new(Barrier::new(8));
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let barrier = std::sync::Arc::clone(&barrier);
            tokio::spawn(async move {
                let request =
                    crate::rails::http::tests::server::read(&mut stream, 0).await.unwrap();
                barrier.wait().await;
                let position: u16 = request.headers["symphony-position"].parse().unwrap();
                let answer = response(if position.is_multiple_of(2) { 200 } else { 422 }, "", "");
                tokio::io::AsyncWriteExt::write_all(&mut stream, &answer).await.unwrap();
            });
        }
    });
    let mut settings = settings(&url);
    settings.endpoints.get_mut("billing").unwrap().timeout_ms = 20_000;
    let bus = HttpBus::new(&settings, environment).unwrap();
    let messages: Vec<Message> = (0..8).map(message).collect();
    let batch: Vec<&Message> = messages.iter().collect();
    let answers = bus.publish("billing", &batch).await;
    let words: Vec<String> = answers.iter().map(in_words).collect();
    assert_eq!(words, ["accepted", "again REJECTED"].repeat(4));
    serving.abort();
}

#[tokio::test]
async fn an_unknown_topic_is_said_for_every_message_and_nothing_is_sent() {
    let server = Server::answering(json(200, "{}")).await;
    let answers = bus(&url(&server)).publish("crm", &[&message(1), &message(2)]).await;
    let words: Vec<String> = answers.iter().map(in_words).collect();
    assert_eq!(words, ["again NO_SUCH_TOPIC until mended"; 2]);
    assert!(server.received().is_empty());
}

#[tokio::test]
async fn no_answer_repeats_the_event_or_what_the_receiver_said() {
    for status in [302, 404, 410, 413, 422, 429, 500] {
        let printed = format!("{:?}", answer_to(json(status, r#"{"said": "private"}"#)).await);
        for secret in ["private", "tr_1", "tnt", SECRET] {
            assert!(!printed.contains(secret), "{printed}");
        }
    }
}

#[test]
fn the_terms_leave_our_own_limit_room() {
    let bus = bus("http://127.0.0.1:9/");
    let terms = symphony::lanes::events::bus::Bus::terms(&bus);
    assert_eq!(terms.timeout, Duration::from_millis(750));
    assert_eq!((terms.batch_max, terms.dedup_window), (10, Duration::ZERO));
    let more = HttpBusSettings { batch_max: 50, ..settings("http://127.0.0.1:9/") };
    let more = HttpBus::new(&more, environment).unwrap();
    assert_eq!(symphony::lanes::events::bus::Bus::terms(&more).batch_max, 50);
}

pub(super) fn in_words(publication: &Publication) -> String {
    match publication {
        Publication::Accepted { .. } => "accepted".to_owned(),
        Publication::Refused(trouble) => format!("refused {}", trouble.code),
        Publication::Again { trouble, unknown, cause, retry_after } => {
            let mut words = format!("again {}", trouble.code);
            words.push_str(if *unknown { " unknown" } else { "" });
            words.push_str(match cause {
                Cause::Message => "",
                Cause::Destination => " unwell",
                Cause::Setup => " until mended",
            });
            if let Some(after) = retry_after {
                words.push_str(&format!(" after {}", after.as_secs()));
            }
            words
        }
    }
}
