//! A person has a rail asked: what it knows enters the ledger, and nothing is sent by it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use symphony::domain::OutboxId;
use symphony::lanes::payments::rail::{InquiryTerms, Terms};

use super::bank::{Bank, Reply, rail, setup, start, terms};
use crate::support::shell::dana;
use crate::support::{TestDb, until};

/// It can be asked, does not deduplicate, and its "not found" proves nothing: what is unknown there is parked.
fn careful() -> Terms {
    Terms { key_lifetime: None, inquiry: InquiryTerms::NotFoundProvesNothing, ..terms() }
}

/// A parked payment that the bank may or may not have executed; it was never asked about with success.
async fn parked(db: &TestDb) -> OutboxId {
    let item = db.enqueue_stream("acme", "sepa", 1).await[0];
    let claimed = db.claim_one("lost").await;
    let unknown =
        symphony::db::PaymentOutcome::new(claimed.lease(), symphony::domain::Outcome::Unknown);
    db.database.worker().park_unknown_payment("lost", &unknown).await.unwrap();
    item
}

#[tokio::test]
async fn what_the_rail_knows_settles_it() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let item = parked(&db).await;
    *bank.executed.lock().unwrap().entry(item).or_default() += 1;
    let engine = start(&db, vec![setup("sepa", rail(&bank, careful(), |_, _, _| Reply::Panic))]);
    let told = dana(&db, &format!("inquire {item} --reason the␣customer␣asks --yes")).await;
    assert!(told.ok, "{}{}", told.output, told.error);
    assert!(
        told.output.contains(&format!("{item} is DISPATCHED, reference BANK-1")),
        "{}",
        told.output
    );
    assert_eq!(bank.sends.load(Ordering::SeqCst), 0);
    assert_eq!(
        db.count("payment_outbox_events WHERE event_type = 'INQUIRY_ASKED' AND actor = 'dana'")
            .await,
        1
    );
    assert_eq!(engine.stop().await, 0);
}

#[tokio::test]
async fn what_the_rail_does_not_know_is_parked_again_and_never_sent_even_under_a_young_key() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let item = parked(&db).await;
    // By itself the machine would send this again under its key; a person only asked.
    let engine = start(&db, vec![setup("sepa", rail(&bank, terms(), |_, _, _| Reply::Panic))]);
    let dry = dana(&db, &format!("inquire {item} --reason r")).await;
    assert!(dry.ok && dry.output.contains("nothing is sent"), "{}", dry.output);
    let told = dana(&db, &format!("inquire {item} --reason r --yes")).await;
    assert!(told.ok && told.output.contains("is PARKED"), "{}{}", told.output, told.error);
    assert!(
        told.output.contains("the rail does not know it; nothing was sent now"),
        "{}",
        told.output
    );
    assert_eq!((bank.inquiries.load(Ordering::SeqCst), bank.sends.load(Ordering::SeqCst)), (1, 0));
    until("it waits for a person again", async || db.state(item).await == "PARKED").await;
    assert_eq!(db.count("payment_outbox_pending WHERE only_ask").await, 0);
    assert_eq!(engine.stop().await, 0);
}

#[tokio::test]
async fn where_nobody_serves_the_rail_the_command_says_so() {
    let db = TestDb::new().await;
    let item = parked(&db).await;
    let told = dana(&db, &format!("inquire {item} --reason r --wait 0 --yes")).await;
    assert!(
        !told.ok && told.output.contains("no live worker serves rail sepa"),
        "{}{}",
        told.output,
        told.error
    );
}
