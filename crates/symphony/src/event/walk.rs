//! Every text of a JSON document, names and values, and where it stands.
//!
//! Not recursive, so that no depth of nesting can exhaust the stack.

use std::borrow::Cow;
use std::collections::HashSet;

/// Deeper paths end with `…`.
const SEGMENTS_MAX: usize = 32;
/// A longer name is not printed.
const NAME_BYTES_MAX: usize = 64;

/// Walks through text that is known to be JSON.
pub(super) struct Walk<'a> {
    text: &'a str,
    at: usize,
    open: Vec<Container<'a>>,
}

/// A name or a value.
pub(super) struct Text<'a> {
    /// Its characters; nothing if they are no text, because of half a surrogate pair.
    pub(super) content: Option<Cow<'a, str>>,
    /// A name that its object has had already.
    pub(super) is_repeated: bool,
}

enum Container<'a> {
    Object { names: HashSet<Cow<'a, str>>, current: Option<Cow<'a, str>>, is_value_due: bool },
    List { index: usize },
}

impl<'a> Walk<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, open: Vec::new() }
    }

    /// The next name or value that is a text.
    pub(super) fn next_text(&mut self) -> Option<Text<'a>> {
        loop {
            let byte = *self.text.as_bytes().get(self.at)?;
            if byte == b'"' {
                return self.read();
            }
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
        }
    }

    /// Where the last text stands, such as `payload.items[2].email`; `event` for the whole. A name that does not look
    /// like one is printed as `?`: it may be data.
    pub(super) fn path(&self) -> String {
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
        if path.is_empty() { "event".to_owned() } else { path }
    }

    fn read(&mut self) -> Option<Text<'a>> {
        let rest = self.text.get(self.at..)?;
        let literal = rest.get(..literal_bytes(rest)?)?;
        self.at += literal.len();
        let content = if literal.contains('\\') {
            serde_json::from_str::<String>(literal).ok().map(Cow::Owned)
        } else {
            literal.get(1..literal.len().checked_sub(1)?).map(Cow::Borrowed)
        };
        let mut is_repeated = false;
        if let Some(Container::Object { names, current, is_value_due }) = self.open.last_mut()
            && !*is_value_due
        {
            *is_value_due = true;
            current.clone_from(&content);
            is_repeated = content.clone().is_some_and(|name| !names.insert(name));
        }
        Some(Text { content, is_repeated })
    }
}

/// The length of the literal at the beginning, quotes included.
fn literal_bytes(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}
