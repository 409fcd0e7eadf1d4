//! What others have built: before us under our names, or on ours. It is neither adopted nor destroyed.

use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;

use super::{Victim, on, server};
use crate::support::{run, unique};

async fn bare() -> PgConnectOptions {
    let name = unique("planted");
    let server = server().await;
    run(&mut server.connect().await.unwrap(), &format!("CREATE DATABASE {name}")).await.unwrap();
    server.clone().database(&name)
}

async fn sql(options: &PgConnectOptions, text: &str) {
    run(&mut options.connect().await.unwrap(), text)
        .await
        .unwrap_or_else(|e| panic!("{text}: {e}"));
}

async fn count(options: &PgConnectOptions, from: &str) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {from}")))
        .fetch_one(&mut options.connect().await.unwrap())
        .await
        .unwrap()
}

#[tokio::test]
async fn a_table_planted_before_the_installation_is_not_adopted_and_its_trigger_does_not_run() {
    let options = bare().await;
    sql(
        &options,
        "CREATE ROLE mallory_the_planter; CREATE SCHEMA symphony AUTHORIZATION mallory_the_planter; GRANT USAGE ON SCHEMA symphony TO PUBLIC; \
         SET ROLE mallory_the_planter; SET search_path = symphony; \
         CREATE TABLE loot (who TEXT); GRANT ALL ON loot TO PUBLIC; \
         CREATE FUNCTION pounce() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO symphony.loot VALUES (current_user); RETURN NEW; END $$; \
         CREATE TABLE payment_outbox_settings (only_row BOOLEAN PRIMARY KEY DEFAULT true, paused BOOLEAN DEFAULT false, \
             record_routine_events BOOLEAN DEFAULT false, approval_required BOOLEAN DEFAULT false); \
         GRANT ALL ON payment_outbox_settings TO PUBLIC; \
         CREATE TRIGGER pounce BEFORE INSERT ON payment_outbox_settings FOR EACH ROW EXECUTE FUNCTION pounce()",
    )
    .await;
    for line in ["migrate", "migrate --fresh --yes"] {
        let told = on(&options, line).await;
        assert!(
            !told.ok
                && told.error.contains(
                    "table symphony.payment_outbox_settings, owned by mallory_the_planter"
                ),
            "{}",
            told.error
        );
    }
    let told = on(&options, "doctor").await;
    assert!(!told.ok && told.output.contains("owned by mallory_the_planter"), "{}", told.output);
    let printed = on(&options, "migrate --print").await.output;
    let refused = run(&mut options.connect().await.unwrap(), &printed).await.unwrap_err();
    assert!(refused.to_string().contains("owned by mallory_the_planter"), "{refused}");
    assert_eq!(count(&options, "symphony.loot").await, 0, "its trigger never ran");
    assert_eq!(
        count(&options, "pg_class WHERE relowner = to_regrole('symphony_control')").await,
        0
    );
}

#[tokio::test]
async fn a_view_sequence_type_function_or_schema_of_our_name_is_refused_with_its_owner() {
    for (planted, words) in [
        (
            "CREATE VIEW symphony.event_outbox AS SELECT 1",
            "view symphony.event_outbox, owned by postgres",
        ),
        (
            "CREATE SEQUENCE symphony.event_outbox_position",
            "sequence symphony.event_outbox_position, owned by postgres",
        ),
        (
            "CREATE TYPE symphony.outbox_hold AS ENUM ('PARKED')",
            "type symphony.outbox_hold, owned by postgres",
        ),
        (
            "CREATE FUNCTION symphony.backoff(p_attempt_no INT) RETURNS INT LANGUAGE sql AS 'SELECT 0'",
            "function symphony.backoff, owned by postgres",
        ),
        ("SELECT 1", "schema symphony, owned by postgres"),
    ] {
        let options = bare().await;
        sql(&options, &format!("CREATE SCHEMA symphony; {planted}")).await;
        let told = on(&options, "migrate").await;
        assert!(!told.ok && told.error.contains(words), "{planted}: {}", told.error);
    }
}

#[tokio::test]
async fn a_strangers_payment_outbox_is_refused_with_its_owner_and_keeps_its_rows() {
    let options = bare().await;
    sql(
        &options,
        "CREATE ROLE the_old_shop; CREATE TABLE payment_outbox (id INT, status TEXT); \
         INSERT INTO payment_outbox SELECT n, 'sent' FROM generate_series(1, 1000) n; ALTER TABLE payment_outbox OWNER TO the_old_shop",
    )
    .await;
    for line in ["migrate", "migrate --replace-legacy --yes"] {
        let told = on(&options, line).await;
        assert!(
            !told.ok && told.error.contains("table payment_outbox, owned by the_old_shop"),
            "{line}: {}",
            told.error
        );
    }
    let told = on(&options, "migrate --replace-legacy").await;
    assert!(!told.ok && told.error.contains("--yes"), "{}", told.error);
    assert_eq!(count(&options, "payment_outbox").await, 1000);
}

