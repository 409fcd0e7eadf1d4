//! Tampering: whatever somebody with the owner's rights does to the schema or the data, `symphony doctor` names it, and
//! `symphony migrate` restores it or refuses with its name, and stamps nothing that differs.
//!
//! A server of its own, with fsync: on the tests' common one `doctor` always finds something. Cluster-wide changes
//! (roles) are made one at a time, and undone.

mod around;
mod data;
mod left;
mod locks;
mod planted;
mod refused_by_commands;
mod restored;
mod untouched;

use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;
use symphony::db::EventState;
use symphony::db::migrate::{self, Options};
use symphony::domain::Outcome;
use tokio::sync::{OnceCell, RwLock};

use crate::support::shell::{Told, symphony};
use crate::support::{TestDb, payment, run, start_server};
use crate::triggers::manifest;

const TEMPLATE: &str = "tampering_template";

static SERVER: OnceCell<PgConnectOptions> = OnceCell::const_new();
/// Held for reading by whoever wants the roles to stay as they are, for writing by whoever changes them.
static ROLES: RwLock<()> = RwLock::const_new(());

pub async fn server() -> &'static PgConnectOptions {
    SERVER
        .get_or_init(|| async {
            let options = start_server("tampering", &[("max_connections", "300")]).await;
            let mut connection = options.connect().await.unwrap();
            run(&mut connection, &format!("CREATE DATABASE {TEMPLATE}")).await.unwrap();
            let template = options.clone().database(TEMPLATE);
            migrate::migrate(&template, Options::default()).await.unwrap();
            fill(TestDb {
                database: symphony::db::Database::connect(
                    template.clone(),
                    2,
                    symphony::db::RoleSource::EachTransaction,
                )
                .await
                .unwrap(),
                options: template,
            })
            .await;
            // A database that somebody is connected to cannot be copied.
            let leave = format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{TEMPLATE}'"
            );
            run(&mut connection, &leave).await.unwrap();
            options
        })
        .await
}

/// Something in every state, in every lane.
async fn fill(db: TestDb) {
    db.enqueue_stream("acme", "ach", 6).await;
    for outcome in [Outcome::Dispatched, Outcome::Failed, Outcome::Retryable] {
        let item = db.claim_one("w").await;
        db.complete("w", item.lease(), outcome).await.unwrap();
    }
    db.tell_of("a", 3).await;
    db.publish_all("w").await;
    let retried = db.tell_of("b", 2).await;
    let events = db.claim_events("w", 50).await;
    assert_eq!(events.len(), retried.len());
    db.report("w", &[(&events[0], EventState::Failed { key_continues: false })]).await;
    db.expire_buckets().await;
    db.claim_events("v", 50).await;
    db.push("shop", &manifest(&[("on-order", "kv", "orders/*")])).await;
    for n in 0..4 {
        db.kv_set("shop", &format!("orders/{n}"), &serde_json::json!(n)).await;
    }
    let items = db.claim_items("w", 3).await;
    db.done("w", &items[0], serde_json::json!([])).await;
    db.settle("w", &items[1], "FAILED", serde_json::json!([])).await;
    db.settle("w", &items[2], "RETRYABLE", serde_json::json!([])).await;
    db.assert_data_agrees().await;
}

/// The command, with nothing of this machine's own.
pub async fn on(options: &PgConnectOptions, line: &str) -> Told {
    static FOLDER: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let folder =
        FOLDER.get_or_init(|| format!("/tmp/symphony-tampering-{}/data", std::process::id()));
    let variables = [("USER", "dana"), ("SYMPHONY_DATA", folder.as_str())];
    symphony(options.to_url_lossy().as_str(), &variables, line, &[], "").await
}

/// A database with something in it, and the commands that look at it.
pub struct Victim {
    pub db: TestDb,
    _roles: Option<tokio::sync::RwLockReadGuard<'static, ()>>,
}

