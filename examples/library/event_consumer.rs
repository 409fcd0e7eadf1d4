//! A consumer with a source of one's own: events come as lines on the standard input, and each is applied once however
//! often its line comes.
//!
//! ```sh
//! DATABASE_URL=postgres://wallet@localhost/wallet cargo run -p symphony --features consumer --example event_consumer < events
//! ```
//!
//! The login is a member of `symphony_consumer`. From SQS or NATS: examples/consumer.rs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;
use symphony::consumer::{
    ApplyError, ConsumerLoop, ConsumerSettings, DeadLetterReason, Delivery, Handler, Received,
    Source, SourceError, SourceTerms,
};
use symphony::db::{Database, RoleSource};
use tokio::sync::{Mutex, watch};

/// Hands out lines, and says so when there are no more.
struct Lines {
    terms: SourceTerms,
    waiting: Mutex<VecDeque<Delivery>>,
    done: watch::Sender<bool>,
}

impl Lines {
    fn new(text: &str, done: watch::Sender<bool>) -> Self {
        let delivery = |(number, line): (usize, &str)| Delivery {
            receipt: number.to_string(),
            message_id: number.to_string(),
            group: None,
            order: u128::try_from(number).unwrap_or_default(),
            receives: 1,
            position: None,
            body: line.as_bytes().to_vec(),
            defect: None,
        };
        let terms = SourceTerms {
            visibility: Duration::from_mins(1),
            batch_max: 10,
            held_max: 100,
            held_time_max: None,
            keeps_group_order: false,
            broker_receives_max: None,
        };
        let waiting = text.lines().enumerate().map(delivery).collect();
        Self { terms, waiting: Mutex::new(waiting), done }
    }
}

#[async_trait]
impl Source for Lines {
    fn terms(&self) -> &SourceTerms {
        &self.terms
    }

    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        let mut waiting = self.waiting.lock().await;
        let some = max.min(waiting.len());
        if some == 0 {
            self.done.send_replace(true);
        }
        Ok(waiting.drain(..some).collect())
    }

    async fn acknowledge(&self, _delivery: &Delivery) -> Result<(), SourceError> {
        Ok(())
    }

    async fn extend(&self, _deliveries: &[Arc<Delivery>]) -> Result<(), SourceError> {
        Ok(())
    }

    async fn leave(&self, delivery: &Delivery, _delay: Duration) -> Result<(), SourceError> {
        let again = Delivery { receives: delivery.receives + 1, ..delivery.clone() };
        self.waiting.lock().await.push_back(again);
        Ok(())
    }

    async fn dead_letter(
        &self,
        delivery: &Delivery,
        reason: &DeadLetterReason,
    ) -> Result<(), SourceError> {
        eprintln!("line {}: {} {}", delivery.message_id, reason.code.as_str(), reason.message);
        Ok(())
    }
}

/// What is done with an event, in the transaction that also notes that it was.
struct Balances;

#[async_trait]
impl Handler for Balances {
    async fn handle(
        &self,
        received: &Received,
        connection: &mut PgConnection,
    ) -> Result<(), ApplyError> {
        sqlx::query(
            "INSERT INTO seen (key, events) VALUES ($1, 1) \
             ON CONFLICT (key) DO UPDATE SET events = seen.events + 1",
        )
        .bind(received.event.key())
        .execute(connection)
        .await?;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options: PgConnectOptions = std::env::var("DATABASE_URL")?.parse()?;
    let settings = ConsumerSettings::default();
    // One connection for each event at work, and some to spare.
    let connections = u32::try_from(settings.concurrency)? + 2;
    let database = Database::connect(options, connections, RoleSource::Login).await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS seen (key text PRIMARY KEY, events bigint NOT NULL)")
        .execute(database.pool())
        .await?;
    let text = std::io::read_to_string(std::io::stdin())?;
    let (stop, stopped) = watch::channel(false);
    let consumer = ConsumerLoop::new("seen", Balances);
    let metrics = consumer.metrics();
    let left =
        consumer.run(&database, Arc::new(Lines::new(&text, stop)), settings, stopped).await?;
    let (applied, known) = (metrics.applied.get(), metrics.duplicates.get());
    println!("{applied} applied, {known} known already, {left} left in hand");
    Ok(())
}
