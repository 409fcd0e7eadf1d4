//! The data: what was asked, what waits, the ledgers and their numbers agree, both ways, in every lane. `migrate` mends no
//! data and hides none: what was found before is found after it.

use super::Victim;

/// The guards are off while somebody edits, and on again when somebody looks.
async fn assert_data_found(edit: &str, words: &str) {
    let victim = Victim::new().await;
    victim.db.sql(&format!("SET session_replication_role = replica; {}", unguarded(edit))).await;
    victim.assert_found(words).await;
}

#[tokio::test]
async fn migrate_mends_no_data_and_hides_none() {
    let victim = Victim::new().await;
    victim.db.sql("DELETE FROM payment_outbox_pending WHERE sequence_id = 6").await;
    let told = victim.symphony("migrate").await;
    assert!(told.ok, "{}{}", told.output, told.error);
    victim.assert_found("is neither pending nor ended").await;
}

/// Ledger guards fire even for a replica: they are switched off, and back on, by whoever owns the table.
fn unguarded(edit: &str) -> String {
    let tables = [
        "payment_outbox_instructions",
        "payment_outbox_attempts",
        "event_outbox_identities",
        "event_outbox_log",
        "event_outbox_attempts",
        "trigger_outbox_attempts",
    ];
    let switch = |how: &str| {
        tables
            .iter()
            .map(|table| {
                format!(
                    "DO $$ DECLARE t TEXT; BEGIN FOR t IN SELECT tgname FROM pg_trigger WHERE tgrelid = '{table}'::regclass \
                     AND tgfoid = 'refuse_ledger_change'::regproc LOOP \
                     EXECUTE format('ALTER TABLE {table} {how} TRIGGER %I', t); END LOOP; END $$; "
                )
            })
            .collect::<Vec<_>>()
            .concat()
    };
    format!("{} {edit}; {}", switch("DISABLE"), switch("ENABLE ALWAYS"))
}

const ENDED: &str = "state IN ('DISPATCHED', 'FAILED')";

#[tokio::test]
async fn a_deleted_pending_row_is_found() {
    assert_data_found(
        "DELETE FROM payment_outbox_pending WHERE sequence_id = 6",
        "is neither pending nor ended",
    )
    .await;
}

#[tokio::test]
async fn a_pending_row_nobody_asked_for_is_found() {
    assert_data_found(
        "INSERT INTO payment_outbox_pending (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type) \
         VALUES (gen_random_uuid(), 'i', 'acme', 7, 'k', 'ach')",
        "is pending and was never asked for",
    )
    .await;
}

#[tokio::test]
async fn a_pending_row_that_was_turned_to_another_rail_is_found() {
    assert_data_found(
        "UPDATE payment_outbox_pending SET rail_type = 'wire' WHERE sequence_id = 6",
        "is pending as something else than was asked for",
    )
    .await;
}

#[tokio::test]
async fn an_ended_payment_made_pending_again_is_found() {
    assert_data_found(
        "INSERT INTO payment_outbox_pending (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type) \
         SELECT outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type \
           FROM payment_outbox_attempts WHERE state = 'DISPATCHED'",
        "is pending although it ended DISPATCHED",
    )
    .await;
}

#[tokio::test]
async fn a_deleted_ledger_row_is_found() {
    assert_data_found(
        &format!("DELETE FROM payment_outbox_attempts WHERE {ENDED}"),
        "is neither pending nor ended",
    )
    .await;
    assert_data_found(
        "DELETE FROM payment_outbox_attempts WHERE state = 'RETRYABLE'",
        "counts 1 attempts, its ledger has 0",
    )
    .await;
}

#[tokio::test]
async fn an_edited_ledger_row_is_found() {
    assert_data_found(
        "UPDATE payment_outbox_attempts SET participant_id = 'mallory' WHERE state = 'DISPATCHED'",
        "says something else than was asked for",
    )
    .await;
    assert_data_found(
        "UPDATE payment_outbox_attempts SET attempt_no = 2 WHERE state = 'DISPATCHED'",
        "has 1 rows numbered up to 2",
    )
    .await;
}

/// An edit that contradicts nothing leaves a trace in the server's own counters.
#[tokio::test]
async fn a_ledger_row_turned_from_failed_to_dispatched_is_found() {
    assert_data_found(
        "UPDATE payment_outbox_attempts SET state = 'DISPATCHED' WHERE state = 'FAILED'",
        "payment_outbox_attempts only grows, but since its counters were reset 1 rows of it were updated",
    )
    .await;
}

#[tokio::test]
async fn a_forged_ledger_row_is_found() {
    assert_data_found(
        "INSERT INTO payment_outbox_attempts (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, \
            attempt_no, state, completed_at, worker_id) \
         SELECT outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, attempt_count + 1, 'DISPATCHED', \
                now(), 'operator:dana' FROM payment_outbox_pending WHERE sequence_id = 6; \
         DELETE FROM payment_outbox_pending WHERE sequence_id = 6",
        "was written without a lease, and no person settled it",
    )
    .await;
    assert_data_found(
        "INSERT INTO payment_outbox_attempts (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, \
            attempt_no, state, completed_at, worker_id, lease_token) \
         VALUES (gen_random_uuid(), 'i', 'p', 1, 'k', 'ach', 1, 'DISPATCHED', now(), 'w', gen_random_uuid())",
        "is of a payment nobody asked for",
    )
    .await;
}

