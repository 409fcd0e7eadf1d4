//! `symphony consume` as a process, with real brokers and programs of this machine behind it.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::ground::{Broker, event, garbage};
use super::program::{Consuming, Program, consume, figure, figure_is, figures, started, terminate};
use crate::support::brokers::required_or_skip;
use crate::support::processes::python_or_skip;
use crate::support::{TestDb, until};

#[tokio::test]
async fn events_are_posted_in_order_with_their_headers_and_again_until_a_2xx() {
    required_or_skip!();
    for broker in Broker::each().await {
        let program = Program::default();
        *program.answers.lock().unwrap() = vec![(204, None), (500, None)];
        let to = program.start().await;
        broker.publish(&[&event("a", 1), &event("a", 2), &garbage("z")]).await;
        let Consuming { mut child, address, .. } = started(consume(&broker, &to, &[])).await;
        figure_is(&address, r#"event_consumer_applied_total{consumer="balances"} 2"#).await;
        figure_is(&address, r#"dead_letter_count{consumer="balances",reason="POISON"} 1"#).await;
        figure_is(&address, r#"event_consumer_failed_tries_total{consumer="balances"} 1"#).await;
        figure_is(&address, r#"event_consumer_held{consumer="balances"} 0"#).await;
        assert!(terminate(&mut child).await.success());
        assert_eq!(program.numbers(), [1, 1, 2], "{}", broker.name());
        let id = program.posts.lock().unwrap()[0].body["envelope"]["eventId"].clone();
        assert_eq!(program.header(0, "symphony-event-id"), id.as_str().unwrap());
        assert_eq!(program.header(0, "symphony-event-type"), "events.transfers.submitted.usdc");
        assert_eq!(program.header(0, "symphony-key"), "a");
        assert_eq!(program.header(0, "symphony-position"), "1");
        assert_eq!(program.header(0, "symphony-delivery-count"), "1");
        assert_eq!(program.header(1, "symphony-delivery-count"), "2");
    }
}

#[tokio::test]
async fn with_an_inbox_what_was_answered_is_not_posted_again() {
    use sqlx::ConnectOptions as _;
    required_or_skip!();
    let db = TestDb::new().await;
    let broker = Broker::nats().await;
    let program = Program::default();
    let to = program.start().await;
    let (first, second) = (event("a", 1), event("b", 2));
    broker.publish(&[&first, &first, &second, &first]).await;
    let url = db.options.to_url_lossy();
    let arguments = ["--inbox", "--database-url", url.as_str()];
    let Consuming { mut child, address, .. } = started(consume(&broker, &to, &arguments)).await;
    figure_is(&address, r#"event_consumer_duplicates_total{consumer="balances"} 2"#).await;
    assert!(terminate(&mut child).await.success());
    assert_eq!(program.posts.lock().unwrap().len(), 2);
    assert_eq!(db.count("event_inbox WHERE consumer = 'balances'").await, 2);
}

#[tokio::test]
async fn while_the_program_does_not_listen_nothing_is_dead_lettered() {
    required_or_skip!();
    let broker = Broker::nats().await;
    broker.publish(&[&event("a", 1)]).await;
    // A port that was free a moment ago.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address_of_program = listener.local_addr().unwrap();
    drop(listener);
    let to = format!("http://{address_of_program}/events");
    let Consuming { mut child, address, .. } = started(consume(&broker, &to, &[])).await;
    until("it was tried more often than it may fail", async || {
        figure(&address, "event_consumer_handler_latency_ms_count").await > Some(4)
    })
    .await;
    assert_eq!(
        figure(&address, "event_consumer_received_total").await,
        Some(1),
        "it stays in hand"
    );
    assert_eq!(figure(&address, "event_consumer_away").await, Some(1));
    let page = figures(&address).await;
    assert!(
        page.contains(r#"dead_letter_count{consumer="balances",reason="RECEIVES_EXHAUSTED"} 0"#)
    );
    assert!(terminate(&mut child).await.success());
}

#[tokio::test]
async fn the_python_example_keeps_its_balances_whatever_is_repeated() {
    required_or_skip!();
    python_or_skip!();
    let broker = Broker::sqs().await;
    let database = std::env::temp_dir().join(format!("balances-{}.db", uuid::Uuid::new_v4()));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/consumer.py");
    let mut program = Command::new("python3")
        .arg(script)
        .args(["--listen", "127.0.0.1:0", "--database", database.to_str().unwrap()])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let first_line = lines.next_line().await.unwrap().unwrap();
    let to = format!("http://{}/events", first_line.strip_prefix("listening on ").unwrap());
    let (ten, five, three) = (event("acme", 10), event("acme", 5), event("bolt", 3));
    broker.publish(&[&ten, &ten, &five, &three, &ten, &three]).await;
    let Consuming { mut child, address, .. } = started(consume(&broker, &to, &[])).await;
    figure_is(&address, r#"event_consumer_applied_total{consumer="balances"} 6"#).await;
    assert!(terminate(&mut child).await.success());
    let read = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT * FROM balances ORDER BY account').fetchall())";
    let output = Command::new("python3").args(["-c", read]).arg(&database).output().await.unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "[('acme', 15), ('bolt', 3)]");
    std::fs::remove_file(database).unwrap();
}

#[tokio::test]
async fn what_cannot_be_consumed_is_refused_in_one_line() {
    required_or_skip!();
    let broker = Broker::nats().await;
    let Broker::Nats { server, .. } = &broker else { unreachable!() };
    let url = server.url();
    let here = "http://127.0.0.1:1/";
    for (arguments, expected) in [
        (vec!["--from", "nats:EVENTS", "--to", "http://example.com/"], "on this machine"),
        (
            vec!["--from", "nats:NONE", "--to", here, "--dead-letter", "dead.x"],
            "cannot find the stream",
        ),
        (
            vec!["--from", "nats:EVENTS", "--to", here, "--dead-letter", "nowhere"],
            "no stream keeps",
        ),
        (
            vec!["--from", "nats:EVENTS", "--to", here, "--dead-letter", "events.dead"],
            "its own dead letters",
        ),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_symphony"))
            .args(["consume", "--consumer", "balances", "--nats-url", &url])
            .args(&arguments)
            .output()
            .await
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(said.contains(expected) && said.trim().lines().count() == 1, "{said}");
    }
}
