//! Leases: claim, complete, renew, return, mark, repair, late outcomes.

use chrono::{Duration, Utc};
use symphony::db::{ClaimRequest, Completion, CompletionResult, DbError, Lease};
use symphony::domain::{AttemptState, LeaseToken, Outcome, Switch};
use uuid::Uuid;

use crate::support::{TestDb, act, code, payment, run};

#[tokio::test]
async fn claim_leaves_the_row_and_sets_all_three_lease_columns() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await;
    let claimed = db.claim_one("w1").await;
    assert_eq!(claimed.outbox_id, item.outbox_id);
    let (by, token, live): (String, Uuid, bool) = sqlx::query_as(
        "SELECT claimed_by, lease_token, lease_expires_at > clock_timestamp() FROM payment_outbox_pending",
    )
    .fetch_one(&mut db.admin().await)
    .await
    .unwrap();
    assert_eq!((by.as_str(), LeaseToken(token), live), ("w1", claimed.lease_token, true));
    assert_eq!(db.count("payment_outbox_attempts").await, 0, "a claim writes no ledger row");
    assert!(db.claim("w2", 10).await.is_empty(), "a leased row is not claimed again");
}

#[tokio::test]
async fn half_a_lease_is_impossible() {
    let db = TestDb::new().await;
    db.enqueue(&payment("i", "p", "ach")).await;
    for half in ["claimed_by = 'w'", "lease_token = gen_random_uuid()", "lease_expires_at = now()", "claimed_by = 'w', lease_expires_at = now()"] {
        let error = run(&mut db.admin().await, &format!("UPDATE payment_outbox_pending SET {half}")).await.unwrap_err();
        assert!(error.to_string().contains("payment_outbox_pending_lease_is_whole"), "{error}");
    }
}

#[tokio::test]
async fn retry_keeps_outbox_id_and_sequence_id_and_attempt_count_only_grows() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await;
    let mut counts = Vec::new();
    for _ in 0..4 {
        let claimed = db.claim_one("w").await;
        assert_eq!((claimed.outbox_id, claimed.sequence_id), (item.outbox_id, item.sequence_id));
        counts.push(claimed.attempt_count);
        db.complete("w", claimed.lease(), Outcome::Retryable).await.unwrap();
    }
    assert_eq!(counts, [0, 1, 2, 3]);
    assert_eq!(db.ledger(item.outbox_id).await, ["1 RETRYABLE", "2 RETRYABLE", "3 RETRYABLE", "4 RETRYABLE"]);
}

#[tokio::test]
async fn without_a_delay_of_its_own_a_retry_waits_for_the_backoff() {
    let db = TestDb::new().await;
    db.enqueue(&payment("i", "p", "ach")).await;
    let claimed = db.claim_one("w").await;
    db.database.executor().complete("w", &Completion::new(claimed.lease(), Outcome::Retryable)).await.unwrap();
    let seconds: i64 = db
        .one("SELECT extract(epoch FROM p.next_attempt_at - a.completed_at)::bigint FROM payment_outbox_pending p JOIN payment_outbox_attempts a USING (outbox_id)")
        .await;
    assert_eq!(seconds, 1);
    assert!(db.claim("w", 1).await.is_empty(), "not due yet");
    let delays: Vec<i32> = db.one("SELECT array_agg(backoff(n) ORDER BY n) FROM unnest(ARRAY[-1, 0, 1, 2, 3, 12, 13, 14, 1000]) n").await;
    assert_eq!(delays, [1, 1, 1, 2, 4, 2048, 3600, 3600, 3600]);
}

