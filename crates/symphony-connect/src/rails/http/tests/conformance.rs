//! The http rail against the suite, with a provider that deduplicates and can be asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use symphony::domain::RailKey;
use symphony::money::DestinationRule;

use super::server::{Reaction, Received, Server, json, response};
use crate::rails::conformance::{ClaimOutcome, Misbehaviour, Provider, check, tests::sample};
use crate::rails::http::{HttpRail, HttpRailSettings};

#[derive(Default)]
struct Books {
    armed: HashMap<RailKey, Misbehaviour>,
    known: HashMap<RailKey, String>,
    executions: HashMap<RailKey, u64>,
}

impl Books {
    fn execute(&mut self, key: RailKey) -> String {
        if let Some(answer) = self.known.get(&key) {
            return answer.clone();
        }
        *self.executions.entry(key).or_default() += 1;
        let answer = format!(r#"{{"code": "ACSC", "reference": "R-{key}"}}"#);
        self.known.insert(key, answer.clone());
        answer
    }

    fn react(&mut self, request: &Received) -> Reaction {
        if request.method == "GET" {
            let key: RailKey = request.target.rsplit('/').next().unwrap().parse().unwrap();
            return Reaction::Answer(match self.known.get(&key) {
                Some(answer) => json(200, answer),
                None => json(404, r#"{"code": "NO_SUCH_PAYMENT"}"#),
            });
        }
        let key: RailKey = request.headers["idempotency-key"].parse().unwrap();
        match self.armed.remove(&key) {
            None => Reaction::Answer(json(201, &self.execute(key))),
            Some(Misbehaviour::Refuse) => Reaction::Answer(json(422, r#"{"code": "AC04"}"#)),
            Some(Misbehaviour::Busy) => Reaction::Answer(response(429, "Retry-After: 1\r\n", "")),
            Some(Misbehaviour::ErrorBefore) => Reaction::Answer(json(500, "{}")),
            Some(Misbehaviour::ErrorAfter) => {
                self.execute(key);
                Reaction::Answer(json(503, "{}"))
            }
            Some(Misbehaviour::ResetBefore) => Reaction::Reset,
            Some(Misbehaviour::ResetAfter) => {
                self.execute(key);
                Reaction::Reset
            }
            Some(Misbehaviour::Hang) => Reaction::Hang,
            Some(Misbehaviour::AnswerTwice) => {
                let answer = json(201, &self.execute(key));
                Reaction::Answer([answer.clone(), answer].concat())
            }
            Some(Misbehaviour::Garbage) => Reaction::Answer(json(200, "<html>it works</html>")),
            Some(Misbehaviour::SlowDrip) => Reaction::Drip(json(201, &self.execute(key))),
        }
    }
}

struct TestProvider {
    server: Server,
    books: Arc<Mutex<Books>>,
}

impl TestProvider {
    async fn start() -> Self {
        let books = Arc::new(Mutex::new(Books::default()));
        let shared = Arc::clone(&books);
        let server = Server::start(move |request| shared.lock().unwrap().react(request)).await;
        Self { server, books }
    }
}

#[async_trait]
impl Provider for TestProvider {
    async fn misbehave(&self, key: RailKey, misbehaviour: Misbehaviour) -> bool {
        self.books.lock().unwrap().armed.insert(key, misbehaviour);
        true
    }

    async fn executions(&self, key: RailKey) -> u64 {
        self.books.lock().unwrap().executions.get(&key).copied().unwrap_or(0)
    }

    async fn forget(&self, key: RailKey) -> bool {
        self.books.lock().unwrap().known.remove(&key);
        true
    }

    async fn requests(&self) -> Option<u64> {
        Some(self.server.received().len() as u64)
    }
}

#[tokio::test]
async fn the_http_rail_keeps_every_claim() {
    let provider = TestProvider::start().await;
    let url = format!("http://127.0.0.1:{}/payments", provider.server.port);
    let rail = HttpRail::new(
        &HttpRailSettings {
            inquiry_url: Some(format!("{url}/{{key}}")),
            url,
            timeout_ms: 300,
            connect_timeout_ms: Some(300),
            inquiry_timeout_ms: 300,
            key_lifetime_seconds: Some(3_600),
            destination: Some(DestinationRule::Iban),
            allow_private_addresses: true,
            ..HttpRailSettings::default()
        },
        |_| None,
    )
    .unwrap();
    let report = check(&rail, &provider, &sample()).await;
    assert!(report.passed(), "{report}");
    let untested =
        report.claims.iter().filter(|claim| claim.outcome != ClaimOutcome::Passed).count();
    assert_eq!(untested, 0, "{report}");
}
