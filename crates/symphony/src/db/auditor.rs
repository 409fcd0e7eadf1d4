//! Who reads. What is read is filed by lane.

use chrono::{DateTime, Utc};
use serde::Serialize;
use uuid::Uuid;

use super::LaneStatus;
use super::{Database, DbError, Role, SERVER_RECORD, ServerRecord, calls};

/// Reads.
///
/// ```no_run
/// # async fn example(database: symphony::db::Database) -> Result<(), symphony::Error> {
/// for lane in database.auditor().status().await? {
///     println!("{}: {} pending", lane.lane, lane.pending);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Auditor {
    pub(super) database: Database,
}

/// A late outcome that contradicts the ledger, until a person closes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct Incident {
    /// The lane.
    pub lane: String,
    /// Its number in its lane.
    pub incident_no: i64,
    /// The item.
    pub item_id: Uuid,
    /// Since when.
    pub opened_at: DateTime<Utc>,
    /// Who was late.
    pub worker_id: Option<String>,
    /// What the ledger says.
    pub recorded_state: String,
    /// With this reference.
    pub recorded_reference: Option<String>,
    /// What arrived late.
    pub late_state: String,
    /// With this reference.
    pub late_reference: Option<String>,
}

impl Auditor {
    pub(super) fn new(database: Database) -> Self {
        Self { database }
    }

    /// Every lane at a glance.
    pub async fn status(&self) -> Result<Vec<LaneStatus>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(calls::FIGURES.sql).fetch_all(transaction.session()).await?)
    }

    /// The contradictions nobody has closed, oldest first.
    pub async fn incidents(&self, limit: i64) -> Result<Vec<Incident>, DbError> {
        self.incidents_after(None, None, limit).await
    }

    /// The server on record and the one that answers.
    pub async fn server(&self) -> Result<ServerRecord, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(SERVER_RECORD).fetch_one(transaction.session()).await?)
    }
}
