//! Who calls: a bearer token, what it may do, and how often.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use sha2::{Digest as _, Sha256};
use symphony::db::{Database, DbError, FoundElsewhere, TokenIdentity};
use symphony::domain::OutboxId;
use uuid::Uuid;

use super::everything::Everything;
use super::problem::Problem;
use super::turns::Turns;
use crate::bounds::{
    CALLER_STATEMENT_MAX, EVERYTHING_TIME_MAX, FAILED_TOKENS_OF_ALL_PER_SECOND,
    FAILED_TOKENS_PER_SECOND, PEERS_REMEMBERED_MAX, TOKENS_REMEMBERED_MAX,
};
use crate::http_server::Peer;

/// What every token begins with, so that a scanner of sources finds one that was left there.
const TOKEN_PREFIX: &str = "symphony_";

/// Whoever sent the request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) token: TokenIdentity,
    /// Acts as the roles of the token's scopes, and for the token.
    pub(crate) database: Database,
    /// Of this process: who looks at everything there is.
    pub(crate) everything: Everything,
}

/// What a request may be for; each is a role of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Ingest,
    Operate,
    Approve,
    Read,
    /// Call routes of apps that need a token.
    Call,
}

impl Scope {
    /// The scopes that have it.
    fn granted_by(self) -> &'static [&'static str] {
        match self {
            Self::Ingest => &["ingest"],
            Self::Operate => &["operate"],
            Self::Approve => &["approve"],
            Self::Call => &["call"],
            // Whoever acts sees what they act on.
            Self::Read => &["read", "audit", "operate", "approve"],
        }
    }
}

impl Caller {
    /// Whether the token has one of the scopes needed.
    pub(crate) fn may(&self, scope: Scope) -> bool {
        let granted = scope.granted_by();
        self.token.scopes.iter().any(|held| granted.contains(&held.as_str()))
    }

    /// Refuse a token that has none of the scopes needed.
    pub(crate) fn needs(&self, scope: Scope) -> Result<(), Problem> {
        if self.may(scope) {
            return Ok(());
        }
        let granted = scope.granted_by().join(" or ");
        let detail = format!("this needs a token with scope {granted}");
        Err(Problem::new(StatusCode::FORBIDDEN, "SCOPE_MISSING", detail))
    }

    /// What else than its own id names an item, and the payments that a rail knows by that key: everything is looked at.
    pub(crate) async fn find_everywhere(
        &self,
        text: String,
    ) -> Result<(Vec<FoundElsewhere>, Vec<OutboxId>), Problem> {
        let reader = self.database.auditor();
        let looking = async move {
            let began = Instant::now();
            let found = reader.find_everywhere(&text, EVERYTHING_TIME_MAX).await?;
            let Ok(key) = text.parse::<Uuid>() else { return Ok((found, Vec::new())) };
            let left = EVERYTHING_TIME_MAX.saturating_sub(began.elapsed());
            // Not 0, which would mean no limit.
            let left = left.max(Duration::from_millis(1));
            Ok((found, reader.find_by_rail_key(key, left).await?))
        };
        self.everything.look(looking).await
    }

    /// The payments that a rail knows by this key: all of them are looked at.
    pub(crate) async fn find_by_rail_key(&self, key: Uuid) -> Result<Vec<OutboxId>, Problem> {
        let reader = self.database.auditor();
        let looking = async move { reader.find_by_rail_key(key, EVERYTHING_TIME_MAX).await };
        self.everything.look(looking).await
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let found = parts.extensions.get::<Self>().cloned();
        found.ok_or_else(|| Problem::unauthenticated("a bearer token is missing"))
    }
}

/// Authenticates every request of the API.
pub(crate) struct Door {
    database: Database,
    limits: Mutex<Limits>,
    everything: Everything,
}

struct Limits {
    /// By the hash of a token that was good.
    tokens: Turns<[u8; 32]>,
    /// Of tokens that are not known to be: by where they come from, and all together.
    strangers: Turns<Peer>,
    all_strangers: Turns<()>,
}

