//! The `http` executor against a real server.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use symphony::lanes::triggers::executor::{
    Departure, Execution, Executor as _, Request, RunOutcome, Slot, UnstoredHeaders,
};
use uuid::Uuid;

use super::HttpExecutor;
use crate::executors::test_server::TestServer;
use crate::executors::{FetchSettings, Fetcher, OutputLimits};

fn executor(allow_private_addresses: bool) -> HttpExecutor {
    let settings = FetchSettings { allow_private_addresses, ..FetchSettings::default() };
    let fetcher = Arc::new(Fetcher::new(&settings).unwrap());
    HttpExecutor::new(fetcher, OutputLimits::default()).unwrap()
}

fn request(url: &str) -> Request {
    Request {
        execution_id: Uuid::from_u128(3),
        app_id: Uuid::from_u128(1),
        app: "shop".to_owned(),
        script: "order".to_owned(),
        source: "".into(),
        file: "script.js".into(),
        modules: std::sync::Arc::default(),
        url: Some(url.to_owned()),
        source_kind: "kv".to_owned(),
        payload: RawValue::from_string(r#"{"n":1.10}"#.to_owned()).unwrap().into(),
        unstored_headers: UnstoredHeaders::default(),
        origin_principal: None,
        principal: None,
        depth: 0,
        root_execution_id: Uuid::from_u128(3),
        attempt: 2,
        timeout: Duration::from_secs(10),
        slot: Slot::default(),
        departure: Departure::default(),
        traceparent: None,
    }
}

fn in_words(execution: &Execution) -> String {
    match &execution.outcome {
        RunOutcome::Value(value) => value.get().to_owned(),
        RunOutcome::Failed { code, message, retryable } => {
            assert!(execution.effects.is_empty());
            format!("{code}{} {message}", if *retryable { "" } else { "!" })
        }
        RunOutcome::Away { code, message } => format!("{code}~ {message}"),
        RunOutcome::TimedOut => "TimedOut".to_owned(),
    }
}

async fn answered(status: u16, body: &str) -> Execution {
    let server = TestServer::answering(status, body).await;
    executor(true).run(&request(&server.url)).await
}

#[tokio::test]
async fn the_request_is_posted_as_json_with_its_payload_byte_for_byte() {
    let server = TestServer::answering(200, "1").await;
    let url = format!("{}/run?x=1", server.url);
    assert_eq!(in_words(&executor(true).run(&request(&url)).await), "1");
    let asked = server.asked().remove(0);
    assert!(asked.starts_with("POST /run?x=1 HTTP/1.1\r\n"), "{asked}");
    assert!(asked.to_lowercase().contains("content-type: application/json\r\n"), "{asked}");
    let (_, body) = asked.split_once("\r\n\r\n").unwrap();
    assert!(body.contains(r#""payload":{"n":1.10}"#) && body.contains(r#""attempt":2"#), "{body}");
}

#[tokio::test]
async fn any_json_is_a_value() {
    for (body, value) in [
        ("", "null"),
        ("null", "null"),
        ("[1.10]", "[1.10]"),
        (r#""text""#, r#""text""#),
        (r#"{"status":200,"body":"x"}"#, r#"{"status":200,"body":"x"}"#),
        (r#"{"value":{"a":1}}"#, r#"{"a":1}"#),
        (r#"{"value":null,"logs":[],"effects":[]}"#, "null"),
        // Not the envelope: it has more to it.
        (r#"{"value":1,"more":2}"#, r#"{"value":1,"more":2}"#),
    ] {
        assert_eq!(in_words(&answered(200, body).await), value, "{body}");
    }
    assert_eq!(in_words(&answered(204, "").await), "null");
}

#[tokio::test]
async fn effects_and_logs_are_taken_in_the_words_they_are_written_in() {
    let effects = concat!(
        r#"[{"kind":"kv_set","key":"k","value":null},{"kind":"kv_delete","key":"k"},"#,
        r#"{"kind":"queue_send","queue":"q","message":{"n":1.10}},{"kind":"pubsub_publish","topic":"t","message":1},"#,
        r#"{"kind":"event_publish","event":{}},{"kind":"email_send","message":{"to":"a@b"}}]"#
    );
    let logs =
        r#"[{"level":"warn","at_ms":5,"message":"m"},{"level":"odd","at_ms":6,"message":"o"}]"#;
    let execution =
        answered(200, &format!(r#"{{"value":1,"logs":{logs},"effects":{effects}}}"#)).await;
    assert_eq!(in_words(&execution), "1");
    assert_eq!(serde_json::to_string(&execution.effects).unwrap(), effects);
    assert_eq!(serde_json::to_string(&execution.logs).unwrap(), logs.replace("odd", "info"));
}

#[tokio::test]
async fn a_bad_effect_fails_the_run_by_its_place() {
    for (effect, problem) in [
        (r#"{"kind":"kv_set","key":"k"}"#, "effects[1] lacks value"),
        (r#"{"kind":"kv_set","value":1}"#, "effects[1] lacks key"),
        (r#"{"kind":"rm_rf"}"#, "effects[1] has a kind that there is not"),
        (r#"{"kind":"kv_delete","key":"k","queue":"q"}"#, "effects[1] must not have queue"),
        (r#"{"kind":"kv_set","key":"k","value":"\u0000"}"#, "effects[1] value must be JSON"),
        (
            r#"{"kind":"queue_send","queue":"a\u0000","message":1}"#,
            "effects[1] queue must not have a NUL",
        ),
        (
            r#"{"kind":"queue_send","queue":"a","message":1,"key":"k\u0000"}"#,
            "effects[1] key must not have a NUL",
        ),
    ] {
        let body =
            format!(r#"{{"value":1,"effects":[{{"kind":"kv_delete","key":"k"}},{effect}]}}"#);
        let told = in_words(&answered(200, &body).await);
        assert!(told.starts_with(&format!("BAD_RESPONSE! {problem}")), "{effect}: {told}");
    }
}

#[tokio::test]
async fn statuses_say_whether_to_try_again() {
    // Not at all, again, or again without counting it.
    for (status, mark) in [
        (301, "!"),
        (400, "!"),
        (401, "!"),
        (404, "!"),
        (408, ""),
        (409, "!"),
        (429, "~"),
        (500, ""),
        (503, "~"),
        (599, ""),
    ] {
        let told = in_words(&answered(status, r#"{"value":1}"#).await);
        assert_eq!(told, format!("HTTP_STATUS{mark} the URL answered with status {status}"));
    }
}

#[tokio::test]
async fn what_is_too_large_or_no_json_fails_for_good() {
    let large = serde_json::to_string(&"x".repeat(300_000)).unwrap();
    let effect = r#"{"kind":"kv_delete","key":"k"}"#;
    let many = format!(r#"{{"value":1,"effects":[{}]}}"#, vec![effect; 1_001].join(","));
    for (body, told) in [
        (large.as_str(), "OUTPUT_LIMIT! the value is larger than 262144 bytes"),
        (many.as_str(), "OUTPUT_LIMIT! more than 1000 effects in one run"),
        (r#"{"value":1,"effects":"none"}"#, "BAD_RESPONSE! logs and effects must be lists"),
        ("<html>", "BAD_RESPONSE! the answer is not JSON"),
        (r#""\ud800""#, "BAD_RESPONSE! the value must be JSON"),
        (&"x".repeat(2 << 20), "BAD_RESPONSE! the answer is larger than response_bytes_max"),
    ] {
        let answer = in_words(&answered(200, body).await);
        assert!(answer.starts_with(told), "{answer}");
    }
}

#[tokio::test]
async fn a_url_that_does_not_answer_times_out_and_one_that_is_not_there_can_be_tried_again() {
    let server = TestServer::start("").await;
    let mut slow = request(&server.url);
    slow.timeout = Duration::from_millis(100);
    assert_eq!(in_words(&executor(true).run(&slow).await), "TimedOut");
    let told = in_words(&executor(true).run(&request("http://127.0.0.1:1/")).await);
    assert!(told.starts_with("CONNECT_FAILED~ connecting"), "{told}");
    let garbage = TestServer::start("hello\r\n\r\n").await;
    let told = in_words(&executor(true).run(&request(&garbage.url)).await);
    assert!(told.starts_with("BAD_RESPONSE! "), "{told}");
}

#[tokio::test]
async fn addresses_that_are_not_public_are_refused_unless_allowed() {
    let server = TestServer::answering(200, "1").await;
    let port = server.url.rsplit(':').next().unwrap();
    for host in [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0x7f000001",
        "[fd00:ec2::254]",
    ] {
        let told =
            in_words(&executor(false).run(&request(&format!("https://{host}:{port}/"))).await);
        assert!(told.starts_with("SCRIPT_INVALID! url cannot be called"), "{told}");
    }
    let told =
        in_words(&executor(false).run(&request(&format!("https://localhost:{port}/"))).await);
    assert!(told.starts_with("ADDRESS_REFUSED! "), "{told}");
    let told = in_words(&executor(false).run(&request("http://example.com/")).await);
    assert!(told.starts_with("SCRIPT_INVALID! url must begin with https://"), "{told}");
    let told = in_words(&executor(true).run(&Request { url: None, ..request("") }).await);
    assert!(told.starts_with("SCRIPT_INVALID! url is missing"), "{told}");
    assert!(server.asked().is_empty());
}
