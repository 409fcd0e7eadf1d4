//! Bad input gets its SQLSTATE, names the argument, and loses nothing.

use sqlx::AssertSqlSafe;

use crate::support::{TestDb, payment, run};

async fn refused(db: &TestDb, role: &str, sql: &str) -> (String, String) {
    let mut connection = db.as_role(role).await;
    match sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await {
        Ok(_) => panic!("accepted: {sql}"),
        Err(sqlx::Error::Database(error)) => {
            (error.code().unwrap().into_owned(), error.message().to_owned())
        }
        Err(other) => panic!("{sql}: {other}"),
    }
}

#[tokio::test]
async fn bad_arguments_get_p7005_and_the_arguments_name() {
    let db = TestDb::new().await;
    let id = "00000000-0000-0000-0000-000000000001";
    let long = "x".repeat(256);
    let two_megabytes = format!(r#"{{"x": "{}"}}"#, "y".repeat(2 << 20));
    let cases: Vec<(&str, String, &str)> = vec![
        ("symphony_ingest", "enqueue_payment_outbox('', 'p', 'k', 'r', '{}')".into(), "p_instruction_id"),
        ("symphony_ingest", "enqueue_payment_outbox('  ', 'p', 'k', 'r', '{}')".into(), "p_instruction_id"),
        ("symphony_ingest", "enqueue_payment_outbox(E'\\t\\n', 'p', 'k', 'r', '{}')".into(), "p_instruction_id"),
        ("symphony_ingest", "enqueue_payment_outbox(NULL, 'p', 'k', 'r', '{}')".into(), "p_instruction_id"),
        ("symphony_ingest", "enqueue_payment_outbox('i', '', 'k', 'r', '{}')".into(), "p_participant_id"),
        ("symphony_ingest", "enqueue_payment_outbox('i', 'p', '', 'r', '{}')".into(), "p_idempotency_key"),
        ("symphony_ingest", "enqueue_payment_outbox('i', 'p', 'k', ' ', '{}')".into(), "p_rail_type"),
        ("symphony_ingest", format!("enqueue_payment_outbox('i', '{long}', 'k', 'r', '{{}}')"), "p_participant_id"),
        ("symphony_ingest", format!("enqueue_payment_outbox('i', 'p', 'k', 'r', '{{}}', '{long}')"), "p_traceparent"),
        ("symphony_ingest", "enqueue_payment_outbox('i', 'p', 'k', 'r', NULL)".into(), "p_payload"),
        ("symphony_ingest", "enqueue_payment_outbox('i', 'p', 'k', 'r', '[]')".into(), "p_payload"),
        ("symphony_ingest", "enqueue_payment_outbox('i', 'p', 'k', 'r', '\"x\"')".into(), "p_payload"),
        ("symphony_ingest", "enqueue_payment_outbox('i', 'p', 'k', 'r', 'null')".into(), "p_payload"),
        ("symphony_ingest", format!("enqueue_payment_outbox('i', 'p', 'k', 'r', '{two_megabytes}')"), "p_payload"),
        ("symphony_ingest", "enqueue_payment_outbox_batch('{}', '{}', '{}', '{}', '{}')".into(), "p_instruction_ids"),
        ("symphony_ingest", "enqueue_payment_outbox_batch(NULL, NULL, NULL, NULL, NULL)".into(), "p_instruction_ids"),
        ("symphony_ingest", "enqueue_payment_outbox_batch('{a}', '{a,b}', '{a}', '{a}', '{\"{}\"}')".into(), "p_participant_ids"),
        ("symphony_ingest", "enqueue_payment_outbox_batch('{a}', '{a}', '{a}', '{a}', NULL)".into(), "p_payloads"),
        ("symphony_ingest", "enqueue_payment_outbox_batch(array_fill('a'::text, ARRAY[4097]), '{}', '{}', '{}', '{}')".into(), "p_instruction_ids"),
        ("symphony_executor", "claim_outbox_batch(0, 'w', 60)".into(), "p_batch_size"),
        ("symphony_executor", "claim_outbox_batch(-1, 'w', 60)".into(), "p_batch_size"),
        ("symphony_executor", "claim_outbox_batch(NULL, 'w', 60)".into(), "p_batch_size"),
        ("symphony_executor", "claim_outbox_batch(100000, 'w', 60)".into(), "p_batch_size"),
        ("symphony_executor", "claim_outbox_batch(1, '', 60)".into(), "p_worker_id"),
        ("symphony_executor", "claim_outbox_batch(1, 'w', 0)".into(), "p_lease_seconds"),
        ("symphony_executor", "claim_outbox_batch(1, 'w', -5)".into(), "p_lease_seconds"),
        ("symphony_executor", "claim_outbox_batch(1, 'w', 999999)".into(), "p_lease_seconds"),
        ("symphony_executor", "repair_expired_leases(0, 'w')".into(), "p_batch_size"),
        ("symphony_executor", "repair_expired_leases(1, NULL)".into(), "p_worker_id"),
        ("symphony_executor", format!("renew_outbox_leases('w', '{{{id}}}', '{{{id}}}', 0)"), "p_lease_seconds"),
        ("symphony_executor", format!("renew_outbox_leases('w', '{{{id}}}', '{{}}', 60)"), "p_lease_tokens"),
        ("symphony_executor", "mark_outbox_sending('w', '{}', '{}')".into(), "p_outbox_ids"),
        ("symphony_executor", "return_unsent_outbox_leases(' ', '{}', '{}')".into(), "p_worker_id"),
        ("symphony_executor", "complete_outbox_attempts('w', '{}', '{}', '{}')".into(), "p_outbox_ids"),
        ("symphony_executor", format!("complete_outbox_attempts('w', '{{{id},{id}}}', '{{{id},{id}}}', '{{FAILED,FAILED}}')"), "p_outbox_ids"),
        ("symphony_executor", format!("complete_outbox_attempts('w', '{{{id}}}', '{{{id}}}', '{{FAILED}}', '{{a,b}}')"), "p_rail_references"),
        ("symphony_executor", format!("complete_outbox_attempt('{id}', '{id}', ' ', 'FAILED')"), "p_worker_id"),
        ("symphony_operator", "pause_payment_rail('', 'a', 'b')".into(), "p_rail_type"),
        ("symphony_operator", "pause_payment_lane('', 'b')".into(), "p_actor"),
        ("symphony_operator", "pause_payment_lane('a', NULL)".into(), "p_reason"),
        ("symphony_operator", "configure_payment_rail('r', 'a', 'b', p_on_failed => 'explode')".into(), "p_on_failed"),
    ];
    for (role, call, argument) in cases {
        let (state, message) = refused(&db, role, &format!("SELECT {call}")).await;
        assert_eq!(state, "P7005", "{call:.120}: {message}");
        assert!(message.starts_with(argument), "{call:.120}: {message}");
    }
    assert_eq!(db.count("payment_outbox_instructions").await, 0);
    assert_eq!(db.count("participant_outbox_sequences").await, 0);
}

#[tokio::test]
async fn a_nul_byte_gets_one_clear_line() {
    let db = TestDb::new().await;
    let error =
        db.database.producer().enqueue_payment(&payment("a\0b", "p", "ach")).await.unwrap_err();
    assert_eq!((error.code(), error.to_string().lines().count()), ("22021", 1), "{error}");
    let (state, _) = refused(
        &db,
        "symphony_ingest",
        r#"SELECT enqueue_payment_outbox('i', 'p', 'k', 'r', '{"a": "\u0000"}')"#,
    )
    .await;
    assert_eq!(state, "22P05");
}

#[tokio::test]
async fn an_unknown_item_is_p7002_to_a_worker_and_p7007_to_a_person() {
    let db = TestDb::new().await;
    let id = "00000000-0000-0000-0000-000000000001";
    assert_eq!(
        refused(
            &db,
            "symphony_executor",
            &format!("SELECT complete_outbox_attempt('{id}', '{id}', 'w', 'FAILED')")
        )
        .await
        .0,
        "P7002"
    );
    assert_eq!(
        refused(
            &db,
            "symphony_executor",
            &format!("SELECT record_late_outcome('{id}', '{id}', 'w', 'FAILED')")
        )
        .await
        .0,
        "P7007"
    );
    for act in ["park_outbox", "release_outbox", "redrive_outbox"] {
        assert_eq!(
            refused(&db, "symphony_operator", &format!("SELECT {act}('{id}', 'a', 'b')")).await.0,
            "P7007"
        );
    }
    assert_eq!(
        refused(
            &db,
            "symphony_operator",
            &format!("SELECT resolve_outbox('{id}', 'MAYBE', 'a', 'b')")
        )
        .await
        .0,
        "P7003"
    );
}

#[tokio::test]
async fn a_payload_of_exactly_one_mebibyte_is_accepted() {
    let db = TestDb::new().await;
    let text = |bytes: usize| format!(r#"{{"x": "{}"}}"#, "y".repeat(bytes - 9));
    let mut ingest = db.as_role("symphony_ingest").await;
    run(
        &mut ingest,
        &format!("SELECT enqueue_payment_outbox('i', 'p', 'k', 'r', '{}')", text(1 << 20)),
    )
    .await
    .unwrap();
    assert_eq!(
        refused(
            &db,
            "symphony_ingest",
            &format!(
                "SELECT enqueue_payment_outbox('i2', 'p', 'k', 'r', '{}')",
                text((1 << 20) + 1)
            )
        )
        .await
        .0,
        "P7005"
    );
}
