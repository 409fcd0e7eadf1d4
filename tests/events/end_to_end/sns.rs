//! SNS FIFO and two SQS FIFO queues, on moto: one read by our consumer, one by boto3.

use std::sync::Arc;
use std::time::Duration;

use symphony::consumer::Source;
use symphony_connect::sources::sqs::{SqsSettings, SqsSource};

use super::dispatchers::{Dispatchers, WORKER, set_up_bus};
use super::stage::Stage;
use super::{effects, faults, story};
use crate::connect::buses::sns::aws;
use crate::support::brokers::{Moto, python, required_or_skip};

const LIMIT: Duration = Duration::from_secs(10);

fn config(port: u16) -> String {
    format!(
        r#"
        [buses.main]
        kind = "sns"
        region = "{}"
        account_id = "{}"
        endpoint_url = "http://127.0.0.1:{port}"
        timeout_ms = 3_000
        connect_timeout_ms = 1_000
        concurrency_max = 2
        setup.topics = [{{ name = "transfers.fifo" }}]
        [[buses.main.setup.consumers]]
        name = "ledger"
        topic = "transfers.fifo"
        receives_max = 1_000
        [[buses.main.setup.consumers]]
        name = "audit"
        topic = "transfers.fifo"
        {}"#,
        Moto::REGION,
        Moto::ACCOUNT,
        WORKER.replace("TOPIC", "transfers.fifo")
    )
}

async fn prove(keys: usize) {
    let moto = Moto::start().await;
    let stage = Stage::new("sns", keys).await;
    let config = stage.write("symphony.toml", &config(faults::proxy(&stage, moto.port).await));
    set_up_bus(&config).await;
    let queue = moto.boto("print(sqs.get_queue_url(QueueName='ledger.fifo')['QueueUrl'])", &[]);
    let queue = queue.await.trim().to_owned();
    let open = async || {
        let settings = SqsSettings {
            visibility: Duration::from_secs(5),
            wait: Duration::from_secs(1),
            ..SqsSettings::new(&queue)
        };
        let source = SqsSource::open(aws(&moto).sqs(LIMIT, LIMIT), settings).await.unwrap();
        Arc::new(source) as Arc<dyn Source>
    };
    let script = concat!(include_str!("judge.py"), include_str!("sqs_client.py"));
    let (expected, finished) = (stage.expected(), stage.finished());
    let url = moto.url();
    let arguments =
        [&url, Moto::REGION, "audit.fifo", expected.to_str().unwrap(), finished.to_str().unwrap()];

    let mut dispatchers = Dispatchers::start(&stage, &config);
    let ((), (), ghosts, verdict) = tokio::join!(
        async {
            dispatchers.die_in_the_middle().await;
            dispatchers.leave().await;
        },
        effects::consume(&stage, open),
        story::produce(stage.clone()),
        python(script, &arguments),
    );
    stage.hear(&verdict);
    for fault in ["refused", "throttled", "cut before", "cut after", "one "] {
        assert!(stage.tally.sum(fault) > 0, "no call was {fault}");
    }
    stage.judge(&ghosts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_event_over_sns_is_applied_once_and_in_order_while_everything_fails() {
    required_or_skip!();
    prove(200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "minutes: scripts/test --long"]
async fn ten_thousand_events_over_sns_are_applied_once_and_in_order_while_everything_fails() {
    required_or_skip!();
    prove(1_000).await;
}
