//! Outcomes: what a worker may say, when it is believed, and what is kept of the rest.

use symphony::db::{DbError, PaymentLease, PaymentOutcome, PaymentRecorded};
use symphony::domain::{AttemptState, LeaseToken, Outcome};
use uuid::Uuid;

use crate::support::{TestDb, code, payment, run, verdict};

#[tokio::test]
async fn without_a_delay_of_its_own_a_retry_waits_for_the_backoff() {
    let db = TestDb::new().await;
    db.enqueue(&payment("i", "p", "ach")).await;
    let claimed = db.claim_one("w").await;
    db.database
        .worker()
        .complete_payment("w", &PaymentOutcome::new(claimed.lease(), Outcome::Retryable))
        .await
        .unwrap();
    let seconds: i64 = db
        .one("SELECT extract(epoch FROM p.next_attempt_at - a.completed_at)::bigint FROM payment_outbox_pending p JOIN payment_outbox_attempts a USING (outbox_id)")
        .await;
    assert_eq!(seconds, 1);
    assert!(db.claim("w", 1).await.is_empty(), "not due yet");
    let delays: Vec<i32> = db.one("SELECT array_agg(backoff(n) ORDER BY n) FROM unnest(ARRAY[-1, 0, 1, 2, 3, 12, 13, 14, 1000]) n").await;
    assert_eq!(delays, [1, 1, 1, 2, 4, 2048, 3600, 3600, 3600]);
}