#[tokio::test]
async fn a_payment_whose_contents_were_changed_is_found() {
    assert_data_found(
        "UPDATE payment_outbox_instructions SET payload = jsonb_set(payload, '{destination,iban}', '\"DE00\"') WHERE sequence_id = 6",
        "its contents do not have the hash of the request",
    )
    .await;
}

#[tokio::test]
async fn a_deleted_instruction_is_found() {
    assert_data_found(
        "DELETE FROM payment_outbox_instructions WHERE sequence_id = 5; DELETE FROM payment_outbox_pending WHERE sequence_id = 5",
        "participant acme: numbers 5 to 5 are missing",
    )
    .await;
}

#[tokio::test]
async fn a_counter_set_forward_back_or_removed_is_found() {
    assert_data_found(
        "UPDATE participant_outbox_sequences SET next_sequence_id = 9",
        "numbers 7 to 8 are missing",
    )
    .await;
    assert_data_found(
        "UPDATE participant_outbox_sequences SET next_sequence_id = 3",
        "or its counter is wrong",
    )
    .await;
    assert_data_found("DELETE FROM participant_outbox_sequences", "has payments and no counter")
        .await;
}

#[tokio::test]
async fn a_forged_count_of_attempts_is_found() {
    assert_data_found(
        "UPDATE payment_outbox_pending SET attempt_count = 19 WHERE sequence_id = 6",
        "counts 19 attempts, its ledger has 0",
    )
    .await;
    assert_data_found(
        "UPDATE trigger_outbox_pending SET attempt_count = attempt_count + 1",
        "attempts, its ledger has",
    )
    .await;
}

#[tokio::test]
async fn missing_settings_and_cursors_are_found() {
    assert_data_found("DELETE FROM payment_outbox_settings", "the payment lane has no settings")
        .await;
    assert_data_found("DELETE FROM symphony_installation", "the installation has no identity")
        .await;
    assert_data_found(
        "DELETE FROM event_outbox_cursors WHERE bucket = 7",
        "255 cursors instead of 256",
    )
    .await;
}

#[tokio::test]
async fn an_event_that_lost_its_identity_or_its_place_in_the_log_is_found() {
    assert_data_found(
        "DELETE FROM event_outbox_identities WHERE event_id = (SELECT event_id FROM event_outbox_log LIMIT 1)",
        "identity and log do not agree",
    )
    .await;
    assert_data_found(
        "DELETE FROM event_outbox_log WHERE event_key = 'a'",
        "identity and log do not agree",
    )
    .await;
    assert_data_found(
        "UPDATE event_outbox_log SET event_key = 'z' WHERE event_key = 'a'",
        "where its key does not belong",
    )
    .await;
}

#[tokio::test]
async fn an_event_passed_over_by_its_cursor_is_found() {
    assert_data_found(
        "UPDATE event_outbox_cursors c SET published_through = l.position, claimed_through = l.position, claimed_by = NULL, \
            lease_token = NULL, lease_expires_at = NULL \
           FROM (SELECT bucket, max(position) AS position FROM event_outbox_log WHERE event_key = 'b' GROUP BY 1) l WHERE l.bucket = c.bucket; \
         DELETE FROM event_outbox_waiting; DELETE FROM event_outbox_blocked",
        "was passed over",
    )
    .await;
    assert_data_found("DELETE FROM event_outbox_attempts WHERE event_key = 'a'", "was passed over")
        .await;
}

#[tokio::test]
async fn a_forged_ledger_row_of_an_event_is_found() {
    assert_data_found(
        "UPDATE event_outbox_attempts SET event_id = gen_random_uuid() WHERE event_key = 'a'",
        "is of no event in the log, or of another",
    )
    .await;
    assert_data_found(
        "INSERT INTO event_outbox_attempts (bucket, position, outcome_no, attempt_no, state, event_id, event_key, completed_at, worker_id) \
         SELECT bucket, 1000000, 0, 1, 'DISPATCHED', event_id, event_key, now(), 'w' FROM event_outbox_log LIMIT 1",
        "is of an event nobody has claimed",
    )
    .await;
}

#[tokio::test]
async fn a_log_whose_numbers_were_set_back_is_found() {
    for sequence in ["event_outbox_horizon", "event_outbox_next_horizon"] {
        assert_data_found(
            &format!("SELECT setval('{sequence}', 1000000)"),
            "late commits would be passed over",
        )
        .await;
    }
    assert_data_found("SELECT setval('event_outbox_position', 1)", "where one stands already")
        .await;
}

#[tokio::test]
async fn an_execution_that_lost_its_row_or_its_ledger_is_found() {
    assert_data_found(
        "DELETE FROM trigger_outbox_pending WHERE attempt_count = 1",
        "has attempts and is neither pending nor ended",
    )
    .await;
    assert_data_found("DELETE FROM trigger_outbox_executions", "and its ledger do not agree").await;
    assert_data_found(
        &format!("DELETE FROM trigger_outbox_attempts WHERE {ENDED}"),
        "and its ledger do not agree",
    )
    .await;
    assert_data_found(
        "UPDATE trigger_outbox_executions SET state = 'DISPATCHED' WHERE state = 'FAILED'",
        "and its ledger do not agree",
    )
    .await;
}

#[tokio::test]
async fn more_than_a_gigabyte_is_compared_only_when_asked_to() {
    assert_eq!(symphony::db::data_checks::COMPARED_BYTES_MAX, 1 << 30);
    let victim = Victim::new().await;
    let told = victim.symphony("doctor --deep").await;
    assert!(told.ok && told.output.contains("agree, in every lane"), "{}", told.output);
}
