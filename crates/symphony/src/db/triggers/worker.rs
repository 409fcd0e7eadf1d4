//! What a worker calls for triggers: claim, complete, renew, give back, repair; scripts, entries, clocks, routes and replies.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::postgres::{PgConnectOptions, PgListener, PgRow};
use sqlx::types::Json;
use sqlx::{FromRow as _, Row as _};
use uuid::Uuid;

use crate::db::calls::Call;
use crate::db::hints::listen;
use crate::db::leases::{EndedLeases, LaneLease, claim, each, each_or_none, unexpected_result};
use crate::db::triggers::sealed::SealedSecret;
use crate::db::{DbError, Schema, Worker, calls};
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
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// The run that fired it.
    pub parent_execution_id: Option<Uuid>,
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
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Dispatched => "DISPATCHED",
            Self::Retryable => "RETRYABLE",
            Self::Failed => "FAILED",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Dispatched, Self::Retryable, Self::Failed].into_iter().find(|s| s.name() == name)
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
    /// What it has read, as it was then: an array. Compared before its effects are applied.
    pub reads: Option<Box<RawValue>>,
    /// Our code for what went wrong.
    pub error_code: Option<String>,
    /// In words.
    pub error_message: Option<String>,
    /// How long it ran.
    pub latency_ms: Option<i32>,
    /// It is one of the item's attempts. Not so if what should have taken it was busy or away.
    pub spends_attempt: bool,
    /// Whoever waits for it does so in this process, and is told here.
    pub reply_here: bool,
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
            reads: None,
            error_code: None,
            error_message: None,
            latency_ms: None,
            spends_attempt: true,
            reply_here: false,
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
        /// The next of its order may be due now.
        successor: bool,
    },
    /// Something that its run had read has changed since. Nothing was done, and it is still held.
    ReadsChanged,
    /// A request that ran before it was written, and by now its route leads elsewhere or something is paused. Nothing was
    /// done, and nothing is written of it.
    Stale,
    /// A request that ran before it was written, and that the database does not take. Nothing was done.
    Refused,
    /// It is not held under this lease.
    NotHeld,
    /// It has a terminal outcome of another lease.
    TerminalExists,
}

/// An item of a lost worker that is due again, or one that nobody waits for any more.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct RepairedTrigger {
    /// The item.
    pub id: Uuid,
    /// Who was lost.
    pub worker_id: Option<String>,
    /// It has FAILED, because somebody waited for it.
    pub failed: bool,
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
    /// The file it was pushed from.
    pub file: Option<String>,
    /// The files that it imports, by their paths.
    pub modules: Json<BTreeMap<String, String>>,
    /// Or where to post the request to.
    pub url: Option<String>,
    /// How long it may run.
    pub timeout_ms: i32,
}

/// An entry as a script reads it.
#[derive(Debug, Clone)]
pub struct StoredEntry {
    /// Its value.
    pub value: Box<RawValue>,
    /// Another whenever it was written, also after it was deleted.
    pub version: String,
}

/// Keys as a script lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKeys {
    /// In order.
    pub keys: Vec<String>,
    /// Another if they are others.
    pub digest: String,
}

/// What became of an item whose reply's deadline has passed.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct ExpiredReply {
    /// Nothing of it was applied, and nothing will be.
    pub expired: bool,
    /// It had answered in time after all.
    pub dispatched: bool,
    /// The answer.
    pub result: Option<Json<Box<RawValue>>>,
    /// Our code.
    pub error_code: Option<String>,
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

impl LaneLease for TriggerLease {
    type Ids = Vec<Uuid>;
    type Repaired = RepairedTrigger;
    const RENEW: Call = calls::RENEW_TRIGGERS;
    const RETURN_UNSENT: Call = calls::RETURN_UNSENT_TRIGGERS;
    const REPAIR: Call = calls::REPAIR_TRIGGERS;

    fn ids(leases: &[Self]) -> Vec<Uuid> {
        leases.iter().map(|lease| lease.id).collect()
    }

    fn token(&self) -> LeaseToken {
        self.lease_token
    }

    fn repaired_id(repaired: &RepairedTrigger) -> String {
        repaired.id.to_string()
    }

    /// What nobody ran before its deadline has FAILED without a lease.
    fn ended(repaired: &RepairedTrigger) -> EndedLeases {
        EndedLeases {
            ended: usize::from(repaired.worker_id.is_some()),
            zombies: usize::from(!repaired.failed),
            parked: 0,
            failed: usize::from(repaired.failed),
        }
    }
}