#[tokio::test]
async fn lease_expiry_is_repaired_row_due_again_one_zombie_requeue_attempt_no_last_plus_one() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    let first = db.claim_one("w1").await;
    db.complete("w1", first.lease(), Outcome::Retryable).await.unwrap();
    let lost = db.claim_one("w1").await;
    assert!(db.database.executor().repair("w2", 10).await.unwrap().is_empty(), "a live lease is not repaired");
    db.expire(item).await;
    let repaired = db.database.executor().repair("w2", 10).await.unwrap();
    assert_eq!(repaired.len(), 1);
    assert_eq!((repaired[0].outbox_id, repaired[0].attempt_no, repaired[0].worker_id.as_str(), repaired[0].parked), (item, 2, "w1", false));
    assert_eq!(db.ledger(item).await, ["1 RETRYABLE", "2 ZOMBIE_REQUEUE"]);
    let (worker, token): (String, Uuid) =
        sqlx::query_as("SELECT worker_id, lease_token FROM payment_outbox_attempts WHERE attempt_no = 2").fetch_one(&mut db.admin().await).await.unwrap();
    assert_eq!((worker.as_str(), LeaseToken(token)), ("w1", lost.lease_token), "the row carries the expired worker and token");
    let soon: bool = db
        .one("SELECT lease_token IS NULL AND next_attempt_at BETWEEN clock_timestamp() AND clock_timestamp() + INTERVAL '1 second' FROM payment_outbox_pending")
        .await;
    assert!(soon, "due again in a second");
    assert!(db.database.executor().repair("w2", 10).await.unwrap().is_empty(), "once");
    db.make_due(item).await;
    assert!(db.claim_one("w2").await.must_inquire, "the lost worker may have sent it");
    assert_eq!(db.count("payment_outbox_events WHERE event_type = 'LEASE_EXPIRED_REPAIRED'").await, 1);
}

#[tokio::test]
async fn taking_over_an_expired_lease_leaves_the_same_trace_as_a_repair() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    let lost = db.claim_one("w1").await;
    db.expire(item).await;
    let taken = db.claim_one("w2").await;
    assert!(taken.must_inquire);
    assert_ne!(taken.lease_token, lost.lease_token);
    assert_eq!((db.ledger(item).await, taken.attempt_count), (vec!["1 ZOMBIE_REQUEUE".to_owned()], 1));
    assert_eq!(db.count("payment_outbox_events WHERE event_type = 'LEASE_EXPIRED_REPAIRED' AND worker_id = 'w2'").await, 1);
}

#[tokio::test]
async fn a_stale_token_cannot_complete() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    let a = db.claim_one("a").await;
    db.expire(item).await;
    assert_eq!(code(db.complete("a", a.lease(), Outcome::Dispatched).await), "P7002", "expired, though nobody has it yet");
    let b = db.claim_one("b").await;
    let error = db.complete("a", a.lease(), Outcome::Dispatched).await.unwrap_err();
    assert!(matches!(error, DbError::LeaseLost { .. }) && error.is_concurrency_event());
    db.complete("b", b.lease(), Outcome::Dispatched).await.unwrap();
    assert_eq!(code(db.complete("a", a.lease(), Outcome::Dispatched).await), "P7001", "ended by b");
    assert_eq!(db.ledger(item).await, ["1 ZOMBIE_REQUEUE", "2 DISPATCHED"]);
}

#[tokio::test]
async fn another_workers_name_or_another_token_cannot_complete() {
    let db = TestDb::new().await;
    db.enqueue(&payment("i", "p", "ach")).await;
    let claimed = db.claim_one("w").await;
    let forged = Lease { lease_token: LeaseToken(Uuid::new_v4()), ..claimed.lease() };
    assert_eq!(code(db.complete("w", forged, Outcome::Dispatched).await), "P7002");
    assert_eq!(code(db.complete("thief", claimed.lease(), Outcome::Dispatched).await), "P7002");
    db.complete("w", claimed.lease(), Outcome::Dispatched).await.unwrap();
}

#[tokio::test]
async fn the_21st_retryable_is_failed() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    for n in 1..=20 {
        let claimed = db.claim_one("w").await;
        assert_eq!(db.complete("w", claimed.lease(), Outcome::Retryable).await.unwrap().state, AttemptState::Retryable, "number {n}");
    }
    let claimed = db.claim_one("w").await;
    assert_eq!(claimed.attempt_count, 20);
    let last = Completion { error_code: Some("HTTP_503".into()), ..Completion::new(claimed.lease(), Outcome::Retryable) };
    let settled = db.database.executor().complete("w", &last).await.unwrap();
    assert_eq!((settled.attempt_no, settled.state), (21, AttemptState::Failed));
    let (error_code, message): (String, String) =
        sqlx::query_as("SELECT error_code, error_message FROM payment_outbox_attempts WHERE attempt_no = 21").fetch_one(&mut db.admin().await).await.unwrap();
    assert_eq!(error_code, "RETRY_CEILING");
    assert!(message.contains("HTTP_503"), "what it failed of is kept: {message}");
    assert_eq!(db.state(item).await, "FAILED");
}