impl Door {
    pub(crate) fn new(database: Database, rate_per_second: u32) -> Self {
        let limits = Limits {
            tokens: Turns::new(rate_per_second, TOKENS_REMEMBERED_MAX),
            strangers: Turns::new(FAILED_TOKENS_PER_SECOND, PEERS_REMEMBERED_MAX),
            all_strangers: Turns::new(FAILED_TOKENS_OF_ALL_PER_SECOND, 1),
        };
        Self { database, limits: Mutex::new(limits), everything: Everything::default() }
    }

    /// Whose the token is that came from there.
    pub(crate) async fn caller(&self, secret: &str, peer: Peer) -> Result<Caller, Problem> {
        let hash: [u8; 32] = Sha256::digest(secret.as_bytes()).into();
        self.take_turn(hash, peer)?;
        match self.database.authenticate(secret).await {
            Ok(token) => {
                let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
                limits.tokens.meet(hash, Instant::now());
                drop(limits);
                let scopes = &token.scopes;
                let database = self.database.for_token(secret, scopes, CALLER_STATEMENT_MAX);
                Ok(Caller { token, database, everything: self.everything.clone() })
            }
            Err(DbError::TokenRefused { message }) => {
                let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
                limits.tokens.forget(hash);
                Err(Problem::unauthenticated(&message))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A known token has a rate of its own. Unknown ones share one by the address they come from, so that guessing neither
    /// keeps the database busy nor keeps others out; and all of them a larger one.
    fn take_turn(&self, hash: [u8; 32], peer: Peer) -> Result<(), Problem> {
        let now = Instant::now();
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let Limits { tokens, strangers, all_strangers } = &mut *limits;
        if tokens.knows(hash) {
            if !tokens.has_one(hash, now) {
                return Err(Problem::too_often());
            }
            tokens.take(hash, now);
            return Ok(());
        }
        // An address that is refused takes no turn from all others.
        if !strangers.has_one(peer, now) || !all_strangers.has_one((), now) {
            return Err(Problem::too_often());
        }
        strangers.take(peer, now);
        all_strangers.take((), now);
        Ok(())
    }
}

/// Lets a request through that has a good token.
pub(super) async fn authenticate(
    State(door): State<Arc<Door>>,
    mut request: Request,
    next: Next,
) -> Response {
    let secret = match bearer(request.headers()) {
        Ok(secret) => secret.to_owned(),
        Err(problem) => return problem.into_response(),
    };
    let peer = Peer::of(request.extensions());
    match door.caller(&secret, peer).await {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

/// The token that a request carries.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<&str, Problem> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let missing = || Problem::unauthenticated("Authorization must be: Bearer, a space and a token");
    let value = values.next().ok_or_else(missing)?;
    // Two of them are a trick on whoever reads only one.
    if values.next().is_some() {
        return Err(missing());
    }
    let value = value.to_str().map_err(|_| missing())?;
    let (scheme, secret) = value.split_once(' ').ok_or_else(missing)?;
    if !scheme.eq_ignore_ascii_case("bearer") || !is_token(secret) {
        return Err(missing());
    }
    Ok(secret)
}

/// Whether it looks like one: anything else is not asked about.
pub(crate) fn is_token(secret: &str) -> bool {
    secret.strip_prefix(TOKEN_PREFIX).is_some_and(|digits| {
        digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// A token's secret: 256 random bits of the system's.
pub(crate) fn new_secret() -> io::Result<String> {
    Ok(format!("{TOKEN_PREFIX}{}", random_digits()?))
}

/// 256 random bits of the system's, in hexadecimal digits.
pub(crate) fn random_digits() -> io::Result<String> {
    let mut bits = [0_u8; 32];
    File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bits))?;
    let mut digits = String::with_capacity(64);
    for byte in bits {
        let _infallible = write!(digits, "{byte:02x}");
    }
    Ok(digits)
}
