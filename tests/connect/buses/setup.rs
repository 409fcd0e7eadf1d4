//! `symphony bus setup` against moto and nats-server.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use symphony::consumer::Source as _;
use symphony::lanes::events::bus::{Bus, Publication};
use symphony_connect::buses::nats::{NatsBus, NatsSettings};
use symphony_connect::sources::jetstream::{self, JetStreamSettings, JetStreamSource, NatsAddress};
use tokio::process::Command;
use uuid::Uuid;

use super::{message, sns};
use crate::support::brokers::{Moto, NatsServer, python, required_or_skip};

/// A file of this test's own, gone with it.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("symphony-setup-{}.toml", Uuid::new_v4()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

/// `symphony bus setup`; what it did.
pub async fn set_up(config: &Scratch, arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_symphony"))
        .args(["bus", "setup", "main", "--json", "--config"])
        .arg(&config.0)
        .args(arguments)
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["main"].take()
}

/// `WHAT NAME: ACTION` of every step.
fn steps(done: &Value) -> Vec<String> {
    let text = |step: &Value, field: &str| step[field].as_str().unwrap().to_owned();
    let line = |step: &Value| {
        format!("{} {}: {}", text(step, "what"), text(step, "name"), text(step, "action"))
    };
    done["steps"].as_array().unwrap().iter().map(line).collect()
}

fn all_are(done: &Value, action: &str) -> bool {
    steps(done).iter().all(|step| step.ends_with(&format!(": {action}")))
}

/// What it prints for this party.
pub fn policy<'a>(done: &'a Value, party: &str) -> &'a Value {
    let policies = done["policies"].as_array().unwrap();
    &policies.iter().find(|policy| policy["party"] == party).unwrap()["document"]
}

fn sns_config(moto: &Moto, visibility_seconds: u32) -> String {
    format!(
        r#"
        [buses.main]
        kind = "sns"
        region = "{}"
        endpoint_url = "{}"
        account_id = "{}"
        setup.topics = [{{ name = "transfers.fifo" }}]
        [[buses.main.setup.consumers]]
        name = "ledger"
        topic = "transfers.fifo"
        types = ["events.transfers.*", "events.refunds.made"]
        visibility_timeout_seconds = {visibility_seconds}
        receives_max = 100
        [[buses.main.setup.consumers]]
        name = "mailer"
        topic = "transfers.fifo"
        "#,
        Moto::REGION,
        moto.url(),
        Moto::ACCOUNT
    )
}

#[tokio::test]
async fn setup_on_sns_creates_all_of_it_once_and_a_dry_run_none() {
    required_or_skip!();
    let moto = Moto::start().await;
    let config = Scratch::new(&sns_config(&moto, 60));
    let planned = set_up(&config, &["--dry-run"]).await;
    assert!(all_are(&planned, "create"), "{planned:#}");
    let there =
        "print(len(sns.list_topics()['Topics']) + len(sqs.list_queues().get('QueueUrls', [])))";
    assert_eq!(moto.boto(there, &[]).await.trim(), "0", "a dry run creates nothing");

    let first = set_up(&config, &[]).await;
    assert_eq!(
        steps(&first),
        [
            "topic transfers.fifo: create",
            "queue ledger-dead.fifo: create",
            "queue ledger.fifo: create",
            "subscription transfers.fifo to ledger.fifo: create",
            "queue mailer-dead.fifo: create",
            "queue mailer.fifo: create",
            "subscription transfers.fifo to mailer.fifo: create",
        ]
    );
    let second = set_up(&config, &[]).await;
    assert!(all_are(&second, "keep"), "{second:#}");
    let changed = set_up(&Scratch::new(&sns_config(&moto, 90)), &[]).await;
    let touched: Vec<_> = steps(&changed).into_iter().filter(|s| !s.ends_with("keep")).collect();
    assert_eq!(touched, ["queue ledger-dead.fifo: change", "queue ledger.fifo: change"]);
}

