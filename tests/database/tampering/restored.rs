//! What `migrate` can prove on the data, or needs no proof for: it is restored, and it works again.

use super::{SAME_PAYMENT, SECOND_END, Victim};

#[tokio::test]
async fn a_dropped_idempotency_constraint_comes_back() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "ALTER TABLE payment_outbox_instructions DROP CONSTRAINT payment_outbox_instructions_are_idempotent",
            "payment_outbox_instructions_are_idempotent is missing",
        )
        .await;
    assert_eq!(victim.verdict(SAME_PAYMENT).await, "23505");
}

#[tokio::test]
async fn a_dropped_terminal_index_comes_back() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "DROP INDEX payment_outbox_attempts_one_terminal_per_outbox",
            "payment_outbox_attempts_one_terminal_per_outbox is missing",
        )
        .await;
    assert_eq!(victim.verdict(SECOND_END).await, "23505");
}

#[tokio::test]
async fn a_terminal_index_that_is_no_longer_unique_is_made_so_again() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "DROP INDEX payment_outbox_attempts_one_terminal_per_outbox; \
             CREATE INDEX payment_outbox_attempts_one_terminal_per_outbox ON payment_outbox_attempts (outbox_id) \
                WHERE state IN ('DISPATCHED', 'FAILED')",
            "payment_outbox_attempts_one_terminal_per_outbox is changed",
        )
        .await;
    assert_eq!(victim.verdict(SECOND_END).await, "23505");
}

#[tokio::test]
async fn a_terminal_index_with_a_narrower_predicate_is_made_whole_again() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "DROP INDEX payment_outbox_attempts_one_terminal_per_outbox; \
             CREATE UNIQUE INDEX payment_outbox_attempts_one_terminal_per_outbox ON payment_outbox_attempts (outbox_id) \
                WHERE state = 'FAILED'",
            "payment_outbox_attempts_one_terminal_per_outbox is changed",
        )
        .await;
    assert_eq!(victim.verdict(SECOND_END).await, "23505");
}

#[tokio::test]
async fn an_index_marked_invalid_is_built_anew() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'payment_outbox_instructions_redriven_once'::regclass",
            "payment_outbox_instructions_redriven_once is changed",
        )
        .await;
}

#[tokio::test]
async fn a_dropped_check_comes_back() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "ALTER TABLE payment_outbox_pending DROP CONSTRAINT payment_outbox_pending_lease_is_whole",
            "payment_outbox_pending_lease_is_whole is missing",
        )
        .await;
    assert_eq!(
        victim.verdict("UPDATE payment_outbox_pending SET lease_token = gen_random_uuid()").await,
        "23514"
    );
}

#[tokio::test]
async fn a_check_that_allows_everything_is_replaced() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "ALTER TABLE payment_outbox_attempts DROP CONSTRAINT payment_outbox_attempts_record_outcomes_only, \
                ADD CONSTRAINT payment_outbox_attempts_record_outcomes_only CHECK (true)",
            "payment_outbox_attempts_record_outcomes_only is changed",
        )
        .await;
}

#[tokio::test]
async fn a_check_that_was_never_validated_is_validated() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "ALTER TABLE event_outbox_attempts DROP CONSTRAINT event_outbox_attempts_only_retryable_is_unknown, \
                ADD CONSTRAINT event_outbox_attempts_only_retryable_is_unknown \
                CHECK (NOT outcome_unknown OR state = 'RETRYABLE') NOT VALID",
            "NOT VALID",
        )
        .await;
}

#[tokio::test]
async fn a_dropped_default_comes_back() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "ALTER TABLE payment_outbox_pending ALTER COLUMN must_inquire DROP DEFAULT, ALTER COLUMN next_attempt_at SET DEFAULT 'infinity'",
            "payment_outbox_pending.must_inquire is changed",
        )
        .await;
}

#[tokio::test]
async fn a_dropped_not_null_comes_back() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "ALTER TABLE trigger_outbox_attempts ALTER COLUMN worker_id DROP NOT NULL",
            "trigger_outbox_attempts.worker_id is changed",
        )
        .await;
}

