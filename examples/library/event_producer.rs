//! Events in the same transaction as the state they tell of; many in one call.
//!
//! ```sh
//! DATABASE_URL=postgres://shop@localhost/shop cargo run -p symphony --example event_producer -- 17 18 19
//! ```
//!
//! The login is a member of `symphony_ingest`.

use sqlx::PgPool;
use symphony::events::{self, Event};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let orders: Vec<String> = std::env::args().skip(1).collect();
    let pool = PgPool::connect(&std::env::var("DATABASE_URL")?).await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, state text NOT NULL)")
        .execute(&pool)
        .await?;

    let mut told = Vec::with_capacity(orders.len());
    for order in &orders {
        // Checked here already: a mistake names its field without a round trip. Events of one key are published in order.
        let event = Event::builder("events.orders.shipped", "acme")
            .key("orderId", order)
            .payload(&serde_json::json!({ "orderId": order }));
        told.push(event.build()?);
    }
    let mut transaction = pool.begin().await?;
    sqlx::query(
        "INSERT INTO orders (id, state) SELECT id, 'shipped' FROM unnest($1::text[]) id \
         ON CONFLICT (id) DO UPDATE SET state = excluded.state",
    )
    .bind(&orders)
    .execute(&mut *transaction)
    .await?;
    let answers = events::enqueue_batch(&mut *transaction, &told).await?;
    transaction.commit().await?;

    for (order, answer) in orders.iter().zip(answers) {
        match answer {
            Ok(event) => println!("order {order}: {} is {}", event.event_id, event.state),
            // One that is refused never fails the others.
            Err(refusal) => println!("order {order}: {refusal}"),
        }
    }
    Ok(())
}
