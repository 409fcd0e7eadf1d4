//! Lost workers, and collectors that are away.

use serde_json::json;

use super::*;
use crate::support::processes::python_or_skip;
use crate::support::{payment, verdict};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const SHORT_LEASES: &str =
    "[worker]\nlease_seconds = 3\nlease_margin_ms = 100\nrepair_ms = [100, 200]\n";

#[tokio::test]
async fn what_a_second_worker_takes_over_stays_in_its_trace() {
    python_or_skip!();
    let (db, receiver) = (TestDb::new().await, Receiver::start().await);
    let config = receiver.config(SHORT_LEASES);
    let remote = json!({ "name": "remote", "url": receiver.url("/called/remote") });
    let trigger = json!({ "name": "q", "kind": "queue", "filter": "jobs", "script": "remote", "attempts": 20,
                          "backoffSeconds": [0] });
    db.push("shop", &json!({ "scripts": [remote], "triggers": [trigger], "queues": ["jobs"] }))
        .await;
    let trigger: Uuid = db.one("SELECT id FROM triggers").await;
    db.enqueue(&payment("inv-1", "acme", "bank").traceparent(PRODUCERS[0])).await;
    tell_event(&db, PRODUCERS[1]).await;
    let enqueue = format!(
        "SELECT id FROM enqueue_trigger_outbox('shop', 'queue', '{trigger}', '{{}}', p_traceparent => '{}')",
        PRODUCERS[2]
    );
    db.one_as::<Uuid>("symphony_ingest", &enqueue).await;
    // Nobody is answered as long as the first worker lives.
    let hang = receiver.folder.write("hang", "");
    let mut lost = Worker::start(&db, &receiver.folder, &config).await;
    until("the first worker has told of its claims", async || {
        let noted = receiver.noted();
        let claims =
            noted.spans.iter().filter(|span| span["name"].as_str().unwrap().ends_with("claim"));
        claims.map(|span| span["trace"].to_string()).collect::<BTreeSet<_>>().len() == 3
    })
    .await;
    lost.process.kill().await.unwrap();
    std::fs::remove_file(hang).unwrap();
    let other = Worker::start(&db, &receiver.folder, &config).await;
    until_paid(&db, 1).await;
    until("event and run have ended", async || {
        db.count("event_outbox_attempts WHERE state = 'DISPATCHED'").await == 1
            && db.count("trigger_outbox_executions WHERE state = 'DISPATCHED'").await == 1
    })
    .await;
    other.stop().await;

    let noted = receiver.noted();
    for producer in PRODUCERS {
        let spans = noted.of(trace_of(producer));
        let life = told(&spans);
        assert_all_part_of(&spans, span_of(producer));
        let workers: BTreeSet<&str> = spans
            .iter()
            .map(|span| span["resource"]["service.instance.id"].as_str().unwrap())
            .collect();
        assert_eq!(workers.len(), 2, "both have told of it: {life:?}");
        assert_eq!(life.iter().filter(|line| line.contains("enqueue")).count(), 1, "{life:?}");
        let end = life.last().unwrap();
        assert!(end.contains("complete") && end.ends_with("DISPATCHED"), "{life:?}");
    }
}

