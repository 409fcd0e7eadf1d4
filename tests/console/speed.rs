//! How long pages take above a deep queue and a long ledger.

use std::time::{Duration, Instant};

use symphony_server::config::ApiSection;
use symphony_server::http_server::HttpServerSettings;

use super::Browser;
use crate::api::Served;
use crate::support::TestDb;

/// How often each page is asked for.
const ROUNDS: usize = 40;
const LIMIT: Duration = Duration::from_millis(200);

#[tokio::test]
#[ignore = "the long form: it writes six million rows"]
async fn console_answers_within_200_ms_above_a_million_pending_and_five_million_outcomes() {
    let number = |name: &str, usual: i64| {
        std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
    };
    let pending = number("SYMPHONY_CONSOLE_PENDING", 1_000_000);
    let outcomes = number("SYMPHONY_CONSOLE_OUTCOMES", 5_000_000);
    // Faster than a person clicks.
    let section = ApiSection { rate_per_second: 100_000, ..ApiSection::at("127.0.0.1:0") };
    let served = Served::with(&section, HttpServerSettings::default()).await;
    let began = Instant::now();
    fill(&served.db, pending, outcomes).await;
    println!("{pending} pending, {outcomes} outcomes, written in {} s", began.elapsed().as_secs());
    let reader = served.db.database.auditor();
    let counted = times(async || drop(reader.status().await.unwrap())).await;
    println!("{counted}  the lanes' figures, counted anew each time");
    let asked = everything(&served).await;
    println!("scope    {}", Times::HEAD);
    let mut slow = Vec::new();
    for scope in ["read", "operate"] {
        let token = served.token(scope, scope).await;
        let browser = Browser::with(&served, &token).await;
        let bearer = format!("Authorization: Bearer {token}\r\n");
        for path in &asked {
            let headers = if path.starts_with("/v1") { bearer.as_str() } else { "" };
            let took = times(async || {
                let answer = browser.send(&format!("GET {path}"), headers, &[]).await;
                let expected = if path.contains(MISSING) { 404 } else { 200 };
                assert!(
                    answer.status == expected || [200, 303].contains(&answer.status),
                    "{path}: {} {}",
                    answer.status,
                    answer.body
                );
            })
            .await;
            println!("{scope:8} {took}  {path}");
            // What looks through everything is asked for by name, one at a time: it is printed, and not held to this.
            let looks_through_everything =
                ["everywhere", "whole"].iter().any(|word| path.contains(word));
            if took.p95 > LIMIT && !looks_through_everything {
                slow.push(format!("{scope} {path}: {} ms", took.p95.as_millis()));
            }
        }
    }
    let token = served.token("previews", "operate").await;
    let browser = Browser::with(&served, &token).await;
    for (act, fields) in previews(&served).await {
        let fields: Vec<(&str, &str)> =
            fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let took = times(async || {
            let answer = browser.post(&format!("/console/act/{act}"), &fields).await;
            assert_eq!(answer.status, 200, "{act}: {}", answer.body);
        })
        .await;
        println!("preview  {took}  {act}");
        if took.p95 > LIMIT {
            slow.push(format!("preview of {act}: {} ms", took.p95.as_millis()));
        }
    }
    assert!(slow.is_empty(), "{slow:#?}");
}

/// How long one thing took, asked again and again.
struct Times {
    first: Duration,
    median: Duration,
    p95: Duration,
    max: Duration,
}

impl Times {
    const HEAD: &str = "first   median  p95     max     (ms)";
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for time in [self.first, self.median, self.p95, self.max] {
            let micros = time.as_micros();
            let shown = format!("{}.{}", micros / 1_000, micros % 1_000 / 100);
            write!(f, "{shown:<8}")?;
        }
        Ok(())
    }
}

/// The first is the cold one: nothing of it is in a cache of ours or a plan of the session's.
async fn times(mut once: impl AsyncFnMut()) -> Times {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let asked = Instant::now();
        once().await;
        times.push(asked.elapsed());
    }
    let first = times[0];
    times.sort();
    Times {
        first,
        median: times[ROUNDS / 2],
        p95: times[ROUNDS * 95 / 100],
        max: times[ROUNDS - 1],
    }
}

/// An id that nothing has.
const MISSING: &str = "019a0000-0000-7000-8000-000000000000";

