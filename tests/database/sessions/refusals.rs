//! Whatever is refused, the session it happened in is not left behind for others; and a worker that is refused for long
//! ends.

use symphony::db::{Database, DbError, Role, RoleSource};

use super::{EVENTS, Folder, Worker, sandbox, sandbox_rail};
use crate::support::{TestDb, payment, until};

/// Three scrapes used to poison as many sessions, after which every claim got 25P02.
#[tokio::test]
async fn scrapes_and_refused_pages_leave_a_worker_with_only_its_own_role_working() {
    let db = TestDb::new().await;
    let folder = Folder::new();
    let sandbox = sandbox(&folder).await;
    let config = format!("{}[database]\nconnections_max = 2\n", sandbox_rail(&sandbox));
    let login = db.login("symphony_executor").await;
    let worker = Worker::start(&login, &folder, &config, "payments").await.unwrap();
    for round in 1..=4 {
        let (status, figures) = worker.page("GET", "/metrics", "").await;
        assert_eq!(status, 200);
        assert!(figures.contains("outbox_pending_depth{lane=\"payments\"}"), "{figures}");
        assert_eq!(worker.page("GET", "/readyz", "").await.0, 200);
        for (method, path) in [("GET", "/v1/apps"), ("PUT", "/v1/apps/shop")] {
            let (status, refusal) = worker.page(method, path, "{}").await;
            assert_eq!(status, 401, "{method} {path}: {refusal}");
        }
        db.enqueue(&payment(&format!("i{round}"), "acme", "sandbox")).await;
        until("it is paid", async || {
            db.count("payment_outbox_attempts WHERE state = 'DISPATCHED'").await == round
        })
        .await;
    }
    let (status, said) = worker.terminate().await;
    assert!(status.success() && !said.contains("25P02"), "{status} {said}");
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn a_transaction_that_cannot_be_begun_leaves_no_session_behind() {
    let db = TestDb::new().await;
    let login = db.login("symphony_executor").await;
    let database = Database::connect(login, 1, RoleSource::EachTransaction).await.unwrap();
    for role in [Role::Producer, Role::Operator, Role::Auditor, Role::Consumer] {
        let error = database.begin(role).await.unwrap_err();
        assert!(matches!(error, DbError::MissingRole { .. }), "{error:?}");
        let named = error.to_string();
        assert!(named.contains(role.names()[0]) && named.lines().count() == 1, "{named}");
        assert_eq!(database.worker().rails_that_mark_sending().await.unwrap(), [""; 0]);
    }
    // Given up in the middle: whatever the server has begun of it is not anybody else's.
    for _ in 0..50 {
        let begin = database.begin(Role::Worker);
        drop(tokio::time::timeout(std::time::Duration::from_micros(300), begin).await);
        let mut transaction = database.begin(Role::Worker).await.unwrap();
        let role: String = sqlx::query_scalar("SELECT current_user::text")
            .fetch_one(transaction.session())
            .await
            .unwrap();
        assert_eq!(role, "symphony_executor");
    }
}

#[tokio::test]
async fn a_worker_whose_claims_are_refused_ends_with_a_line_that_says_why_in_every_lane() {
    let folder = Folder::new();
    let sandbox = sandbox(&folder).await;
    for lane in ["payments", "events", "triggers"] {
        let db = TestDb::new().await;
        let login = db.login("symphony_executor").await;
        let config =
            format!("{EVENTS}{}[worker]\nrefused_seconds_max = 1\n", sandbox_rail(&sandbox));
        let worker = Worker::start(&login, &folder, &config, lane).await.unwrap();
        let name = login.get_username();
        db.sql(&format!("REVOKE symphony_executor FROM {name}")).await;
        let (status, said) = worker.ended().await;
        assert_eq!(status.code(), Some(1), "{said}");
        let last = said.lines().last().unwrap();
        assert!(
            last.starts_with(&format!(
                "symphony: the database has refused every claim of the {lane} lane for"
            )) && last.contains(&format!("login {name} lacks role symphony_executor")),
            "{said}"
        );
    }
}
