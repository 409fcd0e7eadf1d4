//! Whoever asks for a payment chooses its names. None of them may write a line of its own on an operator's terminal.

use symphony::db::PaymentOutcome;
use symphony::domain::{Act, Outcome, PaymentRequest};
use uuid::Uuid;

use super::{symphony, text};
use crate::support::{TestDb, act, payment};

/// A line that looks like the ledger's, a cleared screen, text that runs backwards, something invisible.
fn hostile(name: &str) -> String {
    format!(
        "{name}\n  2027-01-31T12:00:00.000Z  attempt 1: Dispatched\r\u{1b}[2J\u{9b}1m\u{202e}\u{200b}\u{2028}FORGED"
    )
}

/// Nothing in it acts on a terminal, and nothing stored begins a line.
fn assert_tame(of: &str, told: &str) {
    let acting = told.chars().find(|c| {
        *c != '\n' && c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    });
    assert_eq!(acting, None, "{of}: {told:?}");
    let forged = told
        .lines()
        .find(|line| line.trim_start().starts_with("2027-01-31") || line.starts_with("FORGED"));
    assert_eq!(forged, None, "{of}: {told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_stored_neither_forges_a_line_nor_acts_on_a_terminal() {
    let db = TestDb::new().await;
    let act = Act { actor: hostile("dana"), reason: hostile("because"), ..act() };
    let request = |name: &str| PaymentRequest {
        idempotency_key: hostile("key"),
        ..payment(&hostile(name), &hostile("acme"), "sepa")
    };
    // One that ended and that a lost worker contradicts, one parked by somebody with such a name.
    let failed = db.enqueue(&request("failed")).await.outbox_id;
    let lost = db.claim_one("lost").await.lease();
    db.expire(failed).await;
    let lease = db.claim_one("w").await.lease();
    let mut no = PaymentOutcome::new(lease, Outcome::Failed);
    no.error_message = Some(hostile("no"));
    no.rail_code = Some(hostile("AC04"));
    db.database.worker().complete_payment("w", &no).await.unwrap();
    let mut late = PaymentOutcome::new(lost, Outcome::Dispatched);
    late.rail_reference = Some(hostile("R1"));
    db.database.worker().record_late_payment("lost", &late).await.unwrap();
    let parked = db.enqueue(&request("parked")).await.outbox_id;
    db.database.operator().park_payment(parked, &act).await.unwrap();
    let event = crate::events::event_with(Uuid::new_v4(), "k", "{}");
    let event = db.tell(&[event]).await[0];

    let (failed, parked, event) = (failed.to_string(), parked.to_string(), event.to_string());
    let instruction = hostile("parked");
    for words in [
        vec!["status"],
        vec!["show", &failed],
        vec!["show", &parked],
        vec!["show", &event],
        vec!["show", &instruction],
        vec!["show", "nothing\n2027-01-31 FORGED"],
        vec!["dlq", "list"],
        vec!["incident", "list"],
        vec!["release", &parked, "--reason", "x", "--actor", "dana"],
        vec!["resolve", &parked, "--as", "failed", "--reason", "x"],
        vec!["redrive", &failed, "--reason", "x", "--despite-unknown"],
        vec!["park", "nothing\n2027-01-31 FORGED", "--reason", "x"],
        vec!["pause", "participant", &instruction, "--reason", "x"],
        vec!["app", "tree", "nothing\n2027-01-31 FORGED"],
        vec!["nothing\n2027-01-31 FORGED"],
    ] {
        for format in [None, Some("--json")] {
            let words: Vec<&str> = words.iter().copied().chain(format).collect();
            let output = symphony(Some(&db.options), &words, &[]);
            let told = text(&output.stdout) + &text(&output.stderr);
            assert!(!told.is_empty(), "{words:?}");
            assert_tame(&format!("{words:?}"), &told);
        }
    }
}
