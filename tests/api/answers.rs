//! Real requests and answers of every address, against the served document.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::{Served, payment, raw};
use crate::console::Scene;

const EVENT: &str = "6f1f7e0c-4d8e-4b8f-9d59-0d3d2f0a1b11";

/// What was asked and answered, filed under the document's name of the address.
struct Exchanges<'a> {
    served: &'a Served,
    token: String,
    kept: Vec<Value>,
}

impl Exchanges<'_> {
    async fn ask(&mut self, method: &str, template: &str, path: &str, asked: &Value) -> Value {
        let body = if asked.is_null() { String::new() } else { asked.to_string() };
        let kind = if asked.is_null() { "" } else { "Content-Type: application/json\r\n" };
        let text = format!(
            "{} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nIdempotency-Key: {EVENT}\r\n{kind}\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            method.to_uppercase(),
            self.token,
            body.len()
        );
        let answer = raw(self.served.api.address(), text.as_bytes()).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
        let kind = head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap();
        let kind = kind.split(';').next().unwrap();
        let answer =
            if kind.ends_with("json") { serde_json::from_str(body).unwrap() } else { json!(body) };
        self.kept.push(json!({
            "method": method, "template": template, "asked": asked, "status": status, "kind": kind, "answer": answer,
        }));
        answer
    }

    /// Something that was there: an empty list would prove nothing.
    async fn get(&mut self, template: &str, path: &str) -> Value {
        let answer = self.ask("get", template, path, &Value::Null).await;
        let status = self.kept.last().unwrap()["status"].as_u64().unwrap();
        assert_eq!(status, 200, "{path}: {answer}");
        for list in [Some(&answer), answer.get("items"), answer.get("letters")] {
            if let Some(Value::Array(rows)) = list {
                assert!(!rows.is_empty(), "{path} lists something");
            }
        }
        answer
    }
}

