//! What a local run wants to have done, refused as the database refuses it: the same code and the same words.
//!
//! The rules are those of `write_kv`, `send_message`, `outbound_email` and `email_attachments_defect`; a test runs each
//! mistake here and there and compares. An event is checked by [`Event`], whose words are the contract's.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use symphony::event::Event;
use symphony::json::Kind;
use symphony::lanes::triggers::executor::Effect;

use super::jsonb;
use super::local::Entries;

/// What an entry, a message or a part of a mail may have.
const VALUE_KIB_MAX: usize = 256;
const RECIPIENTS_MAX: usize = 50;
const ADDRESS_CHARACTERS_MAX: usize = 254;
const SUBJECT_CHARACTERS_MAX: usize = 998;

/// How many seconds entries are there.
pub(super) type TimesToLive = BTreeMap<String, u32>;

/// What was applied.
pub(super) struct Committed {
    pub(super) ttl_seconds: TimesToLive,
    /// All effects but those on entries.
    pub(super) effects: Vec<Effect>,
}

/// What an app declares that its scripts may send to.
#[derive(Debug, Default)]
pub(super) struct Declared {
    queues: BTreeSet<String>,
    topics: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum WrittenQueue {
    Named(String),
    More { name: String },
}

impl Declared {
    pub(super) fn new(queues: Vec<WrittenQueue>, topics: Vec<String>) -> Self {
        let name = |queue| match queue {
            WrittenQueue::Named(name) | WrittenQueue::More { name } => name,
        };
        let queues = queues.into_iter().map(name).collect();
        Self { queues, topics: topics.into_iter().collect() }
    }

    /// Apply what concerns entries and hand back the rest; or why all of it is refused. Entries come first, in the order
    /// of their keys, then messages and mail, then events: as they are applied.
    pub(super) fn commit(
        &self,
        kv: &mut Entries,
        effects: Vec<Effect>,
    ) -> Result<Committed, String> {
        let mut ttl_seconds = TimesToLive::new();
        let mut entries = Vec::new();
        let mut rest = Vec::new();
        for effect in effects {
            match key_of(&effect).map(str::to_owned) {
                Some(key) => entries.push((key, effect)),
                None => rest.push(effect),
            }
        }
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (key, effect) in entries {
            write(kv, &mut ttl_seconds, key, effect)?;
        }
        let is_event = |effect: &&Effect| matches!(effect, Effect::EventPublish { .. });
        for effect in rest.iter().filter(|effect| !is_event(effect)) {
            self.check(effect)?;
        }
        for effect in rest.iter().filter(is_event) {
            self.check(effect)?;
        }
        Ok(Committed { ttl_seconds, effects: rest })
    }

