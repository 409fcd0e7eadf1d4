//! Where Symphony is installed: one schema of its own, any other that is named, and several in one database.

use std::process::{Output, Stdio};

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _};
use symphony::db::migrate::{self, MigrateError, Options, State};
use symphony::db::{Database, RoleSource, Schema, catalog, data_checks, inspect};
use symphony_lab::sandbox::{Sandbox, Settings};
use tokio::process::Command;

use crate::support::folder::Folder;
use crate::support::processes::{Signal, signal};
use crate::support::{bare_database, payment, run, until};

const ENQUEUE: &str = r#"SELECT outbox_id::text FROM @.enqueue_payment_outbox('i1', 'acme', 'k1', 'sandbox',
    '{"amount": {"value": "10.00", "currency": "EUR"}, "destination": {"iban": "DE89370400440532013000"}}')"#;

async fn sql(options: &PgConnectOptions, text: &str) {
    run(&mut options.connect().await.unwrap(), text)
        .await
        .unwrap_or_else(|error| panic!("{text}: {error}"));
}

async fn one<T>(options: &PgConnectOptions, text: &str) -> T
where
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
{
    sqlx::query_scalar(AssertSqlSafe(text))
        .fetch_one(&mut options.connect().await.unwrap())
        .await
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

async fn install(options: &PgConnectOptions, schema: &Schema) {
    migrate::migrate(options, Options { schema: schema.clone(), ..Options::default() })
        .await
        .unwrap_or_else(|error| panic!("schema {schema}: {error}"));
}

/// As `doctor` looks: the catalog, the privileges, the data.
async fn assert_as_declared(options: &PgConnectOptions, schema: &Schema) {
    let mut connection = options.connect().await.unwrap();
    let (state, differences) = migrate::check(&mut connection, schema).await.unwrap();
    assert_eq!((state, differences), (State::UpToDate, Vec::new()), "schema {schema}");
    let privileges = inspect::privilege_differences(&mut connection, schema).await.unwrap();
    assert_eq!(privileges, Vec::new(), "schema {schema}");
    let data = data_checks::contradictions(&mut connection, schema, true).await.unwrap();
    assert_eq!(data.contradictions, Vec::<String>::new(), "schema {schema}");
}

fn named(name: &str) -> Schema {
    Schema::new(name).unwrap()
}

#[tokio::test]
async fn everything_installed_is_in_one_schema_and_nothing_in_public() {
    let options = bare_database().await;
    install(&options, &Schema::default()).await;
    let schemas: Vec<String> = one(
        &options,
        "SELECT array_agg(DISTINCT n.nspname::text) FROM pg_namespace n WHERE n.nspowner = 'symphony_control'::regrole \
             OR EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid AND c.relowner = 'symphony_control'::regrole) \
             OR EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = n.oid AND p.proowner = 'symphony_control'::regrole) \
             OR EXISTS (SELECT FROM pg_type t WHERE t.typnamespace = n.oid AND t.typowner = 'symphony_control'::regrole)",
    )
    .await;
    // Large values of every table are in pg_toast, as everybody's are.
    assert_eq!(schemas, ["pg_toast", "symphony"]);
    let strays: i64 = one(
        &options,
        "SELECT count(*) FROM pg_depend d WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = 'public'::regnamespace",
    )
    .await;
    assert_eq!(strays, 0);
}

#[tokio::test]
async fn a_service_that_has_our_common_names_in_public_is_left_alone() {
    let options = bare_database().await;
    sql(
        &options,
        "CREATE TABLE apps (id int); CREATE TABLE routes (id int); CREATE TABLE topics (id int); CREATE TABLE queues (id int); \
         CREATE TABLE scripts (id int); CREATE TABLE triggers (id int); CREATE TABLE payment_outbox_pending (id int); \
         CREATE FUNCTION public.uuidv7() RETURNS uuid LANGUAGE sql AS 'SELECT NULL::uuid'; \
         CREATE FUNCTION public.backoff(int) RETURNS int LANGUAGE sql AS 'SELECT 1'",
    )
    .await;
    let theirs = "SELECT string_agg(x, ' ' ORDER BY x) FROM (SELECT relname || relowner FROM pg_class \
         WHERE relnamespace = 'public'::regnamespace UNION ALL SELECT proname || proowner FROM pg_proc \
         WHERE pronamespace = 'public'::regnamespace) o(x)";
    let before: String = one(&options, theirs).await;
    install(&options, &Schema::default()).await;
    assert_as_declared(&options, &Schema::default()).await;
    assert_eq!(one::<String>(&options, theirs).await, before);
    // A login whose own path leads to them first gets ours all the same.
    let id: String = one(&options, &ENQUEUE.replace('@', "symphony")).await;
    assert_eq!(&id[14..15], "7", "an id of our own making: {id}");
    migrate::migrate(&options, Options { fresh: true, ..Options::default() }).await.unwrap();
    assert_eq!(one::<String>(&options, theirs).await, before);
}

#[tokio::test]
async fn two_installations_in_one_database_share_nothing() {
    let options = bare_database().await;
    let (ours, theirs) = (Schema::default(), named("billing"));
    for schema in [&ours, &theirs] {
        install(&options, schema).await;
    }
    for schema in [&ours, &theirs] {
        assert_as_declared(&options, schema).await;
        // Again, beside the other one.
        install(&options, schema).await;
    }
    let ids: i64 = one(
        &options,
        "SELECT count(DISTINCT installation_id) FROM (SELECT installation_id FROM symphony.symphony_installation \
          UNION ALL SELECT installation_id FROM billing.symphony_installation) i",
    )
    .await;
    assert_eq!(ids, 2, "each derives keys of its own");

    let database =
        Database::connect(options.clone(), 4, RoleSource::EachTransaction).await.unwrap();
    let billing = database.clone().in_schema(theirs.clone());
    billing.producer().enqueue_payment(&payment("i1", "acme", "sandbox")).await.unwrap();
    assert_eq!(
        one::<i64>(&options, "SELECT count(*) FROM billing.payment_outbox_pending").await,
        1
    );
    assert_eq!(
        one::<i64>(&options, "SELECT count(*) FROM symphony.payment_outbox_pending").await,
        0
    );
    let request = symphony::db::PaymentClaim {
        endpoints: None,
        worker_id: "w",
        batch_size: 10,
        lease_seconds: 60,
        rails: None,
        due_from: None,
    };
    assert!(database.worker().claim_payments(&request).await.unwrap().items.is_empty());
    assert_eq!(billing.worker().claim_payments(&request).await.unwrap().items.len(), 1);

    // Everything of one is dropped, and the other has not noticed.
    let fresh = Options { schema: ours.clone(), fresh: true, ..Options::default() };
    migrate::migrate(&options, fresh).await.unwrap();
    assert_eq!(
        one::<i64>(&options, "SELECT count(*) FROM billing.payment_outbox_pending").await,
        1
    );
    for schema in [&ours, &theirs] {
        assert_as_declared(&options, schema).await;
    }
}

#[tokio::test]
async fn each_installation_has_channels_of_its_own_and_the_default_one_those_of_the_contract() {
    let options = bare_database().await;
    for name in ["symphony", "billing"] {
        install(&options, &named(name)).await;
    }
    let pool = PgPoolOptions::new().max_connections(1).connect_with(options.clone()).await.unwrap();
    let mut listener = PgListener::connect_with(&pool).await.unwrap();
    listener.listen_all(["outbox_pending", "billing.outbox_pending"]).await.unwrap();
    for (schema, channel) in [("billing", "billing.outbox_pending"), ("symphony", "outbox_pending")]
    {
        one::<String>(&options, &ENQUEUE.replace('@', schema)).await;
        let told = listener.recv().await.unwrap();
        assert_eq!((told.channel(), told.payload()), (channel, "new_work"), "{schema}");
    }
}

#[tokio::test]
async fn public_is_allowed_and_only_what_is_ours_is_touched_there() {
    let options = bare_database().await;
    let public = named("public");
    sql(&options, "CREATE TABLE public.invoices (id int)").await;
    install(&options, &public).await;
    assert_as_declared(&options, &public).await;
    install(&options, &public).await;
    one::<String>(&options, &ENQUEUE.replace('@', "public")).await;
    let fresh = Options { schema: public.clone(), fresh: true, ..Options::default() };
    migrate::migrate(&options, fresh).await.unwrap();
    assert_eq!(one::<i64>(&options, "SELECT count(*) FROM public.payment_outbox_pending").await, 0);
    assert_eq!(one::<i64>(&options, "SELECT count(*) FROM public.invoices").await, 0);
    let may_create: bool =
        one(&options, "SELECT has_schema_privilege('symphony_control', 'public', 'CREATE')").await;
    assert!(!may_create, "only for the length of a migration");
    // Whoever may create there could plant an overload that our functions call as the owner.
    sql(
        &options,
        "CREATE ROLE planter_in_public; GRANT CREATE ON SCHEMA public TO planter_in_public",
    )
    .await;
    let again = Options { schema: public.clone(), ..Options::default() };
    let error = migrate::migrate(&options, again).await.unwrap_err().to_string();
    assert!(error.contains("planter_in_public may create"), "{error}");
}

#[tokio::test]
async fn the_printed_script_installs_into_the_schema_that_was_named() {
    let options = bare_database().await;
    let schema = named("billing");
    for _ in 0..2 {
        sql(&options, &migrate::print(&schema)).await;
        assert_as_declared(&options, &schema).await;
    }
    let elsewhere: i64 =
        one(&options, "SELECT count(*) FROM pg_namespace WHERE nspname = 'symphony'").await;
    assert_eq!(elsewhere, 0);
}

#[tokio::test]
async fn a_function_or_view_that_reaches_into_the_other_installation_is_found_and_restored() {
    let options = bare_database().await;
    let schema = named("billing");
    install(&options, &Schema::default()).await;
    install(&options, &schema).await;
    let function = |name: &str| format!("SELECT pg_get_functiondef('billing.{name}'::regproc)");
    for (object, table, definition) in [
        ("event_state", "event_outbox_waiting", function("event_state")),
        ("claim_outbox_batch", "payment_outbox_pending", function("claim_outbox_batch")),
        (
            "outbox_lane_states",
            "payment_outbox_settings",
            "SELECT 'CREATE OR REPLACE VIEW billing.outbox_lane_states AS ' || pg_get_viewdef('billing.outbox_lane_states')"
                .to_owned(),
        ),
    ] {
        let text: String = one(&options, &definition).await;
        let tampered = text.replace(&format!("billing.{table}"), &format!("symphony.{table}"));
        assert_ne!(text, tampered, "{object}");
        sql(&options, &tampered).await;
        let mut connection = options.connect().await.unwrap();
        let found = catalog::differences(&mut connection, &schema).await.unwrap();
        assert_eq!(found.len(), 1, "{object}: {found:?}");
        assert!(found[0].to_string().contains(object), "{object}: {found:?}");
        install(&options, &schema).await;
        assert_as_declared(&options, &schema).await;
    }
}

#[tokio::test]
async fn a_schema_of_our_name_that_is_somebody_elses_is_refused_by_name() {
    let options = bare_database().await;
    sql(&options, "CREATE SCHEMA symphony").await;
    let error = migrate::migrate(&options, Options::default()).await.unwrap_err();
    assert!(matches!(&error, MigrateError::Foreign { .. }), "{error}");
    assert!(error.to_string().contains("schema symphony, owned by"), "{error}");
    install(&options, &named("payments_outbox")).await;
    assert_as_declared(&options, &named("payments_outbox")).await;
}

/// What waits in such tables would be worked by nobody, and nobody would know.
#[tokio::test]
async fn an_installation_of_a_build_without_a_schema_of_its_own_is_refused_with_what_to_do() {
    let options = bare_database().await;
    // Another database of the cluster has made the roles.
    sql(&options, "CREATE SCHEMA symphony_internal AUTHORIZATION symphony_control").await;
    for schema in ["symphony", "public", "billing"] {
        let options_of = Options { schema: named(schema), ..Options::default() };
        let error = migrate::migrate(&options, options_of).await.unwrap_err().to_string();
        assert!(error.contains("DROP OWNED BY symphony_control"), "{error}");
    }
    sql(&options, "DROP OWNED BY symphony_control").await;
    install(&options, &Schema::default()).await;
    assert_as_declared(&options, &Schema::default()).await;
}

async fn symphony(options: &PgConnectOptions, folder: &Folder, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_symphony"));
    command
        .args(line.split_whitespace())
        .current_dir(&folder.0)
        .env("DATABASE_URL", options.to_url_lossy().as_str())
        .env("USER", "dana")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command.output().await.unwrap()
}

#[tokio::test]
async fn every_command_obeys_the_schema_of_the_flag_and_of_the_file() {
    let options = bare_database().await;
    let folder = Folder::new();
    let sandbox = Sandbox::start(Settings::new(folder.0.join("record.jsonl"))).await.unwrap();
    let rail =
        format!("[rails.sandbox]\nkind = \"sandbox\"\nurl = \"http://{}\"\n", sandbox.address());
    let told = symphony(&options, &folder, "--schema billing migrate").await;
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let payload = r#"{"amount":{"value":"10.00","currency":"EUR"},"destination":{"iban":"DE89370400440532013000"}}"#;
    let enqueue = format!(
        "--schema billing enqueue payment --instruction i1 --participant acme --key k --rail sandbox --payload {payload}"
    );
    for line in [
        enqueue.as_str(),
        "--schema billing enqueue event --event {\"envelope\":{\"v\":1,\"eventId\":\"6f1f7e0c-4d8e-4b8f-9d59-0d3d2f0a1b11\",\"occurredAt\":\"2026-01-01T00:00:00Z\",\"tenantId\":\"acme\",\"type\":\"events.a.b\"},\"key\":{\"a\":\"1\"},\"payload\":{}}",
        "--schema billing status",
        "--schema billing show i1",
        "--schema billing dlq list",
        "--schema billing rail",
        "--schema billing pause list",
        "--schema billing app list",
        "--schema billing migrate --check",
    ] {
        let told = symphony(&options, &folder, line).await;
        let error = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(told.status.success(), "{line}: {error}");
        assert!(error.contains("schema billing of database "), "{line}: {error}");
    }
    // Not asked where it is.
    let told = symphony(&options, &folder, "status").await;
    let error = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(!told.status.success());
    assert!(error.contains("not installed in schema symphony"), "{error}");

    folder.write("symphony.toml", &format!("[database]\nschema = \"billing\"\n{rail}"));
    let mut worker = Command::new(env!("CARGO_BIN_EXE_symphony"))
        .args(["run", "--api", "off"])
        .current_dir(&folder.0)
        .env("DATABASE_URL", options.to_url_lossy().as_str())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    until("it is paid", async || {
        let paid =
            "SELECT count(*) FROM billing.payment_outbox_attempts WHERE state = 'DISPATCHED'";
        one::<i64>(&options, paid).await == 1
    })
    .await;
    signal(worker.id().unwrap(), Signal::TERM);
    assert!(worker.wait().await.unwrap().success());
    assert_eq!(sandbox.summary().await.unwrap().executed, 1);
    let told = symphony(&options, &folder, "show i1 --json").await;
    let document: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(document["database"]["schema"], "billing");

    for (line, says) in [
        ("--schema Billing status", "lower-case"),
        ("--schema pg_x status", "pg_"),
        ("--schema user status", "word of SQL"),
    ] {
        let told = symphony(&options, &folder, line).await;
        let error = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(!told.status.success() && error.contains(says), "{line}: {error}");
    }
    folder.write("symphony.toml", "[database]\nschema = \"Billing\"\n");
    let told = symphony(&options, &folder, "config --check").await;
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&told.stdout),
        String::from_utf8_lossy(&told.stderr)
    );
    assert!(!told.status.success() && said.contains("database.schema"), "{said}");
}
