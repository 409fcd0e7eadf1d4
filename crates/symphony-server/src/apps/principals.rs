//! The ids of callers that were authenticated: each is noted in the database once, and remembered here.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use symphony::db::{DbError, Worker};
use uuid::Uuid;

use crate::bounds::PRINCIPALS_CACHED_MAX;

/// What kind of caller it is, as the database names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PrincipalKind {
    /// Of a verified mail: the address.
    Mail,
    /// Of an access token: person/name.
    Token,
    /// Whoever holds a webhook's secret: app/secret.
    Webhook,
}

impl PrincipalKind {
    fn name(self) -> &'static str {
        match self {
            Self::Mail => "mail",
            Self::Token => "token",
            Self::Webhook => "webhook",
        }
    }
}

/// Those that were seen.
#[derive(Debug)]
pub struct Principals {
    worker: Worker,
    known: Mutex<HashMap<(PrincipalKind, String), Uuid>>,
}

impl Principals {
    /// None yet.
    pub fn new(worker: Worker) -> Self {
        Self { worker, known: Mutex::default() }
    }

    /// The id of one; the database knows its name when this answers.
    pub async fn id(&self, kind: PrincipalKind, name: &str) -> Result<Uuid, DbError> {
        let key = (kind, name.to_owned());
        let found = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        if let Some(id) = found {
            return Ok(id);
        }
        let id = self.worker.note_principal(kind.name(), name).await?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= PRINCIPALS_CACHED_MAX {
            known.clear();
        }
        known.insert(key, id);
        Ok(id)
    }
}
