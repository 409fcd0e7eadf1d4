//! A second person's approval: proved by a login of their own, never by a name.

mod commands;
mod contract;
mod guards;

use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgConnection, Row as _};
use symphony::domain::OutboxId;

use crate::support::{TestDb, act, payment, unique};

/// Somebody at their own desk, with exactly these grants.
pub struct Person {
    pub login: String,
    pub options: PgConnectOptions,
    connection: PgConnection,
}

impl Person {
    pub async fn new(db: &TestDb, roles: &str) -> Self {
        let login = unique("person");
        db.sql(&format!("CREATE ROLE {login} LOGIN PASSWORD 'x' IN ROLE {roles}")).await;
        Self::at(&login, &db.options.clone().username(&login).password("x")).await
    }

    /// By a connection of the caller's choice.
    pub async fn at(login: &str, options: &PgConnectOptions) -> Self {
        // As the product does: a pooler takes no such setting.
        let connection = options.clone().extra_float_digits(None).connect().await.unwrap();
        Self { login: login.to_owned(), options: options.clone(), connection }
    }

    /// One row of one statement as JSON, or the SQLSTATE and the message.
    pub async fn ask(&mut self, call: &str) -> Result<Value, String> {
        let sql = format!("SELECT to_jsonb(a) AS answer FROM symphony.{call} a");
        let query = sqlx::query(AssertSqlSafe(sql)).persistent(false);
        match query.fetch_one(&mut self.connection).await {
            Ok(row) => Ok(row.get("answer")),
            Err(sqlx::Error::Database(error)) => {
                Err(format!("{} {}", error.code().unwrap_or_default(), error.message()))
            }
            Err(other) => panic!("{call}: {other}"),
        }
    }

    /// Ask for an act; the request's number.
    pub async fn request(&mut self, function: &str, arguments: &Value) -> i64 {
        let call =
            format!("request_outbox_approval('{function}', '{arguments}', 'dana', 'it must be')");
        self.ask(&call).await.unwrap()["request_no"].as_i64().unwrap()
    }

    pub async fn approve(&mut self, request_no: i64) -> Result<Value, String> {
        self.ask(&format!("approve_outbox_request({request_no}, 'kim', 'I have looked')")).await
    }

    /// Statements of one transaction, or why it was refused.
    pub async fn transaction(&mut self, sql: &str) -> Result<(), String> {
        let result = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.connection).await;
        result.map(drop).map_err(|error| match error {
            sqlx::Error::Database(error) => {
                format!("{} {}", error.code().unwrap_or_default(), error.message())
            }
            other => panic!("{sql}: {other}"),
        })
    }
}

/// A database whose lanes all want approval, an operator and an approver.
pub async fn stage() -> (TestDb, Person, Person) {
    let db = TestDb::new().await;
    for lane in ["payment", "event", "trigger"] {
        db.require_approval(lane).await;
    }
    let dana = Person::new(&db, "symphony_operator").await;
    let kim = Person::new(&db, "symphony_approver").await;
    (db, dana, kim)
}

/// A parked payment.
pub async fn parked(db: &TestDb, instruction: &str) -> OutboxId {
    let item = db.enqueue(&payment(instruction, "acme", "ach")).await.outbox_id;
    db.database.operator().park_payment(item, &act()).await.unwrap();
    item
}

pub fn retry(item: OutboxId) -> Value {
    json!({"p_outbox_id": item, "p_resolution": "RETRY"})
}

pub fn refused(answer: &Result<Value, String>) -> &str {
    answer.as_ref().expect_err("must be refused")
}