#[tokio::test]
async fn a_stale_token_cannot_complete() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    let a = db.claim_one("a").await;
    db.expire(item).await;
    assert_eq!(
        code(db.complete("a", a.lease(), Outcome::Dispatched).await),
        "P7002",
        "expired, though nobody has it yet"
    );
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
    let forged = PaymentLease { lease_token: LeaseToken(Uuid::new_v4()), ..claimed.lease() };
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
        assert_eq!(
            db.complete("w", claimed.lease(), Outcome::Retryable).await.unwrap().state,
            AttemptState::Retryable,
            "number {n}"
        );
    }
    let claimed = db.claim_one("w").await;
    assert_eq!(claimed.attempt_count, 20);
    let last = PaymentOutcome {
        error_code: Some("HTTP_503".into()),
        ..PaymentOutcome::new(claimed.lease(), Outcome::Retryable)
    };
    let settled = db.database.worker().complete_payment("w", &last).await.unwrap();
    assert_eq!((settled.attempt_no, settled.state), (21, AttemptState::Failed));
    let (error_code, message): (String, String) = sqlx::query_as(
        "SELECT error_code, error_message FROM payment_outbox_attempts WHERE attempt_no = 21",
    )
    .fetch_one(&mut db.admin().await)
    .await
    .unwrap();
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
        ("'DISPATCHING'", "false"),
        ("'ZOMBIE_REQUEUE'", "false"),
        ("'DONE'", "false"),
        ("''", "false"),
        ("'dispatched'", "false"),
        ("NULL", "false"),
        ("'DISPATCHED'", "true"),
        ("'FAILED'", "true"),
    ] {
        let single = format!(
            "SELECT complete_outbox_attempt('{}', '{}', 'w', {state}, p_unknown => {unknown})",
            claimed.outbox_id, claimed.lease_token
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
    let completions: Vec<_> =
        claimed.iter().map(|item| PaymentOutcome::new(item.lease(), Outcome::Dispatched)).collect();
    let results: Vec<_> = db
        .database
        .worker()
        .complete_payments("w", &completions)
        .await
        .unwrap()
        .into_iter()
        .map(|a| (a.outbox_id, a.result))
        .collect();
    let ok = |no| {
        PaymentRecorded::Recorded(symphony::db::SettledPayment {
            attempt_no: no,
            state: AttemptState::Dispatched,
            parked: false,
        })
    };
    assert_eq!(
        results,
        [
            (ids[0], ok(1)),
            (ids[1], PaymentRecorded::LeaseLost),
            (ids[2], PaymentRecorded::TerminalExists),
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
    // Given in another order than their ids: answered in the order given.
    let completions: Vec<_> = [1, 2, 0]
        .iter()
        .map(|n: &usize| PaymentOutcome::new(claimed[*n].lease(), Outcome::Dispatched))
        .collect();
    let answers = db.database.worker().complete_payments("w", &completions).await.unwrap();
    let order: Vec<_> = answers.iter().map(|answer| answer.outbox_id).collect();
    assert_eq!(order, [ids[1], ids[2], ids[0]]);
    let results: Vec<_> = answers.into_iter().map(|answer| answer.result).collect();
    assert!(
        matches!(
            results[..],
            [
                PaymentRecorded::TerminalBlocked,
                PaymentRecorded::Recorded(_),
                PaymentRecorded::Recorded(_)
            ]
        ),
        "{results:?}"
    );
    assert_eq!(
        db.count(&format!(
            "payment_outbox_attempts WHERE outbox_id = '{}' AND state IN ('DISPATCHED', 'FAILED')",
            ids[1]
        ))
        .await,
        1
    );
    assert_eq!(
        db.count("payment_outbox_events WHERE event_type = 'TERMINAL_BLOCKED'").await,
        2,
        "one per refused call"
    );
}

#[tokio::test]
async fn a_state_is_given_as_text_as_a_literal_or_as_the_enum() {
    let db = TestDb::new().await;
    db.enqueue_stream("p", "ach", 9).await;
    let items = db.claim("w", 9).await;
    let cases = [
        ("'RETRYABLE'::outbox_attempt_state", "OK"),
        ("'DISPATCHED'::outbox_attempt_state", "OK"),
        ("'DISPATCHED'", "OK"),
        ("'FAILED'::text", "OK"),
        ("'FAILED'::varchar", "OK"),
        ("'DISPATCHING'::outbox_attempt_state", "P7003"),
        ("'ZOMBIE_REQUEUE'::outbox_attempt_state", "P7003"),
        ("NULL", "P7003"),
        ("NULL::outbox_attempt_state", "P7003"),
    ];
    for ((state, expected), item) in cases.into_iter().zip(items) {
        let (id, token) = (item.outbox_id, item.lease_token.0);
        let call = format!("SELECT complete_outbox_attempt('{id}', '{token}', 'w', {state})");
        assert_eq!(verdict(&db, "symphony_executor", &call).await, expected, "{state}");
    }
    // As a driver that does not know the parameters' types.
    let untyped = "PREPARE c AS SELECT complete_outbox_attempt($1, $2, $3, $4); \
                   EXECUTE c(gen_random_uuid(), gen_random_uuid(), 'w', 'DISPATCHED')";
    assert_eq!(verdict(&db, "symphony_executor", untyped).await, "P7002");
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
    assert!(
        run(&mut db.admin().await, &dispatching)
            .await
            .unwrap_err()
            .to_string()
            .contains("record_outcomes_only")
    );
}

#[tokio::test]
async fn an_unknown_outcome_is_parked_with_its_evidence() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    let claimed = db.claim_one("w").await;
    let evidence = PaymentOutcome {
        rail_code: Some("504".into()),
        error_code: Some("TIMEOUT".into()),
        ..PaymentOutcome::new(claimed.lease(), Outcome::Unknown)
    };
    let settled = db.database.worker().park_unknown_payment("w", &evidence).await.unwrap();
    assert_eq!(
        (settled.attempt_no, settled.state, settled.parked),
        (1, AttemptState::Retryable, true)
    );
    let life = db.database.auditor().payment_life(item).await.unwrap().unwrap();
    assert_eq!(life.state, "PARKED");
    assert!(life.attempts[0].outcome_unknown && life.live.unwrap().must_inquire);
    assert_eq!(life.events[0].event_type, "PARKED");
    assert!(life.events[0].details.0.get().contains("TIMEOUT"));
    assert_eq!(
        code(db.database.worker().park_unknown_payment("w", &evidence).await),
        "P7002",
        "once"
    );
}

#[tokio::test]
async fn a_late_outcome_is_kept_as_evidence_and_a_contradiction_is_named() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    let a = db.claim_one("a").await;
    let late = PaymentOutcome {
        rail_reference: Some("R1".into()),
        ..PaymentOutcome::new(a.lease(), Outcome::Dispatched)
    };
    db.expire(item).await;
    let b = db.claim_one("b").await;
    db.complete("b", b.lease(), Outcome::Failed).await.unwrap();
    assert!(
        db.database.worker().record_late_payment("a", &late).await.unwrap().conflict,
        "FAILED, but the rail said yes"
    );
    assert_eq!(db.ledger(item).await, ["1 ZOMBIE_REQUEUE", "2 FAILED"], "evidence is no outcome");
    // Whoever has not heard the answer repeats itself, here three times at once: it is one piece of evidence.
    let worker = db.database.worker();
    let again = || worker.record_late_payment("a", &late);
    let (one, two, three) = tokio::join!(again(), again(), again());
    assert!([one, two, three].into_iter().all(|kept| kept.unwrap().conflict));
    assert_eq!(db.count("payment_outbox_events WHERE event_type = 'LATE_OUTCOME'").await, 1);
}

#[tokio::test]
async fn a_refusal_after_a_late_yes_is_left_to_a_person_and_never_failed() {
    let db = TestDb::new().await;
    let items = db.enqueue_stream("p", "ach", 2).await;
    let a = db.claim("a", 2).await;
    db.expire(items[0]).await;
    let late = PaymentOutcome::new(a[0].lease(), Outcome::Dispatched);
    let b = db.claim("b", 1).await.remove(0);
    assert!(!db.database.worker().record_late_payment("a", &late).await.unwrap().conflict);
    let refused = [PaymentOutcome::new(b.lease(), Outcome::Failed)];
    let answers = db.database.worker().complete_payments("b", &refused).await.unwrap();
    let PaymentRecorded::Recorded(settled) = answers[0].result else { panic!("{answers:?}") };
    assert_eq!((settled.state, settled.parked), (AttemptState::Retryable, true));
    assert_eq!(db.ledger(items[0]).await, ["1 ZOMBIE_REQUEUE", "2 RETRYABLE"]);
    assert_eq!(db.state(items[0]).await, "PARKED");
    db.complete("a", a[1].lease(), Outcome::Failed).await.unwrap();
    assert_eq!(db.state(items[1]).await, "FAILED", "without a late yes");
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn evidence_under_a_token_never_issued_is_kept_only_if_the_worker_says_that_its_claim_was_lost()
 {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    let token = Uuid::new_v4();
    let call = format!("SELECT record_late_outcome('{item}', '{token}', 'w', 'DISPATCHED')");
    assert_eq!(verdict(&db, "symphony_executor", &call).await, "P7002");
    // As after a failover that lost the claim: the rail said yes, the database has never heard of it.
    let lease = PaymentLease { outbox_id: item, lease_token: LeaseToken(token) };
    let late = PaymentOutcome::new(lease, Outcome::Dispatched);
    assert!(!db.database.worker().record_late_payment("w", &late).await.unwrap().conflict);
    assert_eq!(db.count("payment_outbox_events WHERE event_type = 'LATE_OUTCOME' AND (details->>'claim_lost')::boolean").await, 1);
    assert!(db.claim_one("other").await.must_inquire, "the rail is asked before anything is sent");
}

#[tokio::test]
async fn two_different_references_for_one_payment_are_a_contradiction() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    let a = db.claim_one("a").await;
    db.expire(item).await;
    let b = db.claim_one("b").await;
    let with = |lease, reference: &str| PaymentOutcome {
        rail_reference: Some(reference.into()),
        ..PaymentOutcome::new(lease, Outcome::Dispatched)
    };
    db.database.worker().complete_payment("b", &with(b.lease(), "R1")).await.unwrap();
    assert!(
        !db.database
            .worker()
            .record_late_payment("a", &with(a.lease(), "R1"))
            .await
            .unwrap()
            .conflict
    );
    assert!(
        db.database
            .worker()
            .record_late_payment("a", &with(a.lease(), "R2"))
            .await
            .unwrap()
            .conflict,
        "paid twice?"
    );
}
