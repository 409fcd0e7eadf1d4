//! Tables for people, JSON for scripts, one clear line for errors.
//!
//! Stored text is untrusted. Cells of a [`table`], a [`Failure`] and every line of the log are escaped where they are
//! printed; stored text in any other sentence is escaped with [`plain`] by the caller.
//!
//! - [`table`] with columns `"name"`, [`whole`], [`short`], [`number`], [`states`], [`command`]: fits the terminal.
//! - [`hanging`]: a sentence after its lead.
//! - [`state`], [`toned`]: colours, where a person looks.
//! - [`print`] and [`json`]: the answer; [`note`]: beside it.

mod table;
mod terminal;
mod text;

use std::io::{self, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use serde_json::Value;
use symphony::db::DbError;
use symphony::db::Schema;
use symphony::db::migrate::MigrateError;

pub use table::{
    Column, command, copyable, hanging, id, number, short, states, table, table_of, whole,
};
pub use terminal::{Tone, has_colours, state, toned, width};
pub use text::{is_hidden, plain, plain_json};

use crate::commands::suggested_command::completed;
use crate::config::{ConfigDefect, Defects};
use symphony_lab::LabError;
use symphony_lab::private_postgres::PrivatePostgresError;

/// The page of an error code. A code of one lane alone is filed under that lane.
pub fn page_of(code: &str) -> String {
    let folder = match code {
        "P7009" => "payments",
        "P7011" | "P7012" => "triggers",
        _ => "shared",
    };
    format!("docs/errors/{folder}/{code}.md")
}

/// Why a command failed: one line, and the code whose page explains more.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    message: String,
    code: Option<String>,
    /// What is wrong with the configuration, if that is why: one line of the message each.
    defects: Vec<ConfigDefect>,
    fix: Option<String>,
}

impl Failure {
    /// A failure without a code of its own.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: None, defects: Vec::new(), fix: None }
    }

    /// The same, with the code whose page explains more.
    #[must_use]
    pub fn with_code(mut self, code: &str) -> Self {
        self.code = Some(code.to_owned());
        self
    }

    /// The same, with the command that says how it is done.
    #[must_use]
    pub fn with_fix(mut self, fix: &str) -> Self {
        self.fix = Some(fix.to_owned());
        self
    }

    /// The code whose page explains more.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
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
        let (message, asked) = (&self.message, ASKED.get());
        if json {
            let mut line = serde_json::json!({ "error": message, "code": self.code });
            if let Some(line) = line.as_object_mut() {
                if !self.defects.is_empty() {
                    line.insert("defects".to_owned(), serde_json::json!(self.defects));
                }
                line.extend(self.fix.clone().map(|fix| ("fix".to_owned(), fix.into())));
                line.extend(asked.map(|asked| ("database".to_owned(), asked.document())));
            }
            eprintln!("{}", plain_json(&line.to_string()));
            return;
        }
        // The database is named once, in the error unless the answer has named it.
        let asked = match asked {
            Some(asked) if TO_SAY.swap(false, Ordering::Relaxed) => format!(" ({})", asked.text()),
            _ => String::new(),
        };
        let fix = self.fix.as_ref().map(|fix| format!("; see {fix}")).unwrap_or_default();
        let page = self.code.as_ref().map(|code| format!(" [{code}: {}]", page_of(code)));
        // One line for each defect of a configuration. In any other message a line break is stored text, and escaped.
        let mut lines: Vec<String> = match self.defects.as_slice() {
            [] => vec![message.clone()],
            defects => defects.iter().map(ToString::to_string).collect(),
        };
        let last = lines.pop().unwrap_or_default();
        for line in lines {
            eprint!("{}", table::hanging_error("symphony: ", &plain(&line)));
        }
        let line = format!("{}{fix}{asked}{}", plain(&last), page.unwrap_or_default());
        eprint!("{}", table::hanging_error("symphony: ", &line));
    }
}

impl From<Defects> for Failure {
    fn from(defects: Defects) -> Self {
        let defects = defects.into_found();
        let lines: Vec<String> = defects.iter().map(ToString::to_string).collect();
        Self { defects, ..Self::new(lines.join("\n")) }
    }
}

impl From<DbError> for Failure {
    fn from(error: DbError) -> Self {
        Self::new(completed(&error.to_string())).with_code(error.code())
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
                let failure = Self::new(completed(&other.to_string()));
                match other.code() {
                    Some(code) => failure.with_code(code),
                    None => failure,
                }
            }
        }
    }
}