/// Every page and list, at its beginning and deep inside.
async fn everything(served: &Served) -> Vec<String> {
    let db = &served.db;
    let text = async |sql: &str| db.one::<String>(sql).await;
    let parked =
        text("SELECT outbox_id::text FROM payment_outbox_pending WHERE hold = 'PARKED' LIMIT 1")
            .await;
    let ended = text("SELECT outbox_id::text FROM payment_outbox_attempts LIMIT 1").await;
    let event = text("SELECT event_id::text FROM event_outbox_identities LIMIT 1").await;
    let failed_event =
        text("SELECT event_id::text FROM event_outbox_attempts WHERE state = 'FAILED' LIMIT 1")
            .await;
    let execution =
        text("SELECT id::text FROM trigger_outbox_executions WHERE trigger_depth = 0 LIMIT 1")
            .await;
    let wide = text("SELECT root_execution_id::text FROM trigger_outbox_executions WHERE trigger_depth = 1 LIMIT 1").await;
    let middle = text("SELECT id::text FROM trigger_outbox_executions ORDER BY id OFFSET (SELECT count(*) / 2 FROM trigger_outbox_executions) LIMIT 1").await;
    let deep = async |of: &str| {
        let sql = format!(
            "SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') || '~' || id FROM ({of}) x"
        );
        db.one::<String>(&sql).await
    };
    let letter = deep("SELECT failed_at AS at, outbox_id AS id FROM payment_outbox_dead_letters ORDER BY 1, 2 OFFSET 2000 LIMIT 1").await;
    let ended_in_app = deep("SELECT completed_at AS at, id FROM trigger_outbox_executions WHERE app_name = 'app-7' ORDER BY 1, 2 OFFSET 5000 LIMIT 1").await;
    let act = text(
        "SELECT max(event_no)::text || '~0~0' FROM payment_outbox_events WHERE actor IS NOT NULL",
    )
    .await;
    let mut asked: Vec<String> = [
        "/console",
        "/console/search?q=done-77",
        "/console/search?q=nothing",
        "/console/waiting",
        "/console/waiting/payments",
        "/console/waiting/payments?state=PARKED&newest=1",
        "/console/waiting/payments?rail=sepa&code=TIMEOUT",
        "/console/waiting/events",
        "/console/waiting/triggers",
        "/console/approvals",
        "/console/approvals?state=WAITING",
        "/console/participants",
        "/console/participants?after=p-5",
        "/console/participants/p-7",
        "/console/participants/p-7?before=100",
        "/console/participants/p-7?proof=whole",
        "/console/destinations",
        "/console/apps",
        "/console/apps/app-7",
        "/console/workers",
        "/console/audit",
        "/console/audit?lane=events",
        "/v1/status",
        "/v1/payments/done-77",
        "/v1/dead-letters/payments",
        "/v1/dead-letters/payments?code=REFUSED&limit=200",
        "/v1/dead-letters/events",
        "/v1/dead-letters/triggers",
        "/v1/approvals",
        "/v1/executions",
        "/v1/executions?state=FAILED",
        "/v1/executions?app=app-7&state=FAILED",
        "/v1/executions?app=none",
        "/v1/executions?app=quiet&state=FAILED",
        "/v1/apps",
        "/v1/incidents",
        "/v1/pauses",
        "/v1/destinations",
        "/v1/rails",
        "/v1/topics",
        "/v1/workers",
        "/v1/leases",
        "/v1/participants",
        "/v1/participants/p-7",
        "/v1/participants/p-7/payments?before=100",
        "/v1/participants/p-7?whole=true",
        "/v1/audit",
        "/v1/audit?lane=triggers",
    ]
    .map(str::to_owned)
    .to_vec();
    asked.extend([
        format!("/console/payments/{parked}"),
        format!("/console/payments/{ended}"),
        format!("/console/payments/{MISSING}"),
        format!("/console/search?q={ended}"),
        format!("/console/search?q={MISSING}"),
        format!("/console/events/{event}"),
        format!("/console/events/{failed_event}"),
        format!("/console/executions/{execution}"),
        format!("/console/executions/{wide}"),
        format!("/console/apps/app-7?after={ended_in_app}"),
        format!("/console/waiting/payments?after={letter}"),
        format!("/console/audit?before={act}"),
        format!("/v1/payments/{parked}"),
        format!("/v1/payments/{MISSING}"),
        format!("/v1/payments/{MISSING}?everywhere=true"),
        format!("/v1/events/{event}"),
        format!("/v1/events/{MISSING}"),
        format!("/v1/executions/{execution}"),
        format!("/v1/executions/{wide}/tree"),
        format!("/v1/executions?before={middle}"),
        format!("/v1/executions?app=app-7&before={middle}"),
        format!("/v1/dead-letters/payments?after={letter}"),
        format!("/v1/audit?before={act}"),
    ]);
    asked
}

