//! `symphony consume` as a process, and a program behind it.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::http::HeaderMap;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::task::AbortHandle;

use super::ground::Broker;
use crate::support::brokers::Moto;
use crate::support::processes::{Signal, signal};
use crate::support::until;

/// A program that notes every post and answers as it is told.
#[derive(Clone, Default)]
pub struct Program {
    pub posts: Arc<Mutex<Vec<Post>>>,
    /// Answers to come, the last one first, with their Retry-After; then 204.
    pub answers: Arc<Mutex<Vec<Answer>>>,
    /// Always 500 to the event with this number.
    pub fails: Option<u64>,
    pub serving: Arc<Mutex<Option<AbortHandle>>>,
}

/// A status, and the seconds of a Retry-After.
pub type Answer = (u16, Option<u64>);

/// One event as it was posted.
pub struct Post {
    pub at: Instant,
    pub headers: HeaderMap,
    pub body: serde_json::Value,
}

impl Program {
    /// On a free port.
    pub async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/events", listener.local_addr().unwrap());
        self.serve(listener);
        url
    }

    /// Nobody listens any more.
    pub fn stop(&self) {
        self.serving.lock().unwrap().take().expect("it runs").abort();
    }

    /// On the port it had before.
    pub async fn start_again(&self, url: &str) {
        let address = url.trim_start_matches("http://").trim_end_matches("/events");
        self.serve(TcpListener::bind(address).await.unwrap());
    }

    fn serve(&self, listener: TcpListener) {
        let program = self.clone();
        let handle = move |headers: HeaderMap, body: String| {
            let program = program.clone();
            async move { program.answer(headers, &body) }
        };
        let router = axum::Router::new().route("/events", axum::routing::post(handle));
        let task = tokio::spawn(async move { axum::serve(listener, router).await });
        *self.serving.lock().unwrap() = Some(task.abort_handle());
    }

    fn answer(&self, headers: HeaderMap, body: &str) -> axum::response::Response {
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let number = body["payload"]["number"].as_u64();
        self.posts.lock().unwrap().push(Post { at: Instant::now(), headers, body });
        let told = self.answers.lock().unwrap().pop();
        let failing = self.fails.is_some() && self.fails == number;
        let (status, retry_after) = told.unwrap_or((if failing { 500 } else { 204 }, None));
        let answer = axum::response::Response::builder().status(status);
        let answer = match retry_after {
            Some(seconds) => answer.header("retry-after", seconds),
            None => answer,
        };
        answer.body(axum::body::Body::empty()).unwrap()
    }

    /// The numbers of all events posted, in order.
    pub fn numbers(&self) -> Vec<u64> {
        let posts = self.posts.lock().unwrap();
        posts.iter().map(|post| post.body["payload"]["number"].as_u64().unwrap()).collect()
    }

    pub fn header(&self, post: usize, name: &str) -> String {
        let posts = self.posts.lock().unwrap();
        let value = posts[post].headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        value.unwrap_or_default()
    }
}

/// `symphony consume` of a broker's queue.
pub fn consume(broker: &Broker, to: &str, arguments: &[&str]) -> Command {
    let mut command = match broker {
        Broker::Sqs { moto, queue, dead, .. } => {
            let mut command = consume_sqs(&moto.url(), queue, to);
            command.args(["--dead-letter", dead]);
            command
        }
        Broker::Nats { server, .. } => {
            let mut command = consume_nats(&server.url(), "EVENTS", to);
            command.args(["--dead-letter", "dead.events"]);
            command
        }
    };
    command.args(arguments);
    command
}

pub fn consume_sqs(endpoint: &str, queue: &str, to: &str) -> Command {
    let mut command = consume_from(&format!("sqs:{queue}"), to);
    command
        .args(["--region", Moto::REGION, "--endpoint-url", endpoint])
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test");
    command
}

pub fn consume_nats(url: &str, stream: &str, to: &str) -> Command {
    let mut command = consume_from(&format!("nats:{stream}"), to);
    command.args(["--nats-url", url]);
    command
}

#[cfg(feature = "kafka")]
pub fn consume_kafka(servers: &str, topic: &str, to: &str) -> Command {
    let mut command = consume_from(&format!("kafka:{topic}"), to);
    command.args(["--kafka-servers", servers]);
    command
}

fn consume_from(from: &str, to: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_symphony"));
    command
        .args(["consume", "--consumer", "balances", "--to", to, "--from", from])
        .args(["--json", "--api", "127.0.0.1:0"])
        .env("SYMPHONY__CONSUMER__RETRY_DELAY_MS", "0")
        .env("SYMPHONY__CONSUMER__RECEIVES_MAX", "3")
        .env("SYMPHONY__CONSUMER__VISIBILITY_SECONDS", "3")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// A consumer at work.
pub struct Consuming {
    pub child: Child,
    /// Where its figures are.
    pub address: String,
    /// All it has said since, one line of JSON each.
    pub log: Arc<Mutex<String>>,
}

/// Until it works.
pub async fn started(mut command: Command) -> Consuming {
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    loop {
        let line = lines.next_line().await.unwrap().expect("it ended before it worked");
        let line: serde_json::Value = serde_json::from_str(&line).expect("JSON logs");
        if line["message"] != "consuming" {
            continue;
        }
        let log = Arc::new(Mutex::new(String::new()));
        let kept = log.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let mut kept = kept.lock().unwrap();
                kept.push_str(&line);
                kept.push('\n');
            }
        });
        return Consuming { child, address: line["address"].as_str().unwrap().to_owned(), log };
    }
}

pub async fn figures(address: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// The value of a figure without further labels, if it is there.
pub async fn figure(address: &str, name: &str) -> Option<u64> {
    let page = figures(address).await;
    let line = page.lines().find(|line| line.starts_with(&format!("{name}{{")))?;
    Some(line.rsplit(' ').next().unwrap().parse().unwrap())
}

pub async fn figure_is(address: &str, line: &str) {
    until(line, async || figures(address).await.lines().any(|found| found == line)).await;
}

pub async fn terminate(child: &mut Child) -> std::process::ExitStatus {
    signal(child.id().unwrap(), Signal::TERM);
    child.wait().await.unwrap()
}
