//! Symphony: a money-grade transactional outbox for PostgreSQL.
//!
//! A service writes its state and its intent in one transaction; Symphony carries the intent out and keeps
//! a ledger nobody can rewrite. The database is the authority: every legal move is a SQL function in
//! `sql/`, and this library calls them.
//!
//! ```no_run
//! use symphony::payments::{self, Payload, PaymentRequest};
//!
//! # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! let mut tx = pool.begin().await?;
//! sqlx::query("UPDATE invoices SET paid = true WHERE id = 17").execute(&mut *tx).await?;
//! let payload = Payload::parse(r#"{"amount": {"value": "10.00", "currency": "EUR"}}"#)?;
//! payments::enqueue(&mut *tx, &PaymentRequest::new("invoice-17", "acme", "sepa", payload)).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! ```toml
//! [dependencies]
//! symphony = { version = "0.1", features = ["tls"] }    # TLS to the database, by rustls; without it: sockets, loopback
//! sqlx = { version = "0.9", default-features = false, features = ["runtime-tokio", "postgres"] }
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! The transaction is one of sqlx 0.9: another version's is another type.
//!
//! Layout, in reading order:
//! - [`payments`], [`events`], [`triggers`]: enqueue, inside your own transaction. All that a producer needs.
//! - [`domain`]: the words — ids, payloads, states, outcomes. No I/O.
//! - [`event`]: what an event is: envelope, key and payload, checked. No I/O.
//! - [`json`]: JSON as text, checked and taken apart. [`FieldError`]: what is wrong with a field. No I/O.
//! - [`db`]: the only Rust that names SQL. One handle per role, one error enum, migrations, inspection.
//!
//! With the feature `worker` or `consumer`:
//! - `metrics`: counters.
//! - `trace`: where an item belongs in a trace, and what is told of it there.
//!
//! With the feature `money`:
//! - `money`: checks on amounts, currencies and destinations. No I/O.
//!
//! With the feature `worker`:
//! - `engine`: wake up, claim, dispatch, complete, renew, repair; for any lane.
//! - `lanes`: what a lane means by those. `lanes::payments` sends to rails.
//! - `witness`: noticing that the server is another one after a failover or a restore.
//!
//! With the feature `consumer`:
//! - `consumer`: applying events once, whatever the bus repeats.
//!
//! With the feature `admin`:
//! - `schema`: the embedded `sql/` folder, its order and its hashes; and in [`db`] what installs, compares, acts and reads.

#[cfg(feature = "consumer")]
pub mod consumer;
pub mod db;
pub mod domain;
#[cfg(feature = "worker")]
pub mod engine;
pub mod event;
mod field_error;
pub mod json;
#[cfg(feature = "worker")]
pub mod lanes;
#[cfg(any(feature = "consumer", feature = "worker"))]
pub mod metrics;
#[cfg(feature = "money")]
pub mod money;
#[cfg(feature = "admin")]
pub mod schema;
#[cfg(any(feature = "consumer", feature = "worker"))]
pub mod trace;
#[cfg(feature = "worker")]
pub mod witness;

pub use db::DbError as Error;
pub use db::events::producer as events;
pub use db::payments::producer as payments;
pub use db::triggers::producer as triggers;
pub use field_error::{FieldError, FieldErrors};
