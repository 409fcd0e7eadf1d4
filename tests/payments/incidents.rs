//! A contradiction is an incident: seen everywhere until a person closes it, and nobody sends again unknowingly.

use serde_json::Value;
use symphony::db::{EventState, PaymentLease, PaymentOutcome};
use symphony::domain::{Act, OutboxId, Outcome, Resolution};

use crate::support::shell::dana;
use crate::support::{TestDb, act, code, payment, verdict};

const OPERATOR: &str = "symphony_operator";

fn yes(lease: PaymentLease, reference: &str) -> PaymentOutcome {
    PaymentOutcome {
        rail_reference: Some(reference.to_owned()),
        ..PaymentOutcome::new(lease, Outcome::Dispatched)
    }
}

/// An item whose first worker was lost, with the lease of that one and of the second.
async fn taken_over(db: &TestDb, instruction: &str) -> (OutboxId, PaymentLease, PaymentLease) {
    let item = db.enqueue(&payment(instruction, "p", "ach")).await.outbox_id;
    let lost = db.claim_one("lost").await.lease();
    db.expire(item).await;
    (item, lost, db.claim_one("w").await.lease())
}

/// A payment whose worker got no answer, parked.
async fn unanswered(db: &TestDb, instruction: &str) -> OutboxId {
    let item = db.enqueue(&payment(instruction, "p", "ach")).await.outbox_id;
    let lease = db.claim_one("w").await.lease();
    let evidence = PaymentOutcome::new(lease, Outcome::Unknown);
    db.database.worker().park_unknown_payment("w", &evidence).await.unwrap();
    item
}

fn despite() -> Act {
    Act { despite_unknown: true, ..act() }
}

#[tokio::test]
async fn a_late_yes_against_failed_is_seen_everywhere_until_a_person_closes_it() {
    let db = TestDb::new().await;
    let (item, lost, lease) = taken_over(&db, "inv-1").await;
    db.complete("w", lease, Outcome::Failed).await.unwrap();
    assert_eq!(db.count("outbox_incidents").await, 0);
    db.database.worker().record_late_payment("lost", &yes(lost, "R1")).await.unwrap();

    let number: i64 = db.one("SELECT incident_no FROM outbox_incidents").await;
    let incidents = dana(&db, "incident list --json").await.json();
    assert_eq!(
        (
            &incidents[0]["item_id"],
            &incidents[0]["recorded_state"],
            &incidents[0]["late_reference"]
        ),
        (&Value::from(item.to_string()), &Value::from("FAILED"), &Value::from("R1"))
    );
    let status = dana(&db, "status --json").await.json();
    assert_eq!(status[0]["incident_count"], 1);
    assert!(dana(&db, "status").await.output.contains("incidents"));
    let told = dana(&db, "dlq list").await.output;
    assert!(told.contains("DISPATCHED R1") && told.contains("symphony incident close"), "{told}");
    let doctor = dana(&db, "doctor").await;
    assert!(!doctor.ok, "an open incident is no health");
    assert!(doctor.output.contains("1 late outcomes of payments contradict"), "{}", doctor.output);
    let lanes = db.database.auditor().status().await.unwrap();
    let known = symphony_server::metrics::Known { database_up: Some(true), lanes };
    let page = symphony_server::metrics::render(&[], &known);
    assert!(page.contains("open_incidents{lane=\"payments\"} 1"), "{page}");

    let close = format!("incident close {number} --reason the␣bank␣took␣R1␣back");
    let told = dana(&db, &close).await;
    assert!(told.output.starts_with(&format!("would close incident {number}")), "{}", told.output);
    assert_eq!(db.count("outbox_incidents").await, 1, "a dry run closes nothing");
    assert!(dana(&db, &format!("{close} --yes")).await.ok);
    assert_eq!(db.count("outbox_incidents").await, 0);
    assert_eq!(dana(&db, "status --json").await.json()[0]["incident_count"], 0);
    let told = dana(&db, &format!("{close} --yes")).await;
    assert!(
        told.error.contains("no open incident") && told.error.contains("P7007"),
        "{}",
        told.error
    );
    assert_eq!(
        db.one::<String>("SELECT actor || ': ' || reason || ' ' || (details->>'incident_no') FROM payment_outbox_events WHERE event_type = 'INCIDENT_CLOSED'").await,
        format!("dana: the bank took R1 back {number}")
    );
    db.database.worker().record_late_payment("lost", &yes(lost, "R1")).await.unwrap();
    assert_eq!(db.count("outbox_incidents").await, 1, "what comes after the closing is open again");
}

