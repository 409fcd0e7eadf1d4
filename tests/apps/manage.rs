//! The management API, over real HTTP.

use std::net::SocketAddr;

use serde_json::{Value, json};
use symphony_server::api::Api;
use symphony_server::http_server::HttpServerSettings;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Platform, request, route, script, trigger};
use crate::support::{TestDb, until};

/// One request as an actor, to a host; answers the status and the body.
async fn manage(
    address: SocketAddr,
    line: &str,
    host: &str,
    actor: Option<&str>,
    body: &Value,
) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let actor = actor.map(|actor| format!("X-Symphony-Actor: {actor}\r\n")).unwrap_or_default();
    let text = format!(
        "{line} HTTP/1.1\r\nHost: {host}\r\n{actor}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

#[tokio::test]
async fn an_app_lives_its_life_over_the_management_api() {
    let db = TestDb::new().await;
    let api =
        Api::start("127.0.0.1:0", db.database.clone(), Vec::new(), HttpServerSettings::default())
            .await
            .unwrap();
    let at = api.address();
    let ask =
        async |line: &str, body: Value| manage(at, line, "localhost", Some("dana"), &body).await;
    let manifest = json!({
        "scripts": [script("s", "export default r => { kv.set('k', 1); return 'yes' }"), script("w", "export default () => { throw new Error('no') }")],
        "routes": [route("GET", "/", "s")],
        "triggers": [trigger("t", "kv", "k", "w")],
    });
    let (status, pushed) = ask("PUT /manage/apps/shop", manifest).await;
    assert_eq!(
        (status, &pushed["created"], &pushed["scripts_changed"]),
        (200, &json!(true), &json!(2)),
        "{pushed}"
    );
    let platform = Platform::start(&db).await;
    assert_eq!(request(platform.http(), "GET", "/apps/shop/", "").await.unwrap().body, "\"yes\"");
    until("its trigger has failed for good", async || db.is_idle().await).await;
    let (_, apps) = ask("GET /manage/apps", Value::Null).await;
    assert_eq!((&apps[0]["name"], &apps[0]["triggers"]), (&json!("shop"), &json!(1)));
    let (_, failed) = ask("GET /manage/executions?app=shop&state=FAILED", Value::Null).await;
    let id = failed[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(
        (failed.as_array().unwrap().len(), &failed[0]["error_code"]),
        (1, &json!("SCRIPT_ERROR"))
    );
    let (_, tree) = ask(&format!("GET /manage/executions/{id}/tree"), Value::Null).await;
    assert_eq!(tree.as_array().unwrap().len(), 2);
    let (status, replayed) =
        ask(&format!("POST /manage/executions/{id}/replay"), json!({"reason": "fixed"})).await;
    assert_eq!(status, 200, "{replayed}");
    assert!(replayed["replay_id"].is_string());
    let (_, would) =
        ask("POST /manage/apps/shop/pause", json!({"reason": "busy", "dryRun": true})).await;
    assert_eq!(would["paused"], json!(true));
    assert_eq!(db.count("apps WHERE paused").await, 0, "a dry run changes nothing");
    let (_, paused) = ask("POST /manage/apps/shop/pause", json!({"reason": "busy"})).await;
    assert_eq!(paused["paused"], json!(true));
    assert_eq!(ask("POST /manage/apps/shop/resume", json!({"reason": "again"})).await.0, 200);
    until("the replay has ended", async || db.is_idle().await).await;
    let (_, deleted) =
        ask("DELETE /manage/apps/shop", json!({"reason": "over", "dryRun": true})).await;
    assert_eq!(deleted["dry_run"], json!(true));
    assert_eq!(ask("DELETE /manage/apps/shop", json!({"reason": "over"})).await.0, 200);
    assert_eq!(db.count("apps").await, 0);
    assert_eq!(
        db.count("trigger_outbox_events WHERE actor = 'dana'").await,
        5,
        "every act has its actor"
    );
    platform.stop().await;
    api.stop();
}

#[tokio::test]
async fn what_is_not_right_is_refused_in_words_and_changes_nothing() {
    let db = TestDb::new().await;
    let api =
        Api::start("127.0.0.1:0", db.database.clone(), Vec::new(), HttpServerSettings::default())
            .await
            .unwrap();
    let at = api.address();
    let cron = json!({ "scripts": [script("s", "")], "triggers": [trigger("c", "cron", "whenever", "s")] });
    for (line, host, actor, body, status, words) in [
        ("PUT /manage/apps/shop", "localhost", None, json!({}), 400, "X-Symphony-Actor"),
        ("PUT /manage/apps/shop", "evil.example", Some("dana"), json!({}), 403, "Host"),
        (
            "PUT /manage/apps/shop",
            "localhost.evil.example:80",
            Some("dana"),
            json!({}),
            403,
            "Host",
        ),
        ("PUT /manage/apps/Shop", "127.0.0.1", Some("dana"), json!({}), 422, "p_app"),
        (
            "PUT /manage/apps/shop",
            "localhost:9464",
            Some("dana"),
            json!({"routes": 1}),
            422,
            "routes",
        ),
        ("PUT /manage/apps/shop", "localhost", Some("dana"), cron, 422, "triggers[0].filter"),
        (
            "DELETE /manage/apps/shop",
            "localhost",
            Some("dana"),
            json!({"reason": "x"}),
            404,
            "p_app",
        ),
        ("DELETE /manage/apps/shop", "localhost", Some("dana"), json!({}), 422, "reason"),
        (
            "POST /manage/executions/01a1e095-7795-7832-83f9-34f0bb721c3f/replay",
            "localhost",
            Some("dana"),
            json!({"reason": "x"}),
            404,
            "p_id",
        ),
        (
            "GET /manage/executions/01a1e095-7795-7832-83f9-34f0bb721c3f",
            "localhost",
            None,
            Value::Null,
            404,
            "no such execution",
        ),
    ] {
        let (found, answer) = manage(at, line, host, actor, &body).await;
        assert_eq!(found, status, "{line} {host}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains(words), "{line} {host}: {answer}");
    }
    assert_eq!(db.count("apps").await, 0);
    api.stop();
}
