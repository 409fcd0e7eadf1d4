#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod conformance;
mod reading;
pub(crate) mod server;
mod settings;
mod tls;
mod wire;