#[tokio::test]
async fn a_disabled_guard_of_the_ledger_is_enabled_again() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "ALTER TABLE payment_outbox_attempts DISABLE TRIGGER payment_outbox_attempts_only_grow",
            "payment_outbox_attempts_only_grow is changed",
        )
        .await;
    assert_eq!(victim.verdict("DELETE FROM payment_outbox_attempts").await, "P0001");
}

#[tokio::test]
async fn a_guard_that_a_replica_role_would_skip_is_made_to_fire_always_again() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "ALTER TABLE event_outbox_log ENABLE TRIGGER event_outbox_log_only_grows",
            "event_outbox_log_only_grows is changed",
        )
        .await;
    assert_eq!(
        victim
            .verdict("SET session_replication_role = replica; DELETE FROM event_outbox_log")
            .await,
        "P0001"
    );
}

#[tokio::test]
async fn a_dropped_guard_comes_back() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "DROP TRIGGER trigger_outbox_events_are_never_emptied ON trigger_outbox_events",
            "trigger_outbox_events_are_never_emptied is missing",
        )
        .await;
    assert_eq!(victim.verdict("TRUNCATE trigger_outbox_events").await, "P0001");
}

#[tokio::test]
async fn a_guard_that_calls_another_function_calls_ours_again() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "CREATE FUNCTION harmless() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; \
             CREATE OR REPLACE TRIGGER payment_outbox_events_only_grow BEFORE UPDATE OR DELETE ON payment_outbox_events \
                FOR EACH ROW EXECUTE FUNCTION harmless()",
            "payment_outbox_events_only_grow is changed",
        )
        .await;
}

#[tokio::test]
async fn disabled_foreign_keys_are_enabled_again() {
    let victim = Victim::new().await;
    victim
        .assert_restored("ALTER TABLE scripts DISABLE TRIGGER ALL", "scripts_belong_to_an_app")
        .await;
    assert_eq!(
        victim
            .verdict("INSERT INTO scripts (app_id, name, version, source, timeout_ms) VALUES (gen_random_uuid(), 's', 1, '', 1)")
            .await,
        "23503"
    );
}

#[tokio::test]
async fn an_unlogged_ledger_is_logged_again() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "ALTER TABLE payment_outbox_attempts SET UNLOGGED",
            "payment_outbox_attempts is changed: table, unlogged",
        )
        .await;
}

#[tokio::test]
async fn row_level_security_is_switched_off_again() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "ALTER TABLE payment_outbox_pending ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
            "row level security",
        )
        .await;
    assert_eq!(victim.db.claim("w", 1).await.len(), 1);
}

#[tokio::test]
async fn a_changed_function_is_put_back() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "CREATE OR REPLACE FUNCTION symphony.refuse_ledger_change() RETURNS trigger LANGUAGE plpgsql \
                SET search_path = pg_catalog, pg_temp AS 'BEGIN RETURN NULL; END'",
            "refuse_ledger_change() has another definition",
        )
        .await;
    assert_eq!(victim.verdict("DELETE FROM payment_outbox_attempts").await, "P0001");
}

#[tokio::test]
async fn a_function_whose_parsed_body_changed_is_put_back() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "CREATE OR REPLACE FUNCTION symphony.backoff(p_attempt_no INT) RETURNS INT LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 0",
            "backoff(p_attempt_no integer) has another definition",
        )
        .await;
}

#[tokio::test]
async fn a_definer_with_another_search_path_is_put_back() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "ALTER FUNCTION claim_outbox_batch SET search_path = public; ALTER FUNCTION renew_outbox_leases SECURITY INVOKER",
            "claim_outbox_batch",
        )
        .await;
}

#[tokio::test]
async fn a_dropped_function_comes_back_with_its_grants() {
    let victim = Victim::new().await;
    victim.assert_restored("DROP FUNCTION claim_outbox_batch", "claim_outbox_batch").await;
    assert_eq!(victim.db.claim("w", 1).await.len(), 1);
}

#[tokio::test]
async fn an_overload_under_the_owners_name_is_dropped() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "CREATE FUNCTION symphony.enqueue_payment_outbox(p_instruction_id TEXT) RETURNS INT LANGUAGE sql AS 'SELECT 1'; \
             ALTER FUNCTION enqueue_payment_outbox(TEXT) OWNER TO symphony_control",
            "enqueue_payment_outbox(p_instruction_id text) is not declared",
        )
        .await;
}

