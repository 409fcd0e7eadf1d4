//! The claims every bus must keep, with a receiver that can be broken and mended.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use chrono::Utc;
use symphony::lanes::events::bus::{Bus as _, Message};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::{SECRET, environment, settings};
use crate::buses::conformance::{Arrival, ClaimOutcome, Condition, Probe, check};
use crate::buses::http::HttpBus;
use crate::buses::webhook_signature::{Secret, verify};
use crate::rails::http::tests::server::{Received, read, response};

/// Larger bodies are answered with 413.
const BODY_BYTES_MAX: usize = 262_144;

/// A receiver on a port of its own, which it keeps while it is down.
struct Broken {
    port: u16,
    condition: watch::Sender<Condition>,
    shared: Arc<Shared>,
    serving: Mutex<JoinHandle<()>>,
}

struct Shared {
    arrivals: Mutex<Vec<Arrival>>,
    arrived: watch::Sender<usize>,
}

impl Broken {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared =
            Arc::new(Shared { arrivals: Mutex::new(Vec::new()), arrived: watch::Sender::new(0) });
        let condition = watch::Sender::new(Condition::Well);
        let serving = tokio::spawn(serve(listener, Arc::clone(&shared), condition.subscribe()));
        Self { port, condition, shared, serving: Mutex::new(serving) }
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>, condition: watch::Receiver<Condition>) {
    // Aborted with this task: then connections are cut.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(talk(stream, Arc::clone(&shared), condition.clone()));
    }
}

async fn talk(
    mut stream: TcpStream,
    shared: Arc<Shared>,
    mut condition: watch::Receiver<Condition>,
) {
    loop {
        // Waits for the next request (`readable` may still speak of the last one), so that the condition is of now.
        if !matches!(stream.peek(&mut [0]).await, Ok(1..)) {
            return;
        }
        let now = *condition.borrow_and_update();
        if now == Condition::Hanging {
            // Nothing is heard and nothing breaks, as long as it lasts; by then the other side has given up.
            drop(condition.wait_for(|now| *now != Condition::Hanging).await);
            return;
        }
        let Some(request) = read(&mut stream, 0).await else { return };
        let status = shared.take(&request);
        match now {
            Condition::AnswersLost => return stream.set_zero_linger().unwrap_or(()),
            Condition::Slow(by) => tokio::time::sleep(by).await,
            _ => {}
        }
        if stream.write_all(&response(status, "", "")).await.is_err() {
            return;
        }
    }
}

impl Shared {
    fn take(&self, request: &Received) -> u16 {
        let header = |name: &str| request.headers.get(name).cloned().unwrap_or_default();
        if request.body.len() > BODY_BYTES_MAX {
            return 413;
        }
        if header("symphony-event-type") == "events.large" {
            return 413;
        }
        let (id, timestamp) = (header("webhook-id"), header("webhook-timestamp"));
        let secrets = Secret::parse_list(SECRET).unwrap();
        let signature = header("webhook-signature");
        let now = Utc::now().timestamp();
        if verify(&secrets, &id, &timestamp, &signature, &request.body, now).is_err() {
            return 401;
        }
        let mut arrivals = self.arrivals.lock().unwrap();
        arrivals.push(Arrival {
            event_id: id.parse().unwrap(),
            position: header("symphony-position").parse().unwrap(),
            event_type: header("symphony-event-type"),
            body: String::from_utf8(request.body.clone()).unwrap(),
        });
        self.arrived.send_replace(arrivals.len());
        200
    }
}

#[async_trait]
impl Probe for Broken {
    fn topic(&self) -> &'static str {
        "billing"
    }

    fn missing_topic(&self) -> Option<String> {
        Some("nowhere".to_owned())
    }

    async fn received(&self, expected: usize) -> Vec<Arrival> {
        let mut arrived = self.shared.arrived.subscribe();
        let enough = arrived.wait_for(|arrived| *arrived >= expected);
        // Whoever waited in vain sees by what is missing.
        // (Dropped at once: what it returns holds a lock that the next line but one needs.)
        drop(tokio::time::timeout(Duration::from_secs(5), enough).await);
        let arrivals = std::mem::take(&mut *self.shared.arrivals.lock().unwrap());
        self.shared.arrived.send_replace(0);
        arrivals
    }

    async fn make(&self, condition: Condition) -> bool {
        let was = self.condition.send_replace(condition);
        if condition == Condition::Down {
            let serving = {
                let mut serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::replace(&mut *serving, tokio::spawn(async {}))
            };
            serving.abort();
            let _aborted = serving.await;
        } else if was == Condition::Down {
            let listener = TcpListener::bind(("127.0.0.1", self.port)).await.unwrap();
            let again = serve(listener, Arc::clone(&self.shared), self.condition.subscribe());
            *self.serving.lock().unwrap() = tokio::spawn(again);
        }
        true
    }

    fn oversize_bytes(&self) -> Option<usize> {
        Some(BODY_BYTES_MAX + 1)
    }

    fn spoil(&self, message: &mut Message) -> bool {
        for (name, value) in &mut message.headers {
            if *name == "symphony-event-type" {
                "events.large".clone_into(value);
            }
        }
        true
    }
}

#[tokio::test]
async fn the_http_bus_keeps_every_claim() {
    let probe = Broken::start().await;
    let bus =
        HttpBus::new(&settings(&format!("http://127.0.0.1:{}/", probe.port)), environment).unwrap();
    assert_eq!(bus.terms().batch_max, 10);
    let report = check(&bus, &probe).await;
    let all = report.claims.iter().all(|claim| claim.outcome == ClaimOutcome::Passed);
    assert!(all && report.claims.len() >= 19, "{report}");
}
