//! What `migrate` cannot prove, or what is not its own: named, left as it is, and nothing stamped.

use super::{SAME_PAYMENT, Victim};

#[tokio::test]
async fn a_dropped_constraint_that_the_data_contradicts_by_now_is_named_with_the_key() {
    let victim = Victim::new().await;
    let tampering = format!(
        "ALTER TABLE payment_outbox_instructions DROP CONSTRAINT payment_outbox_instructions_are_idempotent; {SAME_PAYMENT}"
    );
    victim.assert_left(&tampering, "payment_outbox_instructions_are_idempotent is missing").await;
    let told = victim.symphony("migrate").await;
    assert!(told.error.contains("(acme-ach-0, key, 0)"), "{}", told.error);
    assert_eq!(victim.db.count("payment_outbox_instructions").await, 7, "no row is dropped");
}

#[tokio::test]
async fn what_can_be_restored_is_even_if_something_else_cannot() {
    let victim = Victim::new().await;
    victim
        .assert_left(
            "ALTER TABLE payment_outbox_rails ADD COLUMN theirs INT; \
             ALTER TABLE payment_outbox_attempts DISABLE TRIGGER payment_outbox_attempts_only_grow",
            "payment_outbox_rails.theirs is not declared",
        )
        .await;
    assert_eq!(victim.verdict("DELETE FROM payment_outbox_attempts").await, "P0001");
}

#[tokio::test]
async fn a_column_more_is_named_and_kept() {
    let victim = Victim::new().await;
    victim
        .assert_left(
            "ALTER TABLE payment_outbox_instructions ADD COLUMN note TEXT DEFAULT 'theirs'",
            "column symphony.payment_outbox_instructions.note is not declared",
        )
        .await;
    assert_eq!(victim.db.count("payment_outbox_instructions WHERE note = 'theirs'").await, 6);
}

#[tokio::test]
async fn a_column_of_another_type_is_named() {
    let victim = Victim::new().await;
    victim
        .assert_left(
            "ALTER TABLE trigger_outbox_attempts ALTER COLUMN latency_ms TYPE BIGINT",
            "trigger_outbox_attempts.latency_ms is changed: bigint (declared: integer)",
        )
        .await;
}

#[tokio::test]
async fn a_dropped_column_is_named() {
    let victim = Victim::new().await;
    victim
        .assert_left(
            "ALTER TABLE payment_outbox_instructions DROP COLUMN traceparent",
            "payment_outbox_instructions.traceparent is missing",
        )
        .await;
}

/// Made anew it would be empty, and nobody would know.
#[tokio::test]
async fn a_dropped_table_is_named_and_not_made_anew() {
    let victim = Victim::new().await;
    victim
        .assert_left(
            "DROP TABLE payment_outbox_paused_participants",
            "relation symphony.payment_outbox_paused_participants is missing",
        )
        .await;
}

#[tokio::test]
async fn a_foreign_trigger_on_the_ledger_is_named_and_kept() {
    let victim = Victim::new().await;
    victim
        .assert_left(
            "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
             CREATE TRIGGER swallow BEFORE INSERT ON payment_outbox_attempts FOR EACH ROW EXECUTE FUNCTION swallow()",
            "trigger symphony.payment_outbox_attempts.swallow is not declared",
        )
        .await;
}

#[tokio::test]
async fn a_rule_that_swallows_writes_is_named() {
    let victim = Victim::new().await;
    victim
        .assert_left(
            "CREATE RULE swallow AS ON INSERT TO event_outbox_attempts DO INSTEAD NOTHING",
            "rule symphony.event_outbox_attempts.swallow is not declared",
        )
        .await;
}

#[tokio::test]
async fn a_policy_that_hides_rows_is_named() {
    let victim = Victim::new().await;
    victim
        .assert_left(
            "ALTER TABLE payment_outbox_pending ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; \
             CREATE POLICY hide ON payment_outbox_pending USING (participant_id <> 'acme')",
            "policy symphony.payment_outbox_pending.hide is not declared",
        )
        .await;
    assert_eq!(victim.db.claim("w", 1).await.len(), 1, "but it hides nothing any more");
}

#[tokio::test]
async fn a_child_that_adds_rows_to_ours_is_named_with_its_owner() {
    let victim = Victim::new().await;
    victim
        .assert_left(
            "CREATE TABLE forged () INHERITS (payment_outbox_attempts)",
            "public.forged of symphony.payment_outbox_attempts is not declared: owner postgres",
        )
        .await;
}

