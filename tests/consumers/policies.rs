//! `symphony consume` itself, allowed exactly what `symphony bus setup` prints for it.

use serde_json::{Value, json};

use super::ground::{event, garbage};
use super::program::{
    Consuming, Program, consume_nats, consume_sqs, figure, figure_is, started, terminate,
};
use crate::connect::buses::setup::{Scratch, policy, set_up};
use crate::support::brokers::{Moto, NatsServer, python, required_or_skip};
use crate::support::until;

/// It posts, tries again, dead-letters and counts dead letters.
async fn does_all_of_it(consuming: Consuming, program: &Program) {
    let Consuming { mut child, address, log } = consuming;
    figure_is(&address, r#"event_consumer_applied_total{consumer="balances"} 2"#).await;
    figure_is(&address, r#"dead_letter_count{consumer="balances",reason="POISON"} 1"#).await;
    assert_eq!(program.numbers(), [1, 1, 2]);
    until("dead letters are counted", async || {
        figure(&address, "event_consumer_dead_letters_waiting").await.is_some()
    })
    .await;
    let errors = figure(&address, "event_consumer_bus_errors_total").await;
    assert_eq!(errors, Some(0), "{}", log.lock().unwrap());
    assert!(terminate(&mut child).await.success());
}

#[tokio::test]
async fn consume_needs_no_more_of_nats_than_setup_prints() {
    required_or_skip!();
    let server_config = Scratch::new("{}");
    let mut server = NatsServer::start_with(&["--config", server_config.path()]).await;
    let config = format!(
        r#"
        [buses.main]
        kind = "nats"
        url = "{}"
        setup.topics = [{{ name = "EVENTS", types = ["events.*"] }}]
        setup.consumers = [{{ name = "balances", topic = "EVENTS" }}]
        "#,
        server.url()
    );
    let done = set_up(&Scratch::new(&config), &[]).await;
    let told = [event("a", 1), garbage("b"), event("a", 2)].map(|event| event.body);
    let publish = "\
import asyncio, nats, sys
async def main():
    connection = await nats.connect(sys.argv[1])
    for body in sys.argv[2:]:
        await connection.jetstream().publish('events.transfers', body.encode())
    await connection.close()
asyncio.run(main())";
    python(publish, &[&server.url(), &told[0], &told[1], &told[2]]).await;
    // From now on whoever connects is the consumer.
    let user = json!({ "user": "balances", "password": "x", "permissions": policy(&done, "consumer balances") });
    let text = json!({ "authorization": { "users": [user] }, "no_auth_user": "balances" });
    std::fs::write(server_config.path(), text.to_string()).unwrap();
    server.restart().await;
    let refused = "\
import asyncio, nats, sys
async def main():
    said = []
    async def failed(error):
        said.append(str(error))
    connection = await nats.connect(sys.argv[1], error_cb=failed)
    try:
        await connection.jetstream(timeout=1).stream_info('EVENTS')
    except Exception:
        pass
    print(' '.join(said))
    await connection.close()
asyncio.run(main())";
    let said = python(refused, &[&server.url()]).await.to_lowercase();
    assert!(said.contains("permissions violation"), "nothing is enforced: {said}");

    let program = Program::default();
    *program.answers.lock().unwrap() = vec![(500, None)];
    let to = program.start().await;
    let consuming = started(consume_nats(&server.url(), "EVENTS", &to)).await;
    does_all_of_it(consuming, &program).await;
}

#[tokio::test]
async fn consume_needs_no_more_of_sqs_than_setup_prints() {
    required_or_skip!();
    let moto = Moto::start().await;
    let config = format!(
        r#"
        [buses.main]
        kind = "sns"
        region = "{}"
        endpoint_url = "{}"
        account_id = "{}"
        setup.topics = [{{ name = "transfers.fifo" }}]
        setup.consumers = [{{ name = "balances", topic = "transfers.fifo" }}]
        "#,
        Moto::REGION,
        moto.url(),
        Moto::ACCOUNT
    );
    let done = set_up(&Scratch::new(&config), &[]).await;
    let allowed: &Value = policy(&done, "consumer balances");
    moto.enforce("consumer", allowed);
    let told = [event("a", 1), garbage("b"), event("a", 2)];
    for event in &told {
        let script = "\
import uuid
url = sqs.get_queue_url(QueueName='balances.fifo')['QueueUrl']
sqs.send_message(QueueUrl=url, MessageBody=sys.argv[1], MessageGroupId=sys.argv[2], MessageDeduplicationId=str(uuid.uuid4()))";
        moto.boto(script, &[&event.body, &event.key]).await;
    }
    let refused = "\
consumer = boto3.client('sqs', **(common | dict(aws_access_key_id='consumer')))
url = sqs.get_queue_url(QueueName='balances-dead.fifo')['QueueUrl']
for call in (lambda: consumer.receive_message(QueueUrl=url), lambda: consumer.list_queues()):
    try:
        call()
        print('allowed')
    except Exception as error:
        print(error.response['Error']['Code'])";
    assert_eq!(moto.boto(refused, &[]).await.trim(), "AccessDenied\nAccessDenied");

    let program = Program::default();
    *program.answers.lock().unwrap() = vec![(500, None)];
    let to = program.start().await;
    let queue = format!("{}/{}/balances.fifo", moto.url(), Moto::ACCOUNT);
    let mut command = consume_sqs(&moto.url(), &queue, &to);
    command.env("AWS_ACCESS_KEY_ID", "consumer").env("SYMPHONY__CONSUMER__VISIBILITY_SECONDS", "1");
    does_all_of_it(started(command).await, &program).await;
}
