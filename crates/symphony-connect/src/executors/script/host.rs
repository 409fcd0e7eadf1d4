//! The host's side of the host API: takes strings, gives strings, and is told nothing about whose script it is.
//!
//! The app is a field here and never an argument, so no trick in a script can write for another one.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::Method;
use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::{RawValue, to_raw_value};
use symphony::lanes::triggers::executor::{Departure, Effect, Entry, Listed, ScriptStore};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::cpu_budget::BudgetedRun;
use super::mail;
use super::reads::Reads;
use super::shared::Shared;
use super::web::WebState;
use crate::bounds::executors::MESSAGE_CHARACTERS_MAX;
pub use crate::bounds::scripts::KEYS_LISTED_MAX;
use crate::bounds::scripts::{READS_MAX, TTL_SECONDS_MAX};
use crate::executors::fetcher::{Call, Fetcher, send, trace_header};
use crate::executors::output::{Effects, KEY_CHARACTERS_MAX, NAME_CHARACTERS_MAX, storable};
use crate::http_client::{Failure, is_connection_header};

/// Why a run is over, whatever the script still does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    TimedOut,
    OutputLimit(String),
}

/// What a script did wrong, or what went wrong for it.
pub(super) enum Refusal {
    /// Thrown as a TypeError.
    Argument(String),
    /// Thrown as an Error.
    Failure(String),
}

/// What was thrown, in words.
#[derive(Debug, Default, Clone)]
pub(super) struct Thrown {
    pub(super) name: String,
    pub(super) message: String,
    pub(super) stack: String,
}

impl Thrown {
    /// Its name and message, as a stack begins with them.
    pub(super) fn title(&self) -> String {
        format!("{}: {}", self.name, self.message).chars().take(MESSAGE_CHARACTERS_MAX).collect()
    }
}

pub(super) struct Host {
    pub(super) app_id: Uuid,
    pub(super) app: String,
    pub(super) store: Arc<dyn ScriptStore>,
    pub(super) fetcher: Arc<Fetcher>,
    pub(super) runtime: Handle,
    pub(super) deadline: Instant,
    pub(super) shared: Arc<Shared>,
    pub(super) stop: Rc<Cell<Option<Stop>>>,
    pub(super) budgeted_run: Rc<BudgetedRun>,
    pub(super) effects: Effects,
    pub(super) reads: Reads,
    /// What this run wrote, over what the store has.
    pub(super) own: BTreeMap<String, Own>,
    pub(super) fetches_left: u32,
    pub(super) secrets_left: u32,
    /// Something of this run may have left the process.
    pub(super) has_left: bool,
    pub(super) departure: Departure,
    pub(super) traceparent: Option<Arc<str>>,
    pub(super) thrown: Option<Thrown>,
    pub(super) web: WebState,
}

/// What a run itself wrote to an entry.
pub(super) enum Own {
    Set(Box<RawValue>),
    Deleted,
    /// Added to whatever the store has.
    Added(i64),
}

type Answer = Result<String, Refusal>;

