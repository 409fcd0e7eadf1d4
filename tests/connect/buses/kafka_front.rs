//! What the mock cluster lacks: `symphony bus setup`, TLS and SASL on Kafka, against a broker played in Python.

use serde_json::{Value, json};
use symphony::lanes::events::bus::Bus;
use symphony_connect::buses::kafka::{KafkaBus, KafkaSettings, SaslMechanism};
use tokio::process::Command;

use super::setup::{Scratch, set_up};
use super::{again_code, message};
use crate::support::brokers::{python, required_or_skip};
use crate::support::kafka::Front;

fn config(front: &Front, topic: &str) -> String {
    format!(
        r#"
        [buses.main]
        kind = "kafka"
        bootstrap_servers = "{}"
        setup.topics = [{topic}]
        setup.consumers = [{{ name = "ledger", topic = "transfers" }}]
        "#,
        front.servers()
    )
}

fn steps(done: &Value) -> Vec<String> {
    let steps = done["steps"].as_array().unwrap().iter();
    steps.map(|step| format!("{} {}", step["name"], step["action"]).replace('"', "")).collect()
}

/// All topics, as confluent-kafka reads them.
async fn topics(front: &Front) -> Value {
    let script = "\
import json, sys
from confluent_kafka.admin import AdminClient, ConfigResource
admin, found = AdminClient({'bootstrap.servers': sys.argv[1]}), {}
for name, topic in admin.list_topics(timeout=10).topics.items():
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    configs = admin.describe_configs([resource])[resource].result(10)
    found[name] = {'partitions': len(topic.partitions), 'replicas': len(topic.partitions[0].replicas),
                   'configs': {key: entry.value for key, entry in configs.items()}}
print(json.dumps(found))";
    serde_json::from_str(&python(script, &[&front.servers()]).await).unwrap()
}

#[tokio::test]
async fn setup_on_kafka_creates_topics_once_and_changes_only_what_is_its_own() {
    required_or_skip!();
    let front = Front::start(&json!({})).await;
    let small = "{ name = \"transfers\", partitions = 6 }";
    let small_config = Scratch::new(&config(&front, small));
    let planned = set_up(&small_config, &["--dry-run"]).await;
    assert_eq!(steps(&planned), ["transfers create", "ledger-dead create"]);
    assert_eq!(topics(&front).await, json!({}), "a dry run creates nothing");

    let first = set_up(&small_config, &[]).await;
    assert_eq!(steps(&first), ["transfers create", "ledger-dead create"]);
    let found = topics(&front).await;
    assert_eq!(
        (&found["transfers"]["partitions"], &found["transfers"]["replicas"]),
        (&json!(6), &json!(3))
    );
    let configs = &found["transfers"]["configs"];
    assert_eq!(configs["min.insync.replicas"], "2");
    assert_eq!(configs["cleanup.policy"], "delete");
    assert_eq!(configs["retention.ms"], (14 * 86_400_000_i64).to_string());
    assert_eq!(configs["unclean.leader.election.enable"], "false");
    assert_eq!(found["ledger-dead"]["configs"]["retention.ms"], "-1");
    assert_eq!(steps(&set_up(&small_config, &[]).await), ["transfers keep", "ledger-dead keep"]);

    // Somebody else has set something: it stays.
    let others = "\
import sys
from confluent_kafka.admin import AdminClient, ConfigResource
admin = AdminClient({'bootstrap.servers': sys.argv[1]})
resource = ConfigResource(ConfigResource.Type.TOPIC, 'transfers', set_config={
    'max.message.bytes': '2000000', 'min.insync.replicas': '1'})
admin.alter_configs([resource])[resource].result(10)";
    python(others, &[&front.servers()]).await;
    let mended = set_up(&small_config, &[]).await;
    assert_eq!(steps(&mended), ["transfers change", "ledger-dead keep"]);
    let configs = topics(&front).await["transfers"]["configs"].take();
    assert_eq!(configs["max.message.bytes"], "2000000");
    assert_eq!(configs["min.insync.replicas"], "2");

    let allowed = |party: &str| {
        let policies = first["policies"].as_array().unwrap();
        policies.iter().find(|policy| policy["party"] == party).unwrap()["document"].to_string()
    };
    assert!(
        allowed("producer").contains("--operation Write --operation Describe --topic transfers")
    );
    let consumer = allowed("consumer ledger");
    for right in [
        "User:ledger --operation Read --operation Describe --topic transfers",
        "User:ledger --operation Read --group ledger",
        "User:ledger --operation Write --operation Describe --topic ledger-dead",
    ] {
        assert!(consumer.contains(right), "{consumer}");
    }
}

async fn refusal(config: &Scratch) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_symphony"))
        .args(["bus", "setup", "main", "--config"])
        .arg(&config.0)
        .output()
        .await
        .unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test]
async fn setup_on_kafka_refuses_what_would_break_the_order_or_cannot_be() {
    required_or_skip!();
    let front = Front::start(&json!({ "brokers": 2 })).await;
    let topic =
        |text: &str| Scratch::new(&config(&front, &format!("{{ name = \"transfers\", {text} }}")));
    let few = refusal(&topic("partitions = 2")).await;
    assert!(few.contains("fewer than 3 brokers; set replicas"), "{few}");
    set_up(&topic("partitions = 2, replicas = 1"), &[]).await;
    let more = refusal(&topic("partitions = 4, replicas = 1")).await;
    assert!(more.contains("2 partitions and setup says 4") && more.contains("order"), "{more}");
    let copies = refusal(&topic("partitions = 2, replicas = 2")).await;
    assert!(copies.contains("kafka-reassign-partitions"), "{copies}");
}

