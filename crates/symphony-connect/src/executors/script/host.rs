//! The host's side of the host API: takes strings, gives strings, and is told nothing about whose script it is.
//!
//! The app is a field here and never an argument, so no trick in a script can write for another one.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use hyper::Method;
use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::{RawValue, to_raw_value};
use symphony::lanes::triggers::executor::{Effect, ScriptStore};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::patience::Calculation;
use super::shared::Shared;
use crate::executors::fetcher::{Call, Fetcher, send};
use crate::executors::output::{
    Effects, KEY_CHARACTERS_MAX, NAME_CHARACTERS_MAX, is_name, storable,
};
use crate::http_client::Failure;

/// Keys that `kv.list` gives at most.
pub const KEYS_LISTED_MAX: u32 = 1_000;

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

pub(super) struct Host {
    pub(super) app_id: Uuid,
    pub(super) store: Arc<dyn ScriptStore>,
    pub(super) fetcher: Arc<Fetcher>,
    pub(super) runtime: Handle,
    pub(super) deadline: Instant,
    pub(super) shared: Arc<Shared>,
    pub(super) stop: Rc<Cell<Option<Stop>>>,
    pub(super) calculation: Rc<Calculation>,
    pub(super) effects: Effects,
    /// What this run wrote, over what the store has: `None` was deleted.
    pub(super) own: BTreeMap<String, Option<Box<RawValue>>>,
    pub(super) fetches_left: u32,
    pub(super) thrown: Option<Thrown>,
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
            "describe" => self.thrown = Some(Thrown { name: a, message: b, stack: c }),
            "kv_get" => return self.kv_get(&a),
            "kv_list" => return self.kv_list(&a),
            "fetch" => return self.fetch(&a, &b, &c, d),
            "kv_set" => {
                let key = name("key", a, KEY_CHARACTERS_MAX)?;
                let value = stored("value", b)?;
                self.own.insert(key.clone(), Some(value.clone()));
                self.want(Effect::KvSet { key, value })?;
            }
            "kv_delete" => {
                let key = name("key", a, KEY_CHARACTERS_MAX)?;
                self.own.insert(key.clone(), None);
                self.want(Effect::KvDelete { key })?;
            }
            "queue_send" => {
                let queue = name("queue", a, NAME_CHARACTERS_MAX)?;
                self.want(Effect::QueueSend { queue, message: stored("message", b)? })?;
            }
            "pubsub_publish" => {
                let topic = name("topic", a, NAME_CHARACTERS_MAX)?;
                self.want(Effect::PubsubPublish { topic, message: stored("message", b)? })?;
            }
            "event_publish" => {
                if !a.starts_with('{') {
                    return Err(Refusal::Argument("event must be an object".to_owned()));
                }
                self.want(Effect::EventPublish { event: stored("event", a)? })?;
            }
            "email_send" => self.want(Effect::EmailSend { message: email(&a, &b, &c)? })?,
            _ => return Err(Refusal::Failure("there is no such host function".to_owned())),
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

    fn kv_get(&mut self, key: &str) -> Answer {
        if let Some(own) = self.own.get(key) {
            return Ok(own.as_ref().map_or_else(String::new, |value| value.get().to_owned()));
        }
        let store = Arc::clone(&self.store);
        let found = self.wait(store.kv_get(self.app_id, key))?;
        let found = found.map_err(|error| Refusal::Failure(format!("kv.get: {error}")))?;
        Ok(found.map_or_else(String::new, |value| value.get().to_owned()))
    }

    fn kv_list(&mut self, prefix: &str) -> Answer {
        let own = || self.own.iter().filter(|(key, _)| key.starts_with(prefix));
        // Each own deletion may hide one of the stored keys, so as many more are asked for.
        let deleted = own().filter(|(_, value)| value.is_none()).count();
        let keys_max = KEYS_LISTED_MAX.saturating_add(u32::try_from(deleted).unwrap_or(u32::MAX));
        let store = Arc::clone(&self.store);
        let stored = self.wait(store.kv_list(self.app_id, prefix, keys_max))?;
        let stored = stored.map_err(|error| Refusal::Failure(format!("kv.list: {error}")))?;
        let mut keys: BTreeSet<String> = stored.into_iter().collect();
        for (key, value) in own() {
            if value.is_some() {
                keys.insert(key.clone());
            } else {
                keys.remove(key);
            }
        }
        let keys: Vec<&String> = keys.iter().take(KEYS_LISTED_MAX as usize).collect();
        serde_json::to_string(&keys).map_err(|_| Refusal::Failure("kv.list failed".to_owned()))
    }

