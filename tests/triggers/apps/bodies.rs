//! A crowd of large bodies: they wait outside, and the process stays as small as it is.

use std::sync::Arc;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{kills, request, route, script};
use crate::support::{TestDb, until};

const BODY_BYTES: usize = 1_000_000;

/// What a process has in memory, in MiB.
fn resident_mebibytes(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
}

#[tokio::test]
async fn a_thousand_bodies_of_a_megabyte_wait_outside_while_small_requests_are_served() {
    let db = TestDb::new().await;
    db.push("shop", &json!({
        "scripts": [script("take", "export default r => ({ length: (r.payload.body ?? '').length })")],
        "routes": [route("POST", "/take", "take")],
    }))
    .await;
    let (process, address) = kills::worker(&db, None).await;
    let pid = process.id().unwrap();
    assert_eq!(request(address, "POST", "/apps/shop/take", "\"hi\"").await.unwrap().status, 200);
    let before = resident_mebibytes(pid);
    let body = Arc::new(vec![b'a'; BODY_BYTES - 1]);
    let mut clients = JoinSet::new();
    for _ in 0..900 {
        let body = body.clone();
        // All but the last byte: whoever reads it must keep it.
        clients.spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let head = format!(
                "POST /apps/shop/take HTTP/1.1\r\nHost: apps\r\nContent-Length: {BODY_BYTES}\r\nConnection: close\r\n\r\n"
            );
            let sent = async {
                stream.write_all(head.as_bytes()).await?;
                stream.write_all(&body).await
            };
            // A client that is answered before it has sent all may be cut off.
            let _cut_off = sent.await;
            let mut answer = Vec::new();
            let _cut_off = stream.read_to_end(&mut answer).await;
            String::from_utf8_lossy(&answer).into_owned()
        });
    }
    let mut largest = before;
    let mut busy = 0;
    until("most of them have waited for room in vain", async || {
        largest = largest.max(resident_mebibytes(pid));
        while let Some(answer) = clients.try_join_next() {
            let answer = answer.unwrap();
            busy += usize::from(answer.contains("503") && answer.contains("TOO_MANY_BODIES"));
        }
        let small = request(address, "POST", "/apps/shop/take", "\"hi\"").await.unwrap();
        assert_eq!(small.status, 200, "{}", small.body);
        busy > 300
    })
    .await;
    assert!(largest < before + 300, "{before} MiB became {largest} MiB");
}
