//! A worker leases what it can run right now: the rest stays where another worker, or the next free slot, finds it.

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::{Platform, request, route, script, trigger};
use crate::support::{TestDb, until};

/// A peer that answers nobody until it is told to.
pub(super) async fn silent_peer() -> (u16, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (open, opened) = watch::channel(false);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut opened = opened.clone();
            tokio::spawn(async move {
                let mut head = [0; 4_096];
                let _read = stream.read(&mut head).await;
                if opened.wait_for(|opened| *opened).await.is_ok() {
                    let answer =
                        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                    let _sent = stream.write_all(answer).await;
                }
            });
        }
    });
    (port, open)
}

#[tokio::test]
async fn nothing_is_leased_for_which_there_is_no_slot() {
    let db = TestDb::new().await;
    let (port, open) = silent_peer().await;
    let fetch = format!("export default () => {{ fetch('http://127.0.0.1:{port}/') }}");
    for app in ["slow", "neighbour"] {
        db.push(
            app,
            &json!({
                "scripts": [{ "name": "run", "source": fetch, "timeoutMs": 25_000 }, script("log", "export default () => {}")],
                "triggers": [trigger("jobs", "queue", "jobs", "run")],
                "queues": ["jobs"],
            }),
        )
        .await;
    }
    for n in 0..20 {
        db.send("slow", "jobs", &json!(n)).await;
    }
    let settings = "[triggers.scripts]\nconcurrency_max = 5\nconcurrency_max_per_app = 3\n\
                    [triggers.fetch]\nallowed_networks = ['127.0.0.0/8']\n";
    let platform = Platform::start_with(&db, settings).await;
    let leased = async |app: &str| -> i64 {
        db.one(&format!(
            "SELECT count(*) FROM trigger_outbox_pending p JOIN apps a ON a.id = p.app_id \
             WHERE a.name = '{app}' AND p.lease_token IS NOT NULL"
        ))
        .await
    };
    until("the app has all the slots it may have", async || leased("slow").await == 3).await;
    for n in 0..4 {
        db.send("neighbour", "jobs", &json!(n)).await;
    }
    until("the neighbour has what is left", async || leased("neighbour").await == 2).await;
    assert_eq!(leased("slow").await, 3, "the rest waits in the database, not on its script's time");
    open.send_replace(true);
    until("everything has run", async || db.is_idle().await).await;
    let ends: Vec<(String, i64)> = sqlx::query_as(
        "SELECT state::text || coalesce(' ' || error_code, ''), count(*) FROM trigger_outbox_attempts GROUP BY 1",
    )
    .fetch_all(&mut db.admin().await)
    .await
    .unwrap();
    assert_eq!(ends, [("DISPATCHED".to_owned(), 24)]);
    platform.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_that_do_not_come_back_lose_their_slots_to_neighbours() {
    let db = TestDb::new().await;
    // Many seconds in one call of the engine's own, which asks nobody for the time.
    let stuck = "export default () => 'a'.repeat(120000).indexOf('a'.repeat(60000) + 'b')";
    let well = "export default () => 'well'";
    for (app, source, timeout_ms) in [("stuck", stuck, 100), ("neighbour", well, 10_000)] {
        let run = json!({ "name": "run", "source": source, "timeoutMs": timeout_ms });
        let mut own = route("GET", "/run", "run");
        own["waitMs"] = json!(30_000);
        db.push(app, &json!({ "scripts": [run], "routes": [own] })).await;
    }
    // As many slots as there will be stuck threads.
    let settings = "[triggers.scripts]\nconcurrency_max = 2\nconcurrency_max_per_app = 2\n";
    let platform = Platform::start_with(&db, settings).await;
    let address = platform.http();
    let asked = [(); 2].map(|()| {
        tokio::spawn(
            async move { request(address, "GET", "/apps/stuck/run", "").await.unwrap().status },
        )
    });
    for asked in asked {
        assert_eq!(asked.await.unwrap(), 504, "its time is up, whatever its thread does");
    }
    let answer = request(address, "GET", "/apps/neighbour/run", "").await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "\"well\""));
    platform.stop().await;
}
