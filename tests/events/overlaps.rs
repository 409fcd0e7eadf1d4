//! Producers whose transactions overlap without end, and one of very many calls: others' events go out all the same,
//! and the server's lock table stays as it is.

use sqlx::PgConnection;
use symphony::event::Event;
use uuid::Uuid;

use super::event;
use crate::support::{TestDb, payment, run};

struct Producer(PgConnection);

impl Producer {
    async fn begin(db: &TestDb) -> Self {
        let mut connection = db.as_role("symphony_ingest").await;
        run(&mut connection, "BEGIN").await.unwrap();
        Self(connection)
    }

    async fn tell(&mut self, keys: &[String]) -> Vec<Uuid> {
        let events: Vec<Event> = keys.iter().map(|key| event(key, 1)).collect();
        let answers = symphony::events::enqueue_batch(&mut self.0, &events).await.unwrap();
        answers.into_iter().map(|answer| answer.unwrap().event_id).collect()
    }

    async fn commit(mut self) {
        run(&mut self.0, "COMMIT").await.unwrap();
    }

    /// Advisory locks of its own transaction.
    async fn locks(&mut self) -> i64 {
        let sql =
            "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'";
        sqlx::query_scalar(sql).fetch_one(&mut self.0).await.unwrap()
    }
}

impl TestDb {
    /// Whoever is open has been so for half a second; and what can be published is.
    async fn publish_after_half_a_second(&self) -> Vec<Uuid> {
        let mut published = Vec::new();
        // An epoch begins, and is passed itself.
        for _ in 0..2 {
            self.sql("SELECT setval('event_outbox_epoch_began_ms', 0)").await;
            published.extend(self.publish_all("w").await);
        }
        published.sort_unstable();
        published
    }

    /// So many keys of the group of buckets of that one, or of none of its.
    async fn keys_of_group(
        &self,
        key: &str,
        same: bool,
        prefix: &str,
        count: usize,
    ) -> Vec<String> {
        let is = if same { "=" } else { "<>" };
        let sql = format!(
            "SELECT array_agg(k) FROM (SELECT k FROM generate_series(1, 100000) n, LATERAL (SELECT '{prefix}_' || n AS k) k \
              WHERE event_bucket(k) / 8 {is} event_bucket('{key}') / 8 LIMIT {count}) k"
        );
        self.one(&sql).await
    }
}

fn sorted(mut ids: Vec<Uuid>) -> Vec<Uuid> {
    ids.sort_unstable();
    ids
}

#[tokio::test]
async fn of_producers_that_overlap_without_end_each_delays_others_until_it_ends_and_no_longer() {
    let db = TestDb::new().await;
    let many = |n: usize| (0..100).map(|key| format!("relay_{n}_{key}")).collect::<Vec<_>>();
    let mut open = Producer::begin(&db).await;
    let mut told = open.tell(&many(0)).await;
    let mut waiting = Vec::new();
    for n in 1..8 {
        let mut next = Producer::begin(&db).await;
        let told_next = next.tell(&many(n)).await;
        // Behind the first event of the next one: it waits until that has ended, and not for whoever comes after it.
        let late = open.tell(&[format!("late_{n}")]).await;
        assert!(
            db.publish_after_half_a_second().await.is_empty(),
            "round {n}: all of it is undecided"
        );
        open.commit().await;
        told.extend(waiting);
        assert_eq!(db.publish_after_half_a_second().await, sorted(told), "round {n}");
        (open, told, waiting) = (next, told_next, late);
    }
    open.commit().await;
    told.extend(waiting);
    assert_eq!(sorted(db.publish_all("w").await), sorted(told));
    db.assert_events_hold().await;
}

