use super::*;

#[tokio::test]
async fn malformed_requests_get_their_status_and_the_door() {
    let fixture = Fixture::new().await;
    let long = "x".repeat(17 * 1024);
    let many = "A: b\r\n".repeat(65);
    let cases = [
        ("nonsense\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/9.9\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nContent-Length: +1\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n".to_owned(), 400),
        (transfer("a", "Idempotency-Key: b\r\n", BODY), 400),
        ("POST /transfers HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(), 411),
        ("POST /transfers HTTP/1.1\r\nContent-Length: 2097153\r\n\r\n".to_owned(), 413),
        (format!("GET / HTTP/1.1\r\nA: {long}\r\n\r\n"), 431),
        (format!("GET / HTTP/1.1\r\n{many}\r\n"), 431),
    ];
    for (request, status) in cases {
        let mut client = fixture.client().await;
        client.send(&request).await;
        let answer = client.answer().await.unwrap();
        assert_eq!((answer.status, answer.closes), (status, true), "{request}");
        assert_eq!(client.read_to_the_end().await, (Vec::new(), false), "{request}");
    }
    assert_eq!(fixture.sandbox().summary().await.unwrap().executed, 0);
}

#[tokio::test]
async fn improper_transfers_are_answered_400_and_the_connection_goes_on() {
    let fixture = Fixture::new().await;
    let mut client = fixture.client().await;
    let length = BODY.len();
    let cases = [
        (format!("POST /transfers HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{BODY}"), 400),
        (transfer("", "", BODY), 400),
        (transfer("a b", "", BODY), 400),
        (transfer(&"k".repeat(256), "", BODY), 400),
        (transfer("a", "", ""), 400),
        (transfer("a", "", "[1]"), 400),
        (transfer("a", "", r#"[{"value": "1.00", "currency": "EUR"}]"#), 400),
        (transfer("a", "", "{\"amount\": "), 400),
        (transfer("a", "Symphony-Sequence-Id: x\r\n", BODY), 400),
        (transfer("a", "Symphony-Instruction-Id: %zz\r\n", BODY), 400),
        (transfer("a", "Symphony-Participant-Id: %ff\r\n", BODY), 400),
        ("GET /transfers/ HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET /transfers/a%20b HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("DELETE /transfers HTTP/1.1\r\n\r\n".to_owned(), 405),
    ];
    for (request, status) in cases {
        client.send(&request).await;
        assert_eq!(client.answer().await.unwrap().status, status, "{request}");
    }
    assert_eq!(client.pay("a").await, created(1));
}

#[tokio::test]
async fn requests_may_come_in_pieces_or_several_at_once() {
    let fixture = Fixture::new().await;
    let mut client = fixture.client().await;
    for byte in transfer("a", "", BODY).bytes() {
        client.send([byte]).await;
    }
    assert_eq!(client.answer().await.unwrap().told(), created(1));
    client.send(transfer("b", "", BODY) + &transfer("c", "", BODY) + "GET /hea").await;
    assert_eq!(client.answer().await.unwrap().told(), created(2));
    assert_eq!(client.answer().await.unwrap().told(), created(3));
    client.send("lthz HTTP/1.1\r\nConnection: close\r\n\r\n").await;
    let last = client.answer().await.unwrap();
    assert_eq!((last.status, last.closes), (200, true));
    assert_eq!(client.read_to_the_end().await, (Vec::new(), false));
}

#[tokio::test]
async fn a_body_of_two_mebibytes_fits_and_is_asked_for() {
    let fixture = Fixture::new().await;
    let mut client = fixture.client().await;
    let filler = "x".repeat(2 * 1024 * 1024 - 64);
    let body = format!(r#"{{"amount":{{"value":"1","currency":"JPY"}},"x":"{filler}"}}"#);
    let request = transfer("a", "Expect: 100-continue\r\n", &body);
    let (head, body) = request.split_at(request.len() - body.len());
    client.send(head).await;
    let mut go_on = [0; 25];
    client.stream.read_exact(&mut go_on).await.unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.send(body).await;
    assert_eq!(client.answer().await.unwrap().told(), created(1));
}

#[tokio::test]
async fn a_half_sent_request_never_executes() {
    let fixture = Fixture::new().await;
    let mut client = fixture.client().await;
    let request = transfer("a", "", BODY);
    client.send(&request[..request.len() - 1]).await;
    client.stream.shutdown().await.unwrap();
    assert_eq!(client.read_to_the_end().await, (Vec::new(), false));
    assert_eq!(fixture.executions_of("a"), 0);
}

#[tokio::test]
async fn a_silent_connection_is_closed() {
    let fixture = Fixture::with(|settings| settings.idle_timeout_ms = 20).await;
    let mut client = fixture.client().await;
    assert_eq!(client.read_to_the_end().await, (Vec::new(), false));
    let mut slow = fixture.client().await;
    slow.send("POST /transfers HTTP/1.1\r\n").await;
    assert_eq!(slow.read_to_the_end().await, (Vec::new(), false));
}

#[tokio::test]
async fn one_connection_too_many_is_told_so() {
    let fixture = Fixture::with(|settings| settings.connections_max = 2).await;
    let (mut first, mut second) = (fixture.client().await, fixture.client().await);
    first.pay("a").await;
    second.pay("b").await;
    let mut third = fixture.client().await;
    let answer = third.answer().await.unwrap();
    assert_eq!((answer.status, answer.closes), (503, true));
    assert_eq!(first.pay("c").await, created(3));
}

#[tokio::test]
async fn a_stop_lets_the_answer_under_way_leave_and_closes_the_rest() {
    let plan = r#"{"script": [{"any": true, "faults": ["delay:600000"]}]}"#;
    let mut fixture = Fixture::with_faults(plan).await;
    let (mut busy, mut idle) = (fixture.client().await, fixture.client().await);
    busy.send(transfer("a", "", BODY)).await;
    fixture.until_struck().await;
    let summary = fixture.sandbox.take().unwrap().stop().await.unwrap();
    assert_eq!(summary.executed, 1);
    assert_eq!(busy.answer().await.unwrap().told(), created(1));
    assert_eq!(idle.read_to_the_end().await, (Vec::new(), false));
}
