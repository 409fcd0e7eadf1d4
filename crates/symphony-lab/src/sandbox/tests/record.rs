use std::io::Write as _;
use std::path::Path;

use super::*;
use crate::sandbox::journal::{Journal, JournalFailed};
use crate::sandbox::record::BodyHash;
use crate::sandbox::transfers::{Order, Transfers};
use crate::sandbox::{Record, RecordError, SandboxError, Summary};

fn append(path: &PathBuf, bytes: &[u8]) {
    std::fs::OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

#[tokio::test]
async fn a_restart_remembers_executed_and_refused_keys_and_goes_on_counting() {
    let plan = r#"{"script": [{"key": "no", "faults": ["refuse:AC04"]}]}"#;
    let mut fixture = Fixture::with_faults(plan).await;
    let mut client = fixture.client().await;
    client.pay("a").await;
    client.pay("no").await;
    fixture.settings.faults = crate::sandbox::Plan::default();
    fixture.restart(|_| {}).await;
    let mut client = fixture.client().await;
    assert_eq!(client.pay("a").await, replayed(1));
    assert_eq!(client.pay("no").await, coded(422, "AC04"));
    assert_eq!(client.pay("b").await, created(2));
    let other = BODY.replace("10.00", "11.00");
    assert_eq!(client.transfer("a", &other).await.unwrap().told(), coded(422, "KEY_REUSED"));
    assert_eq!(client.get("/transfers/a").await.status, 200);
}

#[tokio::test]
async fn a_torn_last_line_is_cut_off_and_its_transfer_can_come_again() {
    let mut fixture = Fixture::new().await;
    fixture.client().await.pay("a").await;
    let torn = br#"{"outcome":"executed","number":2,"key":"b","instr"#;
    fixture.restart(|path| append(path, torn)).await;
    assert_eq!(fixture.sandbox().torn_bytes(), torn.len() as u64);
    let mut client = fixture.client().await;
    assert_eq!(client.pay("a").await, replayed(1));
    assert_eq!(client.pay("b").await, created(2));
    let record = Record::read(&fixture.settings.record).unwrap();
    assert_eq!((record.torn_bytes, record.summary().executed), (0, 2));
}

#[tokio::test]
async fn a_last_line_without_its_end_was_never_answered_even_if_it_reads_well() {
    let mut fixture = Fixture::new().await;
    fixture.client().await.pay("a").await;
    fixture.client().await.pay("b").await;
    fixture
        .restart(|path| {
            let bytes = std::fs::read(path).unwrap();
            std::fs::write(path, bytes.strip_suffix(b"\n").unwrap()).unwrap();
            let record = Record::read(path).unwrap();
            assert_eq!(record.summary().executed, 1);
            assert!(record.torn_bytes > 100);
        })
        .await;
    assert_eq!(fixture.client().await.pay("b").await, created(2));
}

#[tokio::test]
async fn any_other_damage_is_refused_with_its_line() {
    let mut fixture = Fixture::new().await;
    for key in ["a", "b", "c"] {
        fixture.client().await.pay(key).await;
    }
    fixture.sandbox.take().unwrap().stop().await.unwrap();
    let path = fixture.settings.record.clone();
    let good = std::fs::read_to_string(&path).unwrap();
    let damages = [
        (good.replacen(r#""key":"b""#, r#""key":b"#, 1), 2),
        (good.replacen(r#""number":2"#, r#""number":4"#, 1), 2),
        (good.replacen(r#""outcome":"executed""#, r#""outcome":"forgotten""#, 1), 1),
        (good.replacen(r#""body_sha256":""#, r#""body_sha256":"x"#, 1), 1),
        (good.clone() + "\n", 4),
        (good.lines().skip(1).fold(String::new(), |text, line| text + line + "\n"), 1),
    ];
    for (text, expected) in damages {
        std::fs::write(&path, &text).unwrap();
        let refused = Sandbox::start(fixture.settings.clone()).await.err().unwrap();
        let SandboxError::Record(RecordError::Malformed { line, .. }) = refused else {
            panic!("{refused}")
        };
        assert_eq!(line, expected, "{text}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "and left as it is");
    }
}

#[tokio::test]
async fn two_sandboxes_cannot_share_a_record() {
    let mut fixture = Fixture::new().await;
    let second = Sandbox::start(fixture.settings.clone()).await.err().unwrap();
    assert!(matches!(second, SandboxError::Record(RecordError::InUse { .. })), "{second}");
    fixture.restart(|_| {}).await;
}

#[tokio::test]
async fn the_summary_and_the_lines_agree_over_http_in_the_file_and_at_the_stop() {
    let plan = r#"{"script": [{"key": "no", "faults": ["refuse:AC04"]}]}"#;
    let mut fixture = Fixture::with_faults(plan).await;
    let mut client = fixture.client().await;
    for key in ["a", "no", "b", "a", "c"] {
        client.pay(key).await;
    }
    let expected = Summary { executed: 3, keys: 3, executed_twice: 0, refused: 1 };
    let told = client.get("/record/summary").await;
    assert_eq!(serde_json::from_slice::<Summary>(&told.body).unwrap(), expected);
    let lines = client.get("/record").await.body;
    assert_eq!(lines, std::fs::read(&fixture.settings.record).unwrap());
    assert_eq!(Record::read(&fixture.settings.record).unwrap().summary(), expected);
    assert_eq!(fixture.sandbox().record().unwrap().summary(), expected);
    assert_eq!(fixture.sandbox.take().unwrap().stop().await.unwrap(), expected);
}

#[tokio::test]
async fn a_long_record_is_streamed_whole() {
    let fixture = Fixture::with(|settings| settings.durable = false).await;
    let mut client = fixture.client().await;
    let key = "k".repeat(240);
    for number in 0..1500 {
        client.pay(&format!("{key}{number}")).await;
    }
    let lines = client.get("/record").await.body;
    assert!(lines.len() > 600_000);
    assert_eq!(lines, std::fs::read(&fixture.settings.record).unwrap());
    assert_eq!(client.get("/healthz").await.status, 200, "the connection goes on");
}

#[tokio::test]
async fn when_the_disk_refuses_nothing_is_told_as_done() {
    // Every write to this device says that the disk is full.
    let path = Path::new("/dev/full");
    let file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
    let journal = Journal::write_to(file, path, 0, false).unwrap();
    let transfers = Transfers::new(journal, Record::default(), 0, None);
    let order = || Order {
        key: "a".to_owned(),
        instruction: None,
        participant: None,
        sequence: None,
        body_sha256: BodyHash::of(b"{}"),
        amount: Some("10.00 EUR".to_owned()),
    };
    for _ in 0..3 {
        assert_eq!(transfers.order(order(), None).await, Err(JournalFailed));
        assert_eq!(transfers.inquire("a").await, Err(JournalFailed));
    }
    assert_eq!(transfers.summary().await, Err(JournalFailed));
    assert!(transfers.journal.failure().unwrap().contains("No space left"));
}

#[tokio::test]
async fn a_record_is_a_regular_file() {
    let refused = Sandbox::start(Settings::new("/dev/full")).await.err().unwrap().to_string();
    assert_eq!(refused, "the record /dev/full: not a regular file");
}