#[tokio::test]
async fn a_second_reference_is_an_incident_whichever_came_first() {
    let db = TestDb::new().await;
    let executor = db.database.worker();
    let (_, lost, lease) = taken_over(&db, "after").await;
    executor.complete_payment("w", &yes(lease, "R1")).await.unwrap();
    executor.record_late_payment("lost", &yes(lost, "R1")).await.unwrap();
    assert_eq!(db.count("outbox_incidents").await, 0, "the same reference is no contradiction");
    executor.record_late_payment("lost", &yes(lost, "R2")).await.unwrap();
    assert_eq!(db.count("outbox_incidents").await, 1);

    let (_, lost, lease) = taken_over(&db, "before").await;
    executor.record_late_payment("lost", &yes(lost, "R3")).await.unwrap();
    assert_eq!(db.count("outbox_incidents").await, 1, "nothing is recorded yet");
    executor.complete_payment("w", &yes(lease, "R4")).await.unwrap();
    assert_eq!(db.count("outbox_incidents").await, 2);
}

#[tokio::test]
async fn only_an_operator_closes_an_incident_and_two_at_once_close_it_once() {
    let db = TestDb::new().await;
    let (_, lost, lease) = taken_over(&db, "i").await;
    db.complete("w", lease, Outcome::Failed).await.unwrap();
    db.database.worker().record_late_payment("lost", &yes(lost, "R")).await.unwrap();
    let number: i64 = db.one("SELECT incident_no FROM outbox_incidents").await;
    let close = format!("SELECT close_payment_incident({number}, 'dana', 'settled')");
    for role in ["symphony_ingest", "symphony_executor", "symphony_readonly", "symphony_auditor"] {
        assert_eq!(verdict(&db, role, &close).await, "42501", "{role}");
    }
    let (one, two) = tokio::join!(verdict(&db, OPERATOR, &close), verdict(&db, OPERATOR, &close));
    let mut verdicts = [one, two];
    verdicts.sort();
    assert_eq!(verdicts, ["OK", "P7007"]);
    let blank = format!("SELECT close_payment_incident({number}, 'dana', ' ')");
    assert_eq!(verdict(&db, OPERATOR, &blank).await, "P7005");
}

#[tokio::test]
async fn one_person_who_is_wrong_twice_is_stopped_twice() {
    let db = TestDb::new().await;
    let operator = db.database.operator();
    let item = unanswered(&db, "inv-1").await;
    // The first mistake.
    let resolve =
        format!("SELECT resolve_outbox('{item}', 'FAILED', 'dana', 'the bank has nothing')");
    assert_eq!(verdict(&db, OPERATOR, &resolve).await, "P7009", "the database refuses");
    operator.resolve_payment(item, &Resolution::Failed, &despite()).await.unwrap();
    // The second.
    assert_eq!(code(operator.redrive_payment(item, &act()).await), "P7009");
    let told = dana(&db, &format!("redrive {item} --reason again")).await;
    assert!(told.ok, "a dry run tells, {}", told.error);
    for expected in [
        "TRY 1 RETRYABLE OUTCOME UNKNOWN",
        "RESOLVED FAILED by dana because a test",
        "TRY 2 FAILED",
        "add --despite-unknown",
    ] {
        assert!(told.output.contains(expected), "no {expected} in {}", told.output);
    }
    let told = dana(&db, &format!("redrive {item} --reason again --yes")).await;
    assert!(!told.ok && told.error.contains("--despite-unknown is missing"), "{}", told.error);
    let again = operator.redrive_payment(item, &despite()).await.unwrap();
    assert!(again.known.needs_despite_unknown);
    assert!(db.one::<bool>("SELECT (details->>'despite_unknown')::boolean FROM payment_outbox_events WHERE event_type = 'REDRIVEN'").await);

    // The redrive fails by the rail's own word; what it redrives was still never answered.
    let lease = db.claim_one("w").await.lease();
    db.complete("w", lease, Outcome::Failed).await.unwrap();
    let again = again.redriven_as.unwrap();
    assert_eq!(code(operator.redrive_payment(again, &act()).await), "P7009", "its past is its own");
    let dry = operator.redrive_payment(again, &Act { dry_run: true, ..act() }).await.unwrap();
    let of: Vec<_> = dry.known.tries.0.iter().filter(|t| t.unknown).map(|t| t.outbox_id).collect();
    assert_eq!(of, [item], "and it is named");
    operator.redrive_payment(again, &despite()).await.unwrap();
}

#[tokio::test]
async fn what_the_rail_itself_refused_is_redriven_without_further_ado() {
    let db = TestDb::new().await;
    let (item, _, lease) = taken_over(&db, "i").await;
    // Asked after the lost worker, the rail refuses: that settles the first try too.
    db.complete("w", lease, Outcome::Failed).await.unwrap();
    let dry = Act { dry_run: true, ..act() };
    let told = db.database.operator().redrive_payment(item, &dry).await.unwrap().known;
    assert!(!told.needs_despite_unknown && !told.needs_approver, "{told:?}");
    assert_eq!(told.tries.0.len(), 2);
    db.database.operator().redrive_payment(item, &act()).await.unwrap();
}

