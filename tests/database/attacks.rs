//! What somebody with a foothold would try.

use sqlx::AssertSqlSafe;
use symphony::db::PaymentLease;

use crate::support::{TestDb, act, payment, run, verdict};

#[tokio::test]
async fn a_temporary_table_cannot_hijack_a_definer_function() {
    let db = TestDb::new().await;
    let mut ingest = db.as_role("symphony_ingest").await;
    for decoy in [
        "CREATE TEMP TABLE payment_outbox_instructions (outbox_id uuid, instruction_id text, idempotency_key text, redrive_no int, sequence_id bigint, created_at timestamptz, request_hash bytea)",
        "CREATE TEMP TABLE payment_outbox_rails (rail_type text, fifo boolean)",
        "CREATE FUNCTION pg_temp.jsonb_typeof(jsonb) RETURNS text LANGUAGE sql AS $$ SELECT 'object' $$",
        "CREATE FUNCTION pg_temp.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT 'epoch'::timestamptz $$",
        "SET search_path = pg_temp, public",
    ] {
        run(&mut ingest, decoy).await.unwrap();
    }
    let request = payment("i", "p", "ach");
    let enqueued = symphony::payments::enqueue(&mut ingest, &request).await.unwrap();
    assert_eq!(
        db.count("symphony.payment_outbox_instructions").await,
        1,
        "the real table was written"
    );
    assert!(enqueued.created_at.timestamp() > 1_000_000_000, "by the real clock");
    assert!(symphony::payments::enqueue(&mut ingest, &request).await.unwrap().duplicate);
}

#[tokio::test]
async fn every_definer_function_has_a_fixed_search_path_that_ends_in_pg_temp() {
    let db = TestDb::new().await;
    let loose: Vec<String> = sqlx::query_scalar(
        "SELECT proname::text FROM pg_proc WHERE pronamespace = 'symphony'::regnamespace \
            AND (prosecdef OR prolang <> (SELECT oid FROM pg_language WHERE lanname = 'sql') OR prosqlbody IS NULL) \
            AND NOT coalesce(proconfig @> ARRAY['search_path=pg_catalog, pg_temp'], false)",
    )
    .fetch_all(&mut db.admin().await)
    .await
    .unwrap();
    assert_eq!(loose, Vec::<String>::new());
    let foreign: Vec<String> =
        sqlx::query_scalar("SELECT proname::text FROM pg_proc WHERE pronamespace = 'symphony'::regnamespace AND proowner <> 'symphony_control'::regrole")
            .fetch_all(&mut db.admin().await)
            .await
            .unwrap();
    assert_eq!(foreign, Vec::<String>::new());
}

#[tokio::test]
async fn no_runtime_role_can_hang_a_trigger_on_a_table_that_definers_write() {
    let db = TestDb::new().await;
    for role in symphony::db::privileges::RUNTIME_ROLES {
        let mut connection = db.as_role(role).await;
        run(&mut connection, "CREATE FUNCTION pg_temp.evil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$").await.unwrap();
        for (table, _) in symphony::db::privileges::TABLES {
            let refused = sqlx::raw_sql(AssertSqlSafe(format!("CREATE TRIGGER evil BEFORE INSERT ON symphony.{table} FOR EACH ROW EXECUTE FUNCTION pg_temp.evil()")))
                .execute(&mut connection)
                .await
                .unwrap_err();
            // A view says that it can have no such trigger before it says who may not make one.
            let state = refused.as_database_error().unwrap().code().unwrap().into_owned();
            assert!(["42501", "42809"].contains(&state.as_str()), "{role} on {table}: {state}");
        }
    }
}

#[tokio::test]
async fn the_replica_role_does_not_switch_the_ledgers_guards_off() {
    let db = TestDb::new().await;
    db.enqueue(&payment("i", "p", "ach")).await;
    let mut admin = db.admin().await;
    run(&mut admin, "SET session_replication_role = replica").await.unwrap();
    for change in [
        "UPDATE payment_outbox_instructions SET rail_type = 'x'",
        "DELETE FROM payment_outbox_instructions",
        "TRUNCATE payment_outbox_attempts",
    ] {
        let refused = sqlx::raw_sql(AssertSqlSafe(change)).execute(&mut admin).await.unwrap_err();
        assert_eq!(refused.as_database_error().unwrap().code().unwrap(), "P0001", "{change}");
    }
}

#[tokio::test]
async fn no_runtime_role_can_become_another_or_the_owner() {
    let db = TestDb::new().await;
    for (n, role) in symphony::db::privileges::RUNTIME_ROLES.iter().enumerate() {
        let login = format!("login_{n}_of_this_test");
        db.sql(&format!("DROP ROLE IF EXISTS {login}; CREATE ROLE {login} LOGIN PASSWORD 'x'; GRANT {role} TO {login}")).await;
        let mut connection =
            sqlx::ConnectOptions::connect(&db.options.clone().username(&login).password("x"))
                .await
                .unwrap();
        run(&mut connection, &format!("SET ROLE {role}")).await.unwrap();
        for other in symphony::db::privileges::RUNTIME_ROLES
            .iter()
            .chain(&["symphony_control", "postgres"])
            .filter(|other| *other != role)
        {
            let refused = sqlx::raw_sql(AssertSqlSafe(format!("SET ROLE {other}")))
                .execute(&mut connection)
                .await
                .unwrap_err();
            assert_eq!(
                refused.as_database_error().unwrap().code().unwrap(),
                "42501",
                "{role} -> {other}"
            );
        }
    }
}