#[tokio::test]
async fn every_answer_is_as_the_served_document_says() {
    let Some(python) = python_with_jsonschema() else {
        assert!(
            std::env::var_os("SYMPHONY_REQUIRE_BROKERS").is_none(),
            "no python3 here has jsonschema: pip install jsonschema"
        );
        println!("passed over: no python3 here has jsonschema");
        return;
    };
    let scene = Scene::new().await;
    let served = &scene.served;
    served
        .db
        .sql(&format!(
            "INSERT INTO payment_outbox_events (event_type, outbox_id, worker_id, details) \
             VALUES ('LATE_OUTCOME', '{}', 'w', '{{\"state\": \"DISPATCHED\", \"rail_reference\": \"R\"}}')",
            scene.failed
        ))
        .await;
    served.db.sql("UPDATE outbox_destinations SET reported_at = now() + INTERVAL '1 hour'").await;
    let token = served.token("eve", "ingest,operate,approve,audit").await;
    let kim = served.token("kim", "approve").await;
    let mut seen = Exchanges { served, token: token.clone(), kept: Vec::new() };
    seen.ask("post", "/v1/payments", "/v1/payments", &payment("inv-1")).await;
    seen.ask("post", "/v1/payments", "/v1/payments", &payment("inv-1")).await;
    let event = json!({
        "envelope": {"v": 1, "eventId": EVENT, "occurredAt": "2026-01-01T00:00:00Z", "tenantId": "t", "type": "events.a.b"},
        "key": {"a": "1"}, "payload": {"amount": "1.10", "list": [1, {"a": null}]},
    });
    seen.ask("post", "/v1/events", "/v1/events", &event).await;
    seen.ask("post", "/v1/events", "/v1/events", &event).await;
    for id in [scene.parked.to_string(), scene.failed.to_string(), "inv-1".to_owned()] {
        seen.get("/v1/payments/{id}", &format!("/v1/payments/{id}")).await;
    }
    for id in [scene.event.to_string(), EVENT.to_owned()] {
        seen.get("/v1/events/{id}", &format!("/v1/events/{id}")).await;
    }
    seen.get("/v1/status", "/v1/status").await;
    for lane in ["payments", "events", "triggers"] {
        seen.get("/v1/dead-letters/{lane}", &format!("/v1/dead-letters/{lane}")).await;
    }
    for list in LISTS {
        seen.get(list, list).await;
    }
    let participant = "/v1/participants/acme";
    seen.get("/v1/participants/{id}", participant).await;
    let stream = format!("{participant}/payments");
    seen.get("/v1/participants/{id}/payments", &stream).await;

    let acts = "/v1/acts/{act}";
    let release = |id: &str| json!({"arguments": {"p_outbox_id": id}, "reason": "r"});
    seen.ask("post", acts, "/v1/acts/release_outbox", &release(&scene.parked.to_string())).await;
    let mut many = json!({"arguments": [{"p_outbox_id": scene.failed}, {"p_outbox_id": EVENT}], "reason": "r", "dry_run": true});
    seen.ask("post", acts, "/v1/acts/redrive_outbox", &many).await;
    many["dry_run"] = json!(false);
    many["request_approval"] = json!(true);
    seen.ask("post", acts, "/v1/acts/redrive_outbox", &many).await;
    let mut asked = release("");
    asked["request_approval"] = json!(true);
    for app in ["shop", "shop", "shop"] {
        asked["arguments"] = json!({"p_app": app});
        seen.ask("post", acts, "/v1/acts/resume_app", &asked).await;
        seen.ask("post", acts, "/v1/acts/pause_app", &asked).await;
    }
    let delete = json!({"arguments": {"p_app": "shop"}, "reason": "r", "request_approval": true});
    let mut numbers = Vec::new();
    for _ in 0..3 {
        let answer = seen.ask("post", acts, "/v1/acts/delete_app", &delete).await;
        numbers.push(answer["request_no"].as_i64().unwrap());
    }
    seen.get("/v1/approvals", "/v1/approvals").await;
    let decision = json!({"reason": "r"});
    for (number, end) in numbers.iter().zip(["withdraw", "reject", "approve"]) {
        seen.token.clone_from(if end == "withdraw" { &token } else { &kim });
        let template = format!("/v1/approvals/{{number}}/{end}");
        let answer =
            seen.ask("post", &template, &format!("/v1/approvals/{number}/{end}"), &decision).await;
        assert!(answer["state"].is_string(), "{answer}");
        seen.get("/v1/approvals/{number}", &format!("/v1/approvals/{number}")).await;
    }
    seen.token.clone_from(&token);
    let app = "/v1/apps/{app}";
    let mut manifest = crate::triggers::manifest(&[("t", "kv", "*")]);
    manifest["scripts"][0]["source"] = json!("export default () => 1");
    seen.ask("put", app, "/v1/apps/stall", &manifest).await;
    served.db.require_approval("trigger").await;
    seen.ask("put", app, "/v1/apps/stall?reason=r", &manifest).await;
    seen.get("/v1/apps", "/v1/apps").await;
    seen.get(app, "/v1/apps/stall").await;
    served.db.kv_set("stall", "a", &json!({"b": 1})).await;
    seen.get("/v1/executions", "/v1/executions").await;
    for id in [scene.execution, served.db.claim_item("w").await.id] {
        seen.get("/v1/executions/{id}", &format!("/v1/executions/{id}")).await;
        seen.get("/v1/executions/{id}/tree", &format!("/v1/executions/{id}/tree")).await;
    }
    for open in ["/healthz", "/readyz", "/metrics", "/openapi.json", "/schemas/app.json"] {
        seen.get(open, open).await;
    }
    // Refusals are answers too.
    seen.ask("get", "/v1/payments/{id}", "/v1/payments/none", &Value::Null).await;
    seen.ask("get", "/v1/incidents", "/v1/incidents?lane=none", &Value::Null).await;
    seen.token = "none".to_owned();
    seen.ask("get", "/v1/status", "/v1/status", &Value::Null).await;

    let (_, document) = served.ask_with("", "GET /openapi.json", &Value::Null).await;
    let named: BTreeSet<String> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(move |method| format!("{method} {path}"))
        })
        .collect();
    let text = |one: &Value, name: &str| one[name].as_str().unwrap().to_owned();
    let asked: BTreeSet<String> = seen
        .kept
        .iter()
        .map(|one| format!("{} {}", text(one, "method"), text(one, "template")))
        .collect();
    assert_eq!(asked, named, "every address of the document is asked, and no other");
    assert!(!document.to_string().contains("\"schema\":{}"), "every answer has a type");
    let told = compared(&python, &json!({"document": document, "exchanges": seen.kept})).await;
    assert_eq!(told.trim(), format!("compared {}", seen.kept.len()), "{told}");
}

/// The lists that take nothing but a page.
pub const LISTS: [&str; 12] = [
    "/v1/incidents",
    "/v1/pauses",
    "/v1/destinations",
    "/v1/rails",
    "/v1/topics",
    "/v1/workers",
    "/v1/leases",
    "/v1/participants",
    "/v1/audit",
    "/v1/approvals",
    "/v1/apps",
    "/v1/executions",
];

/// The tests' own Python, or the machine's.
fn python_with_jsonschema() -> Option<String> {
    let own = std::env::var("SYMPHONY_BROKER_PYTHON").ok();
    own.into_iter().chain(["python3".to_owned()]).find(|python| {
        let asked = std::process::Command::new(python)
            .args(["-c", "import jsonschema, referencing"])
            .stderr(std::process::Stdio::null())
            .status();
        asked.is_ok_and(|status| status.success())
    })
}

async fn compared(python: &str, given: &Value) -> String {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/api/answers.py");
    let mut child = tokio::process::Command::new(python)
        .arg(program)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(given.to_string().as_bytes()).await.unwrap();
    drop(input);
    let told = child.wait_with_output().await.unwrap();
    String::from_utf8(told.stdout).unwrap()
}
