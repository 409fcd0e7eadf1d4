//! What operators do to events: redrive and skip, with a dry run, a reason and a trace.

use symphony::db::{EventFilter, EventState, Resend};
use uuid::Uuid;

use super::{FAILED, event};
use crate::support::{TestDb, act, code};

const NOW: Resend = Resend { sent_too: false, dedup_window_seconds: 0 };

/// Three events of one key, the first FAILED.
async fn blocked(db: &TestDb) -> Vec<Uuid> {
    let told = db.tell_of("k", 3).await;
    let events = db.claim_events("w", 50).await;
    db.report("w", &[(&events[0], FAILED)]).await;
    told
}

#[tokio::test]
async fn a_redriven_event_goes_out_again_in_its_place_and_its_key_goes_on() {
    let db = TestDb::new().await;
    let told = blocked(&db).await;
    let operator = db.database.operator();
    let dry = symphony::domain::Act { dry_run: true, ..act() };
    let would = operator.redrive_events(&told[..1], NOW, &dry).await.unwrap();
    assert_eq!((would[0].state_before.as_str(), would[0].dry_run), ("FAILED", true));
    assert_eq!(db.event_state(told[0]).await, "FAILED", "a dry run changes nothing");
    operator.redrive_events(&told[..1], NOW, &act()).await.unwrap();
    assert_eq!(db.event_state(told[0]).await, "PENDING");
    assert_eq!(db.publish_all("w").await, told);
    assert_eq!(db.event_ledger(told[0]).await, ["0.1 FAILED", "1.1 DISPATCHED"]);
    assert_eq!(
        db.count("event_outbox_events WHERE event_type = 'REDRIVEN' AND actor = 'dana'").await,
        1
    );
    assert_eq!(
        code(operator.redrive_events(&told[..1], NOW, &act()).await),
        "P7006",
        "SENT is not FAILED"
    );
    db.assert_events_hold().await;
}

#[tokio::test]
async fn a_redrive_waits_until_the_bus_would_not_swallow_it() {
    let db = TestDb::new().await;
    let told = blocked(&db).await;
    let resend = Resend { sent_too: false, dedup_window_seconds: 300 };
    let answers = db.database.operator().redrive_events(&told[..1], resend, &act()).await.unwrap();
    let wait = (answers[0].due_at - chrono::Utc::now()).num_seconds();
    assert!((290..=300).contains(&wait), "{wait}");
    assert!(db.claim_events("w", 50).await.is_empty());
    db.make_keys_due().await;
    assert_eq!(db.publish_all("w").await, told);
}

#[tokio::test]
async fn nothing_else_that_happens_to_its_key_makes_a_redrive_go_out_while_the_bus_would_swallow_it()
 {
    let db = TestDb::new().await;
    let first = db.tell_of("k", 1).await;
    db.publish_all("w").await;
    let second = db.tell_of("k", 2).await;
    let events = db.claim_events("w", 50).await;
    let window = Resend { sent_too: true, dedup_window_seconds: 300 };
    db.database.operator().redrive_events(&first, window, &act()).await.unwrap();
    // The event in flight fails meanwhile, and would be due at once.
    let retry = symphony::db::EventOutcome {
        retry_delay_seconds: Some(0),
        ..symphony::db::EventOutcome::new(
            events[0].lease(),
            events[0].log_position,
            super::RETRYABLE,
        )
    };
    db.database.worker().complete_events("w", &[&retry]).await.unwrap();
    assert!(db.claim_events("w", 50).await.is_empty(), "the first of the key must wait");
    db.make_keys_due().await;
    assert_eq!(db.publish_all("w").await, [first[0], second[0], second[1]]);
    db.assert_events_hold().await;
}