async fn metric(worker: &Worker, name: &str) -> u64 {
    let mut stream = tokio::net::TcpStream::connect(&worker.api).await.unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
    let wanted = format!("{name}{{lane=\"payments\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&wanted));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
}

#[tokio::test]
async fn a_collector_that_is_away_costs_spans_and_nothing_else() {
    python_or_skip!();
    let (db, receiver) = (TestDb::new().await, Receiver::start().await);
    let down = receiver.folder.write("down", "");
    let config = receiver.config("queue_max = 50\n");
    let worker = Worker::start(&db, &receiver.folder, &config).await;
    db.enqueue_stream("acme", "bank", 100).await;
    until_paid(&db, 100).await;
    until("spans are counted as dropped", async || {
        metric(&worker, "trace_spans_dropped_total").await > 0
    })
    .await;
    assert_eq!(metric(&worker, "trace_spans_exported_total").await, 0);
    std::fs::remove_file(down).unwrap();
    // The queue holds fifty: of a hundred payments some spans are lost, and those to come are not.
    until("the collector takes spans again", async || {
        db.enqueue(&payment(&Uuid::new_v4().to_string(), "acme", "bank")).await;
        metric(&worker, "trace_spans_exported_total").await > 0
    })
    .await;
    assert_eq!(worker.said("the collector takes no spans").len(), 1, "one line");
    assert_eq!(worker.said("the collector takes spans again").len(), 1);
    let enqueued = db.count("payment_outbox_instructions").await;
    until_paid(&db, enqueued).await;
    worker.stop().await;
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn nobody_waits_for_a_collector_that_never_answers() {
    python_or_skip!();
    let (db, receiver) = (TestDb::new().await, Receiver::start().await);
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/v1/traces", silent.local_addr().unwrap());
    let config = receiver.config("").replace(&receiver.url("/v1/traces"), &endpoint);
    let worker = Worker::start(&db, &receiver.folder, &config).await;
    db.enqueue_stream("acme", "bank", 100).await;
    until_paid(&db, 100).await;
    let stopping = std::time::Instant::now();
    worker.stop().await;
    assert!(stopping.elapsed().as_secs() < 10, "it stops, and gives the last spans up");
}

#[tokio::test]
async fn what_a_run_fires_is_of_its_trace_and_a_bad_traceparent_is_refused() {
    let db = TestDb::new().await;
    db.push(
        "shop",
        &crate::triggers::manifest(&[("q", "queue", "jobs"), ("d", "dead_letter", "*")]),
    )
    .await;
    let trigger: Uuid = db.one("SELECT id FROM triggers WHERE name = 'q'").await;
    let enqueue = |traceparent: &str| {
        format!(
            "SELECT id FROM enqueue_trigger_outbox('shop', 'queue', '{trigger}', '{{}}', p_traceparent => '{traceparent}')"
        )
    };
    for bad in ["", "00-zz", &PRODUCERS[0].replace("b7ad6b7169203331", "0000000000000000")] {
        let refused = verdict(&db, "symphony_ingest", &enqueue(bad)).await;
        assert!(refused.contains("P7005"), "{bad}: {refused}");
    }
    db.one_as::<Uuid>("symphony_ingest", &enqueue(PRODUCERS[0])).await;
    let mut worker = db.as_role("symphony_executor").await;
    let effects = serde_json::json!([{"kind": "queue_send", "queue": "jobs", "message": 1}]);
    let first = crate::triggers::claim_on(&mut worker, "w", 1).await;
    crate::triggers::settle_on(&mut worker, "w", &first[0], "DISPATCHED", &effects).await.unwrap();
    // Its message's run fails for good, which fires the dead letter's.
    let second = crate::triggers::claim_on(&mut worker, "w", 1).await;
    crate::triggers::settle_on(&mut worker, "w", &second[0], "FAILED", &serde_json::json!([]))
        .await
        .unwrap();
    let traces: Vec<Option<String>> = db
        .one(
            "SELECT array_agg(t ORDER BY at) FROM (
               SELECT traceparent t, created_at at FROM trigger_outbox_executions
               UNION ALL SELECT traceparent, created_at FROM trigger_outbox_pending) x",
        )
        .await;
    assert_eq!(traces, vec![Some(PRODUCERS[0].to_owned()); 3]);
    // A replay is told of in the same trace.
    let replay = format!(
        "SELECT replay_id FROM replay_trigger_execution('{}', 'dana', 'again', p_dry_run => false)",
        second[0].id
    );
    let replay: Uuid = db.one_as("symphony_operator", &replay).await;
    let of_replay = format!("SELECT traceparent FROM trigger_outbox_pending WHERE id = '{replay}'");
    assert_eq!(db.one::<String>(&of_replay).await, PRODUCERS[0]);
}
