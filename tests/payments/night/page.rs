//! The night as docs/OPERATING.md tells it, read from the page.

use std::path::PathBuf;

/// Who types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Person {
    /// On call: an operator.
    Dana,
    /// The second person: an approver.
    Kim,
}

/// One step of it.
#[derive(Debug)]
pub(super) enum Step {
    /// Something outside.
    Happens(String),
    /// A command of somebody, and what the page says that it prints.
    Types { person: Person, words: Vec<String>, prints: Vec<String> },
}

/// The steps of the blocks marked `console` in the section.
pub(super) fn steps() -> Vec<Step> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/OPERATING.md");
    let page = std::fs::read_to_string(path).unwrap();
    let section = page.split("\n## A night\n").nth(1).expect("docs/OPERATING.md tells a night");
    let section = section.split("\n## ").next().unwrap();
    let mut steps = Vec::new();
    for block in section.split("```console\n").skip(1) {
        for line in block.split("```").next().unwrap().lines() {
            if let Some(what) = line.strip_prefix("# ") {
                steps.push(Step::Happens(what.to_owned()));
            } else if let Some(command) = line.strip_prefix("$ ") {
                steps.push(types(Person::Dana, command));
            } else if let Some(command) = line.strip_prefix("kim$ ") {
                steps.push(types(Person::Kim, command));
            } else if let Some(Step::Types { prints, .. }) = steps.last_mut() {
                prints.push(line.to_owned());
            }
        }
    }
    steps
}

fn types(person: Person, command: &str) -> Step {
    Step::Types { person, words: words(command), prints: Vec::new() }
}

/// As a shell splits it: by spaces, but for what stands in single quotes.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for character in command.chars() {
        match character {
            '\'' => quoted = !quoted,
            ' ' if !quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            _ => word.push(character),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// What the page shows is what was printed, word by word, whatever the line breaks; with `…` something is left out.
pub(super) fn assert_told(words: &[String], told: &[String], printed: &str) {
    let printed_words = shape(printed);
    let mut rest = printed_words.as_slice();
    let pieces: Vec<Vec<String>> =
        told.split(|line| line.trim() == "…").map(|lines| shape(&lines.join("\n"))).collect();
    for (index, piece) in pieces.iter().enumerate() {
        let at = match (piece.is_empty(), index) {
            (true, _) => Some(0),
            (false, 0) => rest.starts_with(piece).then_some(0),
            (false, _) => rest.windows(piece.len()).position(|window| window == piece.as_slice()),
        };
        let Some(at) = at else {
            panic!(
                "{} should print\n  {piece:?}\nbut prints\n{printed}\nthat is\n  {rest:?}",
                words.join(" ")
            );
        };
        rest = &rest[at + piece.len()..];
    }
    let open_end = told.last().is_some_and(|line| line.trim() == "…");
    assert!(open_end || rest.is_empty(), "{} prints more: {rest:?}", words.join(" "));
}

/// The words of a text, without what differs from night to night: ids, times, lengths of time, workers, logins, the database, and where a
/// column was cut.
fn shape(text: &str) -> Vec<String> {
    let all: Vec<&str> = text.split_whitespace().collect();
    let mut words = Vec::new();
    let mut in_database = false;
    for (index, word) in all.iter().enumerate() {
        in_database |= *word == "(database";
        if in_database {
            in_database = !word.ends_with(')');
            continue;
        }
        let next = all.get(index + 1).copied().unwrap_or_default();
        let after_login = index.checked_sub(1).is_some_and(|before| all[before] == "login");
        words.push(if after_login { "LOGIN".to_owned() } else { shape_of(word, next) });
    }
    words
}

fn shape_of(word: &str, next: &str) -> String {
    let inner = word.trim_matches(|c: char| !c.is_alphanumeric());
    let is_time = inner.len() >= 20 && inner.contains('T') && inner.ends_with('Z');
    let is_id = inner.len() == 36 && inner.bytes().filter(|byte| *byte == b'-').count() == 4;
    let is_number = !inner.is_empty() && inner.bytes().all(|byte| byte.is_ascii_digit());
    let is_length = is_number
        && (next == "in" || ["s", "ms", "min"].contains(&next.trim_matches([',', ':', ')'])));
    if word.ends_with('…') {
        "CUT".to_owned()
    } else if is_time {
        word.replace(inner, "TIME")
    } else if is_id {
        word.replace(inner, "ID")
    } else if inner.matches(':').count() == 2 {
        word.replace(inner, "WORKER")
    } else if is_length {
        word.replace(inner, "N")
    } else {
        word.to_owned()
    }
}