#[tokio::test]
async fn an_unknown_outcome_at_the_ceiling_is_parked_and_never_failed() {
    let db = TestDb::new().await;
    // Unknown now, or unknown once: neither may claim that no money moved.
    for unknown_at in [1, 21] {
        let item = db.enqueue(&payment(&format!("i{unknown_at}"), "p", "ach")).await.outbox_id;
        for n in 1..=21 {
            let claimed = db.claim_one("w").await;
            assert_eq!(claimed.must_inquire, n > unknown_at);
            let outcome = if n == unknown_at { Outcome::Unknown } else { Outcome::Retryable };
            let settled = db.complete("w", claimed.lease(), outcome).await.unwrap();
            assert_eq!((settled.state, settled.parked), (AttemptState::Retryable, n == 21));
        }
        assert_eq!(db.state(item).await, "PARKED");
        assert!(db.claim("w", 10).await.is_empty());
    }
}

#[tokio::test]
async fn every_completion_state_outside_the_three_gets_p7003() {
    let db = TestDb::new().await;
    db.enqueue(&payment("i", "p", "ach")).await;
    let claimed = db.claim_one("w").await;
    let mut executor = db.as_role("symphony_executor").await;
    for (state, unknown) in [
        ("'DISPATCHING'", "false"), ("'ZOMBIE_REQUEUE'", "false"), ("'DONE'", "false"), ("''", "false"), ("'dispatched'", "false"),
        ("NULL", "false"), ("'DISPATCHED'", "true"), ("'FAILED'", "true"),
    ] {
        let single = format!(
            "SELECT complete_outbox_attempt('{}', '{}', 'w', {state}, p_unknown => {unknown})", claimed.outbox_id, claimed.lease_token
        );
        assert_eq!(code(run(&mut executor, &single).await), "P7003", "{state}");
        let answer: String = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
            "SELECT result FROM complete_outbox_attempts('w', ARRAY['{}'::uuid], ARRAY['{}'::uuid], ARRAY[{state}::text], p_unknowns => ARRAY[{unknown}])",
            claimed.outbox_id, claimed.lease_token
        )))
        .fetch_one(&mut executor)
        .await
        .unwrap();
        assert_eq!(answer, "P7003", "{state}");
    }
    assert_eq!(db.count("payment_outbox_attempts").await, 0);
    db.complete("w", claimed.lease(), Outcome::Dispatched).await.unwrap();
}

#[tokio::test]
async fn in_a_batch_one_lost_lease_or_bad_state_never_fails_the_others() {
    let db = TestDb::new().await;
    let ids = db.enqueue_stream("p", "ach", 5).await;
    let claimed = db.claim("w", 5).await;
    db.expire(ids[1]).await;
    db.complete("w", claimed[2].lease(), Outcome::Dispatched).await.unwrap();
    let completions: Vec<_> = claimed.iter().map(|item| Completion::new(item.lease(), Outcome::Dispatched)).collect();
    let results: Vec<_> =
        db.database.executor().complete_batch("w", &completions).await.unwrap().into_iter().map(|a| (a.outbox_id, a.result)).collect();
    let ok = |no| CompletionResult::Recorded(symphony::db::SettledAttempt { attempt_no: no, state: AttemptState::Dispatched, parked: false });
    assert_eq!(
        results,
        [
            (ids[0], ok(1)),
            (ids[1], CompletionResult::LeaseLost),
            (ids[2], CompletionResult::TerminalExists),
            (ids[3], ok(1)),
            (ids[4], ok(1)),
        ]
    );
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn a_second_terminal_row_is_impossible_and_the_attempt_is_recorded() {
    let db = TestDb::new().await;
    let ids = db.enqueue_stream("p", "ach", 3).await;
    let claimed = db.claim("w", 3).await;
    // A restore gone wrong: the item is pending although the ledger has its end.
    db.sql(&format!(
        "INSERT INTO payment_outbox_attempts (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, attempt_no, state, completed_at, worker_id) \
         SELECT outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, 7, 'FAILED', now(), 'x' FROM payment_outbox_pending WHERE outbox_id = '{}'",
        ids[1]
    ))
    .await;
    let error = db.complete("w", claimed[1].lease(), Outcome::Dispatched).await.unwrap_err();
    assert!(matches!(error, DbError::TerminalBlocked), "{error:?}");
    let completions: Vec<_> = claimed.iter().map(|item| Completion::new(item.lease(), Outcome::Dispatched)).collect();
    let results: Vec<_> = db.database.executor().complete_batch("w", &completions).await.unwrap().into_iter().map(|a| a.result).collect();
    assert!(matches!(results[..], [CompletionResult::Recorded(_), CompletionResult::TerminalBlocked, CompletionResult::Recorded(_)]), "{results:?}");
    assert_eq!(db.count(&format!("payment_outbox_attempts WHERE outbox_id = '{}' AND state IN ('DISPATCHED', 'FAILED')", ids[1])).await, 1);
    assert_eq!(db.count("payment_outbox_events WHERE event_type = 'TERMINAL_BLOCKED'").await, 2, "one per refused call");
}

#[tokio::test]
async fn duplicate_outbox_id_and_attempt_no_fails() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    let claimed = db.claim_one("w").await;
    db.complete("w", claimed.lease(), Outcome::Retryable).await.unwrap();
    let copy = format!(
        "INSERT INTO payment_outbox_attempts (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, attempt_no, state, completed_at, worker_id) \
         SELECT outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, 1, 'RETRYABLE', now(), 'x' FROM payment_outbox_pending WHERE outbox_id = '{item}'"
    );
    assert_eq!(code(run(&mut db.admin().await, &copy).await), "23505");
    let dispatching = copy.replace("1, 'RETRYABLE'", "2, 'DISPATCHING'");
    assert!(run(&mut db.admin().await, &dispatching).await.unwrap_err().to_string().contains("record_outcomes_only"));
}

