//! Real processes, killed at named points: nothing half done, nothing done twice, never a wrong answer.

use std::net::SocketAddr;
use std::process::Stdio;

use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use uuid::Uuid;

use super::{request, route, script, trigger};
use crate::support::{TestDb, until};

const CONFIG: &str = "[worker]\nlease_seconds = 3\nlease_margin_ms = 100\nrepair_ms = [100, 200]\n\
                      [triggers]\nhttp_listen = '127.0.0.1:0'\ntimeout_max_seconds = 1\n";

/// A worker process, which may kill itself at a point.
pub(super) async fn worker(db: &TestDb, kill_at: Option<&str>) -> (Child, SocketAddr) {
    use sqlx::ConnectOptions as _;
    let config = std::env::temp_dir().join(format!("symphony-apps-{}.toml", Uuid::new_v4()));
    std::fs::write(&config, CONFIG).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_symphony"));
    command
        .args(["run", "--lanes", "triggers", "--api", "off", "--config"])
        .arg(&config)
        .env("DATABASE_URL", db.options.to_url_lossy().as_str())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if let Some(kill_at) = kill_at {
        command.env("SYMPHONY_KILL_AT", kill_at);
    }
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    loop {
        let line = lines.next_line().await.unwrap().expect("it ended before it served");
        if line.contains("apps are served") {
            std::fs::remove_file(&config).unwrap();
            let address = line.split("address=").nth(1).unwrap().split(' ').next().unwrap();
            let address = address.parse().unwrap();
            // Its later lines are read, so that it never waits for us.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return (child, address);
        }
    }
}

/// What a process leaves that is killed at this point with a request to a script of which this is a part.
async fn left_by_a_killed_process(point: &str, busy: &str) -> Option<String> {
    let db = TestDb::new().await;
    let source = format!(
        "export default () => {{ {busy} kv.set('n', (kv.get('n') ?? 0) + 1); return 'done' }}"
    );
    db.push(
        "shop",
        &json!({ "scripts": [script("s", &source)], "routes": [route("POST", "/n", "s")] }),
    )
    .await;
    let (mut dies, address) = worker(&db, Some(&format!("{point}:1"))).await;
    let answer = request(address, "POST", "/apps/shop/n", "").await;
    assert!(answer.is_none(), "{point}: no answer may come from a dead process");
    dies.wait().await.unwrap();
    let (_lives, address) = worker(&db, None).await;
    until("the lost request has ended", async || db.is_idle().await).await;
    let ended = "SELECT max(state || ' ' || error_code) FROM trigger_outbox_executions";
    let left: Option<String> = db.one(ended).await;
    assert_eq!(db.entry("shop", "n").await, None, "{point}: nothing half done");
    let answer = request(address, "POST", "/apps/shop/n", "").await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "\"done\""), "{point}");
    assert_eq!(db.entry("shop", "n").await.as_deref(), Some("1"), "{point}");
    left
}

#[tokio::test]
async fn a_client_of_a_killed_process_gets_an_error_and_its_request_is_never_run_again() {
    for point in ["after_claim", "before_send", "after_send", "before_complete"] {
        let left = left_by_a_killed_process(point, "").await;
        // A busy machine may take so long that its row was written.
        assert!(left.is_none_or(|left| left == "FAILED WORKER_LOST"), "{point}");
    }
}

#[tokio::test]
async fn a_request_that_takes_longer_is_written_before_it_ends_and_is_lost_with_its_worker() {
    let busy = "const over = Date.now() + 200; while (Date.now() < over);";
    for point in ["after_send", "before_complete"] {
        let left = left_by_a_killed_process(point, busy).await;
        assert_eq!(left.as_deref(), Some("FAILED WORKER_LOST"), "{point}");
    }
}

#[tokio::test]
async fn a_script_whose_worker_is_killed_is_run_again_and_applies_once() {
    for point in ["after_claim", "before_send", "after_send", "before_complete"] {
        let db = TestDb::new().await;
        db.push("shop", &json!({
            "scripts": [script("s", "export default () => { kv.set('n', (kv.get('n') ?? 0) + 1); queue.send('q', 1) }")],
            "triggers": [trigger("t", "kv", "go", "s")],
            "queues": ["q"],
        }))
        .await;
        let (mut dies, _) = worker(&db, Some(&format!("{point}:1"))).await;
        let one = serde_json::value::to_raw_value(&json!(1)).unwrap();
        symphony::triggers::kv_set(
            &mut db.as_role("symphony_ingest").await,
            "shop",
            "go",
            &one,
            None,
        )
        .await
        .unwrap();
        dies.wait().await.unwrap();
        assert_eq!(db.entry("shop", "n").await, None, "{point}: nothing half done");
        let (_lives, _) = worker(&db, None).await;
        until("it has run after all", async || db.is_idle().await).await;
        assert_eq!(db.entry("shop", "n").await.as_deref(), Some("1"), "{point}");
        assert_eq!(db.count("queue_messages").await, 1, "{point}");
        let states: Vec<String> = sqlx::query_scalar(
            "SELECT state::text FROM trigger_outbox_attempts ORDER BY attempt_no",
        )
        .fetch_all(&mut db.admin().await)
        .await
        .unwrap();
        assert_eq!(states, ["ZOMBIE_REQUEUE", "DISPATCHED"], "{point}");
    }
}

#[tokio::test]
async fn two_processes_fire_each_tick_once() {
    let db = TestDb::new().await;
    db.push("shop", &json!({
        "scripts": [script("s", "export default r => { kv.set('tick/' + r.executionId, r.payload.tickAt) }")],
        "triggers": [trigger("each-second", "cron", "* * * * * *", "s")],
    }))
    .await;
    let (_one, _) = worker(&db, None).await;
    let (_other, _) = worker(&db, None).await;
    until("a few ticks have run", async || db.count("kv_entries").await >= 4).await;
    assert_eq!(
        db.count("kv_entries").await,
        db.one::<i64>("SELECT count(DISTINCT value) FROM kv_entries").await
    );
}