#[tokio::test]
async fn a_retry_on_a_persons_word_leaves_the_first_try_unanswered() {
    let db = TestDb::new().await;
    let operator = db.database.operator();
    let item = unanswered(&db, "i").await;
    assert_eq!(code(operator.resolve_payment(item, &Resolution::Retry, &act()).await), "P7009");
    operator.resolve_payment(item, &Resolution::Retry, &despite()).await.unwrap();
    let lease = db.claim_one("w").await.lease();
    db.complete("w", lease, Outcome::Failed).await.unwrap();
    assert_eq!(code(operator.redrive_payment(item, &act()).await), "P7009");
}

#[tokio::test]
async fn a_release_tells_what_is_unknown_and_needs_the_same_word() {
    let db = TestDb::new().await;
    let operator = db.database.operator();
    let item = unanswered(&db, "i").await;
    let told = dana(&db, &format!("release {item} --reason r")).await;
    assert!(told.ok && told.output.contains("OUTCOME UNKNOWN"), "{}{}", told.output, told.error);
    assert_eq!(code(operator.release_payment(item, &act()).await), "P7009");
    operator.release_payment(item, &despite()).await.unwrap();
    assert!(db.claim_one("w").await.must_inquire, "the rail is asked first all the same");
    let known = db.enqueue(&payment("known", "p", "ach")).await.outbox_id;
    operator.park_payment(known, &act()).await.unwrap();
    operator.release_payment(known, &act()).await.unwrap();
}

#[tokio::test]
async fn whoever_has_the_reference_need_not_say_despite() {
    let db = TestDb::new().await;
    let item = unanswered(&db, "i").await;
    let proof = Resolution::Dispatched { rail_reference: "R1".into() };
    db.database.operator().resolve_payment(item, &proof, &act()).await.unwrap();
}

#[tokio::test]
async fn what_a_failover_marked_must_inquire_is_unknown_though_the_ledger_has_no_try() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    db.database.operator().park_payment(item, &act()).await.unwrap();
    db.sql("UPDATE payment_outbox_pending SET must_inquire = true").await;
    let failed = Resolution::Failed;
    assert_eq!(code(db.database.operator().resolve_payment(item, &failed, &act()).await), "P7009");
}

#[tokio::test]
async fn an_event_the_bus_has_and_the_ledger_calls_failed_is_an_incident_until_it_is_published_or_closed()
 {
    let db = TestDb::new().await;
    let told = db.tell_of("k", 1).await;
    let late = db.claim_events("late", 50).await;
    db.expire_buckets().await;
    let events = db.claim_events("w", 50).await;
    db.report("w", &[(&events[0], EventState::Failed { key_continues: false })]).await;
    let outcome = symphony::db::EventOutcome::new(
        late[0].lease(),
        late[0].log_position,
        EventState::Dispatched,
    );
    db.database.worker().record_late_event("late", &outcome).await.unwrap();
    let list = dana(&db, "incident list --json").await.json();
    assert_eq!(
        (&list[0]["lane"], &list[0]["item_id"]),
        (&Value::from("events"), &Value::from(told[0].to_string()))
    );
    assert_eq!(dana(&db, "status --json").await.json()[1]["incident_count"], 1);
    let number = &list[0]["incident_no"];
    let close = format!("incident close {number} --reason consumers␣have␣it --yes");
    assert!(!dana(&db, &close).await.ok, "it is none of the payment lane's");
    assert!(dana(&db, &format!("{close} --lane events")).await.ok);
    assert_eq!(db.count("outbox_incidents").await, 0);
}

#[tokio::test]
async fn a_mail_that_went_out_and_that_the_ledger_calls_failed_is_an_incident() {
    let db = TestDb::new().await;
    // As the ledger is after a mail's last try was lost; a script's own late end contradicts nothing.
    db.sql(
        "INSERT INTO trigger_outbox_attempts (id, attempt_no, app_id, source_kind, script_id, root_execution_id, state, worker_id, lease_token) \
         SELECT i.id, 1, i.id, 'email', CASE i.n WHEN 2 THEN i.id END, i.id, 'FAILED', 'w', i.id \
           FROM (SELECT n, lpad(n::text, 32, '0')::uuid AS id FROM generate_series(1, 2) n) i",
    )
    .await;
    for n in ["1", "2"] {
        let id = format!("{n:0>32}");
        let late = format!("SELECT record_late_trigger_outcome('{id}', '{id}', 'w', 'DISPATCHED')");
        assert_eq!(verdict(&db, "symphony_executor", &late).await, "OK");
    }
    assert_eq!(db.count("outbox_incidents WHERE lane = 'triggers'").await, 1);
    let number: i64 = db.one("SELECT incident_no FROM outbox_incidents").await;
    let close = format!("SELECT close_trigger_incident({number}, 'dana', 'the receiver has it')");
    assert_eq!(verdict(&db, OPERATOR, &close).await, "OK");
    assert_eq!(db.count("outbox_incidents").await, 0);
}
