use super::*;
use crate::sandbox::{Fault, InquiryFault};

/// A sandbox whose first transfer meets one fault.
async fn struck_by(fault: &str) -> Fixture {
    let plan = format!(r#"{{"script": [{{"any": true, "faults": ["{fault}"]}}]}}"#);
    Fixture::with_faults(&plan).await
}

/// What the fault left behind, by the file, and that the second try settles it.
async fn assert_aftermath(fixture: &Fixture, fault: &str, executed: bool) {
    fixture.until_struck().await;
    let mut client = fixture.client().await;
    // The fault is counted before it executes.
    while executed && client.get("/transfers/a").await.status == 404 {}
    assert_eq!(fixture.executions_of("a"), u64::from(executed), "{fault}");
    let second = if executed { replayed(1) } else { created(1) };
    assert_eq!(client.pay("a").await, second, "{fault}");
    assert_eq!(fixture.executions_of("a"), 1, "{fault}");
}

#[tokio::test]
async fn errors_answer_with_their_status_before_or_after_executing() {
    for (fault, status, executed) in
        [("error_before:503", 503, false), ("error_after:500", 500, true)]
    {
        let fixture = struck_by(fault).await;
        let mut client = fixture.client().await;
        assert_eq!(client.pay("a").await, (status, r#"{"error":"injected"}"#.to_owned()));
        assert_aftermath(&fixture, fault, executed).await;
        assert_eq!(client.get("/healthz").await.status, 200, "the connection goes on");
    }
}

#[tokio::test]
async fn resets_reset_the_connection_before_or_after_executing() {
    for (fault, executed) in [("reset_before", false), ("reset_after", true)] {
        let fixture = struck_by(fault).await;
        let mut client = fixture.client().await;
        client.send(transfer("a", "", BODY)).await;
        assert_eq!(client.read_to_the_end().await, (Vec::new(), true), "{fault}");
        assert_aftermath(&fixture, fault, executed).await;
    }
}

#[tokio::test]
async fn hangs_never_answer_and_end_with_the_sandbox() {
    for (fault, executed) in [("hang_before", false), ("hang_after", true)] {
        let mut fixture = struck_by(fault).await;
        let mut client = fixture.client().await;
        client.send(transfer("a", "", BODY)).await;
        assert!(client.is_silent().await, "{fault}");
        assert_aftermath(&fixture, fault, executed).await;
        assert!(client.is_silent().await, "{fault}");
        fixture.restart(|_| {}).await;
        assert_eq!(client.read_to_the_end().await, (Vec::new(), false), "{fault}");
    }
}

#[tokio::test]
async fn garbage_is_no_http_and_closes() {
    for (fault, executed) in [("garbage_before", false), ("garbage_after", true)] {
        let fixture = struck_by(fault).await;
        let mut client = fixture.client().await;
        client.send(transfer("a", "", BODY)).await;
        let (bytes, reset) = client.read_to_the_end().await;
        assert!(!bytes.is_empty() && !reset, "{fault}");
        let parsed = httparse::Response::new(&mut []).parse(&bytes).is_err();
        assert!(parsed, "{fault}");
        assert_aftermath(&fixture, fault, executed).await;
    }
}

#[tokio::test]
async fn a_slow_drip_brings_a_byte_and_then_makes_one_wait() {
    for (fault, executed) in [("slow_drip_before", false), ("slow_drip_after", true)] {
        let fixture = struck_by(fault).await;
        let mut client = fixture.client().await;
        client.send(transfer("a", "", BODY)).await;
        assert_eq!(client.stream.read_u8().await.unwrap(), b'H', "{fault}");
        assert!(client.is_silent().await, "{fault}");
        assert_aftermath(&fixture, fault, executed).await;
    }
}

#[tokio::test]
async fn an_answer_that_comes_twice_is_one_execution_and_names_its_key() {
    let fixture = struck_by("answer_twice").await;
    let mut client = fixture.client().await;
    assert_eq!(client.pay("a").await, created(1));
    // Whoever sends the next payment on this connection finds the old answer first.
    let stale = client.transfer("b", BODY).await.unwrap();
    assert_eq!((stale.told(), stale.about_key.as_deref()), (created(1), Some("a")));
    let own = client.answer().await.unwrap();
    assert_eq!((own.told(), own.about_key.as_deref()), (created(2), Some("b")));
    assert_eq!((fixture.executions_of("a"), fixture.executions_of("b")), (1, 1));
}

#[tokio::test]
async fn a_refusal_is_recorded_and_repeated_and_never_executes() {
    let fixture = struck_by("refuse:AC04").await;
    let mut client = fixture.client().await;
    for _ in 0..3 {
        assert_eq!(client.pay("a").await, coded(422, "AC04"));
    }
    let record = fixture.sandbox().record().unwrap();
    assert_eq!(
        record.refusals().map(|refusal| refusal.code.as_str()).collect::<Vec<_>>(),
        ["AC04"]
    );
    assert_eq!(fixture.executions_of("a"), 0);
}

#[tokio::test]
async fn a_delay_comes_before_executing() {
    let fixture = struck_by("delay:600000").await;
    let mut client = fixture.client().await;
    client.send(transfer("a", "", BODY)).await;
    fixture.until_struck().await;
    assert!(client.is_silent().await);
    assert_eq!(fixture.executions_of("a"), 0);
    let short = struck_by("delay:1").await;
    assert_eq!(short.client().await.pay("a").await, created(1));
}

#[tokio::test]
async fn inquiries_have_faults_of_their_own_and_always_tell_the_truth_in_the_end() {
    let plan = r#"{"script": [{"key": "a", "inquiry_faults": ["error:503", "garbage", "hang", "reset", "delay:1"]}]}"#;
    let fixture = Fixture::with_faults(plan).await;
    fixture.client().await.pay("a").await;
    let ask = "GET /transfers/a HTTP/1.1\r\n\r\n";

    assert_eq!(fixture.client().await.get("/transfers/a").await.status, 503);
    let mut garbage = fixture.client().await;
    garbage.send(ask).await;
    assert!(garbage.answer().await.is_none());
    let mut hang = fixture.client().await;
    hang.send(ask).await;
    assert!(hang.is_silent().await);
    let mut reset = fixture.client().await;
    reset.send(ask).await;
    assert_eq!(reset.read_to_the_end().await, (Vec::new(), true));
    for _ in 0..2 {
        assert_eq!(fixture.client().await.get("/transfers/a").await.status, 200);
    }
    let injected = fixture.sandbox().faults().inquiry_injected;
    assert_eq!(injected.values().copied().collect::<Vec<_>>(), [1, 1, 1, 1, 1]);
}

#[tokio::test]
async fn a_script_is_used_up_in_order_by_the_requests_it_is_for() {
    let plan = r#"{"script": [
        {"key": "b", "faults": ["error_before:500"]},
        {"instruction": "inv-7", "faults": ["error_before:501", "none", "error_before:502"]}]}"#;
    let fixture = Fixture::with_faults(plan).await;
    let mut client = fixture.client().await;
    let mut told = Vec::new();
    for (key, instruction) in
        [("a", "inv-7"), ("a", "inv-8"), ("b", "inv-7"), ("c", "inv-7"), ("a", "inv-7"), ("b", "x")]
    {
        let header = format!("Symphony-Instruction-Id: {instruction}\r\n");
        client.send(transfer(key, &header, BODY)).await;
        told.push(client.answer().await.unwrap().status);
    }
    assert_eq!(told, [501, 201, 500, 201, 502, 201]);
    assert_eq!(fixture.sandbox().faults().plan.script, []);
}

#[tokio::test]
async fn the_same_seed_strikes_the_same_requests_about_as_often_as_asked() {
    let plan = |seed: u64| {
        format!(
            r#"{{"seed": {seed}, "per_mille": {{"error_before:503": 200, "error_before:429": 100}}}}"#
        )
    };
    let mut runs = Vec::new();
    for seed in [7, 7, 8] {
        let fixture = Fixture::with_faults(&plan(seed)).await;
        let mut client = fixture.client().await;
        let mut told = Vec::new();
        for number in 0..1000 {
            told.push(client.pay(&number.to_string()).await.0);
            if number % 7 == 0 {
                client.get("/transfers/0").await; // inquiries do not move the transfers' dice
            }
        }
        let struck = fixture.sandbox().faults().injected["error_before"];
        assert!((240..=360).contains(&struck), "{struck} of about 300");
        assert_eq!(struck, 1000 - fixture.sandbox().summary().await.unwrap().executed);
        runs.push(told);
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
}

#[tokio::test]
async fn a_plan_is_replaced_over_http_and_its_counters_go_on() {
    let fixture = struck_by("error_before:500").await;
    let mut client = fixture.client().await;
    client.pay("a").await;
    let plan = r#"{"seed": 3, "per_mille": {"error_before:503": 1000}}"#;
    assert_eq!(client.put("/faults", plan).await.status, 200);
    assert_eq!(client.pay("a").await.0, 503);
    let report = client.get("/faults").await.json();
    assert_eq!(report["plan"]["per_mille"]["error_before:503"], 1000);
    assert_eq!(report["injected"]["error_before"], 2);
    let refused = client.put("/faults", r#"{"per_mille": {"dely": 1}}"#).await;
    assert_eq!(refused.status, 400);
    assert!(refused.json()["message"].as_str().unwrap().starts_with("per_mille.dely is no fault"));
    assert_eq!(client.pay("a").await.0, 503, "the old plan stays");
    client.put("/faults", "{}").await;
    assert_eq!(client.pay("a").await, created(1));
}

#[test]
fn a_fault_reads_what_it_writes() {
    let faults = [
        "none",
        "delay:250",
        "hang_before",
        "hang_after",
        "refuse:AC04",
        "error_before:503",
        "error_after:500",
        "reset_before",
        "reset_after",
        "answer_twice",
        "garbage_before",
        "garbage_after",
        "slow_drip_before",
        "slow_drip_after",
    ];
    for text in faults {
        assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
    }
    for text in ["none", "delay:250", "error:503", "hang", "garbage", "reset"] {
        assert_eq!(text.parse::<InquiryFault>().unwrap().to_string(), text);
    }
}