#[tokio::test]
async fn the_third_zombie_in_a_row_parks_the_item() {
    for by_takeover in [false, true] {
        let db = TestDb::new().await;
        let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
        for n in 1..=3 {
            db.make_due(item).await;
            db.claim_one(&format!("w{n}")).await;
            db.expire(item).await;
            if by_takeover && n == 3 {
                assert!(db.claim("w4", 1).await.is_empty(), "parked instead of leased");
            } else {
                let repaired = db.database.executor().repair("r", 10).await.unwrap();
                assert_eq!((repaired[0].attempt_no, repaired[0].parked), (n, n == 3));
            }
        }
        assert_eq!(db.ledger(item).await, ["1 ZOMBIE_REQUEUE", "2 ZOMBIE_REQUEUE", "3 ZOMBIE_REQUEUE"]);
        assert_eq!(db.state(item).await, "PARKED");
        assert_eq!(db.count("payment_outbox_events WHERE event_type = 'PARKED'").await, 1);
    }
}

#[tokio::test]
async fn zombies_that_are_not_in_a_row_do_not_park() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    for outcome in ["zombie", "zombie", "retryable", "zombie", "zombie"] {
        db.make_due(item).await;
        let claimed = db.claim_one("w").await;
        if outcome == "zombie" {
            db.expire(item).await;
            assert!(!db.database.executor().repair("r", 10).await.unwrap()[0].parked);
        } else {
            db.complete("w", claimed.lease(), Outcome::Retryable).await.unwrap();
        }
    }
}

#[tokio::test]
async fn on_a_rail_that_marks_what_was_not_marked_is_requeued_and_what_was_is_parked() {
    let db = TestDb::new().await;
    db.database.operator().configure_rail("wire", &act(), None, None, Some(true)).await.unwrap();
    let ids = db.enqueue_stream("p", "wire", 2).await;
    let claimed = db.claim("w", 2).await;
    let marked = db.database.executor().mark_sending("w", &[claimed[1].lease()]).await.unwrap();
    assert_eq!(marked, [(ids[1], true)]);
    for id in &ids {
        db.expire(*id).await;
    }
    let repaired = db.database.executor().repair("r", 10).await.unwrap();
    assert_eq!(repaired.iter().map(|r| (r.outbox_id, r.parked)).collect::<Vec<_>>(), [(ids[0], false), (ids[1], true)]);
    db.make_due(ids[0]).await;
    assert!(!db.claim_one("w2").await.must_inquire, "provably unsent");
    assert_eq!(db.database.executor().mark_sending("w", &[claimed[1].lease()]).await.unwrap(), [(ids[1], false)], "a lost lease is not marked");
}

