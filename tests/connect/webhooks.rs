//! Webhooks as others see them: the Standard Webhooks library for Python believes what we send, and nothing else; and
//! our receiver believes what it sends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use chrono::Utc;
use serde_json::json;
use symphony::event::envelope::{Binding, Format};
use symphony::lanes::events::bus::{Bus as _, Message, Publication};
use symphony_connect::buses::http::{EndpointSettings, HttpBus, HttpBusSettings};
use symphony_lab::receiver::{Receiver, ReceiverSettings};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use uuid::Uuid;

use crate::support::brokers;

const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
pub const NEW: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

/// A request as it arrived.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Captured {
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

/// A server that keeps every request and answers 503 to the first one of each connection, 200 afterwards.
pub async fn capturing() -> (String, Arc<Mutex<Vec<Captured>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let captured = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&captured);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(capture(stream, Arc::clone(&kept)));
        }
    });
    (url, captured)
}

async fn capture(stream: TcpStream, kept: Arc<Mutex<Vec<Captured>>>) {
    let mut stream = BufReader::new(stream);
    let mut status = 503;
    loop {
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            match line.trim_end().split_once(": ") {
                Some((name, value)) => {
                    headers.insert(name.to_lowercase(), value.to_owned());
                }
                None if line.trim().is_empty() => break,
                None => {}
            }
        }
        let mut body = vec![0; headers["content-length"].parse().unwrap()];
        stream.read_exact(&mut body).await.unwrap();
        kept.lock().unwrap().push(Captured { headers, body: String::from_utf8(body).unwrap() });
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
        status = 200;
    }
}

pub fn bus(url: &str, secrets: &str) -> HttpBus {
    let endpoint = EndpointSettings {
        url: url.to_owned(),
        secret_env: "SECRET".to_owned(),
        ..EndpointSettings::default()
    };
    let settings = HttpBusSettings {
        endpoints: [("billing".to_owned(), endpoint)].into(),
        allow_private_addresses: true,
        ..HttpBusSettings::default()
    };
    HttpBus::new(&settings, |_| Some(secrets.to_owned())).unwrap()
}

fn message(payload: &str) -> Message {
    let event_id = Uuid::new_v4();
    let body = format!(
        r#"{{"envelope": {{"v": 1, "eventId": "{event_id}", "occurredAt": "2026-11-02T09:30:00Z", "tenantId": "t",
            "type": "events.transfers.submitted"}}, "key": {{"transferId": "tr_1"}}, "payload": {payload}}}"#
    );
    Message::new(&Format::own(Binding::Http), &body, 1, Utc::now()).unwrap()
}

#[tokio::test]
async fn an_independent_library_believes_what_is_sent_and_nothing_that_was_changed() {
    brokers::required_or_skip!();
    let (url, captured) = capturing().await;
    let messages = [
        message("{}"),
        message(r#"{"text": "ü \u00fc 😀 \/", "n": 1.10, "wei": 123456789012345678901234567890}"#),
        message(&format!(r#"{{"padding": "{}"}}"#, "x".repeat(200_000))),
    ];
    // Secret by secret: before, while and after it is changed. Every first try fails, so that there are repeats.
    for secrets in [OLD, &format!("{NEW} {OLD}"), NEW] {
        let bus = bus(&url, secrets);
        for message in &messages {
            while !matches!(
                bus.publish("billing", &[message]).await[..],
                [Publication::Accepted { .. }]
            ) {}
        }
    }
    let captured = captured.lock().unwrap().clone();
    for message in &messages {
        let id = message.event_id.to_string();
        let tries = captured.iter().filter(|request| request.headers["webhook-id"] == id);
        assert!(tries.clone().count() >= 3);
        assert!(tries.clone().all(|request| request.body == message.body), "{id}");
    }
    let file = std::env::temp_dir().join(format!("symphony-webhooks-{}.json", Uuid::new_v4()));
    std::fs::write(&file, json!({ "requests": captured, "old": OLD, "new": NEW }).to_string())
        .unwrap();
    let script = r#"
import json, sys
from standardwebhooks.webhooks import Webhook, WebhookVerificationError
given = json.load(open(sys.argv[1]))
def believed(secret, body, headers):
    try:
        Webhook(given[secret]).verify(body, headers)
        return True
    except WebhookVerificationError:
        return False
both = refused = 0
by = {"old": 0, "new": 0}
for request in given["requests"]:
    body, headers = request["body"].encode(), request["headers"]
    by_whom = [secret for secret in by if believed(secret, body, headers)]
    assert by_whom, headers
    for secret in by_whom:
        by[secret] += 1
        changed = [(body + b" ", headers), (body.replace(b"tr_1", b"tr_2"), headers)]
        changed.append((body, headers | {"webhook-id": "another"}))
        changed.append((body, headers | {"webhook-timestamp": str(int(headers["webhook-timestamp"]) + 1)}))
        changed.append((body, headers | {"webhook-signature": "v1," + "A" * 43 + "="}))
        for other_body, other_headers in changed:
            assert not believed(secret, other_body, other_headers), "a changed webhook was believed"
            refused += 1
    both += len(by_whom) == 2
print(json.dumps([len(given["requests"]), both, by["old"], by["new"], refused]))
"#;
    let printed = brokers::python(script, &[file.to_str().unwrap()]).await;
    std::fs::remove_file(&file).unwrap();
    let [all, both, old, new, refused]: [usize; 5] = serde_json::from_str(&printed).unwrap();
    assert_eq!(all, captured.len());
    assert!(all >= 12, "three secrets, three events and the repeats: {all}");
    assert!(both >= 3 && old > both && new > both, "{printed}");
    assert_eq!((old + new, refused), (all + both, (all + both) * 5));
}

#[tokio::test]
async fn our_receiver_believes_what_an_independent_library_signs_and_nothing_that_was_changed() {
    brokers::required_or_skip!();
    let receiver = Receiver::start(ReceiverSettings::new(OLD)).await.unwrap();
    let message = message(r#"{"text": "ü"}"#);
    let script = r#"
import datetime, sys, urllib.error, urllib.request
from standardwebhooks.webhooks import Webhook
url, secret, id, body = sys.argv[1:]
now = datetime.datetime.now(tz=datetime.timezone.utc)
def post(body, signed_body, at=now, id=id, secret=secret):
    headers = {"webhook-id": id, "webhook-timestamp": str(int(at.timestamp())),
               "webhook-signature": Webhook(secret).sign(id, at, signed_body)}
    try:
        return urllib.request.urlopen(urllib.request.Request(url, body.encode(), headers)).status
    except urllib.error.HTTPError as error:
        return error.code
print(post(body, body), post(body, body), post(body.replace("tr_1", "tr_2"), body),
      post(body, body, at=now - datetime.timedelta(minutes=6)), post(body, body, id="another"),
      post(body, body, secret="whsec_" + "A" * 32), post("{}", "{}"))
"#;
    let arguments =
        [receiver.url(), OLD.to_owned(), message.event_id.to_string(), message.body.clone()];
    let printed = brokers::python(script, &arguments.each_ref().map(String::as_str)).await;
    assert_eq!(printed.trim(), "200 200 401 401 400 401 400");
    let arrivals = receiver.stop().await;
    assert_eq!((arrivals.first, arrivals.repeated, arrivals.refused), (1, 1, 5));
    assert_eq!(arrivals.kept[0].body.get(), message.body);
}
