//! From layers of TOML to typed sections. What cannot be read is noted and taken out, and reading goes on, so that no
//! mistake hides another.

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::DEFAULT;
use super::defects::Defects;
use crate::edit_distance::edit_distance;

/// What is read, and where it stands.
pub(super) struct Reading<'a> {
    /// Its place in the file, such as `rails.sepa`; empty for the whole.
    pub(super) place: &'a str,
    /// Values for what cannot be read.
    pub(super) fallback: &'a Table,
    /// Keys that others read from the same section.
    pub(super) siblings: &'a [&'a str],
}

impl Reading<'_> {
    /// As much of it as can be read; `None` if that is not enough. Every round takes something out, so it ends.
    pub(super) fn read<T: DeserializeOwned>(
        &self,
        table: Table,
        defects: &mut Defects,
    ) -> Option<T> {
        let mut root = Value::Table(table);
        loop {
            let error = match T::deserialize(root.clone()) {
                Ok(section) => return Some(section),
                Err(error) => error,
            };
            if !self.take_out(&mut root, &Mistake::of(&error), defects) {
                return None;
            }
        }
    }

    /// Note a mistake and take it out, if that can be done.
    fn take_out(&self, root: &mut Value, mistake: &Mistake, defects: &mut Defects) -> bool {
        let found = resolve(root, &mistake.path, &|value| mistake.is_in(value))
            .or_else(|| resolve(root, &mistake.path, &|_| true));
        let Some(mut steps) = found else {
            defects.add(&self.name(&[]), mistake.message.clone());
            return false;
        };
        match &mistake.kind {
            Kind::UnknownKey { key, known } => {
                let section = self.name(&steps);
                steps.push(Step::Key(key.clone()));
                let known = known.iter().map(String::as_str).chain(self.siblings.iter().copied());
                let known: Vec<&str> = known.collect();
                defects.add(&self.name(&steps), unknown(key, &section, &known));
                remove(root, &steps)
            }
            Kind::MissingKey { key } => {
                let section = self.name(&steps);
                steps.push(Step::Key(key.clone()));
                let field = self.name(&steps);
                // What was taken out because it could not be read is not missing as well.
                if !defects.has_left_out(&field) {
                    defects.add(&field, format!("is missing: [{section}] cannot do without it"));
                }
                defects.leave_out(&section);
                steps.pop();
                remove(root, &steps)
            }
            Kind::WrongValue => {
                let field = self.name(&steps);
                defects.add(&field, explain(&mistake.message));
                let usual = lookup(self.fallback, &steps);
                match usual {
                    Some(usual) if value_at(root, &steps).is_some_and(|value| value != usual) => {
                        put(root, &steps, usual.clone())
                    }
                    _ => {
                        defects.leave_out(&field);
                        remove(root, &steps)
                    }
                }
            }
        }
    }

    fn name(&self, steps: &[Step]) -> String {
        let mut name = self.place.to_owned();
        for step in steps {
            match step {
                Step::Key(key) if name.is_empty() => name.push_str(key),
                Step::Key(key) => name.push_str(&format!(".{key}")),
                Step::Index(index) => name.push_str(&format!("[{index}]")),
            }
        }
        name
    }
}

/// One step into a document.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

/// What the deserializer did not like.
struct Mistake {
    /// Without the places in lists, which it does not say.
    path: Vec<String>,
    message: String,
    kind: Kind,
}

enum Kind {
    UnknownKey { key: String, known: Vec<String> },
    MissingKey { key: String },
    WrongValue,
}

impl Mistake {
    fn of(error: &toml::de::Error) -> Self {
        let text = error.to_string();
        let path = text.lines().rev().find_map(|line| line.strip_prefix("in `")?.strip_suffix('`'));
        let path = path.map(|path| path.split('.').map(str::to_owned).collect());
        let message = error.message().trim().replace('\n', " ");
        let mut quoted = message.split('`').skip(1).step_by(2).map(str::to_owned);
        let kind = if message.starts_with("unknown field ") {
            Kind::UnknownKey { key: quoted.next().unwrap_or_default(), known: quoted.collect() }
        } else if message.starts_with("missing field ") {
            Kind::MissingKey { key: quoted.next().unwrap_or_default() }
        } else {
            Kind::WrongValue
        };
        Self { path: path.unwrap_or_default(), message, kind }
    }

    /// Whether it can be about this value.
    fn is_in(&self, value: &Value) -> bool {
        match &self.kind {
            Kind::UnknownKey { key, .. } => {
                value.as_table().is_some_and(|table| table.contains_key(key))
            }
            Kind::MissingKey { key } => {
                value.as_table().is_some_and(|table| !table.contains_key(key))
            }
            Kind::WrongValue => {
                let kind = match value {
                    Value::String(_) => "string",
                    Value::Integer(_) => "integer",
                    Value::Float(_) => "floating point",
                    Value::Boolean(_) => "boolean",
                    Value::Array(_) => "sequence",
                    Value::Table(_) | Value::Datetime(_) => "map",
                };
                let said = self.message.strip_prefix("invalid type: ");
                said.is_none_or(|said| said.starts_with(kind))
            }
        }
    }
}

/// The way to the first value at this path for which `fits` holds; lists are searched.
fn resolve(value: &Value, path: &[String], fits: &dyn Fn(&Value) -> bool) -> Option<Vec<Step>> {
    let (step, rest) = match path.split_first() {
        None if fits(value) => return Some(Vec::new()),
        None => (None, path),
        Some((key, rest)) => {
            (value.as_table().and_then(|table| table.get(key)).map(|v| (key, v)), rest)
        }
    };
    if let Some((key, inner)) = step {
        let mut steps = resolve(inner, rest, fits)?;
        steps.insert(0, Step::Key(key.clone()));
        return Some(steps);
    }
    value.as_array()?.iter().enumerate().find_map(|(index, item)| {
        let mut steps = resolve(item, path, fits)?;
        steps.insert(0, Step::Index(index));
        Some(steps)
    })
}

