//! Every text and number of a JSON document, and where it stands.
//!
//! Not recursive, so that no depth of nesting can exhaust the stack.

use std::borrow::Cow;
use std::collections::HashSet;

use super::{JsonError, JsonProblem, Rules};

/// Deeper paths end with `…`.
const SEGMENTS_MAX: usize = 32;
/// A longer name is not printed.
const NAME_BYTES_MAX: usize = 64;

/// The first thing in a JSON text that keeps a rule not. The text is known to be JSON.
pub(super) fn first_error(text: &str, rules: Rules) -> Option<JsonError> {
    let mut walk = Walk { text, at: 0, open: Vec::new(), rules };
    let problem = walk.first_problem()?;
    let before = text.get(..walk.at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    Some(JsonError {
        problem,
        path: walk.path(),
        line: before.matches('\n').count() + 1,
        column: before.len() - line_start,
    })
}

struct Walk<'a> {
    text: &'a str,
    at: usize,
    open: Vec<Container<'a>>,
    rules: Rules,
}

enum Container<'a> {
    Object { names: HashSet<Cow<'a, str>>, current: Option<Cow<'a, str>>, is_value_due: bool },
    List { index: usize },
}

impl<'a> Walk<'a> {
    fn first_problem(&mut self) -> Option<JsonProblem> {
        loop {
            let problem = match *self.text.as_bytes().get(self.at)? {
                b'"' => self.text(),
                b'-' | b'0'..=b'9' => self.number(),
                byte => self.structure(byte),
            };
            if problem.is_some() {
                return problem;
            }
        }
    }

    fn structure(&mut self, byte: u8) -> Option<JsonProblem> {
        self.at += 1;
        match byte {
            b'{' => self.open.push(Container::Object {
                names: HashSet::new(),
                current: None,
                is_value_due: false,
            }),
            b'[' => self.open.push(Container::List { index: 0 }),
            b'}' | b']' => {
                self.open.pop();
            }
            b',' => match self.open.last_mut() {
                Some(Container::Object { current, is_value_due, .. }) => {
                    *current = None;
                    *is_value_due = false;
                }
                Some(Container::List { index }) => *index += 1,
                None => {}
            },
            _ => {}
        }
        (self.open.len() > self.rules.depth_max).then_some(JsonProblem::TooDeep)
    }

    /// A name or a value.
    fn text(&mut self) -> Option<JsonProblem> {
        let literal = self.take(literal_bytes);
        let content = if literal.contains('\\') {
            serde_json::from_str::<String>(literal).ok().map(Cow::Owned)
        } else {
            Some(Cow::Borrowed(literal.trim_matches('"')))
        };
        let mut is_repeated = false;
        if let Some(Container::Object { names, current, is_value_due }) = self.open.last_mut()
            && !*is_value_due
        {
            *is_value_due = true;
            current.clone_from(&content);
            is_repeated = !self.rules.names_may_repeat
                && content.clone().is_some_and(|name| !names.insert(name));
        }
        match content {
            None => Some(JsonProblem::HalfSurrogate),
            Some(content) if content.contains('\0') => Some(JsonProblem::NulCharacter),
            Some(_) if is_repeated => Some(JsonProblem::RepeatedName),
            Some(_) => None,
        }
    }

    fn number(&mut self) -> Option<JsonProblem> {
        let number = self.take(number_bytes);
        digits(number)
            .is_none_or(|digits| digits > self.rules.digits_max)
            .then_some(JsonProblem::WideNumber)
    }

    /// What stands here, as long as `length` says.
    fn take(&mut self, length: fn(&str) -> usize) -> &'a str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let taken = rest.get(..length(rest)).unwrap_or(rest);
        self.at += taken.len();
        taken
    }

    /// Where this is, such as `payload.items[2].email`; nothing for the whole. A name that does not look like one is
    /// printed as `?`: it may be data.
    fn path(&self) -> String {
        let mut path = String::new();
        for (count, container) in self.open.iter().enumerate() {
            if count >= SEGMENTS_MAX {
                path.push('…');
                break;
            }
            match container {
                Container::Object { current: Some(name), .. } => {
                    let looks_like_a_name = (1..=NAME_BYTES_MAX).contains(&name.len())
                        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-$".contains(&b));
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(if looks_like_a_name { name } else { "?" });
                }
                Container::Object { current: None, .. } => {}
                Container::List { index } => path.push_str(&format!("[{index}]")),
            }
        }
        path
    }
}

/// The length of the string at the beginning, quotes included.
fn literal_bytes(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn number_bytes(text: &str) -> usize {
    text.bytes().take_while(|b| b.is_ascii_digit() || b"+-.eE".contains(b)).count()
}

/// How many digits a number has on the longer side of its point, written out. `None` if that cannot be counted.
fn digits(number: &str) -> Option<usize> {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent: isize = exponent.parse().ok()?;
    let whole = whole.trim_start_matches(['-', '0']).len().saturating_add_signed(exponent);
    let fraction = fraction.len().saturating_add_signed(exponent.checked_neg()?);
    Some(whole.max(fraction))
}
