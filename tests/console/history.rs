//! The overview's charts: what led to what is seen, of every process, whether or not anybody looked; and how the stream ends.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use symphony::db::Database;
use symphony_connect::buses::conformance::Condition;
use symphony_server::api::Api;
use symphony_server::config::ApiSection;
use symphony_server::http_server::HttpServerSettings;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Answer, Browser};
use crate::api::Served;
use crate::support::valve::Valve;
use crate::support::{payment, server, until};

/// What a page of ours is told first, once its stream has ended.
fn history(answer: &Answer) -> Value {
    let (_, rest) = answer.body.split_once("event: history\ndata: ").expect(&answer.body);
    serde_json::from_str(rest.lines().next().unwrap()).unwrap()
}

/// The stream from its start to the end of its token.
async fn watched(served: &Served) -> Answer {
    let made = served.token_command("create --name a --person eve --scope read").await;
    let browser = Browser::with(served, made["token"].as_str().unwrap()).await;
    let revoke = format!("revoke {} --reason over", made["token_id"].as_str().unwrap());
    let revoked = async {
        until_counted_again(served).await;
        served.token_command(&revoke).await
    };
    let (answer, _) = tokio::join!(browser.get("/console/live"), revoked);
    answer
}

/// Whoever watches has been told what there is by now.
pub async fn until_counted_again(served: &Served) {
    let counted =
        async || served.db.one::<i64>("SELECT counted_times FROM outbox_shared_figures").await;
    let before = counted().await;
    until("the lanes are counted twice", async || counted().await >= before + 2).await;
}

#[tokio::test]
async fn whoever_opens_the_overview_sees_what_was_before_they_came() {
    let served = Served::new().await;
    served.db.enqueue_stream("acme", "ach", 3).await;
    until("nobody looks, and it is counted all the same", async || {
        served.db.one::<i64>("SELECT counted_times FROM outbox_shared_figures").await >= 3
    })
    .await;
    let told = history(&watched(&served).await);
    let samples = told["samples"].as_array().unwrap();
    assert!(samples.len() >= 2, "{told}");
    let last = &samples.last().unwrap()["lanes"][0];
    assert_eq!((&last["lane"], &last["pending"]), (&"payments".into(), &3.into()), "{told}");
    assert!(told["samples_max"].as_u64().unwrap() >= 360, "half an hour of them: {told}");
    assert_eq!(told["seconds"], 1_800);
}

#[tokio::test]
async fn outcomes_are_of_all_processes_and_a_worker_counts_once() {
    let served = Served::new().await;
    served
        .db
        .sql(
            "INSERT INTO outbox_destinations (worker_id, lane, name, breaker, troubles, calls, latency_ms, window_ms, reported_at, dispatched, \
                    retryable, failed) \
             SELECT w, 'payments', n, 'CLOSED', 0, 10, 30, 3000, now() + INTERVAL '1 hour', 20, 5, 1 \
               FROM unnest(ARRAY['elsewhere-1', 'elsewhere-2']) w, unnest(ARRAY['ach', 'sepa']) n",
        )
        .await;
    let answer = watched(&served).await;
    let expected = "\"calls_per_minute\":800,\"latency_ms\":30,\"breakers_open\":0,\"dispatched_per_minute\":800,\
                    \"retryable_per_minute\":200,\"failed_per_minute\":40";
    assert!(answer.body.contains(expected), "{}", answer.body);
}

