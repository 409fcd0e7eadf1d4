//! What an executor is: it runs one request and answers with a value, an error or a timeout, and with what the
//! script wants to have done. Adapters are in `symphony-connect`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

/// Runs scripts, wherever they run.
#[async_trait]
pub trait Executor: Send + Sync {
    /// Run one request. Must end within [`Request::timeout`] and never panic because of what a script does.
    async fn run(&self, request: &Request) -> Execution;
}

/// What a script is run with.
#[derive(Debug, Clone)]
pub struct Request {
    /// The item: the same for every attempt.
    pub execution_id: Uuid,
    /// The app's id.
    pub app_id: Uuid,
    /// The app's name.
    pub app: String,
    /// The script's name.
    pub script: String,
    /// Its source; for [`http`](Self::url) executors, empty.
    pub source: Arc<str>,
    /// Where an `http` executor posts to.
    pub url: Option<String>,
    /// What fired it: `http`, `kv`, `cron`, `pubsub`, `queue`, `email` or `dead_letter`.
    pub source_kind: String,
    /// What it was fired with: a JSON object.
    pub payload: Arc<RawValue>,
    /// Who caused it.
    pub origin_principal: Option<Uuid>,
    /// As whom it runs: who registered the trigger.
    pub principal: Option<Uuid>,
    /// How many triggers stand between this and the first.
    pub depth: i32,
    /// The first of its tree.
    pub root_execution_id: Uuid,
    /// Which attempt this is, from 1.
    pub attempt: i32,
    /// How long it may take, all in all.
    pub timeout: Duration,
}

/// How a run ended.
#[derive(Debug, Clone)]
pub struct Execution {
    /// Its answer.
    pub outcome: Outcome,
    /// What it logged, as far as the limits allow.
    pub logs: Vec<LogLine>,
    /// What it wants to have done: applied only with its completion. Empty unless the outcome is a value.
    pub effects: Vec<Effect>,
}

/// A run's answer.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// What the handler returned, as JSON (`null` for nothing).
    Value(Box<RawValue>),
    /// It threw, broke a limit, or could not be run.
    Failed {
        /// A stable name, such as `SCRIPT_ERROR` or `MEMORY_LIMIT`.
        code: &'static str,
        /// One line for whoever wrote the script.
        message: String,
        /// Another attempt may end differently.
        retryable: bool,
    },
    /// What should have taken it is busy or away, and surely did not: not one of its attempts.
    Away {
        /// A stable name, such as `CONNECT_FAILED`.
        code: &'static str,
        /// In words.
        message: String,
    },
    /// It took too long and was stopped.
    TimedOut,
}

/// A line of a script's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// `debug`, `info`, `warn` or `error`.
    pub level: String,
    /// Milliseconds after the start.
    pub at_ms: u64,
    /// What it said.
    pub message: String,
}

/// Something a script wants to have done, in the words of `complete_trigger_outbox_attempts`.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Effect {
    /// Write an entry.
    KvSet {
        /// Its key.
        key: String,
        /// Its value.
        value: Box<RawValue>,
    },
    /// Remove an entry.
    KvDelete {
        /// Its key.
        key: String,
    },
    /// Send to one consumer.
    QueueSend {
        /// The queue.
        queue: String,
        /// The message.
        message: Box<RawValue>,
    },
    /// Send to every subscriber.
    PubsubPublish {
        /// The topic.
        topic: String,
        /// The message.
        message: Box<RawValue>,
    },
    /// Tell a fact on the event lane.
    EventPublish {
        /// The event, as `enqueue_event_outbox` takes it.
        event: Box<RawValue>,
    },
    /// Send an email.
    EmailSend {
        /// The message: `to`, `subject`, `text`.
        message: Box<RawValue>,
    },
}

/// What scripts read while they run. Writes are [effects](Effect); a script reads its own.
#[async_trait]
pub trait ScriptStore: Send + Sync {
    /// An entry's value, as JSON.
    async fn kv_get(&self, app_id: Uuid, key: &str) -> Result<Option<Box<RawValue>>, String>;
    /// The keys that begin with a prefix, in order, at most so many.
    async fn kv_list(
        &self,
        app_id: Uuid,
        prefix: &str,
        keys_max: u32,
    ) -> Result<Vec<String>, String>;
}

/// Sends email.
#[async_trait]
pub trait Mailer: Send + Sync {
    /// Send one message (`to`, `subject`, `text`) under an id that is the same at every attempt.
    async fn send(&self, id: Uuid, message: &RawValue) -> Outcome;
}