/// Acts with what they are about, as a form sends them first.
async fn previews(served: &Served) -> Vec<(&'static str, Vec<(&'static str, String)>)> {
    let db = &served.db;
    let text = async |sql: &str| db.one::<String>(sql).await;
    let parked =
        text("SELECT outbox_id::text FROM payment_outbox_pending WHERE hold = 'PARKED' LIMIT 1")
            .await;
    let failed = text("SELECT outbox_id::text FROM payment_outbox_dead_letters LIMIT 1").await;
    let event = text("SELECT event_id::text FROM event_outbox_dead_letters LIMIT 1").await;
    let execution = text("SELECT id::text FROM trigger_outbox_dead_letters LIMIT 1").await;
    let reason = || ("reason", "r".to_owned());
    vec![
        ("release_outbox", vec![("p_outbox_id", parked.clone()), reason()]),
        ("close_payment_dead_letter", vec![("p_outbox_id", failed.clone()), reason()]),
        ("redrive_outbox", vec![("p_outbox_id", failed), reason()]),
        ("close_event_dead_letter", vec![("p_event_id", event), reason()]),
        ("close_trigger_dead_letter", vec![("p_id", execution), reason()]),
        ("pause_payment_participant", vec![("p_participant_id", "q-7".to_owned()), reason()]),
        ("pause_payment_lane", vec![reason()]),
    ]
}

