//! Whether the server is still the one this installation is known to run on: what a worker was told last, and what the
//! database makes of that.

#[cfg(feature = "admin")]
use super::Operator;
#[cfg(feature = "worker")]
use super::Worker;
#[cfg(feature = "worker")]
use super::server_signals::ServerSignals;
use super::{DbError, calls};
#[cfg(feature = "admin")]
use crate::domain::Act;
use chrono::{DateTime, Utc};
#[cfg(feature = "worker")]
use serde::Deserialize;
use serde::Serialize;
#[cfg(feature = "worker")]
use std::sync::PoisonError;
use uuid::Uuid;

/// A failover that lost no more goes on by itself; whatever lost more is taken for a restored backup or a copy.
#[cfg(feature = "worker")]
const LOSS_MAX_SECONDS: i32 = 300;

/// What a database told a worker last. A database that does not know it has lost something.
#[cfg(feature = "worker")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// Its number.
    pub beat_no: i64,
    /// When, by the database's clock.
    pub beat_at: DateTime<Utc>,
    /// The decision since which is counted.
    pub decided_at: DateTime<Utc>,
}

/// What the database makes of its server.
#[cfg(feature = "worker")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerState {
    /// It is the one on record, or a failover that lost nothing: work goes on.
    Known {
        /// What was just decided, if anything was.
        news: Option<String>,
    },
    /// A failover lost something: work goes on, and rails are asked first.
    AskFirst {
        /// What was found.
        found: String,
    },
    /// Other workers have a moment to say that they miss nothing.
    Waiting {
        /// What was found.
        found: String,
    },
    /// Nothing is dispatched until a person accepts this server.
    Held {
        /// What was found.
        found: String,
    },
}

/// What a person would accept, or has accepted, with another server.
#[cfg(feature = "admin")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct AcceptAnswer {
    /// How this server differs from the one on record.
    pub finding: String,
    /// What happened later may be missing here.
    pub lost_since: DateTime<Utc>,
    /// Items asked for before this are inquired after before they are sent.
    pub ask_first_until: DateTime<Utc>,
    /// Pending payments whose rail will be asked.
    pub payments_to_ask: i64,
    /// Pending payments on rails that can be neither asked nor relied on: a person decides on each.
    pub payments_to_park: i64,
    /// Nothing was changed.
    pub dry_run: bool,
}

/// The server on record and the one that answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct ServerRecord {
    /// Part of every key a rail gets.
    pub installation_id: Uuid,
    /// The system identifier on record, as text: it has more digits than JSON's numbers.
    pub system_identifier: String,
    /// That of the server that answers.
    pub live_system_identifier: String,
    /// The timeline on record.
    pub timeline: i32,
    /// That of the server that answers; nothing on a standby.
    pub live_timeline: Option<i32>,
    /// It is the database on record, and not a copy beside it.
    pub same_database: bool,
    /// Why nothing is dispatched, if a worker found a reason.
    pub held_because: Option<String>,
    /// What happened after this, in an earlier life of the database, may be missing here.
    pub lost_since: Option<DateTime<Utc>>,
    /// Items asked for before this are inquired after first.
    pub ask_first_until: Option<DateTime<Utc>>,
}

impl ServerRecord {
    /// Why nothing is dispatched on this server; `None` if work goes on.
    pub fn trouble(&self) -> Option<String> {
        if let Some(reason) = &self.held_because {
            return Some(reason.clone());
        }
        if self.system_identifier != self.live_system_identifier {
            return Some(format!(
                "this is another server (system identifier {} instead of {}), so a restored or copied database",
                self.live_system_identifier, self.system_identifier
            ));
        }
        if !self.same_database {
            return Some(
                "this is another database than on record, so a copy of it or a restored dump"
                    .to_owned(),
            );
        }
        match self.live_timeline {
            Some(live) if live != self.timeline => Some(format!(
                "the server is on timeline {live} instead of {}, after a failover or a restore that no worker has decided on",
                self.timeline
            )),
            _ => None,
        }
    }
}

