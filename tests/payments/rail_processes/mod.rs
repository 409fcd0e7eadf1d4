//! Worker processes against a bank written in Python from the documents: it counts by its own clock.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use sqlx::ConnectOptions as _;
use symphony::engine::{Rate, RateScope};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use uuid::Uuid;

use crate::support::processes::{Signal, python_or_skip, signal};
use crate::support::{TestDb, act, payment, until};

struct Bank {
    folder: PathBuf,
    port: String,
    _process: Child,
}

impl Bank {
    async fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("symphony-bank-{}", Uuid::new_v4()));
        std::fs::create_dir(&folder).unwrap();
        let program = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/payments/rail_processes/provider.py");
        let mut process = Command::new("python3")
            .arg(program)
            .arg(folder.join("journal"))
            .arg(&folder)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let port = lines.next_line().await.unwrap().expect("the bank's port");
        Self { folder, port, _process: process }
    }

    /// Every call so far: kind, name and when, by the bank's clock.
    fn calls(&self) -> Vec<(String, String, f64)> {
        let text = std::fs::read_to_string(self.folder.join("journal")).unwrap_or_default();
        let read = |line: &str| {
            let call: Value = serde_json::from_str(line).unwrap();
            let text = |field: &str| call[field].as_str().unwrap().to_owned();
            (text("call"), text("name"), call["at"].as_f64().unwrap())
        };
        text.lines().filter(|line| line.ends_with('}')).map(read).collect()
    }

    fn sends(&self, name: &str) -> usize {
        self.calls().iter().filter(|(call, of, _)| call == "send" && of == name).count()
    }

    fn config(&self, rail: &str, worker: &str) -> PathBuf {
        let url = format!("http://127.0.0.1:{}/payments", self.port);
        let mut text = format!(
            "[rails.bank]\nkind = \"http\"\nurl = \"{url}\"\ninquiry_url = \"{url}/{{key}}\"\nnot_found_code = \"NOT_FOUND\"\n\
             destination = \"any\"\nallow_private_addresses = true\ntimeout_ms = 5000\n{rail}\n"
        );
        write!(text, "[worker]\n{worker}\n").unwrap();
        let path = self.folder.join(format!("{}.toml", Uuid::new_v4()));
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Bank {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

fn worker(db: &TestDb, config: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_symphony"));
    command
        .args(["run", "--api", "off", "--config"])
        .arg(config)
        .env("DATABASE_URL", db.options.to_url_lossy().as_str())
        // A witness of its own: the databases of these tests are clones of one, and would be taken for a restored backup.
        .env("SYMPHONY_DATA", config.parent().unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    command
}

/// The most calls in any window of this length, by the bank's clock.
#[allow(clippy::float_arithmetic)]
fn most_within(calls: &[(String, String, f64)], seconds: f64) -> usize {
    calls
        .iter()
        .map(|(_, _, from)| {
            calls.iter().filter(|(_, _, at)| at >= from && *at < from + seconds).count()
        })
        .max()
        .unwrap_or(0)
}

async fn pay(db: &TestDb, name: &str, count: usize) {
    for n in 0..count {
        db.enqueue(&payment(&format!("{name}-{n}"), "acme", "bank")).await;
    }
}

#[tokio::test]
async fn three_processes_keep_one_rate_together_inquiries_included() {
    python_or_skip!();
    let db = TestDb::new().await;
    let bank = Bank::start().await;
    // Each of the thirty is sent, asked about and sent again; the others only sent: 120 calls.
    pay(&db, "drop", 30).await;
    pay(&db, "plain", 30).await;
    let config = bank
        .config("key_lifetime_seconds = 86400\nrate_per_second = 20\nrate_scope = \"fleet\"", "");
    let mut workers: Vec<_> = (0..3).map(|_| worker(&db, &config).spawn().unwrap()).collect();
    until("all are paid", async || db.count("payment_outbox_pending").await == 0).await;
    for worker in &mut workers {
        signal(worker.id().unwrap(), Signal::TERM);
        assert!(worker.wait().await.unwrap().success());
    }
    let calls = bank.calls();
    let asked = calls.iter().filter(|(call, _, _)| call == "ask").count();
    let (second, five) = (most_within(&calls, 1.0), most_within(&calls, 5.0));
    println!(
        "{} calls, {asked} of them inquiries; at most {second} in a second, {five} in five",
        calls.len()
    );
    assert_eq!((calls.len(), asked), (120, 30));
    // What is late by a moment comes nearer to the next one: a few more than twenty, never forty.
    assert!(second <= 25, "{second} calls within a second");
    assert!(five <= 105, "{five} calls within five seconds");
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn one_process_keeps_its_rate_inquiries_included() {
    python_or_skip!();
    let db = TestDb::new().await;
    let bank = Bank::start().await;
    pay(&db, "drop", 30).await;
    let rail = "key_lifetime_seconds = 86400\nrate_per_second = 20\nbreaker_failures = 1000";
    let config = bank.config(rail, "");
    let _worker = worker(&db, &config).spawn().unwrap();
    until("all are paid", async || db.count("payment_outbox_pending").await == 0).await;
    let calls = bank.calls();
    let (second, three) = (most_within(&calls, 1.0), most_within(&calls, 3.0));
    println!("{} calls; at most {second} in a second, {three} in three", calls.len());
    assert_eq!(calls.len(), 90);
    // The turns are exact (`engine::pace`); on the way to the bank's clock a call may be held up.
    assert!(second <= 24, "{second} calls within a second");
    assert!(three <= 64, "{three} calls within three seconds");
}

#[tokio::test]
async fn a_bank_that_says_429_for_a_while_costs_no_tries_and_is_not_hammered() {
    python_or_skip!();
    let db = TestDb::new().await;
    let bank = Bank::start().await;
    std::fs::write(bank.folder.join("busy"), "").unwrap();
    pay(&db, "busy", 1).await;
    let config = bank.config("key_lifetime_seconds = 86400", "");
    let _worker = worker(&db, &config).spawn().unwrap();
    until("it was tried three times", async || bank.sends("busy-0") >= 3).await;
    let sends: Vec<f64> = bank.calls().iter().map(|(_, _, at)| *at).collect();
    assert!(
        sends[2] - sends[0] >= 3.0,
        "one second, then two, whatever Retry-After says: {sends:?}"
    );
    assert_eq!(db.one::<i32>("SELECT attempt_count FROM payment_outbox_pending").await, 0);
    std::fs::remove_file(bank.folder.join("busy")).unwrap();
    until("it is paid", async || db.count("payment_outbox_pending").await == 0).await;
    assert_eq!(db.count("payment_outbox_attempts WHERE NOT spends_attempt").await, 3);
    assert_eq!(db.count("payment_outbox_attempts WHERE state = 'DISPATCHED'").await, 1);
}

#[tokio::test]
async fn a_bank_that_stays_busy_or_away_is_given_up_after_its_time() {
    python_or_skip!();
    let db = TestDb::new().await;
    let operator = db.database.operator();
    operator.configure_rail("bank", &act(), None, None, None, Some(2)).await.unwrap();
    let bank = Bank::start().await;
    std::fs::write(bank.folder.join("busy"), "").unwrap();
    pay(&db, "busy", 1).await;
    let config = bank.config("key_lifetime_seconds = 86400", "");
    let _worker = worker(&db, &config).spawn().unwrap();
    until("it is given up", async || {
        db.count("payment_outbox_attempts WHERE state = 'FAILED' AND error_code = 'GIVEN_UP'").await
            == 1
    })
    .await;
    assert_eq!(bank.sends("busy-0"), 3, "at 0, 1 and 3 seconds");
}

#[tokio::test]
async fn where_not_found_is_final_an_unknown_payment_settles_and_is_sent_again() {
    python_or_skip!();
    let db = TestDb::new().await;
    let bank = Bank::start().await;
    pay(&db, "drop", 3).await;
    let config = bank.config("not_found = \"final\"\nsettle_delay_seconds = 4", "");
    let _worker = worker(&db, &config).spawn().unwrap();
    until("all are paid", async || db.count("payment_outbox_pending").await == 0).await;
    for n in 0..3 {
        let name = format!("drop-{n}");
        let sends: Vec<f64> = bank
            .calls()
            .iter()
            .filter(|(call, of, _)| call == "send" && *of == name)
            .map(|(_, _, at)| *at)
            .collect();
        assert_eq!(sends.len(), 2, "{name}");
        assert!(sends[1] - sends[0] >= 4.0, "only after the settle delay: {sends:?}");
    }
    // Lost, asked too early, paid.
    assert_eq!(db.count("payment_outbox_attempts WHERE error_code = 'NOT_SETTLED_YET' AND asked_only AND NOT spends_attempt").await, 3);
    assert_eq!(db.count("payment_outbox_attempts").await, 9);
}

/// Adds the seconds in a file to the boot-time clock, as a suspension does, and leaves the monotonic one alone.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(id, now);
    FILE *file = id == CLOCK_BOOTTIME ? fopen(getenv("SUSPENDED_SECONDS_FILE"), "r") : NULL;
    if (file) {
        long seconds = 0;
        if (fscanf(file, "%ld", &seconds) == 1) now->tv_sec += seconds;
        fclose(file);
    }
    return answer;
}
"#;

#[tokio::test]
async fn a_process_on_a_suspended_host_sends_nothing_after_its_lease() {
    python_or_skip!();
    let db = TestDb::new().await;
    let bank = Bank::start().await;
    let (source, shim) = (bank.folder.join("shim.c"), bank.folder.join("shim.so"));
    std::fs::write(&source, SHIM).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).args([&shim, &source]).arg("-ldl");
    assert!(compiler.status().await.unwrap().success());
    let suspended = bank.folder.join("suspended");
    std::fs::write(&suspended, "0").unwrap();

    pay(&db, "plain", 3).await;
    // The next eight turns are others': it claims, and waits for its own.
    let rate = Rate { per_second: 1, burst: 1, scope: RateScope::Fleet };
    db.database.worker().take_rail_permits("bank", rate, 8).await.unwrap();
    let rail = "key_lifetime_seconds = 86400\nrate_per_second = 1\nrate_scope = \"fleet\"";
    let config = bank.config(rail, "lease_seconds = 60");
    let process = worker(&db, &config)
        .env("LD_PRELOAD", &shim)
        .env("SUSPENDED_SECONDS_FILE", &suspended)
        .spawn()
        .unwrap();
    until("it holds one and waits for its turn", async || {
        db.count("payment_outbox_pending WHERE lease_token IS NOT NULL").await >= 1
    })
    .await;
    signal(process.id().unwrap(), Signal::STOP);
    // Two minutes pass for everybody but this process's monotonic clock; others have what it held.
    std::fs::write(&suspended, "120").unwrap();
    db.sql("UPDATE payment_outbox_pending SET claimed_by = 'other', lease_token = gen_random_uuid(),
                   lease_expires_at = clock_timestamp() + INTERVAL '1 hour', claimed_at = clock_timestamp()").await;
    signal(process.id().unwrap(), Signal::CONT);
    // It is still alive and pays what comes later; its turns at what it lost are over by then.
    db.enqueue(&payment("later", "acme", "bank")).await;
    until("what came later is paid", async || bank.sends("later") == 1).await;
    for n in 0..3 {
        assert_eq!(bank.sends(&format!("plain-{n}")), 0, "sent after its lease");
    }
}