#[tokio::test]
async fn a_function_added_later_is_not_executable_by_public() {
    let db = TestDb::new().await;
    db.sql("GRANT CREATE ON SCHEMA symphony TO symphony_control; SET ROLE symphony_control; \
            CREATE FUNCTION symphony.added_later() RETURNS int LANGUAGE sql AS 'SELECT 1'; RESET ROLE")
        .await;
    assert_eq!(verdict(&db, "symphony_readonly", "SELECT symphony.added_later()").await, "42501");
}

#[tokio::test]
async fn the_ledger_names_the_login_behind_a_role_and_not_the_owner() {
    let db = TestDb::new().await;
    db.sql("DROP ROLE IF EXISTS night_shift; CREATE ROLE night_shift LOGIN PASSWORD 'x'; GRANT symphony_operator TO night_shift").await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    let options = db.options.clone().username("night_shift").password("x");
    let database =
        symphony::db::Database::connect(options, 1, symphony::db::RoleSource::Login).await.unwrap();
    database.operator().park_payment(item, &act()).await.unwrap();
    assert_eq!(
        db.one::<String>("SELECT session_role FROM payment_outbox_events").await,
        "night_shift"
    );
}

#[tokio::test]
async fn no_error_carries_the_payload() {
    let db = TestDb::new().await;
    let secret = "DE89370400440532013000";
    let payload = format!(r#"{{"iban": "{secret}"}}"#);
    let big = format!(r#"{{"iban": "{secret}", "x": "{}"}}"#, "y".repeat(1 << 20));
    db.sql(&format!("SELECT enqueue_payment_outbox('i', 'p', 'k', 'ach', '{payload}')")).await;
    let mut ingest = db.as_role("symphony_ingest").await;
    let long = "i".repeat(300);
    for call in [
        format!("SELECT enqueue_payment_outbox('i', 'other', 'k', 'ach', '{payload}')"),
        format!("SELECT enqueue_payment_outbox('', 'p', 'k', 'ach', '{payload}')"),
        format!("SELECT enqueue_payment_outbox('{long}', 'p', 'k', 'ach', '{payload}')"),
        format!("SELECT enqueue_payment_outbox('i2', 'p', 'k', 'ach', '[\"{secret}\"]')"),
        format!("SELECT enqueue_payment_outbox('i2', 'p', 'k', 'ach', '{big}')"),
        format!(
            "SELECT enqueue_payment_outbox_batch(ARRAY['i'], ARRAY['p', 'q'], ARRAY['k'], ARRAY['ach'], ARRAY['{payload}'::jsonb])"
        ),
    ] {
        let error = sqlx::raw_sql(AssertSqlSafe(call)).execute(&mut ingest).await.unwrap_err();
        let told = format!("{error:?}");
        assert!(!told.contains(secret), "{told}");
    }
}

/// An application's own role often may create in `public`: it must not get code run as the owner that way.
#[tokio::test]
async fn nobody_can_plant_an_overload_where_definers_look() {
    let db = TestDb::new().await;
    db.sql(
        "CREATE ROLE planter_of_this_test; GRANT CREATE ON SCHEMA public TO planter_of_this_test; \
            GRANT symphony_ingest, symphony_executor, symphony_operator TO planter_of_this_test",
    )
    .await;
    let mut attacker = db.as_role("planter_of_this_test").await;
    let evil = "LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked as %', current_user USING ERRCODE = 'XX001'; END $$";
    for (function, _) in symphony::db::privileges::FUNCTIONS {
        for arguments in [
            "text",
            "text, int, int",
            "anyelement, anyelement",
            "uuid, text, text",
            "VARIADIC text[]",
        ] {
            let plant = |schema: &str| {
                format!("CREATE FUNCTION {schema}.{function}({arguments}) RETURNS int {evil}")
            };
            let refused =
                sqlx::raw_sql(AssertSqlSafe(plant("symphony"))).execute(&mut attacker).await;
            let code =
                refused.unwrap_err().as_database_error().unwrap().code().unwrap().into_owned();
            assert_eq!(code, "42501", "{function}({arguments})");
            run(&mut attacker, &plant("public")).await.unwrap();
        }
    }
    run(&mut attacker, "SET search_path = public, symphony").await.unwrap();
    run(&mut attacker, "SELECT symphony.enqueue_payment_outbox('i', 'p', 'k', 'ach', '{}')")
        .await
        .unwrap();
    run(&mut attacker, "SELECT symphony.enqueue_payment_outbox_batch(ARRAY['j', ' '], ARRAY['p', 'p'], ARRAY['k', 'k'], ARRAY['ach', 'ach'], ARRAY['{}', '{}']::jsonb[])").await.unwrap();
    let item = db.claim_one("w").await;
    db.complete("w", item.lease(), symphony::domain::Outcome::Retryable).await.unwrap();
    let item = db.claim_one("w").await;
    db.expire(item.outbox_id).await;
    db.database.worker().repair::<PaymentLease>("w", 10).await.unwrap();
    db.database.operator().park_payment(item.outbox_id, &act()).await.unwrap();
    let despite = symphony::domain::Act { despite_unknown: true, ..act() };
    db.database
        .operator()
        .resolve_payment(item.outbox_id, &symphony::domain::Resolution::Failed, &despite)
        .await
        .unwrap();
    db.database.operator().redrive_payment(item.outbox_id, &despite).await.unwrap();
    // Whoever is given the right to create there is found before anything works.
    db.sql("GRANT CREATE ON SCHEMA symphony TO planter_of_this_test").await;
    let schema = symphony::db::Schema::default();
    let found = symphony::db::catalog::differences(&mut db.admin().await, &schema).await.unwrap();
    assert!(found.iter().any(|one| one.to_string().contains("planter_of_this_test")), "{found:?}");
}
