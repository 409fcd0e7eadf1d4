//! One trace for an item's whole life, in each lane.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::support::payment;
use crate::support::processes::python_or_skip;
use crate::triggers::apps::{script, trigger};
use symphony::domain::Payload;

#[tokio::test]
async fn a_payment_is_one_trace_from_its_producers_span_through_a_retry_to_the_ledger() {
    python_or_skip!();
    let (db, receiver) = (TestDb::new().await, Receiver::start().await);
    let secret = format!(
        r#"{{"amount": {{"value": "10.00", "currency": "EUR"}}, "destination": {{"iban": "DE89370400440532013000"}}, "memo": "{CANARY}"}}"#
    );
    let request = |name: &str, traceparent: &str| {
        let payload = Payload::parse(&secret).unwrap();
        symphony::payments::PaymentRequest { payload, ..payment(name, "acme", "bank") }
            .traceparent(traceparent)
    };
    db.enqueue(&request("busy-1", PRODUCERS[0])).await;
    // Its producer has it not collected.
    let unsampled = PRODUCERS[1].replace("-01", "-00");
    db.enqueue(&request("plain-2", &unsampled)).await;
    // Nobody has begun a trace.
    let own = db.enqueue(&payment("plain-3", "acme", "bank")).await;
    // Its outcome is unknown at first.
    db.enqueue(&request("drop-4", PRODUCERS[2])).await;
    let worker = Worker::start(&db, &receiver.folder, &receiver.config("")).await;
    until_paid(&db, 4).await;
    let unknown = worker.said("the outcome is unknown");
    assert_eq!(unknown.len(), 1);
    assert_eq!(unknown[0]["trace_id"], trace_of(PRODUCERS[2]), "a log line names its trace");
    worker.stop().await;

    let noted = receiver.noted();
    let spans = noted.of(trace_of(PRODUCERS[0]));
    assert_all_part_of(&spans, span_of(PRODUCERS[0]));
    let mut life = told(&spans);
    life.sort();
    assert_eq!(
        life,
        [
            "payments claim 1",
            "payments claim 1",
            "payments complete 1 DISPATCHED",
            "payments complete 1 RETRYABLE",
            "payments dispatch 1 DISPATCHED",
            "payments dispatch 1 RETRYABLE RAIL_RETRYABLE",
            "payments enqueue 1",
            "payments wait 1",
            "payments wait 1",
        ]
    );
    // What the bank was called with names the dispatch, another one at every try.
    let dispatches: Vec<&Value> =
        spans.iter().copied().filter(|span| span["name"] == "payments dispatch").collect();
    assert_eq!(dispatches.len(), 2);
    for dispatch in dispatches {
        let id = dispatch["id"].as_str().unwrap();
        let header = format!("00-{}-{id}-01", trace_of(PRODUCERS[0]));
        assert!(noted.callers("/pay").contains(&header.as_str()), "{header}");
        assert_eq!(dispatch["attributes"]["symphony.rail"], "bank");
        assert_eq!(dispatch["kind"], 3, "a client's span");
        assert_eq!(dispatch["resource"]["service.name"], "symphony");
    }
    assert!(noted.of(trace_of(PRODUCERS[1])).is_empty(), "its producer did not want it");
    assert!(noted.callers("/pay").contains(&unsampled.as_str()), "and it was passed on");
    let own = own.outbox_id.to_string().replace('-', "");
    let spans = noted.of(&own);
    let first: Vec<_> = spans.iter().filter(|span| span["parent"] == "").collect();
    assert_eq!(first.len(), 1, "whoever knows the payment's id finds its trace");
    assert_eq!(first[0]["name"], "payments enqueue");
    let authorized = std::fs::read_to_string(receiver.folder.0.join("journal")).unwrap();
    assert!(authorized.contains("Bearer collector"), "the header that was configured");
}

#[tokio::test]
async fn an_event_is_one_trace_through_a_retry_and_its_body_stays_the_same() {
    python_or_skip!();
    let (db, receiver) = (TestDb::new().await, Receiver::start().await);
    tell_event(&db, PRODUCERS[0]).await;
    let worker = Worker::start(&db, &receiver.folder, &receiver.config("")).await;
    until("it is published", async || {
        db.count("event_outbox_attempts WHERE state = 'DISPATCHED'").await == 1
    })
    .await;
    worker.stop().await;

    let noted = receiver.noted();
    let spans = noted.of(trace_of(PRODUCERS[0]));
    assert_all_part_of(&spans, span_of(PRODUCERS[0]));
    let mut life = told(&spans);
    life.sort();
    assert_eq!(
        life,
        [
            "events claim 1",
            "events claim 2",
            "events complete 1 UNKNOWN",
            "events complete 2 DISPATCHED",
            "events dispatch 1 UNKNOWN RECEIVER_FAILED",
            "events dispatch 2 DISPATCHED",
            "events enqueue 1",
            "events wait 1",
        ]
    );
    let callers = noted.callers("/hook");
    assert_eq!(callers.len(), 2);
    for caller in &callers {
        assert_eq!(trace_of(caller), trace_of(PRODUCERS[0]));
        let dispatch = spans.iter().find(|span| span["id"] == span_of(caller)).unwrap();
        assert_eq!(dispatch["name"], "events dispatch");
        assert_eq!(dispatch["attributes"]["symphony.topic"], "hooks/books");
    }
    assert_ne!(callers[0], callers[1], "each try is a span of its own");
    assert_eq!(noted.calls[0]["body"], noted.calls[1]["body"]);
    assert!(noted.calls[0]["body"].as_str().unwrap().contains(PRODUCERS[0]));
}