#[tokio::test]
async fn what_setup_made_on_sns_delivers_by_type_and_encrypted() {
    required_or_skip!();
    let moto = Moto::start().await;
    let done = set_up(&Scratch::new(&sns_config(&moto, 60)), &[]).await;
    let bus = sns::bus(moto.port);
    let events = ["events.transfers.submitted.usdc", "events.refunds.made", "events.other.thing"]
        .map(message);
    for event in &events {
        let answers = bus.publish("transfers.fifo", &[event]).await;
        assert!(matches!(answers[..], [Publication::Accepted { .. }]), "{answers:?}");
    }
    let script = "\
found = {}
for name in ['ledger.fifo', 'mailer.fifo', 'ledger-dead.fifo']:
    url = sqs.get_queue_url(QueueName=name)['QueueUrl']
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=['All'])['Attributes']
    bodies = []
    while True:
        got = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get('Messages', [])
        if not got:
            break
        for message in got:
            bodies.append(json.loads(message['Body']))
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message['ReceiptHandle'])
    found[name] = {'attributes': attributes, 'types': [b['envelope']['type'] for b in bodies]}
topic = sns.list_topics()['Topics'][0]['TopicArn']
found['topic'] = sns.get_topic_attributes(TopicArn=topic)['Attributes']
print(json.dumps(found))
";
    let found: Value = serde_json::from_str(&moto.boto(script, &[]).await).unwrap();
    assert_eq!(found["ledger.fifo"]["types"], json!([events[0].event_type, events[1].event_type]));
    assert_eq!(found["mailer.fifo"]["types"].as_array().unwrap().len(), 3);
    assert_eq!(found["ledger-dead.fifo"]["types"], json!([]));
    assert_eq!(found["topic"]["KmsMasterKeyId"], "alias/aws/sns");

    let arn = |name: &str| format!("arn:aws:sqs:{}:{}:{name}", Moto::REGION, Moto::ACCOUNT);
    let attributes = &found["ledger.fifo"]["attributes"];
    assert_eq!(attributes["SqsManagedSseEnabled"], "true");
    let parsed =
        |name: &str| -> Value { serde_json::from_str(attributes[name].as_str().unwrap()).unwrap() };
    let redrive = json!({ "deadLetterTargetArn": arn("ledger-dead.fifo"), "maxReceiveCount": 100 });
    assert_eq!(parsed("RedrivePolicy"), redrive);
    let statement = parsed("Policy")["Statement"][0].take();
    assert_eq!(statement["Principal"], json!({ "Service": "sns.amazonaws.com" }));
    assert_eq!(statement["Resource"], arn("ledger.fifo"));

    // The printed policies: exactly one's own, and no wildcard anywhere.
    let producer = policy(&done, "producer");
    let topic = format!("arn:aws:sns:{}:{}:transfers.fifo", Moto::REGION, Moto::ACCOUNT);
    assert_eq!(producer["Statement"][0]["Action"], json!(["sns:Publish"]));
    assert_eq!(producer["Statement"][0]["Resource"], json!([topic]));
    assert_eq!(producer["Statement"].as_array().unwrap().len(), 1);
    let consumer = policy(&done, "consumer ledger");
    assert_eq!(consumer["Statement"][0]["Resource"], json!([arn("ledger.fifo")]));
    assert!(!done["policies"].to_string().contains('*'), "{done:#}");
    let dead_letter = &consumer["Statement"][1];
    assert_eq!(dead_letter["Resource"], json!([arn("ledger-dead.fifo")]));
    assert_eq!(dead_letter["Action"], json!(["sqs:SendMessage", "sqs:GetQueueAttributes"]));
    assert_eq!(consumer.to_string().matches("sqs:SendMessage").count(), 1);
}