#[tokio::test]
async fn a_unique_index_more_is_named_and_an_ordinary_one_only_noted() {
    let victim = Victim::new().await;
    victim.db.sql("CREATE INDEX theirs ON payment_outbox_instructions (created_at)").await;
    let told = victim.symphony("doctor").await;
    let noted = told.output.lines().any(|l| l.starts_with("WARN") && l.contains("symphony.theirs"));
    assert!(told.ok && noted, "{}", told.output);
    let told = victim.symphony("migrate").await;
    assert!(told.ok, "{}", told.error);
    victim
        .assert_left(
            "CREATE UNIQUE INDEX one_a_day ON payment_outbox_pending (participant_id, instruction_id)",
            "index symphony.one_a_day is not declared",
        )
        .await;
}

#[tokio::test]
async fn a_check_more_is_named() {
    let victim = Victim::new().await;
    victim
        .assert_left(
            "ALTER TABLE payment_outbox_attempts ADD CONSTRAINT never CHECK (state <> 'FAILED') NOT VALID",
            "constraint symphony.payment_outbox_attempts.never is not declared",
        )
        .await;
}

#[tokio::test]
async fn a_foreign_key_to_ours_which_would_refuse_our_deletions_is_named() {
    let victim = Victim::new().await;
    victim
        .assert_left(
            "CREATE TABLE holds (outbox_id UUID REFERENCES payment_outbox_pending)",
            "reference public.holds.holds_outbox_id_fkey is not declared",
        )
        .await;
}

#[tokio::test]
async fn a_table_of_another_owner_is_named_with_the_owner() {
    let victim = Victim::new().await;
    victim
        .assert_left(
            "CREATE ROLE mallory_of_tables; ALTER TABLE payment_outbox_attempts OWNER TO mallory_of_tables",
            "payment_outbox_attempts, owned by mallory_of_tables",
        )
        .await;
}

#[tokio::test]
async fn a_function_of_another_owner_is_named_with_the_owner() {
    let victim = Victim::new().await;
    victim
        .assert_left(
            "CREATE ROLE mallory_of_functions; ALTER FUNCTION claim_outbox_batch OWNER TO mallory_of_functions",
            "claim_outbox_batch, owned by mallory_of_functions",
        )
        .await;
}

#[tokio::test]
async fn an_overload_of_a_stranger_is_named_with_its_owner() {
    let victim = Victim::new().await;
    victim
        .assert_left(
            "CREATE ROLE mallory_of_overloads; GRANT CREATE ON SCHEMA symphony TO mallory_of_overloads; SET ROLE mallory_of_overloads; \
             CREATE FUNCTION symphony.enqueue_payment_outbox(TEXT, TEXT, TEXT, TEXT, JSON) RETURNS INT LANGUAGE sql AS 'SELECT 1'",
            "function symphony.enqueue_payment_outbox, owned by mallory_of_overloads",
        )
        .await;
}

#[tokio::test]
async fn a_strangers_right_to_write_is_named_and_a_strangers_right_to_read_only_noted() {
    let victim = Victim::new().await;
    victim
        .db
        .sql("CREATE ROLE grafana; GRANT USAGE ON SCHEMA symphony TO grafana; GRANT SELECT ON supervisor_outbox_status, payment_outbox_attempts TO grafana")
        .await;
    let told = victim.symphony("doctor").await;
    assert!(told.ok && told.output.contains("grafana has SELECT on supervisor_outbox_status"));
    let told = victim.symphony("migrate").await;
    assert!(told.ok && told.output.contains("note: grafana has SELECT"), "{}", told.output);
    assert_eq!(
        crate::support::verdict(&victim.db, "grafana", "TABLE supervisor_outbox_status").await,
        "OK",
        "it survives"
    );
    victim
        .assert_left(
            "GRANT INSERT (worker_id) ON payment_outbox_attempts TO grafana",
            "grafana has INSERT on payment_outbox_attempts.worker_id",
        )
        .await;
}

#[tokio::test]
async fn another_word_in_an_enum_is_named() {
    let victim = Victim::new().await;
    victim
        .assert_left(
            "ALTER TYPE outbox_attempt_state ADD VALUE 'PROBABLY'",
            "type symphony.outbox_attempt_state is changed",
        )
        .await;
}

#[tokio::test]
async fn privileges_granted_in_advance_by_the_owner_are_named() {
    let victim = Victim::new().await;
    victim
        .assert_left(
            "CREATE ROLE mallory_of_defaults; \
             ALTER DEFAULT PRIVILEGES FOR ROLE symphony_control GRANT ALL ON TABLES TO mallory_of_defaults",
            "privileges of symphony_control on tables is not declared",
        )
        .await;
}
