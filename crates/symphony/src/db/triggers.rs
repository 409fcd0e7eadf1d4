//! The trigger lane's calls for workers: claim, complete, renew, return, repair, cron ticks, and what scripts read.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::value::RawValue;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::types::Json;
use uuid::Uuid;

use super::{DbError, Executor, Link, Pooler, calls};
use crate::domain::LeaseToken;

/// An item, held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TriggerLease {
    /// The item.
    pub id: Uuid,
    /// The proof.
    pub lease_token: LeaseToken,
}

/// One item leased to a worker.
#[derive(Debug, sqlx::FromRow)]
pub struct ClaimedTrigger {
    /// The item.
    pub id: Uuid,
    /// Its lease.
    pub lease_token: LeaseToken,
    /// Its app.
    pub app_id: Uuid,
    /// What fired it.
    pub source_kind: String,
    /// The route or trigger; `None` for a replay and for email to be sent.
    pub trigger_id: Option<Uuid>,
    /// The script; `None` for email to be sent.
    pub script_id: Option<Uuid>,
    /// Somebody waits under this name.
    pub reply_to: Option<Uuid>,
    /// What it was fired with.
    pub payload: Json<Box<RawValue>>,
    /// Who caused it.
    pub origin_principal: Option<Uuid>,
    /// As whom it runs.
    pub principal: Option<Uuid>,
    /// How many triggers stand before it.
    pub trigger_depth: i32,
    /// The first of its tree.
    pub root_execution_id: Uuid,
    /// Tries so far.
    pub attempt_count: i32,
    /// When it was due.
    pub next_attempt_at: DateTime<Utc>,
    /// When it was written.
    pub created_at: DateTime<Utc>,
}

impl ClaimedTrigger {
    /// The lease it is held under.
    pub fn lease(&self) -> TriggerLease {
        TriggerLease { id: self.id, lease_token: self.lease_token }
    }
}

/// How much of one app a worker has at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppLimit {
    /// At most this much.
    pub items_max: i32,
    /// Of these apps it has something already,
    pub apps: Vec<Uuid>,
    /// so much of each.
    pub held: Vec<i32>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TriggerState {
    /// It answered.
    Dispatched,
    /// Again later, if its trigger allows.
    Retryable,
    /// Never.
    Failed,
}

impl TriggerState {
    fn name(self) -> &'static str {
        match self {
            Self::Dispatched => "DISPATCHED",
            Self::Retryable => "RETRYABLE",
            Self::Failed => "FAILED",
        }
    }
}

/// One run's outcome, to be written down with its effects.
#[derive(Debug, Clone)]
pub struct TriggerOutcome {
    /// The lease of its item.
    pub lease: TriggerLease,
    /// Somebody waits for it under this name.
    pub reply_to: Option<Uuid>,
    /// How it ended.
    pub state: TriggerState,
    /// What it answered.
    pub result: Option<Box<RawValue>>,
    /// What it logged: an array.
    pub logs: Option<Box<RawValue>>,
    /// What it wants to have done: an array; `None` for nothing.
    pub effects: Option<Box<RawValue>>,
    /// Our code for what went wrong.
    pub error_code: Option<String>,
    /// In words.
    pub error_message: Option<String>,
    /// How long it ran.
    pub latency_ms: Option<i32>,
    /// It is one of the item's attempts. Not so if what should have taken it was busy or away.
    pub spends_attempt: bool,
}

impl TriggerOutcome {
    /// An outcome with nothing but its state.
    pub fn new(lease: TriggerLease, state: TriggerState) -> Self {
        Self {
            lease,
            reply_to: None,
            state,
            result: None,
            logs: None,
            effects: None,
            error_code: None,
            error_message: None,
            latency_ms: None,
            spends_attempt: true,
        }
    }
}

