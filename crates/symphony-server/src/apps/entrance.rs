//! Where requests become rows. Requests that come while others are being written are written together: one commit for
//! many, by one writer, so that a crowd at the door does not take the workers' connections from them.
//!
//! Nobody is told anything before the commit that holds their row.

use std::sync::Arc;

use serde_json::value::RawValue;
use symphony::db::{DbError, Fired, Firing, Ingest};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

/// At most this many in one transaction.
const TOGETHER_MAX: usize = 128;
/// So often the writer lets others go first, who may have read a request meanwhile: a commit for two costs what one
/// costs, and nobody is kept waiting by a timer.
const YIELDS: usize = 3;

/// A request on its way to becoming a row.
pub(super) struct Entering {
    pub(super) app: String,
    pub(super) route_id: Uuid,
    pub(super) payload: Box<RawValue>,
    /// The name under which somebody waits, and how long.
    pub(super) reply: Option<(Uuid, i32)>,
}

/// One error may be everybody's.
type Answer = Result<Fired, Arc<DbError>>;
type Written = oneshot::Sender<Answer>;

/// The door.
#[derive(Debug)]
pub(super) struct Entrance {
    queue: mpsc::UnboundedSender<(Entering, Written)>,
}

impl Entrance {
    /// A door, and the writer behind it: run that beside.
    pub(super) fn new(ingest: Ingest) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self { queue: sender }, write(ingest, receiver))
    }

    /// Write it; answers after the commit.
    pub(super) async fn write(&self, entering: Entering) -> Answer {
        let (sender, receiver) = oneshot::channel();
        let stopped = || Arc::new(DbError::Unreachable { message: "the server stops".to_owned() });
        self.queue.send((entering, sender)).map_err(|_| stopped())?;
        receiver.await.map_err(|_| stopped())?
    }
}

async fn write(ingest: Ingest, mut queue: mpsc::UnboundedReceiver<(Entering, Written)>) {
    let mut some = Vec::with_capacity(TOGETHER_MAX);
    while queue.recv_many(&mut some, TOGETHER_MAX).await > 0 {
        for _ in 0..YIELDS {
            tokio::task::yield_now().await;
        }
        while some.len() < TOGETHER_MAX
            && let Ok(one) = queue.try_recv()
        {
            some.push(one);
        }
        // Whoever has hung up meanwhile wants nothing any more.
        some.retain(|(_, written)| !written.is_closed());
        if some.is_empty() {
            continue;
        }
        let firings: Vec<_> = some.iter().map(|(entering, _)| entering.firing()).collect();
        match ingest.fire_many_alone(&firings).await {
            Ok(all) => {
                for ((_, written), fired) in some.drain(..).zip(all) {
                    drop(written.send(fired.map_err(Arc::new)));
                }
            }
            // All of it was rolled back, and the others must not suffer for the one whose JSON no JSONB can hold.
            Err(error) if some.len() > 1 && !error.is_passing() => {
                for (entering, written) in some.drain(..) {
                    let fired = ingest.fire_alone(&entering.firing()).await;
                    drop(written.send(fired.map_err(Arc::new)));
                }
            }
            // None is written again: nobody knows what becomes of a commit that was not answered.
            Err(error) => {
                let error = Arc::new(error);
                for (_, written) in some.drain(..) {
                    drop(written.send(Err(error.clone())));
                }
            }
        }
    }
}

impl Entering {
    fn firing(&self) -> Firing<'_> {
        Firing {
            app: &self.app,
            source_kind: "http",
            trigger_id: self.route_id,
            payload: &self.payload,
            origin_principal: None,
            reply: self.reply,
        }
    }
}
