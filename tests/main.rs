//! Every proof of the project, in one binary against one real PostgreSQL.
//!
//! A name is a claim. Each test has a database of its own, cloned from one template; time is set in the row,
//! never slept away. `scripts/test` runs this on every PostgreSQL it can get (15 and 18).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub
)]

mod support;

mod api;
mod approvals;
mod commands;
mod connect;
mod console;
mod consumers;
mod database;
mod engine;
mod events;
mod ops;
mod payments;
mod repository;
mod traces;
mod triggers;
