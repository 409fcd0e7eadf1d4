//! A word in every payload of every lane, looked for wherever somebody without payload rights can look.

use serde_json::{Value, json};
use sqlx::ConnectOptions as _;
use symphony_server::config::ApiSection;
use symphony_server::http_server::HttpServerSettings;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::api::Served;
use crate::console::Browser;
use crate::support::processes::python_or_skip;
use crate::support::shell::symphony;
use crate::triggers::apps::{script, trigger};

#[tokio::test]
async fn what_is_in_payloads_is_seen_by_nobody_without_the_right_to_it() {
    play(60).await;
}

#[tokio::test]
#[ignore = "the long form: ten thousand payloads of each lane"]
async fn what_is_in_ten_thousand_payloads_of_each_lane_is_seen_by_nobody_without_the_right_to_it() {
    play(10_000).await;
}

/// Where it was looked for, and how much of it there was.
struct Search(Vec<(&'static str, usize)>);

impl Search {
    fn look(&mut self, place: &'static str, text: &str) {
        if let Some(at) = text.find(CANARY) {
            let from = at.saturating_sub(300);
            let around: String = text.chars().skip(from).take(700).collect();
            panic!("{place}: {around}");
        }
        match self.0.iter_mut().find(|(known, _)| *known == place) {
            Some((_, bytes)) => *bytes += text.len(),
            None => self.0.push((place, text.len())),
        }
    }
}

async fn play(count: i64) {
    python_or_skip!();
    // Faster than a person clicks.
    let section = ApiSection { rate_per_second: 100_000, ..ApiSection::at("127.0.0.1:0") };
    let served = Served::with(&section, HttpServerSettings::default()).await;
    let receiver = Receiver::start().await;
    let db = &served.db;
    plant(db, count).await;
    let worker = Worker::start(db, &receiver.folder, &receiver.config("")).await;
    // A payment whose first outcome is unknown is not FAILED by a refusal: for these two an outcome is enough.
    for (lane, ended) in [
        ("payments", "(SELECT DISTINCT outbox_id FROM payment_outbox_attempts) x"),
        ("events", "(SELECT DISTINCT event_id FROM event_outbox_attempts) x"),
        ("triggers", "trigger_outbox_executions"),
    ] {
        // Ten thousand take minutes, so each thousand has the time that all usually have.
        let mut expected = 0;
        while expected < count {
            expected = (expected + 1_000).min(count);
            let claim = format!("{expected} are answered in lane {lane}");
            until(&claim, async || db.count(ended).await >= expected).await;
        }
    }
    let mut search = Search(Vec::new());
    search.look("metrics", &get(&worker.api, "/metrics").await);
    let log = worker.log.clone();
    worker.stop().await;
    search.look("log lines", &log.lock().unwrap().join("\n"));
    // `noted` looks at the spans as they came.
    let spans = receiver.noted().spans;
    assert!(spans.len() >= usize::try_from(count).unwrap(), "{} spans", spans.len());
    search.look("spans", &json!(spans).to_string());

    lost_lease(db).await;
    columns(db, &mut search).await;
    pages(&served, &mut search).await;
    commands(db, &mut search).await;
    refusals(&served, &mut search).await;
    println!("{count} payloads of each lane; looked through, in bytes: {:?}", search.0);
}

/// Payments, events and entries that fire scripts: some fail, some hang, and what answers repeats what it was sent.
async fn plant(db: &TestDb, count: i64) {
    let tell = r#"export default (request) => {
        const { memo, n } = request.payload.value; console.log("told " + memo);
        if (n % 5 === 0) throw new Error("cannot take " + memo);
        queue.send("jobs", { memo }); return { memo }; }"#;
    let manifest = json!({
        "scripts": [script("tell", tell)], "triggers": [trigger("tell", "kv", "*", "tell")], "queues": ["jobs"],
    });
    db.push("shop", &manifest).await;
    let planted: i64 = db
        .one_as(
            "symphony_ingest",
            &format!(
                "SELECT count(p.outbox_id) + count(e.event_id) + count(k) FROM generate_series(1, {count}) n, \
                 LATERAL enqueue_payment_outbox(CASE WHEN n <= 10 OR n % 5 = 2 THEN (ARRAY['plain', 'busy', 'echo', 'noise', 'drop'])[1 + n % 5] ELSE 'plain' END || '-' || n, 'acme-' || n % 20, 'pay', 'bank', \
                     jsonb_build_object('amount', jsonb_build_object('value', '10.00', 'currency', 'EUR'), 'memo', '{CANARY}-' || n)) p, \
                 LATERAL enqueue_event_outbox(jsonb_build_object('envelope', jsonb_build_object('v', 1, 'eventId', gen_random_uuid(), \
                     'occurredAt', '2026-11-15T12:00:00Z', 'tenantId', 'tnt_1', 'type', 'events.transfers.submitted'), \
                     'key', jsonb_build_object('transferId', 't-' || n), 'payload', jsonb_build_object('memo', '{CANARY}-' || n))) e, \
                 LATERAL kv_set('shop', 'k-' || n, jsonb_build_object('n', n, 'memo', '{CANARY}-' || n)) k"
            ),
        )
        .await;
    assert_eq!(planted, 3 * count);
}

async fn get(address: &str, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
    page
}

/// A script that threw what it was sent after its worker had lost the lease.
async fn lost_lease(db: &TestDb) {
    db.kv_set("shop", "late", &json!({"n": 1, "memo": CANARY})).await;
    let item = db.claim_item("lost").await;
    db.expire_items().await;
    let late = format!(
        "SELECT event_no FROM record_late_trigger_outcome('{}', '{}', 'lost', 'FAILED', 'SCRIPT_ERROR', 'cannot take {CANARY}')",
        item.id, item.token
    );
    let _event: i64 = db.one_as("symphony_executor", &late).await;
}

/// Every column of every relation that the role may read, in every row: no page can show more.
async fn columns(db: &TestDb, search: &mut Search) {
    let readable: Vec<String> = db
        .one(
            "SELECT array_agg(format('SELECT concat_ws('' '', %s) AS row FROM symphony.%I', columns, relation)) FROM ( \
                 SELECT c.relname AS relation, string_agg(format('%I::text', a.attname), ', ') AS columns \
                   FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
                  WHERE c.relnamespace = 'symphony'::regnamespace AND c.relkind IN ('r', 'v') \
                    AND has_column_privilege('symphony_readonly', c.oid, a.attname, 'SELECT') GROUP BY c.relname) x",
        )
        .await;
    assert!(readable.len() > 30, "{readable:?}");
    for read in readable {
        // The row that has it is told, if one has.
        let counted = format!(
            "SELECT concat(max(row) FILTER (WHERE row LIKE '%{CANARY}%'), ' ', sum(length(row))) FROM ({read}) x"
        );
        let told: String = db.one_as("symphony_readonly", &counted).await;
        search.look("readable columns", &told);
    }
    let held: i64 =
        db.count(&format!("trigger_outbox_executions WHERE error_message LIKE '%{CANARY}%'")).await;
    assert!(held > 0, "scripts threw it");
}

