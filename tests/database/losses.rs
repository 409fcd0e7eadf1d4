//! Across the loss of a database: keys that outlive rows, servers that are noticed to be others, endpoints that are not
//! mixed up. A loss is made by setting a row back, or by rolling back what a client was told; real failovers and restores
//! are in `borders`.

use sqlx::Connection as _;
use sqlx::types::Uuid;
use symphony::db::{Beat, DbError, PaymentClaim, ServerState};
use symphony::domain::{Outcome, Resolution};

use crate::support::{TestDb, act, payment};

const CLAIM: &str = "SELECT outbox_id, rail_key FROM claim_outbox_batch(10, 'w', 60)";
const ENQUEUE: &str = r#"SELECT outbox_id FROM enqueue_payment_outbox('inv-1', 'acme', 'k', 'sepa',
    '{"amount": {"value": "10.00", "currency": "EUR"}}')"#;

#[tokio::test]
async fn a_payment_that_was_lost_and_asked_for_again_goes_out_under_the_same_key() {
    let db = TestDb::new().await;
    let mut connection = db.admin().await;
    // A commit that no later server knows.
    let mut lost = connection.begin().await.unwrap();
    sqlx::raw_sql(ENQUEUE).execute(&mut *lost).await.unwrap();
    let (lost_id, lost_key): (Uuid, Uuid) =
        sqlx::query_as(CLAIM).fetch_one(&mut *lost).await.unwrap();
    lost.rollback().await.unwrap();

    sqlx::raw_sql(ENQUEUE).execute(&mut connection).await.unwrap();
    let (id, key): (Uuid, Uuid) = sqlx::query_as(CLAIM).fetch_one(&mut connection).await.unwrap();
    assert_ne!(id, lost_id, "another row");
    assert_eq!(key, lost_key, "the same key");
    assert_eq!(key.get_version_num(), 8);
    assert_eq!(db.one::<Uuid>(&format!("SELECT payment_rail_key('{id}')")).await, key);
    assert_eq!(db.one::<Uuid>(&format!("SELECT * FROM payment_by_rail_key('{key}')")).await, id);
}

#[tokio::test]
async fn keys_differ_by_instruction_key_redrive_and_installation() {
    let db = TestDb::new().await;
    let first = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    let item = db.claim_one("w").await;
    db.complete("w", item.lease(), Outcome::Failed).await.unwrap();
    let redriven =
        db.database.operator().redrive_payment(first, &act()).await.unwrap().redriven_as.unwrap();
    let again = db.claim_one("w").await;
    assert_eq!(again.outbox_id, redriven);
    assert_ne!(again.rail_key, item.rail_key);
    // Neither a longer instruction with a shorter key, nor another installation, has the same.
    let derive = |of: &str| format!("SELECT symphony.derive_key({of})");
    let a = db.one::<Uuid>(&derive("'00000000-0000-0000-0000-000000000001', 'ab', 'c', 0")).await;
    for other in [
        "'00000000-0000-0000-0000-000000000001', 'a', 'bc', 0",
        "'00000000-0000-0000-0000-000000000001', 'ab', 'c', 1",
        "'00000000-0000-0000-0000-000000000002', 'ab', 'c', 0",
    ] {
        assert_ne!(db.one::<Uuid>(&derive(other)).await, a, "{other}");
    }
}

/// Claims of every lane.
const CLAIMS: [&str; 3] = [
    "SELECT count(*) FROM claim_outbox_batch(10, 'w', 60)",
    "SELECT count(*) FROM claim_event_outbox_batch(10, 'w', 60)",
    "SELECT count(*) FROM claim_trigger_outbox_batch(10, 'w', 60)",
];

async fn assert_refused(db: &TestDb) {
    for claim in CLAIMS {
        let answer = sqlx::query_scalar::<_, i64>(claim).fetch_one(&mut db.admin().await).await;
        let error = DbError::from(answer.unwrap_err());
        assert!(matches!(error, DbError::OtherServer { .. }), "{claim}: {error}");
    }
}

