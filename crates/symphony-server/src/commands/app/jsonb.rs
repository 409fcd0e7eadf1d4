//! JSON as the database keeps it: how long its text is, and the sum of its numbers.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use symphony::json::{self, Kind, Members};

/// Digits of a number that are written out; the database takes no larger one in an entry or a message.
const DIGITS_MAX: i64 = 1_000;

/// How many bytes the text of a value has in the database: with a space after each comma and colon, each name once, and
/// numbers written out.
pub(super) fn length(value: &RawValue) -> usize {
    match Kind::of(value) {
        Kind::Object => {
            let Some(members) = Members::of(value) else { return value.get().len() };
            // Of several with one name the last stays.
            let members: BTreeMap<&str, &RawValue> = members.iter().collect();
            let each = members.iter().map(|(name, value)| text_length(name) + 2 + length(value));
            brackets_and(each, members.len())
        }
        Kind::List => {
            let Ok(items) = json::list("items", value) else { return value.get().len() };
            brackets_and(items.iter().map(|item| length(item)), items.len())
        }
        Kind::Text => json::text(value).map_or(value.get().len(), |text| text_length(&text)),
        Kind::Number => {
            Decimal::read(value.get()).map_or(value.get().len(), |number| number.to_string().len())
        }
        _ => value.get().len(),
    }
}

fn brackets_and(lengths: impl Iterator<Item = usize>, count: usize) -> usize {
    2 + lengths.sum::<usize>() + count.saturating_sub(1) * 2
}

fn text_length(text: &str) -> usize {
    serde_json::to_string(text).map_or(text.len(), |quoted| quoted.len())
}

/// A whole number as JSON.
pub(super) fn number(number: i64) -> Result<Box<RawValue>, String> {
    RawValue::from_string(number.to_string()).map_err(|error| error.to_string())
}

/// The sum of a number and a whole one, digit by digit: a float would lose some.
pub(super) fn sum(before: &str, by: i64) -> Result<Box<RawValue>, String> {
    let before = Decimal::read(before).ok_or("kv.increment: the entry's number is too large")?;
    let by = Decimal::read(&by.to_string()).ok_or("kv.increment: by is no whole number")?;
    let sum = before.plus(&by).to_string();
    RawValue::from_string(sum).map_err(|error| error.to_string())
}

/// A number as `numeric` keeps it: its digits, the last ones of them after the point.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    /// The most significant first; none at the beginning is zero.
    digits: Vec<u8>,
    scale: usize,
}

impl Decimal {
    fn read(text: &str) -> Option<Self> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
            None => (text, 0),
        };
        let (is_negative, mantissa) =
            mantissa.strip_prefix('-').map_or((false, mantissa), |rest| (true, rest));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits: Vec<u8> =
            [whole, fraction].concat().bytes().map(|byte| byte.saturating_sub(b'0')).collect();
        let scale = i64::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
        if scale.abs() > DIGITS_MAX || digits.len() > usize::try_from(DIGITS_MAX).ok()? {
            return None;
        }
        if scale < 0 {
            digits.extend(std::iter::repeat_n(0, usize::try_from(-scale).ok()?));
        }
        let scale = usize::try_from(scale).unwrap_or(0);
        Some(Self::new(is_negative, digits, scale))
    }

    fn new(is_negative: bool, mut digits: Vec<u8>, scale: usize) -> Self {
        let zeros = digits.iter().take_while(|digit| **digit == 0).count();
        digits.drain(..zeros);
        // There is no zero below zero.
        Self { is_negative: is_negative && !digits.is_empty(), digits, scale }
    }

    /// With so many digits after the point.
    fn scaled(&self, scale: usize) -> Vec<u8> {
        let zeros = std::iter::repeat_n(0, scale.saturating_sub(self.scale));
        self.digits.iter().copied().chain(zeros).collect()
    }

    fn plus(&self, other: &Self) -> Self {
        let scale = self.scale.max(other.scale);
        let (a, b) = (self.scaled(scale), other.scaled(scale));
        if self.is_negative == other.is_negative {
            return Self::new(self.is_negative, added(&a, &b), scale);
        }
        // No zeros lead, so the longer one is larger, and of two as long the one with the larger first digits.
        let is_larger = (a.len(), &a) > (b.len(), &b);
        let (larger, smaller) = if is_larger { (&a, &b) } else { (&b, &a) };
        let is_negative = if is_larger { self.is_negative } else { other.is_negative };
        Self::new(is_negative, subtracted(larger, smaller), scale)
    }
}

fn added(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut carry = 0;
    let length = a.len().max(b.len()) + 1;
    let (a, b) = (a.iter().rev().copied(), b.iter().rev().copied());
    let pairs = a.chain(std::iter::repeat(0)).zip(b.chain(std::iter::repeat(0)));
    let mut sum: Vec<u8> = pairs
        .take(length)
        .map(|(a, b)| {
            let digit = a + b + carry;
            carry = digit / 10;
            digit % 10
        })
        .collect();
    sum.reverse();
    sum
}

fn subtracted(larger: &[u8], smaller: &[u8]) -> Vec<u8> {
    let mut borrowed = 0;
    let below = smaller.iter().rev().copied().chain(std::iter::repeat(0));
    let mut rest: Vec<u8> = larger
        .iter()
        .rev()
        .copied()
        .zip(below)
        .map(|(a, b)| {
            let digit = a + 10 - b - borrowed;
            borrowed = u8::from(digit < 10);
            digit % 10
        })
        .collect();
    rest.reverse();
    rest
}

impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let zeros = (self.scale + 1).saturating_sub(self.digits.len());
        let digits: String = std::iter::repeat_n(&0, zeros)
            .chain(&self.digits)
            .map(|digit| char::from(b'0' + digit))
            .collect();
        let (whole, fraction) = digits.split_at(digits.len().saturating_sub(self.scale));
        let sign = if self.is_negative { "-" } else { "" };
        let point = if fraction.is_empty() { "" } else { "." };
        write!(f, "{sign}{whole}{point}{fraction}")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn sums_keep_every_digit() {
        for (before, by, after) in [
            ("1.5", 1, "2.5"),
            ("0.10", -1, "-0.90"),
            ("-9.99", 10, "0.01"),
            ("1e3", -1, "999"),
            ("25e-1", 1, "3.5"),
            ("-1", 1, "0"),
            ("0.0", 0, "0.0"),
            ("9223372036854775807", 1, "9223372036854775808"),
            ("100000000000000000000", -1, "99999999999999999999"),
        ] {
            assert_eq!(sum(before, by).unwrap().get(), after, "{before} and {by}");
        }
    }

    #[test]
    fn a_text_is_as_long_as_the_databases() {
        for (given, kept) in [
            ("null", "null"),
            ("[]", "[]"),
            ("[1,2,3]", "[1, 2, 3]"),
            (r#"{"a":1,"b":{},"a":[]}"#, r#"{"a": [], "b": {}}"#),
            ("1e3", "1000"),
            ("1.50e-2", "0.0150"),
            (r#""\u00fc\/\u0001""#, "\"ü/\\u0001\""),
        ] {
            let value = RawValue::from_string(given.to_owned()).unwrap();
            assert_eq!(length(&value), kept.len(), "{given}");
        }
    }
}
