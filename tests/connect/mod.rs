//! What talks to the outside: buses against real brokers, the http rail, webhooks, certificates, listeners.

pub mod buses;
mod client_certificates;
mod conformance;
mod envelopes;
#[cfg(feature = "kafka")]
mod kafka_source;
mod listeners;
mod sources;
mod webhooks;