fn value_at<'v>(root: &'v Value, steps: &[Step]) -> Option<&'v Value> {
    steps.iter().try_fold(root, |value, step| match step {
        Step::Key(key) => value.as_table()?.get(key),
        Step::Index(index) => value.as_array()?.get(*index),
    })
}

fn value_at_mut<'v>(root: &'v mut Value, steps: &[Step]) -> Option<&'v mut Value> {
    steps.iter().try_fold(root, |value, step| match step {
        Step::Key(key) => value.as_table_mut()?.get_mut(key),
        Step::Index(index) => value.as_array_mut()?.get_mut(*index),
    })
}

/// In the fallback there are no lists to go into.
fn lookup<'v>(fallback: &'v Table, steps: &[Step]) -> Option<&'v Value> {
    let (Step::Key(first), rest) = steps.split_first()? else { return None };
    value_at(fallback.get(first)?, rest)
}

fn remove(root: &mut Value, steps: &[Step]) -> bool {
    let Some((last, above)) = steps.split_last() else { return false };
    match (value_at_mut(root, above), last) {
        (Some(Value::Table(table)), Step::Key(key)) => table.remove(key).is_some(),
        (Some(Value::Array(items)), Step::Index(index)) if *index < items.len() => {
            items.remove(*index);
            true
        }
        _ => false,
    }
}

fn put(root: &mut Value, steps: &[Step], value: Value) -> bool {
    value_at_mut(root, steps).map(|place| *place = value).is_some()
}

/// A key that nobody reads, with the one that was probably meant.
fn unknown(key: &str, section: &str, known: &[&str]) -> String {
    let what = if section.is_empty() { "section" } else { "setting" };
    if let Some(near) = nearest(key, known) {
        return format!("is no {what}: did you mean {near}?");
    }
    let defaults: Table = DEFAULT.parse().unwrap_or_default();
    let elsewhere = defaults.iter().find(|(_, value)| {
        value.as_table().is_some_and(|inner| inner.contains_key(key) && !section.is_empty())
    });
    match elsewhere {
        Some((other, _)) => format!("is no {what} here: it belongs into [{other}]"),
        None => format!("is no {what}: `symphony config` lists them all"),
    }
}

/// The known key that differs least, if it differs little.
fn nearest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    let allowed = (key.chars().count() / 3).max(1);
    let nearest = known.iter().map(|other| (edit_distance(key, other), *other)).min();
    nearest.filter(|(differences, _)| *differences <= allowed).map(|(_, other)| other)
}

/// The deserializer's words, as a person says them.
fn explain(message: &str) -> String {
    let wanted = |expected: &str| match expected {
        "u16" | "u32" | "u64" | "usize" | "i64" => "a whole number".to_owned(),
        "a string" | "path string" => "a text in quotes".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list in brackets".to_owned(),
        "a map" => "a section".to_owned(),
        struct_or_other if struct_or_other.starts_with("struct ") => "a section".to_owned(),
        "a tuple of size 2" => "two numbers in brackets, such as [250, 1_000]".to_owned(),
        other => other.replace('`', ""),
    };
    if let Some(said) = message.strip_prefix("invalid type: ")
        && let Some((given, expected)) = said.rsplit_once(", expected ")
    {
        return format!("must be {}, not the {}", wanted(expected), given.replace('`', ""));
    }
    if let Some(said) = message.strip_prefix("invalid value: ")
        && let Some((given, expected)) = said.rsplit_once(", expected ")
    {
        let expected = match expected {
            "u16" | "u32" | "u64" | "usize" => {
                "a whole number that is not negative and not too large".to_owned()
            }
            other => wanted(other),
        };
        return format!("must be {expected}, not the {}", given.replace('`', ""));
    }
    if let Some(said) = message.strip_prefix("unknown variant ")
        && let Some((given, expected)) = said.split_once(", expected ")
    {
        let expected = expected.replace("one of ", "").replace('`', "\"").replace(" or ", ", ");
        return format!("is {}: it must be one of {expected}", given.replace('`', "\""));
    }
    format!("cannot be read: {}", message.replace('`', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_known_key_is_offered_and_a_far_one_is_not() {
        let known = ["lease_seconds", "lease_margin_ms", "poll_ms", "region"];
        for (key, expected) in [
            ("lease_second", Some("lease_seconds")),
            ("lease-seconds", Some("lease_seconds")),
            ("regoin", Some("region")),
            ("pol_ms", Some("poll_ms")),
            ("colour", None),
        ] {
            assert_eq!(nearest(key, &known), expected, "{key}");
        }
    }

    #[test]
    fn the_deserializers_words_become_a_persons() {
        for (said, expected) in [
            (
                "invalid type: string \"long\", expected u64",
                "must be a whole number, not the string \"long\"",
            ),
            (
                "invalid value: integer `-1`, expected u64",
                "must be a whole number that is not negative and not too large, not the integer -1",
            ),
            (
                "unknown variant `loud`, expected `text` or `json`",
                "is \"loud\": it must be one of \"text\", \"json\"",
            ),
            (
                "unknown variant `x`, expected one of `a`, `b`",
                "is \"x\": it must be one of \"a\", \"b\"",
            ),
        ] {
            assert_eq!(explain(said), expected);
        }
    }
}