#[tokio::test]
async fn on_another_server_no_lane_hands_out_work_until_a_person_accepts_it() {
    let db = TestDb::new().await;
    db.enqueue_stream("acme", "sepa", 3).await;
    db.database
        .operator()
        .configure_rail("blind", &act(), None, None, Some(true), None)
        .await
        .unwrap();
    db.enqueue_stream("acme", "blind", 2).await;
    // As after a restore into another cluster.
    db.sql("UPDATE symphony_installation SET system_identifier = 1").await;
    assert_refused(&db).await;
    let (state, beat) = beat(&db, None).await;
    assert!(matches!(state, ServerState::Held { .. }), "{state:?}");
    assert_eq!(beat, None, "nothing is counted on meanwhile");

    let dry_run = symphony::domain::Act { dry_run: true, ..act() };
    let would = db.database.operator().accept_server(&dry_run, None, 3_600).await.unwrap();
    assert_eq!((would.payments_to_ask, would.payments_to_park), (3, 2));
    assert_refused(&db).await;
    db.database.operator().accept_server(&act(), None, 3_600).await.unwrap();
    let items = db.claim("w", 10).await;
    assert_eq!(items.len(), 5);
    assert!(items.iter().all(|item| item.must_inquire && item.endpoint.is_none()));
    assert_eq!(
        db.count("payment_outbox_events WHERE event_type = 'SERVER_ACCEPTED' AND actor = 'dana'")
            .await,
        1
    );

    // What is asked for again may have been sent before, too.
    db.enqueue(&payment("lost", "acme", "sepa")).await;
    let again = db.claim_one("w").await;
    assert!(again.must_inquire && again.asked_again);
    let refused = db.database.operator().accept_server(&act(), None, 3_600).await;
    assert!(matches!(refused, Err(DbError::ActRefused { .. })), "nothing is left to accept");
}

#[tokio::test]
async fn what_a_person_has_cleared_after_a_loss_is_not_doubted_again() {
    let db = TestDb::new().await;
    let id = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    db.sql("UPDATE symphony_installation SET system_identifier = 1").await;
    db.database.operator().accept_server(&act(), None, 3_600).await.unwrap();
    db.database.operator().park_payment(id, &act()).await.unwrap();
    let despite = symphony::domain::Act { despite_unknown: true, ..act() };
    db.database.operator().resolve_payment(id, &Resolution::Retry, &despite).await.unwrap();
    assert!(!db.claim_one("w").await.must_inquire);
}

async fn beat(db: &TestDb, known: Option<Beat>) -> (ServerState, Option<Beat>) {
    db.database.worker().beat_witness(Uuid::from_u128(7), "w", true, known, false).await.unwrap()
}

/// Of another worker, which has no witness on disk.
async fn beat_of_another(db: &TestDb, known: Option<Beat>) -> (ServerState, Option<Beat>) {
    db.database.worker().beat_witness(Uuid::from_u128(8), "v", false, known, false).await.unwrap()
}

/// A witness that was told three numbers, and a payment that waits.
async fn witnessed() -> (TestDb, Beat) {
    let db = TestDb::new().await;
    db.enqueue(&payment("one", "acme", "sepa")).await;
    let mut known = None;
    for number in 1..=3 {
        let (state, told) = beat(&db, known).await;
        assert_eq!((state, told.unwrap().beat_no), (ServerState::Known { news: None }, number));
        known = told;
    }
    (db, known.unwrap())
}

#[tokio::test]
async fn a_database_that_is_hours_behind_its_witness_is_held() {
    let (db, known) = witnessed().await;
    db.sql("UPDATE symphony_witnesses SET beat_no = 1, beat_at = beat_at - INTERVAL '2 hours'")
        .await;
    let (state, _) = beat(&db, Some(known)).await;
    assert!(matches!(state, ServerState::Held { .. }), "{state:?}");
    // The next worker has no witness, and is held all the same.
    assert_refused(&db).await;
    let (state, _) = beat_of_another(&db, None).await;
    assert!(matches!(state, ServerState::Held { .. }), "{state:?}");
    db.database.operator().accept_server(&act(), None, 3_600).await.unwrap();
    let (state, told) = beat(&db, Some(known)).await;
    assert!(matches!(state, ServerState::Known { .. }), "{state:?}");
    assert!(told.unwrap().decided_at > known.decided_at);
    assert!(db.claim_one("w").await.must_inquire);
}

#[tokio::test]
async fn a_database_that_has_lost_moments_goes_on_and_asks_first() {
    let (db, known) = witnessed().await;
    db.sql("UPDATE symphony_witnesses SET beat_no = 2, beat_at = beat_at - INTERVAL '2 seconds'")
        .await;
    let (state, told) = beat(&db, Some(known)).await;
    assert!(matches!(state, ServerState::AskFirst { .. }), "{state:?}");
    assert!(db.claim_one("w").await.must_inquire);
    // Others are told once, and then it is over.
    let (state, _) = beat(&db, told).await;
    assert_eq!(state, ServerState::Known { news: None });
}