/// Rows as the functions would have left them, written past them: six million calls would take an hour.
async fn fill(db: &TestDb, pending: i64, outcomes: i64) {
    db.sql(&format!(
        "SET session_replication_role = replica; SET synchronous_commit = off; \
         INSERT INTO payment_outbox_instructions (outbox_id, instruction_id, idempotency_key, participant_id, sequence_id, rail_type, payload, request_hash, created_at) \
         SELECT uuidv7(), 'done-' || n, 'k', 'p-' || n % 1000, n / 1000 + 1, 'sepa', '{{\"amount\": {{\"value\": \"1.00\", \"currency\": \"EUR\"}}}}', '\\x00', \
                clock_timestamp() - INTERVAL '1 day' FROM generate_series(0, {outcomes} - 1) n; \
         INSERT INTO payment_outbox_attempts (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, attempt_no, state, \
                completed_at, rail_reference, error_code, worker_id) \
         SELECT i.outbox_id, i.instruction_id, i.participant_id, i.sequence_id, 'k', 'sepa', 1, \
                (CASE WHEN i.sequence_id % 1000 = 1 THEN 'FAILED' ELSE 'DISPATCHED' END)::outbox_attempt_state, i.created_at, 'R', \
                CASE WHEN i.sequence_id % 1000 = 1 THEN 'REFUSED' END, 'w' FROM payment_outbox_instructions i; \
         INSERT INTO payment_outbox_instructions (outbox_id, instruction_id, idempotency_key, participant_id, sequence_id, rail_type, payload, request_hash) \
         SELECT uuidv7(), 'open-' || n, 'k', 'q-' || n % 1000, n / 1000 + 1, 'sepa', '{{}}', '\\x00' FROM generate_series(0, {pending} - 1) n; \
         INSERT INTO payment_outbox_pending (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, hold) \
         SELECT i.outbox_id, i.instruction_id, i.participant_id, i.sequence_id, 'k', 'sepa', \
                (CASE WHEN i.sequence_id = 1 AND i.participant_id < 'q-2' THEN 'PARKED' END)::outbox_hold \
           FROM payment_outbox_instructions i WHERE i.participant_id >= 'q'; \
         INSERT INTO payment_outbox_events (event_type, outbox_id, actor, reason) \
         SELECT 'PARKED', p.outbox_id, 'omar', 'r' FROM payment_outbox_pending p WHERE p.hold = 'PARKED'; \
         INSERT INTO payment_outbox_events (event_type, outbox_id, worker_id) \
         SELECT 'LEASE_EXPIRED_REPAIRED', a.outbox_id, 'w' FROM payment_outbox_attempts a LIMIT {pending} / 4; \
         INSERT INTO payment_outbox_events (event_type, actor, reason) SELECT 'CONFIGURED', 'omar', 'r' FROM generate_series(1, 5000); \
         INSERT INTO event_outbox_log (bucket, position, event_id, event_key, event) \
         SELECT n % 256, n, uuidv7(), 'k-' || n % 10000, json_build_object('envelope', json_build_object('v', 1, 'eventId', n, 'occurredAt', \
                '2026-01-01T00:00:00Z', 'tenantId', 't', 'type', 'a.b'), 'key', json_build_object('a', n), 'payload', json_build_object('b', n)) \
           FROM generate_series(1, {pending}) n; \
         INSERT INTO event_outbox_identities (event_id, bucket, position) SELECT event_id, bucket, position FROM event_outbox_log; \
         INSERT INTO event_outbox_attempts (bucket, position, outcome_no, attempt_no, state, event_id, event_key, completed_at, destination, \
                error_code, worker_id) \
         SELECT bucket, position, 0, 1, (CASE WHEN position % 1000 = 0 THEN 'FAILED' ELSE 'DISPATCHED' END)::outbox_attempt_state, event_id, event_key, \
                clock_timestamp(), 'bus/topic', CASE WHEN position % 1000 = 0 THEN 'REFUSED' END, 'w' \
           FROM event_outbox_log WHERE position <= {pending} * 9 / 10; \
         UPDATE event_outbox_cursors SET published_through = {pending} * 9 / 10, claimed_through = {pending} * 9 / 10, \
                ragged_through = {pending} * 9 / 10; \
         INSERT INTO event_outbox_events (event_type, outbox_event, worker_id) \
         SELECT 'LEASE_EXPIRED_REPAIRED', event_id, 'w' FROM event_outbox_log LIMIT {pending} / 4; \
         INSERT INTO apps (name) SELECT 'app-' || n FROM generate_series(0, 199) n; \
         INSERT INTO apps (name) VALUES ('quiet'); \
         INSERT INTO trigger_outbox_executions (id, app_id, app_name, source_kind, root_execution_id, trigger_depth, payload, state, attempts, created_at) \
         SELECT x.id, a.id, a.name, 'kv', x.id, 0, jsonb_build_object('text', repeat('x', 200)), \
                (CASE WHEN x.n % 1000 < 20 THEN 'FAILED' ELSE 'DISPATCHED' END)::outbox_attempt_state, 1, clock_timestamp() \
           FROM (SELECT n, uuidv7() AS id FROM generate_series(1, {pending}) n) x JOIN apps a ON a.name = 'app-' || x.n % 20; \
         INSERT INTO trigger_outbox_attempts (id, attempt_no, app_id, source_kind, root_execution_id, state, error_code, worker_id) \
         SELECT e.id, 1, e.app_id, 'kv', e.root_execution_id, e.state, 'BROKEN', 'w' FROM trigger_outbox_executions e WHERE e.state = 'FAILED'; \
         INSERT INTO trigger_outbox_executions (id, app_id, app_name, source_kind, parent_execution_id, root_execution_id, trigger_depth, payload, \
                state, attempts, created_at) \
         SELECT uuidv7(), r.app_id, r.app_name, 'kv', r.id, r.id, 1, jsonb_build_object('text', repeat('x', 2000)), 'DISPATCHED', 1, clock_timestamp() \
           FROM (SELECT * FROM trigger_outbox_executions LIMIT 1) r, generate_series(1, 20000); \
         INSERT INTO trigger_outbox_pending (id, app_id, source_kind, payload, root_execution_id, trigger_depth, attempts_max, backoff_seconds) \
         SELECT x.id, a.id, 'kv', '{{}}', x.id, 0, 5, '{{1}}' FROM (SELECT n, uuidv7() AS id FROM generate_series(1, {pending} / 4) n) x \
           JOIN apps a ON a.name = 'app-' || x.n % 20; \
         INSERT INTO trigger_outbox_events (event_type, id, worker_id) \
         SELECT 'LEASE_EXPIRED_REPAIRED', id, 'w' FROM trigger_outbox_executions LIMIT {pending} / 4; \
         RESET session_replication_role; \
         ANALYZE",
    ))
    .await;
    for table in [
        "payment_outbox_instructions",
        "payment_outbox_attempts",
        "event_outbox_log",
        "trigger_outbox_executions",
    ] {
        db.sql(&format!("VACUUM {table}")).await;
    }
}