impl Host {
    /// One call of the host API.
    pub(super) fn call(&mut self, operation: &str, arguments: [String; 4]) -> Answer {
        let [a, b, c, d] = arguments;
        if operation != "describe" && self.is_over() {
            return Err(Refusal::Failure("the run is over".to_owned()));
        }
        match operation {
            "log" => self.shared.log(&a, &b),
            "describe" => {
                let [name, message, stack] = [a, b, c].map(|text| self.shared.redacted(&text));
                self.thrown = Some(Thrown { name, message, stack });
            }
            "secret" => return self.secret(&a),
            "keep_header" => self.shared.keep_header(&a, &b),
            "keep_cookie" => self.shared.keep_cookie(&a, &b),
            "kv_get" => return self.kv_get(&a),
            "kv_get_with_version" => return self.kv_get_with_version(&a),
            "kv_look" => return self.kv_look(&a),
            "kv_note" => self.reads.note_last(),
            "kv_list" => return self.kv_list(&a, &b, &c),
            "fetch" => return self.fetch(&a, &b, &c, &d),
            "kv_set" => {
                let key = name("key", a, KEY_CHARACTERS_MAX)?;
                let (value, ttl_seconds) = (stored("value", &b)?, ttl(&c)?);
                self.own.insert(key.clone(), Own::Set(value.clone()));
                self.want(Effect::KvSet { key, value, ttl_seconds })?;
            }
            "kv_delete" => {
                let key = name("key", a, KEY_CHARACTERS_MAX)?;
                self.own.insert(key.clone(), Own::Deleted);
                self.want(Effect::KvDelete { key })?;
            }
            "kv_increment" => self.kv_increment(a, &b, &c)?,
            "kv_set_if_absent" => {
                let key = name("key", a, KEY_CHARACTERS_MAX)?;
                let (value, ttl_seconds) = (stored("value", &b)?, ttl(&c)?);
                let is_own = self.own.insert(key.clone(), Own::Set(value.clone())).is_some();
                self.want(if is_own {
                    Effect::KvSet { key, value, ttl_seconds }
                } else {
                    Effect::KvSetIfAbsent { key, value, ttl_seconds }
                })?;
            }
            "kv_compare_and_set" => {
                let key = name("key", a, KEY_CHARACTERS_MAX)?;
                let expected = stored("expected", &b)?;
                let (value, ttl_seconds) = (stored("value", &c)?, ttl(&d)?);
                let is_own = self.own.insert(key.clone(), Own::Set(value.clone())).is_some();
                self.want(if is_own {
                    Effect::KvSet { key, value, ttl_seconds }
                } else {
                    Effect::KvCompareAndSet { key, expected, value, ttl_seconds }
                })?;
            }
            "queue_send" => {
                let queue = name("queue", a, NAME_CHARACTERS_MAX)?;
                let message = stored("message", &b)?;
                let has_key = !c.is_empty();
                let key =
                    has_key.then(|| name("options.key", c, KEY_CHARACTERS_MAX)).transpose()?;
                self.want(Effect::QueueSend { queue, message, key })?;
            }
            "pubsub_publish" => {
                let topic = name("topic", a, NAME_CHARACTERS_MAX)?;
                self.want(Effect::PubsubPublish { topic, message: stored("message", &b)? })?;
            }
            "event_publish" => {
                if !a.starts_with('{') {
                    return Err(Refusal::Argument("event must be an object".to_owned()));
                }
                self.want(Effect::EventPublish { event: stored("event", &a)? })?;
            }
            "email_send" => {
                let message = mail::message(&a, &b, &c, &d)?;
                self.want(Effect::EmailSend { message })?;
            }
            // The globals of the web.
            _ => return self.web.call(operation, &[a, b, c, d]),
        }
        Ok(String::new())
    }

    fn is_over(&self) -> bool {
        let stop = self.stop.take();
        let is_over = stop.is_some();
        self.stop.set(stop);
        is_over
    }

    fn want(&mut self, effect: Effect) -> Result<(), Refusal> {
        self.effects.push(effect).map_err(|limit| {
            self.stop.set(Some(Stop::OutputLimit(limit.clone())));
            Refusal::Failure(limit)
        })
    }

    fn read_once_more(&self) -> Result<(), Refusal> {
        if self.reads.len() < READS_MAX {
            return Ok(());
        }
        let limit = format!("more than {READS_MAX} reads in one run");
        self.stop.set(Some(Stop::OutputLimit(limit.clone())));
        Err(Refusal::Failure(limit))
    }

