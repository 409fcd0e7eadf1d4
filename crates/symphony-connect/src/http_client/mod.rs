//! The HTTP client that rails and buses share: requests that never go where they should not, and an answer that is
//! either whole or known to be missing.
//!
//! - `endpoint`: from a URL to a server that may be called.
//! - `exchange`: one exchange, with a clear line between "surely not sent" and "may have left".
//! - `headers`: what headers can carry.
//! - `tls`: whom we trust, and who we are to whoever asks.

mod endpoint;
mod exchange;
mod headers;
mod tls;

pub(crate) use self::endpoint::{Conditions, Endpoint, Environment, guard, variable};
pub(crate) use self::exchange::{Body, Failure, Reply};
pub use self::headers::RETRY_AFTER_SECONDS_MAX;
#[cfg(feature = "scripts")]
pub(crate) use self::headers::is_connection_header;
pub(crate) use self::headers::{header_name, header_text, is_trace_context, retry_after};
#[cfg(any(feature = "kafka", feature = "nats"))]
pub(crate) use self::tls::certificates;
pub(crate) use self::tls::{TlsFiles, tls};
