//! Writes requests into the trigger outbox. One task writes all requests that arrived meanwhile in one transaction, so
//! that many requests cost one commit and one connection.
//!
//! Requests that nobody waits for are answered only after the durable commit of their rows. Those that somebody waits for
//! go to `leased_writer.rs` where this process runs scripts itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use symphony::db::{DbError, Placed, Producer};
use symphony::lanes::triggers::{LeasedRequests, ServedRequest, Unwritten};
use symphony::triggers::{Source, TriggerRequest};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::leased_writer;
use crate::bounds::REQUESTS_PER_COMMIT_MAX;

/// How often a writer yields before it commits: requests that are being read join the batch, and no timer delays it.
const YIELDS: usize = 3;

/// A request to be written.
pub(super) struct RouteRequest {
    pub(super) app: String,
    pub(super) app_id: Uuid,
    pub(super) route_id: Uuid,
    /// The script its route led to, if that runs here.
    pub(super) script_id: Option<Uuid>,
    /// As whom it runs.
    pub(super) principal: Option<Uuid>,
    pub(super) payload: Box<RawValue>,
    /// The reply's id, and how long the client waits.
    pub(super) reply: Option<(Uuid, Duration)>,
    /// Since when.
    pub(super) since: Instant,
    /// Who calls.
    pub(super) origin_principal: Option<Uuid>,
    /// What caused it.
    pub(super) traceparent: Option<String>,
}

/// A request that was taken.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) id: Uuid,
    /// It runs before it is written.
    pub(super) unwritten: Option<Arc<Unwritten>>,
    /// It may not be written: the COMMIT got no answer, and nobody could be asked. If it is, it runs.
    pub(super) is_unconfirmed: bool,
}

impl Accepted {
    pub(super) fn written(id: Uuid, is_confirmed: bool) -> Self {
        Self { id, unwritten: None, is_unconfirmed: !is_confirmed }
    }
}

/// The error is shared, because one failed commit fails every request of its batch.
pub(super) type Answer = Result<Accepted, Arc<DbError>>;
pub(super) type Queued = (RouteRequest, oneshot::Sender<Answer>);

/// The writers' queues.
#[derive(Debug)]
pub(super) struct RequestWriter {
    durable: mpsc::UnboundedSender<Queued>,
    /// Where scripts run in this process.
    leased: Option<mpsc::UnboundedSender<Queued>>,
}

impl RequestWriter {
    /// The queues, and the task that writes them.
    pub(super) fn new(
        producer: Producer,
        leased: Option<LeasedRequests>,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (durable, receiver) = mpsc::unbounded_channel();
        let write_durable = write_batches(producer, receiver);
        let (sender, write_leased) = match leased {
            None => (None, None),
            Some(leased) => {
                let (sender, receiver) = mpsc::unbounded_channel();
                let write = leased_writer::write_batches(leased, receiver, durable.clone());
                (Some(sender), Some(write))
            }
        };
        let writing = async move {
            match write_leased {
                None => write_durable.await,
                Some(write_leased) => {
                    tokio::join!(write_durable, write_leased);
                }
            }
        };
        (Self { durable, leased: sender }, writing)
    }

    /// Write one request; answers after the commit, which is durable unless somebody waits for the reply. Then it may also
    /// be running, and not be written yet.
    pub(super) async fn write(&self, request: RouteRequest) -> Answer {
        let (sender, receiver) = oneshot::channel();
        let stopped = || Arc::new(DbError::Unreachable { message: "the server stops".to_owned() });
        let queue = match &self.leased {
            Some(leased) if request.reply.is_some() => leased,
            _ => &self.durable,
        };
        queue.send((request, sender)).map_err(|_| stopped())?;
        receiver.await.map_err(|_| stopped())?
    }
}

/// Wait a little for requests that are being read, and take all there are.
pub(super) async fn join_batch(
    queue: &mut mpsc::UnboundedReceiver<Queued>,
    batch: &mut Vec<Queued>,
) {
    for _ in 0..YIELDS {
        tokio::task::yield_now().await;
    }
    while batch.len() < REQUESTS_PER_COMMIT_MAX
        && let Ok(queued) = queue.try_recv()
    {
        batch.push(queued);
    }
}

async fn write_batches(producer: Producer, mut queue: mpsc::UnboundedReceiver<Queued>) {
    let mut batch = Vec::with_capacity(REQUESTS_PER_COMMIT_MAX);
    while queue.recv_many(&mut batch, REQUESTS_PER_COMMIT_MAX).await > 0 {
        join_batch(&mut queue, &mut batch).await;
        // A client that closed its connection gets no row.
        batch.retain(|(_, answer)| !answer.is_closed());
        if batch.is_empty() {
            continue;
        }
        let requests: Vec<_> = batch.iter().map(|(request, _)| request.trigger()).collect();
        match producer.place_triggers(&requests).await {
            Ok(Placed { answers, is_confirmed }) => {
                for ((_, answer), written) in batch.drain(..).zip(answers) {
                    let accepted = written.map(|w| Accepted::written(w.id, is_confirmed));
                    drop(answer.send(accepted.map_err(Arc::new)));
                }
            }
            // The whole batch was rolled back because of one request, such as JSON that JSONB cannot hold. Each is
            // written by itself, so that only that one fails.
            Err(error) if batch.len() > 1 && !error.is_transient() => {
                for (request, answer) in batch.drain(..) {
                    let placed = producer.place_triggers(&[request.trigger()]).await;
                    let accepted = placed.and_then(|mut placed| {
                        let written = placed.answers.pop().unwrap_or(Err(DbError::NotCommitted));
                        Ok(Accepted::written(written?.id, placed.is_confirmed))
                    });
                    drop(answer.send(accepted.map_err(Arc::new)));
                }
            }
            // Nothing was written.
            Err(error) => fail_all(batch.drain(..), error),
        }
    }
}

pub(super) fn fail_all(batch: impl Iterator<Item = Queued>, error: DbError) {
    let error = Arc::new(error);
    for (_, answer) in batch {
        drop(answer.send(Err(error.clone())));
    }
}

impl From<ServedRequest> for RouteRequest {
    fn from(served: ServedRequest) -> Self {
        Self {
            app: served.app,
            app_id: served.app_id,
            route_id: served.route_id,
            script_id: Some(served.script_id),
            origin_principal: served.origin_principal,
            principal: served.principal,
            payload: served.payload,
            reply: Some((served.reply_to, served.wait)),
            since: served.since,
            traceparent: served.traceparent,
        }
    }
}

impl RouteRequest {
    /// To be run before it is written.
    pub(super) fn served(self, script_id: Uuid, reply: (Uuid, Duration)) -> ServedRequest {
        let (reply_to, wait) = reply;
        ServedRequest {
            app: self.app,
            app_id: self.app_id,
            route_id: self.route_id,
            script_id,
            payload: self.payload,
            origin_principal: self.origin_principal,
            principal: self.principal,
            reply_to,
            wait,
            since: self.since,
            traceparent: self.traceparent,
        }
    }

    pub(super) fn trigger(&self) -> TriggerRequest<'_> {
        let request = TriggerRequest::new(&self.app, Source::Http, self.route_id, &self.payload)
            .origin_principal(self.origin_principal)
            .traceparent(self.traceparent.as_deref());
        match self.reply {
            Some((id, wait)) => {
                // What it has waited for a slot is gone.
                let wait = wait.saturating_sub(self.since.elapsed()).as_millis();
                request.reply(id, i32::try_from(wait).unwrap_or(i32::MAX).max(1))
            }
            None => request,
        }
    }
}