    fn fetch(&mut self, url: &str, method: &str, headers: &str, body: String) -> Answer {
        let argument = |problem: &str| Refusal::Argument(problem.to_owned());
        let method = Method::from_bytes(method.as_bytes())
            .ok()
            .filter(|method| ![Method::CONNECT, Method::TRACE].contains(method))
            .ok_or_else(|| argument("options.method must be a method such as GET or POST"))?;
        let headers: BTreeMap<String, String> = serde_json::from_str(headers)
            .map_err(|_| argument("options.headers must be an object of strings"))?;
        let headers = header_map(headers)?;
        if body.len() > self.fetcher.request_bytes_max() {
            let most = self.fetcher.request_bytes_max();
            return Err(Refusal::Argument(format!("options.body must be at most {most} bytes")));
        }
        let endpoint =
            self.fetcher.endpoint(url).map_err(|error| Refusal::Argument(error.to_string()))?;
        let left = self.fetches_left.checked_sub(1);
        self.fetches_left =
            left.ok_or_else(|| Refusal::Failure("fetch: too many calls in one run".to_owned()))?;
        let call = Call { method, headers, body: Bytes::from(body) };
        let deadline = self.deadline;
        let reply =
            self.wait(send(&endpoint, call, deadline))?.map_err(|failure| match failure {
                Failure::NotSent { error_code, message }
                | Failure::Lost { error_code, message } => {
                    Refusal::Failure(format!("fetch: {error_code}: {message}"))
                }
            })?;
        let mut headers: BTreeMap<&str, String> = BTreeMap::new();
        for (name, value) in &reply.headers {
            let value = String::from_utf8_lossy(value.as_bytes());
            let all = headers.entry(name.as_str()).or_default();
            if !all.is_empty() {
                all.push_str(", ");
            }
            all.push_str(&value);
        }
        let body = String::from_utf8_lossy(&reply.body);
        let answer =
            serde_json::json!({ "status": reply.status, "headers": headers, "body": body });
        Ok(answer.to_string())
    }

    /// Wait on this thread, which is the script's own, and no longer than the run.
    fn wait<T>(&self, work: impl Future<Output = T>) -> Result<T, Refusal> {
        self.calculation.rest();
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

fn stored(argument: &str, text: String) -> Result<Box<RawValue>, Refusal> {
    storable(text).map_err(|problem| Refusal::Argument(format!("{argument} {problem}")))
}

fn email(to: &str, subject: &str, text: &str) -> Result<Box<RawValue>, Refusal> {
    #[derive(serde::Deserialize, serde::Serialize)]
    #[serde(untagged)]
    enum To {
        One(String),
        Several(Vec<String>),
    }
    let refuse = |problem: &str| Err(Refusal::Argument(problem.to_owned()));
    let is_address = |address: &String| {
        address.contains('@') && !address.chars().any(|c| c.is_control() || c.is_whitespace())
    };
    let to: Option<To> = serde_json::from_str(to).ok();
    let good = match &to {
        None => false,
        Some(To::One(address)) => is_address(address),
        Some(To::Several(all)) => (1..=50).contains(&all.len()) && all.iter().all(is_address),
    };
    if !good {
        return refuse("message.to must be an email address, or 1 to 50 of them");
    }
    if subject.chars().any(char::is_control) {
        return refuse("message.subject must be one line of text");
    }
    if text.contains('\0') {
        return refuse("message.text must not contain NUL");
    }
    let message = serde_json::json!({ "to": to, "subject": subject, "text": text });
    to_raw_value(&message).map_err(|_| Refusal::Failure("email.send failed".to_owned()))
}

/// What the connection decides is not the script's to say: it could smuggle a second request.
fn header_map(given: BTreeMap<String, String>) -> Result<HeaderMap, Refusal> {
    const OURS: [&str; 9] = [
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let refuse = |problem: &str| Refusal::Argument(format!("options.headers {problem}"));
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| refuse("has a name that is none"))?;
        if OURS.contains(&name.as_str()) || name.as_str().starts_with("proxy-") {
            return Err(refuse(&format!("must not set {name}")));
        }
        let value = HeaderValue::from_str(&value)
            .map_err(|_| refuse(&format!("has a value for {name} that is not visible text")))?;
        headers.insert(name, value);
    }
    Ok(headers)
}