#[tokio::test]
async fn a_message_that_is_given_out_too_often_is_a_dead_letter() {
    required_or_skip!();
    let moto = Moto::start().await;
    set_up(&Scratch::new(&sns_config(&moto, 60)), &[]).await;
    let event = message("events.transfers.submitted");
    let answers = sns::bus(moto.port).publish("transfers.fifo", &[&event]).await;
    assert!(matches!(answers[..], [Publication::Accepted { .. }]), "{answers:?}");
    let script = "\
queue, dead = [sqs.get_queue_url(QueueName=n)['QueueUrl'] for n in ['ledger.fifo', 'ledger-dead.fifo']]
times = 0
while got := sqs.receive_message(QueueUrl=queue).get('Messages'):
    times += 1
    handle = got[0]['ReceiptHandle']
    sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=handle, VisibilityTimeout=0)
buried = sqs.receive_message(QueueUrl=dead).get('Messages', [])
print(times, [json.loads(message['Body'])['envelope']['eventId'] for message in buried])
";
    let said = moto.boto(script, &[]).await;
    assert_eq!(said.trim(), format!("100 ['{}']", event.event_id));
}

fn nats_config(server: &NatsServer, visibility_seconds: u32) -> String {
    format!(
        r#"
        [buses.main]
        kind = "nats"
        url = "{}"
        duplicate_window_seconds = 300
        setup.topics = [
            {{ name = "TRANSFERS", types = ["events.transfers.*"] }},
            {{ name = "DEAD", types = ["dead.*"] }},
        ]
        setup.consumers = [
            {{ name = "ledger", topic = "TRANSFERS", types = ["events.transfers.settled"],
              visibility_timeout_seconds = {visibility_seconds} }},
            {{ name = "mailer", topic = "TRANSFERS" }},
        ]
        "#,
        server.url()
    )
}

#[tokio::test]
async fn setup_on_nats_creates_all_of_it_once_and_changes_what_differs() {
    required_or_skip!();
    let server = NatsServer::start().await;
    let config = Scratch::new(&nats_config(&server, 60));
    assert!(all_are(&set_up(&config, &["--dry-run"]).await, "create"));
    let first = set_up(&config, &[]).await;
    assert_eq!(
        steps(&first),
        [
            "stream TRANSFERS: create",
            "stream DEAD: create",
            "consumer ledger of TRANSFERS: create",
            "consumer mailer of TRANSFERS: create",
        ]
    );
    let second = set_up(&config, &[]).await;
    assert!(all_are(&second, "keep"), "{second:#}");
    let changed = set_up(&Scratch::new(&nats_config(&server, 90)), &[]).await;
    let touched: Vec<_> = steps(&changed).into_iter().filter(|s| !s.ends_with("keep")).collect();
    assert_eq!(touched, ["consumer ledger of TRANSFERS: change"]);
    assert!(all_are(&set_up(&Scratch::new(&nats_config(&server, 90)), &[]).await, "keep"));
}

