//! Installing the schema: idempotent, interruptible, concurrent, without superuser, over an older one.

use sqlx::postgres::PgConnectOptions;
use sqlx::types::Uuid;
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection};
use symphony::db::Schema;
use symphony::db::catalog;
use symphony::db::migrate::{self, MigrateError, Options, State};
use tokio::task::JoinSet;

use crate::support::{self, TestDb, bare_database, payment, run, unique};

/// Everything that is installed, as text.
async fn described(options: &PgConnectOptions) -> String {
    let mut connection = options.connect().await.unwrap();
    catalog::golden(&catalog::live(&mut connection).await.unwrap())
}

async fn state(options: &PgConnectOptions) -> State {
    migrate::check(&mut options.connect().await.unwrap(), &Schema::default()).await.unwrap().0
}

/// Migrate, and answer what was there before.
async fn migrated(options: &PgConnectOptions) -> State {
    migrate::migrate(options, Options::default()).await.unwrap().before
}

async fn sql(options: &PgConnectOptions, text: &str) {
    run(&mut options.connect().await.unwrap(), text)
        .await
        .unwrap_or_else(|error| panic!("{text}: {error}"));
}

#[tokio::test]
async fn migrating_twice_changes_nothing() {
    let options = bare_database().await;
    assert_eq!(state(&options).await, State::NotInstalled);
    assert_eq!(migrated(&options).await, State::NotInstalled);
    let before = described(&options).await;
    assert_eq!(state(&options).await, State::UpToDate);
    assert_eq!(migrated(&options).await, State::UpToDate);
    assert_eq!(described(&options).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_migration_killed_at_any_section_leaves_nothing_behind_and_can_be_repeated() {
    let mut killer = support::server().await.connect().await.unwrap();
    for section in [
        "sql/privileges/00_roles",
        "\"symphony\" AUTHORIZATION",
        "sql/tables/",
        "sql/functions/",
        "sql/triggers/",
        "sql/views/",
        "sql/privileges/10",
    ] {
        loop {
            let options = bare_database().await;
            let kill = format!(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{}' AND query LIKE '%{section}%'",
                options.get_database().unwrap()
            );
            let running = tokio::spawn({
                let options = options.clone();
                async move { migrate::migrate(&options, Options::default()).await }
            });
            while !running.is_finished() {
                let _killed: i64 = sqlx::query_scalar(AssertSqlSafe(kill.clone()))
                    .fetch_one(&mut killer)
                    .await
                    .unwrap();
            }
            if running.await.unwrap().is_ok() {
                continue; // It was faster than the killer: another try.
            }
            let leftovers: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'symphony'",
            )
            .fetch_one(&mut options.connect().await.unwrap())
            .await
            .unwrap();
            assert_eq!(leftovers, 0, "killed in {section}");
            migrate::migrate(&options, Options::default()).await.unwrap();
            assert_eq!(state(&options).await, State::UpToDate);
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_processes_may_migrate_one_database_at_once() {
    let options = bare_database().await;
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let options = options.clone();
        tasks.spawn(async move { migrated(&options).await });
    }
    let states = tasks.join_all().await;
    assert_eq!(
        states.iter().filter(|state| **state == State::NotInstalled).count(),
        1,
        "one installs, the others find it"
    );
    assert_eq!(state(&options).await, State::UpToDate);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn roles_may_be_created_at_the_same_moment_from_other_databases_of_the_cluster() {
    // A cluster of its own: in the shared one the roles exist.
    let folder = std::path::PathBuf::from(format!(
        "/tmp/{}-{}",
        unique("symphony-roles"),
        std::process::id()
    ));
    let settings = symphony_lab::private_postgres::Settings::new(&folder);
    let postgres = symphony_lab::private_postgres::PrivatePostgres::start(&settings).await.unwrap();
    let server = postgres.connect_options();
    for n in 0..6 {
        sql(&server, &format!("CREATE DATABASE d{n}")).await;
    }
    let mut tasks = JoinSet::new();
    for n in 0..6 {
        let options = server.clone().database(&format!("d{n}"));
        tasks.spawn(async move { migrate::migrate(&options, Options::default()).await });
    }
    for result in tasks.join_all().await {
        assert_eq!(result.unwrap().before, State::NotInstalled);
    }
    postgres.stop().await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

/// CREATEROLE and CREATE on the database, and no superuser: less than the first login of Aurora and RDS has.
#[tokio::test]
async fn a_login_without_superuser_can_migrate_and_keeps_nothing_of_the_owners_rights() {
    let (login, name) = (unique("rds_admin"), unique("rds"));
    let server = support::server().await;
    sql(server, &format!("CREATE ROLE {login} LOGIN CREATEROLE PASSWORD 'x'")).await;
    // Roles made by another login: on 16 and later it needs the right to grant the owner's role.
    sql(server, &format!("GRANT symphony_control TO {login} WITH ADMIN OPTION")).await;
    sql(server, &format!("CREATE DATABASE {name}")).await;
    sql(server, &format!("GRANT CREATE ON DATABASE {name} TO {login}")).await;
    let options = server.clone().database(&name).username(&login).password("x");
    assert_eq!(migrated(&options).await, State::NotInstalled);
    assert_eq!(migrated(&options).await, State::UpToDate);
    let differences = symphony::db::inspect::privilege_differences(
        &mut server.clone().database(&name).connect().await.unwrap(),
        &Schema::default(),
    )
    .await
    .unwrap();
    assert_eq!(differences, []);
    let members: i64 = sqlx::query_scalar(AssertSqlSafe(format!(
        "SELECT count(*) FROM pg_auth_members WHERE roleid = 'symphony_control'::regrole AND member = '{login}'::regrole \
            AND grantor = '{login}'::regrole"
    )))
    .fetch_one(&mut server.connect().await.unwrap())
    .await
    .unwrap();
    assert_eq!(members, 0);
}

/// The first installation of a cluster, by such a login: it makes the roles itself.
#[tokio::test]
async fn a_login_without_superuser_can_install_on_a_new_cluster() {
    let folder =
        std::path::PathBuf::from(format!("/tmp/{}-{}", unique("symphony-rds"), std::process::id()));
    let settings = symphony_lab::private_postgres::Settings::new(&folder);
    let postgres = symphony_lab::private_postgres::PrivatePostgres::start(&settings).await.unwrap();
    let server = postgres.connect_options();
    sql(&server, "CREATE ROLE admin LOGIN CREATEROLE PASSWORD 'x'").await;
    sql(&server, "CREATE DATABASE app OWNER admin").await;
    let app = server.clone().database("app").username("admin").password("x");
    assert_eq!(migrated(&app).await, State::NotInstalled);
    assert_eq!(state(&app).await, State::UpToDate, "and may look at it");
    assert_eq!(migrated(&app).await, State::UpToDate);
    let mut admin = app.connect().await.unwrap();
    assert!(
        run(&mut admin, "ALTER TABLE payment_outbox_attempts DISABLE TRIGGER ALL").await.is_err(),
        "it does not own the ledger"
    );
    postgres.stop().await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn a_login_without_the_rights_gets_one_clear_line() {
    let (login, name) = (unique("poor"), unique("poordb"));
    let server = support::server().await;
    sql(server, &format!("CREATE ROLE {login} LOGIN PASSWORD 'x'")).await;
    sql(server, &format!("CREATE DATABASE {name}")).await;
    let options = server.clone().database(&name).username(&login).password("x");
    let error = migrate::migrate(&options, Options::default()).await.unwrap_err();
    assert!(matches!(error, MigrateError::Privilege { .. }), "{error:?}");
    assert!(
        error.to_string().contains("CREATEROLE") && error.to_string().lines().count() == 1,
        "{error}"
    );
}

#[tokio::test]
async fn a_newer_database_is_refused() {
    let db = TestDb::new().await;
    db.sql("UPDATE symphony.symphony_schema SET schema_version = 9999").await;
    assert_eq!(state(&db.options).await, State::Newer);
    assert!(matches!(
        migrate::migrate(&db.options, Options::default()).await.unwrap_err(),
        MigrateError::Newer { installed: 9999 }
    ));
    assert!(matches!(
        migrate::migrate(&db.options, Options { fresh: true, ..Options::default() })
            .await
            .unwrap_err(),
        MigrateError::Newer { .. }
    ));
}

#[tokio::test]
async fn other_tables_are_refused_without_fresh_and_recreated_with_it() {
    let db = TestDb::new().await;
    db.enqueue(&payment("i", "p", "ach")).await;
    db.sql("UPDATE symphony_schema SET tables_hash = 'another'; ALTER TABLE payment_outbox_rails ADD COLUMN older INT").await;
    let error = migrate::migrate(&db.options, Options::default()).await.unwrap_err();
    assert!(
        error.to_string().contains("--fresh") && error.to_string().lines().count() == 1,
        "{error}"
    );
    assert_eq!(db.count("payment_outbox_pending").await, 1, "nothing was touched");
    let installation: Uuid = db.one("SELECT installation_id FROM symphony_installation").await;
    migrate::migrate(&db.options, Options { fresh: true, ..Options::default() }).await.unwrap();
    assert_eq!(state(&db.options).await, State::UpToDate);
    let kept: Uuid = db.one("SELECT installation_id FROM symphony_installation").await;
    assert_eq!(kept, installation, "rails know payments by keys derived from it");
    assert_eq!(db.count("payment_outbox_pending").await, 0);
    assert_eq!(
        symphony::db::inspect::privilege_differences(&mut db.admin().await, &Schema::default())
            .await
            .unwrap(),
        []
    );
}

#[tokio::test]
async fn other_functions_are_replaced_whole_and_data_stays() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await;
    // An older version: other hash, another return type, a function that no longer exists.
    db.sql("UPDATE symphony_schema SET code_hash = 'older'; DROP FUNCTION repair_expired_leases; \
            GRANT CREATE ON SCHEMA symphony TO symphony_control; SET ROLE symphony_control; \
            CREATE FUNCTION symphony.repair_expired_leases(p_batch_size INT, p_worker_id TEXT) RETURNS INT LANGUAGE sql AS 'SELECT 1'; \
            CREATE FUNCTION symphony.retired() RETURNS INT LANGUAGE sql AS 'SELECT 1'; RESET ROLE")
        .await;
    assert_eq!(state(&db.options).await, State::CodeDiffers);
    migrate::migrate(&db.options, Options::default()).await.unwrap();
    assert_eq!(state(&db.options).await, State::UpToDate);
    assert_eq!(db.count("pg_proc WHERE proname = 'retired'").await, 0);
    assert_eq!(db.claim_one("w").await.outbox_id, item.outbox_id);
}

#[tokio::test]
async fn a_change_by_hand_is_seen_and_restored() {
    let db = TestDb::new().await;
    for change in [
        "ALTER TABLE payment_outbox_attempts DISABLE TRIGGER payment_outbox_attempts_only_grow",
        "CREATE OR REPLACE FUNCTION symphony.backoff(p_attempt_no INT) RETURNS INT LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 0",
        "ALTER FUNCTION claim_outbox_batch SET search_path = public",
        "DROP VIEW participant_sequence_gaps",
    ] {
        db.sql(change).await;
        assert_eq!(state(&db.options).await, State::ChangedByHand, "{change}");
        migrate::migrate(&db.options, Options::default()).await.unwrap();
        assert_eq!(state(&db.options).await, State::UpToDate, "{change}");
    }
}

async fn legacy(connection: &mut PgConnection, status: &str) {
    run(connection, &format!(
        "CREATE TYPE outbox_status AS ENUM ('PENDING', 'DISPATCHED', 'FAILED'); \
         CREATE TABLE payment_outbox (id int, status outbox_status); INSERT INTO payment_outbox VALUES (1, '{status}'); \
         CREATE VIEW supervisor_outbox_status AS SELECT status, count(*) FROM payment_outbox GROUP BY 1"
    ))
    .await
    .unwrap();
}

#[tokio::test]
async fn an_older_installation_is_replaced_only_when_asked_and_never_with_unfinished_rows() {
    let options = bare_database().await;
    let replace = Options { replace_legacy: true, ..Options::default() };
    legacy(&mut options.connect().await.unwrap(), "PENDING").await;
    assert!(matches!(
        migrate::migrate(&options, Options::default()).await.unwrap_err(),
        MigrateError::Legacy { .. }
    ));
    assert!(matches!(
        migrate::migrate(&options, replace.clone()).await.unwrap_err(),
        MigrateError::LegacyUnfinished { rows: 1 }
    ));
    sql(&options, "UPDATE payment_outbox SET status = 'DISPATCHED'").await;
    migrate::migrate(&options, replace).await.unwrap();
    assert_eq!(state(&options).await, State::UpToDate);
    let gone: bool = sqlx::query_scalar(
        "SELECT to_regclass('payment_outbox') IS NULL AND to_regtype('outbox_status') IS NULL",
    )
    .fetch_one(&mut options.connect().await.unwrap())
    .await
    .unwrap();
    assert!(gone);
}

#[tokio::test]
async fn the_printed_script_installs_the_same_schema_and_may_be_repeated() {
    let options = bare_database().await;
    sql(&options, &migrate::print(&Schema::default())).await;
    assert_eq!(state(&options).await, State::UpToDate);
    sql(&options, &migrate::print(&Schema::default())).await;
    assert_eq!(state(&options).await, State::UpToDate);
    let reference = bare_database().await;
    migrate::migrate(&reference, Options::default()).await.unwrap();
    assert_eq!(described(&options).await, described(&reference).await);
    sql(&options, "UPDATE symphony.symphony_schema SET schema_version = 9999").await;
    assert!(
        run(&mut options.connect().await.unwrap(), &migrate::print(&Schema::default()))
            .await
            .unwrap_err()
            .to_string()
            .contains("newer")
    );
}
