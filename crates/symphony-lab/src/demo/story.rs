//! What the demo tells while it runs: lines that stay, and one line of progress that is redrawn on a terminal.

use std::fmt::Display;
use std::io::{self, IsTerminal as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::LabError;
use crate::host::{DemoHost, Tone};

/// Back to the start of the line, and clear it.
const CLEAR_LINE: &str = "\r\x1b[2K";
/// Between two figures of the progress.
const BETWEEN: &str = "  ";

/// The narrator.
pub(super) struct Story<'a> {
    pub(super) host: &'a dyn DemoHost,
    started: Instant,
    to: Audience,
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

impl<'a> Story<'a> {
    pub(super) fn new(host: &'a dyn DemoHost, json: bool) -> Self {
        let terminal = io::stdout().is_terminal();
        let to = match (json, terminal) {
            (true, _) => Audience::Nobody,
            (false, true) => Audience::Terminal,
            (false, false) => Audience::Plain,
        };
        Self { host, started: Instant::now(), to, progress: Mutex::new(String::new()) }
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
    pub(super) fn tell(&self, tone: Tone, word: &str, text: &str) -> Result<(), LabError> {
        let word = self.host.toned(tone, &format!("{word:<12}"));
        let at = self.host.toned(Tone::Faint, &format!("{:>6} ", seconds(self.elapsed())));
        self.write(&self.host.hanging(&format!("{at} {word}"), text))
    }

    /// Text as it is.
    pub(super) fn write(&self, text: &str) -> Result<(), LabError> {
        match self.to {
            Audience::Nobody => Ok(()),
            Audience::Plain => self.host.print(text),
            Audience::Terminal => {
                let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
                self.host.print_verbatim(CLEAR_LINE)?;
                self.host.print(text)?;
                self.host.print_verbatim(&progress)
            }
        }
    }

    /// Where things stand: as many figures as a line has room for, so the ones that matter most come first.
    pub(super) fn progress(&self, figures: &[String]) -> Result<(), LabError> {
        let mut line = format!("{:>6}", seconds(self.elapsed()));
        let mut text = String::new();
        for figure in figures {
            let longer = format!("{text}{BETWEEN}{figure}");
            if line.len() + longer.len() >= self.host.width() {
                break;
            }
            text = longer;
        }
        line.push_str(&text);
        match self.to {
            Audience::Nobody => Ok(()),
            // A file need not hear twice that nothing has changed.
            Audience::Plain => {
                let mut last = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
                if *last == text {
                    return Ok(());
                }
                *last = text;
                self.host.print_verbatim(&format!("{line}\n"))
            }
            Audience::Terminal => {
                let line = self.host.toned(Tone::Faint, &line);
                self.host.print_verbatim(&format!("{CLEAR_LINE}{line}"))?;
                *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = line;
                Ok(())
            }
        }
    }

    /// No more progress: the line goes.
    pub(super) fn end_progress(&self) -> Result<(), LabError> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clear();
        if self.to == Audience::Terminal { self.host.print_verbatim(CLEAR_LINE) } else { Ok(()) }
    }

    pub(super) fn heading(&self, text: &str) -> Result<(), LabError> {
        self.write(&format!("\n{}\n", self.host.toned(Tone::Heading, text)))
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
