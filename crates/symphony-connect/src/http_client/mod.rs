//! The HTTP client that rails and buses share: requests that never go where they should not, and an answer that is
//! either whole or known to be missing.
//!
//! - `endpoint`: from a URL to a server that may be called.
//! - `exchange`: one exchange, with a clear line between "surely not sent" and "may have left".
//! - `headers`: what headers can carry.

mod endpoint;
mod exchange;
mod headers;

pub(crate) use self::endpoint::{Conditions, Endpoint, Environment, guard, tls, variable};
pub(crate) use self::exchange::{Body, Failure, Reply};
pub use self::headers::RETRY_AFTER_SECONDS_MAX;
pub(crate) use self::headers::{header_text, is_trace_context, retry_after};

/// Why settings cannot be used: the field, and what is wrong with it. Never contains a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct SettingsError {
    /// The field's name, as configuration writes it.
    pub field: &'static str,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl SettingsError {
    pub(crate) fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self { field, problem: problem.into() }
    }
}
