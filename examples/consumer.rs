//! A consumer in Rust: keeps account balances, each event's effect made once whatever the bus repeats.
//!
//! ```sh
//! DATABASE_URL=postgres://wallet@localhost/wallet NATS_URL=nats://127.0.0.1:4222 \
//!     cargo run -p symphony-connect --example consumer
//! ```
//!
//! The login may write `example_balances` (examples/setup.sql) and is a member of `symphony_consumer`. The stream is
//! EVENTS, dead letters go to `dead.balances`: `symphony bus setup` makes both for a consumer `balances`.

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;
use symphony::consumer::{ApplyError, ConsumerLoop, ConsumerSettings, Handler, Received};
use symphony::db::{Database, RoleSource};
use symphony_connect::sources::jetstream::{
    JetStreamSettings, JetStreamSource, NatsAddress, connect,
};
use tokio::sync::watch;

/// What is done with an event. The transaction is open, and the inbox row is in it already.
struct Balances;

#[async_trait]
impl Handler for Balances {
    async fn handle(
        &self,
        received: &Received,
        connection: &mut PgConnection,
    ) -> Result<(), ApplyError> {
        let body: serde_json::Value = serde_json::from_str(received.event.body().get())
            .map_err(|_| ApplyError::Reject("the body is not JSON".to_owned()))?;
        // Trying again would not help: a person must look at it.
        let cents = body
            .pointer("/payload/cents")
            .and_then(serde_json::Value::as_i64)
            .ok_or_else(|| ApplyError::Reject("payload.cents is missing".to_owned()))?;
        sqlx::query(
            "INSERT INTO public.example_balances AS b (account, cents) VALUES ($1, $2) \
             ON CONFLICT (account) DO UPDATE SET cents = b.cents + excluded.cents",
        )
        .bind(received.event.key())
        .bind(cents)
        .execute(connection)
        .await?;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let settings = ConsumerSettings::default();
    // One connection for each event at work, and some to spare.
    let connections = u32::try_from(settings.concurrency)? + 2;
    let url = std::env::var("DATABASE_URL")?;
    let database =
        Database::connect(PgConnectOptions::from_str(&url)?, connections, RoleSource::Login)
            .await?;
    let address = NatsAddress { url: std::env::var("NATS_URL")?, ..NatsAddress::default() };
    let source = JetStreamSettings {
        stream: "EVENTS".to_owned(),
        durable: "balances".to_owned(),
        filter_subject: None,
        dead_letter_subject: "dead.balances".to_owned(),
        visibility: Duration::from_mins(1),
        wait: Duration::from_secs(10),
    };
    let client = connect(&address, |name| std::env::var(name).ok()).await?;
    let source = JetStreamSource::open(client, source).await?;

    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        // However it ends, stop.
        drop(tokio::signal::ctrl_c().await);
        stop.send_replace(true);
    });
    println!("consuming");
    let consumer = ConsumerLoop::new("balances", Balances);
    let metrics = consumer.metrics();
    let left = consumer.run(&database, Arc::new(source), settings, stopped).await?;
    println!(
        "{} applied, {} known already, {left} left in hand",
        metrics.applied.get(),
        metrics.duplicates.get()
    );
    Ok(())
}
