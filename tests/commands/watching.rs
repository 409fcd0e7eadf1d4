//! Commands that go on until somebody ends them: `status --watch`, `app logs --follow`, `top`.

use std::process::Stdio;

use serde_json::{Value, json};
use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::support::processes::{Signal, python_or_skip, signal};
use crate::support::{TestDb, until};

fn symphony(login: &PgConnectOptions, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_symphony"));
    command
        .args(words.split(' '))
        .env("DATABASE_URL", login.to_url_lossy().as_str())
        .env("COLUMNS", "80")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

fn started(login: &PgConnectOptions, words: &str) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = symphony(login, words).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

async fn interrupt(child: &mut Child) {
    signal(child.id().unwrap(), Signal::INT);
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn status_watched_by_a_pipe_is_blocks_without_escapes_and_ends_with_0_on_ctrl_c() {
    let db = TestDb::new().await;
    let login = db.login("symphony_readonly").await;
    let (mut child, mut lines) = started(&login, "status --watch 1");
    let mut blocks = 0;
    while blocks < 2 {
        let line = lines.next_line().await.unwrap().expect("it goes on");
        assert!(!line.contains('\x1b'), "{line:?}");
        blocks += usize::from(line.starts_with("oldest"));
    }
    interrupt(&mut child).await;
}

#[tokio::test]
async fn status_watched_by_a_script_is_a_line_of_json_each_time() {
    let db = TestDb::new().await;
    let login = db.login("symphony_readonly").await;
    let (mut child, mut lines) = started(&login, "status --watch --json");
    for _ in 0..2 {
        let line: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
        assert_eq!(line["answer"][0]["lane"], "payments");
        assert!(line["at"].is_string() && line["database"]["name"].is_string(), "{line}");
    }
    interrupt(&mut child).await;
}

const NOW: &str = "clock_timestamp()";

/// An execution like the one there is, with these logs, that ended then.
async fn end_one(db: &TestDb, message: &str, ended: &str) {
    let logs = json!([{ "level": "info", "at_ms": 1, "message": message }]);
    db.sql(&format!(
        "INSERT INTO trigger_outbox_executions \
         SELECT (jsonb_populate_record(e, jsonb_build_object('id', gen_random_uuid(), 'logs', '{logs}'::jsonb, \
                     'completed_at', {ended}))).* \
           FROM trigger_outbox_executions e ORDER BY e.created_at LIMIT 1"
    ))
    .await;
}

#[tokio::test]
async fn logs_are_followed_as_executions_end_each_once_whatever_their_order() {
    let db = TestDb::new().await;
    db.push("shop", &crate::triggers::manifest(&[("t", "kv", "*")])).await;
    db.kv_set("shop", "a", &json!(1)).await;
    let item = db.claim_item("w").await;
    db.done("w", &item, json!([])).await;
    let login = db.login("symphony_auditor").await;
    let (mut child, mut lines) = started(&login, "app logs --follow --app shop --json");
    // It follows from when it has begun to: something ends until it has seen one.
    let mut first = None;
    until("it follows", async || {
        end_one(&db, "hello", NOW).await;
        let soon = std::time::Duration::from_millis(300);
        first = tokio::time::timeout(soon, lines.next_line()).await.ok();
        first.is_some()
    })
    .await;
    let first: Value = serde_json::from_str(&first.unwrap().unwrap().unwrap()).unwrap();
    assert_eq!((&first["app"], &first["logs"][0]["message"]), (&json!("shop"), &json!("hello")));
    // One that took its time to commit, and then one that did not.
    let then = format!("'{}'::timestamptz", first["completed_at"].as_str().unwrap());
    end_one(&db, "late", &then).await;
    end_one(&db, "last", NOW).await;
    let mut messages = Vec::new();
    while messages.last() != Some(&json!("last")) {
        let line: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
        messages.push(line["logs"][0]["message"].clone());
    }
    let of = |message: &str| messages.iter().filter(|one| **one == json!(message)).count();
    assert_eq!((of("late"), of("last")), (1, 1), "{messages:?}");
    interrupt(&mut child).await;
    let nobody = symphony(&login, "app logs --follow --app nobody").output().await.unwrap();
    assert!(String::from_utf8(nobody.stderr).unwrap().contains("there is no app \"nobody\""));
}

#[tokio::test]
async fn top_refuses_a_pipe_in_one_line_that_names_what_to_type() {
    let db = TestDb::new().await;
    let told = symphony(&db.options, "top").output().await.unwrap();
    assert_eq!(told.status.code(), Some(1));
    let said = String::from_utf8(told.stderr).unwrap();
    assert!(said.contains("symphony status --watch") && said.lines().count() == 1, "{said}");
}

/// Types what it is told once the screen shows `lanes`, and prints everything the terminal got, then the exit code.
const AT_A_TERMINAL: &str = r"
import os, pty, sys, select, struct, fcntl, termios, time
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[2], sys.argv[2:])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 80, 0, 0))
got, typed, until = b'', False, time.time() + 30
while time.time() < until:
    if select.select([terminal], [], [], 0.1)[0]:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            break
        if not part:
            break
        got += part
    if not typed and b'lanes' in got:
        os.write(terminal, sys.argv[1].encode().decode('unicode_escape').encode())
        typed = True
sys.stdout.buffer.write(got)
print('exit', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";

#[tokio::test]
async fn top_fills_a_terminal_with_a_readers_grant_and_gives_it_back() {
    python_or_skip!();
    let db = TestDb::new().await;
    let login = db.login("symphony_readonly").await;
    for keys in ["q", "\\x03", "?\\x1b[B\\x1b[Cq"] {
        let output = Command::new("python3")
            .args(["-c", AT_A_TERMINAL, keys, env!("CARGO_BIN_EXE_symphony"), "top"])
            .env("DATABASE_URL", login.to_url_lossy().as_str())
            .env("TERM", "xterm")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .output()
            .await
            .unwrap();
        let seen = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(seen.contains("payments"), "{seen:?}");
        let (before, after) = seen.split_once("\x1b[?1049h").expect("a screen of its own");
        assert!(!before.contains("payments") && after.contains("\x1b[?1049l"), "{seen:?}");
        assert!(seen.trim_end().ends_with("exit 0"), "{keys}: {seen:?}");
        assert!(!seen.contains("\x1b[31m") && !seen.contains("38;5;"), "NO_COLOR: {seen:?}");
    }
}
