//! Unknown outcomes, whole: asked about first, sent again only where that is provably safe, else left to a person.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use symphony::db::PaymentLease;
use symphony::domain::{LeaseToken, Outcome};
use symphony::engine::{EngineSettings, Points};
use symphony::lanes::payments::rail::{
    Answer, Inquiry, InquiryTerms, Payment, Rail, Terms, Verdict,
};
use symphony::money::Defect;

use super::bank::{
    Bank, Reply, ScriptedRail, accepted, rail, settings, setup, start, start_with, terms,
    until_empty,
};
use crate::support::{TestDb, payment, run, until};

#[tokio::test]
async fn a_timeout_is_asked_about_and_never_sent_again_if_it_was_executed() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let item = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    let short = Terms { timeout: Duration::from_millis(200), ..terms() };
    let engine =
        start(&db, vec![setup("sepa", rail(&bank, short, |_, _, _| Reply::ExecutedSilence))]);
    until("the timeout is written down", async || !db.ledger(item).await.is_empty()).await;
    db.make_due(item).await;
    until_empty(&db).await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(db.ledger(item).await, ["1 RETRYABLE", "2 DISPATCHED"]);
    assert_eq!(bank.executions(item), 1);
    assert_eq!(bank.sends.load(Ordering::SeqCst), 1, "asked, not sent again");
    assert!(db.one::<bool>("SELECT outcome_unknown AND error_code = 'TIMEOUT' FROM payment_outbox_attempts WHERE attempt_no = 1").await);
}

#[tokio::test]
async fn an_unknown_outcome_the_rail_does_not_know_of_is_sent_again_under_the_same_key() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let item = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    let script = |_: &Bank, _: &Payment, nth: usize| {
        if nth == 0 {
            Reply::Not(Answer::trouble(Verdict::Unknown, "CONNECTION_LOST", "reset"))
        } else {
            Reply::Executed(accepted())
        }
    };
    let engine = start(&db, vec![setup("sepa", rail(&bank, terms(), script))]);
    until("the loss is written down", async || !db.ledger(item).await.is_empty()).await;
    db.make_due(item).await;
    until_empty(&db).await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(db.ledger(item).await, ["1 RETRYABLE", "2 DISPATCHED"]);
    assert_eq!(bank.inquiries.load(Ordering::SeqCst), 1);
    assert_eq!(bank.executions(item), 1);
}

#[tokio::test]
async fn an_unknown_outcome_is_parked_when_the_key_is_too_old_and_not_found_proves_nothing() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let item = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    // Three seconds: less than the timeout that a resend would have to fit.
    let forgetful = Terms { key_lifetime: Some(Duration::from_secs(1)), ..terms() };
    let script = |_: &Bank, _: &Payment, _: usize| {
        Reply::Not(Answer::trouble(Verdict::Unknown, "CONNECTION_LOST", "reset"))
    };
    let engine = start(&db, vec![setup("sepa", rail(&bank, forgetful, script))]);
    until("the loss is written down", async || !db.ledger(item).await.is_empty()).await;
    db.make_due(item).await;
    until("it is parked", async || db.state(item).await == "PARKED").await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(bank.sends.load(Ordering::SeqCst), 1);
    assert!(db.one::<bool>("SELECT error_code = 'CANNOT_BE_SETTLED' FROM payment_outbox_attempts WHERE attempt_no = 2").await);
}

#[tokio::test]
async fn not_found_is_believed_only_after_the_settle_delay() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let item = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    let settling = Terms {
        key_lifetime: None,
        inquiry: InquiryTerms::NotFoundIsFinalAfter(Duration::from_mins(10)),
        ..terms()
    };
    let script = |_: &Bank, _: &Payment, nth: usize| {
        if nth == 0 {
            Reply::Not(Answer::trouble(Verdict::Unknown, "CONNECTION_LOST", "reset"))
        } else {
            Reply::Executed(accepted())
        }
    };
    let engine = start(&db, vec![setup("sepa", rail(&bank, settling, script))]);
    until("the loss is written down", async || db.ledger(item).await.len() == 1).await;
    db.make_due(item).await;
    until("it waits", async || db.ledger(item).await.len() == 2).await;
    assert!(db.one::<bool>("SELECT next_attempt_at > clock_timestamp() + INTERVAL '9 minutes' FROM payment_outbox_pending").await);
    assert_eq!(bank.sends.load(Ordering::SeqCst), 1);
    // Ten minutes later: the ledger is the clock, so its times are set back.
    db.sql("ALTER TABLE payment_outbox_attempts DISABLE TRIGGER USER").await;
    db.sql("UPDATE payment_outbox_attempts SET completed_at = completed_at - INTERVAL '11 minutes', claimed_at = claimed_at - INTERVAL '11 minutes'").await;
    db.make_due(item).await;
    until_empty(&db).await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(bank.executions(item), 1);
    assert_eq!(db.ledger(item).await, ["1 RETRYABLE", "2 RETRYABLE", "3 DISPATCHED"]);
}

