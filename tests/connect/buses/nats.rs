//! NATS JetStream, on a real nats-server.

use std::time::Duration;

use async_nats::jetstream::{Context, consumer, stream};
use async_trait::async_trait;
use futures_util::StreamExt;
use symphony::lanes::events::bus::{Bus, Cause, Publication};
use symphony_connect::buses::conformance::{Arrival, ClaimOutcome, Condition, Probe, check};
use symphony_connect::buses::nats::{NatsBus, NatsConnector, NatsSettings};

use super::{again_code, message};
use crate::support::brokers::{NatsServer, required_or_skip};
use crate::support::until;
use crate::support::valve::Valve;

fn settings(port: u16) -> NatsSettings {
    NatsSettings {
        url: format!("nats://127.0.0.1:{port}"),
        timeout_ms: 2_000,
        connect_timeout_ms: 1_000,
        ..NatsSettings::default()
    }
}

pub fn bus(port: u16) -> NatsBus {
    NatsBus::new(&settings(port), |_| None).unwrap()
}

async fn jetstream(server: &NatsServer) -> Context {
    NatsConnector::new(&settings(server.port), |_| None).unwrap().jetstream().await.unwrap()
}

/// A stream of all events.
async fn stream(server: &NatsServer, name: &str) -> stream::Stream {
    let config = stream::Config {
        name: name.to_owned(),
        subjects: vec!["events.>".to_owned()],
        duplicate_window: Duration::from_mins(2),
        ..stream::Config::default()
    };
    jetstream(server).await.create_stream(config).await.unwrap()
}

struct NatsProbe {
    valve: Valve,
    consumer: consumer::PullConsumer,
}

#[async_trait]
impl Probe for NatsProbe {
    fn topic(&self) -> &'static str {
        "CHECKED"
    }

    fn missing_topic(&self) -> Option<String> {
        Some("MISSING".to_owned())
    }

    async fn received(&self, expected: usize) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        for _ in 0..20 {
            if arrivals.len() >= expected {
                break;
            }
            let wait = self.consumer.batch().max_messages(100).expires(Duration::from_millis(500));
            arrivals.extend(read(wait.messages().await.unwrap()).await);
        }
        let rest = self.consumer.fetch().max_messages(100).messages().await.unwrap();
        arrivals.extend(read(rest).await);
        arrivals
    }

    async fn make(&self, condition: Condition) -> bool {
        self.valve.make(condition).await;
        true
    }

    fn oversize_bytes(&self) -> Option<usize> {
        Some(1024 * 1024)
    }
}

async fn read(mut messages: consumer::pull::Batch) -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    while let Some(message) = messages.next().await {
        let message = message.unwrap();
        message.ack().await.unwrap();
        let header = |name: &str| message.headers.as_ref().unwrap().get(name).unwrap().as_str();
        assert_eq!(header("Nats-Msg-Id"), header("eventId"));
        assert_eq!(header("tenantId"), "tnt_conformance");
        assert_eq!(header("type"), message.subject.as_str());
        arrivals.push(Arrival {
            event_id: header("eventId").parse().unwrap(),
            position: header("position").parse().unwrap(),
            event_type: message.subject.to_string(),
            body: String::from_utf8(message.payload.to_vec()).unwrap(),
        });
    }
    arrivals
}

#[tokio::test]
async fn the_nats_bus_keeps_every_claim_against_a_real_server() {
    required_or_skip!();
    let server = NatsServer::start().await;
    let stream = stream(&server, "CHECKED").await;
    let consumer = stream.create_consumer(consumer::pull::Config::default()).await.unwrap();
    let probe = NatsProbe { valve: Valve::before(server.port).await, consumer };
    let report = check(&bus(probe.valve.port), &probe).await;
    println!("{report}");
    assert!(report.passed(), "{report}");
    let passed = report.claims.iter().filter(|claim| claim.outcome == ClaimOutcome::Passed).count();
    assert!(passed + 1 >= report.claims.len(), "all but the spoilt message apply: {report}");
}

#[tokio::test]
async fn an_event_is_not_lost_in_a_stream_that_its_route_does_not_name() {
    required_or_skip!();
    let server = NatsServer::start().await;
    let other = stream(&server, "OTHER").await;
    let event = message("events.transfers.submitted");
    let answers = bus(server.port).publish("TRANSFERS", &[&event]).await;
    assert_eq!(again_code(&answers), "NO_SUCH_TOPIC");
    assert_eq!(other.get_info().await.unwrap().state.messages, 0);
}

