//! Refusals as RFC 9457 has them (`application/problem+json`), with the project's stable codes.

use std::collections::BTreeMap;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use symphony::db::DbError;
use utoipa::openapi::{Content, Ref, RefOr, Response as Documented, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

use crate::bounds::CALLER_STATEMENT_MAX;
use crate::http_server::BodyProblem;

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Problem {
    /// `urn:symphony:error:` and the code.
    #[serde(rename = "type")]
    kind: String,
    /// The status in words.
    title: String,
    /// The HTTP status.
    status: u16,
    /// What is wrong, and what to do.
    detail: String,
    /// The stable code: a SQLSTATE of the contract, or a word of docs/API.md.
    code: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:symphony:error:{code}"),
            title: status.canonical_reason().unwrap_or("Refused").to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            code: code.to_owned(),
        }
    }

    /// A field that is not right.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "P7005", detail)
    }

    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "P7007", format!("there is no such {what}"))
    }

    pub(crate) fn unauthenticated(detail: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", detail)
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub(crate) fn code(&self) -> &str {
        &self.code
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(super) fn too_often() -> Self {
        let detail = "too many requests in this second: repeat it after Retry-After seconds";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED", detail)
    }
}

impl From<DbError> for Problem {
    fn from(error: DbError) -> Self {
        if error.is_out_of_range() {
            return Self::invalid("a date or a number lies beyond what PostgreSQL can store");
        }
        if error.is_time_out() {
            let seconds = CALLER_STATEMENT_MAX.as_secs();
            let detail = format!("this took longer than {seconds} seconds: nothing was done");
            return Self::new(StatusCode::SERVICE_UNAVAILABLE, "TOO_MUCH", detail);
        }
        let status = match &error {
            DbError::InvalidArgument { .. }
            | DbError::InvalidState { .. }
            | DbError::UnknownTries { .. }
            | DbError::NulCharacter => StatusCode::UNPROCESSABLE_ENTITY,
            DbError::NoSuchItem { .. } => StatusCode::NOT_FOUND,
            DbError::ActRefused { .. } | DbError::KeyReused { .. } => StatusCode::CONFLICT,
            DbError::TokenRefused { .. } => StatusCode::UNAUTHORIZED,
            DbError::ApprovalMissing { .. }
            | DbError::MissingPrivilege { .. }
            | DbError::MissingRole { .. } => StatusCode::FORBIDDEN,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        // What a server of ours says of itself (a host, a login) is for its log, not for whoever calls.
        let detail = if status == StatusCode::SERVICE_UNAVAILABLE {
            "the database does not answer as it should: try again later".to_owned()
        } else if let DbError::MissingRole { roles, .. } = &error {
            let roles = roles.join(" or ");
            format!(
                "this needs {roles}: the token's scopes do not include it, or the server was not granted it"
            )
        } else {
            error.to_string()
        };
        Self::new(status, error.code(), detail)
    }
}

impl From<BodyProblem> for Problem {
    fn from(problem: BodyProblem) -> Self {
        let (status, code) = problem.answer();
        let detail = match problem {
            BodyProblem::TooLarge => "the body is larger than this address takes",
            BodyProblem::TooSlow => "the body was not whole in time",
            BodyProblem::Broken => "the body is not whole",
        };
        Self::new(status, code, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status();
        let body = serde_json::to_string(&self).unwrap_or_default();
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        let mut response = (status, kind, body).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"symphony\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        } else if status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// What any address may answer with, for the OpenAPI document.
pub(super) struct Refusals;

impl IntoResponses for Refusals {
    fn responses() -> BTreeMap<String, RefOr<Documented>> {
        let described = [
            ("400", "the request is not HTTP as documented here"),
            ("401", "the token is missing, unknown, expired or revoked"),
            ("403", "the token lacks the scope, or a second person must approve"),
            ("404", "there is no such thing"),
            ("405", "the address has other methods"),
            ("408", "the body was not whole in time"),
            ("409", "the present state does not allow it, or the key belongs to another request"),
            ("413", "the body is too large"),
            ("415", "the body is not application/json"),
            ("422", "a field is not right"),
            ("429", "too many requests in this second"),
            ("503", "the database does not answer"),
        ];
        let content = || Content::new(Some(RefOr::Ref(Ref::from_schema_name("Problem"))));
        described
            .into_iter()
            .map(|(status, words)| {
                let response = ResponseBuilder::new()
                    .description(words)
                    .content("application/problem+json", content())
                    .build();
                (status.to_owned(), RefOr::T(response))
            })
            .collect()
    }
}
