//! Somebody else's program: one row of its own, one payment and one event, in one transaction of its own.

use sqlx::{Connection as _, PgConnection};
use symphony::db::{Schema, Session};
use symphony::events::{self, Event};
use symphony::payments::{self, Payload, PaymentRequest};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut connection = PgConnection::connect(&std::env::var("DATABASE_URL")?).await?;
    let payload = Payload::parse(r#"{"amount": {"value": "10.00", "currency": "EUR"}}"#)?;
    let request = PaymentRequest::new("order-17", "acme", "sepa", payload);
    let event = Event::builder("events.orders.placed", "acme").key("orderId", "17").build()?;
    let schema: Schema = std::env::var("SYMPHONY_SCHEMA")?.parse()?;

    // Rolled back: nothing of it may be left.
    for commits in [false, true] {
        let mut transaction = connection.begin().await?;
        sqlx::query("INSERT INTO outside.orders VALUES (17)").execute(&mut *transaction).await?;
        let session = Session::from(&mut *transaction).in_schema(&schema);
        let payment = payments::enqueue(session, &request).await?;
        let session = Session::from(&mut *transaction).in_schema(&schema);
        let told = events::enqueue(session, &event).await?;
        if commits {
            transaction.commit().await?;
        } else {
            transaction.rollback().await?;
        }
        println!("{} {} {} {}", payment.state, payment.duplicate, told.state, told.duplicate);
    }
    Ok(())
}