#[tokio::test]
async fn the_nats_bus_outlives_the_death_of_its_server() {
    required_or_skip!();
    let mut server = NatsServer::start().await;
    stream(&server, "EVENTS").await;
    let bus = bus(server.port);
    let (before, after) = (message("events.a"), message("events.b"));
    assert!(matches!(bus.publish("EVENTS", &[&before]).await[..], [Publication::Accepted { .. }]));
    server.kill().await;
    let down = bus.publish("EVENTS", &[&after]).await;
    assert!(matches!(down[..], [Publication::Again { cause: Cause::Destination, .. }]), "{down:?}");
    server.restart().await;
    until("the bus is back", async || {
        matches!(bus.publish("EVENTS", &[&after]).await[..], [Publication::Accepted { .. }])
    })
    .await;
    let stream = jetstream(&server).await.get_stream("EVENTS").await.unwrap();
    assert_eq!(stream.cached_info().state.messages, 2);
}

#[tokio::test]
async fn a_wrong_token_is_said_to_be_one_and_the_right_one_lets_in() {
    required_or_skip!();
    let server = NatsServer::start_with(&["--auth", "open sesame"]).await;
    let with_token = |token: &'static str| {
        let settings = NatsSettings { token_env: Some("T".to_owned()), ..settings(server.port) };
        NatsBus::new(&settings, |_| Some(token.to_owned())).unwrap()
    };
    let event = message("events.a");
    let refused = with_token("guess").publish("EVENTS", &[&event]).await;
    assert_eq!(again_code(&refused), "NOT_AUTHORIZED");
    let let_in = with_token("open sesame").publish("EVENTS", &[&event]).await;
    assert_eq!(again_code(&let_in), "NO_SUCH_TOPIC");
}

#[tokio::test]
async fn tls_is_spoken_with_whom_the_given_authority_vouches_for_and_nobody_else() {
    required_or_skip!();
    let folder = std::env::temp_dir().join(format!("symphony-tls-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    for name in ["ours", "other"] {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(path(name), made.cert.pem()).unwrap();
        std::fs::write(path(&format!("{name}.key")), made.signing_key.serialize_pem()).unwrap();
    }
    let server = NatsServer::start_with(&[
        "--tls",
        "--tlscert",
        &path("ours"),
        "--tlskey",
        &path("ours.key"),
    ])
    .await;
    let trusting = |authority: &str| {
        let settings = NatsSettings {
            url: format!("tls://localhost:{}", server.port),
            ca_file: Some(path(authority)),
            ..settings(server.port)
        };
        NatsBus::new(&settings, |_| None).unwrap()
    };
    let event = message("events.a");
    let trusted = trusting("ours").publish("EVENTS", &[&event]).await;
    assert_eq!(again_code(&trusted), "NO_SUCH_TOPIC");
    let strange = trusting("other").publish("EVENTS", &[&event]).await;
    assert_eq!(again_code(&strange), "UNREACHABLE");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn a_server_without_tls_is_not_spoken_to_unless_it_is_this_machine_or_allowed() {
    required_or_skip!();
    let server = NatsServer::start().await;
    let event = message("events.a");
    let elsewhere = NatsSettings {
        // Not known to be this machine, and yet it is.
        url: format!("nats://{}:{}", "0.0.0.0", server.port),
        ..settings(server.port)
    };
    let refused = NatsBus::new(&elsewhere, |_| None).unwrap().publish("EVENTS", &[&event]).await;
    assert_eq!(again_code(&refused), "UNREACHABLE");
    let allowed = NatsSettings { allow_plain_text: true, ..elsewhere };
    let let_in = NatsBus::new(&allowed, |_| None).unwrap().publish("EVENTS", &[&event]).await;
    assert_eq!(again_code(&let_in), "NO_SUCH_TOPIC");
}

#[tokio::test]
async fn a_publish_that_the_server_does_not_allow_waits_for_its_operator() {
    required_or_skip!();
    let file = std::env::temp_dir().join(format!("symphony-nats-{}.conf", uuid::Uuid::new_v4()));
    std::fs::write(&file, "{}").unwrap();
    let mut server = NatsServer::start_with(&["--config", file.to_str().unwrap()]).await;
    stream(&server, "ALL").await;
    let allowed = serde_json::json!({ "publish": ["events.b"], "subscribe": ["_INBOX.>"] });
    let user = serde_json::json!({ "user": "us", "password": "us", "permissions": allowed });
    let config = serde_json::json!({ "authorization": { "users": [user] }, "no_auth_user": "us" });
    std::fs::write(&file, config.to_string()).unwrap();
    server.restart().await;
    let bus = bus(server.port);
    let (denied, taken) = (message("events.a"), message("events.b"));
    let answers = bus.publish("ALL", &[&denied, &taken]).await;
    let as_expected = matches!(
        &answers[..],
        [
            Publication::Again { trouble, unknown: false, cause: Cause::Setup, .. },
            Publication::Accepted { .. },
        ] if trouble.code == "NOT_AUTHORIZED"
    );
    assert!(as_expected, "{answers:?}");
    std::fs::remove_file(&file).unwrap();
}