    /// An entry in the store. The read is noted by whoever uses it.
    fn look(&mut self, key: &str) -> Result<Option<Entry>, Refusal> {
        let store = Arc::clone(&self.store);
        let found = self.wait(store.kv_get(self.app_id, key))?;
        let found = found.map_err(|error| Refusal::Failure(format!("kv.get: {error}")))?;
        self.read_once_more()?;
        self.reads.looked(key, found.as_ref().map(|entry| entry.version.clone()));
        Ok(found)
    }

    /// A secret of the app. From now on it is left out of whatever the run says.
    fn secret(&mut self, name: &str) -> Answer {
        if let Some(known) = self.shared.secret_named(name) {
            return Ok(known);
        }
        self.secrets_left = self.secrets_left.checked_sub(1).ok_or_else(|| {
            Refusal::Failure("secrets: too many are asked for in one run".to_owned())
        })?;
        let store = Arc::clone(&self.store);
        let found = self.wait(store.secret(&self.app, name))?;
        let found = found.map_err(|error| Refusal::Failure(format!("secrets: {error}")))?;
        let value = found.ok_or_else(|| {
            let name: String = name.chars().filter(|c| !c.is_control()).take(100).collect();
            let app = &self.app;
            let set = self.store.command(&format!("app secret set {app} {name} --reason WHY"));
            Refusal::Failure(format!("secrets: app {app} has no secret {name}: {set}"))
        })?;
        self.shared.keep_secret(name, &value);
        Ok(value)
    }

    fn kv_get(&mut self, key: &str) -> Answer {
        let found = self.kv_look(key)?;
        self.reads.note_last();
        Ok(found)
    }

    /// An entry as this run sees it; empty if there is none.
    fn kv_look(&mut self, key: &str) -> Answer {
        self.reads.forget_last();
        let added = match self.own.get(key) {
            Some(Own::Set(value)) => return Ok(value.get().to_owned()),
            Some(Own::Deleted) => return Ok(String::new()),
            Some(Own::Added(by)) => Some(*by),
            None => None,
        };
        let found = self.look(key)?.map(|entry| entry.value);
        let Some(by) = added else {
            return Ok(found.map_or_else(String::new, |value| value.get().to_owned()));
        };
        // The sum is this run's only if it is told of the rest.
        self.reads.note_last();
        let base = found.map_or(Ok(0), |value| value.get().parse::<i64>());
        let sum = base.ok().and_then(|base| base.checked_add(by)).ok_or_else(|| {
            Refusal::Failure("kv.get: the entry that was incremented holds no whole number".into())
        })?;
        Ok(sum.to_string())
    }

    fn kv_get_with_version(&mut self, key: &str) -> Answer {
        if self.own.contains_key(key) {
            let problem = "key must not be one that this run has written: that has no version yet";
            return Err(Refusal::Argument(problem.to_owned()));
        }
        let found = self.look(key)?;
        self.reads.note_last();
        let (value, version) = match found {
            Some(Entry { value, version }) => (Some(value), Some(version)),
            None => (None, None),
        };
        let answer = BTreeMap::from([
            ("value", value.unwrap_or_else(|| RawValue::NULL.to_owned())),
            ("version", to_raw_value(&version).unwrap_or_else(|_| RawValue::NULL.to_owned())),
        ]);
        serde_json::to_string(&answer).map_err(|_| Refusal::Failure("kv failed".to_owned()))
    }

    fn kv_increment(&mut self, key: String, by: &str, time: &str) -> Result<(), Refusal> {
        let key = name("key", key, KEY_CHARACTERS_MAX)?;
        let problem = || Refusal::Argument("by must be a whole number".to_owned());
        let by: i64 = by.parse().map_err(|_| problem())?;
        let ttl_seconds = ttl(time)?;
        let own = match self.own.get(&key) {
            None => Own::Added(by),
            Some(Own::Deleted) => Own::Set(to_raw_value(&by).map_err(|_| problem())?),
            Some(Own::Added(so_far)) => Own::Added(so_far.checked_add(by).ok_or_else(problem)?),
            Some(Own::Set(value)) => {
                let base = value.get().parse::<i64>().ok();
                let sum = base.and_then(|base| base.checked_add(by)).ok_or_else(|| {
                    Refusal::Argument("key must be one that holds a whole number".to_owned())
                })?;
                Own::Set(to_raw_value(&sum).map_err(|_| problem())?)
            }
        };
        self.own.insert(key.clone(), own);
        self.want(Effect::KvIncrement { key, by, ttl_seconds })
    }

