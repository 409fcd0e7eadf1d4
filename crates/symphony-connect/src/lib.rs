//! Everything of Symphony that touches the outside.
//!
//! - [`address`]: which network addresses may be called at all.
//! - [`aws`]: clients of AWS, built from settings.
//! - [`buses`]: ways to carry events to their consumers, and the conformance suite every bus must pass.
//! - [`executors`]: what runs the scripts of the trigger lane.
//! - [`email`]: mail that comes in and mail that goes out.
//! - [`rails`]: ways to move money, and the conformance suite every rail must pass.
//! - [`sandbox`]: a simulated provider, a real HTTP server with its own durable record; the judge of chaos tests.
//! - [`sources`]: where consumers receive events from.

pub mod address;
#[cfg(feature = "aws")]
pub mod aws;
pub mod buses;
pub mod email;
pub mod executors;
mod http_client;
pub mod rails;
pub mod sandbox;
mod settings;
pub mod sources;
