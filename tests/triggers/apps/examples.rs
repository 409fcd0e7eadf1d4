//! The example apps, as `examples/apps` has them: what is sold out is not sold, and every click is counted once.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::kills::worker;
use super::{Platform, request};
use crate::support::{TestDb, until};

/// The manifest of an example, with its scripts' sources in it.
fn example(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/apps").join(name);
    let text = std::fs::read_to_string(folder.join("app.json")).unwrap();
    let mut manifest: Value = serde_json::from_str(&text).unwrap();
    manifest
        .as_object_mut()
        .unwrap()
        .retain(|field, _| !["$schema", "name"].contains(&field.as_str()));
    for script in manifest["scripts"].as_array_mut().unwrap() {
        let file = script["file"].as_str().unwrap().to_owned();
        script.as_object_mut().unwrap().remove("file");
        script["source"] = json!(std::fs::read_to_string(folder.join(file)).unwrap());
        // The machine is shared with other tests.
        script["timeoutMs"] = json!(10_000);
    }
    for route in manifest["routes"].as_array_mut().unwrap() {
        route["waitMs"] = json!(30_000);
    }
    manifest
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_racing_clients_never_buy_more_than_there_is() {
    let db = TestDb::new().await;
    db.push("orders", &example("orders")).await;
    db.kv_set("orders", "stock/tea", &json!(25)).await;
    let platforms = [Platform::start(&db).await, Platform::start(&db).await];
    let addresses = Arc::new(platforms.each_ref().map(Platform::http));
    let mut clients = JoinSet::new();
    for n in 0..200 {
        let addresses = addresses.clone();
        clients.spawn(async move {
            let body = json!({ "id": format!("o-{n}"), "email": "kim@example.com", "item": "tea" })
                .to_string();
            let answer = request(addresses[n % 2], "POST", "/apps/orders/orders", &body);
            answer.await.unwrap().status
        });
    }
    let statuses = clients.join_all().await;
    let count = |status: u16| statuses.iter().filter(|given| **given == status).count();
    assert_eq!((count(201), count(409)), (25, 175), "{statuses:?}");
    assert_eq!(db.entry("orders", "stock/tea").await.as_deref(), Some("0"));
    assert_eq!(db.count("kv_entries WHERE key LIKE 'order/%'").await, 25);
    for platform in platforms {
        platform.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clicks_are_counted_exactly_though_processes_are_killed() {
    let db = TestDb::new().await;
    db.push("shortener", &example("shortener")).await;
    let mut followed = 0;
    for (round, kill_at) in
        [Some("before_complete:9"), Some("after_send:30"), None].into_iter().enumerate()
    {
        let (mut process, address) = worker(&db, kill_at).await;
        if round == 0 {
            let link = json!({ "url": "https://example.com/long", "code": "short" }).to_string();
            let made = request(address, "POST", "/apps/shortener/links", &link).await.unwrap();
            assert_eq!(made.status, 201, "{}", made.body);
            let taken = request(address, "POST", "/apps/shortener/links", &link).await.unwrap();
            assert_eq!(taken.status, 409);
        }
        let mut clients = JoinSet::new();
        for _ in 0..4 {
            clients.spawn(async move {
                let mut followed = 0;
                for _ in 0..20 {
                    match request(address, "GET", "/apps/shortener/short", "").await {
                        Some(answer) if answer.status == 302 => followed += 1,
                        Some(answer) => panic!("{}", answer.body),
                        // The process was killed: nobody was told anything.
                        None => break,
                    }
                }
                followed
            });
        }
        followed += clients.join_all().await.into_iter().sum::<i64>();
        if kill_at.is_some() {
            process.wait().await.unwrap();
        } else {
            until("what was lost has ended", async || db.is_idle().await).await;
        }
    }
    let counted: i64 = db.entry("shortener", "clicks/short").await.unwrap().parse().unwrap();
    let ended = "trigger_outbox_executions WHERE script_name = 'follow' AND state = 'DISPATCHED'";
    assert_eq!(counted, db.count(ended).await, "one click for each run that was committed");
    assert!(counted >= followed, "{counted} counted, {followed} followed");
    assert!(followed >= 80, "{followed}");
}
