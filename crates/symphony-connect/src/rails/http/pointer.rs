//! One value out of a JSON answer. The answer stays text: nothing turns a number into a float, and a repeated
//! key, which two readers would read differently, is noticed instead of resolved.

use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A JSON pointer (RFC 6901), split once.
#[derive(Debug, Clone)]
pub(super) struct Pointer {
    steps: Vec<String>,
}

/// What stands there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing, or null.
    Absent,
    /// A text, or an integer as text.
    Text(String),
    /// Something else, or two things.
    Confusing,
}

impl Pointer {
    /// `None` for an empty pointer, which means "nowhere" in settings.
    pub(super) fn new(pointer: &str) -> Option<Self> {
        let steps = pointer.strip_prefix('/')?.split('/');
        Some(Self { steps: steps.map(|step| step.replace("~1", "/").replace("~0", "~")).collect() })
    }

    pub(super) fn find(&self, document: &RawValue) -> Found {
        let mut here = document;
        for step in &self.steps {
            let inside = match here.get().as_bytes().first() {
                Some(b'{') => member(here, step),
                Some(b'[') => element(here, step),
                _ => Ok(None),
            };
            match inside {
                Ok(Some(value)) => here = value,
                Ok(None) => return Found::Absent,
                Err(Repeated) => return Found::Confusing,
            }
        }
        scalar(here.get())
    }
}

/// The same key twice.
struct Repeated;

fn member<'a>(object: &'a RawValue, name: &str) -> Result<Option<&'a RawValue>, Repeated> {
    let mut reader = serde_json::Deserializer::from_str(object.get());
    // It was read as JSON before, so that the only error left is ours.
    Member(name).deserialize(&mut reader).map_err(|_| Repeated)
}

fn element<'a>(list: &'a RawValue, step: &str) -> Result<Option<&'a RawValue>, Repeated> {
    let elements: Vec<&RawValue> = serde_json::from_str(list.get()).map_err(|_| Repeated)?;
    Ok(step.parse::<usize>().ok().and_then(|index| elements.get(index).copied()))
}

fn scalar(text: &str) -> Found {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if text == "null" {
        Found::Absent
    } else if text.starts_with('"') {
        serde_json::from_str(text).map_or(Found::Confusing, Found::Text)
    } else if !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()) {
        Found::Text(text.to_owned())
    } else {
        Found::Confusing
    }
}

/// Looks for one member and sees whether it comes again.
struct Member<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object without repeated keys")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<String>()? {
            let value = map.next_value::<&'de RawValue>()?;
            if name == self.0 && found.replace(value).is_some() {
                return Err(serde::de::Error::custom("repeated"));
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::value::RawValue;

    use super::{Found, Pointer};

    #[test]
    fn a_pointer_finds_texts_and_integers_exactly_and_nothing_else() {
        let text = |text: &str| Found::Text(text.to_owned());
        for (document, pointer, found) in [
            (r#"{"code": "AC04"}"#, "/code", text("AC04")),
            (r#"{"code": 51}"#, "/code", text("51")),
            (r#"{"code": -1}"#, "/code", text("-1")),
            (
                r#"{"code": 123456789012345678901234567890}"#,
                "/code",
                text("123456789012345678901234567890"),
            ),
            (r#"{"code": "\u0041C04"}"#, "/code", text("AC04")),
            (r#"{"\u0063ode": "AC04"}"#, "/code", text("AC04")),
            (r#"{"code": null}"#, "/code", Found::Absent),
            (r#"{"CODE": "AC04"}"#, "/code", Found::Absent),
            (r#"{"code": 5.1}"#, "/code", Found::Confusing),
            (r#"{"code": 1e2}"#, "/code", Found::Confusing),
            (r#"{"code": true}"#, "/code", Found::Confusing),
            (r#"{"code": {}}"#, "/code", Found::Confusing),
            (r#"{"code": ["AC04"]}"#, "/code", Found::Confusing),
            (r#"{"code": "ACSC", "code": "AC04"}"#, "/code", Found::Confusing),
            (r#"{"code": "ACSC", "c\u006fde": "AC04"}"#, "/code", Found::Confusing),
            (r#"{"a": {"b": [{"c": "x"}, {"c": "y"}]}}"#, "/a/b/1/c", text("y")),
            (r#"{"a": {"b": []}}"#, "/a/b/0", Found::Absent),
            (r#"{"a/b": {"~c": "x"}}"#, "/a~1b/~0c", text("x")),
            (r#"{"": "x"}"#, "/", text("x")),
            (r#"["x"]"#, "/0", text("x")),
            (r#""code""#, "/code", Found::Absent),
        ] {
            let document = serde_json::from_str::<&RawValue>(document).unwrap();
            assert_eq!(Pointer::new(pointer).unwrap().find(document), found, "{document}");
        }
        assert!(Pointer::new("").is_none());
    }
}
