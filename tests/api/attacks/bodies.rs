//! Bodies that are too large, too slow or something else, and clients that only hold on.

use std::time::Duration;

use serde_json::{Value, json};
use symphony_server::config::ApiSection;
use symphony_server::http_server::HttpServerSettings;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use super::{STATUS, Served, payment, status_of, with_token};
use crate::support::processes::python_or_skip;

/// An API with short times, and the head of a producer's request but for what describes its body.
async fn producer() -> (Served, String) {
    let bounds = HttpServerSettings {
        head_timeout_ms: 300,
        body_timeout_ms: 300,
        ..HttpServerSettings::default()
    };
    let served = Served::with(&ApiSection::at("127.0.0.1:0"), bounds).await;
    let token = with_token(&served.token("shop", "ingest").await);
    let head = format!(
        "POST /v1/payments HTTP/1.1\r\nHost: localhost\r\n{token}Idempotency-Key: k\r\nConnection: close\r\n"
    );
    (served, head)
}

async fn nothing_was_written(served: &Served) {
    assert_eq!(served.db.count("payment_outbox_instructions").await, 0);
}

#[tokio::test]
async fn an_oversize_body_is_refused() {
    let (served, head) = producer().await;
    let mut large = payment("inv-1");
    large["payload"]["note"] = json!("x".repeat(3 * 1024 * 1024));
    let large = large.to_string();
    let text = format!(
        "{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{large}",
        large.len()
    );
    // Whoever goes on sending after the refusal may find the connection reset.
    assert!([0, 413].contains(&status_of(&served, &text).await));
    nothing_was_written(&served).await;
}

#[tokio::test]
async fn an_oversize_body_that_hides_its_length_is_refused() {
    let (served, head) = producer().await;
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000)).repeat(48);
    let text = format!(
        "{head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}0\r\n\r\n"
    );
    assert!([0, 413].contains(&status_of(&served, &text).await));
    nothing_was_written(&served).await;
}

#[tokio::test]
async fn a_length_that_no_machine_has_is_refused() {
    let (served, head) = producer().await;
    for length in ["18446744073709551615", "99999999999999999999", "-1", "0x10"] {
        let text =
            format!("{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{{}}");
        let status = status_of(&served, &text).await;
        assert!([400, 408, 413, 431].contains(&status), "{length}: {status}");
    }
    nothing_was_written(&served).await;
}

/// What the server answers to a request that never ends.
async fn hangs(served: &Served, text: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(served.api.address()).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer));
    drop(read.await.expect("it is held for ever"));
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_body_that_never_comes_whole_is_not_waited_for() {
    let (served, head) = producer().await;
    let text = format!("{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{");
    assert!(hangs(&served, &text).await.starts_with("HTTP/1.1 408"));
    nothing_was_written(&served).await;
}

#[tokio::test]
async fn a_head_that_never_ends_is_not_waited_for() {
    let (served, head) = producer().await;
    let answer = hangs(&served, &head).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    nothing_was_written(&served).await;
}

#[tokio::test]
async fn a_body_that_another_sites_form_could_send_is_refused() {
    let (served, head) = producer().await;
    let body = payment("inv-1").to_string();
    for kind in [
        "Content-Type: text/plain\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n",
        "Content-Type: multipart/form-data; boundary=x\r\n",
        "",
    ] {
        let text = format!("{head}{kind}Content-Length: {}\r\n\r\n{body}", body.len());
        assert_eq!(status_of(&served, &text).await, 415, "{kind}");
    }
    nothing_was_written(&served).await;
}

#[tokio::test]
async fn a_packed_body_is_not_unpacked() {
    let (served, head) = producer().await;
    // A gigabyte of zeros in gzip begins like this.
    let text = format!(
        "{head}Content-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x08\x00\x00"
    );
    assert_eq!(status_of(&served, &text).await, 422);
    nothing_was_written(&served).await;
}

#[tokio::test]
async fn json_that_is_deep_doubled_or_of_another_shape_is_refused() {
    let (served, head) = producer().await;
    let good = payment("inv-1").to_string();
    let doubled = good.replacen('{', "{\"rail_type\":\"wire\",", 1);
    let deep = "[".repeat(5_000) + &"]".repeat(5_000);
    let deep_payload = good.replacen("\"payload\":{", &format!("\"payload\":{{\"x\":{deep},"), 1);
    let other = good.replacen('{', "{\"unknown\":1,", 1);
    for body in
        ["", "[]", "\"x\"", "{}", "{\"payload\": 1}", "NaN", &doubled, &deep, &deep_payload, &other]
    {
        let text = format!(
            "{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        assert_eq!(status_of(&served, &text).await, 422, "{body}");
    }
    nothing_was_written(&served).await;
}

#[tokio::test]
async fn text_that_is_no_text_is_refused() {
    let (served, head) = producer().await;
    let mut bytes =
        format!("{head}Content-Type: application/json\r\nContent-Length: 3\r\n\r\n").into_bytes();
    bytes.extend([b'"', 0xff, b'"']);
    assert!(super::raw(served.api.address(), &bytes).await.starts_with("HTTP/1.1 422"));
    let nul = payment("inv\\u0000").to_string().replace("\\\\u", "\\u");
    let text = format!(
        "{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{nul}",
        nul.len()
    );
    assert_eq!(status_of(&served, &text).await, 422);
    nothing_was_written(&served).await;
}

/// What an idle crowd is, and how many of it a listener holds unless it is told.
const CROWD: u64 = 10_000;
const HELD: u64 = 1_000;

/// Connections that say nothing, ten times as many as the listener holds.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_idle_connections_shut_nobody_out() {
    python_or_skip!();
    symphony_server::http_server::raise_open_files_limit();
    let served = Served::new().await;
    let token = served.token("eve", "read").await;
    assert_eq!(served.ask(&token, STATUS, &Value::Null).await.0, 200);
    // Both ends are files of this machine's limit: what is there is what is opened, and a machine that allows it opens them all.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let limit = limit.unwrap_or(u64::MAX);
    let crowd = CROWD.min(limit.saturating_sub(200));
    assert!(
        crowd > 4 * HELD,
        "a limit of {limit} open files is too low for this test: raise it (ulimit -Hn)"
    );
    let program = r"
import resource, socket, sys
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
count = int(sys.argv[2])
crowd = [socket.create_connection(('127.0.0.1', int(sys.argv[1])), timeout=20) for _ in range(count)]
print(count, flush=True)
sys.stdin.read()
";
    let mut child = tokio::process::Command::new("python3")
        .args(["-c", program, &served.api.address().port().to_string(), &crowd.to_string()])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut said = String::new();
    let told = BufReader::new(child.stdout.take().unwrap());
    told.take(16).read_line(&mut said).await.unwrap();
    assert_eq!(said.trim(), crowd.to_string(), "they are all open");
    for line in [STATUS, "GET /healthz", "GET /metrics"] {
        assert_eq!(served.ask(&token, line, &Value::Null).await.0, 200, "{line}");
    }
}
