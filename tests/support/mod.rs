//! One server for the whole run, one database per test, and the few words tests are written in.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection};
use symphony::db::{
    Approver, ClaimedPayment, Database, DbError, PaymentClaim, PaymentLease, PaymentOutcome,
    RoleSource, Schema, migrate,
};
use symphony::domain::{Act, OutboxId, Outcome, Payload, PaymentRequest};
use symphony::payments::Enqueued;
use symphony_lab::private_postgres::{PrivatePostgres, Settings};
use tokio::sync::OnceCell;

pub mod brokers;
pub mod folder;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod pooler;
pub mod processes;
pub mod prometheus;
pub mod proxy;
pub mod shell;
pub mod valve;

const TEMPLATE: &str = "symphony_template";

/// The server of this run. Stopped, and its folder removed, by a watcher that outlives this process: tests end
/// in too many ways (a panic, Ctrl-C, a time-out) for this process to do it.
static SERVER: OnceCell<PgConnectOptions> = OnceCell::const_new();

pub async fn server() -> &'static PgConnectOptions {
    SERVER
        .get_or_init(|| async {
            // No test here pulls the plug of this server; those that do have one of their own, with fsync.
            let options = start_server("test", &[("fsync", "off"), ("max_connections", "300"), ("max_prepared_transactions", "10")]).await;
            let mut connection = options.connect().await.unwrap();
            run(&mut connection, &format!("CREATE DATABASE {TEMPLATE}")).await.unwrap();
            let template = options.clone().database(TEMPLATE);
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                install_unchecked(&template).await;
            } else {
                migrate::migrate(&template, migrate::Options::default()).await.expect(
                    "the template: if sql/ was changed, first run UPDATE_GOLDEN=1 scripts/test golden",
                );
            }
            options
        })
        .await
}

/// A server that lives as long as this process.
pub async fn start_server(name: &str, extra_settings: &[(&str, &str)]) -> PgConnectOptions {
    let folder = PathBuf::from(format!("/tmp/symphony-{name}-{}", std::process::id()));
    let settings = Settings {
        extra_settings: extra_settings
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..Settings::new(&folder)
    };
    let postgres = PrivatePostgres::start(&settings).await.expect("a PostgreSQL for the tests");
    watch(&folder, &postgres);
    let options = postgres.connect_options();
    // Never dropped: this process is the server's user until it ends.
    std::mem::forget(postgres);
    // A password costs an unoptimized client 40 ms a connection, and tests connect thousands of times.
    std::fs::write(
        folder.join("postgres/pg_hba.conf"),
        "local all all trust\nhost all all 127.0.0.1/32 trust\nhost all all ::1/128 trust\n",
    )
    .unwrap();
    run(&mut options.connect().await.unwrap(), "SELECT pg_reload_conf()").await.unwrap();
    options
}

/// As the printed script does, but without comparing: only so can a changed schema be written down.
async fn install_unchecked(template: &PgConnectOptions) {
    let script = migrate::print(&Schema::default());
    let (before, rest) = script.split_once("DO $check$").unwrap();
    let (_, after) = rest.split_once("END $check$;").unwrap();
    run(&mut template.connect().await.unwrap(), &format!("{before}{after}")).await.unwrap();
}

fn watch(folder: &std::path::Path, postgres: &PrivatePostgres) {
    let script = r#"
        while kill -0 "$1" 2>/dev/null; do sleep 0.2; done
        kill -INT "$(head -n 1 "$2/postgres/postmaster.pid")" 2>/dev/null
        while [ -e "$2/postgres/postmaster.pid" ]; do sleep 0.2; done
        rm -rf "$2""#;
    assert!(
        folder.join("postgres/postmaster.pid").exists(),
        "the watcher needs {}",
        postgres.data_folder().display()
    );
    processes::clean_up_after_us(script, folder);
}

pub async fn run(connection: &mut PgConnection, sql: &str) -> Result<(), DbError> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await?;
    Ok(())
}

/// A name no other test uses.
pub fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{prefix}_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// An empty database without Symphony.
pub async fn bare_database() -> PgConnectOptions {
    let name = unique("bare");
    let mut connection = server().await.connect().await.unwrap();
    run(&mut connection, &format!("CREATE DATABASE {name}")).await.unwrap();
    server().await.clone().database(&name)
}

/// The same, where our names need no schema.
pub fn with_path(options: &PgConnectOptions) -> PgConnectOptions {
    options.clone().options([("search_path", "public, symphony")])
}

/// A database of the test's own, with Symphony installed.
pub struct TestDb {
    pub options: PgConnectOptions,
    pub database: Database,
}

impl TestDb {
    pub async fn new() -> Self {
        Self::cloned(server().await, TEMPLATE).await
    }

