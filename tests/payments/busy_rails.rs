//! Outcomes that say nothing of the payment: the rail is busy or away, or was asked before it has settled.

use symphony::db::{PaymentLease, PaymentOutcome, SettledPayment};
use symphony::domain::{AttemptState, OutboxId, Outcome};

use crate::support::{TestDb, act, payment};

fn busy() -> impl Fn(PaymentOutcome) -> PaymentOutcome {
    |completion| PaymentOutcome {
        spends_attempt: false,
        rail_code: Some("http:429".into()),
        error_code: Some("RAIL_RETRYABLE".into()),
        ..completion
    }
}

/// Claim the item, whenever it is due, and complete it so.
async fn try_once(
    db: &TestDb,
    item: OutboxId,
    outcome: Outcome,
    change: impl Fn(PaymentOutcome) -> PaymentOutcome,
) -> SettledPayment {
    db.make_due(item).await;
    let claimed = db.claim_one("w").await;
    let completion = change(PaymentOutcome::new(claimed.lease(), outcome));
    db.database.worker().complete_payment("w", &completion).await.unwrap()
}

/// How long after its last outcome the item is due.
async fn pause_seconds(db: &TestDb) -> i64 {
    db.one(
        "SELECT extract(epoch FROM p.next_attempt_at - max(a.completed_at))::bigint
           FROM payment_outbox_pending p JOIN payment_outbox_attempts a USING (outbox_id) GROUP BY p.next_attempt_at",
    )
    .await
}

/// Let everything on record have happened so much earlier.
async fn set_back(db: &TestDb, interval: &str) {
    db.sql(&format!(
        "ALTER TABLE payment_outbox_attempts DISABLE TRIGGER payment_outbox_attempts_only_grow;
         UPDATE payment_outbox_attempts SET completed_at = completed_at - INTERVAL '{interval}', claimed_at = claimed_at - INTERVAL '{interval}';
         ALTER TABLE payment_outbox_attempts ENABLE ALWAYS TRIGGER payment_outbox_attempts_only_grow"
    ))
    .await;
}

