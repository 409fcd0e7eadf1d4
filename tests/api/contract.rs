//! What the API does, as docs/API.md tells it.

use serde_json::{Value, json};

use super::{Served, payment};
use crate::approvals::parked;
use crate::support::act;

#[tokio::test]
async fn a_payment_is_asked_for_once_per_key_and_looked_up_by_either_id() {
    let served = Served::new().await;
    let shop = served.token("shop", "ingest").await;
    let reader = served.token("eve", "read").await;
    let headers = format!("Authorization: Bearer {shop}\r\nIdempotency-Key: k-1\r\n");
    let (status, first) = served.ask_with(&headers, "POST /v1/payments", &payment("inv-1")).await;
    assert_eq!((status, &first["duplicate"]), (201, &json!(false)), "{first}");
    let (status, again) = served.ask_with(&headers, "POST /v1/payments", &payment("inv-1")).await;
    assert_eq!((status, &again["outbox_id"]), (200, &first["outbox_id"]), "{again}");
    let mut other = payment("inv-1");
    other["rail_type"] = json!("sepa");
    let (status, refused) = served.ask_with(&headers, "POST /v1/payments", &other).await;
    assert_eq!((status, &refused["code"]), (409, &json!("P7004")), "{refused}");
    let (status, refused) = served.ask(&shop, "POST /v1/payments", &payment("inv-2")).await;
    assert_eq!(status, 422, "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("Idempotency-Key is missing"));
    let id = first["outbox_id"].as_str().unwrap();
    for name in [id, "inv-1"] {
        let (status, life) =
            served.ask(&reader, &format!("GET /v1/payments/{name}"), &Value::Null).await;
        assert_eq!((status, &life["state"]), (200, &json!("DUE")), "{life}");
        assert!(!life.to_string().contains("DE8937"), "scope read sees no payload: {life}");
    }
    let auditor = served.token("ann", "audit").await;
    let (_, life) = served.ask(&auditor, "GET /v1/payments/inv-1", &Value::Null).await;
    assert!(life.to_string().contains("DE8937"), "scope audit does: {life}");
    assert_eq!(served.db.count("payment_outbox_instructions").await, 1);
}

#[tokio::test]
async fn an_event_is_told_once_under_its_own_id() {
    let served = Served::new().await;
    let shop = served.token("shop", "ingest,read").await;
    let id = "6f1f7e0c-4d8e-4b8f-9d59-0d3d2f0a1b11";
    let event = json!({
        "envelope": {"v": 1, "eventId": id, "occurredAt": "2026-01-01T00:00:00Z", "tenantId": "t", "type": "events.a.b"},
        "key": {"a": "1"}, "payload": {"amount": "1.10"},
    });
    let headers = format!("Authorization: Bearer {shop}\r\nIdempotency-Key: {id}\r\n");
    assert_eq!(served.ask_with(&headers, "POST /v1/events", &event).await.0, 201);
    assert_eq!(served.ask_with(&headers, "POST /v1/events", &event).await.0, 200);
    let (status, life) = served.ask(&shop, &format!("GET /v1/events/{id}"), &Value::Null).await;
    assert_eq!(status, 200, "{life}");
    let headers = format!("Authorization: Bearer {shop}\r\nIdempotency-Key: another\r\n");
    assert_eq!(served.ask_with(&headers, "POST /v1/events", &event).await.0, 422);
    assert_eq!(served.db.count("event_outbox_log").await, 1);
}

#[tokio::test]
async fn a_payments_trace_is_the_bodys_else_the_requests_own() {
    let served = Served::new().await;
    let shop = served.token("shop", "ingest").await;
    let [header, body] = ["b7ad6b7169203331", "b7ad6b7169203332"]
        .map(|span| format!("00-0af7651916cd43dd8448eb211c80319c-{span}-01"));
    let mut with_own = payment("inv-2");
    with_own["traceparent"] = json!(body);
    for (key, traceparent, request, kept) in [
        ("k-1", header.as_str(), payment("inv-1"), Some(header.clone())),
        ("k-2", header.as_str(), with_own, Some(body)),
        ("k-3", "no trace", payment("inv-3"), None),
    ] {
        let headers = format!(
            "Authorization: Bearer {shop}\r\nIdempotency-Key: {key}\r\ntraceparent: {traceparent}\r\n"
        );
        let (status, answer) = served.ask_with(&headers, "POST /v1/payments", &request).await;
        assert_eq!(status, 201, "{answer}");
        let found = format!(
            "SELECT traceparent FROM payment_outbox_instructions WHERE idempotency_key = '{key}'"
        );
        assert_eq!(served.db.one::<Option<String>>(&found).await, kept, "{key}");
    }
}

#[tokio::test]
async fn an_act_is_done_or_asked_for_and_another_persons_token_approves_it() {
    let served = Served::new().await;
    let dana = served.token("dana", "operate").await;
    let kim = served.token("kim", "approve").await;
    let item = parked(&served.db, "inv-1").await;
    let release = json!({"arguments": {"p_outbox_id": item}, "reason": "fine"});
    let mut dry = release.clone();
    dry["dry_run"] = json!(true);
    let (status, would) = served.ask(&dana, "POST /v1/acts/release_outbox", &dry).await;
    assert_eq!((status, &would["state"]), (200, &json!("DRY_RUN")), "{would}");
    let (status, done) = served.ask(&dana, "POST /v1/acts/release_outbox", &release).await;
    assert_eq!(
        (status, &done["state"], &done["answer"]["state_after"]),
        (200, &json!("DONE"), &json!("PENDING")),
        "{done}"
    );
    served.db.database.operator().park_payment(item, &act()).await.unwrap();

    served.db.require_approval("payment").await;
    let (status, asked) = served.ask(&dana, "POST /v1/acts/release_outbox", &release).await;
    assert_eq!(
        (status, &asked["state"], &asked["request_no"]),
        (202, &json!("WAITING"), &json!(1)),
        "{asked}"
    );
    assert_eq!(served.db.state(item).await, "PARKED");
    let (_, page) = served.ask(&kim, "GET /v1/approvals?state=WAITING", &Value::Null).await;
    let rows = page["items"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["actor"]), (1, &json!("dana")), "{page}");
    let agree = json!({"reason": "I have looked"});
    let (status, answer) = served.ask(&kim, "POST /v1/approvals/1/approve", &agree).await;
    assert_eq!((status, &answer["state"]), (200, &json!("APPROVED")), "{answer}");
    assert_eq!(served.db.state(item).await, "DUE");
    let told = served.db.acts("payment_outbox_events").await;
    assert_eq!(
        told.last().unwrap(),
        "RELEASED dana kim fine",
        "the persons of the tokens, not names of a client"
    );
    let named: i64 = served
        .db
        .count("outbox_approvals a JOIN api_tokens t ON t.token_id = a.token_id JOIN api_tokens d ON d.token_id = a.decided_with_token \
                 WHERE t.person = 'dana' AND d.person = 'kim'")
        .await;
    assert_eq!(named, 1);
    served.refuses(&kim, "POST /v1/approvals/1/approve", &agree, 409, "P7006").await;
    // To stop needs nobody; to take back is for who asked.
    let pause = json!({"arguments": {}, "reason": "r"});
    assert_eq!(served.ask(&dana, "POST /v1/acts/pause_payment_lane", &pause).await.0, 200);
    assert_eq!(served.ask(&dana, "POST /v1/acts/resume_payment_lane", &pause).await.0, 202);
    let other = served.token("omar", "operate").await;
    served.refuses(&other, "POST /v1/approvals/2/withdraw", &agree, 403, "P7008").await;
    assert_eq!(served.ask(&dana, "POST /v1/approvals/2/withdraw", &agree).await.0, 200);
}