/// Result, state, error code, and whether a successor may be due.
pub(super) type CompletionRow = (String, Option<String>, Option<String>, Option<bool>);

pub(super) fn json(value: Option<&RawValue>) -> Option<Json<&RawValue>> {
    value.map(Json)
}

pub(super) fn recorded(row: CompletionRow) -> Result<TriggerRecorded, DbError> {
    let (result, state, error_code, successor) = row;
    let state = state.as_deref().and_then(TriggerState::named);
    let successor = successor.unwrap_or(false);
    match (result.as_str(), state) {
        ("OK", Some(state)) => Ok(TriggerRecorded::Recorded { state, error_code, successor }),
        ("P7011", _) => Ok(TriggerRecorded::ReadsChanged),
        ("P7001", _) => Ok(TriggerRecorded::TerminalExists),
        ("P7002", _) => Ok(TriggerRecorded::NotHeld),
        ("STALE", _) => Ok(TriggerRecorded::Stale),
        (other, _) => Err(unexpected_result(other)),
    }
}

impl Worker {
    /// Lease the next due items, a share for every app.
    pub async fn claim_triggers(
        &self,
        worker_id: &str,
        items_max: i32,
        lease_seconds: i32,
        limit: Option<&AppLimit>,
    ) -> Result<Vec<ClaimedTrigger>, DbError> {
        let query = claim(calls::CLAIM_TRIGGERS, items_max, worker_id, lease_seconds)
            .bind(limit.map(|limit| limit.items_max))
            .bind(limit.map(|limit| &limit.apps))
            .bind(limit.map(|limit| &limit.held));
        self.call_alone(async |session| query.fetch_all(session).await).await
    }

    /// Write down how runs ended, in one transaction, with their effects. If there are several and one of them has an effect
    /// that is not right, nothing is written. What is locked is waited for at most so long.
    pub async fn complete_triggers(
        &self,
        worker_id: &str,
        outcomes: &[&TriggerOutcome],
        lock_wait: Duration,
    ) -> Result<Vec<TriggerRecorded>, DbError> {
        let query = sqlx::query_as(calls::COMPLETE_TRIGGERS.sql)
            .bind(worker_id)
            .bind(each(outcomes, |o| o.lease.id))
            .bind(each(outcomes, |o| o.lease.lease_token))
            .bind(each(outcomes, |o| o.state.name()))
            .bind(each(outcomes, |o| json(o.result.as_deref())))
            .bind(each_or_none(outcomes, |o| json(o.logs.as_deref())))
            .bind(each_or_none(outcomes, |o| json(o.effects.as_deref())))
            .bind(each_or_none(outcomes, |o| o.error_code.as_deref()))
            .bind(each_or_none(outcomes, |o| o.error_message.as_deref()))
            .bind(each(outcomes, |o| o.latency_ms))
            .bind(each(outcomes, |o| o.spends_attempt))
            .bind(each(outcomes, |o| o.reply_here))
            .bind(each_or_none(outcomes, |o| json(o.reads.as_deref())))
            .bind(i32::try_from(lock_wait.as_millis()).unwrap_or(i32::MAX));
        let rows: Vec<CompletionRow> =
            self.call_alone(async |session| query.fetch_all(session).await).await?;
        rows.into_iter().map(recorded).collect()
    }

    /// Keep what a run learnt after its lease was lost. Its effects are not applied.
    pub async fn record_late_trigger(
        &self,
        worker_id: &str,
        late: &TriggerOutcome,
    ) -> Result<(), DbError> {
        let query = sqlx::query_as(calls::RECORD_LATE_TRIGGER.sql)
            .bind(late.lease.id)
            .bind(late.lease.lease_token)
            .bind(worker_id)
            .bind(late.state.name())
            .bind(&late.error_code)
            .bind(&late.error_message);
        let _: (i64,) = self.call(async |session| query.fetch_one(session).await).await?;
        Ok(())
    }

    /// A script's version; `None` if its app is gone.
    pub async fn script(&self, script_id: Uuid) -> Result<Option<ScriptRow>, DbError> {
        let query = sqlx::query_as(
            "SELECT a.name AS app, s.name, s.source, s.file, s.modules, s.url, s.timeout_ms \
                   FROM symphony.scripts s JOIN symphony.apps a ON a.id = s.app_id WHERE s.id = $1",
        )
        .bind(script_id);
        self.call_repeatable(async |session| query.fetch_optional(session).await).await
    }

