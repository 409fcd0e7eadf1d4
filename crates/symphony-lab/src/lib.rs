//! What Symphony is tried on. Nothing here is needed in production.
//!
//! - [`demo`]: the tour; [`bench`]: what `symphony bench` measures. Both run the product's own parts, which the program
//!   that calls them lends ([`host`]).
//! - [`private_postgres`]: a server of our own, where no database is named. `bounds`: what it may take.
//! - [`sandbox`]: a simulated provider, a real HTTP server with its own durable record.
//! - [`receiver`]: a local receiver of webhooks that checks, counts and misbehaves.
//! - [`mail_catcher`]: a local relay that keeps mail and sends none on.
//! - [`judge`]: the provider's records against the ledger, for the demo and for the chaos tests.

pub mod bench;
mod bounds;
pub mod demo;
mod error;
pub mod host;
pub mod judge;
pub mod mail_catcher;
pub mod private_postgres;
pub mod receiver;
pub mod sandbox;

pub use error::LabError;
