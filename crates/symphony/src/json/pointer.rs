//! One value out of a JSON answer. The answer stays text: nothing turns a number into a float, and a repeated
//! key, which two readers would read differently, is noticed instead of resolved.

use serde_json::value::RawValue;

use super::{Kind, Members, list, text};

/// A JSON pointer (RFC 6901), split once.
#[derive(Debug, Clone)]
pub struct Pointer {
    steps: Vec<String>,
}

/// What stands there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nothing, or null.
    Absent,
    /// A text, or an integer as text.
    Text(String),
    /// Something else, or two things.
    Confusing,
}

impl Pointer {
    /// `None` for an empty pointer, which means "nowhere" in settings.
    pub fn new(pointer: &str) -> Option<Self> {
        let steps = pointer.strip_prefix('/')?.split('/');
        Some(Self { steps: steps.map(|step| step.replace("~1", "/").replace("~0", "~")).collect() })
    }

    /// What stands there in a value.
    pub fn find(&self, document: &RawValue) -> Found {
        let mut here = document;
        for step in &self.steps {
            let inside = match Kind::of(here) {
                Kind::Object => member(here, step),
                Kind::List => element(here, step),
                _ => return Found::Absent,
            };
            match inside {
                Ok(value) => here = value,
                Err(found) => return found,
            }
        }
        scalar(here)
    }
}

fn member<'a>(object: &'a RawValue, name: &str) -> Result<&'a RawValue, Found> {
    let members = Members::of(object).ok_or(Found::Confusing)?;
    let mut named = members.all(name);
    match (named.next(), named.next()) {
        (Some(value), None) => Ok(value),
        (None, _) => Err(Found::Absent),
        (Some(_), Some(_)) => Err(Found::Confusing),
    }
}

fn element<'a>(value: &'a RawValue, step: &str) -> Result<&'a RawValue, Found> {
    let values = list("list", value).map_err(|_| Found::Confusing)?;
    let index: usize = step.parse().map_err(|_| Found::Absent)?;
    values.get(index).copied().ok_or(Found::Absent)
}

fn scalar(value: &RawValue) -> Found {
    let found = match Kind::of(value) {
        Kind::Null => return Found::Absent,
        Kind::Text => text(value).map(std::borrow::Cow::into_owned),
        Kind::Number => {
            let digits = value.get().trim_start_matches('-');
            digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| value.get().to_owned())
        }
        Kind::Object | Kind::List | Kind::Boolean => None,
    };
    found.map_or(Found::Confusing, Found::Text)
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