    /// An entry of an app, as a script reads it.
    pub async fn kv_get(&self, app_id: Uuid, key: &str) -> Result<Option<StoredEntry>, DbError> {
        let query = sqlx::query_as(
            "SELECT value, entry_no || '.' || version FROM symphony.kv_entries \
              WHERE app_id = $1 AND key = $2 AND (expires_at IS NULL OR expires_at > clock_timestamp())",
        )
        .bind(app_id)
        .bind(key);
        let found: Option<(Json<Box<RawValue>>, String)> =
            self.call_repeatable(async |session| query.fetch_optional(session).await).await?;
        Ok(found.map(|(Json(value), version)| StoredEntry { value, version }))
    }

    /// The keys of an app that begin with a prefix, in order, after a key; the digest is `kv_listing`'s.
    pub async fn kv_list(
        &self,
        app_id: Uuid,
        prefix: &str,
        after: Option<&str>,
        keys_max: i64,
    ) -> Result<StoredKeys, DbError> {
        let query = sqlx::query_as(
            "SELECT coalesce(array_agg(k.key ORDER BY k.key), '{}'), \
                    encode(sha256(convert_to(coalesce(array_agg(k.key ORDER BY k.key), '{}')::text, 'UTF8')), 'hex') \
               FROM (SELECT key FROM symphony.kv_entries \
                      WHERE app_id = $1 AND key >= $2 AND key <= $2 || chr(1114111) AND key > coalesce($3, '') \
                        AND starts_with(key, $2) AND (expires_at IS NULL OR expires_at > clock_timestamp()) \
                      ORDER BY key LIMIT $4) k",
        )
        .bind(app_id)
        .bind(prefix)
        .bind(after)
        .bind(keys_max);
        let (keys, digest) =
            self.call_repeatable(async |session| query.fetch_one(session).await).await?;
        Ok(StoredKeys { keys, digest })
    }

    /// Before whoever waited for an item is told that nothing came of it: no completion of it applies anything from here
    /// on. If one was committed before, that is answered. A commit under way is waited for.
    pub async fn expire_reply(&self, id: Uuid, wait: Duration) -> Result<ExpiredReply, DbError> {
        let query = sqlx::query_as(calls::EXPIRE_REPLY.sql)
            .bind(id)
            .bind(i32::try_from(wait.as_millis()).unwrap_or(i32::MAX));
        self.call(async |session| query.fetch_one(session).await).await
    }

    /// The id of a caller that was authenticated; it is known from now on.
    pub async fn note_principal(&self, kind: &str, name: &str) -> Result<Uuid, DbError> {
        let query = sqlx::query_scalar(calls::NOTE_PRINCIPAL.sql).bind(kind).bind(name);
        self.call(async |session| query.fetch_one(session).await).await
    }

    /// Cron triggers whose time has come, and those whose clock was never set.
    pub async fn due_ticks(&self, ticks_max: i64) -> Result<Vec<DueTick>, DbError> {
        let query = sqlx::query_as(
                "SELECT c.trigger_id, t.filter AS expression, t.time_zone, t.catch_up, c.next_tick_at AS tick_at, \
                        clock_timestamp() AS now \
                   FROM symphony.trigger_cron c JOIN symphony.triggers t ON t.id = c.trigger_id \
                  WHERE c.next_tick_at IS NULL OR c.next_tick_at <= clock_timestamp() \
                  ORDER BY c.next_tick_at NULLS FIRST LIMIT $1",
            )
            .bind(ticks_max);
        self.call_repeatable(async |session| query.fetch_all(session).await).await
    }

    /// Fire a tick and set the clock. `false`: another process was first, or it is not yet time.
    pub async fn fire_cron_tick(
        &self,
        trigger_id: Uuid,
        tick_at: Option<DateTime<Utc>>,
        next_tick_at: DateTime<Utc>,
        fire: bool,
    ) -> Result<bool, DbError> {
        let query = sqlx::query_scalar(calls::FIRE_CRON_TICK.sql)
            .bind(trigger_id)
            .bind(tick_at)
            .bind(next_tick_at)
            .bind(fire);
        self.call(async |session| query.fetch_one(session).await).await
    }
}

/// Hears which replies have been written.
#[derive(Debug)]
pub struct ReplyListener {
    listener: PgListener,
}

