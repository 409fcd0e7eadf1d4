//! `symphony run` as a process: it works, it serves its figures, it stops in order, and it refuses what contradicts.

use std::path::Path;
use std::process::Stdio;

use symphony_lab::sandbox::{Sandbox, Settings};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::support::folder::Folder;
use crate::support::processes::{Signal, signal};
use crate::support::{TestDb, payment, until};

fn symphony(db: &TestDb, config: &Path, arguments: &[&str]) -> Command {
    use sqlx::ConnectOptions as _;
    let mut command = Command::new(env!("CARGO_BIN_EXE_symphony"));
    command
        .args(arguments)
        .arg("--config")
        .arg(config)
        .env("DATABASE_URL", db.options.to_url_lossy().as_str())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Start `run` and wait until it works; answers the address of its API.
async fn start(db: &TestDb, config: &Path) -> (Child, String) {
    let mut child = symphony(db, config, &["run", "--api", "127.0.0.1:0"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    loop {
        let line = lines.next_line().await.unwrap().expect("it ended before it worked");
        if line.contains(" working ") {
            let address =
                line.split("address=").nth(1).unwrap().split(' ').next().unwrap().to_owned();
            // Its later lines are read, so that it never waits for us.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return (child, address);
        }
    }
}

async fn get(address: &str, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn terminate(child: &mut Child) -> std::process::ExitStatus {
    signal(child.id().unwrap(), Signal::TERM);
    child.wait().await.unwrap()
}

async fn sandbox(folder: &Folder) -> Sandbox {
    Sandbox::start(Settings::new(folder.0.join("record.jsonl"))).await.unwrap()
}

fn sandbox_rail(sandbox: &Sandbox) -> String {
    format!("[rails.sandbox]\nkind = \"sandbox\"\nurl = \"http://{}\"\n", sandbox.address())
}

#[tokio::test]
async fn a_worker_process_pays_serves_its_figures_and_stops_in_order() {
    let db = TestDb::new().await;
    let folder = Folder::new();
    let sandbox = sandbox(&folder).await;
    let config = folder.write("symphony.toml", &sandbox_rail(&sandbox));
    let (mut worker, address) = start(&db, &config).await;
    db.enqueue_stream("acme", "sandbox", 50).await;
    until("all is paid", async || {
        db.count("payment_outbox_attempts WHERE state = 'DISPATCHED'").await == 50
    })
    .await;
    assert_eq!(sandbox.summary().await.unwrap().executed, 50);

    assert!(get(&address, "/healthz").await.starts_with("HTTP/1.1 200"));
    assert!(get(&address, "/readyz").await.starts_with("HTTP/1.1 200"));
    let metrics = get(&address, "/metrics").await;
    for sample in [
        "attempts_total{lane=\"payments\",state=\"DISPATCHED\"} 50",
        "dispatch_latency_ms_count{lane=\"payments\"} 50",
        "claimed_items_total{lane=\"payments\"} 50",
        "outbox_pending_depth{lane=\"payments\"} 0",
        "dlq_depth{lane=\"payments\"} 0",
        "stuck_dispatching_count{lane=\"payments\"} 0",
        "late_outcome_conflicts_total{lane=\"payments\"} 0",
        "oldest_pending_age_seconds{lane=\"payments\"} 0",
    ] {
        assert!(metrics.contains(sample), "no {sample} in\n{metrics}");
    }
    for name in ["notify_wakeups_total", "claim_batches_total"] {
        assert!(metrics.contains(&format!("# TYPE {name} counter")), "{name}");
    }
    assert_eq!(terminate(&mut worker).await.code(), Some(0));
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn logs_have_allow_listed_fields_and_nothing_of_a_payload() {
    let db = TestDb::new().await;
    let folder = Folder::new();
    let sandbox = sandbox(&folder).await;
    let plan = br#"{"per_mille": {"reset_after": 500, "refuse:AC04": 300}}"#;
    sandbox.set_faults(symphony_lab::sandbox::Plan::from_json(plan).unwrap()).unwrap();
    let text = format!("{}[log]\nlevel = \"trace\"\nformat = \"json\"\n", sandbox_rail(&sandbox));
    let config = folder.write("symphony.toml", &text);
    let mut worker = symphony(&db, &config, &["run", "--api", "off"]).spawn().unwrap();
    let mut stderr = worker.stderr.take().unwrap();
    let logged = tokio::spawn(async move {
        let mut text = String::new();
        stderr.read_to_string(&mut text).await.unwrap();
        text
    });
    db.enqueue_stream("acme", "sandbox", 40).await;
    until("each has an outcome", async || {
        db.one::<i64>("SELECT count(DISTINCT outbox_id) FROM payment_outbox_attempts").await == 40
    })
    .await;
    assert_eq!(terminate(&mut worker).await.code(), Some(0));
    let logged = logged.await.unwrap();
    assert!(logged.contains("the outcome is unknown"), "{logged}");
    for line in logged.lines() {
        let line: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).unwrap();
        for field in line.keys().filter(|field| !["at", "level"].contains(&field.as_str())) {
            assert!(
                symphony_server::telemetry::ALLOWED_FIELDS.contains(&field.as_str()),
                "{field}"
            );
        }
    }
    for secret in ["DE89370400440532013000", "10.00", "postgres://"] {
        assert!(!logged.contains(secret), "{secret} was logged");
    }
}

async fn refusal(db: &TestDb, config: &Path, arguments: &[&str]) -> String {
    let output = symphony(db, config, arguments).output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    text.lines().last().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn settings_that_contradict_or_lack_something_are_refused_in_one_line_before_anything_is_claimed()
 {
    let db = TestDb::new().await;
    let folder = Folder::new();
    let rail = "[rails.sepa]\nkind = \"http\"\nurl = \"https://bank.example/pay\"\ndestination = \"iban\"\nkey_lifetime_seconds = 86400\n";
    for (text, arguments, expected) in [
        (String::new(), vec!["run"], "no rail is configured"),
        (
            format!("{rail}[worker]\nlease_seconds = 20\n"),
            vec!["run"],
            "worker.lease_seconds is 20",
        ),
        (format!("{rail}timeout_ms = 59000\n"), vec!["run"], "use at least"),
        (rail.to_owned(), vec!["run", "--rails", "fedwire"], "no rail fedwire is configured"),
        (rail.to_owned(), vec!["run", "--api", "0.0.0.0:9"], "beyond loopback"),
        (format!("{rail}urll = \"x\"\n"), vec!["run"], "urll"),
        (rail.replace("http\"\n", "smoke\"\n"), vec!["run"], "kind"),
        (rail.replace("https", "http"), vec!["run"], "url"),
        (rail.replace("iban", "mars"), vec!["run"], "destination"),
        (
            rail.replace("key_lifetime_seconds = 86400\n", ""),
            vec!["run", "--api", "off"],
            " rail sepa --marks-sending true --reason WHY --yes",
        ),
        (format!("{rail}[wrker]\n"), vec!["config", "--check"], "wrker"),
    ] {
        let config = folder.write("symphony.toml", &text);
        let line = refusal(&db, &config, &arguments).await;
        assert!(line.starts_with("symphony: ") && line.contains(expected), "{expected}: {line}");
    }
    let missing = folder.0.join("nowhere.toml");
    assert!(refusal(&db, &missing, &["run"]).await.contains("nowhere.toml"));
    assert_eq!(db.count("payment_outbox_workers").await, 0);
}

#[tokio::test]
async fn the_printed_defaults_are_a_valid_file_and_the_check_says_so() {
    let db = TestDb::new().await;
    let folder = Folder::new();
    let config = folder.write("symphony.toml", "");
    let printed = symphony(&db, &config, &["config"]).output().await.unwrap();
    let text = String::from_utf8(printed.stdout).unwrap()
        + "[rails.sepa]\nkind = \"http\"\nurl = \"https://bank.example/pay\"\ndestination = \"iban\"\nkey_lifetime_seconds = 86400\n";
    let config = folder.write("symphony.toml", &text);
    let checked = symphony(&db, &config, &["config", "--check"]).output().await.unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    assert!(String::from_utf8(checked.stdout).unwrap().contains("rails: sepa"));
}

#[tokio::test]
async fn doctor_hears_its_own_hint_and_judges_the_workers_settings() {
    let db = TestDb::new().await;
    let folder = Folder::new();
    let rail = "[rails.sepa]\nkind = \"http\"\nurl = \"https://bank.example/pay\"\ndestination = \"iban\"\nkey_lifetime_seconds = 86400\n";
    for (text, expected) in [
        (rail.to_owned(), "lease 60 s fits the timeouts of sepa"),
        (String::new(), "no rail is configured here"),
        (format!("{rail}timeout_ms = 59000\n"), "no item could ever be sent safely"),
        (rail.replace("key_lifetime_seconds = 86400\n", ""), "--marks-sending true"),
    ] {
        let config = folder.write("symphony.toml", &text);
        let output = symphony(&db, &config, &["doctor"]).output().await.unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(printed.contains(expected), "{expected}: {printed}");
        if !expected.contains("ever be sent") {
            assert!(printed.contains("a hint sent here is heard here"), "{printed}");
        }
    }
}

#[tokio::test]
async fn a_killed_worker_costs_its_lease_and_nothing_else() {
    let db = TestDb::new().await;
    let folder = Folder::new();
    let sandbox = sandbox(&folder).await;
    let text = format!(
        "{}timeout_ms = 500\ninquiry_timeout_ms = 500\n[worker]\nlease_seconds = 2\nlease_margin_ms = 100\n",
        sandbox_rail(&sandbox)
    );
    let config = folder.write("symphony.toml", &text);
    db.enqueue_stream("acme", "sandbox", 20).await;
    let killed = symphony(&db, &config, &["run", "--api", "off"])
        .env("SYMPHONY_KILL_AT", "after_send:5")
        .output()
        .await
        .unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&killed.status), Some(9));
    let (mut worker, _) = start(&db, &config).await;
    until("the other worker has paid everything", async || {
        db.count("payment_outbox_attempts WHERE state = 'DISPATCHED'").await == 20
    })
    .await;
    assert_eq!(terminate(&mut worker).await.code(), Some(0));
    let summary = sandbox.summary().await.unwrap();
    assert_eq!((summary.executed, summary.executed_twice), (20, 0));
    assert!(db.count("payment_outbox_attempts WHERE state = 'ZOMBIE_REQUEUE'").await > 0);
    // Lease to claimable again: the repair's trace is at most five seconds after the lease's end.
    let late: i64 = db
        .one("SELECT count(*) FROM payment_outbox_attempts WHERE state = 'ZOMBIE_REQUEUE' AND completed_at > claimed_at + INTERVAL '7 seconds'")
        .await;
    assert_eq!(late, 0);
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn a_second_worker_is_another_incarnation() {
    let db = TestDb::new().await;
    let folder = Folder::new();
    let sandbox = sandbox(&folder).await;
    let config = folder.write("symphony.toml", &sandbox_rail(&sandbox));
    for round in 0..2 {
        let (mut worker, _) = start(&db, &config).await;
        db.enqueue(&payment(&format!("round {round}"), "acme", "sandbox")).await;
        until("it is paid", async || db.count("payment_outbox_pending").await == 0).await;
        assert_eq!(terminate(&mut worker).await.code(), Some(0));
    }
    let workers: i64 =
        db.one("SELECT count(DISTINCT worker_id) FROM payment_outbox_attempts").await;
    assert_eq!(workers, 2);
}
