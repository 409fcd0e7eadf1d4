//! Reading a few text fields out of a payload, without ever making a number of anything.

use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Defect;

/// One object of a payload, its fields still as text.
pub(super) struct Fields<'a> {
    code: &'static str,
    entries: Vec<(String, &'a RawValue)>,
}

impl<'a> Fields<'a> {
    /// The payload's object of this name. Every defect found in it gets `code`.
    pub(super) fn read(
        payload: &'a RawValue,
        name: &'static str,
        code: &'static str,
    ) -> Result<Self, Defect> {
        let payload = Self { code, entries: entries(payload, "payload", code)? };
        let object = payload
            .get(name)
            .ok_or_else(|| Defect::new(code, name, "is missing: it must be a JSON object"))?;
        Ok(Self { code, entries: entries(object, name, code)? })
    }

    /// The text at a path such as `amount.value`, whose last part is the field's name here.
    pub(super) fn text(&self, path: &'static str, wanted: &str) -> Result<String, Defect> {
        let name = path.rsplit('.').next().unwrap_or(path);
        let defect = |problem: String| Defect::new(self.code, path, problem);
        let Some(value) = self.get(name) else {
            return Err(defect(format!("is missing: it must be {wanted}")));
        };
        let kind = kind(value);
        if kind != Kind::Text {
            return Err(defect(format!("must be {wanted}, not {}", kind.in_words())));
        }
        // A lone surrogate is the one thing that is JSON and still no text.
        serde_json::from_str(value.get())
            .map_err(|_| defect(format!("is not readable as text: it must be {wanted}")))
    }

    fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.entries.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
    }
}

/// The entries of an object, in order. A repeated key is refused: two readers would see two values.
fn entries<'a>(
    object: &'a RawValue,
    path: &'static str,
    code: &'static str,
) -> Result<Vec<(String, &'a RawValue)>, Defect> {
    let kind = kind(object);
    if kind != Kind::Object {
        return Err(Defect::new(
            code,
            path,
            format!("must be a JSON object, not {}", kind.in_words()),
        ));
    }
    let mut reader = serde_json::Deserializer::from_str(object.get());
    let entries = reader
        .deserialize_map(Entries)
        .map_err(|_| Defect::new(code, path, "has a key that is not readable as text"))?;
    let mut keys: Vec<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
    keys.sort_unstable();
    if keys.is_sorted_by(|before, after| before < after) {
        Ok(entries)
    } else {
        Err(Defect::new(code, path, "repeats a key: readers would disagree on its value"))
    }
}

struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            entries.push((key, map.next_value()?));
        }
        Ok(entries)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Object,
    List,
    Text,
    Number,
    Boolean,
    Null,
}

impl Kind {
    fn in_words(self) -> &'static str {
        match self {
            Self::Object => "a JSON object",
            Self::List => "a JSON list",
            Self::Text => "a JSON string",
            Self::Number => "a JSON number",
            Self::Boolean => "a JSON boolean",
            Self::Null => "null",
        }
    }
}

/// What a JSON text is, from its first character: it has been read once already and is JSON.
fn kind(value: &RawValue) -> Kind {
    match value.get().as_bytes().first() {
        Some(b'{') => Kind::Object,
        Some(b'[') => Kind::List,
        Some(b'"') => Kind::Text,
        Some(b't' | b'f') => Kind::Boolean,
        Some(b'n') => Kind::Null,
        _ => Kind::Number,
    }
}