#[tokio::test]
async fn a_rail_that_is_busy_or_away_spends_no_tries_and_its_pauses_grow_to_five_minutes() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    let mut pauses = Vec::new();
    for n in 1..=25 {
        // What the rail asks for does not hasten it.
        let answer = try_once(&db, item, Outcome::Retryable, |c| PaymentOutcome {
            retry_after_seconds: Some(1),
            ..busy()(c)
        })
        .await;
        assert_eq!((answer.attempt_no, answer.state), (n, AttemptState::Retryable));
        pauses.push(pause_seconds(&db).await);
    }
    assert_eq!(pauses[..11], [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    assert_eq!(db.one::<i32>("SELECT attempt_count FROM payment_outbox_pending").await, 0);
    assert_eq!(db.count("payment_outbox_attempts WHERE NOT spends_attempt").await, 25);
    // A day's worth of these is a few hundred rows for an item.
    assert!(pauses.iter().all(|pause| *pause <= 300));

    // All twenty tries are still there, and their backoff starts at its beginning.
    for n in 1..=20 {
        let answer = try_once(&db, item, Outcome::Retryable, |c| c).await;
        assert_eq!((answer.attempt_no, answer.state), (25 + n, AttemptState::Retryable));
        assert_eq!(db.one::<i32>("SELECT attempt_count FROM payment_outbox_pending").await, n);
        if n == 1 {
            assert_eq!(pause_seconds(&db).await, 1);
        }
    }
    // At the ceiling a busy rail still ends nothing; the next real outcome does.
    assert_eq!(
        try_once(&db, item, Outcome::Retryable, busy()).await.state,
        AttemptState::Retryable
    );
    assert_eq!(try_once(&db, item, Outcome::Retryable, |c| c).await.state, AttemptState::Failed);
    assert_eq!(
        db.one::<String>("SELECT error_code FROM payment_outbox_attempts WHERE state = 'FAILED'")
            .await,
        "RETRY_CEILING"
    );
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn a_longer_pause_the_rail_asks_for_is_kept() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    for spends_attempt in [false, true] {
        try_once(&db, item, Outcome::Retryable, |c| PaymentOutcome {
            retry_after_seconds: Some(7_200),
            spends_attempt,
            ..c
        })
        .await;
        assert_eq!(pause_seconds(&db).await, 7_200);
        // An ordinary outcome is not hastened by it either.
        try_once(&db, item, Outcome::Retryable, |c| PaymentOutcome {
            retry_after_seconds: Some(0),
            spends_attempt,
            ..c
        })
        .await;
        assert!(pause_seconds(&db).await >= 2);
    }
}

#[tokio::test]
async fn a_busy_rail_is_given_up_after_its_time_and_the_item_is_failed() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    // How old it is does not matter: it may have waited behind a pause.
    db.sql("UPDATE payment_outbox_pending SET created_at = created_at - INTERVAL '3 days'").await;
    for _ in 0..24 {
        assert_eq!(
            try_once(&db, item, Outcome::Retryable, busy()).await.state,
            AttemptState::Retryable
        );
        set_back(&db, "1 hour").await;
    }
    let ended = try_once(&db, item, Outcome::Retryable, busy()).await;
    assert_eq!((ended.attempt_no, ended.state, ended.parked), (25, AttemptState::Failed, false));
    let (code, message): (String, String) = (
        db.one("SELECT error_code FROM payment_outbox_attempts WHERE attempt_no = 25").await,
        db.one("SELECT error_message FROM payment_outbox_attempts WHERE attempt_no = 25").await,
    );
    assert_eq!(code, "GIVEN_UP");
    assert!(message.contains("give_up_after_seconds: RAIL_RETRYABLE"), "{message}");
    assert!(db.database.auditor().payment_figures().await.unwrap().holds());
}

#[tokio::test]
async fn a_weekend_in_which_nobody_tried_fails_no_item_at_the_next_refusal() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    try_once(&db, item, Outcome::Retryable, busy()).await;
    set_back(&db, "63 hours").await;
    assert_eq!(
        try_once(&db, item, Outcome::Retryable, busy()).await.state,
        AttemptState::Retryable
    );
}

#[tokio::test]
async fn the_time_to_give_up_is_the_rails_own_and_a_release_starts_it_anew() {
    let db = TestDb::new().await;
    let operator = db.database.operator();
    let rail = operator.configure_rail("ach", &act(), None, None, None, Some(60)).await.unwrap();
    assert_eq!(rail.give_up_after_seconds, 60);
    for wrong in [0, -1, 31_536_001] {
        let refused = operator.configure_rail("ach", &act(), None, None, None, Some(wrong)).await;
        assert_eq!(crate::support::code(refused), "P7005");
    }
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    try_once(&db, item, Outcome::Retryable, busy()).await;
    set_back(&db, "2 minutes").await;
    operator.park_payment(item, &act()).await.unwrap();
    operator.release_payment(item, &act()).await.unwrap();
    assert_eq!(
        try_once(&db, item, Outcome::Retryable, busy()).await.state,
        AttemptState::Retryable
    );
    // Another outcome than a busy rail is not given up by time.
    set_back(&db, "5 minutes").await;
    db.sql("ALTER TABLE payment_outbox_events DISABLE TRIGGER USER").await;
    db.sql("UPDATE payment_outbox_events SET created_at = created_at - INTERVAL '6 minutes'").await;
    assert_eq!(try_once(&db, item, Outcome::Retryable, |c| c).await.state, AttemptState::Retryable);
    assert_eq!(try_once(&db, item, Outcome::Retryable, busy()).await.state, AttemptState::Failed);
}

