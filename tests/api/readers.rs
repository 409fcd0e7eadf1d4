//! Whoever reads, however much and however slowly, takes nothing from the workers of the same process.

use std::time::Duration;

use serde_json::Value;
use symphony::db::{Database, RoleSource};
use symphony_server::api::Api;
use symphony_server::config::ApiSection;
use symphony_server::http_server::HttpServerSettings;

use super::{ROLES, Served, raw};
use crate::approvals::Person;
use crate::console::Browser;
use crate::support::{run, until};

/// Statements with these words that wait for a lock.
async fn waiting(served: &Served, words: &str) -> i64 {
    served
        .db
        .count(&format!(
            "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%{words}%'"
        ))
        .await
}

#[tokio::test]
async fn readers_without_end_leave_the_workers_their_connections() {
    let served = Served::new().await;
    let token = served.token("eve", "read").await;
    let login = Person::new(&served.db, ROLES).await.options;
    let database = Database::connect(login, 2, RoleSource::EachTransaction).await.unwrap();
    let section = ApiSection { database_connections_max: 3, ..ApiSection::at("127.0.0.1:0") };
    let bounds = HttpServerSettings::default();
    let api = Api::start(&section, database.clone(), Vec::new(), bounds).await.unwrap();
    let mut held = served.db.admin().await;
    run(&mut held, "BEGIN; LOCK TABLE symphony.apps").await.unwrap();
    let ask = |path: &str, token: &str| {
        let (address, text) = (
            api.address(),
            format!(
                "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
            ),
        );
        tokio::spawn(async move { raw(address, text.as_bytes()).await })
    };
    let readers: Vec<_> = (0..12).map(|_| ask("/v1/apps", &token)).collect();
    until("all connections of readers wait", async || waiting(&served, "symphony.apps").await == 3)
        .await;
    for _ in 0..4 {
        let worker = database.worker();
        assert_eq!(worker.rails_that_mark_sending().await.unwrap(), [""; 0], "a worker goes on");
    }
    assert!(ask("/readyz", &token).await.unwrap().starts_with("HTTP/1.1 200"));
    run(&mut held, "ROLLBACK").await.unwrap();
    for reader in readers {
        let answer = reader.await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    api.stop();
}

#[tokio::test]
async fn a_statement_of_a_caller_is_given_up_in_time() {
    let served = Served::new().await;
    let token = served.token("eve", "read").await;
    let mut held = served.db.admin().await;
    run(&mut held, "BEGIN; LOCK TABLE symphony.apps").await.unwrap();
    let short = Duration::from_millis(50);
    let caller = served.db.database.for_token(&token, &["read".to_owned()], short);
    let error = caller.auditor().apps(None, 1).await.unwrap_err();
    assert!(error.is_time_out(), "{error:?}");
    // A worker of the same process waits as long as it must.
    run(&mut held, "ROLLBACK").await.unwrap();
    assert_eq!(caller.auditor().apps(None, 1).await.unwrap(), []);
}

#[tokio::test]
async fn one_at_a_time_looks_through_everything_also_in_the_console_and_not_for_long() {
    let served = Served::new().await;
    let token = served.token("ann", "read").await;
    let browser = Browser::of(&served, "eve", "read").await;
    let mut held = served.db.admin().await;
    run(&mut held, "BEGIN; LOCK TABLE symphony.event_outbox_attempts").await.unwrap();
    let search = "/console/search?everywhere=1&q=REF-1";
    let others = async {
        until("the first one looks", async || waiting(&served, "its idempotency key").await == 1)
            .await;
        let second = browser.get(search).await;
        let api = format!("GET /v1/payments/{}?everywhere=true", uuid::Uuid::new_v4());
        (second, served.ask(&token, &api, &Value::Null).await)
    };
    let (first, (second, (status, problem))) = tokio::join!(browser.get(search), others);
    assert!(second.status == 429 && second.body.contains("Somebody else looks"), "{}", second.body);
    assert_eq!((status, problem["code"].as_str()), (429, Some("RATE_LIMITED")));
    assert!(first.status == 503 && first.body.contains("in 10 seconds"), "{}", first.body);
    run(&mut held, "ROLLBACK").await.unwrap();
    let again = browser.get(search).await;
    assert!(again.status == 200 && again.body.contains("Nothing has that id"), "{}", again.body);
}
