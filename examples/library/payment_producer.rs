//! A payment in the same transaction as the state it belongs to.
//!
//! ```sh
//! DATABASE_URL=postgres://shop@localhost/shop cargo run -p symphony --example payment_producer -- invoice-17 10.00
//! ```
//!
//! The login is a member of `symphony_ingest`.

use sqlx::PgPool;
use symphony::payments::{self, Payload, PaymentRequest};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(invoice), Some(amount)) = (arguments.next(), arguments.next()) else {
        return Err("give INVOICE and AMOUNT".into());
    };
    let pool = PgPool::connect(&std::env::var("DATABASE_URL")?).await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS invoices (id text PRIMARY KEY, state text NOT NULL)")
        .execute(&pool)
        .await?;

    let mut transaction = pool.begin().await?;
    // First your own state, then the payment, which locks its participant's stream until the commit.
    sqlx::query(
        "INSERT INTO invoices (id, state) VALUES ($1, 'paying') ON CONFLICT (id) DO NOTHING",
    )
    .bind(&invoice)
    .execute(&mut *transaction)
    .await?;
    let payload = serde_json::json!({
        "amount": { "value": amount, "currency": "EUR" }, // a text: a float would change it
        "destination": { "iban": "DE89370400440532013000" },
    });
    let request =
        PaymentRequest::new(&invoice, "acme", "sepa", Payload::parse(&payload.to_string())?);
    let payment = payments::enqueue(&mut *transaction, &request).await?;
    transaction.commit().await?;

    let news = if payment.duplicate { "known already" } else { "new" };
    println!("{} is {} ({news})", payment.outbox_id, payment.state);
    Ok(())
}
