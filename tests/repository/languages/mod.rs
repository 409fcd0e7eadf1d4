//! The examples in every language: each is run by the very line of examples/README.md, with a login that has only the
//! documented grant, directly and through pgbouncer in transaction mode. What they left is judged from outside, in SQL, and
//! by what the server wrote into its log.
//!
//! `scripts/ensure-languages` gets the languages, `scripts/test` runs it. What is not there is passed over with a word; with
//! `SYMPHONY_REQUIRE_LANGUAGES` set only Go and Java may be missing.

mod consumers;
mod server_log;
mod stage;

use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use sqlx::types::Json;
use uuid::Uuid;

use crate::support::TestDb;
use crate::support::pooler::{self, Pooler};
use stage::{Stage, found};

/// More digits than a float has, and a zero at the end that a number would lose.
const AMOUNT: &str = "9007199254740993.10";

macro_rules! proofs {
    ($($test:ident: $name:literal,)*) => {
        $(#[tokio::test]
        async fn $test() {
            prove($name).await;
        })*

        const NAMES: &[&str] = &[$($name),*];
    };
}

proofs! {
    rust_commits_state_payment_and_event_together: "Rust, sqlx",
    psycopg_commits_state_payment_and_event_together: "Python, psycopg 3",
    sqlalchemy_commits_state_payment_and_event_together: "Python, SQLAlchemy 2",
    node_commits_state_payment_and_event_together: "Node, pg",
    drizzle_commits_state_payment_and_event_together: "Node, Drizzle",
    go_commits_state_payment_and_event_together: "Go, pgx",
    java_commits_state_payment_and_event_together: "Java, JDBC",
    ruby_commits_state_payment_and_event_together: "Ruby, pg",
    php_commits_state_payment_and_event_together: "PHP, PDO",
    psql_commits_state_payment_and_event_together: "psql",
}

#[test]
fn every_example_that_the_page_names_is_proved() {
    let mut names = NAMES.to_vec();
    let mut documented: Vec<_> =
        stage::documented(stage::PRODUCERS).into_iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    documented.sort_unstable();
    assert_eq!(names, documented);
}

/// What one run of an example is given. No two runs share a text that the log could be searched for.
struct Run {
    invoice: String,
    iban: String,
}

impl Run {
    fn new() -> Self {
        let id = Uuid::new_v4().simple().to_string();
        Self { invoice: format!("inv-{id}"), iban: format!("XX{id}") }
    }
}

async fn prove(name: &str) {
    let Some(language) = found(stage::PRODUCERS, name) else { return };
    let (db, login) = database().await;
    let (user, port) = (login.get_username(), login.get_port());
    let stage = Stage::new(language);

    let mut runs = vec![Run::new()];
    let said = stage.run(&url(&login, port, ""), &runs[0]).await;
    judge(&db, name, &runs, &said).await;

    // psql keeps the values in a table of its session.
    if name != "psql" && pooler::found().is_some() {
        let pooler = Pooler::start_with(port, &[user], stage.pooler_settings()).await;
        runs.push(Run::new());
        let url = url(&login, pooler.port, stage.pooled_url_options());
        let said = stage.run(&url, &runs[1]).await;
        judge(&db, name, &runs, &said).await;
    }

    server_log::assert_logged(&login).await;
    for run in &runs {
        assert_eq!(server_log::line_with_values_of(run), None, "{name}: in the server's log");
    }
    db.assert_ledger_holds().await;
}

/// A database with the examples' own table, and a login with the documented grant. All that it says is logged.
async fn database() -> (TestDb, PgConnectOptions) {
    let db = TestDb::new().await;
    db.sql(include_str!("../../../examples/setup.sql")).await;
    let login = db.login("symphony_ingest").await;
    let user = login.get_username();
    db.sql(&format!("GRANT SELECT, INSERT, UPDATE ON public.example_invoices TO {user}")).await;
    server_log::log_every_statement(&db, user).await;
    (db, login)
}

fn url(login: &PgConnectOptions, port: u16, more: &str) -> String {
    let (user, database) = (login.get_username(), login.get_database().unwrap());
    format!("postgres://{user}:x@127.0.0.1:{port}/{database}{more}")
}

/// From outside: what the last run said is true, and there is nothing but what the runs must have left.
async fn judge(db: &TestDb, name: &str, runs: &[Run], said: &str) {
    let run = runs.last().unwrap();
    let mut admin = db.admin().await;
    let (outbox_id, sequence_id, rail, payload): (Uuid, i64, String, Json<Value>) = sqlx::query_as(
        "SELECT outbox_id, sequence_id, i.rail_type, i.payload FROM symphony.payment_outbox_instructions i \
         JOIN symphony.payment_outbox_pending p USING (outbox_id, sequence_id) WHERE i.instruction_id = $1",
    )
    .bind(&run.invoice)
    .fetch_one(&mut admin)
    .await
    .unwrap_or_else(|error| panic!("{name}: one pending payment of {}: {error}", run.invoice));
    let money = json!({ "value": AMOUNT, "currency": "EUR" });
    assert_eq!(
        payload.0,
        json!({ "amount": money, "destination": { "iban": run.iban } }),
        "{name}"
    );
    assert_eq!(rail, "sepa", "{name}");
    assert_eq!(sequence_id, i64::try_from(runs.len()).unwrap(), "{name}: without a gap");
    assert_eq!(
        said.lines().collect::<Vec<_>>(),
        [
            format!("new: {outbox_id}"),
            format!("known already: {outbox_id}"),
            "refused: P7004".to_owned(),
            "rolled back: nothing is left".to_owned()
        ],
        "{name}"
    );

    let (amount, state, event): (String, String, Json<Value>) = sqlx::query_as(
        "SELECT i.amount::text, i.state, e.event FROM example_invoices i \
         JOIN symphony.event_outbox_identities USING (event_id) JOIN symphony.event_outbox_log e USING (event_id) \
         WHERE i.id = $1 AND e.event_key = $1",
    )
    .bind(&run.invoice)
    .fetch_one(&mut admin)
    .await
    .unwrap_or_else(|error| panic!("{name}: one invoice with one event: {error}"));
    assert_eq!((amount.as_str(), state.as_str()), (AMOUNT, "paying"), "{name}");
    assert_eq!(event.0["payload"], json!({ "invoiceId": run.invoice, "amount": money }), "{name}");
    assert_eq!(event.0["envelope"]["type"], "events.invoices.paying", "{name}");

    // Nothing of what was refused or rolled back, no number taken by it.
    let (invoices, payments, pending, events, next_number): (i64, i64, i64, i64, i64) =
        sqlx::query_as(
            "SELECT (SELECT count(*) FROM example_invoices), (SELECT count(*) FROM symphony.payment_outbox_instructions), \
                    (SELECT count(*) FROM symphony.payment_outbox_pending), (SELECT count(*) FROM symphony.event_outbox_log), \
                    (SELECT sum(next_sequence_id)::bigint FROM symphony.participant_outbox_sequences)",
        )
        .fetch_one(&mut admin)
        .await
        .unwrap();
    let count = i64::try_from(runs.len()).unwrap();
    assert_eq!(
        [invoices, payments, pending, events, next_number],
        [count, count, count, count, count + 1],
        "{name}: invoices, payments, pending ones, events, the next number"
    );
}
