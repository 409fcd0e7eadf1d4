//! Requests and answers as browsers and webhooks send and read them: bytes, repeated names, other methods, other origins.

use std::net::SocketAddr;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Platform, route, script};
use crate::support::TestDb;

/// One request with these header lines: the answer's head in lower case, and its body.
async fn exchange(
    address: SocketAddr,
    line: &str,
    headers: &str,
    body: &[u8],
) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let head = format!(
        "{line} HTTP/1.1\r\nHost: apps\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
    (head, answer[end + 4..].to_vec())
}

#[tokio::test]
async fn bytes_repeated_names_and_other_methods_pass_both_ways() {
    let db = TestDb::new().await;
    let mut raw = route("POST", "/raw", "raw");
    raw["rawBody"] = json!(true);
    db.push("web", &json!({
        "scripts": [
            script("bytes", "export default (r) => ({ status: 200, body: r.bytes().map((b) => b ^ 1) })"),
            script("raw", "export default (r) => ({ status: 200, body: r.text() + '|' + r.json().a })"),
            script("several", "export default (r) => {
                const headers = new Headers({ 'x-tags': r.query.getAll('tag').join('+'), 'x-seen': r.headers.get('x-one') });
                headers.append('Set-Cookie', 'a=1; Path=/'); headers.append('Set-Cookie', 'b=2');
                return { status: 200, headers, body: r.payload.method + ' ' + r.payload.params.rest } }"),
        ],
        "routes": [route("POST", "/bytes", "bytes"), raw, route("GET", "/files/{*rest}", "several")],
    }))
    .await;
    let platform = Platform::start(&db).await;
    let at = platform.http();

    let (head, body) = exchange(at, "POST /apps/web/bytes", "", &[0, 255, 254, 10]).await;
    assert!(
        head.contains("200 ok") && head.contains("content-type: application/octet-stream"),
        "{head}"
    );
    assert_eq!(body, [1, 254, 255, 11]);
    // Spaces and order of a signed body are kept.
    let json = "Content-Type: application/json\r\n";
    let (_, body) = exchange(at, "POST /apps/web/raw", json, b"{ \"b\": 1.0,\n \"a\": 2 }").await;
    assert_eq!(body, b"{ \"b\": 1.0,\n \"a\": 2 }|2");

    let twice = "X-One: 1\r\nX-One: 2\r\n";
    let (head, body) = exchange(at, "GET /apps/web/files/a/b%20c?tag=x&tag=y", twice, b"").await;
    for part in
        ["x-tags: x+y", "x-seen: 1, 2", "set-cookie: a=1; path=/\r\n", "set-cookie: b=2\r\n"]
    {
        assert!(format!("{head}\r\n").contains(part), "{part}: {head}");
    }
    assert_eq!(body, b"GET a/b c");
    let (head, body) = exchange(at, "HEAD /apps/web/files/a", "", b"").await;
    assert!(head.contains("200 ok") && head.contains("content-length: 6"), "{head}");
    assert_eq!(body, b"");

    let runs = db.count("trigger_outbox_executions").await;
    let (head, _) =
        exchange(at, "OPTIONS /apps/web/files/a", "Origin: https://a.example\r\n", b"").await;
    assert!(
        head.contains("204 no content") && head.contains("allow: get, head, options"),
        "{head}"
    );
    assert!(!head.contains("access-control"), "{head}");
    assert_eq!(db.count("trigger_outbox_executions").await, runs, "nothing is run for it");
    platform.stop().await;
}

#[tokio::test]
async fn pages_of_the_origins_that_the_manifest_names_may_call_and_no_others() {
    let db = TestDb::new().await;
    db.push("open", &json!({
        "scripts": [script("s", "export default () => { if (true) throw new Error('no') }")],
        "routes": [route("POST", "/orders", "s"), route("GET", "/orders", "s")],
        "cors": {
            "origins": ["https://shop.example", "https://b.example"], "headers": ["content-type", "X-Key"],
            "exposedHeaders": ["x-total"], "credentials": true, "maxAgeSeconds": 600,
        },
    }))
    .await;
    let platform = Platform::start(&db).await;
    let at = platform.http();
    let asks = "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-key\r\n";
    let named = format!("Origin: https://shop.example\r\n{asks}");
    let (head, body) = exchange(at, "OPTIONS /apps/open/orders", &named, b"").await;
    for part in [
        "http/1.1 204",
        "access-control-allow-origin: https://shop.example",
        "access-control-allow-methods: get, post, head, options",
        "access-control-allow-headers: content-type, x-key",
        "access-control-allow-credentials: true",
        "access-control-max-age: 600",
        "vary: origin",
    ] {
        assert!(head.contains(part), "{part}: {head}");
    }
    assert!(body.is_empty());
    for (path, origin) in
        [("/apps/open/orders", "https://evil.example"), ("/apps/open/orders", "null")]
    {
        let other = format!("Origin: {origin}\r\n{asks}");
        let (head, _) = exchange(at, &format!("OPTIONS {path}"), &other, b"").await;
        assert!(head.contains("vary: origin") && !head.contains("access-control-allow"), "{head}");
    }
    let (head, _) = exchange(at, "OPTIONS /apps/open/nothing", &named, b"").await;
    assert!(head.contains("404"), "{head}");
    assert_eq!(db.count("trigger_outbox_executions").await, 0, "no run for a preflight");

    // A page can read why it failed.
    let (head, _) =
        exchange(at, "GET /apps/open/orders", "Origin: https://b.example\r\n", b"").await;
    for part in [
        "500",
        "access-control-allow-origin: https://b.example",
        "access-control-expose-headers: x-total",
    ] {
        assert!(head.contains(part), "{part}: {head}");
    }
    platform.stop().await;
}