#[tokio::test]
async fn a_failover_behind_synchronous_commits_goes_on_unasked_once_every_worker_says_that_it_misses_nothing()
 {
    let (db, known) = witnessed().await;
    let (_, other) = beat_of_another(&db, None).await;
    db.sql("UPDATE symphony_witnesses SET synchronous = true").await;
    // The server on record was the one before the promotion.
    db.sql("UPDATE symphony_installation SET timeline = timeline + 1").await;
    assert_refused(&db).await;
    let (state, _) = beat(&db, Some(known)).await;
    assert!(matches!(state, ServerState::Waiting { .. }), "{state:?}");
    let (state, _) = beat_of_another(&db, other).await;
    assert!(matches!(state, ServerState::Known { news: Some(_) }), "{state:?}");
    assert!(!db.claim_one("w").await.must_inquire);
    assert_eq!(db.count("payment_outbox_events WHERE event_type = 'SERVER_CHANGED'").await, 1);
}

#[tokio::test]
async fn a_failover_to_an_asynchronous_standby_asks_first_what_was_due() {
    let (db, known) = witnessed().await;
    db.sql("UPDATE symphony_installation SET timeline = timeline + 1").await;
    let (state, _) = beat(&db, Some(known)).await;
    assert!(matches!(state, ServerState::AskFirst { .. }), "{state:?}");
    assert!(db.claim_one("w").await.must_inquire);
}

#[tokio::test]
async fn a_worker_that_was_lost_in_a_synchronous_failover_makes_the_others_ask_first() {
    let (db, known) = witnessed().await;
    beat_of_another(&db, None).await;
    db.sql("UPDATE symphony_witnesses SET synchronous = true").await;
    db.sql("UPDATE symphony_installation SET timeline = timeline + 1").await;
    assert!(matches!(beat(&db, Some(known)).await.0, ServerState::Waiting { .. }));
    db.sql("UPDATE symphony_installation SET noticed_at = noticed_at - INTERVAL '2 seconds'").await;
    let (state, _) = beat(&db, Some(known)).await;
    assert!(matches!(state, ServerState::AskFirst { .. }), "{state:?}");
}

#[tokio::test]
async fn on_another_timeline_a_worker_that_has_seen_nothing_decides_nothing_about_an_old_database()
{
    let (db, _) = witnessed().await;
    db.sql("UPDATE symphony_witnesses SET beat_at = beat_at - INTERVAL '1 hour'").await;
    db.sql("UPDATE symphony_installation SET timeline = timeline + 1").await;
    let (state, _) = beat_of_another(&db, None).await;
    assert!(matches!(state, ServerState::Held { .. }), "{state:?}");
    assert_refused(&db).await;
}

#[tokio::test]
async fn an_unmarked_item_of_a_life_that_was_lost_counts_as_sent() {
    let db = TestDb::new().await;
    db.database
        .operator()
        .configure_rail("blind", &act(), None, None, Some(true), None)
        .await
        .unwrap();
    let id = db.enqueue(&payment("one", "acme", "blind")).await.outbox_id;
    db.claim_one("w").await;
    db.sql("UPDATE symphony_installation SET timeline = timeline + 1").await;
    db.sql("INSERT INTO symphony_witnesses VALUES (gen_random_uuid(), 'w', 1, clock_timestamp(), false, NULL, false)").await;
    let (state, _) = beat(&db, None).await;
    assert!(matches!(state, ServerState::AskFirst { .. }), "{state:?}");
    db.expire(id).await;
    assert!(db.claim_one("v").await.must_inquire, "its mark may have been lost");
}

#[tokio::test]
async fn a_claim_waits_for_the_disk_whatever_the_login_is_set_to() {
    let db = TestDb::new().await;
    let mut connection = db.admin().await;
    let mut transaction = connection.begin().await.unwrap();
    sqlx::raw_sql("SET LOCAL synchronous_commit = off").execute(&mut *transaction).await.unwrap();
    sqlx::raw_sql("SELECT * FROM claim_outbox_batch(1, 'w', 60)")
        .execute(&mut *transaction)
        .await
        .unwrap();
    let now: String =
        sqlx::query_scalar("SHOW synchronous_commit").fetch_one(&mut *transaction).await.unwrap();
    assert_eq!(now, "on");
}

