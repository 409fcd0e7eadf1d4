//! Requests that run before they are written. What a script wants to have done is data, and nobody is told anything before
//! it is committed: so a run that ends at once is written as it ended, in one call. One that takes longer, or lets
//! something leave, gets its row first, leased to this process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::db::{ClaimedTrigger, DbError, Worker};
use crate::triggers::{Source, TriggerRequest};

/// A run that takes longer than this gets its row.
pub(super) const ROW_AFTER: Duration = Duration::from_millis(10);
/// How long requests are written first once something was not as it seemed: a server's cached routes are renewed meanwhile.
const WRITE_FIRST_FOR: Duration = Duration::from_secs(1);

/// A request that this process may run before it is written.
#[derive(Debug)]
pub struct ServedRequest {
    /// Its app's name.
    pub app: String,
    /// Its app.
    pub app_id: Uuid,
    /// Its route.
    pub route_id: Uuid,
    /// The script that the route led to a moment ago.
    pub script_id: Uuid,
    /// What it carries.
    pub payload: Box<RawValue>,
    /// Who causes it.
    pub origin_principal: Option<Uuid>,
    /// As whom it runs.
    pub principal: Option<Uuid>,
    /// Under which name somebody waits.
    pub reply_to: Uuid,
    /// For how long.
    pub wait: Duration,
    /// Since when.
    pub since: Instant,
    /// W3C trace context.
    pub traceparent: Option<String>,
}

/// What the database is to be told of a request that runs already.
#[derive(Debug)]
pub struct Unwritten {
    app: String,
    reply_to: Uuid,
    wait: Duration,
    since: Instant,
    stage: Mutex<Stage>,
    row: OnceCell<Row>,
    /// Its row's COMMIT was not confirmed.
    is_unconfirmed: AtomicBool,
}

/// Who has the last word on a request: exactly one of its completion, its row and its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// Its completion is being written.
    Completing,
    /// Its row is written, or may be: the database decides everything from here on.
    Written,
    /// Whoever waited was told that nothing will be applied.
    Expired,
}

/// What became of a request's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Row {
    /// It is leased to this worker.
    Leased,
    /// It waits for whoever claims it.
    Pending,
    /// There is none: its route is gone.
    NoRoute,
    /// There is none, and whoever would claim it finds nothing.
    NotWritten,
}

/// What can still become of a request whose client has waited long enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Nothing: it was never written, and will not be applied.
    Expired,
    /// Its completion is on its way, with the answer.
    Completing,
    /// Ask the database.
    Written,
}

impl Unwritten {
    pub(super) fn new(request: &ServedRequest) -> Arc<Self> {
        Arc::new(Self {
            app: request.app.clone(),
            reply_to: request.reply_to,
            wait: request.wait,
            since: request.since,
            stage: Mutex::new(Stage::Open),
            row: OnceCell::new(),
            is_unconfirmed: AtomicBool::new(false),
        })
    }

    /// Whoever waits for it gives up. From here on nothing of it is applied, unless it is being completed.
    pub fn expire(&self) -> Expiry {
        match self.change(Stage::Open, Stage::Expired) {
            Stage::Open | Stage::Expired => Expiry::Expired,
            Stage::Completing => Expiry::Completing,
            Stage::Written => Expiry::Written,
        }
    }

    /// Where the database has no row of it, that may still come: the COMMIT was not confirmed.
    pub fn is_unconfirmed(&self) -> bool {
        self.is_unconfirmed.load(Ordering::Acquire)
    }

    /// It is to be written with its completion, unless it has a row.
    pub(super) fn begin_completing(&self) -> bool {
        self.change(Stage::Open, Stage::Completing) != Stage::Written
    }

    /// Nothing was written: it may run again.
    pub(super) fn reopen(&self) {
        self.change(Stage::Completing, Stage::Open);
    }

    /// How long whoever waits still does, in milliseconds; 0 if they have gone.
    pub(super) fn wait_ms(&self) -> i32 {
        if self.stage() == Stage::Expired {
            return 0;
        }
        i32::try_from(self.wait.saturating_sub(self.since.elapsed()).as_millis())
            .unwrap_or(i32::MAX)
    }

    /// How long ago it came, in milliseconds.
    pub(super) fn waited_ms(&self) -> i32 {
        i32::try_from(self.since.elapsed().as_millis()).unwrap_or(i32::MAX)
    }

    /// What became of its row; `None` if nobody has begun to write it.
    pub(super) fn row(&self) -> Option<Row> {
        self.row.get().copied()
    }

