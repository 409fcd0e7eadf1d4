//! JSON as text: checked, looked into and taken apart, without ever making a float of a number.
//!
//! - [`check`]: whether every reader reads a text alike and the database can hold it; if not, what is wrong and where.
//! - [`Kind`], [`Members`], [`list`], [`text`]: one level of a value at a time.
//! - [`Pointer`]: one value deep inside another.
//! - [`pretty`]: a value as people read it.

mod members;
mod pointer;
mod walk;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use serde::ser::{Serialize, SerializeMap as _, SerializeSeq as _, Serializer};
use serde_json::value::RawValue;

use crate::FieldError;

pub use self::members::Members;
pub(crate) use self::members::each_member;
pub use self::pointer::{Found, Pointer};

/// What a text must keep besides being JSON. The default is the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Whether an object may have a name twice. The database keeps the last, others the first.
    pub names_may_repeat: bool,
    /// How many objects and lists may stand inside each other.
    pub depth_max: usize,
    /// How many digits a number may have before its point, and after it, once it is written out.
    pub digits_max: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self { names_may_repeat: false, depth_max: 127, digits_max: 350 }
    }
}

/// Where a text is not what it must be. Contains nothing of it but names that look like names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {}", self.told())]
pub struct JsonError {
    /// What is wrong.
    pub problem: JsonProblem,
    /// Where, such as `items[2].email`; empty for the whole, and for what is no JSON.
    pub path: String,
    /// Counted from 1.
    pub line: usize,
    /// Where in the line what is wrong ends, in bytes.
    pub column: usize,
}

/// What can be wrong with a JSON text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonProblem {
    /// It is no JSON, in the parser's words.
    #[error("is not valid JSON: {0}")]
    Syntax(String),
    /// A text that is none.
    #[error("has half a surrogate pair, which is no text")]
    HalfSurrogate,
    /// `\u0000`.
    #[error("has a NUL character (\\u0000), which no database can keep")]
    NulCharacter,
    /// A name its object has had already.
    #[error("is there twice: readers would disagree on its value")]
    RepeatedName,
    /// More than [`Rules::depth_max`] objects and lists inside each other.
    #[error("is nested too deeply")]
    TooDeep,
    /// A number of more than [`Rules::digits_max`] digits.
    #[error("has a number with too many digits: send it as text")]
    WideNumber,
}

impl JsonError {
    /// As the error of a field: the one that is wrong, or `whole` if that is everything.
    pub fn into_field(self, whole: &str) -> FieldError {
        let field = if self.path.is_empty() { whole.to_owned() } else { self.path };
        FieldError::new(field, self.problem.to_string())
    }

    fn told(&self) -> String {
        match &self.problem {
            JsonProblem::Syntax(words) => words.clone(),
            problem if self.path.is_empty() => format!("it {problem}"),
            problem => format!("{} {problem}", self.path),
        }
    }
}

/// Is this one JSON value that keeps the rules? It is given back as text, without the space around it.
///
/// ```
/// use symphony::json::{self, JsonProblem, Rules};
///
/// assert_eq!(json::check(" [1.10] ", Rules::default())?.get(), "[1.10]");
/// let error = json::check(r#"{"a": {"b": 1, "b": 2}}"#, Rules::default()).unwrap_err();
/// assert_eq!((error.problem, error.path.as_str()), (JsonProblem::RepeatedName, "a.b"));
/// # Ok::<(), json::JsonError>(())
/// ```
///
/// # Errors
/// What is wrong first, and where.
pub fn check(text: &str, rules: Rules) -> Result<&RawValue, JsonError> {
    let value: &RawValue = serde_json::from_str(text).map_err(|error| {
        let told = error.to_string();
        let words = told.split(" at line ").next().unwrap_or_default().to_owned();
        let (line, column) = (error.line(), error.column());
        JsonError { problem: JsonProblem::Syntax(words), path: String::new(), line, column }
    })?;
    walk::first_error(text, rules).map_or(Ok(value), Err)
}

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `{…}`
    Object,
    /// `[…]`
    List,
    /// `"…"`
    Text,
    /// `1.10`
    Number,
    /// `true`, `false`
    Boolean,
    /// `null`
    Null,
}

impl Kind {
    /// By the first character: it has been read once already and is JSON.
    pub fn of(value: &RawValue) -> Self {
        match value.get().as_bytes().first() {
            Some(b'{') => Self::Object,
            Some(b'[') => Self::List,
            Some(b'"') => Self::Text,
            Some(b't' | b'f') => Self::Boolean,
            Some(b'n') => Self::Null,
            _ => Self::Number,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Object => "a JSON object",
            Self::List => "a JSON list",
            Self::Text => "a JSON string",
            Self::Number => "a JSON number",
            Self::Boolean => "a JSON boolean",
            Self::Null => "null",
        })
    }
}

/// A value that is a text, borrowed where there is no escape. `None` for any other value, and for half a surrogate pair.
pub fn text(value: &RawValue) -> Option<Cow<'_, str>> {
    serde_json::from_str(value.get()).ok().map(|members::Text(text)| text)
}

/// The text in a field that must be `wanted`.
///
/// # Errors
/// It is something else.
pub fn text_of<'a>(
    field: &str,
    value: &'a RawValue,
    wanted: &str,
) -> Result<Cow<'a, str>, FieldError> {
    text(value).ok_or_else(|| {
        FieldError::new(
            field,
            match Kind::of(value) {
                // A lone surrogate is the one thing that is JSON and still no text.
                Kind::Text => format!("is not readable as text: it must be {wanted}"),
                kind => format!("must be {wanted}, not {kind}"),
            },
        )
    })
}

/// The values of a list, still as text.
///
/// # Errors
/// It is something else.
pub fn list<'a>(field: &str, value: &'a RawValue) -> Result<Vec<&'a RawValue>, FieldError> {
    serde_json::from_str(value.get()).map_err(|_| {
        FieldError::new(field, format!("must be a JSON list, not {}", Kind::of(value)))
    })
}

/// A value over several lines, as people read it: members by their names. Numbers and texts stay as they are written.
pub fn pretty(value: &RawValue) -> String {
    serde_json::to_string_pretty(&Pretty { value, depth: 0 })
        .unwrap_or_else(|_| value.get().to_owned())
}

/// What is deeper is shown as it is written, so that no depth of nesting can exhaust the stack.
const PRETTY_DEPTH_MAX: usize = 64;

struct Pretty<'a> {
    value: &'a RawValue,
    depth: usize,
}

impl Serialize for Pretty<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let inside = |value| Pretty { value, depth: self.depth + 1 };
        if self.depth >= PRETTY_DEPTH_MAX {
            return self.value.serialize(serializer);
        }
        if let Some(members) = Members::of(self.value) {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            let mut map = serializer.serialize_map(Some(members.len()))?;
            for (name, value) in members {
                map.serialize_entry(name, &inside(value))?;
            }
            return map.end();
        }
        match list("value", self.value) {
            Ok(values) => {
                let mut seq = serializer.serialize_seq(Some(values.len()))?;
                for value in values {
                    seq.serialize_element(&inside(value))?;
                }
                seq.end()
            }
            Err(_scalar) => self.value.serialize(serializer),
        }
    }
}