async fn claim_for(db: &TestDb, endpoint: &str) -> symphony::db::ClaimedPayment {
    let (rails, endpoints) = (["sepa".to_owned()], [endpoint.to_owned()]);
    let request = PaymentClaim {
        worker_id: "w",
        batch_size: 1,
        lease_seconds: 60,
        rails: Some(&rails),
        due_from: None,
        endpoints: Some(&endpoints),
    };
    db.database.worker().claim_payments(&request).await.unwrap().items.remove(0)
}

#[tokio::test]
async fn what_may_have_been_sent_keeps_its_endpoint_whoever_claims_it_next() {
    let db = TestDb::new().await;
    let id = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    let sent = claim_for(&db, "old").await;
    assert_eq!((sent.must_inquire, sent.endpoint.as_deref()), (false, Some("old")));
    db.complete("w", sent.lease(), Outcome::Unknown).await.unwrap();
    let unknown = claim_for(&db, "new").await;
    assert_eq!((unknown.must_inquire, unknown.endpoint.as_deref()), (true, Some("old")));
    // A worker that dies cannot say where it sent: the claim has said it.
    db.expire(id).await;
    let lost = claim_for(&db, "newer").await;
    assert_eq!(lost.endpoint.as_deref(), Some("old"));
    db.complete("w", lost.lease(), Outcome::Dispatched).await.unwrap();
    let ledger: String = db
        .one(&format!("SELECT string_agg(state || ' ' || endpoint, ', ' ORDER BY attempt_no) FROM payment_outbox_attempts WHERE outbox_id = '{id}'"))
        .await;
    assert_eq!(ledger, "RETRYABLE old, ZOMBIE_REQUEUE old, DISPATCHED old");
}

#[tokio::test]
async fn what_was_surely_not_executed_goes_to_the_present_endpoint() {
    let db = TestDb::new().await;
    db.enqueue(&payment("one", "acme", "sepa")).await;
    let refused = claim_for(&db, "old").await;
    db.complete("w", refused.lease(), Outcome::Retryable).await.unwrap();
    let next = claim_for(&db, "new").await;
    assert_eq!((next.must_inquire, next.endpoint.as_deref()), (false, Some("new")));
}

#[tokio::test]
async fn a_copy_beside_the_original_is_another_database() {
    let db = TestDb::new().await;
    db.sql("UPDATE symphony_installation SET database_oid = 1").await;
    assert_refused(&db).await;
    assert!(matches!(beat(&db, None).await.0, ServerState::Held { .. }));
    db.database.operator().accept_server(&act(), None, 3_600).await.unwrap();
    assert!(matches!(beat(&db, None).await.0, ServerState::Known { .. }));
}

#[tokio::test]
async fn a_witness_of_yesterday_does_not_vouch_for_what_others_did_since() {
    let (db, known) = witnessed().await;
    db.sql(
        "UPDATE symphony_witnesses SET synchronous = true, beat_at = beat_at - INTERVAL '1 day'",
    )
    .await;
    db.sql("UPDATE symphony_installation SET timeline = timeline + 1").await;
    let executor = db.database.worker();
    let (state, _) =
        executor.beat_witness(Uuid::from_u128(7), "w", true, Some(known), true).await.unwrap();
    assert!(matches!(state, ServerState::Held { .. }), "{state:?}");
    // One that lived through the outage would have beaten, had there been anything to beat on.
    let (state, _) = beat(&db, Some(known)).await;
    assert!(matches!(state, ServerState::Known { news: Some(_) }), "{state:?}");
}

#[tokio::test]
async fn after_a_loss_an_item_is_bound_to_the_endpoint_it_is_sent_to_from_then_on() {
    let db = TestDb::new().await;
    db.enqueue(&payment("one", "acme", "sepa")).await;
    db.sql("UPDATE symphony_installation SET system_identifier = 1").await;
    db.database.operator().accept_server(&act(), None, 3_600).await.unwrap();
    let first = claim_for(&db, "old").await;
    assert_eq!((first.must_inquire, first.endpoint.as_deref()), (true, Some("?old")));
    db.complete("w", first.lease(), Outcome::Unknown).await.unwrap();
    assert_eq!(claim_for(&db, "new").await.endpoint.as_deref(), Some("?old"));
}

#[tokio::test]
async fn a_lost_claim_is_decided_upon_once() {
    let (db, known) = witnessed().await;
    db.claim_one("w").await;
    db.sql("DELETE FROM payment_outbox_workers").await;
    let mut known = Some(known);
    for _ in 0..3 {
        let (_, told) = beat(&db, known).await;
        known = told;
    }
    assert_eq!(db.count("payment_outbox_events WHERE event_type = 'SERVER_CHANGED'").await, 1);
}
