//! `symphony consume` as a process, with real brokers and programs of this machine behind it.

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use axum::http::{HeaderMap, StatusCode};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};

use super::ground::{Broker, event, garbage};
use crate::support::brokers::required_or_skip;
use crate::support::processes::{Signal, python_or_skip, signal};
use crate::support::{TestDb, until};

/// A program that notes every post and answers as it is told.
#[derive(Clone, Default)]
struct Program {
    posts: Arc<Mutex<Vec<(HeaderMap, serde_json::Value)>>>,
    /// Answers to come; then 204.
    answers: Arc<Mutex<Vec<u16>>>,
}

impl Program {
    async fn start(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/events", listener.local_addr().unwrap());
        let program = self.clone();
        let handle = move |headers: HeaderMap, body: String| {
            let program = program.clone();
            async move {
                let body = serde_json::from_str(&body).unwrap();
                program.posts.lock().unwrap().push((headers, body));
                let answer = program.answers.lock().unwrap().pop().unwrap_or(204);
                StatusCode::from_u16(answer).unwrap()
            }
        };
        let router = axum::Router::new().route("/events", axum::routing::post(handle));
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    fn numbers(&self) -> Vec<u64> {
        let posts = self.posts.lock().unwrap();
        posts.iter().map(|(_, body)| body["payload"]["number"].as_u64().unwrap()).collect()
    }

    fn header(&self, post: usize, name: &str) -> String {
        let posts = self.posts.lock().unwrap();
        posts[post].0.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
    }
}

fn consume(broker: &Broker, to: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_symphony"));
    command.args([
        "consume",
        "--consumer",
        "balances",
        "--to",
        to,
        "--json",
        "--api",
        "127.0.0.1:0",
    ]);
    match broker {
        Broker::Sqs { moto, queue, dead, .. } => {
            command
                .arg("--from")
                .arg(format!("sqs:{queue}"))
                .args([
                    "--dead-letter",
                    dead,
                    "--region",
                    "eu-central-1",
                    "--endpoint-url",
                    &moto.url(),
                ])
                .env("AWS_ACCESS_KEY_ID", "test")
                .env("AWS_SECRET_ACCESS_KEY", "test");
        }
        Broker::Nats { server, .. } => {
            command
                .args(["--from", "nats:EVENTS", "--dead-letter", "dead.events"])
                .args(["--nats-url", &server.url()]);
        }
    }
    command
        .args(arguments)
        .env("SYMPHONY__CONSUMER__RETRY_DELAY_MS", "0")
        .env("SYMPHONY__CONSUMER__RECEIVES_MAX", "3")
        .env("SYMPHONY__CONSUMER__VISIBILITY_SECONDS", "3")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Until it works; answers the address of its figures.
async fn started(mut command: Command) -> (Child, String) {
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    loop {
        let line = lines.next_line().await.unwrap().expect("it ended before it worked");
        let line: serde_json::Value = serde_json::from_str(&line).expect("JSON logs");
        if line["message"] == "consuming" {
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return (child, line["address"].as_str().unwrap().to_owned());
        }
    }
}

async fn figures(address: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn figure_is(address: &str, line: &str) {
    until(line, async || figures(address).await.lines().any(|found| found == line)).await;
}

async fn terminate(child: &mut Child) -> std::process::ExitStatus {
    signal(child.id().unwrap(), Signal::TERM);
    child.wait().await.unwrap()
}

#[tokio::test]
async fn events_are_posted_in_order_with_their_headers_and_again_until_a_2xx() {
    required_or_skip!();
    for broker in Broker::each().await {
        let program = Program::default();
        *program.answers.lock().unwrap() = vec![204, 503];
        let to = program.start().await;
        broker.publish(&[&event("a", 1), &event("a", 2), &garbage("z")]).await;
        let (mut child, address) = started(consume(&broker, &to, &[])).await;
        figure_is(&address, r#"event_consumer_applied_total{consumer="balances"} 2"#).await;
        figure_is(&address, r#"dead_letter_count{consumer="balances",reason="POISON"} 1"#).await;
        figure_is(&address, r#"event_consumer_failed_tries_total{consumer="balances"} 1"#).await;
        figure_is(&address, r#"event_consumer_held{consumer="balances"} 0"#).await;
        assert!(terminate(&mut child).await.success());
        assert_eq!(program.numbers(), [1, 1, 2], "{}", broker.name());
        let id = program.posts.lock().unwrap()[0].1["envelope"]["eventId"].clone();
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
    let (mut child, address) = started(consume(&broker, &to, &arguments)).await;
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
    let (mut child, address) = started(consume(&broker, &to, &[])).await;
    until("it was received more often than it may be tried", async || {
        let page = figures(&address).await;
        let line = page.lines().find(|line| line.starts_with("event_consumer_received_total{"));
        line.unwrap().rsplit(' ').next().unwrap().parse::<u64>().unwrap() > 3
    })
    .await;
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
    let (mut child, address) = started(consume(&broker, &to, &[])).await;
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
        (vec!["--from", "nats:EVENTS", "--to", here], "--dead-letter is missing"),
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
