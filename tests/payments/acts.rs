//! What people do to items: park, release, resolve, redrive.

use symphony::db::ActCall;
use symphony::domain::{Act, Outcome, Resolution};

use crate::support::{TestDb, act, code, payment, until, verdict};

#[tokio::test]
async fn a_parked_item_is_not_claimed_until_it_is_released() {
    let db = TestDb::new().await;
    let operator = db.database.operator();
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    operator.park_payment(item, &act()).await.unwrap();
    assert!(db.claim("w", 1).await.is_empty());
    assert_eq!(code(operator.park_payment(item, &act()).await), "P7006", "parked already");
    operator.release_payment(item, &act()).await.unwrap();
    assert_eq!(code(operator.release_payment(item, &act()).await), "P7006", "not parked");
    // What was refused may still be rolling back, and a claim passes what somebody has locked.
    let is_free = "SELECT EXISTS (SELECT FROM payment_outbox_pending FOR UPDATE SKIP LOCKED)";
    until("nobody has the item locked", async || db.one(is_free).await).await;
    let claimed = db.claim_one("w").await;
    assert_eq!(code(operator.park_payment(item, &act()).await), "P7006", "in flight");
    db.complete("w", claimed.lease(), Outcome::Dispatched).await.unwrap();
    assert_eq!(code(operator.park_payment(item, &act()).await), "P7006", "ended");
    let events: Vec<String> = db.one("SELECT array_agg(event_type || ' ' || actor || ' ' || reason ORDER BY event_no) FROM payment_outbox_events").await;
    assert_eq!(events, ["PARKED dana a test", "RELEASED dana a test"]);
}

#[tokio::test]
async fn a_dry_run_answers_and_changes_nothing() {
    let db = TestDb::new().await;
    let operator = db.database.operator();
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    let dry = Act { dry_run: true, ..act() };
    let answer = operator.park_payment(item, &dry).await.unwrap();
    assert_eq!(
        (answer.state_before.as_str(), answer.state_after.as_str(), answer.dry_run),
        ("PENDING", "PARKED", true)
    );
    assert_eq!(
        (db.state(item).await.as_str(), db.count("payment_outbox_events").await),
        ("DUE", 0)
    );
    operator.park_payment(item, &act()).await.unwrap();
    operator.resolve_payment(item, &Resolution::Failed, &dry).await.unwrap();
    assert_eq!(db.state(item).await, "PARKED");
    operator.resolve_payment(item, &Resolution::Failed, &act()).await.unwrap();
    assert_eq!(operator.redrive_payment(item, &dry).await.unwrap().redriven_as, None);
    assert_eq!(db.count("payment_outbox_instructions").await, 1);
}