    /// Write its row, once: leased to this worker if it is to go on here.
    pub(super) async fn write_row(
        &self,
        worker: &Worker,
        worker_id: &str,
        item: &ClaimedTrigger,
        lease_seconds: Option<i32>,
    ) -> Row {
        *self
            .row
            .get_or_init(async || {
                let before = self.change(Stage::Open, Stage::Written);
                let before = if before == Stage::Completing {
                    self.change(before, Stage::Written)
                } else {
                    before
                };
                if before == Stage::Expired {
                    return Row::NotWritten;
                }
                let Some(route_id) = item.trigger_id else { return Row::NoRoute };
                let request =
                    TriggerRequest::new(&self.app, Source::Http, route_id, &item.payload.0)
                        .origin_principal(item.origin_principal)
                        .traceparent(item.traceparent.as_deref())
                        .reply(self.reply_to, self.wait_ms().max(1));
                let leased = [lease_seconds.is_some()];
                let lease_seconds = lease_seconds.unwrap_or(1);
                let written = worker
                    .enqueue_leased_triggers(
                        worker_id,
                        lease_seconds,
                        &leased,
                        &[request],
                        Some(&[item.lease()]),
                    )
                    .await;
                if written.as_ref().is_ok_and(|placed| !placed.is_confirmed) {
                    self.is_unconfirmed.store(true, Ordering::Release);
                }
                match written.map(|mut placed| placed.answers.pop()) {
                    Ok(Some(Ok(written))) if written.lease_token == Some(item.lease_token) => {
                        Row::Leased
                    }
                    Ok(Some(Ok(_))) => Row::Pending,
                    Ok(Some(Err(DbError::NoSuchItem { .. } | DbError::InvalidArgument { .. }))) => {
                        Row::NoRoute
                    }
                    Ok(_) | Err(_) => Row::NotWritten,
                }
            })
            .await
    }

    /// The stage it was in; it is in the other one now if it was in this.
    fn change(&self, from: Stage, to: Stage) -> Stage {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *stage;
        if before == from {
            *stage = to;
        }
        before
    }

    fn stage(&self) -> Stage {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether requests may run before they are written: not while an app, or the database, was found to be otherwise than it
/// seemed, so that no script runs in vain again and again.
#[derive(Debug, Clone, Default)]
pub(super) struct RunFirst(Arc<Mutex<WriteFirst>>);

#[derive(Debug, Default)]
struct WriteFirst {
    all_until: Option<Instant>,
    apps_until: HashMap<Uuid, Instant>,
}

impl RunFirst {
    pub(super) fn is_allowed(&self, app_id: Uuid, now: Instant) -> bool {
        let until = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.all_until.is_none_or(|until| until <= now)
            && until.apps_until.get(&app_id).is_none_or(|until| *until <= now)
    }

    /// The database takes nothing that it was not told of before.
    pub(super) fn suspend(&self, now: Instant) {
        let mut until = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.all_until = Some(now + WRITE_FIRST_FOR);
    }

    /// An app was pushed, paused or deleted.
    pub(super) fn suspend_app(&self, app_id: Uuid, now: Instant) {
        let mut until = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.apps_until.retain(|_, until| *until > now);
        until.apps_until.insert(app_id, now + WRITE_FIRST_FOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unwritten() -> Arc<Unwritten> {
        Unwritten::new(&ServedRequest {
            app: "shop".to_owned(),
            app_id: Uuid::nil(),
            route_id: Uuid::nil(),
            script_id: Uuid::nil(),
            payload: RawValue::NULL.to_owned(),
            origin_principal: None,
            principal: None,
            reply_to: Uuid::nil(),
            wait: Duration::from_mins(1),
            since: Instant::now(),
            traceparent: None,
        })
    }

    #[test]
    fn what_a_client_was_told_to_be_over_is_completed_as_too_late() {
        let request = unwritten();
        assert!(request.wait_ms() > 0);
        assert_eq!(request.expire(), Expiry::Expired);
        assert!(request.begin_completing(), "it is still written down");
        assert_eq!(request.wait_ms(), 0);
    }

    #[test]
    fn a_completion_on_its_way_is_waited_for_until_it_turns_out_to_be_none() {
        let request = unwritten();
        assert!(request.begin_completing());
        assert_eq!(request.expire(), Expiry::Completing);
        request.reopen();
        assert_eq!(request.expire(), Expiry::Expired);
    }

    #[test]
    fn an_app_that_has_changed_is_written_first_for_a_while_and_no_other() {
        let (first, app, now) = (RunFirst::default(), Uuid::from_u128(1), Instant::now());
        first.suspend_app(app, now);
        assert!(!first.is_allowed(app, now));
        assert!(first.is_allowed(Uuid::nil(), now));
        assert!(first.is_allowed(app, now + WRITE_FIRST_FOR));
        first.suspend(now);
        assert!(!first.is_allowed(Uuid::nil(), now));
    }
}
