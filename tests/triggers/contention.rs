//! What many write at once, in SQL: numbers that are added to, comparisons, reads that have changed, entries with an end,
//! and locks that somebody holds.

use serde_json::{Value, json};
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use super::{Item, manifest};
use crate::support::{TestDb, run, until};

/// `count` items of a queue, held by `w`.
async fn with_items(count: usize) -> (TestDb, Vec<Item>) {
    let db = TestDb::new().await;
    db.push("shop", &manifest(&[("q", "queue", "jobs"), ("k", "kv", "watched")])).await;
    for n in 0..count {
        assert!(db.send("shop", "jobs", &json!(n)).await);
    }
    let items = db.claim_items("w", 100).await;
    assert_eq!(items.len(), count);
    (db, items)
}

/// Complete items in one call, each with its effects and reads; answers the results.
async fn complete_on(
    connection: &mut PgConnection,
    items: &[(&Item, Value, Value)],
    lock_wait_ms: i32,
) -> Result<Vec<String>, sqlx::Error> {
    let rows = sqlx::query(
        "SELECT result || coalesce(' ' || state || coalesce(' ' || error_code, ''), '') AS answer \
         FROM complete_trigger_outbox_attempts(p_worker_id => 'w', p_ids => $1, p_lease_tokens => $2, \
              p_states => array_fill('DISPATCHED'::text, ARRAY[cardinality($1)]), p_results => NULL, p_effects => $3, \
              p_reads => $4, p_lock_wait_ms => $5) ORDER BY item_no",
    )
    .bind(items.iter().map(|(item, ..)| item.id).collect::<Vec<_>>())
    .bind(items.iter().map(|(item, ..)| item.token).collect::<Vec<_>>())
    .bind(items.iter().map(|(_, effects, _)| effects.clone()).collect::<Vec<_>>())
    .bind(items.iter().map(|(.., reads)| reads.clone()).collect::<Vec<_>>())
    .bind(lock_wait_ms)
    .fetch_all(connection)
    .await?;
    Ok(rows.iter().map(|row| row.get("answer")).collect())
}

async fn complete(db: &TestDb, items: &[(&Item, Value, Value)]) -> Vec<String> {
    complete_on(&mut db.as_role("symphony_executor").await, items, 1_000).await.unwrap()
}

/// An entry as a script reads it.
async fn read(db: &TestDb, key: &str) -> Value {
    let sql = "SELECT (SELECT entry_no || '.' || version FROM kv_entries WHERE key = ";
    let version: Option<String> = db.one(&format!("{sql}'{key}')")).await;
    json!({ "key": key, "version": version })
}

fn set(key: &str, value: i32) -> Value {
    json!({ "kind": "kv_set", "key": key, "value": value })
}

#[tokio::test]
async fn numbers_are_added_to_in_the_completing_transaction() {
    let (db, items) = with_items(5).await;
    let add = |by: i32| json!({ "kind": "kv_increment", "key": "n", "by": by });
    let all: Vec<_> =
        items[..2].iter().map(|item| (item, json!([add(2), add(3)]), json!([]))).collect();
    assert_eq!(complete(&db, &all).await, ["OK DISPATCHED", "OK DISPATCHED"]);
    assert_eq!(db.kv("n").await, Some(json!(10)));
    // What was set first is added to, and what is set last counts.
    let mixed = json!([add(1), set("n", 40), add(2)]);
    assert_eq!(complete(&db, &[(&items[2], mixed, json!([]))]).await, ["OK DISPATCHED"]);
    assert_eq!(db.kv("n").await, Some(json!(42)));
    db.kv_set("shop", "n", &json!("text")).await;
    let settled = db.settle("w", &items[3], "DISPATCHED", json!([add(1)])).await;
    assert_eq!(settled.outcome, "FAILED EFFECT_REFUSED", "text is no number");
    assert_eq!(db.kv("n").await, Some(json!("text")));
    let settled = db
        .settle(
            "w",
            &items[4],
            "DISPATCHED",
            json!([{"kind": "kv_increment", "key": "n", "by": "1"}]),
        )
        .await;
    assert_eq!(settled.outcome, "FAILED EFFECT_REFUSED");
}

