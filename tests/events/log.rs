//! Enqueueing: one event per id for ever, in the order of its commit.

use symphony::events::ItemState;
use uuid::Uuid;

use super::{event, event_with};
use crate::support::{TestDb, code, run};

#[tokio::test]
async fn an_event_told_twice_is_one_event() {
    let db = TestDb::new().await;
    let told = event("k", 1);
    let ingest = db.database.producer();
    let first = ingest.enqueue_event(&told).await.unwrap();
    let again = ingest.enqueue_event(&told).await.unwrap();
    assert_eq!((first.duplicate, again.duplicate), (false, true));
    assert_eq!((first.log_position, first.created_at), (again.log_position, again.created_at));
    assert_eq!(again.state, ItemState::Pending);
    db.publish_all("w").await;
    assert_eq!(ingest.enqueue_event(&told).await.unwrap().state, ItemState::Sent);
    assert_eq!(db.count("event_outbox_log").await, 1);
}

#[tokio::test]
async fn equality_is_json_equality_and_another_event_under_the_id_is_p7004() {
    let db = TestDb::new().await;
    let id = Uuid::new_v4();
    let ingest = db.database.producer();
    ingest.enqueue_event(&event_with(id, "k", r#"{"a": 1.0, "b": "x"}"#)).await.unwrap();
    let same = event_with(id, "k", r#"{"b": "x", "a": 1.00}"#);
    assert!(ingest.enqueue_event(&same).await.unwrap().duplicate);
    for other in [
        event_with(id, "k", r#"{"a": 1.01, "b": "x"}"#),
        event_with(id, "another key", r#"{"a": 1.0, "b": "x"}"#),
    ] {
        assert_eq!(code(ingest.enqueue_event(&other).await), "P7004");
    }
    assert_eq!(db.count("event_outbox_log").await, 1);
}

#[tokio::test]
async fn one_bad_or_known_event_never_costs_the_others() {
    let db = TestDb::new().await;
    let known = event("k", 0);
    db.tell(std::slice::from_ref(&known)).await;
    let conflict = event_with(known.event_id(), "k", r#"{"n": 99}"#);
    let (one, two) = (event("k", 1), event("k", 2));
    let bad: Box<serde_json::value::RawValue> =
        serde_json::from_str(&one.body().get().replace("tnt_1", " ")).unwrap();
    let bodies = [one.body(), known.body(), &bad, conflict.body(), two.body()];
    let answers = db.database.producer().enqueue_events(&bodies).await.unwrap();
    let codes: Vec<_> =
        answers.iter().map(|answer| answer.as_ref().err().map(symphony::Error::code)).collect();
    assert_eq!(codes, [None, None, Some("P7005"), Some("P7004"), None]);
    assert!(answers[1].as_ref().unwrap().duplicate);
    let ids: Vec<_> =
        answers.iter().filter_map(|answer| Some(answer.as_ref().ok()?.event_id)).collect();
    assert_eq!(ids, [one.event_id(), known.event_id(), two.event_id()], "in the order given");
    let published = db.publish_all("w").await;
    assert_eq!(published, [known.event_id(), one.event_id(), two.event_id()]);
    db.assert_events_hold().await;
}

#[tokio::test]
async fn what_goes_out_is_what_came_in_to_the_last_digit_and_character() {
    let db = TestDb::new().await;
    let payload = r#"{"amount": 12345678901234567890.123456789012345678901234567890, "small": 0.10, "exp": 1e2,
        "text": "ä\u20ac\ud83d\ude00\"\\\n\t/ \u0001", "deep": [[{"a": [null, true, -0]}]]}"#;
    let told = event_with(Uuid::new_v4(), "k/ä €", payload);
    db.tell(std::slice::from_ref(&told)).await;
    let claimed = db.claim_events("w", 50).await;
    let out = claimed[0].event.0.get();
    let same: bool = sqlx::query_scalar("SELECT $1::jsonb = $2::jsonb")
        .bind(out)
        .bind(told.body().get())
        .fetch_one(&mut db.admin().await)
        .await
        .unwrap();
    assert!(same, "{out}");
    assert!(out.contains("12345678901234567890.123456789012345678901234567890"), "{out}");
    assert!(out.contains("0.10") && out.contains("ä€😀"), "{out}");
    assert_eq!(claimed[0].event_key, "k/ä €");
}

#[tokio::test]
async fn state_and_event_commit_together_or_not_at_all() {
    let db = TestDb::new().await;
    db.sql("CREATE TABLE transfers (id TEXT); GRANT ALL ON transfers TO symphony_ingest").await;
    for (end, expected) in [("ROLLBACK", 0), ("COMMIT", 1)] {
        let mut connection = db.as_role("symphony_ingest").await;
        run(&mut connection, "BEGIN; INSERT INTO transfers VALUES ('tr_1')").await.unwrap();
        symphony::events::enqueue(&mut connection, &event("tr_1", 1)).await.unwrap();
        run(&mut connection, end).await.unwrap();
        assert_eq!(db.count("transfers").await, expected);
        assert_eq!(db.count("event_outbox_log").await, expected);
        assert_eq!(db.count("event_outbox_identities").await, expected);
    }
}

#[tokio::test]
async fn the_order_of_a_key_is_the_order_of_commits_and_a_cursor_never_passes_a_late_one() {
    let db = TestDb::new().await;
    let (late, early) = (event("k", 1), event("k", 2));
    let mut slow = db.as_role("symphony_ingest").await;
    run(&mut slow, "BEGIN").await.unwrap();
    symphony::events::enqueue(&mut slow, &late).await.unwrap();
    // A second producer of the key waits for the first's commit.
    let other = {
        let (database, early) = (db.database.clone(), early.clone());
        tokio::spawn(async move { database.producer().enqueue_event(&early).await.unwrap() })
    };
    crate::support::until("the second producer waits", async || {
        db.count("pg_locks WHERE NOT granted").await > 0
    })
    .await;
    assert!(db.claim_events("w", 50).await.is_empty(), "nothing is committed");
    run(&mut slow, "COMMIT").await.unwrap();
    other.await.unwrap();
    assert_eq!(db.publish_all("w").await, [late.event_id(), early.event_id()]);
}

#[tokio::test]
async fn the_producers_view_tells_where_an_event_stands() {
    let db = TestDb::new().await;
    let ids = db.tell_of("k", 2).await;
    let stands = async || {
        db.one::<String>(
            "SELECT string_agg(state || ' ' || attempts || ' ' || coalesce(\"lastError\", '-') || ' ' || (next_attempt IS NOT NULL), ', ' ORDER BY log_position) FROM event_outbox",
        )
        .await
    };
    assert_eq!(stands().await, "PENDING 0 - true, PENDING 0 - true");
    let events = db.claim_events("w", 50).await;
    db.report("w", &[(&events[0], super::RETRYABLE)]).await;
    assert_eq!(stands().await, "PENDING 1 - true, PENDING 0 - false");
    db.make_keys_due().await;
    db.publish_all("w").await;
    assert_eq!(stands().await, "SENT 2 - false, SENT 1 - false");
    assert_eq!(db.event_ledger(ids[0]).await, ["0.1 RETRYABLE", "0.2 DISPATCHED"]);
    let columns: String = db
        .one("SELECT string_agg(attname, ',' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'event_outbox'::regclass AND attnum BETWEEN 1 AND 9")
        .await;
    assert_eq!(
        columns,
        "id,eventType,payload,state,attempts,lastError,next_attempt,createdAt,updatedAt"
    );
}

#[tokio::test]
async fn a_key_stays_in_its_bucket_whatever_the_server() {
    let db = TestDb::new().await;
    // The first byte of the key's SHA-256: computed elsewhere.
    for (key, bucket) in [("tr_123", 0x6b), ("k", 0x82), ("ä", 0x33)] {
        let found: i16 = db.one(&format!("SELECT symphony.event_bucket('{key}')")).await;
        assert_eq!(found, bucket, "{key}");
    }
}