#[tokio::test]
async fn dead_letters_are_listed_by_pages_that_leave_nothing_out() {
    let served = Served::new().await;
    let reader = served.token("eve", "read").await;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(parked(&served.db, &format!("inv-{n}")).await.to_string());
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    for _ in 0..4 {
        let line = format!("GET /v1/dead-letters/payments?limit=2{after}");
        let (status, page) = served.ask(&reader, &line, &Value::Null).await;
        assert_eq!(status, 200, "{page}");
        let letters = page["letters"].as_array().unwrap();
        seen.extend(letters.iter().map(|letter| letter["outbox_id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={}", next.replace('+', "%2B"));
    }
    ids.sort();
    seen.sort();
    assert_eq!(seen, ids);
    served
        .refuses(&reader, "GET /v1/dead-letters/payments?after=x", &Value::Null, 422, "P7005")
        .await;
    served.refuses(&reader, "GET /v1/dead-letters/none", &Value::Null, 404, "P7007").await;
    for lane in ["events", "triggers"] {
        assert_eq!(
            served.ask(&reader, &format!("GET /v1/dead-letters/{lane}"), &Value::Null).await.0,
            200
        );
    }
}

#[tokio::test]
async fn executions_are_listed_by_pages_that_leave_nothing_out() {
    let served = Served::new().await;
    let reader = served.token("eve", "read").await;
    let manifest = crate::triggers::manifest(&[("t", "kv", "*")]);
    for app in ["shop", "other"] {
        served.db.push(app, &manifest).await;
    }
    for n in 0..7 {
        served.db.kv_set(if n == 3 { "other" } else { "shop" }, &format!("k-{n}"), &json!(n)).await;
    }
    // Some have ended and some have not: both are one list.
    for run in served.db.claim_items("w", 10).await.iter().take(4) {
        served.db.done("w", run, json!([])).await;
    }
    for (filter, expected) in
        [("", 7), ("&app=shop", 6), ("&state=PENDING", 3), ("&state=DISPATCHED", 4)]
    {
        let (mut seen, mut before) = (Vec::<String>::new(), String::new());
        loop {
            let line = format!("GET /v1/executions?limit=2{filter}{before}");
            let (status, page) = served.ask(&reader, &line, &Value::Null).await;
            assert_eq!(status, 200, "{page}");
            let rows = page["items"].as_array().unwrap();
            let Some(last) = rows.last() else { break };
            before = format!("&before={}", last["id"].as_str().unwrap());
            seen.extend(rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()));
            // A new one, in the middle of the reading, moves no page.
            if filter.is_empty() && seen.len() == 2 {
                served.db.kv_set("shop", "new", &json!(1)).await;
            }
        }
        let added = usize::from(filter == "&app=shop" || filter == "&state=PENDING");
        let mut sorted = seen.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!((seen.len(), sorted.len()), (expected + added, expected + added), "{filter}");
        sorted.reverse();
        assert_eq!(seen, sorted, "the newest first");
    }
}

#[tokio::test]
async fn an_app_lives_its_life_over_the_api() {
    let served = Served::new().await;
    let dana = served.token("dana", "operate").await;
    let mut manifest = crate::triggers::manifest(&[("t", "kv", "*")]);
    manifest["scripts"][0]["source"] = json!("export default () =>\n  1 +;");
    served.refuses(&dana, "PUT /v1/apps/shop", &manifest, 422, "P7005").await;
    let (_, refused) = served.ask(&dana, "PUT /v1/apps/shop", &manifest).await;
    assert_eq!(
        refused["detail"],
        "scripts[0]: script.js:2:6: unexpected token in expression: ';', in `1 +;`"
    );
    manifest["scripts"][0]["source"] = json!("import { n } from './n.js'; export default () => n");
    manifest["scripts"][0]["modules"] = json!({"n.js": "export const n = 1"});
    let (status, pushed) = served.ask(&dana, "PUT /v1/apps/shop", &manifest).await;
    assert_eq!((status, &pushed["created"]), (200, &json!(true)), "{pushed}");
    let (_, apps) = served.ask(&dana, "GET /v1/apps", &Value::Null).await;
    assert_eq!(apps["items"][0]["name"], "shop");
    served.db.kv_set("shop", "a", &json!(1)).await;
    let run = served.db.claim_item("w").await;
    served.db.done("w", &run, json!([])).await;
    let (_, ended) =
        served.ask(&dana, "GET /v1/executions?app=shop&state=DISPATCHED", &Value::Null).await;
    assert_eq!(ended["items"][0]["id"], run.id.to_string());
    assert_eq!(ended["items"][0]["runs_as"], "token dana/danas", "who pushed it: {ended}");
    let caused_by = ended["items"][0]["caused_by"].as_str().unwrap_or_default();
    assert!(caused_by.starts_with("login "), "the producer's login: {ended}");
    for path in [String::new(), "/tree".to_owned()] {
        assert_eq!(
            served
                .ask(&dana, &format!("GET /v1/executions/{}{path}", run.id), &Value::Null)
                .await
                .0,
            200
        );
    }
    let replay = json!({"arguments": {"p_id": run.id}, "reason": "again"});
    assert_eq!(served.ask(&dana, "POST /v1/acts/replay_trigger_execution", &replay).await.0, 200);
    served.refuses(&dana, "PUT /v1/apps/Shop", &json!({}), 422, "P7005").await;
    served.refuses(&dana, "PUT /v1/apps/shop", &json!({"routes": 1}), 422, "P7005").await;
    served.db.require_approval("trigger").await;
    served.refuses(&dana, "PUT /v1/apps/shop", &manifest, 403, "P7008").await;
    assert_eq!(served.ask(&dana, "PUT /v1/apps/shop?reason=better", &manifest).await.0, 202);
    let actors: i64 = served.db.count("trigger_outbox_events WHERE actor <> 'dana'").await;
    assert_eq!(actors, 0, "the token's person is the actor");
}

#[tokio::test]
async fn the_document_names_every_address_and_what_it_answers() {
    let served = Served::new().await;
    let (status, document) = served.ask_with("", "GET /openapi.json", &Value::Null).await;
    assert_eq!((status, document["info"]["title"].as_str()), (200, Some("Symphony")));
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 33, "{:?}", paths.keys());
    for (path, methods) in paths.iter().filter(|(path, _)| path.starts_with("/v1/")) {
        for (method, operation) in methods.as_object().unwrap() {
            for status in ["401", "403", "422", "429", "503"] {
                assert!(
                    operation["responses"][status].is_object(),
                    "{method} {path} lacks {status}"
                );
            }
            let good = operation["responses"]
                .as_object()
                .unwrap()
                .keys()
                .any(|status| status.starts_with('2'));
            assert!(good, "{method} {path}");
        }
    }
    assert!(document["components"]["securitySchemes"]["bearer"].is_object());
}

#[tokio::test]
async fn a_token_is_shown_once_and_only_its_hash_is_kept() {
    let served = Served::new().await;
    let made = served.token_command("create --name shop --person shop --scope ingest,read").await;
    let token = made["token"].as_str().unwrap();
    assert_eq!(token.len(), "symphony_".len() + 64);
    let listed = served.token_command("list").await;
    assert_eq!((&listed[0]["state"], &listed[0]["person"]), (&json!("VALID"), &json!("shop")));
    assert!(!listed.to_string().contains(&token[9..]), "{listed}");
    let kept: bool = served
        .db
        .one(&format!("SELECT token_hash = sha256('{token}') AND NOT EXISTS (SELECT FROM api_tokens t WHERE t::text LIKE '%{token}%') FROM api_tokens"))
        .await;
    assert!(kept);
    for role in ["ingest", "operator", "approver", "readonly", "auditor", "auth", "executor"] {
        let read = "SELECT token_hash FROM symphony.api_tokens";
        assert_eq!(
            crate::support::verdict(&served.db, &format!("symphony_{role}"), read).await,
            "42501",
            "{role}"
        );
    }
}
