//! Symphony: a money-grade transactional outbox for PostgreSQL.
//!
//! A service writes its state and its intent in one transaction; Symphony carries the intent out and keeps
//! a ledger nobody can rewrite. The database is the authority: every legal move is a SQL function in
//! `sql/`, and this library calls them.
//!
//! Layout, in reading order:
//! - [`domain`]: the words — ids, payloads, states, outcomes. No I/O.
//! - [`schema`]: the embedded `sql/` folder, its order and its hashes.
//! - [`db`]: the only Rust that names SQL. One handle per role, one error enum, migrations, inspection.
//! - [`event`]: what an event is: envelope, key and payload, checked. No I/O.
//! - [`money`]: checks on amounts, currencies and destinations. No I/O.
//! - [`engine`]: wake up, claim, dispatch, complete, renew, repair; for any lane.
//! - [`lanes`]: what a lane means by those. [`lanes::payments`] sends to rails.
//! - [`witness`]: noticing that the server is another one after a failover or a restore.
//! - [`consumer`]: applying events once, whatever the bus repeats.

pub mod consumer;
pub mod db;
pub mod domain;
pub mod engine;
pub mod event;
pub mod lanes;
pub mod money;
pub mod schema;
pub mod witness;
