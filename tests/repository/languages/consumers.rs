//! The consumers of examples/: behind `symphony consume` and with the documented grant each event has its effect once,
//! though it is published again, its program is killed and the database goes away in between.

use std::process::Stdio;

use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use uuid::Uuid;

use super::stage::{CONSUMERS, Stage, built_example, documented, found};
use super::url;
use crate::consumers::program::{Consuming, consume_nats, figure_is, started, terminate};
use crate::support::brokers::{NatsServer, required_or_skip};
use crate::support::processes::kill_group;
use crate::support::{TestDb, until};

macro_rules! proofs {
    ($($test:ident: $name:literal,)*) => {
        $(#[tokio::test]
        async fn $test() {
            required_or_skip!();
            prove($name).await;
        })*

        const NAMES: &[&str] = &[$($name),*];
    };
}

proofs! {
    a_consumer_with_psycopg_makes_each_effect_once: "Python, psycopg 3",
    a_consumer_with_pg_of_node_makes_each_effect_once: "Node, pg",
    a_consumer_with_pgx_makes_each_effect_once: "Go, pgx",
}

#[test]
fn every_consumer_that_the_page_names_is_proved() {
    let mut names = NAMES.to_vec();
    let mut documented: Vec<_> = documented(CONSUMERS).into_iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    documented.sort_unstable();
    assert_eq!(names, documented);
}

fn event(account: &str, cents: i64) -> String {
    let id = Uuid::new_v4();
    format!(
        r#"{{"envelope": {{"v": 1, "eventId": "{id}", "occurredAt": "2026-11-15T12:00:00Z", "tenantId": "tnt_1",
            "type": "events.transfers.submitted"}}, "key": {{"account": "{account}"}}, "payload": {{"cents": {cents}}}}}"#
    )
}

/// A broker with what `bus setup` would make, and a database with the documented grant.
struct Ground {
    db: TestDb,
    login: PgConnectOptions,
    server: NatsServer,
    context: async_nats::jetstream::Context,
}

impl Ground {
    async fn new() -> Self {
        let db = TestDb::new().await;
        db.sql(include_str!("../../../examples/setup.sql")).await;
        let login = db.login("symphony_consumer").await;
        let user = login.get_username();
        db.sql(&format!("GRANT SELECT, INSERT, UPDATE ON public.example_balances TO {user}")).await;
        let server = NatsServer::start().await;
        let client = async_nats::connect(server.url()).await.unwrap();
        let context = async_nats::jetstream::new(client);
        for (name, subject) in [("EVENTS", "events.>"), ("balances-dead", "dead.balances")] {
            let config = async_nats::jetstream::stream::Config {
                name: name.to_owned(),
                subjects: vec![subject.to_owned()],
                ..Default::default()
            };
            context.create_stream(config).await.unwrap();
        }
        Self { db, login, server, context }
    }

    fn database_url(&self) -> String {
        url(&self.login, self.login.get_port(), "")
    }

    async fn publish(&self, bodies: &[&String]) {
        for body in bodies {
            let stored = self.context.publish("events.transfers.submitted", (*body).clone().into());
            stored.await.unwrap().await.unwrap();
        }
    }

    /// All accounts and what they hold.
    async fn balances(&self) -> String {
        let sql = "SELECT coalesce(string_agg(account || ' ' || cents, ', ' ORDER BY account), '') FROM public.example_balances";
        self.db.one::<String>(sql).await
    }

    async fn until_balances(&self, expected: &str) {
        until(expected, async || self.balances().await == expected).await;
    }

    async fn consume(&self, address: &str) -> Consuming {
        let to = format!("http://{address}/events");
        started(consume_nats(&self.server.url(), "EVENTS", &to)).await
    }

    async fn dead_letters(&self) -> u64 {
        let stream = self.context.get_stream("balances-dead").await.unwrap();
        stream.cached_info().state.messages
    }
}

/// An example at work, killed with its children when this is dropped.
struct Program(Child);

impl Program {
    async fn start(stage: &Stage, database_url: &str, listen: &str) -> (Self, String) {
        let mut child = stage.start(database_url, &[listen]);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next_line().await.unwrap().expect("it ended before it listened");
        let address = first.strip_prefix("listening on ").expect("where it listens").to_owned();
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        (Self(child), address)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        kill_group(self.0.id().unwrap());
    }
}

async fn prove(name: &str) {
    let Some(language) = found(CONSUMERS, name) else { return };
    let ground = Ground::new().await;
    let stage = Stage::new(language);
    let database_url = ground.database_url();
    let (program, address) = Program::start(&stage, &database_url, "127.0.0.1:0").await;
    let mut consuming = ground.consume(&address).await;

    let (ten, five, three) = (event("acme", 10), event("acme", 5), event("bolt", 3));
    ground.publish(&[&ten, &ten, &five, &three, &ten]).await;
    ground.until_balances("acme 15, bolt 3").await;

    // Killed, and started again: what was applied is known.
    drop(program);
    ground.publish(&[&five, &three, &event("bolt", 4)]).await;
    let (_program, _) = Program::start(&stage, &database_url, &address).await;
    ground.until_balances("acme 15, bolt 7").await;

    // The database is away: 503, so no try is counted.
    let login = ground.login.get_username();
    ground.db.sql(&format!("ALTER ROLE {login} NOLOGIN")).await;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename";
    ground.db.sql(&format!("{end} = '{login}'")).await;
    ground.publish(&[&event("cargo", 1)]).await;
    figure_is(&consuming.address, r#"event_consumer_away{consumer="balances"} 1"#).await;
    ground.db.sql(&format!("ALTER ROLE {login} LOGIN")).await;
    ground.until_balances("acme 15, bolt 7, cargo 1").await;

    // What can never be applied is a dead letter in the end, and its key goes on.
    let wrong = event("acme", 0).replace(r#""cents": 0"#, r#""cents": "many""#);
    ground.publish(&[&wrong, &event("acme", 100)]).await;
    ground.until_balances("acme 115, bolt 7, cargo 1").await;
    assert_eq!(ground.dead_letters().await, 1, "{name}");
    assert_eq!(ground.db.count("symphony.event_inbox WHERE consumer = 'balances'").await, 6);
    assert!(terminate(&mut consuming.child).await.success(), "{name}");
}

#[tokio::test]
async fn the_consumer_in_rust_makes_each_effect_once() {
    required_or_skip!();
    let Some(program) = built_example("consumer") else {
        println!("passed over: cargo test --workspace builds the example");
        return;
    };
    let ground = Ground::new().await;
    let start = || {
        Command::new(&program)
            .env("DATABASE_URL", ground.database_url())
            .env("NATS_URL", ground.server.url())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    };
    let mut first = start();
    let (ten, five) = (event("acme", 10), event("acme", 5));
    ground.publish(&[&ten, &ten, &five]).await;
    ground.until_balances("acme 15").await;
    first.kill().await.unwrap();
    ground.publish(&[&ten, &event("bolt", 3)]).await;
    let mut second = start();
    ground.until_balances("acme 15, bolt 3").await;
    assert_eq!(ground.db.count("symphony.event_inbox WHERE consumer = 'balances'").await, 3);
    second.kill().await.unwrap();
}
