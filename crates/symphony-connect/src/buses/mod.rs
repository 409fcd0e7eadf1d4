//! Ways to tell the world what happened.
//!
//! - [`http`]: signed webhooks, one POST per event and endpoint.
//! - [`webhook_signature`]: how a webhook proves where it comes from (Standard Webhooks).
//! - [`receiver`]: a local receiver of webhooks that checks, counts and misbehaves; for `symphony up`, `demo` and tests.

pub mod http;
pub mod receiver;
pub mod webhook_signature;
