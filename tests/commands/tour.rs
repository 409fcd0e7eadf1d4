//! `symphony demo` and `symphony up` as a newcomer runs them: the real binary on a data folder of its own.

use std::fs;
use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use symphony_lab::sandbox::Record;

use crate::support::processes::{Signal, signal, signal_if_there};
use crate::support::unique;

/// Smaller than the default, so that a debug build shows the same story in less time.
const SMALL: [&str; 4] = ["--payments", "600", "--seconds", "4"];

/// A data folder, removed with everything that still runs on it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("/tmp/{}-{}", unique("symphony-tour"), std::process::id());
        Self(PathBuf::from(name))
    }

    fn symphony(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_symphony"));
        command
            .args(arguments)
            .env_remove("DATABASE_URL")
            .env("SYMPHONY_DATA", &self.0)
            .stdin(Stdio::null());
        command
    }

    /// Of every process that names this folder: workers by their configuration, the server by its cluster.
    fn processes(&self) -> Vec<(u32, String)> {
        let folder = self.0.to_str().unwrap();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().map(Result::unwrap) {
            let Ok(process) = entry.file_name().to_string_lossy().parse() else { continue };
            // It may have ended meanwhile.
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            if line.contains(folder) {
                found.push((process, line));
            }
        }
        found
    }

    fn assert_nothing_runs(&self) {
        assert_eq!(self.processes(), []);
        assert!(!self.0.join("postgres/postmaster.pid").exists(), "its server is stopped");
        assert!(!self.0.join("demo").exists(), "its files are gone");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        for (process, _) in self.processes() {
            // Only after a failure.
            signal_if_there(process, Signal::KILL);
        }
        fs::remove_dir_all(&self.0).ok();
    }
}

fn output(command: &mut Command) -> (bool, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.success(), text(stdout), text(stderr))
}

#[test]
fn the_tour_keeps_its_promises_and_leaves_nothing_behind() {
    let folder = Folder::new();
    let mut demo = folder.symphony(&["demo"]);
    let (ok, told, errors) = output(demo.args(SMALL).env("COLUMNS", "80"));
    assert!(ok, "{told}\n{errors}");
    // What is told, the progress and the proof: nothing is torn by a terminal of the usual width.
    for line in told.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let all = words(&told);
    for promise in [
        "the same key with another amount (P7004)",
        "its payment never existed",
        "whose amount is a JSON number instead of text: FAILED (INVALID_AMOUNT), never sent",
        "instant-invoice-08 was refused (AC04), the 15 behind it wait",
        "redriven    by dana@bank.example",
        "killed      worker ",
        "recovered   its leases",
        "parked      wire-invoice-1",
        "resolved    by dana@bank.example, who found SBX-1",
        "600 answered with the payment they already are, 0 written",
        "a superuser who wanted to rewrite the ledger (P0001)",
        ": Dispatched, reference SBX-",
        "       0  executed twice",
        "       0  executed though FAILED",
        "       0  overtaken on the rail with a strict order",
        "an event with payload.customer.email",
        "     300  of them in the receiver's own record",
        "       0  events lost",
        "       0  events overtaken by a later one of their key",
        "an order without an email address: 400",
        "40 orders over HTTP are taken",
        "http  take-order  DISPATCHED",
        "\n└─ kv  ask-for-receipt  DISPATCHED",
        "\n   └─ queue  send-receipt  DISPATCHED",
        "\n      └─ email  (email to be sent)  DISPATCHED",
        "      40  of them with exactly one receipt by mail",
        "       0  items of the app left over",
        "No money moved twice, none was lost, every event arrived in order, every order has its one receipt",
    ] {
        // Of a figure or a tree the place counts; a sentence may be on two lines.
        let kept = if promise.starts_with([' ', '\n']) {
            told.contains(promise)
        } else {
            all.contains(&words(promise))
        };
        assert!(kept, "{promise}:\n{told}");
    }
    // On a slow machine the worker that is killed may have held it: then its life begins with that.
    let doubts =
        ["attempt 1: Retryable (outcome unknown), error TIMEOUT", "attempt 1: ZombieRequeue"];
    assert!(doubts.iter().any(|doubt| all.contains(doubt)), "{told}");
    assert!(!told.contains('\x1b'), "no colours into a pipe");
    assert_eq!(errors, "");
    folder.assert_nothing_runs();
}