#[tokio::test]
async fn a_rail_that_can_neither_deduplicate_nor_be_asked_parks_at_once() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    db.database
        .operator()
        .configure_rail("wire", &crate::support::act(), None, None, Some(true), None)
        .await
        .unwrap();
    let blind = Terms { key_lifetime: None, inquiry: InquiryTerms::Impossible, ..terms() };
    let lost = db.enqueue(&payment("lost", "acme", "wire")).await.outbox_id;
    let fine = db.enqueue(&payment("fine", "acme", "wire")).await.outbox_id;
    let script = |_: &Bank, payment: &Payment, _: usize| match payment.instruction_id.as_str() {
        "lost" => Reply::Not(Answer::trouble(Verdict::Unknown, "CONNECTION_LOST", "reset")),
        _ => Reply::Executed(accepted()),
    };
    let engine = start(&db, vec![setup("wire", rail(&bank, blind, script))]);
    until("one is parked and one done", async || {
        db.state(lost).await == "PARKED" && db.state(fine).await == "DISPATCHED"
    })
    .await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(bank.sends.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_panic_in_a_rail_is_an_unknown_outcome_and_the_worker_goes_on() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let bad = db.enqueue(&payment("bad", "acme", "sepa")).await.outbox_id;
    let good = db.enqueue(&payment("good", "acme", "sepa")).await.outbox_id;
    let script = |_: &Bank, payment: &Payment, _: usize| match payment.instruction_id.as_str() {
        "bad" => Reply::Panic,
        _ => Reply::Executed(accepted()),
    };
    let engine = start(&db, vec![setup("sepa", rail(&bank, terms(), script))]);
    until("both have an outcome", async || db.count("payment_outbox_attempts").await == 2).await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(db.state(good).await, "DISPATCHED");
    assert!(db.one::<bool>(&format!("SELECT outcome_unknown AND error_code = 'PANIC' FROM payment_outbox_attempts WHERE outbox_id = '{bad}'")).await);
    assert!(
        db.one::<bool>(&format!(
            "SELECT must_inquire FROM payment_outbox_pending WHERE outbox_id = '{bad}'"
        ))
        .await
    );
}

#[tokio::test]
async fn what_is_invalid_fails_unsent_and_what_may_have_been_sent_is_parked_instead() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let number =
        symphony::domain::Payload::parse(r#"{"amount": {"value": 10.00, "currency": "EUR"}}"#)
            .unwrap();
    let nowhere = symphony::domain::Payload::parse(
        r#"{"amount": {"value": "10.00", "currency": "EUR"}, "destination": "nowhere"}"#,
    )
    .unwrap();
    let mut ids = Vec::new();
    for (name, payload) in [("number", &number), ("nowhere", &nowhere), ("maybe sent", &nowhere)] {
        let request = symphony::domain::PaymentRequest {
            payload: payload.clone(),
            ..payment(name, "acme", "sepa")
        };
        ids.push(db.enqueue(&request).await.outbox_id);
    }
    // The third was sent before, and nobody knows what became of it.
    let claimed = db.claim("lost worker", 3).await;
    for item in claimed {
        let outcome = if item.outbox_id == ids[2] { Outcome::Unknown } else { Outcome::Retryable };
        db.complete("lost worker", item.lease(), outcome).await.unwrap();
    }

    let engine = start(
        &db,
        vec![setup("sepa", rail(&bank, terms(), |_, _, _| Reply::Executed(accepted())))],
    );
    until("all have ended or wait for a person", async || {
        db.count("payment_outbox_attempts").await == 6
    })
    .await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(bank.sends.load(Ordering::SeqCst), 0);
    assert_eq!(db.state(ids[0]).await, "FAILED");
    assert_eq!(db.state(ids[1]).await, "FAILED");
    assert_eq!(db.state(ids[2]).await, "PARKED");
    let codes: Vec<String> = sqlx::query_scalar(
        "SELECT error_code FROM payment_outbox_attempts WHERE attempt_no = 2 ORDER BY instruction_id",
    )
    .fetch_all(&mut db.admin().await)
    .await
    .unwrap();
    assert_eq!(codes, ["INVALID_DESTINATION", "INVALID_DESTINATION", "INVALID_AMOUNT"]);
}