#[tokio::test]
async fn a_run_whose_reads_have_changed_applies_nothing_and_is_still_held() {
    let (db, items) = with_items(3).await;
    db.kv_set("shop", "n", &json!(1)).await;
    let (n, absent) = (read(&db, "n").await, read(&db, "absent").await);
    // All three in one call: only the one in the middle has read what is not so any more.
    db.kv_set("shop", "m", &json!(1)).await;
    let m = read(&db, "m").await;
    db.kv_set("shop", "m", &json!(2)).await;
    let all = [
        (&items[0], json!([set("a", 1)]), json!([n, absent])),
        (&items[1], json!([set("b", 1)]), json!([m])),
        (&items[2], json!([set("n", 2)]), json!([n])),
    ];
    assert_eq!(complete(&db, &all).await, ["OK DISPATCHED", "P7011", "OK DISPATCHED"]);
    assert_eq!((db.kv("a").await, db.kv("b").await), (Some(json!(1)), None));
    assert_eq!(db.kv("n").await, Some(json!(2)));
    assert_eq!(db.item_ledger(items[1].id).await, [""; 0], "nothing is in the ledger");
    // The same by itself, then with what is so now.
    let stale = (&items[1], json!([set("b", 1)]), json!([m]));
    assert_eq!(complete(&db, &[stale]).await, ["P7011"]);
    let m = read(&db, "m").await;
    assert_eq!(
        complete(&db, &[(&items[1], json!([set("b", 1)]), json!([m]))]).await,
        ["OK DISPATCHED"]
    );
    db.assert_items_hold().await;
}

#[tokio::test]
async fn an_entry_that_was_deleted_and_made_again_has_changed() {
    let (db, items) = with_items(1).await;
    db.kv_set("shop", "n", &json!(1)).await;
    let n = read(&db, "n").await;
    db.sql("SELECT kv_delete('shop', 'n'); SELECT kv_set('shop', 'n', '2')").await;
    assert_eq!(db.one::<i64>("SELECT version FROM kv_entries").await, 1, "it counts from 1 again");
    assert_eq!(complete(&db, &[(&items[0], json!([set("n", 2)]), json!([n]))]).await, ["P7011"]);
    assert_eq!(db.kv("n").await, Some(json!(2)));
}

#[tokio::test]
async fn a_list_to_which_a_key_was_added_has_changed() {
    let (db, items) = with_items(2).await;
    for key in ["order/1", "order/2", "other"] {
        db.kv_set("shop", key, &json!(1)).await;
    }
    let list = async |after: Option<&str>, limit: i32| {
        let listing: String = db
            .one(&format!(
                "SELECT symphony.kv_listing(id, 'order/', {}, {limit}) FROM apps",
                after.map_or("NULL".to_owned(), |after| format!("'{after}'"))
            ))
            .await;
        json!({ "prefix": "order/", "after": after, "limit": limit, "listing": listing })
    };
    let (whole, page, rest) =
        (list(None, 100).await, list(None, 2).await, list(Some("order/2"), 100).await);
    db.kv_set("shop", "order/3", &json!(1)).await;
    let effects = || json!([set("count", 2)]);
    assert_eq!(complete(&db, &[(&items[0], effects(), json!([whole]))]).await, ["P7011"]);
    assert_eq!(complete(&db, &[(&items[0], effects(), json!([rest]))]).await, ["P7011"]);
    assert_eq!(complete(&db, &[(&items[0], effects(), json!([page]))]).await, ["OK DISPATCHED"]);
    let whole = list(None, 100).await;
    assert_eq!(complete(&db, &[(&items[1], effects(), json!([whole]))]).await, ["OK DISPATCHED"]);
}