#[tokio::test]
async fn a_sent_event_is_sent_again_only_if_one_says_so() {
    let db = TestDb::new().await;
    let told = db.tell_of("k", 2).await;
    db.publish_all("w").await;
    let operator = db.database.operator();
    assert_eq!(code(operator.redrive_events(&told[..1], NOW, &act()).await), "P7006");
    let resend = Resend { sent_too: true, ..NOW };
    operator.redrive_events(&told[..1], resend, &act()).await.unwrap();
    assert_eq!(code(operator.redrive_events(&told[..1], resend, &act()).await), "P7006", "PENDING");
    let later = db.tell_of("k", 1).await;
    assert_eq!(db.publish_all("w").await, [told[0], later[0]], "later ones wait behind it");
    assert_eq!(db.event_ledger(told[0]).await, ["0.1 DISPATCHED", "1.1 DISPATCHED"]);
    assert_eq!(code(operator.redrive_events(&[Uuid::new_v4()], NOW, &act()).await), "P7007");
}

#[tokio::test]
async fn a_skipped_event_lets_its_key_go_on_and_stays_failed() {
    let db = TestDb::new().await;
    let told = blocked(&db).await;
    let operator = db.database.operator();
    assert_eq!(code(operator.skip_event(told[1], &act()).await), "P7006");
    let skipped = operator.skip_event(told[0], &act()).await.unwrap();
    assert_eq!(skipped.waiting, 2);
    assert_eq!(db.publish_all("w").await, told[1..]);
    assert_eq!(db.event_state(told[0]).await, "FAILED");
    assert_eq!(
        code(operator.skip_event(told[0], &act()).await),
        "P7006",
        "it blocks nothing any more"
    );
    operator.redrive_events(&told[..1], NOW, &act()).await.unwrap();
    assert_eq!(db.publish_all("w").await, told[..1], "a redrive later goes out of turn");
}

#[tokio::test]
async fn an_act_without_a_name_or_a_reason_is_refused() {
    let db = TestDb::new().await;
    let told = blocked(&db).await;
    let operator = db.database.operator();
    let nobody = symphony::domain::Act { actor: " ".to_owned(), ..act() };
    let no_reason = symphony::domain::Act { reason: String::new(), ..act() };
    for bad in [nobody, no_reason] {
        assert_eq!(code(operator.redrive_events(&told[..1], NOW, &bad).await), "P7005");
        assert_eq!(code(operator.skip_event(told[0], &bad).await), "P7005");
        assert_eq!(code(operator.pause(&symphony::domain::Switch::Events, &bad).await), "P7005");
        assert_eq!(code(operator.configure_events(None, None, &bad).await), "P7005");
    }
    assert_eq!(db.count("event_outbox_events WHERE actor IS NOT NULL").await, 0);
}

#[tokio::test]
async fn a_filter_finds_what_it_names_and_nothing_else() {
    let db = TestDb::new().await;
    let failed = db.tell(&[event("a", 0), event("b", 0)]).await;
    let events = db.claim_events("w", 50).await;
    for event in &events {
        db.report("w", &[(event, FAILED)]).await;
    }
    let sent = db.tell_of("c", 1).await;
    let events = db.claim_events("w", 50).await;
    db.report("w", &[(&events[0], EventState::Dispatched)]).await;
    let find = async |filter: EventFilter| {
        let found = db.database.auditor().find_events(&filter).await.unwrap();
        found.iter().map(|one| one.event_id).collect::<Vec<_>>()
    };
    let all = EventFilter { limit: 100, ..EventFilter::default() };
    assert_eq!(find(all.clone()).await, failed);
    assert_eq!(find(EventFilter { sent: true, ..all.clone() }).await, sent);
    assert_eq!(find(EventFilter { key: Some("b".to_owned()), ..all.clone() }).await, failed[1..]);
    let of_type =
        |pattern: &str| EventFilter { event_type: Some(pattern.to_owned()), ..all.clone() };
    assert_eq!(find(of_type("events.transfers.*")).await, failed);
    assert!(find(of_type("events.transfers")).await.is_empty());
    assert_eq!(find(EventFilter { limit: 1, ..all.clone() }).await, failed[..1]);
    let future = Some(chrono::Utc::now() + chrono::TimeDelta::hours(1));
    assert!(find(EventFilter { since: future, ..all.clone() }).await.is_empty());
    assert_eq!(find(EventFilter { until: future, ..all }).await, failed);
}
