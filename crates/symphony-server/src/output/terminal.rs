//! How wide the terminal is, and whether it shows colours.

use std::env;
use std::io::{self, IsTerminal as _};

use rustix::termios::tcgetwinsize;
use unicode_width::UnicodeWidthChar as _;

/// The width if neither COLUMNS nor a terminal says one.
const USUAL_COLUMNS: usize = 80;
/// Below this nothing can be laid out; a terminal wraps it itself.
const COLUMNS_MIN: usize = 40;

/// The width of tables: COLUMNS, else the terminal's, else 80.
pub fn width() -> usize {
    said_width().or_else(|| measured_width(&io::stdout())).unwrap_or(USUAL_COLUMNS)
}

/// The width of sentences on standard output. In a pipe a sentence stays on its line, for `grep`.
pub(super) fn prose_width() -> Option<usize> {
    said_width().or_else(|| measured_width(&io::stdout()))
}

/// The same on standard error.
pub(super) fn error_width() -> Option<usize> {
    said_width().or_else(|| measured_width(&io::stderr()))
}

fn said_width() -> Option<usize> {
    let columns: usize = env::var("COLUMNS").ok()?.trim().parse().ok()?;
    (columns > 0).then_some(columns.max(COLUMNS_MIN))
}

fn measured_width<T: io::IsTerminal + std::os::fd::AsFd>(stream: &T) -> Option<usize> {
    let size = stream.is_terminal().then(|| tcgetwinsize(stream).ok()).flatten()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col).max(COLUMNS_MIN))
}

/// Whether a person looks at standard output and wants colours: a terminal, no NO_COLOR, not TERM=dumb.
pub fn has_colours() -> bool {
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal()
        && !is_set("NO_COLOR")
        && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// What a colour means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Good,
    /// Somebody should look.
    Doubtful,
    /// Wrong.
    Bad,
    /// Neither, and worth finding.
    Notable,
    /// Beside the point.
    Faint,
    /// A heading.
    Heading,
}

/// Text in the colour of its tone, where colours are shown.
pub fn toned(tone: Tone, text: &str) -> String {
    if has_colours() { painted(tone, text) } else { text.to_owned() }
}

/// A state (`FAILED`, `PARKED, …`, `OK`) in its colour, where colours are shown.
pub fn state(text: &str) -> String {
    state_tone(text).map_or_else(|| text.to_owned(), |tone| toned(tone, text))
}

pub(super) fn painted(tone: Tone, text: &str) -> String {
    let code = match tone {
        Tone::Good => 32,
        Tone::Doubtful => 33,
        Tone::Bad => 31,
        Tone::Notable => 36,
        Tone::Faint => 2,
        Tone::Heading => 1,
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// By its first word.
pub(super) fn state_tone(text: &str) -> Option<Tone> {
    let word = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    Some(match word.to_ascii_uppercase().as_str() {
        "OK" | "DISPATCHED" | "SENT" | "RUNNING" => Tone::Good,
        "WARN" | "PARKED" | "PAUSED" | "RETRYABLE" | "UNKNOWN" | "EXPIRED" => Tone::Doubtful,
        "FAIL" | "FAILED" | "OPEN" => Tone::Bad,
        _ => return None,
    })
}

/// The columns a text takes on a terminal; our colours take none.
pub(super) fn columns_of(text: &str) -> usize {
    let (mut columns, mut in_escape) = (0, false);
    for c in text.chars() {
        match (in_escape, c) {
            (false, '\x1b') => in_escape = true,
            (false, c) => columns += c.width().unwrap_or(0),
            (true, c) => in_escape = !c.is_ascii_alphabetic(),
        }
    }
    columns
}