/// Nobody's database: an enum of the name with other words is not an older installation.
#[tokio::test]
async fn a_type_of_the_older_name_with_other_words_is_refused() {
    let options = bare().await;
    sql(&options, "CREATE TYPE outbox_status AS ENUM ('PENDING', 'SHIPPED')").await;
    let told = on(&options, "migrate --replace-legacy --yes").await;
    assert!(
        !told.ok && told.error.contains("type outbox_status, owned by postgres"),
        "{}",
        told.error
    );
}

const USERS_OBJECTS: &str = "CREATE ROLE reporting_of_users; CREATE SCHEMA reporting; \
    CREATE VIEW reporting.lanes AS SELECT lane, pending FROM supervisor_outbox_status; \
    CREATE VIEW reporting.waiting AS SELECT count(*) FROM payment_outbox_pending; \
    CREATE FUNCTION reporting.delay(n INT) RETURNS INT LANGUAGE sql RETURN symphony.backoff(n); \
    GRANT USAGE ON SCHEMA symphony TO reporting_of_users; GRANT SELECT ON participant_sequence_gaps TO reporting_of_users";

async fn assert_users_objects_work(victim: &Victim) {
    assert_eq!(victim.db.count("reporting.lanes").await, 3);
    assert_eq!(victim.db.count("reporting.waiting").await, 1);
    let _delay: i32 = victim.db.one("SELECT reporting.delay(1)").await;
    assert_eq!(
        crate::support::verdict(
            &victim.db,
            "reporting_of_users",
            "TABLE participant_sequence_gaps"
        )
        .await,
        "OK"
    );
}

#[tokio::test]
async fn views_functions_and_grants_of_others_that_stand_on_ours_survive_every_migration() {
    let victim = Victim::new().await;
    victim.db.sql(USERS_OBJECTS).await;
    for tampering in [
        "UPDATE symphony_schema SET code_hash = 'older'",
        "CREATE OR REPLACE FUNCTION symphony.backoff(p_attempt_no INT) RETURNS INT LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 0",
        "ALTER FUNCTION backoff VOLATILE; UPDATE symphony_schema SET code_hash = 'older'",
        "ALTER VIEW supervisor_outbox_status SET (security_barrier)",
        // Its columns are others, so it must be made anew; the grant is not lost with it.
        "DROP VIEW participant_sequence_gaps; CREATE VIEW symphony.participant_sequence_gaps AS SELECT 1 AS older; \
         ALTER VIEW participant_sequence_gaps OWNER TO symphony_control; GRANT SELECT ON participant_sequence_gaps TO reporting_of_users",
    ] {
        victim.db.sql(tampering).await;
        let told = victim.symphony("migrate").await;
        assert!(told.ok, "{tampering}: {}", told.error);
        assert_users_objects_work(&victim).await;
        victim.assert_well().await;
    }
}

#[tokio::test]
async fn a_changed_signature_that_somebody_stands_on_is_refused_with_the_name_and_half_an_update_is_not_left()
 {
    let victim = Victim::new().await;
    victim
        .db
        .sql("DROP FUNCTION backoff; GRANT CREATE ON SCHEMA symphony TO symphony_control; SET ROLE symphony_control; \
              CREATE FUNCTION symphony.backoff(p_attempt_no INT) RETURNS BIGINT LANGUAGE sql RETURN 0; RESET ROLE; CREATE SCHEMA reporting; \
              CREATE VIEW reporting.delays AS SELECT symphony.backoff(1) AS first; REVOKE CREATE ON SCHEMA symphony FROM symphony_control; \
              UPDATE symphony_schema SET code_hash = 'older'; DROP FUNCTION claim_outbox_batch")
        .await;
    let told = victim.symphony("migrate").await;
    assert!(
        !told.ok && told.error.contains("view reporting.delays depends on function"),
        "{}",
        told.error
    );
    assert_eq!(victim.db.count("pg_proc WHERE proname = 'claim_outbox_batch'").await, 0);
    assert_eq!(victim.db.count("reporting.delays").await, 1, "it stays");
    victim.db.sql("DROP VIEW reporting.delays").await;
    assert!(victim.symphony("migrate").await.ok);
    victim.assert_well().await;
}

#[tokio::test]
async fn starting_afresh_stops_at_what_others_built_on_ours_and_names_it() {
    let victim = Victim::new().await;
    victim.db.sql("CREATE SCHEMA reporting; CREATE VIEW reporting.waiting AS SELECT count(*) FROM payment_outbox_pending").await;
    let told = victim.symphony("migrate --fresh --yes").await;
    assert!(
        !told.ok && told.error.contains("view reporting.waiting depends on table"),
        "{}",
        told.error
    );
    assert_eq!(victim.db.count("payment_outbox_instructions").await, 6, "nothing is dropped");
    victim.db.sql("DROP VIEW reporting.waiting").await;
    assert!(victim.symphony("migrate --fresh --yes").await.ok);
    assert_eq!(victim.db.count("payment_outbox_instructions").await, 0);
    victim.assert_well().await;
}