    fn kv_list(&mut self, prefix: &str, after: &str, limit: &str) -> Answer {
        let most = match limit {
            "" => KEYS_LISTED_MAX,
            limit => limit.parse().ok().filter(|n| (1..=KEYS_LISTED_MAX).contains(n)).ok_or_else(
                || {
                    let problem = format!("options.limit must be from 1 to {KEYS_LISTED_MAX}");
                    Refusal::Argument(problem)
                },
            )?,
        };
        let is_listed = |key: &str| key.starts_with(prefix) && key > after;
        let own = || self.own.iter().filter(|(key, _)| is_listed(key));
        // Each own deletion may hide one of the stored keys, so as many more are asked for.
        let deleted = own().filter(|(_, own)| matches!(own, Own::Deleted)).count();
        let keys_max = most.saturating_add(u32::try_from(deleted).unwrap_or(u32::MAX));
        let store = Arc::clone(&self.store);
        let cursor = (!after.is_empty()).then_some(after);
        self.read_once_more()?;
        let listed = self.wait(store.kv_list(self.app_id, prefix, cursor, keys_max))?;
        let Listed { keys, digest } =
            listed.map_err(|error| Refusal::Failure(format!("kv.list: {error}")))?;
        let mut keys: BTreeSet<String> = keys.into_iter().collect();
        for (key, own) in own() {
            match own {
                Own::Set(_) | Own::Added(_) => keys.insert(key.clone()),
                Own::Deleted => keys.remove(key),
            };
        }
        let keys: Vec<&String> = keys.iter().take(most as usize).collect();
        let answer = serde_json::to_string(&keys);
        self.reads.listed(prefix, cursor, keys_max, digest);
        answer.map_err(|_| Refusal::Failure("kv.list failed".to_owned()))
    }

    fn fetch(&mut self, url: &str, method: &str, headers: &str, body: &str) -> Answer {
        let argument = |problem: &str| Refusal::Argument(problem.to_owned());
        let method = Method::from_bytes(method.as_bytes())
            .ok()
            .filter(|method| ![Method::CONNECT, Method::TRACE].contains(method))
            .ok_or_else(|| argument("options.method must be a method such as GET or POST"))?;
        let headers: BTreeMap<String, String> = serde_json::from_str(headers)
            .map_err(|_| argument("options.headers must be an object of strings"))?;
        let mut headers = header_map(headers)?;
        trace_header(&mut headers, self.traceparent.as_deref());
        let body = body_bytes(body)?;
        if body.len() > self.fetcher.request_bytes_max() {
            let most = self.fetcher.request_bytes_max();
            return Err(Refusal::Argument(format!("options.body must be at most {most} bytes")));
        }
        let endpoint =
            self.fetcher.endpoint(url).map_err(|error| Refusal::Argument(error.to_string()))?;
        let left = self.fetches_left.checked_sub(1);
        self.fetches_left =
            left.ok_or_else(|| Refusal::Failure("fetch: too many calls in one run".to_owned()))?;
        let allowed = self.wait(self.departure.allow())?;
        allowed.map_err(|why| Refusal::Failure(format!("fetch: {why}")))?;
        self.has_left = true;
        let call = Call { method, headers, body };
        let deadline = self.deadline;
        let reply =
            self.wait(send(&endpoint, call, deadline))?.map_err(|failure| match failure {
                Failure::NotSent { error_code, message }
                | Failure::Lost { error_code, message } => {
                    Refusal::Failure(format!("fetch: {error_code}: {message}"))
                }
            })?;
        // A value's bytes are its characters, as the Fetch Standard has it.
        let value = |value: &HeaderValue| -> String {
            value.as_bytes().iter().map(|byte| char::from(*byte)).collect()
        };
        let headers: Vec<(&str, String)> =
            reply.headers.iter().map(|(name, own)| (name.as_str(), value(own))).collect();
        let status = reply.status;
        let answer = if let Ok(body) = std::str::from_utf8(&reply.body) {
            serde_json::json!({ "status": status, "headers": headers, "body": body })
        } else {
            let bytes = BASE64_STANDARD.encode(&reply.body);
            serde_json::json!({ "status": status, "headers": headers, "bodyBase64": bytes })
        };
        Ok(answer.to_string())
    }

