//! What the demo tells while it runs: lines that stay, and one line of progress that is redrawn on a terminal.

use std::fmt::Display;
use std::io::{self, IsTerminal as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::output::{self, Failure};

/// Back to the start of the line, and clear it.
const CLEAR_LINE: &str = "\r\x1b[2K";
/// Let the terminal cut a line that is too long for it, instead of wrapping it.
const NO_WRAP: (&str, &str) = ("\x1b[?7l", "\x1b[?7h");

/// The narrator.
pub(super) struct Story {
    started: Instant,
    to: Audience,
    colours: bool,
    /// The last progress: on a terminal the line on the screen, to be drawn again under whatever is told.
    progress: Mutex<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Audience {
    /// A person at a terminal.
    Terminal,
    /// A file or a pipe.
    Plain,
    /// A script that wants one JSON document at the end, and nothing before it.
    Nobody,
}

/// What kind of thing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    /// It goes on.
    Plain,
    /// Something broke.
    Bad,
    /// Something was refused or put right.
    Good,
}

impl Story {
    pub(super) fn new(json: bool) -> Self {
        let terminal = io::stdout().is_terminal();
        let to = match (json, terminal) {
            (true, _) => Audience::Nobody,
            (false, true) => Audience::Terminal,
            (false, false) => Audience::Plain,
        };
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let colours = to == Audience::Terminal && wanted;
        Self { started: Instant::now(), to, colours, progress: Mutex::new(String::new()) }
    }

    /// For how long the demo has run.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// How often progress is worth showing: a terminal moves, a file grows.
    pub(super) fn pace(&self) -> Duration {
        Duration::from_millis(if self.to == Audience::Terminal { 150 } else { 1_000 })
    }

    /// Something happened: when, in one word, and in a sentence.
    pub(super) fn tell(&self, tone: Tone, word: &str, text: &str) -> Result<(), Failure> {
        let word = self.coloured(tone, &format!("{word:<12}"));
        let at = self.faint(&format!("{:>6} ", seconds(self.elapsed())));
        self.write(&format!("{at} {word}{text}\n"))
    }

    /// Text as it is.
    pub(super) fn write(&self, text: &str) -> Result<(), Failure> {
        match self.to {
            Audience::Nobody => Ok(()),
            Audience::Plain => output::print(text),
            Audience::Terminal => {
                let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
                output::print(&format!("{CLEAR_LINE}{text}{progress}"))
            }
        }
    }

    /// Where things stand.
    pub(super) fn progress(&self, text: &str) -> Result<(), Failure> {
        let line = format!("{:>6}  {text}", seconds(self.elapsed()));
        match self.to {
            Audience::Nobody => Ok(()),
            // A file need not hear twice that nothing has changed.
            Audience::Plain => {
                let mut last = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
                if *last == text {
                    return Ok(());
                }
                text.clone_into(&mut last);
                output::print(&format!("{line}\n"))
            }
            Audience::Terminal => {
                let (off, on) = NO_WRAP;
                let line = format!("{off}{}{on}", self.faint(&line));
                output::print(&format!("{CLEAR_LINE}{line}"))?;
                *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = line;
                Ok(())
            }
        }
    }

    /// No more progress: the line goes.
    pub(super) fn end_progress(&self) -> Result<(), Failure> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clear();
        if self.to == Audience::Terminal { output::print(CLEAR_LINE) } else { Ok(()) }
    }

    pub(super) fn heading(&self, text: &str) -> Result<(), Failure> {
        self.write(&if self.colours {
            format!("\n\x1b[1m{text}\x1b[0m\n")
        } else {
            format!("\n{text}\n")
        })
    }

    pub(super) fn coloured(&self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => 36,
            Tone::Bad => 31,
            Tone::Good => 32,
        };
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn faint(&self, text: &str) -> String {
        if self.colours { format!("\x1b[2m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// `12.3 s`.
pub(super) fn seconds(time: Duration) -> String {
    format!("{}.{} s", time.as_secs(), time.subsec_millis() / 100)
}

/// `2,500`.
pub(super) fn grouped(number: impl Display) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
        assert_eq!(seconds(Duration::from_millis(12_345)), "12.3 s");
    }
}
