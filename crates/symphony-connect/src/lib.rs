//! Everything of Symphony that touches the outside.
//!
//! - [`rails`]: ways to move money, and the conformance suite every rail must pass.
//! - [`sandbox`]: a simulated provider, a real HTTP server with its own durable record; the judge of chaos tests.

pub mod rails;
pub mod sandbox;
