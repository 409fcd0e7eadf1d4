//! The last check before a payment is sent: when everything is ready and the first byte is about to leave.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use super::decide;
use super::rail::{SendCheck, Terms};
use crate::db::{ClaimedPayment, Worker};
use crate::engine::{Hold, Moment, Point, Unsent};

/// Why nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The database does not take it for sent.
    Unmarked(Unsent),
    /// It was marked as sending before.
    Marked,
}

/// Clears one payment for sending.
pub(super) struct FirstByte<'a> {
    worker: &'a Worker,
    worker_id: &'a str,
    item: &'a ClaimedPayment,
    terms: &'a Terms,
    hold: &'a Hold,
    /// Its key is not surely remembered after this.
    until: Option<Moment>,
    refusal: Mutex<Option<Refusal>>,
}

impl<'a> FirstByte<'a> {
    pub(super) fn new(
        worker: &'a Worker,
        worker_id: &'a str,
        item: &'a ClaimedPayment,
        terms: &'a Terms,
        hold: &'a Hold,
        until: Option<Moment>,
    ) -> Self {
        Self { worker, worker_id, item, terms, hold, until, refusal: Mutex::default() }
    }

    /// Why it was refused, if it was.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn clear(&self) -> Result<(), Refusal> {
        if self.until.is_some_and(|until| self.hold.now() >= until) {
            return Err(Refusal::Unmarked(Unsent::Undecided));
        }
        // The database may have been told to rely on marks after this worker had started.
        let marks = self.item.marks_sending || decide::needs_marks(self.terms);
        if marks {
            let marked =
                self.worker.mark_payments_sending(self.worker_id, &[self.item.lease()]).await;
            held(marked.ok().map(|marks| marks.first().is_some_and(|(_, marked)| *marked)))?;
        } else if self.terms.key_lifetime.is_none() {
            // Nothing but the lease keeps a second copy from being paid: this worker's own word is not enough.
            held(self.worker.still_holds_payment(self.worker_id, self.item.lease()).await.ok())?;
        }
        self.hold
            .begin_sending(self.terms.timeout)
            .map_err(|unsent| if marks { Refusal::Marked } else { Refusal::Unmarked(unsent) })
    }
}

fn held(answer: Option<bool>) -> Result<(), Refusal> {
    match answer {
        Some(true) => Ok(()),
        Some(false) => Err(Refusal::Unmarked(Unsent::LeaseLost)),
        // It may be marked: then its lease runs out and a person is asked. It is not sent, in any case.
        None => Err(Refusal::Unmarked(Unsent::Undecided)),
    }
}

#[async_trait]
impl SendCheck for FirstByte<'_> {
    async fn may_send(&self) -> bool {
        let cleared = self.clear().await;
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = cleared.err();
        if cleared.is_ok() {
            self.hold.at(Point::BeforeSend);
        }
        cleared.is_ok()
    }
}
