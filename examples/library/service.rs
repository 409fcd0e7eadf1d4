//! An axum service: an order, its payment and its event in one transaction.
//!
//! ```sh
//! DATABASE_URL=postgres://shop@localhost/shop cargo run -p symphony --example service
//! curl -d '{"id": "17", "amount": "10.00"}' -H 'content-type: application/json' http://127.0.0.1:8080/orders
//! ```
//!
//! The login is a member of `symphony_ingest`. Asked again with the same order, nothing is paid or told twice.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Router, response::IntoResponse};
use serde::Deserialize;
use sqlx::PgPool;
use symphony::events::{self, Event};
use symphony::payments::{self, Payload, PaymentRequest};
use uuid::Uuid;

#[derive(Deserialize)]
struct Order {
    id: String,
    amount: String,
}

/// What the client is told.
enum Refusal {
    /// It asked for something that cannot be.
    Bad(String),
    /// Nothing has happened; it may ask again.
    Later(symphony::Error),
}

impl From<symphony::Error> for Refusal {
    fn from(error: symphony::Error) -> Self {
        match error {
            symphony::Error::InvalidArgument { message }
            | symphony::Error::KeyReused { message } => Self::Bad(message),
            other => Self::Later(other),
        }
    }
}

impl From<sqlx::Error> for Refusal {
    fn from(error: sqlx::Error) -> Self {
        symphony::Error::from(error).into()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> axum::response::Response {
        match self {
            Self::Bad(problem) => (StatusCode::BAD_REQUEST, problem).into_response(),
            Self::Later(error) => {
                eprintln!("{error}");
                (StatusCode::SERVICE_UNAVAILABLE, "try again").into_response()
            }
        }
    }
}

async fn take_order(State(pool): State<PgPool>, body: Bytes) -> Result<String, Refusal> {
    let order: Order =
        serde_json::from_slice(&body).map_err(|error| Refusal::Bad(error.to_string()))?;
    let payload = serde_json::json!({ "amount": { "value": order.amount, "currency": "EUR" } });
    let payload =
        Payload::parse(&payload.to_string()).map_err(|error| Refusal::Bad(error.to_string()))?;
    let request = PaymentRequest::new(&order.id, "shop", "sepa", payload);

    let mut transaction = pool.begin().await?;
    // The event's id is kept with the order: told again, it is the same event.
    let event_id: Uuid = sqlx::query_scalar(
        "INSERT INTO orders (id, event_id) VALUES ($1, $2) \
         ON CONFLICT (id) DO UPDATE SET id = excluded.id RETURNING event_id",
    )
    .bind(&order.id)
    .bind(Uuid::new_v4())
    .fetch_one(&mut *transaction)
    .await?;
    let event = Event::builder("events.orders.placed", "shop")
        .event_id(event_id)
        .key("orderId", &order.id)
        .payload(&serde_json::json!({ "orderId": order.id }));
    let event = event.build().map_err(|error| Refusal::Bad(error.to_string()))?;
    let payment = payments::enqueue(&mut *transaction, &request).await?;
    if !payment.duplicate {
        events::enqueue(&mut *transaction, &event).await?;
    }
    transaction.commit().await?;
    Ok(format!("{} is {}\n", payment.outbox_id, payment.state))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = PgPool::connect(&std::env::var("DATABASE_URL")?).await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, event_id uuid NOT NULL)")
        .execute(&pool)
        .await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    println!("http://{}/orders", listener.local_addr()?);
    axum::serve(listener, Router::new().route("/orders", post(take_order)).with_state(pool))
        .await?;
    Ok(())
}
