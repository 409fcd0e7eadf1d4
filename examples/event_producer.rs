//! A producer of events in Rust: state and event commit together, or not at all.
//!
//! `cargo run -p symphony-connect --example event_producer -- postgres://user@host/database`, after `symphony migrate`; the
//! login needs `symphony_ingest`. Run it as often as you like: the event is told once.

use std::process::ExitCode;

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use symphony::db::{DbError, EnqueuedEvent, Ingest};
use symphony::event::Event;
use uuid::Uuid;

/// Lost races and lost connections are repeated so often.
const TRIES: usize = 5;

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{0}")]
    Database(#[from] DbError),
    #[error("this is no event: {0}")]
    Defect(#[from] symphony::event::Defect),
}

impl From<sqlx::Error> for Trouble {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error.into())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let Some(url) = std::env::args().nth(1) else {
        eprintln!("give the database's URL");
        return ExitCode::FAILURE;
    };
    for left in (0..TRIES).rev() {
        match submit(&url, "tr_3", "40.00").await {
            Ok(told) => {
                let known = if told.duplicate { " (known already)" } else { "" };
                println!("{} {}{known}", told.event_id, told.state);
                return ExitCode::SUCCESS;
            }
            // The whole transaction again: the event keeps its id, so that is safe whatever became of the first.
            Err(Trouble::Database(error)) if left > 0 && error.is_passing() => {}
            Err(trouble) => {
                eprintln!("{trouble}");
                break;
            }
        }
    }
    ExitCode::FAILURE
}

/// One business transaction. The event goes last: its key's bucket is locked until COMMIT.
async fn submit(url: &str, transfer_id: &str, amount: &str) -> Result<EnqueuedEvent, Trouble> {
    let mut connection = PgConnection::connect(url).await?;
    sqlx::raw_sql(
        "CREATE TABLE IF NOT EXISTS example_transfers (id TEXT PRIMARY KEY, state TEXT NOT NULL, \
         event_id UUID NOT NULL DEFAULT gen_random_uuid(), told_at TIMESTAMPTZ NOT NULL DEFAULT now())",
    )
    .execute(&mut connection)
    .await?;

    let mut transaction = connection.begin().await?;
    // The event's id and time are kept with the state, so that a repeated try tells the very same event.
    let (event_id, told_at): (Uuid, DateTime<Utc>) = sqlx::query_as(
        "INSERT INTO example_transfers (id, state) VALUES ($1, 'submitted') \
         ON CONFLICT (id) DO UPDATE SET state = example_transfers.state RETURNING event_id, told_at",
    )
    .bind(transfer_id)
    .fetch_one(&mut *transaction)
    .await?;
    let event = json!({
        "envelope": {
            "v": 1,
            "eventId": event_id,
            "occurredAt": told_at.to_rfc3339_opts(SecondsFormat::Micros, true),
            "tenantId": "tnt_1",
            "type": "events.transfers.submitted",
        },
        "key": { "transferId": transfer_id }, // events of one transfer are published in order
        "payload": { "transferId": transfer_id, "amount": amount, "currency": "USD" },
    });
    // Checked here already: a mistake names its field without a round trip.
    let event = Event::parse(&event.to_string())?;
    let told = Ingest::enqueue_event(&mut transaction, &event).await?;
    transaction.commit().await?;
    Ok(told)
}