#[tokio::test]
async fn one_that_stays_open_holds_its_own_groups_while_strangers_overlap_beside_it() {
    let db = TestDb::new().await;
    let mut long = Producer::begin(&db).await;
    long.tell(&["long".to_owned()]).await;
    let far = db.keys_of_group("long", false, "far", 8).await;
    let near = db.keys_of_group("long", true, "near", 1).await;
    db.tell_of(&near[0], 1).await;
    let mut open = Producer::begin(&db).await;
    let mut told = open.tell(&far[..1]).await;
    for key in far.chunks(1).skip(1) {
        let mut next = Producer::begin(&db).await;
        let told_next = next.tell(key).await;
        assert!(db.publish_after_half_a_second().await.is_empty());
        open.commit().await;
        assert_eq!(db.publish_after_half_a_second().await, told);
        (open, told) = (next, told_next);
    }
    open.commit().await;
    assert_eq!(db.publish_after_half_a_second().await, told);
    long.commit().await;
    assert_eq!(db.publish_all("w").await.len(), 2, "its own, and what was behind it");
    db.assert_events_hold().await;
}

#[tokio::test]
async fn a_producer_of_very_many_calls_holds_few_locks_beside_a_worker_that_claims() {
    let db = TestDb::new().await;
    let mut many = Producer::begin(&db).await;
    for call in 0..1_500 {
        many.tell(&[format!("key_{}", call % 300)]).await;
        if call % 15 == 0 {
            // Each of these looks begins a new epoch.
            db.tell_of(&format!("other_{call}"), 1).await;
            db.publish_after_half_a_second().await;
        }
    }
    let epochs: i64 = db.one("SELECT last_value FROM event_outbox_epoch").await;
    assert!(epochs >= 100, "{epochs}");
    let locks = many.locks().await;
    assert!(locks <= 32 + 3, "{locks}: its groups, its epoch, its position and one hint");
    many.commit().await;
    assert_eq!(db.count("event_outbox_log").await, 1_600);
    db.publish_after_half_a_second().await;
    assert_eq!(db.count("event_outbox_attempts").await, 1_600);
    db.assert_events_hold().await;
}

#[tokio::test]
async fn a_producer_of_payments_takes_one_hint_however_long_it_calls() {
    let db = TestDb::new().await;
    let mut many = Producer::begin(&db).await;
    let started = std::time::Instant::now();
    // A dozen slots of 50 ms.
    for n in 0.. {
        symphony::payments::enqueue(&mut many.0, &payment(&format!("i{n}"), "p", "ach"))
            .await
            .unwrap();
        if started.elapsed().as_millis() > 600 {
            break;
        }
    }
    assert_eq!(many.locks().await, 1);
    many.commit().await;
}

#[tokio::test]
async fn a_hint_that_went_with_its_savepoint_is_given_again() {
    let db = TestDb::new().await;
    let mut listener = sqlx::postgres::PgListener::connect_with(db.database.pool()).await.unwrap();
    listener.listen("event_outbox_pending").await.unwrap();
    let mut open = Producer::begin(&db).await;
    run(&mut open.0, "SAVEPOINT one").await.unwrap();
    open.tell(&["gone".to_owned()]).await;
    run(&mut open.0, "ROLLBACK TO one").await.unwrap();
    assert_eq!(open.locks().await, 0);
    open.tell(&["kept".to_owned()]).await;
    assert_eq!(open.locks().await, 4, "group, position, epoch, hint");
    open.commit().await;
    let heard = tokio::time::timeout(std::time::Duration::from_secs(10), listener.recv()).await;
    assert_eq!(heard.expect("a wake-up").unwrap().channel(), "event_outbox_pending");
}

#[tokio::test]
async fn a_position_that_needs_more_than_31_bits_is_told_apart() {
    let db = TestDb::new().await;
    for before in [2_147_483_640_i64, 2_147_483_700, 5_000_000_000, 2_199_023_255_550] {
        db.sql(&format!("SELECT setval('event_outbox_position', {before})")).await;
        let mut open = Producer::begin(&db).await;
        let own = open.tell(&[format!("open_{before}")]).await;
        let near =
            db.keys_of_group(&format!("open_{before}"), true, &format!("near_{before}"), 20).await;
        for key in &near {
            db.tell_of(key, 1).await;
        }
        assert!(db.publish_after_half_a_second().await.is_empty());
        let since: i64 = db.one("SELECT since FROM registered_event_producers((SELECT last_value FROM event_outbox_epoch))").await;
        assert_eq!(since, before);
        open.commit().await;
        assert_eq!(db.publish_after_half_a_second().await.len(), own.len() + near.len());
    }
}