/// What became of one outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TriggerRecorded {
    /// It is in the ledger, as this: the database may have found that it was the last attempt, too late, or that an
    /// effect is not right.
    Recorded {
        /// How it counts.
        state: TriggerState,
        /// Why, if the database decided.
        error_code: Option<String>,
    },
    /// It is not held under this lease.
    NotHeld,
    /// It has a terminal outcome of another lease.
    TerminalExists,
}

/// A script's version.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct ScriptRow {
    /// Its app's name.
    pub app: String,
    /// Its name.
    pub name: String,
    /// JavaScript to run here.
    pub source: Option<String>,
    /// Or where to post the request to.
    pub url: Option<String>,
    /// How long it may run.
    pub timeout_ms: i32,
}

/// A cron trigger whose time has come, or whose clock was never set.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct DueTick {
    /// The trigger.
    pub trigger_id: Uuid,
    /// Its cron expression.
    pub expression: String,
    /// In which time zone it is meant.
    pub time_zone: String,
    /// Fire every missed tick, or none of them.
    pub catch_up: bool,
    /// The tick; `None` if the clock was never set.
    pub tick_at: Option<DateTime<Utc>>,
    /// The database's time.
    pub now: DateTime<Utc>,
}

fn ids(leases: &[TriggerLease]) -> Vec<Uuid> {
    leases.iter().map(|lease| lease.id).collect()
}

fn tokens(leases: &[TriggerLease]) -> Vec<LeaseToken> {
    leases.iter().map(|lease| lease.lease_token).collect()
}

fn json(value: Option<&RawValue>) -> Option<Json<&RawValue>> {
    value.map(Json)
}

impl Executor {
    /// Lease the next due items, a share for every app.
    pub async fn claim_triggers(
        &self,
        worker_id: &str,
        items_max: i32,
        lease_seconds: i32,
        limit: Option<&AppLimit>,
    ) -> Result<Vec<ClaimedTrigger>, DbError> {
        self.call_repeatable(async |connection| {
            Ok(sqlx::query_as(calls::CLAIM_TRIGGERS.sql)
                .bind(items_max)
                .bind(worker_id)
                .bind(lease_seconds)
                .bind(limit.map(|limit| limit.items_max))
                .bind(limit.map(|limit| &limit.apps))
                .bind(limit.map(|limit| &limit.held))
                .fetch_all(connection)
                .await?)
        })
        .await
    }

    /// Write down how runs ended, in one transaction: many without effects, or one with.
    pub async fn complete_triggers(
        &self,
        worker_id: &str,
        outcomes: &[&TriggerOutcome],
    ) -> Result<Vec<TriggerRecorded>, DbError> {
        let rows: Vec<(String, Option<String>, Option<String>)> = self
            .call_repeatable(async |connection| {
                Ok(sqlx::query_as(calls::COMPLETE_TRIGGERS.sql)
                    .bind(worker_id)
                    .bind(outcomes.iter().map(|o| o.lease.id).collect::<Vec<_>>())
                    .bind(outcomes.iter().map(|o| o.lease.lease_token).collect::<Vec<_>>())
                    .bind(outcomes.iter().map(|o| o.state.name()).collect::<Vec<_>>())
                    .bind(outcomes.iter().map(|o| json(o.result.as_deref())).collect::<Vec<_>>())
                    .bind(outcomes.iter().map(|o| json(o.logs.as_deref())).collect::<Vec<_>>())
                    .bind(outcomes.iter().map(|o| json(o.effects.as_deref())).collect::<Vec<_>>())
                    .bind(outcomes.iter().map(|o| o.error_code.as_deref()).collect::<Vec<_>>())
                    .bind(outcomes.iter().map(|o| o.error_message.as_deref()).collect::<Vec<_>>())
                    .bind(outcomes.iter().map(|o| o.latency_ms).collect::<Vec<_>>())
                    .bind(outcomes.iter().map(|o| o.spends_attempt).collect::<Vec<_>>())
                    .fetch_all(connection)
                    .await?)
            })
            .await?;
        rows.into_iter()
            .map(|(result, state, error_code)| match (result.as_str(), state.as_deref()) {
                ("OK", Some("DISPATCHED")) => {
                    Ok(TriggerRecorded::Recorded { state: TriggerState::Dispatched, error_code })
                }
                ("OK", Some("RETRYABLE")) => {
                    Ok(TriggerRecorded::Recorded { state: TriggerState::Retryable, error_code })
                }
                ("OK", Some("FAILED")) => {
                    Ok(TriggerRecorded::Recorded { state: TriggerState::Failed, error_code })
                }
                ("P7001", _) => Ok(TriggerRecorded::TerminalExists),
                ("P7002", _) => Ok(TriggerRecorded::NotHeld),
                (other, _) => Err(DbError::Refused {
                    sqlstate: other.to_owned(),
                    message: "an outcome that the trigger lane does not have".to_owned(),
                }),
            })
            .collect()
    }