async fn get(address: SocketAddr, path: &str, header: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: apps\r\n{header}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_request_is_one_trace_with_all_that_its_script_fires_and_calls() {
    python_or_skip!();
    let (db, receiver) = (TestDb::new().await, Receiver::start().await);
    let orders = format!(
        r#"export default (request) => {{
             fetch("{}"); fetch("{}", {{ headers: {{ traceparent: "mine" }} }});
             queue.send("jobs", {{ memo: "{CANARY}" }}); return {{ status: 200 }}; }}"#,
        receiver.url("/called/orders"),
        receiver.url("/called/own"),
    );
    let work = format!(
        r#"export default (request) => {{
             if (request.attempt === 1) throw new Error("{CANARY}");
             fetch("{}"); kv.set("order/1", {{ memo: "{CANARY}" }}); }}"#,
        receiver.url("/called/work"),
    );
    let remote = json!({ "name": "remote", "url": receiver.url("/called/remote") });
    db.push(
        "shop",
        &json!({
            "scripts": [script("orders", &orders), script("work", &work), remote],
            "routes": [{ "method": "GET", "path": "/orders", "script": "orders" }],
            "triggers": [trigger("work", "queue", "jobs", "work"), trigger("remote", "kv", "order/*", "remote")],
            "queues": ["jobs"],
        }),
    )
    .await;
    let worker = Worker::start(&db, &receiver.folder, &receiver.config("")).await;
    let header = format!("traceparent: {}", PRODUCERS[0]);
    let answer = get(worker.apps, "/apps/shop/orders", &header).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // What is no trace context is as good as none, and no error.
    let answer = get(worker.apps, "/apps/shop/orders", "traceparent: 00-zz").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    until("all has run", async || {
        db.count("trigger_outbox_executions WHERE state = 'DISPATCHED'").await == 6
    })
    .await;
    worker.stop().await;

    let noted = receiver.noted();
    let spans = noted.of(trace_of(PRODUCERS[0]));
    assert_all_part_of(&spans, span_of(PRODUCERS[0]));
    let (claims, mut life): (Vec<_>, Vec<_>) =
        told(&spans).into_iter().partition(|line| line.contains("claim") || line.contains("wait"));
    life.sort();
    // Of the message's consumer, which failed once, and of what watches the entry; the request's own if the process had no
    // slot for it at once.
    for claim in ["triggers claim 1", "triggers claim 2", "triggers wait 1", "triggers wait 2"] {
        assert!(claims.iter().any(|told| told == claim), "{claims:?}");
    }
    assert_eq!(
        life,
        [
            "triggers complete 1 DISPATCHED",
            "triggers complete 1 DISPATCHED",
            "triggers complete 1 RETRYABLE",
            "triggers complete 2 DISPATCHED",
            "triggers dispatch 1 DISPATCHED",
            "triggers dispatch 1 DISPATCHED",
            "triggers dispatch 1 RETRYABLE SCRIPT_ERROR",
            "triggers dispatch 2 DISPATCHED",
            "triggers enqueue 1",
            "triggers enqueue 1",
            "triggers enqueue 1",
        ]
    );
    for path in ["/called/orders", "/called/work", "/called/remote"] {
        let callers = noted.callers(path);
        assert_eq!(callers.len(), 2, "{path}");
        let caller = callers.iter().find(|caller| trace_of(caller) == trace_of(PRODUCERS[0]));
        let dispatch = spans.iter().find(|span| span["id"] == span_of(caller.unwrap())).unwrap();
        assert_eq!(dispatch["name"], "triggers dispatch", "{path}");
        assert_eq!(dispatch["attributes"]["symphony.app"], "shop");
    }
    assert_eq!(noted.callers("/called/own"), ["mine", "mine"], "a script's own stands");
    // The other request has a trace of its own, named after it, with all that it fired.
    let root: Uuid = db
        .one("SELECT id FROM trigger_outbox_executions WHERE parent_execution_id IS NULL AND traceparent IS NULL")
        .await;
    let spans = noted.of(&root.simple().to_string());
    assert!(spans.len() >= 17, "{:?}", told(&spans));
    let first = spans.iter().find(|span| span["parent"] == "").unwrap();
    let first = first["id"].as_str().unwrap();
    let rest: Vec<&Value> = spans.iter().copied().filter(|span| span["id"] != first).collect();
    assert_all_part_of(&rest, first);
}