impl Victim {
    pub async fn new() -> Self {
        let db = TestDb::cloned(server().await, TEMPLATE).await;
        Self { db, _roles: Some(ROLES.read().await) }
    }

    pub async fn symphony(&self, line: &str) -> Told {
        on(&self.db.options, line).await
    }

    /// `doctor` is content.
    pub async fn assert_well(&self) {
        let told = self.symphony("doctor").await;
        assert!(told.ok, "{}{}", told.output, told.error);
    }

    /// `doctor` exits non-zero with a FAIL that has these words.
    pub async fn assert_found(&self, words: &str) {
        let told = self.symphony("doctor").await;
        let named =
            told.output.lines().any(|line| line.starts_with("FAIL") && line.contains(words));
        assert!(!told.ok && named, "no FAIL with {words:?}:\n{}{}", told.output, told.error);
    }

    pub async fn stamped_at(&self) -> Option<chrono::DateTime<chrono::Utc>> {
        self.db.one("SELECT (SELECT applied_at FROM symphony_schema)").await
    }

    /// It is found, `migrate` restores it, and then `doctor` is content.
    pub async fn assert_restored(&self, tampering: &str, words: &str) {
        self.db.sql(tampering).await;
        self.assert_found(words).await;
        let told = self.symphony("migrate").await;
        assert!(told.ok, "{tampering}: {}{}", told.output, told.error);
        self.assert_well().await;
    }

    /// It is found, `migrate` names it, exits non-zero and stamps nothing.
    pub async fn assert_left(&self, tampering: &str, words: &str) {
        let stamped = self.stamped_at().await;
        self.db.sql(tampering).await;
        self.assert_found(words).await;
        let told = self.symphony("migrate").await;
        assert!(
            !told.ok && told.error.contains(words) && told.error.lines().count() == 1,
            "{tampering}: {}{}",
            told.output,
            told.error
        );
        assert_eq!(self.stamped_at().await, stamped, "not stamped");
    }

    /// The SQLSTATE with which a statement is refused to a superuser, or `OK`.
    pub async fn verdict(&self, sql: &str) -> String {
        crate::support::verdict(&self.db, "postgres", sql).await
    }
}

/// Nobody else looks at the cluster's roles meanwhile.
pub async fn alone() -> (Victim, tokio::sync::RwLockWriteGuard<'static, ()>) {
    let db = TestDb::cloned(server().await, TEMPLATE).await;
    let guard = ROLES.write().await;
    (Victim { db, _roles: None }, guard)
}

/// One more of a payment that is there already: what the idempotency constraint refuses.
pub const SAME_PAYMENT: &str = "INSERT INTO payment_outbox_instructions \
    (instruction_id, idempotency_key, participant_id, sequence_id, rail_type, payload, request_hash) \
    SELECT instruction_id, idempotency_key, participant_id, 99, rail_type, payload, request_hash \
      FROM payment_outbox_instructions ORDER BY sequence_id LIMIT 1";

/// A second end of a payment that has ended: what the terminal index refuses.
pub const SECOND_END: &str = "INSERT INTO payment_outbox_attempts (outbox_id, instruction_id, participant_id, sequence_id, \
        idempotency_key, rail_type, attempt_no, state, completed_at, worker_id, lease_token) \
    SELECT outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, attempt_no + 1, 'FAILED', now(), 'w', \
           gen_random_uuid() FROM payment_outbox_attempts WHERE state = 'DISPATCHED'";

#[tokio::test]
async fn an_untouched_database_is_well_and_migrating_it_changes_nothing() {
    let victim = Victim::new().await;
    victim.assert_well().await;
    let stamped = victim.stamped_at().await;
    let told = victim.symphony("migrate").await;
    assert!(told.ok && told.output.starts_with("schema is up to date"), "{}", told.output);
    assert_eq!(victim.stamped_at().await, stamped);
    victim.db.enqueue(&payment("one-more", "acme", "ach")).await;
    victim.assert_well().await;
}