    fn check(&self, effect: &Effect) -> Result<(), String> {
        match effect {
            Effect::QueueSend { queue, message, .. } => {
                sized("p_message", message)?;
                if self.queues.contains(queue) {
                    return Ok(());
                }
                let queue = identifier(queue);
                Err(format!("the app has no queue {queue}: declare it in app.json under queues"))
            }
            Effect::PubsubPublish { topic, message } => {
                sized("p_message", message)?;
                if self.topics.contains(topic) {
                    return Ok(());
                }
                let topic = identifier(topic);
                Err(format!("the app has no topic {topic}: declare it in app.json under topics"))
            }
            Effect::EmailSend { message } => mail(message),
            Effect::EventPublish { event } => {
                Event::parse(event.get()).map(|_| ()).map_err(|error| error.to_string())
            }
            _ => Ok(()),
        }
    }
}

fn key_of(effect: &Effect) -> Option<&str> {
    match effect {
        Effect::KvSet { key, .. }
        | Effect::KvSetIfAbsent { key, .. }
        | Effect::KvCompareAndSet { key, .. }
        | Effect::KvDelete { key }
        | Effect::KvIncrement { key, .. } => Some(key),
        _ => None,
    }
}

fn write(
    kv: &mut Entries,
    times: &mut TimesToLive,
    key: String,
    effect: Effect,
) -> Result<(), String> {
    let (value, ttl_seconds) = match effect {
        Effect::KvSet { value, ttl_seconds, .. }
        | Effect::KvSetIfAbsent { value, ttl_seconds, .. }
        | Effect::KvCompareAndSet { value, ttl_seconds, .. } => (value, ttl_seconds),
        Effect::KvIncrement { by, ttl_seconds, .. } => match kv.get(&key) {
            None => (jsonb::number(by)?, ttl_seconds),
            // One that is there keeps the time that it has.
            Some(before) => (sum(before, by)?, times.get(&key).copied()),
        },
        _ => {
            kv.remove(&key);
            times.remove(&key);
            return Ok(());
        }
    };
    sized("p_value", &value)?;
    match ttl_seconds {
        Some(seconds) => times.insert(key.clone(), seconds),
        None => times.remove(&key),
    };
    kv.insert(key, value);
    Ok(())
}

fn sum(before: &RawValue, by: i64) -> Result<Box<RawValue>, String> {
    if Kind::of(before) != Kind::Number {
        let problem = "kv.increment: the entry holds no number: set one first, or use another key";
        return Err(problem.to_owned());
    }
    jsonb::sum(before.get(), by)
}

fn sized(argument: &str, value: &RawValue) -> Result<(), String> {
    if jsonb::length(value) > VALUE_KIB_MAX * 1024 {
        return Err(format!("{argument} is larger than {VALUE_KIB_MAX} KiB"));
    }
    Ok(())
}

fn mail(message: &RawValue) -> Result<(), String> {
    let fields: Map<String, Value> =
        serde_json::from_str(message.get()).map_err(|error| error.to_string())?;
    let mut recipients = 0;
    for field in ["to", "cc", "bcc", "replyTo"] {
        let Some(given) = fields.get(field).or((field == "to").then_some(&Value::Null)) else {
            continue;
        };
        let addresses = match given {
            Value::Array(all) => all.as_slice(),
            one => std::slice::from_ref(one),
        };
        let is_one = field == "replyTo";
        let most = if is_one { 1 } else { RECIPIENTS_MAX };
        let are_good = (1..=most).contains(&addresses.len())
            && addresses.iter().all(|address| address.as_str().is_some_and(is_address));
        if !are_good {
            let several = if is_one { "" } else { " or 1 to 50 of them" };
            return Err(format!("email.{field} must be an address{several}"));
        }
        recipients += if is_one { 0 } else { addresses.len() };
    }
    let text = |field: &str| fields.get(field).and_then(Value::as_str);
    let is_body = |text: &str| text.len() <= VALUE_KIB_MAX * 1024;
    let is_subject = |text: &str| {
        text.chars().count() <= SUBJECT_CHARACTERS_MAX && !text.chars().any(char::is_control)
    };
    if recipients > RECIPIENTS_MAX {
        return Err("email.to, cc and bcc must have at most 50 addresses together".to_owned());
    } else if !text("subject").is_some_and(is_subject) {
        return Err("email.subject must be one line of text".to_owned());
    } else if !text("text").is_some_and(is_body) {
        return Err("email.text must be text of at most 256 KiB".to_owned());
    } else if fields.contains_key("html") && !text("html").is_some_and(is_body) {
        return Err("email.html must be text of at most 256 KiB".to_owned());
    }
    fields.get("attachments").map_or(Ok(()), attachments)
}

fn is_address(address: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.contains(|c: char| c.is_whitespace() || c.is_control() || "@<>,;".contains(c))
    };
    address.chars().count() <= ADDRESS_CHARACTERS_MAX
        && address.split_once('@').is_some_and(|(name, host)| is_part(name) && is_part(host))
}

fn attachments(given: &Value) -> Result<(), String> {
    let Some(files) = given.as_array().filter(|files| files.len() <= 10) else {
        return Err("email.attachments must be a list of at most 10".to_owned());
    };
    let mut bytes = 0_usize;
    for (index, file) in files.iter().enumerate() {
        let text = |field: &str| file.get(field).and_then(Value::as_str);
        let is_name = |name: &str| {
            (1..=200).contains(&name.chars().count()) && !name.chars().any(char::is_control)
        };
        let content = text("contentBase64").unwrap_or_default();
        let problem = if !text("name").is_some_and(is_name) {
            "name must be one line of 1 to 200 characters"
        } else if file.get("contentType").is_some() && !text("contentType").is_some_and(is_type) {
            "contentType must be a type such as application/pdf"
        } else if !content.len().is_multiple_of(4) {
            "contentBase64 must be base64 with padding"
        } else {
            bytes += content.len() / 4 * 3;
            continue;
        };
        return Err(format!("email.attachments[{index}].{problem}"));
    }
    if bytes > 512 * 1024 {
        return Err("email.attachments must be at most 512 KiB together".to_owned());
    }
    Ok(())
}

fn is_type(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte))
    };
    text.len() <= 100
        && text.split_once('/').is_some_and(|(kind, sub)| {
            is_part(kind)
                && is_part(sub)
                && !["multipart", "message"].iter().any(|other| kind.eq_ignore_ascii_case(other))
        })
}

/// As `quote_ident` writes a name, but for the words of SQL, which it quotes, too.
fn identifier(name: &str) -> String {
    let is_plain = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}