#[tokio::test]
async fn a_changed_view_is_put_back() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "CREATE OR REPLACE VIEW symphony.participant_sequence_gaps AS \
                SELECT NULL::text COLLATE \"C\" AS participant_id, 0::bigint AS missing_from, 0::bigint AS missing_to WHERE false",
            "view symphony.participant_sequence_gaps has another definition",
        )
        .await;
}

#[tokio::test]
async fn a_view_with_other_columns_is_put_back() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "DROP VIEW supervisor_outbox_status; CREATE VIEW symphony.supervisor_outbox_status AS SELECT 'all is well' AS lane; \
             ALTER VIEW supervisor_outbox_status OWNER TO symphony_control",
            "view symphony.supervisor_outbox_status has another definition",
        )
        .await;
}

#[tokio::test]
async fn a_privilege_of_a_runtime_role_is_taken_back() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "GRANT INSERT ON payment_outbox_attempts TO symphony_executor",
            "symphony_executor has INSERT on payment_outbox_attempts",
        )
        .await;
    victim
        .assert_restored(
            "GRANT EXECUTE ON FUNCTION resolve_outbox TO PUBLIC; GRANT UPDATE ON SEQUENCE event_outbox_position TO symphony_ingest",
            "public has EXECUTE on resolve_outbox",
        )
        .await;
}

#[tokio::test]
async fn a_privilege_on_one_column_is_taken_back() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "GRANT UPDATE (hold) ON payment_outbox_pending TO symphony_executor",
            "symphony_executor has UPDATE on payment_outbox_pending",
        )
        .await;
    let verdict = crate::support::verdict(
        &victim.db,
        "symphony_executor",
        "UPDATE payment_outbox_pending SET hold = NULL",
    )
    .await;
    assert_eq!(verdict, "42501");
}

#[tokio::test]
async fn the_owners_own_privileges_come_back() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "REVOKE INSERT ON payment_outbox_instructions FROM symphony_control; REVOKE USAGE ON SCHEMA symphony FROM symphony_control",
            "payment_outbox_instructions to symphony_control",
        )
        .await;
    victim.db.enqueue(&crate::support::payment("again", "acme", "ach")).await;
}

#[tokio::test]
async fn a_sequence_that_goes_round_goes_on_again() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "ALTER SEQUENCE event_outbox_position MAXVALUE 1000 CYCLE",
            "event_outbox_position is changed",
        )
        .await;
}

#[tokio::test]
async fn a_table_made_the_child_of_another_is_its_own_again() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "CREATE TABLE hoard (outbox_id UUID NOT NULL); ALTER TABLE payment_outbox_pending INHERIT hoard",
            "payment_outbox_pending of public.hoard",
        )
        .await;
    assert_eq!(victim.db.count("hoard").await, 0, "the other table stays");
}

/// What is compared is the catalog, not what the stamp says of it.
#[tokio::test]
async fn a_restamped_schema_is_found_all_the_same() {
    let victim = Victim::new().await;
    victim
        .assert_restored(
            "ALTER TABLE payment_outbox_instructions DROP CONSTRAINT payment_outbox_instructions_are_idempotent; \
             UPDATE symphony_schema SET applied_at = clock_timestamp()",
            "payment_outbox_instructions_are_idempotent is missing",
        )
        .await;
    assert_eq!(victim.verdict(SAME_PAYMENT).await, "23505");
}

/// A forged stamp must not lead anybody to `--fresh`, which drops the ledger.
#[tokio::test]
async fn a_forged_or_missing_stamp_is_written_anew_and_nothing_else_is_touched() {
    let victim = Victim::new().await;
    for tampering in [
        "UPDATE symphony_schema SET tables_hash = 'another'",
        "DELETE FROM symphony_schema",
        "DROP TABLE symphony_schema",
    ] {
        victim.db.sql(tampering).await;
        let told = victim.symphony("doctor").await;
        assert!(!told.ok, "{tampering}: {}", told.output);
        let told = victim.symphony("migrate").await;
        assert!(told.ok, "{tampering}: {}{}", told.output, told.error);
        victim.assert_well().await;
        assert_eq!(victim.db.count("payment_outbox_instructions").await, 6);
    }
}
