//! The clients that wait for an answer: a oneshot channel each, under a fresh name. The process that ran the script notifies
//! with the name only; the answer is read from the execution. A waiting client costs no thread and no connection.
//!
//! If the waiting process ran the script itself, it has the answer after the commit and does not read it back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::value::RawValue;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::executor::UnstoredHeaders;
use crate::db::{DbError, ReplyListener, Worker};

/// Notifications may be lost, so the answers still waited for are read this often.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often to read where notifications do not arrive.
const LOOK_UNHEARD_EVERY: Duration = Duration::from_millis(100);
/// At most this many names in one look.
const NAMES_MAX: usize = 1_000;

/// An answer.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The execution.
    pub execution_id: Uuid,
    /// What the script answered, or our code for why it did not.
    pub answer: Result<Box<RawValue>, String>,
}

type Waiting = Arc<Mutex<HashMap<Uuid, Client>>>;

/// Where a client waits, and what of its request is nowhere else.
#[derive(Debug)]
struct Client {
    sender: oneshot::Sender<Reply>,
    unstored_headers: UnstoredHeaders,
}

/// The answers this process waits for.
#[derive(Debug, Clone, Default)]
pub struct Replies {
    waiting: Waiting,
}

/// One client that waits; it waits no longer when this is dropped.
#[derive(Debug)]
pub struct Awaited {
    /// The name to write into the row.
    pub name: Uuid,
    receiver: oneshot::Receiver<Reply>,
    waiting: Waiting,
}

impl Awaited {
    /// Wait, at most so long; `None` if no answer came. It may be waited for again then.
    pub async fn within(&mut self, limit: Duration) -> Option<Reply> {
        tokio::time::timeout(limit, &mut self.receiver).await.ok()?.ok()
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

impl Replies {
    /// Hear of answers from other processes: run this beside.
    pub fn fill(
        &self,
        worker: Worker,
        listen: PgConnectOptions,
    ) -> impl Future<Output = ()> + Send + use<> {
        fill(self.waiting.clone(), worker, listen)
    }

    /// An answer that was committed here. Whoever waits elsewhere reads it.
    pub(super) fn answered(&self, name: Uuid, execution_id: Uuid, answer: &RawValue) {
        // The client may have gone.
        drop(take(&self.waiting, name).map(|client| {
            client.sender.send(Reply { execution_id, answer: Ok(answer.to_owned()) })
        }));
    }

    /// A failure that was committed here.
    pub(super) fn failed(&self, name: Uuid, execution_id: Uuid, code: &str) {
        drop(take(&self.waiting, name).map(|client| {
            client.sender.send(Reply { execution_id, answer: Err(code.to_owned()) })
        }));
    }

    /// Somebody waits under this name in this process.
    pub(super) fn waits(&self, name: Uuid) -> bool {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&name)
    }

    /// The headers of whoever waits under this name in this process.
    pub(super) fn unstored_headers(&self, name: Option<Uuid>) -> UnstoredHeaders {
        let Some(name) = name else { return UnstoredHeaders::default() };
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.get(&name).map(|client| client.unstored_headers.clone()).unwrap_or_default()
    }

    /// Begin to wait, before the row is written. What is not stored is here as long as somebody waits.
    pub fn expect(&self, unstored_headers: UnstoredHeaders) -> Awaited {
        let (name, (sender, receiver)) = (Uuid::new_v4(), oneshot::channel());
        let client = Client { sender, unstored_headers };
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(name, client);
        Awaited { name, receiver, waiting: self.waiting.clone() }
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

async fn fill(waiting: Waiting, worker: Worker, listen: PgConnectOptions) {
    loop {
        if let Err(error) = fill_once(&waiting, &worker, &listen).await {
            tracing::warn!(lane = "triggers", code = error.code(), %error, "answers do not arrive; listening is tried again");
        }
        tokio::time::sleep(LOOK_EVERY).await;
        if let Err(error) = deliver(&waiting, &worker, &everybody(&waiting)).await {
            tracing::warn!(lane = "triggers", code = error.code(), %error, "answers could not be looked for");
        }
    }
}

async fn fill_once(
    waiting: &Waiting,
    worker: &Worker,
    listen: &PgConnectOptions,
) -> Result<(), DbError> {
    let connecting = ReplyListener::connect(worker.listen_options(listen), worker.schema());
    let Some(mut listener) = connecting.await? else {
        return look_for_ever(waiting, worker).await;
    };
    loop {
        let mut names = match tokio::time::timeout(LOOK_EVERY, listener.next()).await {
            Ok(heard) => match heard? {
                Some(names) => names,
                None => return Ok(()),
            },
            Err(_elapsed) => everybody(waiting),
        };
        // All names heard by now are read at once.
        while names.len() < NAMES_MAX
            && let Ok(heard) = tokio::time::timeout(Duration::ZERO, listener.next()).await
        {
            match heard? {
                Some(more) => names.extend(more),
                None => return Ok(()),
            }
        }
        deliver(waiting, worker, &names).await?;
    }
}

/// Behind a transaction pooler no notification arrives, so answers of other processes are read often.
async fn look_for_ever(waiting: &Waiting, worker: &Worker) -> Result<(), DbError> {
    loop {
        tokio::time::sleep(LOOK_UNHEARD_EVERY).await;
        deliver(waiting, worker, &everybody(waiting)).await?;
    }
}

fn take(waiting: &Waiting, name: Uuid) -> Option<Client> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&name)
}

fn everybody(waiting: &Waiting) -> Vec<Uuid> {
    let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    waiting.keys().copied().take(NAMES_MAX).collect()
}

async fn deliver(waiting: &Waiting, worker: &Worker, names: &[Uuid]) -> Result<(), DbError> {
    let ours: Vec<Uuid> = {
        let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        names.iter().copied().filter(|name| waiting.contains_key(name)).collect()
    };
    if ours.is_empty() {
        return Ok(());
    }
    for row in worker.replies(&ours).await? {
        let answer = match (row.dispatched, row.result) {
            (true, Some(result)) => Ok(result.0),
            (_, _) => Err(row.error_code.unwrap_or_else(|| "FAILED".to_owned())),
        };
        drop(
            take(waiting, row.reply_to)
                .map(|client| client.sender.send(Reply { execution_id: row.id, answer })),
        );
    }
    Ok(())
}
