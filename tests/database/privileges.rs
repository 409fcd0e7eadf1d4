//! Who may do what: every role × every table × every privilege, every role × every function.

use symphony::db::inspect::{self, PrivilegeDifference};
use symphony::db::privileges::{FUNCTIONS, HIDDEN_FROM_READONLY, RUNTIME_ROLES, TABLES};

use crate::support::{TestDb, payment, verdict};

async fn differences(db: &TestDb) -> Vec<PrivilegeDifference> {
    inspect::privilege_differences(&mut db.admin().await, &symphony::db::Schema::default())
        .await
        .unwrap()
}

#[tokio::test]
async fn the_live_privileges_are_exactly_the_declared_matrix() {
    let db = TestDb::new().await;
    assert_eq!(differences(&db).await, []);
}

#[tokio::test]
async fn the_matrix_names_every_table_view_and_function_there_is() {
    let db = TestDb::new().await;
    let mut tables: Vec<String> = db
        .one("SELECT array_agg(relname::text ORDER BY relname) FROM pg_class WHERE relnamespace = 'symphony'::regnamespace AND relkind IN ('r', 'v')")
        .await;
    let mut declared: Vec<_> = TABLES.iter().map(|(name, _)| (*name).to_owned()).collect();
    tables.sort();
    declared.sort();
    assert_eq!(tables, declared);
    let mut functions: Vec<String> = db.one("SELECT array_agg(proname::text) FROM pg_proc WHERE pronamespace = 'symphony'::regnamespace").await;
    let version: i32 = db.one("SELECT current_setting('server_version_num')::int").await;
    let mut declared: Vec<_> = FUNCTIONS
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .filter(|name| version < 180_000 || name != "uuidv7")
        .collect();
    functions.sort();
    declared.sort();
    assert_eq!(functions, declared);
}

#[tokio::test]
async fn each_cell_of_the_matrix_holds_when_it_is_tried() {
    let db = TestDb::new().await;
    for role in RUNTIME_ROLES {
        for (table, readers) in TABLES {
            let may_read = readers.contains(role);
            assert_eq!(
                verdict(&db, role, &format!("SELECT count(*) FROM symphony.{table}")).await,
                if may_read { "OK" } else { "42501" },
                "{role} reads {table}"
            );
            for write in [
                format!("DELETE FROM symphony.{table}"),
                format!("TRUNCATE symphony.{table}"),
                format!("INSERT INTO symphony.{table} DEFAULT VALUES"),
            ] {
                let refused = verdict(&db, role, &write).await;
                // Views that cannot be written at all say so first.
                assert!(
                    ["42501", "55000", "42809"].contains(&refused.as_str()),
                    "{role}: {write}: {refused}"
                );
            }
        }
    }
}

#[tokio::test]
async fn readonly_is_refused_each_hidden_column_and_whole_rows_with_it() {
    let db = TestDb::new().await;
    for (table, columns) in HIDDEN_FROM_READONLY {
        for column in columns.iter().chain(&["*"]) {
            let sql = format!("SELECT {column} FROM symphony.{table}");
            assert_eq!(verdict(&db, "symphony_readonly", &sql).await, "42501", "{sql}");
            assert_eq!(verdict(&db, "symphony_auditor", &sql).await, "OK", "{sql}");
        }
    }
}

#[tokio::test]
async fn a_single_excess_or_missing_privilege_is_found() {
    let db = TestDb::new().await;
    for (change, expected) in [
        (
            "GRANT INSERT ON payment_outbox_pending TO symphony_ingest",
            "symphony_ingest INSERT payment_outbox_pending true",
        ),
        (
            "GRANT UPDATE (state) ON payment_outbox_attempts TO symphony_executor",
            "symphony_executor UPDATE payment_outbox_attempts true",
        ),
        (
            "REVOKE SELECT ON payment_outbox_events FROM symphony_auditor",
            "symphony_auditor SELECT payment_outbox_events false",
        ),
        (
            "GRANT EXECUTE ON FUNCTION bump_participant_outbox_seq TO symphony_ingest",
            "symphony_ingest EXECUTE bump_participant_outbox_seq true",
        ),
        (
            "GRANT SELECT (payload) ON payment_outbox_instructions TO symphony_readonly",
            "symphony_readonly SELECT payment_outbox_instructions.payload true",
        ),
        (
            "REVOKE SELECT (rail_type) ON payment_outbox_instructions FROM symphony_readonly",
            "symphony_readonly SELECT payment_outbox_instructions.rail_type false",
        ),
        (
            "REVOKE EXECUTE ON FUNCTION claim_outbox_batch FROM symphony_executor",
            "symphony_executor EXECUTE claim_outbox_batch false",
        ),
        (
            "GRANT TRIGGER ON payment_outbox_attempts TO PUBLIC",
            "public TRIGGER payment_outbox_attempts true",
        ),
        (
            "CREATE ROLE stray_of_this_test; GRANT DELETE ON payment_outbox_rails TO stray_of_this_test",
            "stray_of_this_test DELETE payment_outbox_rails true",
        ),
        (
            "CREATE FUNCTION stray() RETURNS int LANGUAGE sql AS 'SELECT 1'; ALTER FUNCTION stray OWNER TO symphony_control",
            "PUBLIC undeclared object stray true",
        ),
        (
            "GRANT CREATE ON SCHEMA symphony TO symphony_operator",
            "symphony_operator CREATE schema symphony true",
        ),
    ] {
        let before = differences(&db).await;
        db.sql(change).await;
        let found: Vec<_> = differences(&db)
            .await
            .into_iter()
            .filter(|difference| !before.contains(difference))
            .collect();
        let told: Vec<_> = found
            .iter()
            .map(|d| format!("{} {} {} {}", d.role, d.privilege, d.object, d.excess))
            .collect();
        assert!(told.contains(&expected.to_owned()), "{change}: {told:?}");
    }
    // Migrating again takes back what was granted by hand to Symphony's roles.
    db.sql("DROP FUNCTION stray; REVOKE ALL ON payment_outbox_rails FROM stray_of_this_test; REVOKE CREATE ON SCHEMA symphony FROM symphony_operator").await;
    symphony::db::migrate::migrate(&db.options, symphony::db::migrate::Options::default())
        .await
        .unwrap();
    assert_eq!(differences(&db).await, []);
}

