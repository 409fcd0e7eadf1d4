//! `symphony sandbox` as a process: killed in the middle of load, its record still tells the truth.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc;

use serde_json::Value;
use symphony_lab::sandbox::Record;
use uuid::Uuid;

use crate::support::processes::{Signal, signal};

const BODY: &str = r#"{"amount": {"value": "10.00", "currency": "EUR"}}"#;

/// The real binary on a record; killed when dropped.
struct Provider {
    child: Child,
    output: BufReader<ChildStdout>,
    address: String,
}

impl Provider {
    fn start(record: &Path, arguments: &[&str]) -> Self {
        let mut child = command(arguments)
            .arg("--json")
            .arg("--record")
            .arg(record)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let told = next_document(&mut output);
        assert_eq!(told["record"], record.to_str().unwrap());
        let address = told["address"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
        Self { child, output, address }
    }

    fn client(&self) -> Client {
        Client(BufReader::new(TcpStream::connect(&self.address).unwrap()))
    }

    /// SIGKILL: nothing is flushed, nothing is said.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, and what it says at its end.
    fn stop(mut self) -> Value {
        signal(self.child.id(), Signal::TERM);
        let summary = next_document(&mut self.output);
        assert!(self.child.wait().unwrap().success());
        summary
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        // Ended already, unless the test failed.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_symphony"));
    command.arg("sandbox").args(arguments).stdin(Stdio::null());
    command
}

fn refused(arguments: &[&str]) -> String {
    let Output { status, stderr, .. } = command(arguments).output().unwrap();
    assert!(!status.success());
    String::from_utf8(stderr).unwrap()
}

fn next_document(output: &mut BufReader<ChildStdout>) -> Value {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

fn record_path() -> PathBuf {
    std::env::temp_dir().join(format!("symphony-sandbox-test-{}.jsonl", Uuid::new_v4()))
}

struct Client(BufReader<TcpStream>);

impl Client {
    /// Pay, and hear status and body; an error if the provider is gone.
    fn pay(&mut self, key: &str) -> io::Result<(u16, String)> {
        let length = BODY.len();
        self.0.get_ref().write_all(
            format!("POST /transfers HTTP/1.1\r\nIdempotency-Key: {key}\r\nContent-Length: {length}\r\n\r\n{BODY}")
                .as_bytes(),
        )?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<(u16, String)> {
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match line.trim_end() {
                "" => break,
                line if line.starts_with("HTTP/1.1 ") => status = line[9..12].parse().unwrap(),
                line => {
                    if let Some(value) = line.strip_prefix("Content-Length: ") {
                        length = value.parse().unwrap();
                    }
                }
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok((status, String::from_utf8(body).unwrap()))
    }
}

fn reference(body: &str) -> String {
    let json: Value = serde_json::from_str(body).unwrap();
    json["reference"].as_str().unwrap().to_owned()
}

#[test]
fn a_provider_killed_under_load_has_every_answered_transfer_in_its_record_exactly_once() {
    let path = record_path();
    let mut sent = BTreeSet::new();
    let mut answered = BTreeMap::new();
    for round in 0..3 {
        let mut provider = Provider::start(&path, &[]);
        let (answers, heard) = mpsc::channel();
        std::thread::scope(|scope| {
            for client_number in 0..8 {
                let (mut client, answers) = (provider.client(), answers.clone());
                scope.spawn(move || {
                    for number in 0.. {
                        let key = format!("{round}-{client_number}-{number}");
                        answers.send((key.clone(), None)).unwrap();
                        match client.pay(&key) {
                            Ok((201, body)) => answers.send((key, Some(reference(&body)))).unwrap(),
                            Ok(other) => panic!("{other:?}"),
                            Err(_) => break,
                        }
                    }
                });
            }
            drop(answers);
            let mut answers_this_round = 0;
            // The channel closes when the last client has seen its connection break.
            for (key, told) in heard {
                match told {
                    None => assert!(sent.insert(key)),
                    Some(reference) => {
                        answered.insert(key, reference);
                        answers_this_round += 1;
                        if answers_this_round == 300 {
                            provider.kill();
                        }
                    }
                }
            }
        });
        let record = Record::read(&path).unwrap();
        assert_eq!(record.summary().executed_twice, 0);
        let executed: BTreeMap<_, _> =
            record.executions().map(|execution| (&execution.key, execution.reference())).collect();
        for (key, reference) in &answered {
            assert_eq!(executed.get(key), Some(reference), "{key}");
        }
        assert!(executed.keys().all(|key| sent.contains(*key)));
    }

    // Whoever got no answer asks again: paid then or now, but once.
    assert!(answered.len() >= 900 && sent.len() > answered.len());
    let provider = Provider::start(&path, &[]);
    let mut client = provider.client();
    for key in &sent {
        let (status, body) = client.pay(key).unwrap();
        if let Some(known) = answered.get(key) {
            assert_eq!((status, &reference(&body)), (200, known), "{key}");
        }
    }
    let summary = provider.stop();
    assert_eq!(summary["executed"].as_u64(), Some(sent.len() as u64));
    assert_eq!(summary["keys"], summary["executed"]);
    let record = Record::read(&path).unwrap();
    let times = record.executions_by_key();
    assert!(sent.iter().all(|key| times.get(key.as_str()) == Some(&1)));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn options_reach_the_provider_and_mistakes_are_named_in_one_line() {
    let path = record_path();
    let plan = path.with_extension("plan.json");
    std::fs::write(&plan, r#"{"script": [{"key": "a", "faults": ["refuse:AC04"]}]}"#).unwrap();
    let plan_text = plan.to_str().unwrap();
    let provider = Provider::start(&path, &["--faults", plan_text, "--settle-ms", "600000"]);
    let mut client = provider.client();
    assert_eq!(client.pay("a").unwrap(), (422, r#"{"code":"AC04"}"#.to_owned()));
    assert_eq!(client.pay("b").unwrap().0, 201);
    client.0.get_ref().write_all(b"GET /transfers/b HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(client.answer().unwrap().0, 404, "not settled yet");
    let in_use = refused(&["--record", path.to_str().unwrap()]);
    assert!(in_use.contains("is in use by another sandbox"), "{in_use}");
    let summary = provider.stop();
    assert_eq!((summary["executed"].as_u64(), summary["refused"].as_u64()), (Some(1), Some(1)));

    std::fs::write(&plan, r#"{"per_mille": {"reset": 1}}"#).unwrap();
    let told = refused(&["--faults", plan_text]);
    assert!(told.contains("per_mille.reset is no fault") && told.lines().count() == 1, "{told}");
    let told = refused(&["--secret-env", "SYMPHONY_TEST_NOT_SET"]);
    assert_eq!(told, "symphony: --secret-env: SYMPHONY_TEST_NOT_SET is not set, or empty\n");
    for file in [path, plan] {
        std::fs::remove_file(file).unwrap();
    }
}