#[tokio::test]
async fn setup_on_nats_makes_a_stream_for_dead_letters_unless_one_takes_them() {
    required_or_skip!();
    let server = NatsServer::start().await;
    let config = |topics: &str| {
        Scratch::new(&format!(
            r#"
            [buses.main]
            kind = "nats"
            url = "{}"
            setup.topics = [{{ name = "EVENTS", types = ["events.*"] }}{topics}]
            setup.consumers = [{{ name = "ledger", topic = "EVENTS" }}]
            "#,
            server.url()
        ))
    };
    let expected = [
        "stream EVENTS: create",
        "consumer ledger of EVENTS: create",
        "stream ledger-dead: create",
    ];
    assert_eq!(steps(&set_up(&config(""), &["--dry-run"]).await), expected);
    let done = set_up(&config(""), &[]).await;
    assert_eq!(steps(&done), expected);
    let allowed = policy(&done, "consumer ledger").to_string();
    assert!(allowed.contains("$JS.API.STREAM.INFO.ledger-dead"), "{allowed}");
    assert!(all_are(&set_up(&config(""), &[]).await, "keep"));
    let other = config(r#", { name = "DEAD", types = ["dead.*"] }"#);
    let planned = set_up(&other, &["--dry-run"]).await;
    assert!(!steps(&planned).iter().any(|step| step.contains("ledger-dead")), "{planned:#}");
}

#[tokio::test]
async fn what_setup_made_on_nats_is_what_a_consumer_takes() {
    required_or_skip!();
    let server = NatsServer::start().await;
    set_up(&Scratch::new(&nats_config(&server, 60)), &[]).await;
    let address = NatsAddress { url: server.url(), ..NatsAddress::default() };
    let settings = JetStreamSettings {
        stream: "TRANSFERS".to_owned(),
        durable: "ledger".to_owned(),
        filter_subject: None,
        dead_letter_subject: "dead.ledger".to_owned(),
        visibility: Duration::from_secs(1),
        wait: Duration::from_secs(1),
    };
    let client = jetstream::connect(&address, |_| None).await.unwrap();
    let opened = JetStreamSource::open(client, settings).await.unwrap();
    assert_eq!(opened.terms().visibility, Duration::from_mins(1), "it is the one that setup made");
}

#[tokio::test]
async fn the_printed_permissions_of_nats_are_enough_and_no_more() {
    required_or_skip!();
    let server_config = Scratch::new("{}");
    let mut server = NatsServer::start_with(&["--config", server_config.path()]).await;
    let done = set_up(&Scratch::new(&nats_config(&server, 60)), &[]).await;
    let settings = NatsSettings { url: server.url(), ..NatsSettings::default() };
    let event = message("events.transfers.settled");
    let answers = NatsBus::new(&settings, |_| None).unwrap().publish("TRANSFERS", &[&event]).await;
    assert!(matches!(answers[..], [Publication::Accepted { .. }]), "{answers:?}");

    // From now on everybody has what was printed, and nothing else.
    let user = |name: &str, party: &str| json!({ "user": name, "password": name, "permissions": policy(&done, party) });
    let users = [user("producer", "producer"), user("ledger", "consumer ledger")];
    let text = json!({ "authorization": { "users": users } }).to_string();
    std::fs::write(&server_config.0, text).unwrap();
    server.restart().await;
    let script = "\
import asyncio, nats, sys
async def main():
    done = []
    async def failed(error):
        done.append(str(error).lower())
    async def connect(user):
        connection = await nats.connect(sys.argv[1], user=user, password=user, error_cb=failed)
        return connection, connection.jetstream(timeout=2)
    connection, stream = await connect('producer')
    await stream.publish('events.transfers.settled', b'{}', stream='TRANSFERS')
    done.append('published')
    try:
        await stream.publish('events.other', b'{}')
    except Exception:
        done.append('not published')
    await connection.close()
    connection, stream = await connect('ledger')
    own = await stream.pull_subscribe_bind('ledger', 'TRANSFERS')
    for message in await own.fetch(1, timeout=2):
        await message.ack_sync()
        done.append('acknowledged')
    other = await stream.pull_subscribe_bind('mailer', 'TRANSFERS')
    try:
        await other.fetch(1, timeout=2)
        done.append('read from another')
    except Exception:
        done.append('not read')
    await connection.close()
    for line in done:
        print(line)
asyncio.run(main())
";
    let said = python(script, &[&server.url()]).await;
    let expected = ["published", "not published", "acknowledged", "not read"];
    let told: Vec<_> = said.lines().filter(|line| expected.contains(line)).collect();
    assert_eq!(told, expected, "{said}");
    assert_eq!(said.matches("permissions violation").count(), 2, "{said}");
}

#[tokio::test]
async fn a_bus_nobody_configured_is_named_with_the_fix() {
    let config = Scratch::new("");
    let output = Command::new(env!("CARGO_BIN_EXE_symphony"))
        .args(["bus", "setup", "main", "--config"])
        .arg(&config.0)
        .output()
        .await
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("[buses.main]"), "{said}");
}
