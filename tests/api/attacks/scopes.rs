//! Scopes that reach for more.

use serde_json::{Value, json};
use sqlx::ConnectOptions as _;
use symphony::db::{Database, RoleSource};
use symphony_server::api::Api;
use symphony_server::config::ApiSection;
use symphony_server::http_server::HttpServerSettings;

use super::{STATUS, Served, payment, with_token};
use crate::approvals::{Person, parked};

/// One request for each kind of thing that can be done; all are well formed.
fn requests(item: &str) -> [(&'static str, &'static str, Value); 7] {
    let act = json!({"arguments": {"p_outbox_id": item}, "reason": "r"});
    [
        ("look", STATUS, Value::Null),
        ("look", "GET /v1/payments/inv-1", Value::Null),
        ("operate", "POST /v1/acts/release_outbox", act),
        ("operate", "PUT /v1/apps/Bad", json!({})),
        ("operate", "POST /v1/approvals/99/withdraw", json!({"reason": "r"})),
        ("approve", "POST /v1/approvals/99/approve", json!({"reason": "r"})),
        ("ingest", "POST /v1/events", json!({})),
    ]
}

/// A token of this scope may do these kinds of things and is refused all others.
async fn reaches(scope: &str, kinds: &[&str]) {
    let served = Served::new().await;
    let item = parked(&served.db, "inv-1").await;
    let token = served.token("eve", scope).await;
    for (kind, line, body) in requests(&item.to_string()) {
        let (status, problem) = served.ask(&token, line, &body).await;
        let refused = (status, problem["code"].as_str()) == (403, Some("SCOPE_MISSING"));
        assert_eq!(!refused, kinds.contains(&kind), "{scope} {line}: {status} {problem}");
    }
    if scope != "operate" {
        assert_eq!(served.db.state(item).await, "PARKED");
    }
}

#[tokio::test]
async fn a_producer_can_only_enqueue() {
    reaches("ingest", &["ingest"]).await;
}

#[tokio::test]
async fn a_reader_can_only_look() {
    reaches("read", &["look"]).await;
}

#[tokio::test]
async fn an_auditor_can_only_look() {
    reaches("audit", &["look"]).await;
}

#[tokio::test]
async fn an_approver_can_neither_act_nor_enqueue() {
    reaches("approve", &["look", "approve"]).await;
}

#[tokio::test]
async fn an_operator_can_neither_approve_nor_enqueue() {
    reaches("operate", &["look", "operate"]).await;
}

#[tokio::test]
async fn a_reader_is_shown_no_payload_by_any_address() {
    let served = Served::new().await;
    let shop = with_token(&served.token("shop", "ingest").await) + "Idempotency-Key: k\r\n";
    let (_, made) = served.ask_with(&shop, "POST /v1/payments", &payment("inv-1")).await;
    let reader = served.token("eve", "read").await;
    for line in [
        "GET /v1/payments/inv-1".to_owned(),
        format!("GET /v1/payments/{}", made["outbox_id"].as_str().unwrap()),
        "GET /v1/dead-letters/payments".to_owned(),
    ] {
        let (status, told) = served.ask(&reader, &line, &Value::Null).await;
        assert!(status == 200 && !told.to_string().contains("DE8937"), "{line}: {told}");
    }
}

#[tokio::test]
async fn only_acts_are_called_by_their_names() {
    let served = Served::new().await;
    let operator = served.token("eve", "operate,approve").await;
    let body = json!({"arguments": {}, "reason": "r"});
    for name in [
        "create_api_token",
        "approve_outbox_request",
        "enqueue_payment_outbox",
        "claim_outbox_batch",
        "complete_outbox_attempt",
        "do_outbox_act",
        "pg_sleep",
        "pg_read_file",
        "symphony.park_outbox",
        "park_outbox()",
        "park_outbox%3B",
    ] {
        served.refuses(&operator, &format!("POST /v1/acts/{name}"), &body, 422, "P7005").await;
    }
}

#[tokio::test]
async fn no_body_names_an_actor_an_approver_or_a_role() {
    let served = Served::new().await;
    let item = parked(&served.db, "inv-1").await;
    let operator = served.token("eve", "operate").await;
    let line = "POST /v1/acts/release_outbox";
    for (name, value) in
        [("actor", "omar"), ("approver", "kim"), ("role", "symphony_control"), ("person", "kim")]
    {
        let mut body = json!({"arguments": {"p_outbox_id": item}, "reason": "r"});
        body[name] = json!(value);
        served.refuses(&operator, line, &body, 422, "P7005").await;
        let body = json!({"arguments": {"p_outbox_id": item, (format!("p_{name}")): value}, "reason": "r"});
        served.refuses(&operator, line, &body, 422, "P7005").await;
    }
    assert_eq!(served.db.state(item).await, "PARKED");
}

#[tokio::test]
async fn a_scope_that_the_servers_login_was_not_granted_opens_nothing() {
    let served = Served::new().await;
    let item = parked(&served.db, "inv-1").await;
    let login = Person::new(&served.db, "symphony_executor, symphony_readonly").await.options;
    let database =
        Database::connect(login.disable_statement_logging(), 2, RoleSource::EachTransaction)
            .await
            .unwrap();
    let section = ApiSection::at("127.0.0.1:0");
    let narrow =
        Api::start(&section, database, Vec::new(), HttpServerSettings::default()).await.unwrap();
    let token = served.token("eve", "operate").await;
    let reader = served.token("ann", "read").await;
    let served = Served { api: narrow, ..served };
    let body = json!({"arguments": {"p_outbox_id": item}, "reason": "r"});
    let (status, problem) = served.ask(&token, "POST /v1/acts/release_outbox", &body).await;
    assert_eq!(status, 403, "{problem}");
    assert_eq!(served.ask(&reader, STATUS, &Value::Null).await.0, 200);
    assert_eq!(served.db.state(item).await, "PARKED");
}

#[tokio::test]
async fn a_token_of_several_scopes_acts_in_each_request_as_one_role() {
    let served = Served::new().await;
    let token = served.token("eve", "ingest,read").await;
    let made = with_token(&token) + "Idempotency-Key: k\r\n";
    assert_eq!(served.ask_with(&made, "POST /v1/payments", &payment("inv-1")).await.0, 201);
    let (_, life) = served.ask(&token, "GET /v1/payments/inv-1", &Value::Null).await;
    assert!(!life.to_string().contains("DE8937"), "to enqueue shows nothing: {life}");
}
