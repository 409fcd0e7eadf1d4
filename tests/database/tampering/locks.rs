//! Locks of strangers: what anybody may take does not stop a migration, and whoever does stop one is named.

use crate::support::{run, until};

use super::Victim;

#[tokio::test]
async fn advisory_locks_of_a_stranger_and_readers_of_the_stamp_stop_nothing() {
    let victim = Victim::new().await;
    victim.db.sql("DROP INDEX payment_outbox_attempts_failed").await;
    let mut stranger = victim.db.admin().await;
    run(
        &mut stranger,
        "SELECT pg_advisory_lock(1398362189, n) FROM generate_series(0, 100) n; BEGIN; SET LOCAL ROLE symphony_ingest; \
         LOCK TABLE symphony_schema IN ACCESS SHARE MODE; SELECT * FROM symphony_schema",
    )
    .await
    .unwrap();
    let told = victim.symphony("migrate --lock-timeout 1").await;
    assert!(told.ok, "{}", told.error);
    assert!(
        run(&mut stranger, "LOCK TABLE symphony_schema IN ROW SHARE MODE").await.is_err(),
        "more it may not"
    );
}

#[tokio::test]
async fn a_blocked_migration_says_by_whom_and_changes_nothing() {
    let victim = Victim::new().await;
    victim.db.sql("DROP INDEX payment_outbox_attempts_failed").await;
    let mut reader = victim.db.admin().await;
    run(
        &mut reader,
        "SET application_name = 'nightly report'; BEGIN; LOCK TABLE payment_outbox_attempts IN ROW EXCLUSIVE MODE",
    )
    .await
    .unwrap();
    let pid: i32 =
        sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut reader).await.unwrap();
    let told = victim.symphony("migrate --lock-timeout 1").await;
    for words in [
        &format!("blocked by process {pid} of postgres"),
        "application 'nightly report'",
        "idle in transaction",
    ] {
        assert!(!told.ok && told.error.contains(words), "{words}: {}", told.error);
    }
    assert_eq!(told.error.lines().count(), 1, "{}", told.error);
    run(&mut reader, "ROLLBACK").await.unwrap();
    let told = victim.symphony("migrate").await;
    assert!(told.ok, "{}", told.error);
    victim.assert_well().await;
}

#[tokio::test]
async fn two_migrations_wait_for_each_other_and_the_second_finds_nothing_to_do() {
    let victim = Victim::new().await;
    victim.db.sql("DROP INDEX payment_outbox_attempts_failed").await;
    let mut first = victim.db.admin().await;
    run(&mut first, "BEGIN; LOCK TABLE symphony_schema IN SHARE ROW EXCLUSIVE MODE; \
                     CREATE INDEX payment_outbox_attempts_failed ON payment_outbox_attempts (completed_at) WHERE state = 'FAILED'")
        .await
        .unwrap();
    let second = victim.symphony("migrate");
    let release = async {
        until("the second waits", async || {
            victim.db.count("pg_locks WHERE NOT granted AND relation = 'symphony_schema'::regclass AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").await == 1
        })
        .await;
        run(&mut first, "COMMIT").await.unwrap();
    };
    let (told, ()) = tokio::join!(second, release);
    assert!(
        told.ok && told.output.starts_with("schema is up to date"),
        "{}{}",
        told.output,
        told.error
    );
}