#[tokio::test]
async fn two_processes_share_one_question_to_the_database() {
    let served = Served::new().await;
    let other = beside(&served).await;
    served.db.enqueue(&payment("inv-1", "acme", "ach")).await;
    let token = served.token("eve", "read").await;
    let before: i64 = served.db.one("SELECT counted_times FROM outbox_shared_figures").await;
    let began = std::time::Instant::now();
    let mut asked = 0;
    for address in [served.api.address(), other.address(), served.api.address(), other.address()] {
        let text = format!(
            "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        );
        let answer = crate::api::raw(address, text.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        asked += 1;
    }
    let counted: i64 = served.db.one("SELECT counted_times FROM outbox_shared_figures").await;
    // One for each two seconds that this took, and one more.
    let most = i64::try_from(began.elapsed().as_secs() / 2).unwrap() + 1;
    assert!(counted - before <= most, "{asked} questions, {} counts", counted - before);
    other.stop();
}

/// Another process over the same database.
pub async fn beside(served: &Served) -> Api {
    let database: Database = served.db.database.clone();
    let section = ApiSection::at("127.0.0.1:0");
    Api::start(&section, database, Vec::new(), HttpServerSettings::default()).await.unwrap()
}

#[tokio::test]
async fn the_stream_ends_when_whoever_watches_signs_out() {
    let served = Arc::new(Served::new().await);
    let browser = Browser::of(&served, "kim", "read").await;
    let (stream, out) =
        tokio::join!(browser.get("/console/live"), browser.post("/console/sign-out", &[]));
    assert_eq!(out.status, 303);
    // `get` reads to the end, so that it came to one.
    assert!(stream.status == 401 || stream.body.contains("event: history"), "{}", stream.body);
    let token = served.token("kim", "read").await;
    assert_eq!(
        served.ask(&token, "GET /v1/status", &Value::Null).await.0,
        200,
        "the token is good"
    );
}

/// A stream that is read as it comes.
struct Stream {
    stream: TcpStream,
    told: String,
}

impl Stream {
    async fn of(browser: &Browser<'_>) -> Self {
        let mut stream = TcpStream::connect(browser.served.api.address()).await.unwrap();
        let cookie = &browser.cookie;
        let text =
            format!("GET /console/live HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
        Self { stream, told: String::new() }
    }

    /// Whatever comes until these words do; what came is forgotten.
    async fn tells(&mut self, words: &str) -> String {
        let mut part = vec![0_u8; 65_536];
        while !self.told.contains(words) {
            let read = tokio::time::timeout(Duration::from_mins(1), self.stream.read(&mut part));
            let bytes = read.await.unwrap_or_else(|_| panic!("no {words}: {}", self.told)).unwrap();
            assert!(bytes > 0, "it ended without {words}: {}", self.told);
            self.told.push_str(&String::from_utf8_lossy(&part[..bytes]));
        }
        std::mem::take(&mut self.told)
    }
}

#[tokio::test]
async fn the_stream_says_that_the_database_is_away_and_goes_on_when_it_is_back() {
    let valve = Valve::before(server().await.get_port()).await;
    let served = Served::through(&valve).await;
    let browser = Browser::of(&served, "kim", "read").await;
    let mut watched = Stream::of(&browser).await;
    let head = watched.tells("event: history").await.to_lowercase();
    assert!(head.contains("x-accel-buffering: no"), "{head}");
    valve.make(Condition::Down).await;
    watched.tells("event: away").await;
    // Whoever comes now is told so by a stream, too, and not that the session is over.
    let mut late = Stream::of(&browser).await;
    let told = late.tells("event: away").await;
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
    valve.make(Condition::Well).await;
    late.tells("event: history").await;
    watched.tells("data: {\"at\"").await;
}

#[tokio::test]
async fn the_stream_of_a_revoked_token_ends_and_is_not_opened_again() {
    let served = Served::new().await;
    let made = served.token_command("create --name a --person eve --scope read").await;
    let browser = Browser::with(&served, made["token"].as_str().unwrap()).await;
    let revoke = format!("revoke {} --reason over", made["token_id"].as_str().unwrap());
    let revoked = async {
        until_counted_again(&served).await;
        served.token_command(&revoke).await
    };
    // `get` reads to the end, so that it came to one.
    let (stream, _) = tokio::join!(browser.get("/console/live"), revoked);
    assert_eq!(stream.status, 200);
    assert_eq!(browser.get("/console/live").await.status, 401, "a page then says: sign in again");
}