#[tokio::test]
async fn what_may_have_been_sent_is_parked_by_time_and_never_failed() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    try_once(&db, item, Outcome::Unknown, |c| c).await;
    set_back(&db, "25 hours").await;
    // Asked while it has not settled: it waits as long as that takes.
    let waits = |c| PaymentOutcome {
        spends_attempt: false,
        asked_only: true,
        retry_delay_seconds: Some(90),
        ..c
    };
    assert!(!try_once(&db, item, Outcome::Unknown, waits).await.parked);
    assert_eq!(pause_seconds(&db).await, 90);
    let asked = |c| PaymentOutcome { asked_only: true, ..busy()(c) };
    let ended = try_once(&db, item, Outcome::Unknown, asked).await;
    assert_eq!((ended.state, ended.parked), (AttemptState::Retryable, true));
    assert_eq!(db.state(item).await, "PARKED");
    assert!(db.database.auditor().payment_figures().await.unwrap().holds());
}

#[tokio::test]
async fn a_worker_cannot_name_a_pause_for_what_it_sent_and_spend_no_try() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    for n in 1..=3 {
        try_once(&db, item, Outcome::Retryable, |c| PaymentOutcome {
            retry_delay_seconds: Some(1),
            ..busy()(c)
        })
        .await;
        assert_eq!(db.one::<i32>("SELECT attempt_count FROM payment_outbox_pending").await, n);
    }
}

#[tokio::test]
async fn a_lost_worker_counts_as_one_try_whatever_the_number_of_its_row() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    for _ in 0..5 {
        try_once(&db, item, Outcome::Retryable, busy()).await;
    }
    db.make_due(item).await;
    db.claim_one("lost").await;
    db.expire(item).await;
    assert_eq!(
        db.database.worker().repair::<PaymentLease>("w", 10).await.unwrap()[0].attempt_no,
        6
    );
    assert_eq!(db.one::<i32>("SELECT attempt_count FROM payment_outbox_pending").await, 1);
}

#[tokio::test]
async fn the_settle_delay_counts_from_the_last_send_and_not_from_the_last_question() {
    let db = TestDb::new().await;
    let executor = db.database.worker();
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    try_once(&db, item, Outcome::Unknown, |c| c).await;
    set_back(&db, "100 seconds").await;
    let asked = |c| PaymentOutcome { asked_only: true, ..c };
    try_once(&db, item, Outcome::Unknown, asked).await;
    try_once(&db, item, Outcome::Retryable, busy()).await;
    let age = async || executor.send_history(item).await.unwrap().unwrap().last_send_age_seconds;
    assert!((100..160).contains(&age().await), "{}", age().await);
    // A send that may have arrived, or a lost worker, starts it anew.
    try_once(&db, item, Outcome::Unknown, |c| c).await;
    assert!(age().await < 60);
    set_back(&db, "100 seconds").await;
    db.make_due(item).await;
    db.claim_one("lost").await;
    db.expire(item).await;
    executor.repair::<PaymentLease>("w", 10).await.unwrap();
    assert!(age().await < 60);
}

#[tokio::test]
async fn where_no_send_is_on_record_the_settle_delay_counts_from_the_first_question() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    try_once(&db, item, Outcome::Retryable, |c| c).await;
    // As after a restore: somebody says that it may have been sent, and the ledger does not know when.
    db.sql("UPDATE payment_outbox_pending SET must_inquire = true").await;
    set_back(&db, "3 days").await;
    let asked = |c| PaymentOutcome {
        asked_only: true,
        spends_attempt: false,
        retry_delay_seconds: Some(0),
        ..c
    };
    try_once(&db, item, Outcome::Unknown, asked).await;
    set_back(&db, "70 seconds").await;
    try_once(&db, item, Outcome::Unknown, asked).await;
    let history = db.database.worker().send_history(item).await.unwrap().unwrap();
    assert!((70..130).contains(&history.last_send_age_seconds), "{history:?}");
}