/// Pages and lists, and a hundred items of each lane.
async fn pages(served: &Served, search: &mut Search) {
    let reader = Browser::of(served, "eve", "read").await;
    let token = served.token("ann", "read").await;
    let ids: Vec<String> = served
        .db
        .one(
            "SELECT array_agg(path) FROM ( \
                 (SELECT 'executions/' || id AS path FROM trigger_outbox_events WHERE event_type = 'LATE_OUTCOME' LIMIT 1) UNION ALL \
                 (SELECT 'payments/' || outbox_id FROM payment_outbox_instructions LIMIT 100) UNION ALL \
                 (SELECT 'events/' || event_id FROM event_outbox_identities LIMIT 100) UNION ALL \
                 (SELECT 'executions/' || id FROM trigger_outbox_executions ORDER BY state DESC LIMIT 100)) x",
        )
        .await;
    assert!(ids.len() >= 150, "{}", ids.len());
    let mut paths: Vec<String> = ids.iter().map(|id| format!("/console/{id}")).collect();
    for page in [
        "",
        "/waiting",
        "/waiting/payments",
        "/waiting/events",
        "/waiting/triggers",
        "/approvals",
        "/participants",
        "/participants/acme-1",
        "/destinations",
        "/apps",
        "/apps/shop",
        "/workers",
        "/audit",
        "/search?q=acme-1",
    ] {
        paths.push(format!("/console{page}"));
    }
    for path in paths {
        let page = reader.get(&path).await;
        assert!([200, 303].contains(&page.status), "{path}: {}", page.body);
        search.look("pages", &page.body);
    }
    let lists = [
        "status",
        "apps",
        "executions?limit=1000",
        "approvals",
        "dead-letters/payments?limit=1000",
        "dead-letters/events?limit=1000",
        "dead-letters/triggers?limit=1000",
    ];
    for path in ids.iter().map(String::as_str).chain(lists) {
        let (status, told) = served.ask(&token, &format!("GET /v1/{path}"), &Value::Null).await;
        assert_eq!(status, 200, "{path}: {told}");
        search.look("answers of the API", &told.to_string());
    }
    // Who has the right sees it: what is looked for is there to be found.
    let auditor = Browser::of(served, "omar", "audit").await;
    let shown = auditor.get(&format!("/console/{}", ids[1])).await;
    assert!(shown.body.contains(CANARY), "{}", shown.body);
}