    /// A copy of any database of any server.
    pub async fn cloned(server: &PgConnectOptions, template: &str) -> Self {
        let name = unique("test");
        let mut connection = server.connect().await.unwrap();
        run(&mut connection, &format!("CREATE DATABASE {name} TEMPLATE {template}")).await.unwrap();
        let options = server.clone().database(&name);
        let database =
            Database::connect(options.clone(), 20, RoleSource::EachTransaction).await.unwrap();
        // A copy that kept its installation's id would be taken for a restored backup by whoever has seen another copy.
        sqlx::raw_sql(
            "UPDATE symphony.symphony_installation SET installation_id = gen_random_uuid(), \
                    database_oid = (SELECT oid FROM pg_database WHERE datname = current_database())",
        )
        .execute(database.pool())
        .await
        .unwrap();
        Self { options, database }
    }

    /// A superuser's connection, to whom our names need no schema. The product's own connections have no such path.
    pub async fn admin(&self) -> PgConnection {
        with_path(&self.options).connect().await.unwrap()
    }

    /// A connection that acts as a role, whatever it may do.
    pub async fn as_role(&self, role: &str) -> PgConnection {
        let mut connection = self.admin().await;
        run(&mut connection, &format!("SET ROLE {role}")).await.unwrap();
        connection
    }

    /// A login that has exactly this role, and nothing else.
    pub async fn login(&self, role: &str) -> PgConnectOptions {
        let login = format!("only_{}_{}", role.replace("symphony_", ""), unique("login"));
        self.sql(&format!("CREATE ROLE {login} LOGIN PASSWORD 'x' IN ROLE {role}")).await;
        self.options.clone().username(&login).password("x")
    }

    /// Somebody who may approve and nothing else, from a login of their own.
    pub async fn second_person(&self) -> Approver {
        let login = self.login("symphony_approver").await;
        let database = Database::connect(login, 2, RoleSource::EachTransaction).await.unwrap();
        database.approver()
    }

    /// Have a lane want approval, as if two people had agreed.
    pub async fn require_approval(&self, lane: &str) {
        self.sql(&format!("UPDATE {lane}_outbox_settings SET approval_required = true")).await;
    }

