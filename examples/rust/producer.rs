//! A producer in Rust with sqlx: invoice, payment and event commit together, or not at all.
//!
//! ```sh
//! cargo run -p symphony-connect --example producer -- INVOICE AMOUNT IBAN      # DATABASE_URL; see examples/README.md
//! ```

use std::process::ExitCode;

use serde_json::json;
use sqlx::PgConnection;
use sqlx::postgres::{PgConnectOptions, PgPool};
use symphony::FieldError;
use symphony::db::{DbError, Session};
use symphony::domain::{Payload, PaymentRequest};
use symphony::event::Event;
use symphony::payments::Enqueued;
use uuid::Uuid;

/// Lost races and lost connections are repeated so often.
const TRIES: usize = 5;

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{0}")]
    Database(#[from] DbError),
    #[error("this cannot be sent: {0}")]
    Field(#[from] FieldError),
    #[error("expected: {0}")]
    Expected(&'static str),
}

impl From<sqlx::Error> for Trouble {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error.into())
    }
}

/// Inside the caller's transaction: first the caller's own state, then the payment and the event, which lock.
///
/// A lent session, and `persistent(false)`: no statement gets a name, which a transaction pooler would lose. On a direct
/// connection give `enqueue` the transaction itself.
async fn ask(
    transaction: &mut PgConnection,
    invoice: &str,
    amount: &str,
    iban: &str,
) -> Result<Enqueued, Trouble> {
    let (event_id, occurred_at): (Uuid, String) = sqlx::query_as(
        "INSERT INTO public.example_invoices (id, amount, state) VALUES ($1, $2::text::numeric, 'paying') \
         ON CONFLICT (id) DO UPDATE SET amount = excluded.amount RETURNING event_id, occurred_at",
    )
    .bind(invoice)
    .bind(amount)
    .persistent(false)
    .fetch_one(&mut *transaction)
    .await?;
    let money = json!({ "value": amount, "currency": "EUR" }); // a text: a float would change it
    let request = PaymentRequest {
        instruction_id: invoice.to_owned(),
        participant_id: "acme".to_owned(),
        idempotency_key: "pay".to_owned(),
        rail_type: "sepa".to_owned(),
        payload: Payload::parse(
            &json!({ "amount": money, "destination": { "iban": iban } }).to_string(),
        )?,
        traceparent: None,
    };
    let payment = symphony::payments::enqueue(Session::lent(&mut *transaction), &request).await?;
    let event = json!({
        "envelope": {
            "v": 1,
            "eventId": event_id,
            "occurredAt": occurred_at,
            "tenantId": "tnt_1",
            "type": "events.invoices.paying",
        },
        "key": { "invoiceId": invoice }, // events of one invoice are published in order
        "payload": { "invoiceId": invoice, "amount": money }, // ids and figures, never personal data
    });
    // Checked here already: a mistake names its field without a round trip.
    let event = Event::parse(&event.to_string())?;
    let told = symphony::events::enqueue(Session::lent(&mut *transaction), &event).await?;
    expect(
        told.duplicate == payment.duplicate,
        "payment and event are new together, or known together",
    )?;
    Ok(payment)
}

/// One business transaction. What did not come to pass, or whose answer was lost, is repeated whole: the names make that safe.
async fn pay(pool: &PgPool, invoice: &str, amount: &str, iban: &str) -> Result<Enqueued, Trouble> {
    let mut tries = 1;
    loop {
        let once = async {
            let mut transaction = pool.begin().await?;
            let payment = ask(&mut transaction, invoice, amount, iban).await?;
            transaction.commit().await?;
            Ok(payment)
        };
        match once.await {
            Err(Trouble::Database(error)) if tries < TRIES && error.is_transient() => tries += 1,
            ended => return ended,
        }
    }
}

async fn run(url: &str, invoice: &str, amount: &str, iban: &str) -> Result<(), Trouble> {
    // pgbouncer refuses extra_float_digits at the start, and nothing here reads a float.
    let options = url.parse::<PgConnectOptions>()?.extra_float_digits(None);
    let pool = PgPool::connect_with(options).await?;

    let first = pay(&pool, invoice, amount, iban).await?;
    println!("{}: {}", if first.duplicate { "known already" } else { "new" }, first.outbox_id);

    // Did the COMMIT's answer get lost? Do it all again.
    let again = pay(&pool, invoice, amount, iban).await?;
    expect(
        again.duplicate && again.outbox_id == first.outbox_id,
        "the same request is the same payment",
    )?;
    println!("known already: {}", again.outbox_id);

    // The same name for another request: refused, and the invoice's new amount is rolled back with it.
    match pay(&pool, invoice, "0.01", iban).await {
        Err(Trouble::Database(error)) if error.code() == "P7004" => {
            println!("refused: {}", error.code());
        }
        Err(trouble) => return Err(trouble),
        Ok(_) => expect(false, "another request under the same name is refused")?,
    }

    // A transaction that is rolled back leaves nothing: the second time everything is new again.
    for _ in 0..2 {
        let mut transaction = pool.begin().await?;
        let cancelled =
            ask(&mut transaction, &format!("{invoice}-cancelled"), amount, iban).await?;
        expect(!cancelled.duplicate, "nothing is left of a rolled back transaction")?;
        transaction.rollback().await?;
    }
    println!("rolled back: nothing is left");
    Ok(())
}

fn expect(holds: bool, claim: &'static str) -> Result<(), Trouble> {
    if holds { Ok(()) } else { Err(Trouble::Expected(claim)) }
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let ([invoice, amount, iban], Ok(url)) = (&arguments[..], std::env::var("DATABASE_URL")) else {
        eprintln!("set DATABASE_URL and give INVOICE AMOUNT IBAN");
        return ExitCode::FAILURE;
    };
    match run(&url, invoice, amount, iban).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("{trouble}");
            ExitCode::FAILURE
        }
    }
}
