//! Asking for payments: idempotency, numbering, batches.

use symphony::db::DbError;
use symphony::domain::{Outcome, Payload};

use crate::events::event;
use crate::support::{TestDb, act, code, enqueue_at, payment, run};

#[tokio::test]
async fn the_first_number_of_a_stream_is_one_and_the_next_follow_without_gap() {
    let db = TestDb::new().await;
    for expected in 1..=5 {
        let enqueued = db.enqueue(&payment(&format!("i{expected}"), "p", "ach")).await;
        assert_eq!(
            (enqueued.sequence_id, enqueued.state.as_str(), enqueued.duplicate),
            (expected, "PENDING", false)
        );
    }
    assert_eq!(db.enqueue(&payment("other", "q", "ach")).await.sequence_id, 1);
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn a_known_request_is_answered_with_its_item_whatever_became_of_it() {
    let db = TestDb::new().await;
    let request = payment("i", "p", "ach");
    let first = db.enqueue(&request).await;
    assert!(!first.duplicate);
    let mut states = vec![db.enqueue(&request).await];
    let item = db.claim_one("w").await;
    states.push(db.enqueue(&request).await);
    db.expire(item.outbox_id).await;
    states.push(db.enqueue(&request).await);
    let item = db.claim_one("w").await;
    db.complete("w", item.lease(), Outcome::Failed).await.unwrap();
    states.push(db.enqueue(&request).await);
    db.database.operator().redrive_payment(first.outbox_id, &act()).await.unwrap();
    states.push(db.enqueue(&request).await);
    let words: Vec<_> = states.iter().map(|known| known.state.as_str()).collect();
    assert_eq!(words, ["PENDING", "IN_FLIGHT", "LEASE_EXPIRED", "FAILED", "REDRIVEN"]);
    for known in &states {
        assert_eq!(
            (known.outbox_id, known.sequence_id, known.created_at),
            (first.outbox_id, 1, first.created_at)
        );
        assert!(known.duplicate);
    }
    // Two instructions: the failed one and its redrive. Asking again wrote nothing.
    assert_eq!(db.count("payment_outbox_instructions").await, 2);
}

#[tokio::test]
async fn a_key_reused_for_another_request_is_refused_and_nothing_is_lost() {
    let db = TestDb::new().await;
    let first = db.enqueue(&payment("i", "p", "ach")).await;
    let mut other_payload = payment("i", "p", "ach");
    other_payload.payload =
        Payload::parse(r#"{"amount": {"value": "10.01", "currency": "EUR"}}"#).unwrap();
    for other in [other_payload, payment("i", "q", "ach"), payment("i", "p", "swift")] {
        let error = db.database.producer().enqueue_payment(&other).await.unwrap_err();
        assert!(matches!(error, DbError::KeyReused { .. }), "{error}");
        let own = other.participant_id == "p";
        assert_eq!(error.to_string().contains(&first.outbox_id.to_string()), own, "{error}");
    }
    assert_eq!(db.count("payment_outbox_instructions").await, 1);
    assert_eq!(
        db.enqueue(&payment("next", "p", "ach")).await.sequence_id,
        2,
        "a refusal uses no number"
    );
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn equal_json_is_the_same_request_whatever_its_layout() {
    let db = TestDb::new().await;
    let mut one = payment("i", "p", "ach");
    one.payload = Payload::parse(r#"{"a": 100, "b": "x"}"#).unwrap();
    let mut same = one.clone();
    same.payload = Payload::parse(r#"{ "b" : "x", "a":1e2 }"#).unwrap();
    let first = db.enqueue(&one).await;
    assert_eq!(db.enqueue(&same).await.outbox_id, first.outbox_id);
}

#[tokio::test]
async fn a_batch_answers_every_item_in_order_and_one_bad_item_fails_no_other() {
    let db = TestDb::new().await;
    let known = db.enqueue(&payment("known", "p", "ach")).await;
    let mut conflicting = payment("known", "p", "ach");
    conflicting.payload = Payload::parse("{}").unwrap();
    let batch = [
        payment("new-1", "p", "ach"),
        payment("known", "p", "ach"),
        payment(" ", "p", "ach"),
        conflicting,
        payment("new-2", "p", "ach"),
        payment("new-1", "p", "ach"),
    ];
    let answers = db.database.producer().enqueue_payments(&batch).await.unwrap();
    let told: Vec<_> = answers
        .iter()
        .map(|answer| match answer {
            Ok(item) => Ok((item.sequence_id, item.duplicate)),
            Err(refusal) => Err(refusal.code()),
        })
        .collect();
    assert_eq!(
        told,
        [Ok((2, false)), Ok((1, true)), Err("P7005"), Err("P7004"), Ok((3, false)), Ok((2, true)),]
    );
    let id = |n: usize| answers[n].as_ref().unwrap().outbox_id;
    assert_eq!(id(1), known.outbox_id);
    assert_eq!(id(5), id(0), "twice in one batch is one item");
    let conflict = answers[3].as_ref().unwrap_err().to_string();
    assert!(conflict.contains(&known.outbox_id.to_string()), "{conflict}");
    assert_eq!(db.count("payment_outbox_pending").await, 3);
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn a_batch_of_new_items_is_numbered_and_claimed_in_the_order_given() {
    let db = TestDb::new().await;
    let batch: Vec<_> =
        (0..500).map(|n| payment(&format!("i{n}"), &format!("p{}", n * 7 % 13), "ach")).collect();
    let answers = db.database.producer().enqueue_payments(&batch).await.unwrap();
    let mut next = std::collections::HashMap::new();
    for (request, answer) in batch.iter().zip(&answers) {
        let number = next.entry(request.participant_id.clone()).or_insert(0);
        *number += 1;
        assert_eq!(answer.as_ref().unwrap().sequence_id, *number);
    }
    let claimed: Vec<_> =
        db.claim("w", 500).await.into_iter().map(|item| item.instruction_id).collect();
    let asked: Vec<_> = batch.into_iter().map(|request| request.instruction_id).collect();
    assert_eq!(claimed, asked);
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn a_repeated_batch_writes_nothing() {
    let db = TestDb::new().await;
    let batch: Vec<_> =
        (0..200).map(|n| payment(&format!("i{n}"), &format!("p{}", n % 5), "ach")).collect();
    let first = db.database.producer().enqueue_payments(&batch).await.unwrap();
    let again = db.database.producer().enqueue_payments(&batch).await.unwrap();
    for (first, again) in first.iter().zip(&again) {
        let (first, again) = (first.as_ref().unwrap(), again.as_ref().unwrap());
        assert_eq!(
            (first.outbox_id, first.sequence_id, true),
            (again.outbox_id, again.sequence_id, again.duplicate)
        );
    }
    assert_eq!(db.count("payment_outbox_instructions").await, 200);
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn a_rolled_back_enqueue_gives_its_number_back() {
    let db = TestDb::new().await;
    let mut connection = db.admin().await;
    run(&mut connection, "BEGIN").await.unwrap();
    assert_eq!(
        symphony::payments::enqueue(&mut connection, &payment("i1", "p", "ach"))
            .await
            .unwrap()
            .sequence_id,
        1
    );
    run(&mut connection, "ROLLBACK").await.unwrap();
    assert_eq!(db.enqueue(&payment("i2", "p", "ach")).await.sequence_id, 1);
    // To a savepoint as well.
    run(&mut connection, "BEGIN; SAVEPOINT s").await.unwrap();
    symphony::payments::enqueue(&mut connection, &payment("i3", "p", "ach")).await.unwrap();
    run(&mut connection, "ROLLBACK TO s").await.unwrap();
    assert_eq!(
        symphony::payments::enqueue(&mut connection, &payment("i4", "p", "ach"))
            .await
            .unwrap()
            .sequence_id,
        2
    );
    run(&mut connection, "COMMIT").await.unwrap();
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn state_and_intent_commit_together_in_the_producers_own_transaction() {
    let db = TestDb::new().await;
    db.sql("CREATE TABLE invoices (id TEXT PRIMARY KEY); CREATE ROLE shop_of_this_test; GRANT symphony_ingest TO shop_of_this_test; \
            GRANT ALL ON invoices TO shop_of_this_test")
        .await;
    let mut shop = db.as_role("shop_of_this_test").await;
    for (invoice, end, expected) in [("kept", "COMMIT", 1), ("dropped", "ROLLBACK", 1)] {
        run(&mut shop, &format!("BEGIN; INSERT INTO invoices VALUES ('{invoice}')")).await.unwrap();
        symphony::payments::enqueue(&mut shop, &payment(invoice, "p", "ach")).await.unwrap();
        run(&mut shop, end).await.unwrap();
        assert_eq!(db.count("invoices").await, expected);
        assert_eq!(db.count("payment_outbox_pending").await, expected);
    }
}

#[tokio::test]
async fn a_plan_made_on_empty_tables_never_reads_a_grown_one_whole() {
    let db = TestDb::new().await;
    db.sql("VACUUM").await;
    db.sql("ANALYZE").await;
    let mut connection = db.admin().await;
    run(&mut connection, "BEGIN").await.unwrap();
    for n in 0..300 {
        symphony::payments::enqueue(&mut connection, &payment(&n.to_string(), "p", "ach"))
            .await
            .unwrap();
        // Each twice: what is known is looked up.
        let event = event("k", n);
        symphony::events::enqueue(&mut connection, &event).await.unwrap();
        symphony::events::enqueue(&mut connection, &event).await.unwrap();
    }
    // Of this transaction, by sequential scans; the settings are one row, read each time.
    let read: Vec<String> = sqlx::query_scalar(
        "SELECT relname || ': ' || pg_stat_get_xact_tuples_returned(oid) FROM pg_class
          WHERE relkind = 'r' AND relnamespace = 'symphony'::regnamespace
            AND pg_stat_get_xact_tuples_returned(oid) > 1000",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert_eq!(read, Vec::<String>::new());
}

#[tokio::test]
async fn the_payload_a_worker_gets_is_the_payload_that_was_asked() {
    let db = TestDb::new().await;
    let text = r#"{"amount": {"value": "10.00"}, "n": 12345678901234567890.12345678901234567890, "s": "ü – \"quoted\""}"#;
    let mut request = payment("i", "p", "ach");
    request.payload = Payload::parse(text).unwrap();
    db.enqueue(&request).await;
    let item = db.claim_one("w").await;
    let same: bool = db
        .one(&format!(
            "SELECT '{}'::jsonb = '{}'::jsonb",
            item.payload.0.get().replace('\'', "''"),
            text.replace('\'', "''")
        ))
        .await;
    assert!(same);
    assert!(
        item.payload.0.get().contains("12345678901234567890.12345678901234567890"),
        "to the last digit"
    );
}

#[tokio::test]
async fn above_read_committed_the_loser_of_a_race_retries_and_finds_the_item() {
    let db = TestDb::new().await;
    for isolation in ["REPEATABLE READ", "SERIALIZABLE"] {
        let request = payment(isolation, "p", "ach");
        let mut late = db.admin().await;
        run(
            &mut late,
            &format!(
                "BEGIN ISOLATION LEVEL {isolation}; SELECT 1 FROM payment_outbox_instructions"
            ),
        )
        .await
        .unwrap();
        let first = db.enqueue(&request).await;
        assert_eq!(code(symphony::payments::enqueue(&mut late, &request).await), "40001");
        run(&mut late, "ROLLBACK").await.unwrap();
        let again = enqueue_at(&mut late, isolation, &request).await.unwrap();
        assert_eq!((again.outbox_id, again.duplicate), (first.outbox_id, true));
    }
    db.assert_ledger_holds().await;
}