    /// As a superuser.
    pub async fn sql(&self, sql: &str) {
        run(&mut self.admin().await, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// One value, as a superuser.
    pub async fn one<T>(&self, sql: &str) -> T
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
    {
        sqlx::query_scalar(AssertSqlSafe(sql))
            .fetch_one(&mut self.admin().await)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    pub async fn count(&self, from_where: &str) -> i64 {
        self.one(&format!("SELECT count(*) FROM {from_where}")).await
    }

    pub async fn enqueue(&self, request: &PaymentRequest) -> Enqueued {
        self.database.producer().enqueue_payment(request).await.unwrap()
    }

    /// `count` payments of one participant.
    pub async fn enqueue_stream(
        &self,
        participant: &str,
        rail: &str,
        count: usize,
    ) -> Vec<OutboxId> {
        let requests: Vec<_> = (0..count)
            .map(|n| payment(&format!("{participant}-{rail}-{n}"), participant, rail))
            .collect();
        let answers = self.database.producer().enqueue_payments(&requests).await.unwrap();
        answers.into_iter().map(|answer| answer.unwrap().outbox_id).collect()
    }

    pub async fn claim(&self, worker: &str, batch_size: i32) -> Vec<ClaimedPayment> {
        let request = PaymentClaim {
            endpoints: None,
            worker_id: worker,
            batch_size,
            lease_seconds: 60,
            rails: None,
            due_from: None,
        };
        self.database.worker().claim_payments(&request).await.unwrap().items
    }

    pub async fn claim_one(&self, worker: &str) -> ClaimedPayment {
        let mut items = self.claim(worker, 1).await;
        assert_eq!(items.len(), 1, "one item to claim");
        items.remove(0)
    }

    pub async fn complete(
        &self,
        worker: &str,
        lease: PaymentLease,
        outcome: Outcome,
    ) -> Result<symphony::db::SettledPayment, DbError> {
        let completion =
            PaymentOutcome { retry_delay_seconds: Some(0), ..PaymentOutcome::new(lease, outcome) };
        self.database.worker().complete_payment(worker, &completion).await
    }

    /// Let the lease of an item have ended, by setting the time in the row.
    pub async fn expire(&self, item: OutboxId) {
        self.sql(&format!(
            "UPDATE payment_outbox_pending SET lease_expires_at = clock_timestamp() - INTERVAL '1 second' WHERE outbox_id = '{item}'"
        ))
        .await;
    }

    /// Let an item be due, by setting the time in the row.
    pub async fn make_due(&self, item: OutboxId) {
        self.sql(&format!("UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp() WHERE outbox_id = '{item}'")).await;
    }

    /// The ledger of an item, as `NO STATE` lines.
    pub async fn ledger(&self, item: OutboxId) -> Vec<String> {
        self.database
            .auditor()
            .payment_life(item)
            .await
            .unwrap()
            .unwrap()
            .attempts
            .iter()
            .map(|attempt| {
                format!(
                    "{} {}",
                    attempt.attempt_no,
                    serde_json::to_value(attempt.state).unwrap().as_str().unwrap()
                )
            })
            .collect()
    }

    /// Enqueue this payment, claim it and end it so, with the rail's code AC04.
    pub async fn ended(
        &self,
        request: &PaymentRequest,
        error_code: &str,
        outcome: Outcome,
    ) -> OutboxId {
        let item = self.enqueue(request).await.outbox_id;
        let claimed = self.claim("w", 100).await;
        let claimed = claimed.iter().find(|claimed| claimed.outbox_id == item).unwrap();
        let completion = PaymentOutcome {
            error_code: Some(error_code.to_owned()),
            rail_code: Some("AC04".to_owned()),
            ..PaymentOutcome::new(claimed.lease(), outcome)
        };
        if outcome == Outcome::Unknown {
            self.database.worker().park_unknown_payment("w", &completion).await.unwrap();
        } else {
            self.database.worker().complete_payment("w", &completion).await.unwrap();
        }
        item
    }

    /// What people did, in a lane's table of events: the act, who, with whom, why.
    pub async fn acts(&self, events: &str) -> Vec<String> {
        self.one(&format!(
            "SELECT coalesce(array_agg(concat_ws(' ', event_type, actor, approver, reason) ORDER BY event_no), '{{}}') \
               FROM {events} WHERE actor IS NOT NULL"
        ))
        .await
    }

    pub async fn state(&self, item: OutboxId) -> String {
        self.database.auditor().payment_life(item).await.unwrap().unwrap().state
    }

    /// Make a rail FIFO.
    pub async fn make_fifo(&self, rail: &str, on_failed: &str) {
        self.database
            .operator()
            .configure_rail(rail, &act(), Some(true), Some(on_failed), None, None)
            .await
            .unwrap();
    }

    /// Everything the ledger promises, at any moment.
    pub async fn assert_ledger_holds(&self) {
        let figures = self.database.auditor().payment_figures().await.unwrap();
        assert!(figures.holds(), "{figures:?}");
        self.assert_data_agrees().await;
    }

    /// Nothing of any lane contradicts anything else.
    pub async fn assert_data_agrees(&self) {
        let found = symphony::db::data_checks::contradictions(
            &mut self.admin().await,
            &Schema::default(),
            true,
        )
        .await
        .unwrap();
        assert_eq!(found.contradictions, Vec::<String>::new());
    }
}

/// Wait until something holds; fail loudly if it never does.
pub async fn until(claim: &str, mut holds: impl AsyncFnMut() -> bool) {
    let started = std::time::Instant::now();
    let mut tick = tokio::time::interval(std::time::Duration::from_millis(10));
    while !holds().await {
        assert!(started.elapsed().as_secs() < 60, "waited for a minute, in vain: {claim}");
        tick.tick().await;
    }
}

pub fn payload() -> Payload {
    Payload::parse(r#"{"amount": {"value": "10.00", "currency": "EUR"}, "destination": {"iban": "DE89370400440532013000"}}"#).unwrap()
}

pub fn payment(instruction: &str, participant: &str, rail: &str) -> PaymentRequest {
    PaymentRequest {
        instruction_id: instruction.to_owned(),
        participant_id: participant.to_owned(),
        idempotency_key: "key".to_owned(),
        rail_type: rail.to_owned(),
        payload: payload(),
        traceparent: None,
    }
}

pub fn act() -> Act {
    Act {
        actor: "dana".to_owned(),
        reason: "a test".to_owned(),
        dry_run: false,
        despite_unknown: false,
    }
}

/// Enqueue inside a transaction of the caller's own making, at any isolation level.
pub async fn enqueue_at(
    connection: &mut PgConnection,
    isolation: &str,
    request: &PaymentRequest,
) -> Result<Enqueued, DbError> {
    run(connection, &format!("BEGIN ISOLATION LEVEL {isolation}")).await?;
    let result = async {
        let enqueued = symphony::payments::enqueue(&mut *connection, request).await?;
        run(connection, "COMMIT").await?;
        Ok(enqueued)
    }
    .await;
    if result.is_err() {
        run(connection, "ROLLBACK").await?;
    }
    result
}

/// The stable code of a call that must fail.
pub fn code<T: std::fmt::Debug>(result: Result<T, DbError>) -> String {
    result.expect_err("must be refused").code().to_owned()
}

/// The SQLSTATE with which a statement is refused for a role, or `OK`.
pub async fn verdict(db: &TestDb, role: &str, sql: &str) -> String {
    let mut connection = db.as_role(role).await;
    match sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await {
        Ok(_) => "OK".to_owned(),
        Err(sqlx::Error::Database(error)) => error.code().unwrap_or_default().into_owned(),
        Err(other) => panic!("{sql}: {other}"),
    }
}