/// `symphony bus setup` with this login; what it says, and whether it succeeded.
async fn set_up_as(front: &Front, login: &str, password: &str) -> (bool, String) {
    let topic = "{ name = \"transfers\" }";
    let config =
        config(front, topic).replace("kind = \"kafka\"", &format!("kind = \"kafka\"\n{login}"));
    let config = Scratch::new(&config);
    let output = Command::new(env!("CARGO_BIN_EXE_symphony"))
        .args(["bus", "setup", "main", "--config"])
        .arg(&config.0)
        .env("KAFKA_PASSWORD", password)
        .output()
        .await
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

#[tokio::test]
async fn setup_logs_in_with_each_mechanism_or_says_why_it_does_not() {
    required_or_skip!();
    let front = Front::start(&json!({
        "mechanisms": ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"],
        "users": { "outbox": "open sesame" },
        "token": "e30.e30.sig",
    }))
    .await;
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let login = format!(
            "sasl_mechanism = \"{mechanism}\"\nusername = \"outbox\"\npassword_env = \"KAFKA_PASSWORD\""
        );
        let (made, said) = set_up_as(&front, &login, "open sesame").await;
        assert!(made && said.contains("ledger-dead"), "{mechanism}: {said}");
        let (made, said) = set_up_as(&front, &login, "guess").await;
        assert!(!made && said.to_lowercase().contains("authentication"), "{mechanism}: {said}");
        assert!(!said.contains("guess"), "{said}");
    }
    let login = "sasl_mechanism = \"OAUTHBEARER\"\ntoken_command = [\"printf\", \"e30.e30.sig\"]";
    let (made, said) = set_up_as(&front, login, "").await;
    assert!(!made && said.contains("setup cannot log in with OAUTHBEARER"), "{said}");
}

fn settings(front: &Front) -> KafkaSettings {
    KafkaSettings {
        bootstrap_servers: front.servers(),
        timeout_ms: 4_000,
        connect_timeout_ms: 2_000,
        ..KafkaSettings::default()
    }
}

async fn outcome(settings: &KafkaSettings, secret: &'static str) -> String {
    let bus = KafkaBus::new(settings, |_| Some(secret.to_owned())).unwrap();
    let event = message("events.transfers.submitted");
    again_code(&bus.publish("transfers", &[&event]).await).to_owned()
}

#[tokio::test]
async fn every_mechanism_lets_in_with_the_right_secret_and_a_wrong_one_is_said_to_be_one() {
    required_or_skip!();
    let front = Front::start(&json!({
        "mechanisms": ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"],
        "users": { "outbox": "open sesame" },
        "token": "e30.e30.sig",
    }))
    .await;
    for mechanism in [SaslMechanism::Plain, SaslMechanism::ScramSha256, SaslMechanism::ScramSha512]
    {
        let settings = KafkaSettings {
            sasl_mechanism: Some(mechanism),
            username: Some("outbox".to_owned()),
            password_env: Some("PASSWORD".to_owned()),
            ..settings(&front)
        };
        // It was heard: there is no such topic.
        assert_eq!(outcome(&settings, "open sesame").await, "NO_SUCH_TOPIC", "{mechanism:?}");
        assert_eq!(outcome(&settings, "guess").await, "NOT_AUTHORIZED", "{mechanism:?}");
    }
    let with_token = |token: &str| KafkaSettings {
        sasl_mechanism: Some(SaslMechanism::OauthBearer),
        token_command: vec!["printf".to_owned(), token.to_owned()],
        ..settings(&front)
    };
    assert_eq!(outcome(&with_token("e30.e30.sig"), "").await, "NO_SUCH_TOPIC");
    assert_eq!(outcome(&with_token("e30.e30.other"), "").await, "NOT_AUTHORIZED");
    assert_eq!(outcome(&with_token(""), "").await, "NOT_AUTHORIZED", "there is no token");
}

#[tokio::test]
async fn tls_is_spoken_with_brokers_whom_the_given_authority_vouches_for_and_no_others() {
    required_or_skip!();
    let folder = std::env::temp_dir().join(format!("symphony-kafka-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    for name in ["ours", "other"] {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(path(name), made.cert.pem()).unwrap();
        std::fs::write(path(&format!("{name}.key")), made.signing_key.serialize_pem()).unwrap();
    }
    let options = json!({ "certificate": path("ours"), "key": path("ours.key") });
    let front = Front::start(&options).await;
    let trusting = |file: &str| KafkaSettings { ca_file: Some(path(file)), ..settings(&front) };
    assert_eq!(outcome(&trusting("ours"), "").await, "NO_SUCH_TOPIC");
    assert_eq!(outcome(&trusting("other"), "").await, "UNREACHABLE");
    let plain = settings(&front);
    assert_eq!(outcome(&plain, "").await, "UNREACHABLE", "it speaks TLS only");
    std::fs::remove_dir_all(&folder).unwrap();
}
