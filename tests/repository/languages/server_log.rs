//! What the server writes into its log about the statements of a login, as docs/OPERATING.md has it.

use std::fs;

use serde_json::Value;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};
use uuid::Uuid;

use super::stage::{PRODUCERS, Stage, found};
use super::{Run, database, url};
use crate::support::shell::dana;
use crate::support::{TestDb, run};

/// The log of this run's server.
pub fn read() -> String {
    let path = format!("/tmp/symphony-test-{}/server.log", std::process::id());
    String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
}

pub fn line_with_values_of(run: &Run) -> Option<String> {
    let log = read();
    let mut lines = log.lines();
    lines.find(|line| line.contains(&run.invoice) || line.contains(&run.iban)).map(str::to_owned)
}

/// Everything this login says, in every way a server can be told to, and no bound value: the documented setting.
pub async fn log_every_statement(db: &TestDb, login: &str) {
    for setting in
        ["log_statement = 'all'", "log_min_duration_statement = 0", "log_parameter_max_length = 0"]
    {
        db.sql(&format!("ALTER ROLE {login} SET {setting}")).await;
    }
}

/// The log is the right one, and what this login says is in it.
pub async fn assert_logged(login: &PgConnectOptions) {
    let mut connection = login.connect().await.unwrap();
    let word = Uuid::new_v4().to_string();
    run(&mut connection, &format!("SELECT '{word}'")).await.unwrap();
    connection.close().await.unwrap();
    assert!(read().contains(&word), "the statements of this login are not logged");
}

const LITERAL: &str = "in the text";
const BOUND: &str = "bound";

/// Ask for a payment, twice with different payloads, which is refused the second time. What of it is in the log?
async fn logged(connection: &mut PgConnection, way: &str) -> bool {
    let (secret, instruction) = (Uuid::new_v4().to_string(), Uuid::new_v4().to_string());
    for amount in 0..2 {
        let payload = format!("{{\"amount\": \"{amount}\", \"secret\": \"{secret}\"}}");
        let call = |value: &str| {
            format!(
                "SELECT symphony.enqueue_payment_outbox('{instruction}', 'acme', 'pay', 'sepa', {value})"
            )
        };
        let answer = if way == BOUND {
            let sql = AssertSqlSafe(call("$1::text::jsonb"));
            sqlx::query(sql).bind(payload).execute(&mut *connection).await
        } else {
            let sql = AssertSqlSafe(call(&format!("'{payload}'")));
            sqlx::raw_sql(sql).execute(&mut *connection).await
        };
        assert_eq!(answer.is_ok(), amount == 0, "{way}: {answer:?}");
    }
    read().contains(&secret)
}

#[tokio::test]
async fn a_bound_payload_is_not_in_the_servers_log_and_one_in_the_text_is() {
    let db = TestDb::new().await;
    let login = db.login("symphony_ingest").await;
    let user = login.get_username();
    let settings: [(&[&str], bool, bool); 3] = [
        // As a server is installed: the text of what is refused is logged.
        (&[], true, false),
        // Statements are logged: and the values beside them.
        (&["log_statement = 'all'"], true, true),
        // Unless the server is told not to.
        (&["log_parameter_max_length = 0", "log_min_duration_statement = 0"], true, false),
    ];
    for (settings, literal_is_logged, bound_is_logged) in settings {
        for setting in settings {
            db.sql(&format!("ALTER ROLE {user} SET {setting}")).await;
        }
        let mut connection = login.connect().await.unwrap();
        assert_eq!(logged(&mut connection, LITERAL).await, literal_is_logged, "{settings:?}");
        assert_eq!(logged(&mut connection, BOUND).await, bound_is_logged, "{settings:?}");
    }
}

#[tokio::test]
async fn a_driver_that_writes_values_into_the_text_itself_is_noticed() {
    let careless = [
        ("PHP, PDO", "producer.php", "EMULATE_PREPARES => false", "EMULATE_PREPARES => true"),
        (
            "Python, psycopg 3",
            "producer.py",
            "autocommit=True",
            "autocommit=True, cursor_factory=psycopg.ClientCursor",
        ),
    ];
    for (name, file, from, to) in careless {
        let Some(language) = found(PRODUCERS, name) else { continue };
        let (_db, login) = database().await;
        let (stage, run) = (Stage::new(language), Run::new());
        stage.replace(file, from, to);
        stage.run(&url(&login, login.get_port(), ""), &run).await;
        assert!(line_with_values_of(&run).is_some(), "{name}: {to}");
    }
}

#[tokio::test]
async fn doctor_warns_where_bound_payloads_are_logged() {
    let db = TestDb::new().await;
    let name = db.options.get_database().unwrap().to_owned();
    let settings = [
        ("log_parameter_max_length = -1", false),
        ("log_min_duration_statement = 100", true),
        ("log_parameter_max_length = 0", false),
        ("log_statement = 'all'", false),
        ("log_parameter_max_length = 64", true),
    ];
    for (setting, warned) in settings {
        db.sql(&format!("ALTER DATABASE {name} SET {setting}")).await;
        let checks = dana(&db, "doctor --json").await.json();
        let warns = |check: &Value| {
            check["verdict"] == "WARN"
                && check["finding"].as_str().unwrap().contains("log_parameter_max_length")
        };
        assert_eq!(checks.as_array().unwrap().iter().any(warns), warned, "{setting}: {checks}");
    }
}