    /// Extend leases; one answer each, in the order given.
    pub async fn renew_triggers(
        &self,
        worker_id: &str,
        leases: &[TriggerLease],
        lease_seconds: i32,
    ) -> Result<Vec<bool>, DbError> {
        let rows: Vec<(Uuid, bool)> = self
            .call_repeatable(async |connection| {
                Ok(sqlx::query_as(calls::RENEW_TRIGGERS.sql)
                    .bind(worker_id)
                    .bind(ids(leases))
                    .bind(tokens(leases))
                    .bind(lease_seconds)
                    .fetch_all(connection)
                    .await?)
            })
            .await?;
        Ok(rows.into_iter().map(|(_, renewed)| renewed).collect())
    }

    /// Give back what was never started.
    pub async fn return_unsent_triggers(
        &self,
        worker_id: &str,
        leases: &[TriggerLease],
    ) -> Result<Vec<(Uuid, bool)>, DbError> {
        self.call(async |connection| {
            Ok(sqlx::query_as(calls::RETURN_UNSENT_TRIGGERS.sql)
                .bind(worker_id)
                .bind(ids(leases))
                .bind(tokens(leases))
                .fetch_all(connection)
                .await?)
        })
        .await
    }

    /// End expired leases of lost workers, and what nobody waits for any more.
    pub async fn repair_triggers(
        &self,
        worker_id: &str,
        items_max: i32,
    ) -> Result<Vec<Uuid>, DbError> {
        let rows: Vec<(Uuid, Option<String>, bool)> = self
            .call(async |connection| {
                Ok(sqlx::query_as(calls::REPAIR_TRIGGERS.sql)
                    .bind(items_max)
                    .bind(worker_id)
                    .fetch_all(connection)
                    .await?)
            })
            .await?;
        Ok(rows.into_iter().map(|(id, _, _)| id).collect())
    }

    /// Keep what a run learnt after its lease was lost. Its effects are not applied.
    pub async fn record_late_trigger(
        &self,
        worker_id: &str,
        late: &TriggerOutcome,
    ) -> Result<(), DbError> {
        let _: (i64,) = self
            .call(async |connection| {
                Ok(sqlx::query_as(calls::RECORD_LATE_TRIGGER.sql)
                    .bind(late.lease.id)
                    .bind(late.lease.lease_token)
                    .bind(worker_id)
                    .bind(late.state.name())
                    .bind(&late.error_code)
                    .bind(&late.error_message)
                    .fetch_one(connection)
                    .await?)
            })
            .await?;
        Ok(())
    }

    /// A script's version; `None` if its app is gone.
    pub async fn script(&self, script_id: Uuid) -> Result<Option<ScriptRow>, DbError> {
        self.call_repeatable(async |connection| {
            Ok(sqlx::query_as(
                "SELECT a.name AS app, s.name, s.source, s.url, s.timeout_ms \
                   FROM public.scripts s JOIN public.apps a ON a.id = s.app_id WHERE s.id = $1",
            )
            .bind(script_id)
            .fetch_optional(connection)
            .await?)
        })
        .await
    }