#[tokio::test]
async fn renewal_extends_what_is_held_and_names_what_was_lost() {
    let db = TestDb::new().await;
    let ids = db.enqueue_stream("p", "ach", 2).await;
    let claimed = db.claim("w", 2).await;
    db.expire(ids[1]).await;
    let leases: Vec<_> = claimed.iter().map(symphony::db::ClaimedItem::lease).collect();
    let renewed = db.database.executor().renew("w", &leases, 600).await.unwrap();
    assert!(renewed[0].1.unwrap() > Utc::now() + Duration::seconds(500));
    assert_eq!(renewed[1], (ids[1], None), "an expired lease is not revived");
    let shorter = db.database.executor().renew("w", &leases[..1], 1).await.unwrap();
    assert_eq!(shorter[0].1, renewed[0].1, "a renewal never shortens");
    assert_eq!(db.database.executor().renew("thief", &leases[..1], 600).await.unwrap()[0].1, None);
}

#[tokio::test]
async fn what_was_never_sent_is_returned_without_a_trace_and_what_was_marked_is_not() {
    let db = TestDb::new().await;
    let ids = db.enqueue_stream("p", "ach", 3).await;
    let claimed = db.claim("w", 3).await;
    let leases: Vec<_> = claimed.iter().map(symphony::db::ClaimedItem::lease).collect();
    db.database.executor().mark_sending("w", &leases[1..2]).await.unwrap();
    db.expire(ids[2]).await;
    let returned = db.database.executor().return_unsent("w", &leases).await.unwrap();
    assert_eq!(returned, [(ids[0], true), (ids[1], false), (ids[2], false)]);
    assert_eq!(db.count("payment_outbox_attempts").await, 0);
    let rails_claim = db.claim("w2", 10).await;
    let again = rails_claim.iter().find(|item| item.outbox_id == ids[0]).unwrap();
    assert_eq!((again.attempt_count, again.must_inquire), (0, false), "as if it had never been claimed");
}

#[tokio::test]
async fn an_unknown_outcome_is_parked_with_its_evidence() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    let claimed = db.claim_one("w").await;
    let evidence = Completion { rail_code: Some("504".into()), error_code: Some("TIMEOUT".into()), ..Completion::new(claimed.lease(), Outcome::Unknown) };
    let settled = db.database.executor().park_unknown("w", &evidence).await.unwrap();
    assert_eq!((settled.attempt_no, settled.state, settled.parked), (1, AttemptState::Retryable, true));
    let life = db.database.auditor().life(item).await.unwrap().unwrap();
    assert_eq!(life.state, "PARKED");
    assert!(life.attempts[0].outcome_unknown && life.live.unwrap().must_inquire);
    assert_eq!(life.events[0].event_type, "PARKED");
    assert!(life.events[0].details.0.get().contains("TIMEOUT"));
    assert_eq!(code(db.database.executor().park_unknown("w", &evidence).await), "P7002", "once");
}

#[tokio::test]
async fn a_late_outcome_is_kept_as_evidence_and_a_contradiction_is_named() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    let a = db.claim_one("a").await;
    let late = Completion { rail_reference: Some("R1".into()), ..Completion::new(a.lease(), Outcome::Dispatched) };
    db.expire(item).await;
    let b = db.claim_one("b").await;
    let recorded = db.database.executor().record_late_outcome("a", &late).await.unwrap();
    assert!(!recorded.conflict, "nothing to contradict yet");
    db.complete("b", b.lease(), Outcome::Failed).await.unwrap();
    assert!(db.database.executor().record_late_outcome("a", &late).await.unwrap().conflict, "FAILED, but the rail said yes");
    assert_eq!(db.ledger(item).await, ["1 ZOMBIE_REQUEUE", "2 FAILED"], "evidence is no outcome");
    let forged = Completion { lease: Lease { lease_token: LeaseToken(Uuid::new_v4()), ..a.lease() }, ..late };
    assert_eq!(code(db.database.executor().record_late_outcome("a", &forged).await), "P7002", "a token never issued for it");
    assert_eq!(db.count("payment_outbox_events WHERE event_type = 'LATE_OUTCOME'").await, 2);
}

#[tokio::test]
async fn two_different_references_for_one_payment_are_a_contradiction() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    let a = db.claim_one("a").await;
    db.expire(item).await;
    let b = db.claim_one("b").await;
    let with = |lease, reference: &str| Completion { rail_reference: Some(reference.into()), ..Completion::new(lease, Outcome::Dispatched) };
    db.database.executor().complete("b", &with(b.lease(), "R1")).await.unwrap();
    assert!(!db.database.executor().record_late_outcome("a", &with(a.lease(), "R1")).await.unwrap().conflict);
    assert!(db.database.executor().record_late_outcome("a", &with(a.lease(), "R2")).await.unwrap().conflict, "paid twice?");
}