/// The commands of somebody who may only look.
async fn commands(db: &TestDb, search: &mut Search) {
    let login = db.login("symphony_readonly").await.to_url_lossy().to_string();
    let one: Uuid = db
        .one("SELECT outbox_id FROM payment_outbox_attempts WHERE state = 'FAILED' LIMIT 1")
        .await;
    let run: Uuid =
        db.one("SELECT id FROM trigger_outbox_executions WHERE state = 'FAILED' LIMIT 1").await;
    for line in [
        "status".to_owned(),
        "dlq list".to_owned(),
        "dlq list --json".to_owned(),
        format!("show {one}"),
        format!("show {one} --json"),
        format!("show {run}"),
        "app executions --limit 100 --json".to_owned(),
        format!("app logs {run}"),
        format!("app tree {run}"),
    ] {
        let told = symphony(&login, &[("USER", "eve")], &line, &[], "").await;
        search.look("commands", &(told.output + &told.error));
    }
}

/// What a producer is told who has got something wrong.
async fn refusals(served: &Served, search: &mut Search) {
    let shop = served.token("shop", "ingest").await;
    let headers = format!("Authorization: Bearer {shop}\r\nIdempotency-Key: pay\r\n");
    let payload = |more: Value| json!({"amount": {"value": "10.00", "currency": "EUR"}, "memo": CANARY, "more": more});
    let envelope = json!({"v": 1, "eventId": "no id", "occurredAt": "2026-11-15T12:00:00Z", "tenantId": "t", "type": "events.a"});
    for (line, body) in [
        // Known under this key with another payload.
        (
            "POST /v1/payments",
            json!({"instruction_id": "drop-4", "participant_id": "acme-4", "rail_type": "bank", "payload": payload(json!(1))}),
        ),
        (
            "POST /v1/payments",
            json!({"instruction_id": "x", "participant_id": "acme", "rail_type": CANARY.repeat(40), "payload": payload(json!(1))}),
        ),
        (
            "POST /v1/payments",
            json!({"instruction_id": "x", "participant_id": "acme", "rail_type": "bank", "payload": [CANARY]}),
        ),
        (
            "POST /v1/payments",
            json!({"instruction_id": [CANARY], "participant_id": "acme", "rail_type": "bank", "payload": payload(json!(1))}),
        ),
        (
            "POST /v1/events",
            json!({"envelope": envelope, "key": {"a": CANARY}, "payload": {"memo": CANARY}}),
        ),
        ("POST /v1/events", json!({"envelope": CANARY, "key": CANARY, "payload": CANARY})),
    ] {
        let (status, told) = served.ask_with(&headers, line, &body).await;
        assert!((400..500).contains(&status), "{body}: {told}");
        search.look("errors", &told.to_string());
    }
}