#[test]
fn the_tours_figures_add_up_for_a_script() {
    let folder = Folder::new();
    let (ok, told, errors) = output(folder.symphony(&["--json", "demo"]).args(SMALL));
    assert!(ok, "{told}\n{errors}");
    let report: Value = serde_json::from_str(&told).unwrap();
    let proof = |name: &str| report["proof"][name].as_u64().unwrap();
    assert_eq!(report["holds"], true);
    // 600, 24 in order, one redriven of those, one for a person, one invalid.
    assert_eq!(proof("asked"), 627);
    assert_eq!(proof("dispatched") + proof("failed"), 627);
    assert_eq!(proof("executed_once"), proof("dispatched"));
    assert!(proof("failed") >= 2, "{told}");
    for zero in [
        "pending",
        "executed_twice",
        "executed_though_failed",
        "dispatched_not_executed",
        "other_terms",
        "never_asked",
        "lost",
        "ended_twice",
        "gaps",
        "order_inversions",
    ] {
        assert_eq!(proof(zero), 0, "{zero}: {told}");
    }
    assert_eq!(report["events"]["told"], 300);
    assert_eq!(report["events"]["published"], 300);
    assert!(report["events"]["faults"].as_u64().unwrap() > 0, "{told}");
    let orders = |name: &str| report["orders"][name].as_u64().unwrap();
    assert_eq!(
        ["accepted", "receipts", "entries", "strange", "pending"].map(orders),
        [40, 40, 40, 0, 0],
        "{told}"
    );
    // Four runs an order, its mail included, and those that were sent twice or refused.
    assert!(orders("runs") > 4 * 40 + 10, "{told}");
    let happened = |name: &str| report["happened"][name].as_u64().unwrap();
    assert!(happened("doubted_but_executed") >= 3, "{told}");
    assert!(happened("doubted") >= happened("doubted_but_executed"), "{told}");
    assert!(happened("killed_worker_held") >= 1, "{told}");
    assert!(report["faults"]["reset_after"].as_u64().unwrap() >= 1, "{told}");
}

#[test]
fn an_interrupted_tour_leaves_nothing_behind_and_a_second_one_is_told_of_the_first() {
    let folder = Folder::new();
    let mut demo =
        folder.symphony(&["demo"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("asked ")), "it shows progress");
    let (ok, _, errors) = output(&mut folder.symphony(&["demo"]));
    assert!(!ok && errors.contains("a demo runs already on"), "{errors}");
    signal(demo.id(), Signal::INT);
    assert_eq!(demo.wait().unwrap().code(), Some(1));
    let mut errors = String::new();
    demo.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(errors.contains("interrupted") && errors.lines().count() == 1, "{errors}");
    folder.assert_nothing_runs();
}

