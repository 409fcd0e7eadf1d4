//! How much a run may say, and what of it the database can hold.

use serde::Deserialize;
use serde_json::value::RawValue;
use symphony::FieldErrors;
use symphony::json;
use symphony::lanes::triggers::executor::{Effect, LogLine};

pub use crate::bounds::executors::KEY_CHARACTERS_MAX;
pub use crate::bounds::executors::NAME_CHARACTERS_MAX;
#[cfg(feature = "scripts")]
use crate::bounds::executors::STACK_CHARACTERS_MAX;
use crate::settings::Defects;

/// Counted for each log line besides its message, so that empty lines are not free.
const LOG_LINE_BYTES: usize = 32;
const LEFT_OUT: &str = "the log is full: further lines were left out";

/// How much one run may answer, want and log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OutputLimits {
    /// The answer, as JSON. Default 262,144.
    pub result_bytes_max: usize,
    /// All log lines together; what is more is cut off, and the run goes on. Default 65,536.
    pub logs_bytes_max: usize,
    /// Effects of one run. Default 1,000.
    pub effects_max: usize,
    /// All effects together, as JSON. Default 1,048,576.
    pub effects_bytes_max: usize,
}

impl Default for OutputLimits {
    fn default() -> Self {
        Self {
            result_bytes_max: 256 << 10,
            logs_bytes_max: 64 << 10,
            effects_max: 1_000,
            effects_bytes_max: 1 << 20,
        }
    }
}

impl OutputLimits {
    pub(super) fn check(&self) -> Result<(), FieldErrors> {
        let mut defects = Defects::default();
        defects.within("result_bytes_max", self.result_bytes_max, 4, 16 << 20);
        defects.within("logs_bytes_max", self.logs_bytes_max, 0, 16 << 20);
        defects.within("effects_max", self.effects_max, 0, 100_000);
        defects.within("effects_bytes_max", self.effects_bytes_max, 0, 64 << 20);
        defects.into_result()
    }
}

/// What a run logged, as far as the limit allows.
#[derive(Debug)]
pub(super) struct Logs {
    lines: Vec<LogLine>,
    bytes_left: usize,
    is_full: bool,
}

impl Logs {
    pub(super) fn new(limits: &OutputLimits) -> Self {
        Self { lines: Vec::new(), bytes_left: limits.logs_bytes_max, is_full: false }
    }

    pub(super) fn push(&mut self, level: &str, at_ms: u64, message: &str) {
        if self.is_full {
            return;
        }
        let room = self.bytes_left.saturating_sub(LOG_LINE_BYTES);
        let line = |level: &str, message: &str| LogLine {
            level: level.to_owned(),
            at_ms,
            // The database's text holds everything but this.
            message: message.replace('\0', "\u{fffd}"),
        };
        if message.len() <= room && self.bytes_left >= LOG_LINE_BYTES {
            self.bytes_left = room.saturating_sub(message.len());
            self.lines.push(line(level, message));
            return;
        }
        self.is_full = true;
        let (head, _) = message.split_at(message.floor_char_boundary(room));
        if !head.is_empty() {
            self.lines.push(line(level, head));
        }
        self.lines.push(line("warn", LEFT_OUT));
    }

    /// Besides the limit: it is cut to what one needs of it, and there is one of it.
    #[cfg(feature = "scripts")]
    pub(super) fn push_stack(&mut self, at_ms: u64, stack: &str) {
        let message = stack.chars().take(STACK_CHARACTERS_MAX).collect::<String>();
        let message = message.replace('\0', "\u{fffd}");
        self.lines.push(LogLine { level: "error".to_owned(), at_ms, message });
    }

    pub(super) fn take(&mut self) -> Vec<LogLine> {
        self.is_full = true;
        std::mem::take(&mut self.lines)
    }
}

/// What a run wants to have done, within its limits.
#[derive(Debug)]
pub(super) struct Effects {
    list: Vec<Effect>,
    limits: OutputLimits,
    bytes: usize,
}

impl Effects {
    pub(super) fn new(limits: OutputLimits) -> Self {
        Self { list: Vec::new(), limits, bytes: 0 }
    }

    /// One more, unless it is too much: then which limit was met.
    pub(super) fn push(&mut self, effect: Effect) -> Result<(), String> {
        if self.list.len() >= self.limits.effects_max {
            return Err(format!("more than {} effects in one run", self.limits.effects_max));
        }
        self.bytes = self.bytes.saturating_add(effect_bytes(&effect));
        if self.bytes > self.limits.effects_bytes_max {
            let most = self.limits.effects_bytes_max;
            return Err(format!("more than {most} bytes of effects in one run"));
        }
        self.list.push(effect);
        Ok(())
    }

    #[cfg(feature = "scripts")]
    pub(super) fn list(&self) -> &[Effect] {
        &self.list
    }

    pub(super) fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.list)
    }
}

fn effect_bytes(effect: &Effect) -> usize {
    let (name, value) = match effect {
        Effect::KvSet { key, value, .. } | Effect::KvSetIfAbsent { key, value, .. } => {
            (key.len(), value.get().len())
        }
        Effect::KvCompareAndSet { key, expected, value, .. } => {
            (key.len(), expected.get().len().saturating_add(value.get().len()))
        }
        Effect::KvDelete { key } | Effect::KvIncrement { key, .. } => (key.len(), 0),
        Effect::QueueSend { queue, message, key } => {
            let key_bytes = key.as_ref().map_or(0, String::len);
            (queue.len().saturating_add(key_bytes), message.get().len())
        }
        Effect::PubsubPublish { topic, message } => (topic.len(), message.get().len()),
        Effect::EventPublish { event } => (0, event.get().len()),
        Effect::EmailSend { message } => (0, message.get().len()),
    };
    name.saturating_add(value)
}

/// JSON that the database can hold as `jsonb`: no NUL, no half of a surrogate pair, not nested without end.
pub(super) fn storable(text: &str) -> Result<Box<RawValue>, &'static str> {
    let rules = json::Rules { names_may_repeat: true, ..json::Rules::default() };
    json::check(text, rules).map(ToOwned::to_owned).map_err(|_| NOT_STORABLE)
}

const NOT_STORABLE: &str = "must be JSON that the database can hold: no NUL character, no half of a surrogate pair, nested \
     less than 128 deep, no number of more than 350 digits";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn json_is_storable_exactly_if_jsonb_can_hold_it() {
        for good in [
            "null",
            "1.10",
            "1e349",
            "\"\\ud83d\\ude00\"",
            r#"{"a":[1,{"b":"ü"}],"a":-0.5e3}"#,
            " [ ] ",
        ] {
            assert_eq!(storable(good).unwrap().get(), good.trim());
        }
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        for bad in [
            "",
            "{",
            r#""\u0000""#,
            r#"{"\u0000":1}"#,
            r#""\ud800""#,
            r#"["\udc00x"]"#,
            "1 2",
            "1e351",
            "1e-351",
            &deep,
        ] {
            assert!(storable(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_full_log_says_so_and_keeps_whole_characters() {
        let limits = OutputLimits { logs_bytes_max: 100, ..OutputLimits::default() };
        let mut logs = Logs::new(&limits);
        logs.push("info", 1, "0123456789");
        logs.push("info", 2, &"ü".repeat(40));
        logs.push("info", 3, "late");
        let messages: Vec<_> = logs.take().into_iter().map(|line| line.message).collect();
        assert_eq!(messages, ["0123456789", &"ü".repeat(13), LEFT_OUT]);
    }
}