#[tokio::test]
async fn claims_take_rails_in_equal_shares_and_the_oldest_first() {
    let db = TestDb::new().await;
    db.enqueue_stream("p", "deep", 100).await;
    db.enqueue_stream("p", "shallow", 3).await;
    assert_eq!(db.claim("w", 1).await[0].rail_type, "deep", "the oldest of all");
    let claimed = db.claim("w", 20).await;
    assert_eq!(claimed.len(), 20, "the share a rail leaves is filled from the others");
    assert_eq!(claimed.iter().filter(|item| item.rail_type == "shallow").count(), 3, "a deep rail starves no shallow one");
    let sorted = claimed.windows(2).all(|two| (two[0].next_attempt_at, two[0].outbox_id) < (two[1].next_attempt_at, two[1].outbox_id));
    assert!(sorted, "answered in claim order");
    let rails = ["shallow".to_owned()];
    let only = ClaimRequest { worker_id: "w", batch_size: 10, lease_seconds: 60, rails: Some(&rails), due_from: None };
    assert!(db.database.executor().claim(&only).await.unwrap().is_empty(), "only the rails asked for");
}

#[tokio::test]
async fn a_watermark_skips_what_lies_below_it_and_a_full_look_finds_it() {
    let db = TestDb::new().await;
    let ids = db.enqueue_stream("p", "ach", 1).await;
    let claimed = db.claim("w", 1).await;
    let below = ClaimRequest { worker_id: "w", batch_size: 10, lease_seconds: 60, rails: None, due_from: Some(claimed[0].next_attempt_at + Duration::milliseconds(1)) };
    db.expire(ids[0]).await;
    assert!(db.database.executor().claim(&below).await.unwrap().is_empty());
    assert_eq!(db.claim("w", 10).await.len(), 1);
}

#[tokio::test]
async fn a_paused_lane_rail_or_participant_is_not_claimed_and_resumes_where_it_was() {
    let db = TestDb::new().await;
    let operator = db.database.operator();
    db.enqueue_stream("p", "ach", 2).await;
    db.enqueue_stream("q", "ach", 1).await;
    for (switch, left) in [(Switch::Lane, 0), (Switch::Rail("ach".into()), 0), (Switch::Participant("p".into()), 1)] {
        let paused = operator.pause(&switch, &act()).await.unwrap();
        assert_eq!((paused.state_before.as_str(), paused.state_after.as_str()), ("RUNNING", "PAUSED"));
        let claimed = db.claim("w", 10).await;
        assert_eq!(claimed.len(), left, "{switch:?}");
        db.enqueue(&payment(&format!("while-{left}-{switch:?}"), "p", "ach")).await;
        let leases: Vec<_> = claimed.iter().map(symphony::db::ClaimedItem::lease).collect();
        if !leases.is_empty() {
            db.database.executor().return_unsent("w", &leases).await.unwrap();
        }
        operator.resume(&switch, &act()).await.unwrap();
    }
    assert_eq!(db.claim("w", 10).await.len(), 6, "nothing was lost by pausing");
    assert_eq!(db.count("payment_outbox_events WHERE event_type IN ('PAUSED', 'RESUMED')").await, 6);
}

#[tokio::test]
async fn workers_must_not_use_a_frozen_snapshot() {
    let db = TestDb::new().await;
    let mut executor = db.as_role("symphony_executor").await;
    for call in ["SELECT claim_outbox_batch(1, 'w', 60)", "SELECT repair_expired_leases(1, 'w')"] {
        run(&mut executor, "BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
        assert_eq!(code(run(&mut executor, call).await), "P7005");
        run(&mut executor, "ROLLBACK").await.unwrap();
    }
}

#[tokio::test]
async fn routine_events_are_recorded_when_asked_for_and_only_then() {
    let db = TestDb::new().await;
    for (asked, expected) in [(false, 0), (true, 2)] {
        db.database.operator().configure_lane(&act(), Some(asked), None).await.unwrap();
        db.enqueue(&payment(&format!("i{asked}"), "p", "ach")).await;
        let claimed = db.claim_one("w").await;
        db.complete("w", claimed.lease(), Outcome::Dispatched).await.unwrap();
        assert_eq!(db.count("payment_outbox_events WHERE event_type IN ('LEASE_CLAIMED', 'ATTEMPT_COMPLETED')").await, expected);
    }
}
