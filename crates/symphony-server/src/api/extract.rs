//! What handlers read and write: bodies, paths and queries that are refused as problems; answers as JSON.

use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::problem::Problem;
use crate::http_server::read_body;

/// An answer, as JSON.
pub(super) struct Answer<T>(pub(super) StatusCode, pub(super) T);

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        match serde_json::to_string(&self.1) {
            Ok(text) => {
                (self.0, [(header::CONTENT_TYPE, "application/json")], text).into_response()
            }
            Err(error) => {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Problem::new(status, "SYM05", format!("the answer is no JSON: {error}"))
                    .into_response()
            }
        }
    }
}

pub(super) fn ok<T>(value: T) -> Answer<T> {
    Answer(StatusCode::OK, value)
}

/// What the path names.
pub(super) struct Named<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let named = Path::<T>::from_request_parts(parts, state).await;
        named.map(|Path(value)| Self(value)).map_err(|error| Problem::invalid(error.body_text()))
    }
}

/// What the query asks for.
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let asked = Query::<T>::from_request_parts(parts, state).await;
        asked.map(|Query(value)| Self(value)).map_err(|error| Problem::invalid(error.body_text()))
    }
}

/// The whole body of a request, as text.
pub(super) async fn text_of(request: Request, bytes_max: usize) -> Result<String, Problem> {
    let (parts, body): (Parts, Body) = request.into_parts();
    require_json(&parts.headers)?;
    let bytes = read_body(body, bytes_max).await?;
    String::from_utf8(bytes.into()).map_err(|_| Problem::invalid("the body is not UTF-8"))
}

/// A body as what it should be. Numbers stay as they are written only in [`text_of`].
pub(super) async fn json_of<T: DeserializeOwned>(
    request: Request,
    bytes_max: usize,
) -> Result<T, Problem> {
    let text = text_of(request, bytes_max).await?;
    serde_json::from_str(&text).map_err(|error| Problem::invalid(format!("the body: {error}")))
}

/// A page of another origin can post a form or plain text without asking; it cannot post JSON.
fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    if kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "CONTENT_TYPE",
        "Content-Type must be application/json",
    ))
}
