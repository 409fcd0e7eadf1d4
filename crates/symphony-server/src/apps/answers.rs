//! What clients of apps are answered.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use symphony::db::ExecutionRow;
use symphony::lanes::triggers::Reply;
use uuid::Uuid;

/// Headers a script may not set: they are the server's.
const HEADERS_OF_THE_SERVER: [&str; 4] =
    ["connection", "content-length", "transfer-encoding", "upgrade"];

/// A script's answer that says its own status.
#[derive(Deserialize)]
struct Scripted {
    status: u16,
    #[serde(default)]
    headers: serde_json::Map<String, Value>,
    #[serde(default)]
    body: Value,
}

/// An error in our own words: a code, and the execution to look for.
pub(super) fn problem(status: StatusCode, code: &str, execution: Option<Uuid>) -> Response {
    with_json(status, &json!({ "error": code, "executionId": execution }))
}

pub(super) fn other_methods(methods: &[String]) -> Response {
    let mut response = problem(StatusCode::METHOD_NOT_ALLOWED, "NO_ROUTE", None);
    if let Ok(value) = HeaderValue::from_str(&methods.join(", ")) {
        response.headers_mut().insert(header::ALLOW, value);
    }
    response
}

pub(super) fn accepted(execution: Uuid) -> Response {
    let status_url = format!("/executions/{execution}");
    let mut response = with_json(
        StatusCode::ACCEPTED,
        &json!({ "executionId": execution, "statusUrl": status_url }),
    );
    if let Ok(value) = HeaderValue::from_str(&status_url) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    response
}

pub(super) fn status(execution: &ExecutionRow) -> Response {
    with_json(
        StatusCode::OK,
        &json!({
            "executionId": execution.id,
            "state": execution.state,
            "result": execution.result,
            "error": execution.error_code,
            "attempts": execution.attempts,
            "createdAt": execution.created_at,
            "completedAt": execution.completed_at,
        }),
    )
}

pub(super) fn reply(reply: &Reply) -> Response {
    match &reply.answer {
        Ok(value) => scripted(value, reply.execution_id),
        Err(code) => {
            let status = match code.as_str() {
                "REPLY_DEADLINE" | "TIMEOUT" => StatusCode::GATEWAY_TIMEOUT,
                "WORKER_LOST" | "SHUTDOWN" => StatusCode::BAD_GATEWAY,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            problem(status, code, Some(reply.execution_id))
        }
    }
}

/// `{status, headers, body}` is an answer of its own; anything else is the body of a 200.
fn scripted(value: &RawValue, execution: Uuid) -> Response {
    let Ok(Scripted { status, headers, body }) = serde_json::from_str(value.get()) else {
        return json_text(StatusCode::OK, value.get().to_owned());
    };
    let Some(status) = StatusCode::from_u16(status).ok().filter(|status| status.as_u16() >= 200)
    else {
        return problem(StatusCode::INTERNAL_SERVER_ERROR, "BAD_STATUS", Some(execution));
    };
    let mut response = match body {
        Value::Null => status.into_response(),
        Value::String(text) => {
            (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
        }
        other => json_text(status, other.to_string()),
    };
    for (name, value) in headers {
        let name = HeaderName::try_from(name.to_ascii_lowercase());
        let value = value.as_str().map(HeaderValue::from_str);
        let (Ok(name), Some(Ok(value))) = (name, value) else {
            return problem(StatusCode::INTERNAL_SERVER_ERROR, "BAD_HEADER", Some(execution));
        };
        if !HEADERS_OF_THE_SERVER.contains(&name.as_str()) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn with_json(status: StatusCode, value: &Value) -> Response {
    json_text(status, value.to_string())
}

fn json_text(status: StatusCode, text: String) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], Body::from(text)).into_response()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn answered(value: &str) -> Response {
        let value = RawValue::from_string(value.to_owned()).unwrap();
        reply(&Reply { execution_id: Uuid::nil(), answer: Ok(value) })
    }

    #[test]
    fn a_script_answers_with_a_value_or_with_status_headers_and_body() {
        for (value, status, content_type) in [
            ("{\"a\": 1}", 200, Some("application/json")),
            ("null", 200, Some("application/json")),
            ("{\"status\": 201, \"body\": {\"id\": 1}}", 201, Some("application/json")),
            ("{\"status\": 204}", 204, None),
            ("{\"status\": 200, \"body\": \"hi\"}", 200, Some("text/plain; charset=utf-8")),
            (
                "{\"status\": 200, \"headers\": {\"Content-Type\": \"text/html\"}, \"body\": \"<p>\"}",
                200,
                Some("text/html"),
            ),
            ("{\"status\": 99, \"body\": 1}", 500, Some("application/json")),
            ("{\"status\": 200, \"headers\": {\"a b\": \"x\"}}", 500, Some("application/json")),
            (
                "{\"status\": 200, \"headers\": {\"x\": \"a\\r\\nSet-Cookie: b\"}}",
                500,
                Some("application/json"),
            ),
        ] {
            let response = answered(value);
            let found = response.headers().get("content-type").map(|v| v.to_str().unwrap());
            assert_eq!((response.status().as_u16(), found), (status, content_type), "{value}");
        }
    }

    #[test]
    fn a_failed_run_is_an_error_and_never_an_answer() {
        for (code, status) in
            [("SCRIPT_ERROR", 500), ("WORKER_LOST", 502), ("REPLY_DEADLINE", 504), ("TIMEOUT", 504)]
        {
            let failed = Reply { execution_id: Uuid::nil(), answer: Err(code.to_owned()) };
            assert_eq!(reply(&failed).status().as_u16(), status, "{code}");
        }
    }
}
