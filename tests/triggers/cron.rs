//! Cron: each tick fires once across all processes, by the database's clock.

use serde_json::json;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::manifest;
use crate::support::TestDb;

const PAST: &str = "2026-01-01T03:00:00Z";
const NEXT: &str = "2026-01-02T03:00:00Z";

async fn with_clock_at(tick: &str) -> (TestDb, Uuid) {
    let db = TestDb::new().await;
    db.push("shop", &manifest(&[("c", "cron", "0 3 * * *")])).await;
    db.sql(&format!("UPDATE trigger_cron SET next_tick_at = '{tick}'")).await;
    let trigger = db.one("SELECT id FROM triggers").await;
    (db, trigger)
}

async fn tick(db: &TestDb, trigger: Uuid, tick: &str, next: &str, fire: bool) -> bool {
    let call = format!("SELECT fire_cron_tick('{trigger}', '{tick}', '{next}', {fire})");
    db.one_as("symphony_executor", &call).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_fires_once_with_eight_racing_callers() {
    let (db, trigger) = with_clock_at(PAST).await;
    let mut callers = JoinSet::new();
    let barrier = std::sync::Arc::new(tokio::sync::Barrier::new(8));
    for _ in 0..8 {
        let (mut connection, barrier) = (db.as_role("symphony_executor").await, barrier.clone());
        callers.spawn(async move {
            barrier.wait().await;
            sqlx::query_scalar::<_, bool>(
                "SELECT fire_cron_tick($1, $2::timestamptz, $3::timestamptz)",
            )
            .bind(trigger)
            .bind(PAST.parse::<chrono::DateTime<chrono::Utc>>().unwrap())
            .bind(NEXT.parse::<chrono::DateTime<chrono::Utc>>().unwrap())
            .fetch_one(&mut connection)
            .await
            .unwrap()
        });
    }
    assert_eq!(callers.join_all().await.iter().filter(|fired| **fired).count(), 1);
    let item = db.claim_item("w").await;
    assert_eq!(item.payload, json!({"tickAt": PAST, "timeZone": "UTC", "trigger": "c"}));
    assert_eq!(item.source_kind, "cron");
    assert_eq!(
        db.count(&format!(
            "trigger_cron WHERE next_tick_at = '{NEXT}' AND last_tick_at = '{PAST}'"
        ))
        .await,
        1
    );
}

#[tokio::test]
async fn a_tick_does_not_fire_before_its_time_by_the_databases_clock() {
    let (db, trigger) = with_clock_at("2999-01-01T00:00:00Z").await;
    assert!(!tick(&db, trigger, "2999-01-01T00:00:00Z", "2999-01-02T00:00:00Z", true).await);
    assert!(!tick(&db, trigger, PAST, NEXT, true).await, "nor one that the clock does not show");
    assert_eq!(db.count("trigger_outbox_pending").await, 0);
    assert_eq!(db.count("trigger_cron WHERE next_tick_at = '2999-01-01T00:00:00Z'").await, 1);
}

#[tokio::test]
async fn a_skipped_tick_moves_the_clock_and_fires_nothing() {
    let (db, trigger) = with_clock_at(PAST).await;
    assert!(tick(&db, trigger, PAST, NEXT, false).await);
    assert_eq!(db.count("trigger_outbox_pending").await, 0);
    assert_eq!(
        db.count(&format!("trigger_cron WHERE next_tick_at = '{NEXT}' AND last_tick_at IS NULL"))
            .await,
        1
    );
    assert!(tick(&db, trigger, NEXT, "2999-01-02T00:00:00Z", true).await, "the next one fires");
    assert_eq!(db.count("trigger_outbox_pending").await, 1);
}

#[tokio::test]
async fn a_clock_that_was_never_set_is_set_once_and_fires_nothing() {
    let (db, trigger) = with_clock_at(PAST).await;
    db.sql("UPDATE trigger_cron SET next_tick_at = NULL").await;
    let set = format!("SELECT fire_cron_tick('{trigger}', NULL, '{NEXT}')");
    assert!(db.one_as::<bool>("symphony_executor", &set).await);
    assert!(!db.one_as::<bool>("symphony_executor", &set).await);
    assert_eq!(db.count("trigger_outbox_pending").await, 0);
}

#[tokio::test]
async fn a_next_tick_that_is_not_after_this_one_is_refused() {
    let (db, trigger) = with_clock_at(PAST).await;
    let call = format!("SELECT fire_cron_tick('{trigger}', '{NEXT}', '{NEXT}')");
    let refusal = db.refusal("symphony_executor", &call).await;
    assert!(refusal.starts_with("P7005 p_next_tick_at must be after"), "{refusal}");
    assert!(!tick(&db, Uuid::new_v4(), PAST, NEXT, true).await, "no such trigger: nothing fired");
}

#[tokio::test]
async fn mail_of_a_tick_that_was_lost_and_fired_again_is_the_same_mail() {
    let (db, trigger) = with_clock_at(PAST).await;
    let mail = json!([{"kind": "email_send", "message": {"to": "a@example.com", "subject": "s", "text": "t"}}]);
    let mut keys = Vec::new();
    for _ in 0..2 {
        // As after a failover that has lost the tick and all that came of it.
        db.sql(&format!("UPDATE trigger_cron SET next_tick_at = '{PAST}'")).await;
        assert!(tick(&db, trigger, PAST, NEXT, true).await);
        let run = db.claim_item("w").await;
        db.done("w", &run, mail.clone()).await;
        let sent = db.claim_item("w").await;
        keys.push(sent.payload["messageKey"].clone());
        db.done("w", &sent, json!([])).await;
        if keys.len() == 2 {
            let replay = format!(
                "SELECT replay_id FROM replay_trigger_execution('{}', 'dana', 'x', p_dry_run => false)",
                run.id
            );
            db.one_as::<Uuid>("symphony_operator", &replay).await;
            let run = db.claim_item("w").await;
            db.done("w", &run, mail.clone()).await;
            keys.push(db.claim_item("w").await.payload["messageKey"].clone());
        }
    }
    assert!(keys[0].is_string());
    assert_eq!(keys[0], keys[1]);
    assert_ne!(keys[1], keys[2], "a replay is meant to be sent again");
}
