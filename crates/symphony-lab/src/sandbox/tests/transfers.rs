use super::*;
use crate::sandbox::{Secret, Summary};

#[tokio::test]
async fn a_key_pays_once_and_its_replay_repeats_the_reference() {
    let fixture = Fixture::new().await;
    let mut client = fixture.client().await;
    assert_eq!(client.pay("a").await, created(1));
    assert_eq!(client.pay("b").await, created(2));
    assert_eq!(client.pay("a").await, replayed(1));
    assert_eq!(fixture.client().await.pay("a").await, replayed(1));
    assert_eq!((fixture.executions_of("a"), fixture.executions_of("b")), (1, 1));
}

#[tokio::test]
async fn a_key_with_another_body_is_refused_and_does_not_pay() {
    let fixture = Fixture::new().await;
    let mut client = fixture.client().await;
    client.pay("a").await;
    let other = BODY.replace("10.00", "11.00");
    assert_eq!(client.transfer("a", &other).await.unwrap().told(), coded(422, "KEY_REUSED"));
    assert_eq!(client.pay("a").await, replayed(1));
    assert_eq!(fixture.executions_of("a"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_racing_requests_under_one_key_pay_once_and_all_hear_the_same_reference() {
    let fixture = Fixture::new().await;
    for round in 1..=10 {
        let key = format!("race-{round}");
        let mut racers = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let (mut client, key) = (fixture.client().await, key.clone());
            racers.spawn(async move { client.pay(&key).await });
        }
        let answers = racers.join_all().await;
        assert_eq!(answers.iter().filter(|answer| **answer == created(round)).count(), 1);
        assert_eq!(answers.iter().filter(|answer| **answer == replayed(round)).count(), 49);
        assert_eq!(fixture.executions_of(&key), 1);
    }
}

#[tokio::test]
async fn an_inquiry_tells_executed_refused_and_unknown_apart() {
    let fixture =
        Fixture::with_faults(r#"{"script": [{"key": "no", "faults": ["refuse:AC04"]}]}"#).await;
    let mut client = fixture.client().await;
    client.pay("yes").await;
    client.pay("no").await;
    let executed = (200, r#"{"code":"ACSC","reference":"SBX-1"}"#.to_owned());
    let answer = client.get("/transfers/yes").await;
    assert_eq!((answer.told(), answer.about_key.as_deref()), (executed, Some("yes")));
    assert_eq!(client.get("/transfers/no").await.told(), coded(200, "AC04"));
    assert_eq!(client.get("/transfers/never").await.told(), coded(404, "NOT_FOUND"));
    assert_eq!(client.get("/transfer/yes").await.told(), coded(404, "NO_SUCH_PATH"));
}

#[tokio::test]
async fn before_it_settles_a_transfer_is_not_found_but_never_paid_again() {
    let fixture = Fixture::with(|settings| settings.settle_ms = 60_000).await;
    let mut client = fixture.client().await;
    client.pay("a").await;
    assert_eq!(client.get("/transfers/a").await.status, 404);
    assert_eq!(client.pay("a").await, replayed(1));
    fixture.sandbox().advance_clock(Duration::from_secs(61));
    assert_eq!(client.get("/transfers/a").await.status, 200);
    assert_eq!(fixture.executions_of("a"), 1);
}

#[tokio::test]
async fn a_forgotten_key_pays_twice_and_the_record_shows_it() {
    let fixture = Fixture::with(|settings| {
        settings.key_lifetime_seconds = Some(3600);
        settings.settle_ms = 1000;
    })
    .await;
    let mut client = fixture.client().await;
    client.pay("a").await;
    fixture.sandbox().advance_clock(Duration::from_secs(3500));
    assert_eq!(client.pay("a").await, replayed(1));
    fixture.sandbox().advance_clock(Duration::from_secs(101));
    assert_eq!(client.pay("a").await, created(2));
    // Settling is over since the first time: an execution that was found once stays found.
    assert_eq!(client.get("/transfers/a").await.json()["reference"], "SBX-2");
    let twice = Summary { executed: 2, keys: 1, executed_twice: 1, refused: 0 };
    assert_eq!(fixture.sandbox().summary().await.unwrap(), twice);
    assert_eq!(fixture.sandbox().record().unwrap().summary(), twice);
}

#[tokio::test]
async fn an_executed_transfer_is_never_refused_afterwards() {
    let plan = r#"{"script": [{"any": true, "faults": ["none", "refuse:AC04"]}]}"#;
    let fixture = Fixture::with_faults(plan).await;
    let mut client = fixture.client().await;
    assert_eq!(client.pay("a").await, created(1));
    assert_eq!(client.pay("a").await, replayed(1));
    assert_eq!(fixture.sandbox().summary().await.unwrap().refused, 0);
}

#[tokio::test]
async fn an_improper_amount_is_refused_for_good() {
    let fixture = Fixture::new().await;
    let mut client = fixture.client().await;
    let bodies = [
        "{}",
        r#"{"amount": {"value": 10.00, "currency": "EUR"}}"#,
        r#"{"amount": {"value": "0.00", "currency": "EUR"}}"#,
        r#"{"amount": {"value": "-1", "currency": "EUR"}}"#,
        r#"{"amount": {"value": "1e3", "currency": "EUR"}}"#,
        r#"{"amount": {"value": "1.", "currency": "EUR"}}"#,
        r#"{"amount": {"value": "1", "currency": "eur"}}"#,
    ];
    for (number, body) in bodies.iter().enumerate() {
        let key = format!("k{number}");
        for _ in 0..2 {
            let answer = client.transfer(&key, body).await.unwrap();
            assert_eq!(answer.told(), coded(422, "AM12"), "{body}");
        }
    }
    let refused = Summary { refused: 7, ..Summary::default() };
    assert_eq!(fixture.sandbox().record().unwrap().summary(), refused);
}

#[tokio::test]
async fn the_record_tells_who_paid_what() {
    let fixture = Fixture::new().await;
    let mut client = fixture.client().await;
    let headers = "Symphony-Instruction-Id: inv%207%2F%C3%A9\r\nsymphony-participant-id: acme\r\nSymphony-Sequence-Id: 12\r\n";
    client.send(transfer("k", headers, BODY)).await;
    assert_eq!(client.answer().await.unwrap().status, 201);
    let record = fixture.sandbox().record().unwrap();
    let execution = record.executions().next().unwrap();
    assert_eq!(execution.instruction.as_deref(), Some("inv 7/é"));
    assert_eq!((execution.participant.as_deref(), execution.sequence), (Some("acme"), Some(12)));
    assert_eq!((execution.amount.as_str(), execution.reference().as_str()), ("10.00 EUR", "SBX-1"));
    assert_eq!(execution.body_sha256, crate::sandbox::record::BodyHash::of(BODY.as_bytes()));
}

/// Computed with another implementation: `printf '%s' '1700000000.k.{}' | openssl dgst -sha256 -hmac secret`.
#[test]
fn a_signature_made_elsewhere_is_accepted_and_any_change_to_it_is_not() {
    let secret = Secret::new(b"secret").unwrap();
    let header = "t=1700000000,v1=61ed91897d886cea3a71e1032c1b55b967c2c927b23b1f99b011d22ad939dfea";
    let at = 1_700_000_000;
    assert!(secret.signed(header, "k", b"{}", at));
    assert!(secret.signed(&header.replace(',', ",v0=ignored,"), "k", b"{}", at + 300));
    assert!(!secret.signed(header, "k", b"{}", at + 301), "too old");
    assert!(!secret.signed(header, "l", b"{}", at), "another key");
    assert!(!secret.signed(header, "k", b"{ }", at), "another body");
    assert!(!secret.signed(&header.replace("t=17", "t=16"), "k", b"{}", at), "another time");
    assert!(!Secret::new(b"Secret").unwrap().signed(header, "k", b"{}", at), "another secret");
    for part in ["", "t=1700000000", "v1=00", "t=1700000000,v1=", "t=x,v1=zz"] {
        assert!(!secret.signed(part, "k", b"{}", at), "{part}");
    }
    assert!(Secret::new(b"").is_none());
    assert_eq!(format!("{secret:?}"), "Secret(…)");
}

#[tokio::test]
async fn without_its_signature_a_transfer_is_turned_away_and_not_executed() {
    let fixture =
        Fixture::with(|settings| settings.secret = Secret::new(b"between the two of us")).await;
    let mut client = fixture.client().await;
    assert_eq!(client.pay("a").await, coded(401, "SIGNATURE"));
    let wrong = format!("Symphony-Signature: t=1700000000,v1={}\r\n", "00".repeat(32));
    client.send(transfer("a", &wrong, BODY)).await;
    assert_eq!(client.answer().await.unwrap().status, 401);
    assert_eq!(fixture.sandbox().summary().await.unwrap(), Summary::default());
    assert_eq!(client.get("/transfers/a").await.status, 404);
}

#[tokio::test]
async fn with_its_signature_a_transfer_is_executed() {
    use hmac::{Hmac, KeyInit as _, Mac as _};
    let fixture = Fixture::with(|settings| settings.secret = Secret::new(b"s")).await;
    let time = crate::sandbox::transfers::true_now_ms() / 1000;
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(b"s").unwrap();
    mac.update(format!("{time}.a.{BODY}").as_bytes());
    let code: [u8; 32] = mac.finalize().into_bytes().into();
    let signature = code.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    let mut client = fixture.client().await;
    let header = format!("Symphony-Signature: t={time},v1={signature}\r\n");
    client.send(transfer("a", &header, BODY)).await;
    assert_eq!(client.answer().await.unwrap().told(), created(1));
}
