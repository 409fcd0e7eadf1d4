//! The HTTP API as its clients see it: raw HTTP to a server whose login has exactly the documented grants.

mod answers;
mod attacks;
mod contract;
mod fuzz;
mod listening;
mod lists;
mod readers;

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;
use symphony::db::{Database, RoleSource};
use symphony::engine::LaneMetrics;
use symphony_server::api::Api;
use symphony_server::config::ApiSection;
use symphony_server::http_server::HttpServerSettings;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::approvals::Person;
use crate::support::TestDb;
use crate::support::shell::symphony;
use crate::support::valve::Valve;

/// A served API.
pub struct Served {
    pub db: TestDb,
    pub api: Api,
    admin: String,
}

/// What the documents say that the login of the API needs.
const ROLES: &str = "symphony_executor, symphony_ingest, symphony_operator, symphony_approver, symphony_readonly, symphony_auditor";

impl Served {
    pub async fn new() -> Self {
        Self::with(&ApiSection::at("127.0.0.1:0"), HttpServerSettings::default()).await
    }

    pub async fn with(section: &ApiSection, bounds: HttpServerSettings) -> Self {
        Self::with_lanes(section, bounds, Vec::new()).await
    }

    /// With figures of a worker of this process.
    pub async fn with_lanes(
        section: &ApiSection,
        bounds: HttpServerSettings,
        lanes: Vec<(&'static str, Arc<LaneMetrics>)>,
    ) -> Self {
        Self::by(section, bounds, lanes, |options| options).await
    }

    /// Through a valve before the database.
    pub async fn through(valve: &Valve) -> Self {
        let section = ApiSection::at("127.0.0.1:0");
        let way = |options: PgConnectOptions| {
            let (login, name) = (options.get_username(), options.get_database().unwrap());
            format!("postgres://{login}:x@127.0.0.1:{}/{name}", valve.port).parse().unwrap()
        };
        Self::by(&section, HttpServerSettings::default(), Vec::new(), way).await
    }

    async fn by(
        section: &ApiSection,
        bounds: HttpServerSettings,
        lanes: Vec<(&'static str, Arc<LaneMetrics>)>,
        way: impl FnOnce(PgConnectOptions) -> PgConnectOptions,
    ) -> Self {
        let db = TestDb::new().await;
        let login = way(Person::new(&db, ROLES).await.options);
        let database = Database::connect(login, 8, RoleSource::EachTransaction).await.unwrap();
        let api = Api::start(section, database, lanes, bounds).await.unwrap();
        let admin = Person::new(&db, "symphony_auth").await.options.to_url_lossy().to_string();
        Self { db, api, admin }
    }

    /// As `symphony token`, with the grant of whoever hands them out.
    pub async fn token_command(&self, line: &str) -> Value {
        let told =
            symphony(&self.admin, &[("USER", "root")], &format!("token {line} --json"), &[], "")
                .await;
        assert!(told.ok, "{}", told.error);
        told.json()
    }

    /// A token of a person, with these scopes.
    pub async fn token(&self, person: &str, scopes: &str) -> String {
        let line = format!("create --name {person}s --person {person} --scope {scopes}");
        self.token_command(&line).await["token"].as_str().unwrap().to_owned()
    }

    /// One request with a token; the status and the body.
    pub async fn ask(&self, token: &str, line: &str, body: &Value) -> (u16, Value) {
        self.ask_with(&format!("Authorization: Bearer {token}\r\n"), line, body).await
    }

    /// One request with these header lines.
    pub async fn ask_with(&self, headers: &str, line: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
        let text = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\n{headers}{kind}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let answer = raw(self.api.address(), text.as_bytes()).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).unwrap_or("0").parse().unwrap_or(0);
        if status >= 400 && !body.is_empty() {
            assert!(
                head.to_lowercase().contains("content-type: application/problem+json"),
                "{line}: {head}"
            );
        }
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    /// Refused with this status and code, and nothing of the kind was done.
    pub async fn refuses(&self, token: &str, line: &str, body: &Value, status: u16, code: &str) {
        let (found, problem) = self.ask(token, line, body).await;
        assert_eq!(
            (found, problem["code"].as_str().unwrap_or_default()),
            (status, code),
            "{line} {body}: {problem}"
        );
        assert_eq!(problem["status"], status, "{problem}");
    }
}

/// All that a server answers to these bytes.
pub async fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // A server that has refused may close before it has read everything.
    drop(stream.read_to_end(&mut answer).await);
    String::from_utf8_lossy(&answer).into_owned()
}

/// A payment, as a client sends it.
pub fn payment(instruction: &str) -> Value {
    json!({
        "instruction_id": instruction, "participant_id": "acme", "rail_type": "ach",
        "payload": {"amount": {"value": "10.00", "currency": "EUR"}, "destination": {"iban": "DE89370400440532013000"}},
    })
}
