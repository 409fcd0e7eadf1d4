//! What must not work against the API, an attack a test.

mod approvals;
mod bodies;
mod requests;
mod scopes;
mod tokens;

use super::{Served, payment, raw};

/// What any token that looks may ask for.
const STATUS: &str = "GET /v1/status";

/// Header lines of a request with this token.
fn with_token(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// The status of an answer to these bytes.
async fn status_of(served: &Served, text: &str) -> u16 {
    let answer = raw(served.api.address(), text.as_bytes()).await;
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}