/// `symphony up`, killed when dropped.
struct Up {
    child: Child,
    told: Value,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Up {
    fn start(folder: &Folder) -> Self {
        let mut child = folder
            .symphony(&["up", "--json", "--api", "127.0.0.1:0", "--sandbox", "127.0.0.1:0"])
            // A token's person is ASCII, and an account's name need not be.
            .env_remove("SUDO_USER")
            .env("USER", "Jürgen")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let told = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        Self { child, told, lines }
    }

    fn address(&self, of: &str) -> &str {
        self.told[of].as_str().unwrap().strip_prefix("http://").unwrap()
    }

    fn get(&self, path: &str) -> String {
        self.ask("api", &format!("GET {path}"), "")
    }

    fn ask(&self, of: &str, what: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(self.address(of)).unwrap();
        let length = body.len();
        write!(
            stream,
            "{what} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // Ended already, unless the test failed.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

#[test]
fn up_serves_the_example_app_and_shows_its_mail() {
    let folder = Folder::new();
    let mut up = Up::start(&folder);
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/apps/orders");
    let (ok, told, errors) =
        output(&mut folder.symphony(&["--private", "app", "push", example, "--actor", "ann"]));
    assert!(ok && told.contains("created app orders: 6 scripts"), "{told}{errors}");
    let order = r#"{"id": "o-1", "email": "ann@example.com", "item": "tea"}"#;
    let answer = up.ask("apps", "POST /apps/orders/orders", order);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    // The next line comes with the mail.
    let line: Value = serde_json::from_str(&up.lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(line, serde_json::json!({ "mail_caught": 1, "subject": "Your order o-1" }));
    let (_, told, _) =
        output(&mut folder.symphony(&["--private", "app", "executions", "--app", "orders"]));
    assert!(told.contains("take-order"), "{told}");
    signal(up.child.id(), Signal::TERM);
    assert_eq!(up.child.wait().unwrap().code(), Some(0));
    folder.assert_nothing_runs();
}

#[test]
fn up_says_what_to_type_in_eighty_columns() {
    let folder = Folder::new();
    let mut up = folder
        .symphony(&["up", "--api", "127.0.0.1:0", "--sandbox", "127.0.0.1:0"])
        .env("COLUMNS", "80")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(up.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut told = Vec::new();
    for line in lines {
        let is_last = line.starts_with("Ctrl-C");
        told.push(line);
        if is_last {
            break;
        }
    }
    signal(up.id(), Signal::TERM);
    assert_eq!(up.wait().unwrap().code(), Some(0));
    assert!(told.iter().any(|line| line.contains("enqueue payment")), "{told:#?}");
    let wide: Vec<_> = told.iter().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "{wide:#?}");
    folder.assert_nothing_runs();
}

#[test]
fn up_pays_what_a_shell_asks_for_serves_its_metrics_and_stops_in_order() {
    let folder = Folder::new();
    let mut up = Up::start(&folder);
    assert!(up.get("/healthz").ends_with("ok\n"));
    assert!(up.get("/readyz").ends_with("ready\n"));
    let payload = r#"{"amount": {"value": "10.00", "currency": "EUR"}}"#;
    let enqueue =
        ["--private", "enqueue", "payment", "--instruction", "inv-1", "--participant", "acme"];
    let rest = ["--key", "1", "--rail", "sandbox", "--payload", payload];
    let (ok, _, errors) = output(folder.symphony(&enqueue).args(rest));
    assert!(ok, "{errors}");
    let started = Instant::now();
    loop {
        let (_, told, _) = output(&mut folder.symphony(&["--private", "show", "inv-1"]));
        if told.contains("DISPATCHED") {
            assert!(told.contains("reference SBX-1"), "{told}");
            break;
        }
        assert!(started.elapsed() < Duration::from_mins(1), "{told}");
    }
    let record = Record::read(up.told["record"].as_str().unwrap().as_ref()).unwrap();
    assert_eq!(record.summary().executed, 1);
    let metrics = up.get("/metrics");
    assert!(
        metrics.contains(r#"attempts_total{lane="payments",state="DISPATCHED"} 1"#),
        "{metrics}"
    );

    // A second one is told what to do, in one line.
    let (ok, _, errors) = output(&mut folder.symphony(&["up"]));
    assert!(!ok && errors.contains("symphony is up already on"), "{errors}");
    let other = Folder::new();
    for (option, arguments) in [
        ("--api", ["--api", up.address("api"), "--sandbox", "127.0.0.1:0"]),
        ("--sandbox", ["--api", "127.0.0.1:0", "--sandbox", up.address("sandbox")]),
    ] {
        let (ok, _, errors) = output(other.symphony(&["up"]).args(arguments));
        assert!(!ok && errors.contains("in use") && errors.contains(option), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
    other.assert_nothing_runs();

    signal(up.child.id(), Signal::TERM);
    assert_eq!(up.child.wait().unwrap().code(), Some(0));
    folder.assert_nothing_runs();

    // Nothing is forgotten: neither by the database nor by the provider.
    let mut again = Up::start(&folder);
    let (ok, told, _) = output(folder.symphony(&enqueue).args(rest));
    assert!(ok && told.contains("known already"), "{told}");
    signal(again.child.id(), Signal::TERM);
    assert_eq!(again.child.wait().unwrap().code(), Some(0));
}