/// Two transactions, each completing one item, the second while the first is open.
async fn one_after_another(
    db: &TestDb,
    first: (&Item, Value, Value),
    second: (&Item, Value, Value),
) -> Vec<String> {
    let mut open = db.as_role("symphony_executor").await;
    run(&mut open, "BEGIN").await.unwrap();
    let mut answers = complete_on(&mut open, &[first], 1_000).await.unwrap();
    let (item, effects, reads) = (second.0.clone(), second.1, second.2);
    let mut other = db.as_role("symphony_executor").await;
    let waiting = tokio::spawn(async move {
        complete_on(&mut other, &[(&item, effects, reads)], 10_000).await.unwrap()
    });
    until("the second waits for the first", async || {
        db.count("pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
            .await
            == 1
    })
    .await;
    run(&mut open, "COMMIT").await.unwrap();
    answers.extend(waiting.await.unwrap());
    answers
}

#[tokio::test]
async fn of_two_that_each_write_what_the_other_has_read_one_runs_again() {
    let (db, items) = with_items(4).await;
    db.kv_set("shop", "x", &json!(0)).await;
    db.kv_set("shop", "y", &json!(0)).await;
    let (x, y) = (read(&db, "x").await, read(&db, "y").await);
    let answers = one_after_another(
        &db,
        (&items[0], json!([set("x", 1)]), json!([y])),
        (&items[1], json!([set("y", 1)]), json!([x])),
    )
    .await;
    assert_eq!(answers, ["OK DISPATCHED", "P7011"]);
    // The same with entries that are not there: there is nothing to lock.
    let (a, b) = (read(&db, "a").await, read(&db, "b").await);
    let answers = one_after_another(
        &db,
        (&items[2], json!([set("a", 1)]), json!([b])),
        (&items[3], json!([set("b", 1)]), json!([a])),
    )
    .await;
    assert_eq!(answers, ["OK DISPATCHED", "P7011"]);
    assert_eq!(db.kv("b").await, None);
}

#[tokio::test]
async fn where_two_race_to_write_a_new_key_what_the_second_has_read_is_still_so_or_it_runs_again() {
    let (db, items) = with_items(6).await;
    // The second has read that nobody cancelled: the first, which does just that, has not committed yet.
    let cancel = |n: i32| json!([set(&format!("cancelled/{n}"), 1), set(&format!("state/{n}"), 2)]);
    for (n, first_reads) in [(1, json!([])), (2, json!([read(&db, "cancelled/2").await]))] {
        let place = usize::try_from(n).unwrap() * 2 - 2;
        let not_cancelled = read(&db, &format!("cancelled/{n}")).await;
        let answers = one_after_another(
            &db,
            (&items[place], cancel(n), first_reads),
            (&items[place + 1], json!([set(&format!("state/{n}"), 7)]), json!([not_cancelled])),
        )
        .await;
        assert_eq!(answers, ["OK DISPATCHED", "P7011"], "pair {n}");
        assert_eq!(db.kv(&format!("state/{n}")).await, Some(json!(2)), "pair {n}");
    }
    // What has read nothing runs once, whoever came first.
    let answers = one_after_another(
        &db,
        (&items[4], json!([set("new", 1)]), json!([])),
        (&items[5], json!([set("new", 2)]), json!([])),
    )
    .await;
    assert_eq!(answers, ["OK DISPATCHED", "OK DISPATCHED"]);
    assert_eq!(db.kv("new").await, Some(json!(2)));
}

#[tokio::test]
async fn blind_writes_of_one_key_in_one_call_are_one_after_another_and_each_fires() {
    let (db, items) = with_items(5).await;
    let add = json!({ "kind": "kv_increment", "key": "watched", "by": 2 });
    let delete = json!({ "kind": "kv_delete", "key": "watched" });
    let writes = [add.clone(), add.clone(), set("watched", 40), delete, add];
    let all: Vec<_> =
        items.iter().zip(writes).map(|(item, write)| (item, json!([write]), json!([]))).collect();
    assert_eq!(complete(&db, &all).await, ["OK DISPATCHED"; 5]);
    let fired = db.claim_items("w", 10).await;
    let changes: Vec<_> = fired
        .iter()
        .map(|item| (item.payload["previous"].clone(), item.payload["value"].clone()))
        .collect();
    let values = [json!(null), json!(2), json!(4), json!(40), json!(null), json!(2)];
    let expected: Vec<_> =
        values.windows(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    assert_eq!(changes, expected);
    let roots: Vec<_> = fired.iter().map(|item| item.root).collect();
    assert_eq!(roots, items.iter().map(|item| item.root).collect::<Vec<_>>(), "each its own");
    assert_eq!(db.kv("watched").await, Some(json!(2)));
    db.assert_items_hold().await;
}

#[tokio::test]
async fn a_comparison_is_decided_by_the_value_when_it_is_applied() {
    let (db, items) = with_items(5).await;
    let compare = |expected: Value| json!([{ "kind": "kv_compare_and_set", "key": "k", "expected": expected, "value": "taken" }]);
    let absent = json!([{ "kind": "kv_set_if_absent", "key": "new", "value": 1 }]);
    db.kv_set("shop", "k", &json!({ "a": 1, "b": [1.0] })).await;
    // Written in between, but as expected.
    db.kv_set("shop", "k", &json!({ "b": [1], "a": 1 })).await;
    let expected = json!({ "a": 1.0, "b": [1] });
    assert_eq!(
        complete(&db, &[(&items[0], compare(expected.clone()), json!([]))]).await,
        ["OK DISPATCHED"]
    );
    assert_eq!(complete(&db, &[(&items[1], compare(expected), json!([]))]).await, ["P7011"]);
    assert_eq!(
        complete(&db, &[(&items[1], compare(json!("taken")), json!([]))]).await,
        ["OK DISPATCHED"]
    );
    let answers = one_after_another(
        &db,
        (&items[2], absent.clone(), json!([])),
        (&items[3], absent, json!([])),
    )
    .await;
    assert_eq!(answers, ["OK DISPATCHED", "P7011"], "the second was told that there is none");
    let version = read(&db, "k").await["version"].clone();
    let by_version = |version: Value| json!([{ "kind": "kv_compare_and_set", "key": "k", "version": version, "value": 2 }]);
    assert_eq!(complete(&db, &[(&items[4], by_version(json!("0.1")), json!([]))]).await, ["P7011"]);
    assert_eq!(
        complete(&db, &[(&items[4], by_version(version), json!([]))]).await,
        ["OK DISPATCHED"]
    );
    assert_eq!(db.kv("k").await, Some(json!(2)));
}

#[tokio::test]
async fn an_entry_whose_time_is_over_is_not_there_and_repair_removes_it() {
    let (db, items) = with_items(3).await;
    let effects = json!([
        { "kind": "kv_set", "key": "watched", "value": 1, "ttlSeconds": 60 },
        { "kind": "kv_increment", "key": "n", "by": 1, "ttlSeconds": 60 },
    ]);
    assert_eq!(complete(&db, &[(&items[0], effects.clone(), json!([]))]).await, ["OK DISPATCHED"]);
    let left = "SELECT bool_and(expires_at BETWEEN clock_timestamp() AND clock_timestamp() + INTERVAL '60 seconds') FROM kv_entries";
    assert!(db.one::<bool>(left).await);
    let watched = read(&db, "watched").await;
    db.sql("UPDATE kv_entries SET expires_at = clock_timestamp() - INTERVAL '1 second'").await;
    assert_eq!(
        complete(&db, &[(&items[1], json!([set("a", 1)]), json!([watched]))]).await,
        ["P7011"]
    );
    let gone = json!({ "key": "watched", "version": null });
    assert_eq!(complete(&db, &[(&items[1], effects, json!([gone]))]).await, ["OK DISPATCHED"]);
    assert_eq!(db.kv("n").await, Some(json!(1)), "it begins anew");
    let fired = db.claim_items("w", 10).await;
    assert!(fired.iter().all(|item| item.payload["previous"] == json!(null)), "{fired:?}");
    db.sql("UPDATE kv_entries SET expires_at = clock_timestamp() - INTERVAL '1 second'").await;
    db.one_as::<i64>(
        "symphony_executor",
        "SELECT count(*) FROM repair_trigger_outbox_leases(10, 'r')",
    )
    .await;
    assert_eq!(db.count("kv_entries").await, 0);
    assert_eq!(
        db.count("trigger_outbox_pending WHERE lease_token IS NULL").await,
        0,
        "its end fires nothing"
    );
    let bad = json!([{ "kind": "kv_set", "key": "a", "value": 1, "ttlSeconds": 0 }]);
    assert_eq!(db.settle("w", &items[2], "DISPATCHED", bad).await.outcome, "FAILED EFFECT_REFUSED");
}

/// An app with a route, and one request to it that `w` runs.
async fn with_request() -> (TestDb, Item) {
    let db = TestDb::new().await;
    let mut shop = manifest(&[]);
    shop["routes"] = json!([{ "method": "POST", "path": "/", "script": "run" }]);
    db.push("shop", &shop).await;
    db.request("shop", Uuid::new_v4()).await;
    let item = db.claim_item("w").await;
    (db, item)
}

/// What whoever waited is told: whether nothing came of it, and the code or the answer.
async fn expire(db: &TestDb, id: Uuid) -> String {
    db.one_as(
        "symphony_executor",
        &format!("SELECT expired || ' ' || coalesce(error_code, result::text) FROM expire_trigger_reply('{id}', 5000)"),
    )
    .await
}

#[tokio::test]
async fn after_a_client_was_told_that_nothing_came_of_it_nothing_does() {
    let (db, item) = with_request().await;
    assert_eq!(expire(&db, item.id).await, "true REPLY_DEADLINE");
    let settled = db.settle("w", &item, "DISPATCHED", json!([set("a", 1)])).await;
    assert_eq!(settled.outcome, "FAILED REPLY_DEADLINE");
    assert_eq!(db.kv("a").await, None);
    assert_eq!(expire(&db, item.id).await, "false REPLY_DEADLINE");
    assert_eq!(expire(&db, Uuid::new_v4()).await, "true REQUEST_LOST");
}

#[tokio::test]
async fn a_completion_that_is_being_committed_is_waited_for_and_its_answer_is_the_answer() {
    for (end, expected) in [("COMMIT", "false {\"ok\": true}"), ("ROLLBACK", "true REPLY_DEADLINE")]
    {
        let (db, item) = with_request().await;
        let mut worker = db.as_role("symphony_executor").await;
        run(&mut worker, "BEGIN").await.unwrap();
        let effects = json!([set("a", 1)]);
        super::settle_on(&mut worker, "w", &item, "DISPATCHED", &effects).await.unwrap();
        let told = async {
            until("the client's process waits", async || {
                db.count("pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").await == 1
            })
            .await;
            run(&mut worker, end).await.unwrap();
        };
        let (told, ()) = tokio::join!(expire(&db, item.id), told);
        assert_eq!(told, expected, "{end}");
    }
}

#[tokio::test]
async fn what_somebody_holds_is_waited_for_only_as_long_as_said() {
    let (db, items) = with_items(2).await;
    db.kv_set("shop", "held", &json!(0)).await;
    let mut holder = db.admin().await;
    run(&mut holder, "BEGIN; SELECT * FROM kv_entries WHERE key = 'held' FOR UPDATE")
        .await
        .unwrap();
    let mut worker = db.as_role("symphony_executor").await;
    let both = [
        (&items[0], json!([set("held", 1)]), json!([])),
        (&items[1], json!([set("free", 1)]), json!([])),
    ];
    let refused = complete_on(&mut worker, &both, 50).await.unwrap_err();
    assert_eq!(refused.as_database_error().unwrap().code().unwrap(), "55P03");
    assert_eq!(complete_on(&mut worker, &both[1..], 50).await.unwrap(), ["OK DISPATCHED"]);
    run(&mut holder, "ROLLBACK").await.unwrap();
    assert_eq!(complete_on(&mut worker, &both[..1], 50).await.unwrap(), ["OK DISPATCHED"]);
}

#[tokio::test]
async fn a_deadline_that_passes_while_effects_wait_for_a_lock_is_kept() {
    let (db, item) = with_request().await;
    db.kv_set("shop", "held", &json!(0)).await;
    db.sql("UPDATE trigger_outbox_pending SET reply_deadline_at = clock_timestamp() + INTERVAL '300 ms'").await;
    let mut holder = db.admin().await;
    run(&mut holder, "BEGIN; SELECT * FROM kv_entries WHERE key = 'held' FOR UPDATE")
        .await
        .unwrap();
    let mut worker = db.as_role("symphony_executor").await;
    let outcome = [(&item, json!([set("held", 1)]), json!([]))];
    // It may wait a minute, but not past the deadline.
    let refused = complete_on(&mut worker, &outcome, 60_000).await.unwrap_err();
    assert_eq!(refused.as_database_error().unwrap().code().unwrap(), "55P03");
    run(&mut holder, "ROLLBACK").await.unwrap();
    assert_eq!(
        complete_on(&mut worker, &outcome, 1_000).await.unwrap(),
        ["OK FAILED REPLY_DEADLINE"]
    );
    assert_eq!(db.kv("held").await, Some(json!(0)));
}
