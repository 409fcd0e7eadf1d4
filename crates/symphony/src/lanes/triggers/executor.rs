//! What an executor is: it runs one request and answers with a value, an error or a timeout, and with what the
//! script wants to have done. Adapters are in `symphony-connect`.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

/// What stacks call a script that was pushed without a file's name.
pub const UNNAMED_FILE: &str = "script.js";

/// Runs scripts, wherever they run.
///
/// ```
/// # use symphony::lanes::triggers::executor::{Execution, Executor, Request, RunOutcome};
/// /// Answers with what the script was fired with.
/// struct Echo;
///
/// #[async_trait::async_trait]
/// impl Executor for Echo {
///     async fn run(&self, request: &Request) -> Execution {
///         Execution::new(RunOutcome::Value((*request.payload).to_owned()))
///     }
/// }
/// ```
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
    /// The file it was pushed from, as stacks name it.
    pub file: Arc<str>,
    /// The files of its app that it imports, by their paths.
    pub modules: Arc<BTreeMap<String, String>>,
    /// Where an `http` executor posts to.
    pub url: Option<String>,
    /// What fired it: `http`, `kv`, `cron`, `pubsub`, `queue`, `email` or `dead_letter`.
    pub source_kind: String,
    /// What it was fired with: a JSON object.
    pub payload: Arc<RawValue>,
    /// What the payload has not, because it is stored.
    pub unstored_headers: UnstoredHeaders,
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
    /// Its place among the runs there may be at once. An executor whose work may outlast its answer keeps a clone until
    /// that work has really ended.
    pub slot: Slot,
    /// What must be so before anything of the run leaves the process.
    pub departure: Departure,
    /// W3C trace context for what it calls; `None` where there is none.
    pub traceparent: Option<Arc<str>>,
}

/// Headers of a request that are never stored, such as `Cookie`: by their names in lower case. They are there while the
/// client waits, in the process that serves it. Never printed.
#[derive(Clone, Default, Serialize)]
#[serde(transparent)]
pub struct UnstoredHeaders(Arc<BTreeMap<String, String>>);

impl UnstoredHeaders {
    /// These.
    pub fn new(headers: BTreeMap<String, String>) -> Self {
        Self(Arc::new(headers))
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl fmt::Debug for UnstoredHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// A place among the runs there may be at once, until every clone is dropped.
#[derive(Clone, Default)]
pub struct Slot(#[expect(dead_code, reason = "held, not read")] Option<Arc<dyn Any + Send + Sync>>);

impl Slot {
    /// A slot that gives `held` back when its last clone is dropped.
    pub fn new(held: impl Any + Send + Sync) -> Self {
        Self(Some(Arc::new(held)))
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slot")
    }
}

/// Asked before anything of a run leaves the process. A request may have been written without waiting for the disk: what
/// it does outside must not be all that is left of it after a crash.
#[derive(Clone, Default)]
pub struct Departure(Option<Arc<dyn DepartureCheck>>);

/// How it is found out.
#[async_trait]
pub trait DepartureCheck: Send + Sync {
    /// Whether something may leave; why not, in one line.
    async fn may_leave(&self) -> Result<(), String>;
}

impl Departure {
    /// With this check before the first byte.
    pub fn new(check: impl DepartureCheck + 'static) -> Self {
        Self(Some(Arc::new(check)))
    }

    /// Call this before the first byte of the run leaves. Nothing may leave if it refuses.
    pub async fn allow(&self) -> Result<(), String> {
        match &self.0 {
            None => Ok(()),
            Some(check) => check.may_leave().await,
        }
    }
}

impl fmt::Debug for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Departure(checked)" } else { "Departure" })
    }
}

/// How a run ended.
#[derive(Debug, Clone)]
pub struct Execution {
    /// Its answer.
    pub outcome: RunOutcome,
    /// What it logged, as far as the limits allow.
    pub logs: Vec<LogLine>,
    /// What it wants to have done: applied only with its completion. Empty unless the outcome is a value.
    pub effects: Vec<Effect>,
    /// What it has read. If one of these has changed when its effects are applied, it is run again instead.
    pub reads: Vec<Read>,
    /// Something of it has left the process: it is not run again by itself, since that would happen twice.
    pub has_left: bool,
}

impl Execution {
    /// A run that ended so, and wants nothing.
    pub fn new(outcome: RunOutcome) -> Self {
        Self { outcome, logs: Vec::new(), effects: Vec::new(), reads: Vec::new(), has_left: false }
    }
}

/// What a run has read, as it was then, in the words of `complete_trigger_outbox_attempts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Read {
    /// An entry.
    Key {
        /// Its key.
        key: String,
        /// `None` if it was not there.
        version: Option<String>,
    },
    /// A list of keys.
    List {
        /// What they begin with.
        prefix: String,
        /// After which key.
        after: Option<String>,
        /// At most so many.
        limit: u32,
        /// What was found, as [`Listed::digest`].
        listing: String,
    },
}

