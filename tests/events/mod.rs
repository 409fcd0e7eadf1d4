//! The event lane: what the database accepts, keeps in order and hands out, and what the lane on the engine makes of it.

mod acts;
mod checks;
mod commands;
mod cursors;
mod destinations;
mod end_to_end;
mod giving_up;
mod lane;
mod log;
mod overlaps;
mod races;
mod strangers;
mod topics;

use serde_json::value::RawValue;
use symphony::db::{
    BucketLease, ClaimedEvent, EventClaim, EventFigures, EventOutcome, EventRecorded, EventState,
};
use symphony::event::Event;
use uuid::Uuid;

use crate::support::TestDb;

/// The `n`th event of a key.
pub fn event(key: &str, n: usize) -> Event {
    event_with(Uuid::new_v4(), key, &format!(r#"{{"n": {n}}}"#))
}

pub fn event_with(event_id: Uuid, key: &str, payload: &str) -> Event {
    event_of_type("events.transfers.submitted", event_id, key, payload)
}

fn event_of_type(event_type: &str, event_id: Uuid, key: &str, payload: &str) -> Event {
    let text = format!(
        r#"{{"envelope": {{"v": 1, "eventId": "{event_id}", "occurredAt": "2026-11-15T12:00:00Z", "tenantId": "tnt_1",
            "type": "{event_type}"}}, "key": {{"transferId": "{key}"}}, "payload": {payload}}}"#
    );
    Event::parse(&text).unwrap()
}

impl TestDb {
    /// Tell these facts in one call; all must be accepted.
    pub async fn tell(&self, events: &[Event]) -> Vec<Uuid> {
        let bodies: Vec<&RawValue> = events.iter().map(Event::body).collect();
        let answers = self.database.producer().enqueue_events(&bodies).await.unwrap();
        answers.into_iter().map(|answer| answer.unwrap().event_id).collect()
    }

    /// `count` events of one key.
    pub async fn tell_of(&self, key: &str, count: usize) -> Vec<Uuid> {
        let events: Vec<Event> = (0..count).map(|n| event(key, n)).collect();
        self.tell(&events).await
    }

    pub async fn claim_events(&self, worker: &str, window_max: i32) -> Vec<ClaimedEvent> {
        let claim =
            EventClaim { worker_id: worker, buckets_max: 256, window_max, lease_seconds: 60 };
        let buckets_max = (4096 / window_max).min(256);
        let claim = EventClaim { buckets_max, ..claim };
        self.database.worker().claim_events(&claim).await.unwrap().events
    }

    /// Report these outcomes in one call.
    pub async fn report(
        &self,
        worker: &str,
        outcomes: &[(&ClaimedEvent, EventState)],
    ) -> Vec<EventRecorded> {
        let outcomes: Vec<EventOutcome> = outcomes
            .iter()
            .map(|(event, state)| EventOutcome::new(event.lease(), event.log_position, *state))
            .collect();
        self.database
            .worker()
            .complete_events(worker, &outcomes.iter().collect::<Vec<_>>())
            .await
            .unwrap()
    }

    /// Claim and publish whatever can be, until nothing is left. Answers the ids in the order of publication.
    pub async fn publish_all(&self, worker: &str) -> Vec<Uuid> {
        let mut published = Vec::new();
        loop {
            let events = self.claim_events(worker, 50).await;
            if events.is_empty() {
                return published;
            }
            let outcomes: Vec<_> =
                events.iter().map(|event| (event, EventState::Dispatched)).collect();
            let recorded = self.report(worker, &outcomes).await;
            assert!(recorded.iter().all(is_recorded), "{recorded:?}");
            published.extend(events.iter().map(|event| event.event_id));
        }
    }

    /// Let every waiting key be due, by setting the time in the row.
    pub async fn make_keys_due(&self) {
        self.sql(
            "UPDATE event_outbox_waiting SET not_before = clock_timestamp() WHERE not_before IS NOT NULL; \
             UPDATE event_outbox_blocked SET due_at = clock_timestamp() WHERE failed_position IS NULL",
        )
        .await;
    }

    /// Let all leases have ended, by setting the time in the row.
    pub async fn expire_buckets(&self) {
        self.sql("UPDATE event_outbox_cursors SET lease_expires_at = clock_timestamp() - INTERVAL '1 second' WHERE lease_token IS NOT NULL")
            .await;
    }

    /// The outcomes of an event, in order.
    pub async fn event_ledger(&self, event: Uuid) -> Vec<String> {
        let life = self.database.auditor().event_life(event).await.unwrap().unwrap();
        life.attempts
            .iter()
            .map(|attempt| {
                let state = serde_json::to_value(attempt.state).unwrap();
                format!("{}.{} {}", attempt.redrive_no, attempt.attempt_no, state.as_str().unwrap())
            })
            .collect()
    }

    pub async fn event_state(&self, event: Uuid) -> String {
        self.database.auditor().event_life(event).await.unwrap().unwrap().record.state
    }

    /// Every event is accounted for, in order.
    pub async fn assert_events_hold(&self) {
        let figures = self.database.auditor().event_figures().await.unwrap();
        // Tests report in any order, and the ledger tells the order of reports.
        let figures = EventFigures { inversions: 0, ..figures };
        assert!(figures.holds(), "{figures:?}");
        self.assert_data_agrees().await;
        // A lease or a token is left over from nobody.
        assert_eq!(
            self.count(
                "event_outbox_waiting w JOIN event_outbox_cursors c USING (bucket) WHERE w.lease_token IS NOT NULL \
                 AND w.lease_token IS DISTINCT FROM c.lease_token"
            )
            .await,
            0
        );
        assert_eq!(
            self.count(
                "event_outbox_waiting w WHERE NOT EXISTS (SELECT FROM event_outbox_blocked k \
                 WHERE k.bucket = w.bucket AND k.event_key = w.event_key)"
            )
            .await,
            0,
            "what waits, waits behind a blocked key"
        );
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // for iter().all()
pub fn is_recorded(recorded: &EventRecorded) -> bool {
    matches!(recorded, EventRecorded::Recorded { .. })
}

pub fn ids(events: &[ClaimedEvent]) -> Vec<Uuid> {
    events.iter().map(|event| event.event_id).collect()
}

pub fn leases(events: &[ClaimedEvent]) -> Vec<BucketLease> {
    let mut leases: Vec<_> = events.iter().map(ClaimedEvent::lease).collect();
    leases.sort_unstable();
    leases.dedup();
    leases
}

const RETRYABLE: EventState = EventState::Retryable { unknown: false };
const FAILED: EventState = EventState::Failed { key_continues: false };
