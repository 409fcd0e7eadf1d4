//! What people see: every command with every role's documented grant in eighty columns, as files that a person has read
//! (`UPDATE_GOLDEN=1 scripts/test outputs` writes them anew); help, completions and manual pages; colours; stored text that would forge a line.

mod hostile;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use clap::Command as Definition;
use regex_lite::Regex;
use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;
use symphony_server::cli::Cli;

use crate::database::sessions::grants::{self, COLUMNS};
use crate::support::TestDb;

const COLUMNS_MAX: usize = 80;

/// `symphony` as a person with eighty columns calls it, with a folder of its own to stand in.
fn symphony(
    login: Option<&PgConnectOptions>,
    words: &[&str],
    variables: &[(&str, &str)],
) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_symphony"));
    command.args(words).env_clear().env("USER", "dana").env("COLUMNS", "80").stdin(Stdio::null());
    command.envs(login.map(|login| ("DATABASE_URL", login.to_url_lossy().to_string())));
    command.envs(variables.iter().copied()).current_dir(std::env::temp_dir()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn assert_fits(of: &str, text: &str) {
    for line in text.lines() {
        assert!(
            line.chars().count() <= COLUMNS_MAX,
            "{of}: {} columns:\n{line}",
            line.chars().count()
        );
    }
}

#[tokio::test]
async fn every_command_with_every_roles_grant_says_in_eighty_columns_what_a_person_has_read() {
    let version: i32 =
        TestDb::new().await.one("SELECT current_setting('server_version_num')::int").await;
    let (db, logins, staged) = grants::stage().await;
    for (role, login) in COLUMNS.iter().zip(&logins) {
        let (mut told, mut refused, mut refusal) = (String::new(), Vec::new(), String::new());
        for row in grants::rows() {
            let Some(line) = grants::command_line(&row, &staged) else { continue };
            let login = login.clone();
            let asked = line.clone();
            let output = tokio::task::spawn_blocking(move || {
                symphony(Some(&login), &asked.split_whitespace().collect::<Vec<_>>(), &[])
            })
            .await
            .unwrap();
            let (answer, beside) = (text(&output.stdout), text(&output.stderr));
            assert_fits(&format!("{line} as {role}"), &(answer.clone() + &beside));
            if beside.contains("[42501:") {
                refused.push(row);
                refusal = beside;
                continue;
            }
            let code = output.status.code().unwrap();
            let end = if code == 0 { String::new() } else { format!("(exit code {code})\n") };
            let _infallible = writeln!(told, "$ symphony {line}\n{beside}{answer}{end}");
        }
        if !refused.is_empty() {
            let mut lines = vec![format!("Refused to {role}:")];
            for row in refused {
                let line = lines.last_mut().unwrap();
                if line.len() + row.len() + 2 > COLUMNS_MAX {
                    lines.push("   ".to_owned());
                }
                lines.last_mut().unwrap().push_str(&format!(" {row},"));
            }
            let refused = lines.join("\n");
            let _infallible = writeln!(
                told,
                "{} and the last one with\n{refusal}",
                refused.trim_end_matches(',')
            );
        }
        let told = placeholders(&told, role, login, &db.options);
        // Other versions say other things about themselves.
        if version / 10_000 == 15 {
            compare(&format!("{role}.txt"), &told);
        }
    }
}

/// The same text for every run: what differs is replaced by something of its own length, where it has one.
fn placeholders(
    text: &str,
    role: &str,
    login: &PgConnectOptions,
    admin: &PgConnectOptions,
) -> String {
    let app = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut text = text
        .replace(login.get_username(), &format!("the_{role}"))
        .replace(admin.get_database().unwrap(), "payments_db")
        .replace(&format!(":{}", admin.get_port()), ":5432")
        .replace(app, "examples");
    for (pattern, placeholder) in [
        (
            r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            "00000000-0000-0000-0000-000000000000",
        ),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "2027-01-31T12:00:00.000Z"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "2027-01-31T12:00:00Z"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? UTC", "2027-01-31 12:00:00 UTC"),
        (r"[0-9a-f]{8}-[0-9a-f-]*…", "00000000-…"),
        (r"symphony_[0-9a-f]{64}", "symphony_TOKEN"),
        (r"/tmp/symphony-test-\d+/run", "/run/postgresql"),
        // A busy machine makes minutes of seconds.
        (r"\b\d+ (s|min|h)\b", "0 s"),
        (r"\b\d+ (ms|kB)\b", "0 $1"),
        (r"\d+ rows alive, \d+ dead", "0 rows alive, 0 dead"),
        (r"identifier\s+\d+", "identifier 7000000000000000000"),
        (r"PostgreSQL 15\.\d+( \([^)]*\))?", "PostgreSQL 15"),
        // Logins of other tests.
        (r"(?m)^(WARN|FAIL) (owner|tokens) .*\n( {18}.*\n)*", ""),
    ] {
        text = Regex::new(pattern).unwrap().replace_all(&text, placeholder).into_owned();
    }
    text
}

/// With the file of that name. Where a line is broken and a word is cut depends on the length of names and ages, so only
/// whole words are compared.
fn compare(name: &str, told: &str) {
    let folder =
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/commands/outputs/golden"));
    let path = folder.join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&path, told).unwrap();
        return;
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let words = |text: &str| {
        text.split("$ symphony")
            .map(|block| {
                let words = block.split_whitespace();
                let words = words.map(|word| if word.contains('…') { "…" } else { word });
                words.collect::<Vec<_>>().join(" ")
            })
            .collect::<Vec<_>>()
    };
    for (golden, told) in words(&golden).iter().zip(words(told)) {
        assert_eq!(
            told, *golden,
            "{name}: if it is meant, read it and run UPDATE_GOLDEN=1 scripts/test outputs"
        );
    }
    assert_eq!(words(&golden).len(), words(told).len(), "{name}");
}

