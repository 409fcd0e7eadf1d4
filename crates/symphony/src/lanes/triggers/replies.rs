//! Whoever waits for an answer: a oneshot under a fresh name. The wake-up carries only the name, from whichever process
//! ran the script; the answer is read from the execution. A waiting client costs no thread and no connection.
//!
//! Where the process that waits has also run the script, it knows the answer once that is committed, and nobody reads it
//! back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::value::RawValue;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::db::{DbError, Executor, ReplyListener};

/// Wake-ups are hints: whoever still waits is looked for as often as this.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often to look where nothing can be heard.
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

type Waiting = Arc<Mutex<HashMap<Uuid, oneshot::Sender<Reply>>>>;

/// The answers this process waits for.
#[derive(Debug, Clone, Default)]
pub struct Replies {
    waiting: Waiting,
}

/// A place in the inbox; given up when dropped.
#[derive(Debug)]
pub struct Awaited {
    /// The name to write into the row.
    pub name: Uuid,
    receiver: oneshot::Receiver<Reply>,
    waiting: Waiting,
}

impl Awaited {
    /// Wait, at most so long; `None` if no answer came.
    pub async fn within(mut self, limit: Duration) -> Option<Reply> {
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
        executor: Executor,
        listen: PgConnectOptions,
    ) -> impl Future<Output = ()> + Send + use<> {
        fill(self.waiting.clone(), executor, listen)
    }

    /// An answer that was committed here. Whoever waits elsewhere reads it.
    pub(super) fn answered(&self, name: Uuid, execution_id: Uuid, answer: &RawValue) {
        // Whoever waited may have gone.
        drop(
            take(&self.waiting, name)
                .map(|sender| sender.send(Reply { execution_id, answer: Ok(answer.to_owned()) })),
        );
    }

    /// Take a place before the row is written.
    pub fn expect(&self) -> Awaited {
        let (name, (sender, receiver)) = (Uuid::new_v4(), oneshot::channel());
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(name, sender);
        Awaited { name, receiver, waiting: self.waiting.clone() }
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

async fn fill(waiting: Waiting, executor: Executor, listen: PgConnectOptions) {
    loop {
        if let Err(error) = fill_once(&waiting, &executor, &listen).await {
            tracing::warn!(lane = "triggers", code = error.code(), %error, "answers do not arrive; listening is tried again");
        }
        tokio::time::sleep(LOOK_EVERY).await;
        if let Err(error) = deliver(&waiting, &executor, &everybody(&waiting)).await {
            tracing::warn!(lane = "triggers", code = error.code(), %error, "answers could not be looked for");
        }
    }
}

async fn fill_once(
    waiting: &Waiting,
    executor: &Executor,
    listen: &PgConnectOptions,
) -> Result<(), DbError> {
    let Some(mut listener) = ReplyListener::connect(listen.clone()).await? else {
        return look_for_ever(waiting, executor).await;
    };
    loop {
        let mut names = match tokio::time::timeout(LOOK_EVERY, listener.next()).await {
            Ok(heard) => match heard? {
                Some(names) => names,
                None => return Ok(()),
            },
            Err(_elapsed) => everybody(waiting),
        };
        // Whatever else has been heard meanwhile comes along in one look.
        while names.len() < NAMES_MAX
            && let Ok(heard) = tokio::time::timeout(Duration::ZERO, listener.next()).await
        {
            match heard? {
                Some(more) => names.extend(more),
                None => return Ok(()),
            }
        }
        deliver(waiting, executor, &names).await?;
    }
}

/// Behind a transaction pooler nothing is heard: whoever waits for another process is looked for often.
async fn look_for_ever(waiting: &Waiting, executor: &Executor) -> Result<(), DbError> {
    loop {
        tokio::time::sleep(LOOK_UNHEARD_EVERY).await;
        deliver(waiting, executor, &everybody(waiting)).await?;
    }
}

fn take(waiting: &Waiting, name: Uuid) -> Option<oneshot::Sender<Reply>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&name)
}

fn everybody(waiting: &Waiting) -> Vec<Uuid> {
    let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    waiting.keys().copied().take(NAMES_MAX).collect()
}

async fn deliver(waiting: &Waiting, executor: &Executor, names: &[Uuid]) -> Result<(), DbError> {
    let ours: Vec<Uuid> = {
        let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        names.iter().copied().filter(|name| waiting.contains_key(name)).collect()
    };
    if ours.is_empty() {
        return Ok(());
    }
    for row in executor.replies(&ours).await? {
        let answer = match (row.dispatched, row.result) {
            (true, Some(result)) => Ok(result.0),
            (_, _) => Err(row.error_code.unwrap_or_else(|| "FAILED".to_owned())),
        };
        drop(
            take(waiting, row.reply_to)
                .map(|sender| sender.send(Reply { execution_id: row.id, answer })),
        );
    }
    Ok(())
}
