//! The command line as a person uses it: the real binary, its output, its exit code.

use std::process::{Command, Output, Stdio};

use sqlx::ConnectOptions as _;

use crate::support::{self, TestDb, bare_database, payment};

fn symphony(url: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_symphony"))
        .env("DATABASE_URL", url)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

async fn run(db: &TestDb, arguments: &[&str]) -> (bool, String, String) {
    let url = url_of(&db.options);
    let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
    let output = tokio::task::spawn_blocking(move || {
        symphony(&url, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
    })
    .await
    .unwrap();
    (
        output.status.success(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

fn url_of(options: &sqlx::postgres::PgConnectOptions) -> String {
    options.to_url_lossy().to_string()
}

const PAYLOAD: &str = r#"{"amount": {"value": "10.00", "currency": "EUR"}}"#;

fn enqueue<'a>(instruction: &'a str, participant: &'a str, payload: &'a str) -> [&'a str; 12] {
    [
        "enqueue",
        "payment",
        "--instruction",
        instruction,
        "--participant",
        participant,
        "--key",
        "1",
        "--rail",
        "sepa",
        "--payload",
        payload,
    ]
}

#[tokio::test]
async fn a_payment_is_enqueued_shown_and_counted_from_a_shell() {
    let db = TestDb::new().await;
    let words = enqueue("inv-1", "acme", PAYLOAD);
    let (ok, told, _) = run(&db, &words).await;
    assert!(ok && told.contains("number 1 of acme, PENDING"), "{told}");
    let (ok, told, _) = run(&db, &words).await;
    assert!(ok && told.contains("known already"), "{told}");
    let (ok, told, _) = run(&db, &["status"]).await;
    assert!(ok && told.contains("\npending              1"), "{told}");
    let (ok, told, _) = run(&db, &["--json", "status"]).await;
    let json: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((ok, json["answer"][0]["pending"].as_i64()), (true, Some(1)));
    let (ok, told, _) = run(&db, &["show", "inv-1"]).await;
    assert!(ok && told.contains("ENQUEUED") && told.contains("now: DUE"), "{told}");
    let (ok, told, _) = run(&db, &["show", "--json", "inv-1"]).await;
    let json: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (ok, json["answer"][0]["instruction"]["payload"]["amount"]["value"].as_str()),
        (true, Some("10.00"))
    );
}

#[tokio::test]
async fn a_file_of_payments_is_enqueued_line_by_line_and_bad_lines_are_named() {
    let db = TestDb::new().await;
    let line = |id: &str, payload: &str| {
        format!(
            r#"{{"instruction_id": "{id}", "participant_id": "p", "idempotency_key": "k", "rail_type": "r", "payload": {payload}}}"#
        )
    };
    let text = [
        line("a", "{}"),
        String::new(),
        line("b", "{}"),
        line("", "{}"),
        line("c", "[]"),
        "nonsense".into(),
        line("a", "{}"),
    ]
    .join("\n");
    let path = std::env::temp_dir().join(support::unique("payments") + ".jsonl");
    std::fs::write(&path, text).unwrap();
    let (ok, told, errors) =
        run(&db, &["enqueue", "payment", "--lines", path.to_str().unwrap()]).await;
    assert!(!ok);
    assert_eq!(told, "2 new, 1 known already, 3 refused\n");
    for expected in
        ["line 4: p_instruction_id is blank", "line 5: payload must be a JSON object", "line 6: "]
    {
        assert!(errors.contains(expected), "{expected}: {errors}");
    }
    std::fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn doctor_is_content_with_what_migrate_made_and_names_what_was_changed() {
    let db = TestDb::new().await;
    // fsync is off on the tests' own server, and doctor says so; nothing else is wrong.
    let failing = |told: &str| {
        told.lines().filter(|line| line.starts_with("FAIL")).map(str::to_owned).collect::<Vec<_>>()
    };
    let (_, told, _) = run(&db, &["doctor"]).await;
    assert!(failing(&told).iter().all(|line| line.contains("fsync = off")), "{told}");
    db.sql("GRANT INSERT ON payment_outbox_attempts TO symphony_executor; ALTER TABLE payment_outbox_events DISABLE TRIGGER ALL").await;
    let (ok, told, _) = run(&db, &["doctor"]).await;
    assert!(!ok);
    for expected in [
        "symphony_executor has INSERT on payment_outbox_attempts",
        "payment_outbox_events_only_grow is changed",
    ] {
        assert!(failing(&told).iter().any(|line| line.contains(expected)), "{expected}: {told}");
    }
}

#[tokio::test]
async fn migrate_checks_installs_and_prints() {
    let options = bare_database().await;
    let url = url_of(&options);
    let (install, check_before, check_after, print) = tokio::task::spawn_blocking(move || {
        let check_before = symphony(&url, &["migrate", "--check"]);
        let install = symphony(&url, &["migrate"]);
        (
            install,
            check_before,
            symphony(&url, &["migrate", "--check"]),
            symphony("", &["migrate", "--print"]),
        )
    })
    .await
    .unwrap();
    assert!(
        !check_before.status.success() && install.status.success() && check_after.status.success()
    );
    assert_eq!(String::from_utf8(check_after.stdout).unwrap(), "up to date\n");
    assert!(
        print.status.success()
            && String::from_utf8(print.stdout)
                .unwrap()
                .contains("CREATE OR REPLACE FUNCTION symphony.claim_outbox_batch")
    );
}

#[tokio::test]
async fn every_failure_is_one_clear_line_that_names_the_fix_and_no_secret() {
    let db = TestDb::new().await;
    let good = url_of(&db.options);
    let bare = url_of(&bare_database().await);
    let mut poor = good.clone();
    db.sql("DROP ROLE IF EXISTS nobody_here; CREATE ROLE nobody_here LOGIN PASSWORD 'hunter2'")
        .await;
    if let Some(at) = good.find('@') {
        poor = format!("postgres://nobody_here:hunter2{}", &good[at..]);
    }
    let cases: Vec<(&str, Vec<&str>, &str)> = vec![
        ("mysql://root:hunter2@localhost/x", vec!["status"], "database.url must look like"),
        ("not a url", vec!["status"], "database.url must look like"),
        (
            "postgres://root:hunter2@127.0.0.1:1/x",
            vec!["status"],
            "cannot reach PostgreSQL: 127.0.0.1:1",
        ),
        (&bare, vec!["status"], "symphony migrate"),
        (&poor, vec!["status"], "lacks every one of the roles symphony_auditor"),
        (&good, vec!["show", "nothing"], "no item has the outbox or instruction id"),
        (&good, vec!["guard", "/no/such/path"], "no such file"),
        (&good, enqueue("i", "p", "{").to_vec(), "--payload: payload is not valid JSON"),
        (&good, enqueue(" ", "p", "{}").to_vec(), "p_instruction_id is blank"),
        (&good, vec!["enqueue", "payment", "--lines", "/no/such/file"], "--lines: cannot read"),
        (&good, vec!["demo"], "unset DATABASE_URL"),
    ];
    for (url, arguments, expected) in cases {
        let (owned_url, owned): (String, Vec<String>) =
            (url.to_owned(), arguments.iter().map(|a| (*a).to_owned()).collect());
        let output = tokio::task::spawn_blocking(move || {
            symphony(&owned_url, &owned.iter().map(String::as_str).collect::<Vec<_>>())
        })
        .await
        .unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(told.contains(expected) && told.lines().count() == 1, "{arguments:?}: {told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
    let fresh = tokio::task::spawn_blocking(move || symphony(&good, &["migrate", "--fresh"]))
        .await
        .unwrap();
    assert!(!fresh.status.success() && String::from_utf8(fresh.stderr).unwrap().contains("--yes"));
}

#[tokio::test]
async fn guard_finds_a_claim_by_deletion_and_passes_our_own_sources() {
    let db = TestDb::new().await;
    let folder = std::env::temp_dir().join(support::unique("guarded"));
    std::fs::create_dir_all(folder.join("node_modules")).unwrap();
    let bad = format!(
        "await db.query(`{}\n  FROM payment_outbox_pending LIMIT 1 RETURNING *`)\n",
        "DELETE"
    );
    std::fs::write(folder.join("worker.js"), format!("// a worker\n{bad}")).unwrap();
    std::fs::write(folder.join("node_modules/skipped.js"), bad).unwrap();
    let (ok, told, _) = run(&db, &["guard", folder.to_str().unwrap()]).await;
    assert!(
        !ok && told.contains("worker.js:2: delete-to-claim")
            && told.contains("1 files scanned, 1 findings"),
        "{told}"
    );
    std::fs::remove_dir_all(folder).unwrap();
    let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let (ok, told, _) = run(&db, &["guard", crates]).await;
    assert!(ok, "{told}");
}

#[tokio::test]
async fn what_a_shell_enqueued_a_worker_gets() {
    let db = TestDb::new().await;
    let traced = [&enqueue("i", "p", PAYLOAD)[..], &["--traceparent", "00-ab-cd-01"]].concat();
    run(&db, &traced).await;
    let item = db.claim_one("w").await;
    assert_eq!(item.traceparent.as_deref(), Some("00-ab-cd-01"));
    db.enqueue(&payment("j", "p", "r")).await;
    assert_eq!(db.claim_one("w").await.sequence_id, 2);
}