    /// Wait on this thread, which is the script's own, and no longer than the run.
    fn wait<T>(&self, work: impl Future<Output = T>) -> Result<T, Refusal> {
        self.budgeted_run.release_turn();
        let in_time = async {
            // Also when the caller has gone: nobody would use the answer.
            tokio::select! {
                done = timeout_at(self.deadline, work) => done.ok(),
                () = self.shared.given_up() => None,
            }
        };
        // Given up may mean that the runtime is being shut down, and then it must not be waited on.
        let done = if self.shared.is_given_up() { None } else { self.runtime.block_on(in_time) };
        done.ok_or_else(|| {
            self.stop.set(Some(Stop::TimedOut));
            Refusal::Failure("the time is up".to_owned())
        })
    }
}

fn name(argument: &str, text: String, characters_max: usize) -> Result<String, Refusal> {
    if is_name(&text, characters_max) {
        return Ok(text);
    }
    let problem = format!("{argument} must be 1 to {characters_max} characters, not blank, no NUL");
    Err(Refusal::Argument(problem))
}

/// How long an entry is there; for ever if nothing is said.
fn ttl(text: &str) -> Result<Option<u32>, Refusal> {
    if text.is_empty() {
        return Ok(None);
    }
    let seconds = text.parse().ok().filter(|seconds| (1..=TTL_SECONDS_MAX).contains(seconds));
    let problem =
        || format!("options.ttlSeconds must be a whole number from 1 to {TTL_SECONDS_MAX}");
    seconds.map(Some).ok_or_else(|| Refusal::Argument(problem()))
}

fn stored(argument: &str, text: &str) -> Result<Box<RawValue>, Refusal> {
    storable(text).map_err(|problem| Refusal::Argument(format!("{argument} {problem}")))
}

/// A body as the prelude hands it over.
fn body_bytes(given: &str) -> Result<Bytes, Refusal> {
    if let Some(text) = given.strip_prefix('t') {
        return Ok(Bytes::copy_from_slice(text.as_bytes()));
    }
    let base64 = given.strip_prefix('b').unwrap_or_default();
    let bytes = BASE64_STANDARD.decode(base64).map(Bytes::from);
    bytes.map_err(|_| Refusal::Argument("options.body must be a string or bytes".to_owned()))
}

/// What the connection decides is not the script's to say: it could smuggle a second request.
fn header_map(given: BTreeMap<String, String>) -> Result<HeaderMap, Refusal> {
    let refuse = |problem: &str| Refusal::Argument(format!("options.headers {problem}"));
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| refuse("has a name that is none"))?;
        if is_connection_header(&name) || name.as_str().starts_with("proxy-") {
            return Err(refuse(&format!("must not set {name}")));
        }
        let value = HeaderValue::from_str(&value)
            .map_err(|_| refuse(&format!("has a value for {name} that is not visible text")))?;
        headers.insert(name, value);
    }
    Ok(headers)
}

/// A key or name that the database takes.
fn is_name(text: &str, characters_max: usize) -> bool {
    !text.trim().is_empty() && !text.contains('\0') && text.chars().count() <= characters_max
}
