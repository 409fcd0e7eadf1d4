//! Every command asks the one database that was named, and says which.

use std::process::{Output, Stdio};

use sqlx::ConnectOptions as _;
use tokio::process::Command;

use super::Folder;
use crate::support::{TestDb, payment};

/// In a folder of its own, without anything that would name a database.
async fn symphony(folder: &Folder, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_symphony"));
    command
        .args(line.split_whitespace().map(|word| word.replace("␣", " ")))
        .current_dir(&folder.0)
        .env("USER", "dana")
        .env("SYMPHONY_DATA", folder.0.join("private"))
        .env_remove("DATABASE_URL")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command.output().await.unwrap()
}

const EVENT: &str = r#"{"envelope":{"v":1,"eventId":"6f1f7e0c-4d8e-4b8f-9d59-0d3d2f0a1b11","occurredAt":"2026-01-01T00:00:00Z","tenantId":"acme","type":"events.a.b"},"key":{"a":"1"},"payload":{}}"#;

/// Every command that needs a database and must not make one.
fn commands() -> Vec<String> {
    [
        "status",
        "show i1",
        "dlq list",
        "rail",
        "pause payments --reason x --yes",
        "resume payments --reason x --yes",
        "pause events --reason x",
        "park i1 --reason x",
        "app list",
        "app executions",
        "doctor",
        "migrate --check",
        "enqueue payment --instruction i2 --participant p --key k --rail r --payload {\"amount\":{\"value\":\"1.00\",\"currency\":\"EUR\"}}",
    ]
    .into_iter()
    .map(str::to_owned)
    .chain([format!("enqueue event --event {EVENT}")])
    .collect()
}

#[tokio::test]
async fn without_a_database_every_command_is_refused_with_what_to_set_and_makes_none() {
    let folder = Folder::new();
    for command in commands().into_iter().chain(["run".to_owned()]) {
        // `run` has a rail to serve, so that nothing else is missing.
        folder.write(
            "symphony.toml",
            "[rails.sandbox]\nkind = \"sandbox\"\nurl = \"http://127.0.0.1:9\"\n",
        );
        let told = symphony(&folder, &command).await;
        let error = String::from_utf8(told.stderr).unwrap();
        assert!(!told.status.success(), "{command}");
        assert!(
            error.contains("DATABASE_URL")
                && error.contains("[database] url")
                && error.contains("--private"),
            "{command}: {error}"
        );
        assert_eq!(error.lines().count(), 1, "{command}: {error}");
        assert!(!folder.0.join("private").exists(), "{command} made a private PostgreSQL");
    }
}

#[tokio::test]
async fn the_url_of_the_file_is_obeyed_by_every_command_and_each_says_which_database_it_was() {
    let db = TestDb::new().await;
    db.enqueue(&payment("i1", "acme", "sepa")).await;
    let folder = Folder::new();
    let url = db.options.to_url_lossy();
    folder.write("symphony.toml", &format!("[database]\nurl = \"{url}\"\n"));
    let name = db.options.get_database().unwrap();
    let password = url.password().unwrap_or("no password");
    for command in commands() {
        let told = symphony(&folder, &command).await;
        let error = String::from_utf8(told.stderr).unwrap();
        // The tests' server runs without fsync, which doctor calls a failure.
        assert!(told.status.success() || command == "doctor", "{command}: {error}");
        assert!(error.contains(&format!("database {name} on ")), "{command}: {error}");
        let told = symphony(&folder, &format!("{command} --json")).await;
        let text = String::from_utf8(told.stdout).unwrap();
        let document: serde_json::Value =
            serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
        assert_eq!(document["database"]["name"], name, "{command}: {text}");
        assert!(!text.contains(password) && !error.contains(password), "{command}: {text}{error}");
        if !["doctor", "migrate --check"].contains(&command.as_str()) {
            assert!(error.contains("events running"), "{command}: {error}");
            assert_eq!(document["database"]["lanes"]["triggers"], "running", "{command}: {text}");
        }
    }
    assert!(!folder.0.join("private").exists());
    // What was said to be paused is paused where the payments are.
    let told = symphony(&folder, "pause payments --reason x --yes").await;
    assert!(String::from_utf8(told.stdout).unwrap().starts_with("paused the payment lane"));
    assert!(db.claim("w", 10).await.is_empty());
    let told = symphony(&folder, "status").await;
    assert!(String::from_utf8(told.stderr).unwrap().contains("payments paused"));
}

#[tokio::test]
async fn the_flag_wins_over_the_file() {
    let (file, flag) = (TestDb::new().await, TestDb::new().await);
    flag.enqueue(&payment("i1", "acme", "sepa")).await;
    let folder = Folder::new();
    folder.write(
        "symphony.toml",
        &format!("[database]\nurl = \"{}\"\n", file.options.to_url_lossy()),
    );
    let told =
        symphony(&folder, &format!("show i1 --database-url {}", flag.options.to_url_lossy())).await;
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
}
