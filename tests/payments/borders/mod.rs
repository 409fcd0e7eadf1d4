//! The judge at the borders, in its short form: a Python that shares nothing with us has a bank and PostgreSQL clusters
//! of its own, and drives the binary by its documentation. `scripts/borders` is the long form.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::support::processes::python_or_skip;

/// What the judge calls besides the server itself; the npm package of PostgreSQL has no clients.
const CLIENT_PROGRAMS: [&str; 4] = ["psql", "pg_basebackup", "pg_dump", "pg_dumpall"];

#[tokio::test]
async fn nothing_is_paid_twice_or_lost_at_any_border() {
    python_or_skip!();
    let Some(programs) = programs() else {
        println!("passed over: no client programs in SYMPHONY_POSTGRES_BIN");
        return;
    };
    python("judge_tests.py", &[]).await;
    let programs = programs.to_str().unwrap();
    python("", &["--short", "--binary", env!("CARGO_BIN_EXE_symphony"), "--postgres", programs])
        .await;
}

/// Runs one of the judge's files, or all of it.
async fn python(file: &str, arguments: &[&str]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/payments/borders");
    let output = Command::new("python3")
        .arg(folder.join(file))
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    assert!(output.status.success(), "{said}\n{errors}");
}

/// The folder of PostgreSQL's programs, if all of them are there.
fn programs() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("SYMPHONY_POSTGRES_BIN")?);
    CLIENT_PROGRAMS.iter().all(|name| folder.join(name).is_file()).then_some(folder)
}
