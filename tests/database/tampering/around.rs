//! What is around the schema: settings by role or database, predefined roles, event triggers, the roles themselves.

use super::{Victim, alone, on};

#[tokio::test]
async fn a_setting_that_gives_up_durability_is_found() {
    let victim = Victim::new().await;
    let database = victim.db.options.get_database().unwrap().to_owned();
    victim
        .assert_left(
            &format!("ALTER DATABASE {database} SET synchronous_commit = off"),
            "setting synchronous_commit = off of every role in this database",
        )
        .await;
    victim.db.sql(&format!("ALTER DATABASE {database} RESET synchronous_commit")).await;
    victim.assert_well().await;
}

#[tokio::test]
async fn settings_of_a_workers_login_are_found() {
    let (victim, _alone) = alone().await;
    let database = victim.db.options.get_database().unwrap().to_owned();
    victim
        .db
        .sql("CREATE ROLE worker LOGIN; GRANT symphony_executor TO worker; CREATE SCHEMA evil")
        .await;
    for (setting, words) in [
        ("session_replication_role = replica", "session_replication_role = replica of role worker"),
        ("search_path = evil, pg_catalog", "search_path = evil, pg_catalog of role worker"),
        ("row_security = off", "row_security = off of role worker"),
        ("role = symphony_control", "role = symphony_control of role worker"),
    ] {
        let name = setting.split(' ').next().unwrap();
        victim
            .assert_left(&format!("ALTER ROLE worker IN DATABASE {database} SET {setting}"), words)
            .await;
        victim.db.sql(&format!("ALTER ROLE worker IN DATABASE {database} RESET {name}")).await;
    }
    // A path of the service's own harms nobody, until it leads to a function of our name.
    victim
        .db
        .sql(&format!("ALTER ROLE worker IN DATABASE {database} SET search_path = evil, public"))
        .await;
    victim.assert_well().await;
    victim
        .assert_left(
            "CREATE FUNCTION evil.enqueue_payment_outbox() RETURNS INT LANGUAGE sql AS 'SELECT 1'",
            "search_path = evil, public of role worker",
        )
        .await;
    victim.db.sql(&format!("ALTER ROLE worker IN DATABASE {database} RESET ALL; REVOKE symphony_executor FROM worker; DROP ROLE worker")).await;
}

#[tokio::test]
async fn a_predefined_role_of_a_runtime_login_is_found() {
    let (victim, _alone) = alone().await;
    victim
        .db
        .sql("CREATE ROLE teller LOGIN; GRANT symphony_ingest TO teller; CREATE ROLE backup LOGIN")
        .await;
    for role in ["pg_write_all_data", "pg_read_all_data", "pg_execute_server_program"] {
        victim
            .assert_left(
                &format!("GRANT {role} TO teller"),
                &format!("teller is a member of {role}"),
            )
            .await;
        victim.db.sql(&format!("REVOKE {role} FROM teller")).await;
    }
    // Somebody who has nothing to do with Symphony is only noted.
    victim.db.sql("GRANT pg_read_all_data TO backup").await;
    let told = victim.symphony("doctor").await;
    assert!(
        told.ok && told.output.contains("backup is a member of pg_read_all_data"),
        "{}",
        told.output
    );
    victim.db.sql("DROP ROLE backup, teller").await;
}

#[tokio::test]
async fn a_runtime_role_that_may_log_in_or_more_is_put_back() {
    let (victim, _alone) = alone().await;
    victim
        .assert_restored(
            "ALTER ROLE symphony_ingest LOGIN BYPASSRLS CREATEROLE",
            "role symphony_ingest is changed: login, createrole, bypassrls (declared: nologin)",
        )
        .await;
}

#[tokio::test]
async fn a_runtime_role_that_became_a_member_of_another_is_put_back() {
    let (victim, _alone) = alone().await;
    victim
        .assert_restored(
            "GRANT symphony_operator TO symphony_ingest",
            "membership symphony_ingest in symphony_operator is not declared",
        )
        .await;
}

#[tokio::test]
async fn an_event_trigger_that_runs_a_strangers_function_is_found_and_stops_migrate() {
    let victim = Victim::new().await;
    victim
        .assert_left(
            "CREATE ROLE mallory_of_events; CREATE FUNCTION spy() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'; \
             ALTER FUNCTION spy OWNER TO mallory_of_events; CREATE EVENT TRIGGER spy ON ddl_command_end EXECUTE FUNCTION spy()",
            "runs function public.spy of mallory_of_events",
        )
        .await;
    // One of the superuser's own can do nothing the superuser could not do anyway.
    victim.db.sql("ALTER FUNCTION spy OWNER TO postgres").await;
    let told = victim.symphony("doctor").await;
    assert!(told.ok && told.output.contains("event trigger spy of postgres"), "{}", told.output);
    let told = victim.symphony("migrate").await;
    assert!(told.ok && told.output.contains("note: event trigger spy"), "{}", told.output);
}

/// As on Aurora and RDS: CREATEROLE and ownership of the database, no superuser.
#[tokio::test]
async fn the_installing_login_needs_no_superuser_to_look_at_everything() {
    let (victim, _alone) = alone().await;
    let database = victim.db.options.get_database().unwrap().to_owned();
    victim
        .db
        .sql(&format!(
            "CREATE ROLE installer LOGIN CREATEROLE PASSWORD 'x'; GRANT symphony_control TO installer WITH ADMIN OPTION; \
             ALTER DATABASE {database} OWNER TO installer"
        ))
        .await;
    let installer = victim.db.options.clone().username("installer").password("x");
    let told = on(&installer, "doctor").await;
    assert!(told.output.contains("in every lane"), "{}{}", told.output, told.error);
    victim
        .db
        .sql("DELETE FROM payment_outbox_pending; UPDATE participant_outbox_sequences SET next_sequence_id = 77; \
              DROP INDEX payment_outbox_attempts_one_terminal_per_outbox")
        .await;
    let told = on(&installer, "doctor").await;
    for words in
        ["is neither pending nor ended", "participant acme", "one_terminal_per_outbox is missing"]
    {
        assert!(!told.ok && told.output.contains(words), "{words}: {}{}", told.output, told.error);
    }
    let told = on(&installer, "migrate").await;
    assert!(
        told.ok && told.output.contains("one_terminal_per_outbox"),
        "{}{}",
        told.output,
        told.error
    );
    assert_eq!(victim.verdict(super::SECOND_END).await, "23505");
    victim.db.sql(&format!("ALTER DATABASE {database} OWNER TO postgres; DROP OWNED BY installer; DROP ROLE installer")).await;
}