#[tokio::test]
async fn ingest_cannot_insert_into_pending_and_can_only_execute_enqueue() {
    let db = TestDb::new().await;
    let role = "symphony_ingest";
    assert_eq!(
        verdict(&db, role, "INSERT INTO payment_outbox_pending DEFAULT VALUES").await,
        "42501"
    );
    assert_eq!(verdict(&db, role, "SELECT bump_participant_outbox_seq('p')").await, "42501");
    assert_eq!(verdict(&db, role, "SELECT * FROM payment_outbox_instructions").await, "42501");
    assert_eq!(verdict(&db, role, "SELECT claim_outbox_batch(1, 'w', 60)").await, "42501");
    assert_eq!(
        verdict(&db, role, "SELECT enqueue_payment_outbox('i', 'p', 'k', 'ach', '{}')").await,
        "OK"
    );
}

#[tokio::test]
async fn executor_cannot_write_pending_or_attempts_directly() {
    let db = TestDb::new().await;
    db.enqueue(&payment("i", "p", "ach")).await;
    for write in [
        "UPDATE payment_outbox_pending SET claimed_by = NULL",
        "DELETE FROM payment_outbox_pending",
        "INSERT INTO payment_outbox_attempts DEFAULT VALUES",
        "UPDATE payment_outbox_attempts SET state = 'DISPATCHED'",
        "SELECT symphony.settle_payment_attempts('w', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')",
        "SELECT symphony.requeue_expired_payments('{}', 'w', NULL)",
    ] {
        assert_eq!(verdict(&db, "symphony_executor", write).await, "42501", "{write}");
    }
}

#[tokio::test]
async fn update_delete_and_truncate_of_the_ledger_fail_for_every_runtime_role_and_by_trigger_for_the_owner()
 {
    let db = TestDb::new().await;
    db.enqueue(&payment("i", "p", "ach")).await;
    let claimed = db.claim_one("w").await;
    db.complete("w", claimed.lease(), symphony::domain::Outcome::Retryable).await.unwrap();
    db.database.operator().park_payment(claimed.outbox_id, &crate::support::act()).await.unwrap();
    for (table, column) in [
        ("payment_outbox_attempts", "worker_id"),
        ("payment_outbox_events", "reason"),
        ("payment_outbox_instructions", "rail_type"),
    ] {
        for change in [
            format!("UPDATE {table} SET {column} = 'x'"),
            format!("DELETE FROM {table}"),
            format!("TRUNCATE {table}"),
            format!("TRUNCATE {table} CASCADE"),
        ] {
            for role in RUNTIME_ROLES {
                assert_eq!(verdict(&db, role, &change).await, "42501", "{role}: {change}");
            }
            assert_eq!(verdict(&db, "symphony_control", &change).await, "P0001", "owner: {change}");
            assert_eq!(verdict(&db, "postgres", &change).await, "P0001", "superuser: {change}");
        }
    }
}

#[tokio::test]
async fn readonly_and_auditor_cannot_read_sequences_after_blanket_grants() {
    let db = TestDb::new().await;
    db.sql("GRANT SELECT ON ALL TABLES IN SCHEMA symphony TO symphony_readonly, symphony_auditor")
        .await;
    symphony::db::migrate::migrate(&db.options, symphony::db::migrate::Options::default())
        .await
        .unwrap();
    for role in ["symphony_readonly", "symphony_auditor"] {
        assert_eq!(verdict(&db, role, "SELECT * FROM participant_outbox_sequences").await, "42501");
        assert_eq!(verdict(&db, role, "SELECT state FROM payment_outbox_attempts").await, "OK");
        assert_eq!(verdict(&db, role, "SELECT * FROM participant_sequence_gaps").await, "OK");
    }
}
