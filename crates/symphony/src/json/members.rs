//! The members of an object, their values still as text.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Kind;
use crate::FieldError;

/// What an object has, in its order.
#[derive(Debug, Clone)]
pub struct Members<'a> {
    entries: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a> Members<'a> {
    /// Whatever is there, also a name that is there twice. `None` if it is no object, or a name is no text.
    pub fn of(value: &'a RawValue) -> Option<Self> {
        let mut entries = Vec::new();
        each_member(value.get(), |name, value| {
            entries.push((name, value));
            true
        })
        .then_some(Self { entries })
    }

    /// The members of the object in this field.
    ///
    /// # Errors
    /// It is no object, or a name is there twice: two readers would see two values.
    pub fn read(field: &str, value: &'a RawValue) -> Result<Self, FieldError> {
        let kind = Kind::of(value);
        if kind != Kind::Object {
            return Err(FieldError::new(field, format!("must be a JSON object, not {kind}")));
        }
        let members = Self::of(value)
            .ok_or_else(|| FieldError::new(field, "has a key that is not readable as text"))?;
        let mut names: Vec<&str> = members.names().collect();
        names.sort_unstable();
        if names.is_sorted_by(|before, after| before < after) {
            Ok(members)
        } else {
            Err(FieldError::new(field, "repeats a key: readers would disagree on its value"))
        }
    }

    /// The value of this name; the first, if there are several.
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.all(name).next()
    }

    /// All values of this name.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &'a RawValue> {
        self.iter().filter(move |(own, _)| *own == name).map(|(_, value)| value)
    }

    /// The member a path such as `amount.value` ends with, which must be `wanted`.
    ///
    /// # Errors
    /// It is missing.
    pub fn need(&self, path: &str, wanted: &str) -> Result<&'a RawValue, FieldError> {
        let name = path.rsplit('.').next().unwrap_or(path);
        self.get(name)
            .ok_or_else(|| FieldError::new(path, format!("is missing: it must be {wanted}")))
    }

    /// The same, of a text.
    ///
    /// # Errors
    /// It is missing, or no text.
    pub fn need_text(&self, path: &str, wanted: &str) -> Result<Cow<'a, str>, FieldError> {
        super::text_of(path, self.need(path, wanted)?, wanted)
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.entries.iter().map(|(name, value)| (&**name, *value))
    }

    /// Names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(name, _)| name)
    }
}

/// Tell of each member of an object until `each` answers that it has heard enough. Whether all were told of.
pub(crate) fn each_member<'a>(
    object: &'a str,
    each: impl FnMut(Cow<'a, str>, &'a RawValue) -> bool,
) -> bool {
    serde_json::Deserializer::from_str(object).deserialize_map(Each(each)).is_ok()
}

struct Each<F>(F);

impl<'de, F: FnMut(Cow<'de, str>, &'de RawValue) -> bool> Visitor<'de> for Each<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((Text(name), value)) = map.next_entry()? {
            if !self.0(name, value) {
                return Err(A::Error::custom("enough"));
            }
        }
        Ok(())
    }
}

/// Borrowed where there is no escape. (Serde's own `Cow` always copies.)
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowing;
        impl<'de> Visitor<'de> for Borrowing {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Borrowing)
    }
}