/// Reads the record; any role that reads or works may.
pub const SERVER_RECORD: &str = "SELECT i.installation_id, i.system_identifier::text, c.system_identifier::text AS live_system_identifier,
        i.timeline, CASE WHEN NOT pg_is_in_recovery()
                         THEN ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int END AS live_timeline,
        i.database_oid = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) AS same_database,
        i.held_because, i.lost_since, i.ask_first_until
   FROM symphony.symphony_installation i CROSS JOIN pg_control_system() c";

#[cfg(feature = "worker")]
#[derive(sqlx::FromRow)]
struct BeatRow {
    state: String,
    detail: Option<String>,
    beat_no: Option<i64>,
    beat_at: Option<DateTime<Utc>>,
    decided_at: DateTime<Utc>,
}

#[cfg(feature = "worker")]
impl Worker {
    /// What is known in this process about the server.
    pub(crate) fn server_signals(&self) -> std::sync::Arc<ServerSignals> {
        self.database.signals().clone()
    }

    /// A claim of payments was committed, then: the database must know it for ever.
    pub(crate) fn claimed(&self, at: DateTime<Utc>) {
        let mut claimed_at =
            self.database.signals.claimed_at.lock().unwrap_or_else(PoisonError::into_inner);
        *claimed_at = (*claimed_at).max(Some(at));
    }

    /// This installation's id.
    pub async fn installation_id(&self) -> Result<Uuid, DbError> {
        let sql = "SELECT installation_id FROM symphony.symphony_installation";
        let query = sqlx::query_scalar(sql);
        self.call_repeatable(async |session| query.fetch_one(session).await).await
    }

    /// Tell the database what it said last; it answers whether work may go on, and what to keep.
    pub async fn beat_witness(
        &self,
        witness_id: Uuid,
        worker_id: &str,
        durable: bool,
        known: Option<Beat>,
        at_start: bool,
    ) -> Result<(ServerState, Option<Beat>), DbError> {
        let claimed_at =
            *self.database.signals.claimed_at.lock().unwrap_or_else(PoisonError::into_inner);
        let query = sqlx::query_as(calls::BEAT_WITNESS.sql)
            .bind(witness_id)
            .bind(worker_id)
            .bind(durable)
            .bind(known.map(|known| known.beat_no))
            .bind(known.map(|known| known.beat_at))
            .bind(known.map(|known| known.decided_at))
            .bind(claimed_at)
            .bind(LOSS_MAX_SECONDS)
            .bind(at_start);
        let row: BeatRow =
            self.call_repeatable(async |session| query.fetch_one(session).await).await?;
        let beat = match (row.beat_no, row.beat_at) {
            (Some(beat_no), Some(beat_at)) => {
                Some(Beat { beat_no, beat_at, decided_at: row.decided_at })
            }
            _ => None,
        };
        // This loss was decided upon: do not report the same lost claim every second.
        if known.is_some_and(|known| known.decided_at != row.decided_at) {
            let mut last =
                self.database.signals.claimed_at.lock().unwrap_or_else(PoisonError::into_inner);
            if *last == claimed_at {
                *last = None;
            }
        }
        let found = row.detail.clone().unwrap_or_default();
        let state = match row.state.as_str() {
            "OK" => ServerState::Known { news: row.detail },
            "ASK_FIRST" => ServerState::AskFirst { found },
            "WAITING" => ServerState::Waiting { found },
            "HELD" => ServerState::Held { found },
            other => {
                return Err(DbError::Unexpected { message: format!("server state {other}") });
            }
        };
        Ok((state, beat))
    }
}

#[cfg(feature = "admin")]
impl Operator {
    /// Go on, on this server; what may have been sent is inquired after first.
    pub async fn accept_server(
        &self,
        act: &Act,
        lost_since: Option<DateTime<Utc>>,
        ask_first_seconds: i32,
    ) -> Result<AcceptAnswer, DbError> {
        let query = sqlx::query_as(calls::ACCEPT_SERVER.sql)
            .bind(&act.actor)
            .bind(&act.reason)
            .bind(super::operator::NOT_NAMED)
            .bind(lost_since)
            .bind(ask_first_seconds)
            .bind(act.dry_run);
        self.act(query).await
    }
}
