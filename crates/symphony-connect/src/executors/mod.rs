//! What runs scripts: the [`Executor`](symphony::lanes::triggers::executor::Executor)s of the trigger lane.
//!
//! - [`script`]: JavaScript in QuickJS, in this process, with limits on everything.
//! - [`http`]: the same request posted to a URL.
//! - [`fetcher`]: how both reach the network, and where they never go.
//! - [`conformance`]: the suite every executor must pass.
//! - [`output`]: how much a run may say, and what of it the database can hold.
//!
//! Scripts, their host API and the codes that runs fail with: `docs/SCRIPTS.md`.

pub mod conformance;
pub mod fetcher;
pub mod http;
pub mod output;
#[cfg(feature = "scripts")]
pub mod script;

#[cfg(test)]
mod test_server;

use serde::Serialize;
use serde_json::value::RawValue;
use symphony::lanes::triggers::executor::{Request, RunOutcome, UnstoredHeaders};
use uuid::Uuid;

pub use self::fetcher::{FetchSettings, Fetcher};
pub use self::http::HttpExecutor;
pub use self::output::OutputLimits;
#[cfg(feature = "scripts")]
pub use self::script::{ScriptExecutor, ScriptSettings};
use crate::bounds::executors::MESSAGE_CHARACTERS_MAX;

/// A request as scripts see it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestText<'a> {
    execution_id: Uuid,
    app: &'a str,
    script: &'a str,
    source_kind: &'a str,
    payload: &'a RawValue,
    #[serde(skip_serializing_if = "UnstoredHeaders::is_empty")]
    unstored_headers: UnstoredHeaders,
    origin_principal: Option<Uuid>,
    principal: Option<Uuid>,
    depth: i32,
    root_execution_id: Uuid,
    attempt: i32,
}

/// The request as JSON, for a handler in this process.
#[cfg(feature = "scripts")]
fn request_text(request: &Request) -> String {
    text_with(request, request.unstored_headers.clone())
}

/// The request as JSON, to be posted. What is not stored does not leave this process either.
fn posted_text(request: &Request) -> String {
    text_with(request, UnstoredHeaders::default())
}

fn text_with(request: &Request, unstored_headers: UnstoredHeaders) -> String {
    let text = RequestText {
        execution_id: request.execution_id,
        app: &request.app,
        script: &request.script,
        source_kind: &request.source_kind,
        payload: &request.payload,
        unstored_headers,
        origin_principal: request.origin_principal,
        principal: request.principal,
        depth: request.depth,
        root_execution_id: request.root_execution_id,
        attempt: request.attempt,
    };
    // Nothing in it can fail to be written: no maps with odd keys, and the payload is JSON already.
    serde_json::to_string(&text).unwrap_or_else(|_| "{}".to_owned())
}

/// A failure, its message on one line and not too long.
fn failed(code: &'static str, message: &str, retryable: bool) -> RunOutcome {
    RunOutcome::Failed { code, message: one_line(message), retryable }
}

/// A message on one line and not too long.
fn one_line(message: &str) -> String {
    let message = message.chars().map(|c| if c.is_control() { ' ' } else { c });
    message.take(MESSAGE_CHARACTERS_MAX).collect()
}
