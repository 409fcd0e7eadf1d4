//! Where a consumer touches its surroundings: lost COMMITs, a login of its own, a queue's own policy, queues that will not do.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use symphony::consumer::ConsumerSettings;
use symphony::db::{Database, RoleSource};
use symphony_connect::sources::sqs::{SqsSettings, SqsSource};

use super::ground::{Broker, Effects, Failure, Running, applied, event, settings};
use crate::support::brokers::required_or_skip;
use crate::support::proxy::{self, Cut};
use crate::support::{TestDb, until};

#[tokio::test]
async fn a_connection_lost_in_the_middle_of_a_commit_makes_no_effect_twice_and_loses_none() {
    required_or_skip!();
    for cut in [Cut::BeforeCommit, Cut::AfterCommit] {
        let db = TestDb::new().await;
        Effects::table(&db).await;
        let broker = Broker::nats().await;
        let proxy = proxy::start(&db.options, cut, 3).await;
        let database = Database::connect(proxy.options.clone(), 12, RoleSource::EachTransaction)
            .await
            .unwrap();
        let told: Vec<_> =
            (1..=4).map(|n| event("a", n)).chain((5..=6).map(|n| event("b", n))).collect();
        broker.publish(&told.iter().collect::<Vec<_>>()).await;
        let patient = ConsumerSettings { receives_max: 20, ..settings() };
        let running = Running::start_on(
            &database,
            broker.source("balances").await,
            &Effects::default(),
            patient,
        );
        until("all are done with", async || {
            running.metrics.applied.get() + running.metrics.duplicates.get() == 6
                && running.metrics.held.get() == 0
        })
        .await;
        assert_eq!(proxy.cuts.load(Ordering::SeqCst), 0, "{cut:?}: connections were cut");
        running.stop().await;
        assert_eq!(applied(&db, "a").await, [1, 2, 3, 4], "{cut:?}");
        assert_eq!(applied(&db, "b").await, [5, 6], "{cut:?}");
    }
}

#[tokio::test]
async fn a_login_with_its_own_tables_and_the_consumers_role_needs_nothing_else() {
    required_or_skip!();
    let db = TestDb::new().await;
    let broker = Broker::sqs().await;
    let login = crate::support::unique("wallet");
    db.sql(&format!(
        "CREATE ROLE {login} LOGIN PASSWORD 'wallet'; GRANT symphony_consumer TO {login};
         CREATE TABLE effects (place bigserial, event_id uuid, key text, number bigint, position bigint);
         ALTER TABLE effects OWNER TO {login}"
    ))
    .await;
    let options = db.options.clone().username(&login).password("wallet");
    let database = Database::connect(options, 12, RoleSource::Login).await.unwrap();
    broker.publish(&[&event("a", 1), &event("a", 2)]).await;
    let running = Running::start_on(
        &database,
        broker.source("balances").await,
        &Effects::default(),
        settings(),
    );
    until("all are applied", async || running.metrics.applied.get() == 2).await;
    running.stop().await;
    assert_eq!(applied(&db, "a").await, [1, 2]);
}

/// Let SQS itself give up what was received more often.
async fn give_up_after(broker: &Broker, receives: u32) {
    let Broker::Sqs { moto, queue, .. } = broker else { unreachable!() };
    let script = "\
arn = 'arn:aws:sqs:eu-central-1:123456789012:dead.fifo'
sqs.set_queue_attributes(QueueUrl=sys.argv[1], Attributes={'RedrivePolicy': json.dumps({'deadLetterTargetArn': arn, 'maxReceiveCount': int(sys.argv[2])})})";
    moto.boto(script, &[queue, &receives.to_string()]).await;
}

#[tokio::test]
async fn dead_letters_go_to_the_queue_that_the_redrive_policy_names_with_their_reason() {
    required_or_skip!();
    let db = TestDb::new().await;
    Effects::table(&db).await;
    let broker = Broker::sqs().await;
    let Broker::Sqs { aws, queue, .. } = &broker else { unreachable!() };
    give_up_after(&broker, 1_000).await;
    let settings_of_queue = SqsSettings {
        visibility: Duration::from_secs(3),
        wait: Duration::from_secs(1),
        ..SqsSettings::new(queue)
    };
    let client = aws.sqs(Duration::from_secs(3), Duration::from_secs(30));
    let source = Arc::new(SqsSource::open(client, settings_of_queue).await.unwrap());
    let failing = event("a", 1);
    broker.publish(&[&failing, &event("b", 2)]).await;
    let effects = Effects::default().fail(1, Failure::Again(99));
    let running = Running::start(&db, source, &effects);
    until("it is counted", async || running.metrics.dead_letters_exhausted.get() == 1).await;
    until("the other is applied", async || running.metrics.applied.get() == 1).await;
    running.stop().await;
    assert_eq!(applied(&db, "b").await, [2]);
    assert_eq!(effects.calls.load(Ordering::SeqCst), 4);
    assert_eq!(broker.dead_letters().await, [("RECEIVES_EXHAUSTED".to_owned(), failing.body)]);
}

#[tokio::test]
async fn a_queue_that_would_lose_order_or_dead_letters_is_refused() {
    required_or_skip!();
    let broker = Broker::sqs().await;
    let Broker::Sqs { moto, aws, queue, dead } = &broker else { unreachable!() };
    let few = moto.boto("print(sqs.create_queue(QueueName='few.fifo', Attributes={'FifoQueue': 'true', 'RedrivePolicy': json.dumps({'deadLetterTargetArn': 'arn:aws:sqs:eu-central-1:123456789012:dead.fifo', 'maxReceiveCount': 5})})['QueueUrl'])", &[]).await;
    let plain = moto.boto("print(sqs.create_queue(QueueName='plain')['QueueUrl'])", &[]).await;
    for (queue, dead_letter_url, expected) in [
        (plain.trim(), Some(dead.clone()), "not a FIFO queue"),
        (queue.as_str(), None, "no redrive policy"),
        (few.trim(), Some(dead.clone()), "maxReceiveCount is 5"),
        ("http://127.0.0.1:1/123456789012/none.fifo", None, "cannot read the queue's attributes"),
    ] {
        let client = aws.sqs(Duration::from_secs(3), Duration::from_secs(30));
        let settings = SqsSettings { dead_letter_url, ..SqsSettings::new(queue) };
        let error = SqsSource::open(client, settings).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn a_consumer_that_may_hold_one_message_at_a_time_does_not_wait_between_them() {
    required_or_skip!();
    let db = TestDb::new().await;
    Effects::table(&db).await;
    let broker = Broker::nats().await;
    let Broker::Nats { client, .. } = &broker else { unreachable!() };
    let stream = async_nats::jetstream::new(client.clone()).get_stream("EVENTS").await.unwrap();
    let strict = async_nats::jetstream::consumer::pull::Config {
        durable_name: Some("balances".to_owned()),
        max_ack_pending: 1,
        ..Default::default()
    };
    stream.create_consumer(strict).await.unwrap();
    let told: Vec<_> = (1..=100).map(|n| event("a", n)).collect();
    broker.publish(&told.iter().collect::<Vec<_>>()).await;
    let running = Running::start(&db, broker.source("balances").await, &Effects::default());
    // It is milliseconds a message; it was seconds, which is more than the minute that is waited here.
    until("all events are applied", async || db.count("effects").await == 100).await;
    assert_eq!(running.stop().await, 0);
    assert_eq!(applied(&db, "a").await, (1..=100).collect::<Vec<_>>());
}
