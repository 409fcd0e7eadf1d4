//! The real binary, as somebody runs it from a shell.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;
use sqlx::ConnectOptions as _;

use super::TestDb;

/// What it told, and whether it was content.
pub struct Told {
    pub ok: bool,
    pub output: String,
    pub error: String,
}

impl Told {
    /// The answer in the document; which database gave it is beside it.
    pub fn json(&self) -> Value {
        let mut document = self.document();
        document.get_mut("answer").map_or(Value::Null, Value::take)
    }

    pub fn document(&self) -> Value {
        serde_json::from_str(&self.output)
            .unwrap_or_else(|_| panic!("no JSON: {}{}", self.output, self.error))
    }
}

/// `symphony`, as dana at her own desk. Words are separated by spaces; `␣` stands for a space inside a word.
pub async fn dana(db: &TestDb, line: &str) -> Told {
    dana_with(db, line, &[], "").await
}

/// The same with further words as they are, and something on standard input.
pub async fn dana_with(db: &TestDb, line: &str, more: &[&str], input: &str) -> Told {
    let url = db.options.to_url_lossy();
    symphony(url.as_str(), &[("USER", "dana")], line, more, input).await
}

/// With just these variables, of those that say who acts.
pub async fn symphony(
    url: &str,
    variables: &[(&str, &str)],
    line: &str,
    more: &[&str],
    input: &str,
) -> Told {
    let mut command = Command::new(env!("CARGO_BIN_EXE_symphony"));
    command
        .env("DATABASE_URL", url)
        // As wide as anything here, so that lines stay lines; `outputs/` looks at narrow ones.
        .env("COLUMNS", "1000")
        .env_remove("SUDO_USER")
        .env_remove("USER")
        .envs(variables.iter().copied())
        .args(line.split_whitespace().map(|word| word.replace("␣", " ")))
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let input = input.to_owned();
    let output = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().unwrap();
        // It may refuse before it has read everything.
        drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
        child.wait_with_output().unwrap()
    })
    .await
    .unwrap();
    Told {
        ok: output.status.success(),
        output: String::from_utf8(output.stdout).unwrap(),
        error: without_database(&String::from_utf8(output.stderr).unwrap()),
    }
}

/// Which database it was is said beside everything, on a line of its own or in brackets; `sessions/` looks at that.
fn without_database(error: &str) -> String {
    let mut rest = String::new();
    for line in error.lines().filter(|line| !line.starts_with("database ")) {
        match line.split_once(" (database ") {
            Some((before, after)) => {
                let after = after.split_once(')').map_or("", |(_, after)| after);
                rest += &format!("{before}{after}\n");
            }
            None => rest += &format!("{line}\n"),
        }
    }
    rest
}
