//! What clients of apps are answered.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use symphony::db::ExecutionRow;
use symphony::lanes::triggers::{AnswerDefect, Reply, ScriptAnswer};
use uuid::Uuid;

/// Headers a script may not set: they are the server's.
const HEADERS_OF_THE_SERVER: [&str; 4] =
    ["connection", "content-length", "transfer-encoding", "upgrade"];

/// Forgiving about the bits that padding leaves over: whether it is base64 was found out before the run was applied.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// An error in our own words: a code, and the execution to look for.
pub(super) fn problem(status: StatusCode, code: &str, execution: Option<Uuid>) -> Response {
    with_json(status, &json!({ "error": code, "executionId": execution }))
}

pub(super) fn other_methods(methods: &[String]) -> Response {
    with_allow(problem(StatusCode::METHOD_NOT_ALLOWED, "NO_ROUTE", None), methods)
}

/// What OPTIONS is answered where no script answers it.
pub(super) fn options(methods: &[String]) -> Response {
    with_allow(StatusCode::NO_CONTENT.into_response(), methods)
}

fn with_allow(mut response: Response, methods: &[String]) -> Response {
    if let Ok(value) = HeaderValue::from_str(&methods.join(", ")) {
        response.headers_mut().insert(header::ALLOW, value);
    }
    response
}

fn status_url(execution: Uuid) -> String {
    format!("/executions/{execution}")
}

pub(super) fn accepted(execution: Uuid) -> Response {
    let status_url = status_url(execution);
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
                "WORKER_LOST" | "REQUEST_LOST" | "SHUTDOWN" | "OUTCOME_UNKNOWN" => {
                    StatusCode::BAD_GATEWAY
                }
                // Asked again, it may well be answered.
                "CONTENTION" | "EXECUTOR_STUCK" | "DATABASE_AWAY" => {
                    StatusCode::SERVICE_UNAVAILABLE
                }
                "NO_ROUTE" => StatusCode::NOT_FOUND,
                "BODY_NOT_READABLE" => StatusCode::BAD_REQUEST,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            let execution = reply.execution_id;
            if code == "OUTCOME_UNKNOWN" {
                let status_url = status_url(execution);
                let told =
                    json!({ "error": code, "executionId": execution, "statusUrl": status_url });
                return with_json(status, &told);
            }
            problem(status, code, Some(execution))
        }
    }
}

/// What says its own status is an answer of its own; anything else is the body of a 200.
fn scripted(value: &RawValue, execution: Uuid) -> Response {
    // Looked at before the run was applied, by the process that ran it: of another version, perhaps.
    let broken = |code| problem(StatusCode::INTERNAL_SERVER_ERROR, code, Some(execution));
    let answer = match ScriptAnswer::read(value) {
        Ok(Some(answer)) => answer,
        Ok(None) => return json_text(StatusCode::OK, value.get().to_owned()),
        Err(AnswerDefect { code, .. }) => return broken(code),
    };
    let Ok(status) = StatusCode::from_u16(answer.status) else { return broken("BAD_STATUS") };
    let mut response = match (answer.body_base64, answer.body) {
        (Some(base64), _) => match BASE64.decode(&*base64) {
            Ok(bytes) => {
                let binary = [(header::CONTENT_TYPE, "application/octet-stream")];
                (status, binary, bytes).into_response()
            }
            Err(_) => return broken("BAD_BODY"),
        },
        (None, None) => status.into_response(),
        (None, Some(body)) => match symphony::json::text(body) {
            Some(text) => {
                let plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
                (status, plain, text.into_owned()).into_response()
            }
            None => json_text(status, body.get().to_owned()),
        },
    };
    for (name, values) in answer.headers {
        let name = HeaderName::try_from(name.to_ascii_lowercase());
        let values: Result<Vec<HeaderValue>, _> =
            values.iter().map(|value| HeaderValue::from_str(value)).collect();
        let (Ok(name), Ok(values)) = (name, values) else { return broken("BAD_HEADER") };
        if !HEADERS_OF_THE_SERVER.contains(&name.as_str()) {
            response.headers_mut().remove(&name);
            for value in values {
                response.headers_mut().append(&name, value);
            }
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
            ("{\"status\": 200, \"bodyBase64\": \"AP8=\"}", 200, Some("application/octet-stream")),
            ("{\"status\": 99, \"body\": 1}", 500, Some("application/json")),
            ("{\"status\": \"404\", \"body\": 1}", 500, Some("application/json")),
            ("{\"status\": \"open\", \"id\": 1}", 200, Some("application/json")),
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
    fn a_header_with_several_values_is_sent_that_often() {
        let value =
            "{\"status\": 200, \"headers\": {\"Set-Cookie\": [\"a=1\", \"b=2\"], \"x\": \"y\"}}";
        let response = answered(value);
        let cookies: Vec<_> = response.headers().get_all("set-cookie").iter().collect();
        assert_eq!(cookies, ["a=1", "b=2"]);
    }

    #[test]
    fn a_failed_run_is_an_error_and_never_an_answer() {
        for (code, status) in [
            ("SCRIPT_ERROR", 500),
            ("WORKER_LOST", 502),
            ("REPLY_DEADLINE", 504),
            ("TIMEOUT", 504),
            ("OUTCOME_UNKNOWN", 502),
            ("CONTENTION", 503),
        ] {
            let failed = Reply { execution_id: Uuid::nil(), answer: Err(code.to_owned()) };
            assert_eq!(reply(&failed).status().as_u16(), status, "{code}");
        }
    }
}