#[tokio::test]
async fn a_person_resolves_a_parked_item_under_their_own_name() {
    let db = TestDb::new().await;
    let operator = db.database.operator();
    let [sent, failed, retried] = [1, 2, 3].map(|n| payment(&format!("i{n}"), "p", "ach"));
    let mut items = Vec::new();
    for request in [sent, failed, retried] {
        items.push(db.enqueue(&request).await.outbox_id);
    }
    for item in db.claim("w", 3).await {
        db.database
            .worker()
            .park_unknown_payment(
                "w",
                &symphony::db::PaymentOutcome::new(item.lease(), Outcome::Unknown),
            )
            .await
            .unwrap();
    }
    operator
        .resolve_payment(items[0], &Resolution::Dispatched { rail_reference: "R1".into() }, &act())
        .await
        .unwrap();
    let despite = Act { despite_unknown: true, ..act() };
    operator.resolve_payment(items[1], &Resolution::Failed, &despite).await.unwrap();
    operator.resolve_payment(items[2], &Resolution::Retry, &despite).await.unwrap();
    assert_eq!(db.ledger(items[0]).await, ["1 RETRYABLE", "2 DISPATCHED"]);
    assert_eq!(db.ledger(items[1]).await, ["1 RETRYABLE", "2 FAILED"]);
    let claimed = db.claim_one("w").await;
    assert_eq!(
        (claimed.outbox_id, claimed.must_inquire),
        (items[2], false),
        "a person has said it did not move"
    );
    let by: String = db.one(&format!("SELECT worker_id FROM payment_outbox_attempts WHERE outbox_id = '{}' AND state = 'DISPATCHED'", items[0])).await;
    assert_eq!(by, "operator:dana");
    assert_eq!(
        code(operator.resolve_payment(items[0], &Resolution::Failed, &act()).await),
        "P7006",
        "ended"
    );
    let blank = Resolution::Dispatched { rail_reference: " ".into() };
    assert_eq!(
        code(operator.resolve_payment(items[2], &blank, &act()).await),
        "P7005",
        "dispatched needs its proof"
    );
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn a_redrive_is_a_new_item_that_names_the_old_one_and_can_be_made_once() {
    let db = TestDb::new().await;
    let operator = db.database.operator();
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    assert_eq!(code(operator.redrive_payment(item, &act()).await), "P7006", "only what FAILED");
    let claimed = db.claim_one("w").await;
    db.complete("w", claimed.lease(), Outcome::Failed).await.unwrap();
    assert_eq!(
        db.one::<i64>("SELECT dlq_count FROM supervisor_outbox_status WHERE lane = 'payments'")
            .await,
        1
    );
    let (one, two) = (act(), act());
    let (a, b) =
        tokio::join!(operator.redrive_payment(item, &one), operator.redrive_payment(item, &two));
    let mut verdicts =
        [a, b].map(|result| result.map_or_else(|e| e.code().to_owned(), |_| "OK".to_owned()));
    verdicts.sort();
    assert_eq!(verdicts, ["OK", "P7006"], "of two at once, one, and the other is told so");
    assert_eq!(
        db.one::<i64>("SELECT dlq_count FROM supervisor_outbox_status WHERE lane = 'payments'")
            .await,
        0
    );
    let again = db.claim_one("w").await;
    assert_eq!((again.instruction_id.as_str(), again.sequence_id, again.redrive_no), ("i", 2, 1));
    assert_ne!(again.outbox_id, item, "a new key to the rail");
    assert_eq!(db.ledger(item).await, ["1 FAILED"], "the failed one stays as it is");
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn an_act_without_a_name_a_reason_or_an_item_is_refused() {
    let db = TestDb::new().await;
    let operator = db.database.operator();
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    assert_eq!(
        code(operator.park_payment(item, &Act { actor: " ".into(), ..act() }).await),
        "P7005"
    );
    assert_eq!(
        code(operator.park_payment(item, &Act { reason: String::new(), ..act() }).await),
        "P7005"
    );
    assert_eq!(
        code(operator.park_payment(symphony::domain::OutboxId(uuid::Uuid::new_v4()), &act()).await),
        "P7007"
    );
}

#[tokio::test]
async fn the_views_tell_every_state_apart() {
    let db = TestDb::new().await;
    db.make_fifo("fifo", "block").await;
    let ids = db.enqueue_stream("p", "ach", 5).await;
    db.database.operator().park_payment(ids[0], &act()).await.unwrap();
    let claimed = db.claim("w", 3).await;
    db.expire(claimed[0].outbox_id).await;
    db.database
        .worker()
        .complete_payment(
            "w",
            &symphony::db::PaymentOutcome::new(claimed[1].lease(), Outcome::Retryable),
        )
        .await
        .unwrap();
    db.sql(&format!("UPDATE payment_outbox_pending SET next_attempt_at = now() + INTERVAL '1 hour' WHERE outbox_id = '{}'", claimed[1].outbox_id)).await;
    let states: Vec<String> =
        db.one("SELECT array_agg(state ORDER BY sequence_id) FROM outbox_operational_status").await;
    assert_eq!(states, ["PARKED", "LEASE_EXPIRED", "SCHEDULED", "IN_FLIGHT", "DUE"]);
    let lane = db.database.auditor().status().await.unwrap().remove(0);
    assert_eq!(
        (
            lane.pending,
            lane.parked_count,
            lane.expired_lease_count,
            lane.scheduled_count,
            lane.leased_count,
            lane.due_unleased_count
        ),
        (5, 1, 1, 1, 1, 1)
    );
    db.enqueue_stream("q", "fifo", 2).await;
    db.claim("w", 10).await;
    assert_eq!(
        db.one::<i64>("SELECT waiting_count FROM supervisor_outbox_status WHERE lane = 'payments'")
            .await,
        1
    );
}

#[tokio::test]
async fn a_gap_in_a_stream_would_be_seen() {
    let db = TestDb::new().await;
    db.enqueue_stream("p", "ach", 3).await;
    assert_eq!(db.count("participant_sequence_gaps").await, 0);
    // What no function can do, a superuser forges.
    db.sql("UPDATE participant_outbox_sequences SET next_sequence_id = 7").await;
    assert_eq!(db.one::<String>("SELECT format('%s %s-%s', participant_id, missing_from, missing_to) FROM participant_sequence_gaps").await, "p 4-6");
    db.enqueue(&payment("after", "p", "ach")).await;
    assert_eq!(db.one::<String>("SELECT format('%s %s-%s', participant_id, missing_from, missing_to) FROM participant_sequence_gaps").await, "p 4-6");
}

#[tokio::test]
async fn what_a_rail_once_said_yes_to_is_not_sent_again_by_one_person_alone() {
    let db = TestDb::new().await;
    let operator = db.database.operator();
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    let lost = db.claim_one("a").await;
    db.expire(item).await;
    let claimed = db.claim_one("b").await;
    let yes = symphony::db::PaymentOutcome::new(lost.lease(), Outcome::Dispatched);
    db.complete("b", claimed.lease(), Outcome::Failed).await.unwrap();
    db.database.worker().record_late_payment("a", &yes).await.unwrap();
    let alone = Act { despite_unknown: true, ..act() };
    assert_eq!(code(operator.redrive_payment(item, &alone).await), "P7008", "it would pay twice");
    let request =
        operator.request_approval(&ActCall::redrive(item, &alone), &alone, 60).await.unwrap();
    let eve = db.second_person().await;
    let agree = Act { actor: "eve".into(), ..act() };
    let answer = eve.approve(request.request_no.unwrap(), &agree).await.unwrap();
    assert_eq!(answer.answer.0["state_after"], "REDRIVEN");
}

#[tokio::test]
async fn every_switch_of_every_lane_answers_and_dry_runs_in_the_same_way() {
    let db = TestDb::new().await;
    db.enqueue(&payment("i", "acme", "ach")).await;
    db.push("shop", &crate::triggers::manifest(&[("t", "kv", "*")])).await;
    db.database.worker().register_topics(&["main/orders"]).await.unwrap();
    let operator = "symphony_operator";
    for (switch, name, target) in [
        ("payment_lane", "", "payments"),
        ("payment_rail", "'ach', ", "ach"),
        ("payment_participant", "'acme', ", "acme"),
        ("event_lane", "", "events"),
        ("event_topic", "'main/orders', ", "main/orders"),
        ("trigger_lane", "", "triggers"),
        ("app", "'shop', ", "shop"),
    ] {
        let told = async |act: &str, dry_run: &str| -> String {
            let call = format!("{act}_{switch}({name}'dana', 'test', {dry_run})");
            let columns = "concat_ws(' ', target, state_before, state_after, dry_run)";
            db.one_as(operator, &format!("SELECT {columns} FROM symphony.{call}")).await
        };
        // Whoever does not say that it shall happen has not decided.
        for undecided in ["true", "NULL"] {
            let answer = told("pause", undecided).await;
            assert_eq!(answer, format!("{target} RUNNING PAUSED t"), "{switch}");
        }
        for (act, before, after) in [
            ("pause", "RUNNING", "PAUSED"),
            ("pause", "PAUSED", "PAUSED"),
            ("resume", "PAUSED", "RUNNING"),
            ("resume", "RUNNING", "RUNNING"),
        ] {
            let answer = told(act, "false").await;
            assert_eq!(answer, format!("{target} {before} {after} f"), "{act} {switch}");
        }
        for (given, code) in [("' ', 'test'", "P7005"), ("'dana', ' '", "P7005")] {
            let sql = format!("SELECT symphony.pause_{switch}({name}{given})");
            assert_eq!(verdict(&db, operator, &sql).await, code, "{switch}: {given}");
        }
        if !name.is_empty() {
            let sql = format!("SELECT symphony.pause_{switch}('nobody knows it', 'dana', 'test')");
            assert_eq!(verdict(&db, operator, &sql).await, "P7007", "{switch}");
        }
    }
    // Each was written down once in each direction, with who and why.
    let written: i64 = db
        .one(
            "SELECT count(*) FROM (SELECT event_type, actor, reason FROM payment_outbox_events UNION ALL \
             SELECT event_type, actor, reason FROM event_outbox_events UNION ALL \
             SELECT event_type, actor, reason FROM trigger_outbox_events) e \
             WHERE event_type IN ('PAUSED', 'RESUMED') AND actor = 'dana' AND reason = 'test'",
        )
        .await;
    assert_eq!(written, 14);
}
