//! Everything of Symphony that touches the outside.
//!
//! - [`accept`]: one accept loop for listeners that are no worker's.
//! - [`address`]: which network addresses may be called at all.
//! - [`aws`]: clients of AWS, built from settings.
//! - [`collector`]: where spans of traces are posted to.
//! - [`buses`]: ways to carry events to their consumers, and the conformance suite every bus must pass.
//! - [`executors`]: what runs the scripts of the trigger lane, and the conformance suite every executor must pass.
//! - [`email`]: mail that comes in and mail that goes out.
//! - [`rails`]: ways to move money, and the conformance suite every rail must pass.
//! - [`sources`]: where consumers receive events from, and the conformance suite every source must pass.
//! - [`webhook_schemes`]: who sent a webhook that came in.
//!
//! Features, on by default: `sns` (SNS and SQS), `nats` (JetStream), `scripts` (QuickJS), `typescript` (scripts in
//! TypeScript) and `email` (SMTP); and not by default, because it builds a library in C: `kafka`. Without any of them there
//! are rails, webhooks, scripts behind a URL and the address guard.

pub mod accept;
pub mod address;
#[cfg(feature = "sns")]
pub mod aws;
mod bounds;
pub mod buses;
pub mod collector;
#[cfg(feature = "email")]
pub mod email;
pub mod executors;
mod http_client;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "nats")]
mod nats;
pub mod rails;
mod settings;
pub mod sources;
pub mod webhook_schemes;
