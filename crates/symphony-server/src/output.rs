//! Tables for people, JSON for scripts, one clear line for errors.

use std::io::{self, Write as _};

use comfy_table::{Table, presets};
use serde::Serialize;
use symphony::db::DbError;
use symphony::db::migrate::MigrateError;

use crate::private_postgres::PrivatePostgresError;

/// Why a command failed: one line, and the code whose page explains more.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    message: String,
    code: Option<String>,
}

impl Failure {
    /// A failure without a code of its own.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: None }
    }

    /// The same, with the code whose page explains more.
    #[must_use]
    pub fn with_code(mut self, code: &str) -> Self {
        self.code = Some(code.to_owned());
        self
    }

    /// The same with other words for things: a person at a shell knows `--reason`, not `p_reason`.
    #[must_use]
    pub fn reworded(mut self, words: &[(&str, &str)]) -> Self {
        for (from, to) in words {
            self.message = self.message.replace(from, to);
        }
        self
    }

    /// Print it to standard error, as people or as scripts read it.
    pub fn report(&self, json: bool) {
        if json {
            let line = serde_json::json!({ "error": self.message, "code": self.code });
            eprintln!("{line}");
        } else if let Some(code) = &self.code {
            eprintln!("symphony: {} [{code}: docs/errors/{code}.md]", self.message);
        } else {
            eprintln!("symphony: {}", self.message);
        }
    }
}

impl From<DbError> for Failure {
    fn from(error: DbError) -> Self {
        Self { message: error.to_string(), code: Some(error.code().to_owned()) }
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        DbError::from(error).into()
    }
}

impl From<MigrateError> for Failure {
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::Db(error) => error.into(),
            other => {
                let failure = Self::new(other.to_string());
                match other.code() {
                    Some(code) => failure.with_code(code),
                    None => failure,
                }
            }
        }
    }
}

impl From<PrivatePostgresError> for Failure {
    fn from(error: PrivatePostgresError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// A table for people.
pub fn table<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    // The preset pads every line on the right, and the first column on the left.
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// How long something has lasted, or lasts.
pub fn length(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// What others wrote, for a terminal: a control character would act on it, so it is shown as a mark.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// One JSON document for scripts.
pub fn json<T: Serialize>(value: &T) -> Result<(), Failure> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Failure::new(error.to_string()))?;
    print(&format!("{text}\n"))
}

/// To standard output. A reader that went away (`symphony ... | head`) is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}