/// Every command there is, the ones under others too.
fn commands() -> Vec<Vec<String>> {
    fn below(command: &Definition, path: &[String], found: &mut Vec<Vec<String>>) {
        found.push(path.to_vec());
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            let path: Vec<String> =
                path.iter().cloned().chain([inner.get_name().to_owned()]).collect();
            below(inner, &path, found);
        }
    }
    let mut found = Vec::new();
    below(&Cli::definition(), &[], &mut found);
    found
}

#[test]
fn every_help_fits_eighty_columns_and_shows_no_value_of_the_environment() {
    let commands = commands();
    assert!(commands.len() > 40, "{commands:?}");
    let secret = ("DATABASE_URL", "postgres://dana:hunter2@localhost/x");
    for path in commands {
        for option in ["--help", "-h"] {
            let words: Vec<&str> = path.iter().map(String::as_str).chain([option]).collect();
            let output = symphony(None, &words, &[secret, ("SYMPHONY_DATA", "/somewhere")]);
            let help = text(&output.stdout);
            assert!(
                output.status.success() && help.contains("Usage: symphony"),
                "{words:?}: {help}"
            );
            assert_fits(&words.join(" "), &help);
            assert!(!help.contains("hunter2") && !help.contains("/somewhere"), "{words:?}: {help}");
        }
    }
}

#[test]
fn a_usage_error_names_the_fix_and_with_json_it_is_one_document() {
    let output = symphony(None, &["show", "--database-url", "postgres://x/y"], &[]);
    let said = text(&output.stderr);
    assert_fits("show", &said);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("usage:    symphony show [OPTIONS] <ID>"), "{said}");
    for words in [
        vec!["--json", "show"],
        vec!["resolve", "x", "--as", "paid", "--json"],
        vec!["--json"],
        vec!["nothing", "--json"],
    ] {
        let output = symphony(None, &words, &[]);
        let document: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), &document["code"]),
            (Some(2), &"SYM08".into()),
            "{words:?}"
        );
        assert!(document["fix"].as_str().unwrap().ends_with("--help"), "{document}");
        assert!(!document["error"].as_str().unwrap().is_empty(), "{document}");
    }
}