    /// An entry of an app, as a script reads it.
    pub async fn kv_get(&self, app_id: Uuid, key: &str) -> Result<Option<Box<RawValue>>, DbError> {
        let value: Option<(Json<Box<RawValue>>,)> = self
            .call_repeatable(async |connection| {
                Ok(sqlx::query_as(
                    "SELECT value FROM public.kv_entries WHERE app_id = $1 AND key = $2",
                )
                .bind(app_id)
                .bind(key)
                .fetch_optional(connection)
                .await?)
            })
            .await?;
        Ok(value.map(|(Json(value),)| value))
    }

    /// The keys of an app that begin with a prefix, in order.
    pub async fn kv_list(
        &self,
        app_id: Uuid,
        prefix: &str,
        keys_max: i64,
    ) -> Result<Vec<String>, DbError> {
        self.call_repeatable(async |connection| {
            Ok(sqlx::query_scalar(
                "SELECT key FROM public.kv_entries WHERE app_id = $1 AND key >= $2 AND starts_with(key, $2) \
                  ORDER BY key LIMIT $3",
            )
            .bind(app_id)
            .bind(prefix)
            .bind(keys_max)
            .fetch_all(connection)
            .await?)
        })
        .await
    }

    /// Cron triggers whose time has come, and those whose clock was never set.
    pub async fn due_ticks(&self, ticks_max: i64) -> Result<Vec<DueTick>, DbError> {
        self.call_repeatable(async |connection| {
            Ok(sqlx::query_as(
                "SELECT c.trigger_id, t.filter AS expression, t.time_zone, t.catch_up, c.next_tick_at AS tick_at, \
                        clock_timestamp() AS now \
                   FROM public.trigger_cron c JOIN public.triggers t ON t.id = c.trigger_id \
                  WHERE c.next_tick_at IS NULL OR c.next_tick_at <= clock_timestamp() \
                  ORDER BY c.next_tick_at NULLS FIRST LIMIT $1",
            )
            .bind(ticks_max)
            .fetch_all(connection)
            .await?)
        })
        .await
    }

    /// Fire a tick and set the clock. `false`: another process was first, or it is not yet time.
    pub async fn fire_cron_tick(
        &self,
        trigger_id: Uuid,
        tick_at: Option<DateTime<Utc>>,
        next_tick_at: DateTime<Utc>,
        fire: bool,
    ) -> Result<bool, DbError> {
        self.call(async |connection| {
            Ok(sqlx::query_scalar(calls::FIRE_CRON_TICK.sql)
                .bind(trigger_id)
                .bind(tick_at)
                .bind(next_tick_at)
                .bind(fire)
                .fetch_one(connection)
                .await?)
        })
        .await
    }
}

/// Hears which replies have been written.
#[derive(Debug)]
pub struct ReplyListener {
    listener: PgListener,
}

impl ReplyListener {
    /// Listen, on a connection of its own. `None` where a transaction pooler lends the session.
    pub async fn connect(options: PgConnectOptions) -> Result<Option<Self>, DbError> {
        let link = Link::find(options, Pooler::Detect).await?;
        if link.pooled {
            return Ok(None);
        }
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .acquire_timeout(Duration::from_secs(10))
            .connect_with(link.options)
            .await?;
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.listen("trigger_reply").await?;
        Ok(Some(Self { listener }))
    }

    /// The names of the next replies; `None` if the connection was lost and some may have been missed.
    pub async fn next(&mut self) -> Result<Option<Vec<Uuid>>, DbError> {
        let Some(heard) = self.listener.try_recv().await? else { return Ok(None) };
        Ok(Some(heard.payload().split(',').filter_map(|name| name.parse().ok()).collect()))
    }
}