impl ReplyListener {
    /// Listen, on a connection of its own. `None` where a transaction pooler lends the session.
    pub async fn connect(
        options: PgConnectOptions,
        schema: &Schema,
    ) -> Result<Option<Self>, DbError> {
        let listener = listen(options, &[&schema.channel("trigger_reply")]).await?;
        Ok(listener.map(|listener| Self { listener }))
    }

    /// The names of the next replies; `None` if the connection was lost and some may have been missed.
    pub async fn next(&mut self) -> Result<Option<Vec<Uuid>>, DbError> {
        let Some(heard) = self.listener.try_recv().await? else { return Ok(None) };
        Ok(Some(heard.payload().split(',').filter_map(|name| name.parse().ok()).collect()))
    }
}

/// A route, as HTTP needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct RouteRow {
    /// Its id.
    pub id: Uuid,
    /// Its app.
    pub app_id: Uuid,
    /// The method.
    pub method: String,
    /// The path's pattern.
    pub path: String,
    /// The script.
    pub script_name: String,
    /// Its current version, if it runs here.
    pub script_id: Option<Uuid>,
    /// As whom it runs.
    pub principal: Option<Uuid>,
    /// Somebody waits for the answer.
    pub synchronous: bool,
    /// How long.
    pub wait_ms: i32,
    /// Its script gets the body as it was sent.
    pub raw_body: bool,
    /// Which other sites may call the app, as its manifest says; the same for all its routes.
    pub cors: Option<String>,
    /// Who may call: none, token or hmac.
    pub auth: String,
    /// How the caller signs.
    pub signature: Option<String>,
    /// With which secret.
    pub secret_name: Option<String>,
}

/// An answer that somebody waits for.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct ReplyRow {
    /// Under which name.
    pub reply_to: Uuid,
    /// The execution.
    pub id: Uuid,
    /// It answered; otherwise it failed.
    pub dispatched: bool,
    /// The answer.
    pub result: Option<Json<Box<RawValue>>>,
    /// Our code.
    pub error_code: Option<String>,
}

impl Worker {
    /// The routes of an app; `None` if there is no such app.
    pub async fn routes(&self, app: &str) -> Result<Option<Vec<RouteRow>>, DbError> {
        let query = sqlx::query(
            "SELECT r.id, r.app_id, r.method, r.path, r.script_name, r.synchronous, r.wait_ms, r.auth, r.signature, r.secret_name, \
                    r.raw_body, a.cors::TEXT AS cors, \
                    r.registered_by_principal AS principal, (SELECT CASE WHEN s.url IS NULL THEN s.id END FROM symphony.scripts s \
                      WHERE s.app_id = a.id AND s.name = r.script_name ORDER BY s.version DESC LIMIT 1) AS script_id \
               FROM symphony.apps a LEFT JOIN symphony.routes r ON r.app_id = a.id \
              WHERE a.name = $1 ORDER BY r.path, r.method",
        )
        .bind(app);
        let rows = self.call_repeatable(async |session| query.fetch_all(session).await).await?;
        // An app without routes is one row of nulls; no such app, no row.
        let route = |row| match PgRow::try_get::<Option<Uuid>, _>(row, "id") {
            Ok(None) => None,
            Ok(Some(_)) => Some(RouteRow::from_row(row)),
            Err(error) => Some(Err(error)),
        };
        let routes: Vec<RouteRow> = rows.iter().filter_map(route).collect::<Result<_, _>>()?;
        Ok((!rows.is_empty()).then_some(routes))
    }

    /// A secret of an app, sealed; `None` if there is none.
    pub async fn sealed_secret(
        &self,
        app: &str,
        name: &str,
    ) -> Result<Option<SealedSecret>, DbError> {
        let query = sqlx::query_as(calls::SEALED_APP_SECRET.sql).bind(app).bind(name);
        self.call_repeatable(async |session| query.fetch_optional(session).await).await
    }

    /// Those of these replies that have been written.
    pub async fn replies(&self, names: &[Uuid]) -> Result<Vec<ReplyRow>, DbError> {
        let query = sqlx::query_as(
            "SELECT reply_to, id, state = 'DISPATCHED' AS dispatched, result, error_code \
                   FROM symphony.trigger_outbox_executions WHERE reply_to = ANY ($1)",
        )
        .bind(names);
        self.call_repeatable(async |session| query.fetch_all(session).await).await
    }
}
