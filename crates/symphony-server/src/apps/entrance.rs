//! Where requests become rows. Requests that come while others are being written are written together: one commit for
//! many, by a few writers, so that a crowd at the door does not take the workers' connections from them.
//!
//! Nobody is told anything before the commit that holds their row.

use std::sync::Arc;

use serde_json::value::RawValue;
use symphony::db::{Database, DbError, Fired, Firing, Ingest, Role};
use tokio::sync::{Mutex, mpsc, oneshot};
use uuid::Uuid;

/// Commits that notify queue up behind each other in PostgreSQL: one is prepared while another is written.
pub(super) const WRITERS: usize = 2;
/// At most this many in one transaction.
const TOGETHER_MAX: usize = 64;

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
type Queue = Arc<Mutex<mpsc::UnboundedReceiver<(Entering, Written)>>>;

/// The door.
#[derive(Debug)]
pub(super) struct Entrance {
    queue: mpsc::UnboundedSender<(Entering, Written)>,
}

impl Entrance {
    /// A door, and the writers behind it: run them beside.
    pub(super) fn new(database: &Database) -> (Self, Vec<impl Future<Output = ()> + Send + use<>>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let queue = Arc::new(Mutex::new(receiver));
        let writers = (0..WRITERS).map(|_| write(database.clone(), queue.clone())).collect();
        (Self { queue: sender }, writers)
    }

    /// Write it; answers after the commit.
    pub(super) async fn write(&self, entering: Entering) -> Answer {
        let (sender, receiver) = oneshot::channel();
        let stopped = || Arc::new(DbError::Unreachable { message: "the server stops".to_owned() });
        self.queue.send((entering, sender)).map_err(|_| stopped())?;
        receiver.await.map_err(|_| stopped())?
    }
}

async fn write(database: Database, queue: Queue) {
    let mut some = Vec::with_capacity(TOGETHER_MAX);
    loop {
        if queue.lock().await.recv_many(&mut some, TOGETHER_MAX).await == 0 {
            return;
        }
        // Whoever has hung up meanwhile wants nothing any more.
        some.retain(|(_, written)| !written.is_closed());
        match together(&database, &some).await {
            Ok(all) => {
                for ((_, written), fired) in some.drain(..).zip(all) {
                    drop(written.send(Ok(fired)));
                }
            }
            // None is written again: nobody knows what becomes of a commit that was not answered.
            Err(Trouble::OfAll(error)) => {
                let error = Arc::new(error);
                for (_, written) in some.drain(..) {
                    drop(written.send(Err(error.clone())));
                }
            }
            // All of it was rolled back, and the others must not suffer for the one that was refused.
            Err(Trouble::OfOne) => {
                for (entering, written) in some.drain(..) {
                    let fired = database.ingest().fire_alone(&entering.firing()).await;
                    drop(written.send(fired.map_err(Arc::new)));
                }
            }
        }
    }
}

/// Why some were not written together.
enum Trouble {
    OfAll(DbError),
    OfOne,
}

async fn together(
    database: &Database,
    some: &[(Entering, Written)],
) -> Result<Vec<Fired>, Trouble> {
    if some.is_empty() {
        return Ok(Vec::new());
    }
    let mut transaction = database.begin(Role::Ingest).await.map_err(Trouble::OfAll)?;
    let mut all = Vec::with_capacity(some.len());
    for (entering, _) in some {
        match Ingest::fire(transaction.connection(), &entering.firing()).await {
            Ok(fired) => all.push(fired),
            Err(error) if some.len() == 1 || error.is_passing() => {
                return Err(Trouble::OfAll(error));
            }
            Err(_refused) => return Err(Trouble::OfOne),
        }
    }
    transaction.commit().await.map_err(Trouble::OfAll)?;
    Ok(all)
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