#[test]
fn what_is_typed_wins_over_the_environment_and_two_databases_are_refused_before_anything_is_opened()
{
    let url = ("DATABASE_URL", "postgres://x@127.0.0.1:1/y");
    let private = ("SYMPHONY_PRIVATE", "true");
    let folder = std::env::temp_dir().join(format!("symphony-no-data-{}", std::process::id()));
    let nowhere =
        ["--postgres-binaries", "/nonexistent", "--data-folder", folder.to_str().unwrap()];
    let typed_url = ["--database-url", "postgres://x@127.0.0.1:1/z"];
    for (line, variables, code, expected) in [
        (vec!["--private", "status"], vec![url], 1, "/nonexistent"),
        (vec!["status", "--private"], vec![url, private], 1, "/nonexistent"),
        (vec!["status"], vec![private], 1, "/nonexistent"),
        (vec!["status"], vec![url], 1, "cannot reach PostgreSQL"),
        ([&["status"][..], &typed_url].concat(), vec![private], 1, "database z"),
        (vec!["status"], vec![url, private], 2, "DATABASE_URL and SYMPHONY_PRIVATE: unset one"),
        ([&["--private", "status"][..], &typed_url].concat(), vec![], 2, "name two databases"),
    ] {
        let output = symphony(None, &[&line[..], &nowhere].concat(), &variables);
        let said = text(&output.stderr);
        let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(code), "{line:?} {variables:?}: {said}");
        assert!(words.contains(expected), "{line:?} {variables:?}: {said}");
    }
    std::fs::remove_dir_all(folder).ok();
}

#[test]
fn json_is_a_document_or_refused_in_one_line() {
    let output = symphony(None, &["config", "--json"], &[]);
    let defaults: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(defaults["worker"]["lease_seconds"], 60);
    for words in [vec!["migrate", "--print"], vec!["completions", "bash"], vec!["man"]] {
        let output = symphony(None, &[&words[..], &["--json"]].concat(), &[]);
        let document: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{words:?}");
        assert!(document["error"].as_str().unwrap().ends_with("leave out --json"), "{document}");
    }
}

#[test]
fn completions_and_manual_pages_come_from_the_same_definition() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = text(&symphony(None, &["completions", shell], &[]).stdout);
        assert!(script.contains("redrive") && script.contains("give-up-after-seconds"), "{shell}");
    }
    let folder = std::env::temp_dir().join(format!("symphony-man-{}", std::process::id()));
    let output = symphony(None, &["man", "--dir", folder.to_str().unwrap()], &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert!(page("symphony.1").contains("symphony\\-redrive(1)"));
    for path in commands() {
        let name = [vec!["symphony".to_owned()], path].concat().join("-");
        assert!(page(&format!("{name}.1")).contains(".TH"), "{name}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// On a terminal, which Python opens for us; without Python, or with a name that leads nowhere, `None`.
fn on_a_terminal(
    login: &PgConnectOptions,
    words: &[&str],
    variables: &[(&str, &str)],
) -> Option<String> {
    let python = ["/usr/bin/python3", "/usr/local/bin/python3"]
        .into_iter()
        .find(|path| Path::new(path).exists())?;
    let output = Command::new(python)
        .args(["-c", "import pty, sys; pty.spawn(sys.argv[1:])", env!("CARGO_BIN_EXE_symphony")])
        .args(words)
        .env_clear()
        .env("TERM", "xterm")
        .env("DATABASE_URL", login.to_url_lossy().as_str())
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Some(text(&output.stdout))
}

#[tokio::test(flavor = "multi_thread")]
async fn colours_are_shown_to_a_person_at_a_terminal_and_to_nobody_else() {
    let db = TestDb::new().await;
    let piped = text(&symphony(Some(&db.options), &["status"], &[("TERM", "xterm")]).stdout);
    assert!(piped.contains("running") && !piped.contains('\u{1b}'), "{piped:?}");
    let Some(seen) = on_a_terminal(&db.options, &["status"], &[]) else { return };
    assert!(seen.contains("\u{1b}[32mrunning\u{1b}[0m"), "{seen:?}");
    for quiet in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let seen = on_a_terminal(&db.options, &["status"], &[quiet]).unwrap();
        assert!(seen.contains("running") && !seen.contains("\u{1b}[32m"), "{quiet:?}: {seen:?}");
    }
}
