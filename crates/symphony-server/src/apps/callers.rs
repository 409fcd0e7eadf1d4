//! Who calls a route: nobody known, the holder of an access token, or the holder of a webhook's secret.

use std::collections::BTreeMap;
use std::fmt;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use chrono::Utc;
use serde::Serialize;
use symphony::db::{Database, DbError, RouteRow, Worker};
use symphony_connect::buses::webhook_signature::SignatureError;
use symphony_connect::webhook_schemes::WebhookScheme;
use uuid::Uuid;

use super::answers;
use super::principals::{PrincipalKind, Principals};
use super::secrets::SecretKeys;
use crate::api::{Caller, Door, Scope, bearer};
use crate::http_server::Peer;

/// Secrets of webhooks, by app and name. Never printed.
#[derive(Clone, Default)]
pub struct WebhookSecrets(BTreeMap<(String, String), String>);

impl WebhookSecrets {
    /// From what the configuration names.
    pub fn new(secrets: impl IntoIterator<Item = ((String, String), String)>) -> Self {
        Self(secrets.into_iter().collect())
    }

    /// The one place where a secret is looked up.
    fn find(&self, app: &str, name: &str) -> Option<&str> {
        self.0.get(&(app.to_owned(), name.to_owned())).map(String::as_str)
    }
}

impl fmt::Debug for WebhookSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Who called, as scripts read it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Known {
    #[serde(skip)]
    pub(super) principal: Uuid,
    kind: &'static str,
    name: String,
}

/// Authenticates callers.
pub(super) struct Callers {
    door: Door,
    principals: Principals,
    secrets: WebhookSecrets,
    /// Tokens do not travel in the clear.
    takes_tokens: bool,
    worker: Worker,
    keys: SecretKeys,
}

/// Why a caller is not let in.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    code: String,
}

impl Refusal {
    fn new(status: StatusCode, code: &str) -> Self {
        Self { status, code: code.to_owned() }
    }

    pub(super) fn answer(&self) -> Response {
        let mut response = answers::problem(self.status, &self.code, None);
        let header = match self.status {
            StatusCode::UNAUTHORIZED if self.code == "UNAUTHENTICATED" => {
                Some((header::WWW_AUTHENTICATE, "Bearer"))
            }
            StatusCode::TOO_MANY_REQUESTS => Some((header::RETRY_AFTER, "1")),
            _ => None,
        };
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

impl From<DbError> for Refusal {
    fn from(error: DbError) -> Self {
        tracing::warn!(lane = "triggers", code = error.code(), %error, "a caller could not be noted");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "DATABASE_AWAY")
    }
}

impl Callers {
    pub(super) fn new(
        database: &Database,
        rate_per_second: u32,
        secrets: WebhookSecrets,
        takes_tokens: bool,
        keys: SecretKeys,
    ) -> Self {
        let principals = Principals::new(database.worker());
        let door = Door::new(database.clone(), rate_per_second);
        Self { door, principals, secrets, takes_tokens, worker: database.worker(), keys }
    }

    /// The configuration's, else the app's own.
    async fn secret(&self, app: &str, name: &str) -> Result<Option<String>, Refusal> {
        if let Some(found) = self.secrets.find(app, name) {
            return Ok(Some(found.to_owned()));
        }
        let Some(sealed) = self.worker.sealed_secret(app, name).await? else { return Ok(None) };
        Ok(match self.keys.open(app, name, &sealed) {
            Ok(secret) => Some(secret),
            Err(why) => {
                tracing::warn!(lane = "triggers", error = why, "a webhook's secret does not open");
                None
            }
        })
    }

    /// The holder of a token; what it may do is for whoever asks.
    pub(super) async fn holder(
        &self,
        headers: &HeaderMap,
        peer: Peer,
    ) -> Result<(Caller, Known), Refusal> {
        // Not even whether it is right: whoever listens in must not learn to send one.
        if !self.takes_tokens {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "TLS_NEEDED"));
        }
        let secret =
            bearer(headers).map_err(|problem| Refusal::new(problem.status(), problem.code()))?;
        let caller = self.door.caller(secret, peer).await;
        let caller = caller.map_err(|problem| match problem.status() {
            StatusCode::SERVICE_UNAVAILABLE => {
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "DATABASE_AWAY")
            }
            // An unknown token has a SQLSTATE in the API; here it is as good as none.
            StatusCode::UNAUTHORIZED => Refusal::new(problem.status(), "UNAUTHENTICATED"),
            status => Refusal::new(status, problem.code()),
        })?;
        let name = format!("{}/{}", caller.token.person, caller.token.name);
        let principal = self.principals.id(PrincipalKind::Token, &name).await?;
        Ok((caller, Known { principal, kind: "token", name }))
    }

    /// The holder of a token that has this scope.
    pub(super) async fn holder_of(
        &self,
        headers: &HeaderMap,
        peer: Peer,
        scope: Scope,
    ) -> Result<Known, Refusal> {
        let (caller, known) = self.holder(headers, peer).await?;
        if caller.may(scope) {
            return Ok(known);
        }
        Err(Refusal::new(StatusCode::FORBIDDEN, "SCOPE_MISSING"))
    }

    /// Whoever signed this body with the route's secret.
    pub(super) async fn signer(
        &self,
        app: &str,
        route: &RouteRow,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Known, Refusal> {
        let scheme = scheme(route);
        let name = route.secret_name.as_deref();
        let secret = match name {
            Some(name) => self.secret(app, name).await?,
            None => None,
        };
        let (Some(scheme), Some(name), Some(secret)) = (scheme, name, secret) else {
            tracing::warn!(
                lane = "triggers",
                "a signed route is refused: its secret is neither under triggers.secrets nor set by app secret set"
            );
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "SECRET_MISSING"));
        };
        // Two of one name are a trick on whoever reads only one.
        let only = |name: &str| {
            let mut values = headers.get_all(name).iter();
            let value = values.next().filter(|_| values.next().is_none())?;
            value.to_str().ok()
        };
        match scheme.verify(&secret, only, body, Utc::now().timestamp()) {
            Ok(()) => {}
            Err(SignatureError::OutOfTime) => {
                return Err(Refusal::new(StatusCode::UNAUTHORIZED, "SIGNATURE_OUT_OF_TIME"));
            }
            Err(SignatureError::NoSecret) => {
                tracing::warn!(lane = "triggers", "a webhook's secret is not one of its scheme");
                return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "SECRET_MISSING"));
            }
            Err(SignatureError::Malformed | SignatureError::Mismatch) => {
                return Err(Refusal::new(StatusCode::UNAUTHORIZED, "SIGNATURE_REFUSED"));
            }
        }
        let name = format!("{app}/{name}");
        let principal = self.principals.id(PrincipalKind::Webhook, &name).await?;
        Ok(Known { principal, kind: "webhook", name })
    }
}

/// How requests to this route are signed.
pub(super) fn scheme(route: &RouteRow) -> Option<WebhookScheme> {
    route.signature.as_deref().and_then(WebhookScheme::named)
}