/// An entry of an app.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its value, as JSON.
    pub value: Box<RawValue>,
    /// Another whenever it was written.
    pub version: String,
}

/// Keys of an app.
#[derive(Debug, Clone)]
pub struct Listed {
    /// In order.
    pub keys: Vec<String>,
    /// Another if they are others.
    pub digest: String,
}

/// A run's answer.
#[derive(Debug, Clone)]
pub enum RunOutcome {
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
        /// How long it is there.
        #[serde(rename = "ttlSeconds", skip_serializing_if = "Option::is_none")]
        ttl_seconds: Option<u32>,
    },
    /// Remove an entry.
    KvDelete {
        /// Its key.
        key: String,
    },
    /// Add to an entry's number, or begin with it.
    KvIncrement {
        /// Its key.
        key: String,
        /// A whole number.
        by: i64,
        /// How long the entry is there, if this makes it.
        #[serde(rename = "ttlSeconds", skip_serializing_if = "Option::is_none")]
        ttl_seconds: Option<u32>,
    },
    /// Write an entry if there is none; otherwise the run is run again, since it was told that there is none.
    KvSetIfAbsent {
        /// Its key.
        key: String,
        /// Its value.
        value: Box<RawValue>,
        /// How long it is there.
        #[serde(rename = "ttlSeconds", skip_serializing_if = "Option::is_none")]
        ttl_seconds: Option<u32>,
    },
    /// Write an entry if it has this value; otherwise the run is run again, since it was told that it has.
    KvCompareAndSet {
        /// Its key.
        key: String,
        /// The value; `null` also if there is no entry.
        expected: Box<RawValue>,
        /// Its new value.
        value: Box<RawValue>,
        /// How long it is there.
        #[serde(rename = "ttlSeconds", skip_serializing_if = "Option::is_none")]
        ttl_seconds: Option<u32>,
    },
    /// Send to one consumer.
    QueueSend {
        /// The queue.
        queue: String,
        /// The message.
        message: Box<RawValue>,
        /// Messages with one key run one after another.
        #[serde(skip_serializing_if = "Option::is_none")]
        key: Option<String>,
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
    /// An entry.
    async fn kv_get(&self, app_id: Uuid, key: &str) -> Result<Option<Entry>, String>;
    /// A secret of the app; `None` if there is none.
    async fn secret(&self, _app: &str, _name: &str) -> Result<Option<String>, String> {
        Ok(None)
    }
    /// A command of the program that leads to what is read here, to be named in a message.
    fn command(&self, words: &str) -> String {
        format!("symphony {words}")
    }
    /// The keys that begin with a prefix, in order, after a key, at most so many.
    async fn kv_list(
        &self,
        app_id: Uuid,
        prefix: &str,
        after: Option<&str>,
        keys_max: u32,
    ) -> Result<Listed, String>;
}

/// Sends email.
#[async_trait]
pub trait Mailer: Send + Sync {
    /// Send one message (`to`, `subject`, `text`) under an id that is the same at every attempt.
    async fn send(&self, id: Uuid, message: &RawValue) -> RunOutcome;
}