/// What the lab borrows may fail too.
impl From<Failure> for LabError {
    fn from(failure: Failure) -> Self {
        let error = Self::new(failure.to_string());
        match failure.code() {
            Some(code) => error.with_code(code),
            None => error,
        }
    }
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        let failure = Self::new(error.to_string());
        match error.code() {
            Some(code) => failure.with_code(code),
            None => failure,
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

/// How long something has lasted, or lasts.
pub fn length(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// The database this process asks: one for its whole life.
#[derive(Debug, Clone)]
pub struct AskedDatabase {
    /// Its host, or the folder of its socket.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The database's name there.
    pub name: String,
    /// The schema of the installation.
    pub schema: Schema,
    /// The login.
    pub login: String,
    /// It is the private one.
    pub private: bool,
}

static ASKED: OnceLock<AskedDatabase> = OnceLock::new();
/// The database has not been printed yet.
static TO_SAY: AtomicBool = AtomicBool::new(false);
static LANES: OnceLock<Vec<(String, bool)>> = OnceLock::new();

impl AskedDatabase {
    /// For people. Never the password.
    pub fn text(&self) -> String {
        let private = if self.private { "the private " } else { "" };
        let (name, login) = (plain(&self.name), plain(&self.login));
        let schema = match &self.schema {
            schema if *schema == Schema::default() => String::new(),
            schema => format!("schema {schema} of "),
        };
        format!(
            "{schema}{private}database {name} on {}:{} as {login}",
            plain(&self.host),
            self.port
        )
    }

    /// For scripts.
    pub fn document(&self) -> Value {
        let states = LANES.get().into_iter().flatten();
        let lanes: serde_json::Map<String, Value> =
            states.map(|(lane, paused)| (lane.clone(), Value::from(state_of(*paused)))).collect();
        serde_json::json!({
            "host": self.host, "port": self.port, "name": self.name, "schema": self.schema.name(), "login": self.login, "private": self.private,
            "lanes": lanes,
        })
    }
}

fn state_of(paused: bool) -> &'static str {
    if paused { "paused" } else { "running" }
}

/// Which database it is, once that is known.
pub fn set_asked(asked: AskedDatabase) {
    drop(ASKED.set(asked));
    TO_SAY.store(true, Ordering::Relaxed);
}

/// Which of its lanes are paused, as it was asked.
pub fn set_lanes(lanes: &[(String, bool)]) {
    drop(LANES.set(lanes.to_vec()));
}

/// The database asked, if one was.
pub fn asked() -> Option<&'static AskedDatabase> {
    ASKED.get()
}

/// Print once which database answers, on standard error, so that a pipe gets the answer alone.
fn say_asked() {
    let Some(asked) = ASKED.get().filter(|_| TO_SAY.swap(false, Ordering::Relaxed)) else { return };
    match LANES.get() {
        None => eprint!("{}", table::hanging_error("", &asked.text())),
        Some(lanes) => {
            let states = lanes.iter().map(|(lane, paused)| format!("{lane} {}", state_of(*paused)));
            let states = states.collect::<Vec<_>>().join(", ");
            eprint!("{}", table::hanging_error("", &format!("{}: {states}", asked.text())));
        }
    }
}

/// One JSON document for scripts; with the database, where one was asked: `{"database": …, "answer": …}`.
pub fn json<T: Serialize>(value: &T) -> Result<(), Failure> {
    let text = match ASKED.get() {
        None => serde_json::to_string_pretty(value),
        Some(asked) => {
            let answer = Answer { database: asked.document(), answer: value };
            serde_json::to_string_pretty(&answer)
        }
    };
    let text = text.map_err(|error| Failure::new(error.to_string()))?;
    write(&(plain_json(&text) + "\n"))
}

/// One JSON document on one line: for a command that goes on, and whose first line a script waits for.
pub fn json_line(document: &Value) -> Result<(), Failure> {
    write(&(plain_json(&document.to_string()) + "\n"))
}

#[derive(Serialize)]
struct Answer<'a, T> {
    database: Value,
    answer: &'a T,
}

/// An answer for people, on standard output; lines that are too long for the terminal are wrapped.
pub fn print(text: &str) -> Result<(), Failure> {
    say_asked();
    write(&table::fitted(text))
}

/// The same with every line as it is: what goes into a file, or moves the terminal's cursor.
pub fn print_verbatim(text: &str) -> Result<(), Failure> {
    say_asked();
    write(text)
}

/// A note beside the answer, on standard error.
pub fn note(text: &str) {
    note_plainly("symphony: ", text);
}

/// The same after another lead.
pub fn note_plainly(lead: &str, text: &str) {
    eprint!("{}", table::hanging_error(lead, &plain(text)));
}

/// A reader that went away (`symphony ... | head`) is no failure.
fn write(text: &str) -> Result<(), Failure> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}