#[tokio::test]
async fn a_late_yes_is_kept_as_evidence_and_a_contradiction_is_an_alarm() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let item = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    // It repairs nothing, and has room for one item: whatever wakes it, the other worker takes the item over.
    let hour = (Duration::from_hours(1), Duration::from_hours(1));
    let patient = EngineSettings {
        poll: hour,
        repair: hour,
        lease: Duration::from_mins(1),
        held_items_max: 1,
        batch_items_max: 1,
        ..settings()
    };
    // On a busy machine the other worker takes its time.
    let never_late = Terms { timeout: Duration::from_secs(20), ..terms() };
    let slow = rail(&bank, never_late, |_, _, _| Reply::ExecutedLater(accepted()));
    let engine = start_with(&db, vec![setup("sepa", slow)], patient, Points::default());
    let metrics = engine.metrics().clone();
    until("it is under way", async || bank.running.load(Ordering::SeqCst) == 1).await;
    // The lease passes to another, who is told something else. Each time anew: its holder may just have renewed it.
    let (token, must_inquire) = until_some("another takes it over", async || {
        // In one transaction: its holder, should it look just now, does not take it over itself.
        let mut connection = db.admin().await;
        let expire = "BEGIN; UPDATE payment_outbox_pending SET lease_expires_at = clock_timestamp() - INTERVAL '1 second'";
        run(&mut connection, expire).await.unwrap();
        let claim = "SELECT lease_token, must_inquire FROM claim_outbox_batch(1, 'other', 60)";
        let leased: Option<(LeaseToken, bool)> =
            sqlx::query_as(claim).fetch_optional(&mut connection).await.unwrap();
        run(&mut connection, "COMMIT").await.unwrap();
        leased
    })
    .await;
    assert!(must_inquire);
    let lease = PaymentLease { outbox_id: item, lease_token: token };
    db.complete("other", lease, Outcome::Failed).await.unwrap();
    bank.open.notify_one();
    until("the late yes was kept", async || metrics.late_outcomes.get() == 1).await;
    let kept: String =
        db.one("SELECT string_agg(details::text, ', ') FROM payment_outbox_events").await;
    assert_eq!(metrics.late_conflicts.get(), 1, "{kept}");
    assert_eq!(engine.stop().await, 0);
    assert_eq!(db.state(item).await, "FAILED");
    assert_eq!(db.count("payment_outbox_events WHERE event_type = 'LATE_OUTCOME' AND (details->>'conflict')::boolean").await, 1);
}

#[tokio::test]
async fn a_refused_second_copy_does_not_fail_a_payment_whose_first_was_executed() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let item = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    // The first is executed and its answer lost; inquiries are answered by a replica that has not heard of it yet;
    // the second is refused because the first has used up the balance.
    let script = |_: &Bank, _: &Payment, nth: usize| match nth {
        0 => Reply::Executed(Answer::trouble(Verdict::Unknown, "CONNECTION_LOST", "reset")),
        _ => Reply::Not(Answer { code: Some("AM04".into()), ..Answer::new(Verdict::Refused) }),
    };
    let stale = Stale { rail: rail(&bank, terms(), script), replica_is_behind: true.into() };
    let mut setup = setup("sepa", rail(&bank, terms(), |_, _, _| Reply::Panic));
    setup.rail = Arc::new(stale);
    let engine = start(&db, vec![setup]);
    until("the loss is written down", async || db.ledger(item).await.len() == 1).await;
    db.make_due(item).await;
    until("the refusal is written down", async || db.ledger(item).await.len() == 2).await;
    db.make_due(item).await;
    until_empty(&db).await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(db.ledger(item).await, ["1 RETRYABLE", "2 RETRYABLE", "3 DISPATCHED"]);
    assert_eq!(bank.executions(item), 1);
}

/// Its first inquiry is answered by a replica that is behind.
struct Stale {
    rail: ScriptedRail,
    replica_is_behind: AtomicBool,
}

#[async_trait::async_trait]
impl Rail for Stale {
    fn terms(&self) -> &Terms {
        self.rail.terms()
    }

    fn validate(&self, payment: &Payment) -> Result<(), Defect> {
        self.rail.validate(payment)
    }

    async fn dispatch(&self, payment: &Payment) -> Answer {
        self.rail.dispatch(payment).await
    }

    async fn inquire(&self, payment: &Payment) -> Inquiry {
        if self.replica_is_behind.swap(false, Ordering::SeqCst) {
            return Inquiry::NotFound;
        }
        self.rail.inquire(payment).await
    }
}

#[tokio::test]
async fn a_worker_marks_its_sends_when_the_database_relies_on_it_whatever_its_own_settings() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let slow = rail(&bank, terms(), |_, _, _| Reply::ExecutedLater(accepted()));
    let engine = start(&db, vec![setup("sepa", slow)]);
    // Switched while the worker runs: for the next deployment, say, whose rail cannot be asked any more.
    let act = crate::support::act();
    db.database
        .operator()
        .configure_rail("sepa", &act, None, None, Some(true), None)
        .await
        .unwrap();
    db.enqueue(&payment("one", "acme", "sepa")).await;
    until("it is under way", async || bank.running.load(Ordering::SeqCst) == 1).await;
    // Unmarked, it would count as unsent if this worker died now, and be sent again.
    assert_eq!(db.count("payment_outbox_pending WHERE sending_marked_at IS NOT NULL").await, 1);
    bank.open.notify_one();
    until_empty(&db).await;
    assert_eq!(engine.stop().await, 0);
}

async fn until_some<T>(claim: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let mut found = None;
    until(claim, async || {
        found = look().await;
        found.is_some()
    })
    .await;
    found.unwrap()
}
