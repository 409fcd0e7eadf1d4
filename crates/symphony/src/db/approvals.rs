//! Acts that a second person approves: to ask, to decide, and what waits.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use sqlx::types::Json;
use uuid::Uuid;

use super::session::{Query, Row};
use super::{
    Auditor, Database, DbError, IncidentLane, LetterLane, Operator, Resend, Role, RoleTransaction,
    SealedSecret, calls,
};
use crate::domain::{Act, OutboxId, Resolution, Switch};

/// An act by the name of its function, with its arguments by name: what a second person is asked to approve.
#[derive(Debug, Clone)]
pub struct ActCall {
    /// The function.
    pub act: &'static str,
    /// Its arguments: an object, or a list of them for many at once.
    pub arguments: Box<RawValue>,
}

impl ActCall {
    /// Of these arguments; `serde_json` cannot fail on what is built here.
    fn new(act: &'static str, arguments: &impl Serialize) -> Self {
        Self {
            act,
            arguments: to_raw_value(arguments).unwrap_or_else(|_| RawValue::NULL.to_owned()),
        }
    }

    /// Many acts of one kind as one request.
    pub fn many(calls: &[Self]) -> Option<Self> {
        let act = calls.first()?.act;
        let arguments: Vec<&RawValue> = calls.iter().map(|call| &*call.arguments).collect();
        Some(Self::new(act, &arguments))
    }

    /// Give a parked payment back to the machine.
    pub fn release(item: OutboxId, act: &Act) -> Self {
        Self::on_payment("release_outbox", item, act)
    }

    /// Try a FAILED payment again.
    pub fn redrive(item: OutboxId, act: &Act) -> Self {
        Self::on_payment("redrive_outbox", item, act)
    }

    fn on_payment(function: &'static str, item: OutboxId, act: &Act) -> Self {
        let arguments = json!({"p_outbox_id": item, "p_despite_unknown": act.despite_unknown});
        Self::new(function, &arguments)
    }

    /// Settle a parked payment.
    pub fn resolve(item: OutboxId, resolution: &Resolution, act: &Act) -> Self {
        let (word, reference) = resolution.words();
        let arguments = json!({
            "p_outbox_id": item, "p_resolution": word, "p_rail_reference": reference,
            "p_despite_unknown": act.despite_unknown,
        });
        Self::new("resolve_outbox", &arguments)
    }

    /// Let a FIFO lane go on past its head.
    pub fn skip_head(participant_id: &str, rail_type: &str) -> Self {
        let arguments = json!({"p_participant_id": participant_id, "p_rail_type": rail_type});
        Self::new("skip_outbox_head", &arguments)
    }

    /// Say that a dead letter needs nothing more.
    pub fn close_letter(lane: LetterLane, id: Uuid) -> Self {
        match lane {
            LetterLane::Payments => {
                Self::new("close_payment_dead_letter", &json!({"p_outbox_id": id}))
            }
            LetterLane::Events => Self::new("close_event_dead_letter", &json!({"p_event_id": id})),
            LetterLane::Triggers => Self::new("close_trigger_dead_letter", &json!({"p_id": id})),
        }
    }

    /// Say what became of a contradiction.
    pub fn close_incident(lane: IncidentLane, incident_no: i64) -> Self {
        let function = match lane {
            IncidentLane::Payments => "close_payment_incident",
            IncidentLane::Events => "close_event_incident",
            IncidentLane::Triggers => "close_trigger_incident",
        };
        Self::new(function, &json!({"p_incident_no": incident_no}))
    }

    /// Claim again.
    pub fn resume(switch: &Switch) -> Self {
        match switch {
            Switch::Payments => Self::new("resume_payment_lane", &json!({})),
            Switch::Rail(rail) => Self::new("resume_payment_rail", &json!({"p_rail_type": rail})),
            Switch::Participant(id) => {
                Self::new("resume_payment_participant", &json!({"p_participant_id": id}))
            }
            Switch::Events => Self::new("resume_event_lane", &json!({})),
            Switch::Topic(topic) => Self::new("resume_event_topic", &json!({"p_topic": topic})),
            Switch::Triggers => Self::new("resume_trigger_lane", &json!({})),
            Switch::App(app) => Self::new("resume_app", &json!({"p_app": app})),
        }
    }

    /// Go on, on this server.
    pub fn accept_server(lost_since: Option<DateTime<Utc>>, ask_first_seconds: i32) -> Self {
        let arguments =
            json!({"p_lost_since": lost_since, "p_ask_first_seconds": ask_first_seconds});
        Self::new("accept_symphony_server", &arguments)
    }

    /// Change what the database knows of a rail; what is `None` stays as it is.
    pub fn configure_rail(
        rail_type: &str,
        fifo: Option<bool>,
        on_failed: Option<&str>,
        marks_sending: Option<bool>,
        give_up_after_seconds: Option<i32>,
    ) -> Self {
        let arguments = json!({
            "p_rail_type": rail_type, "p_fifo": fifo, "p_on_failed": on_failed,
            "p_marks_sending": marks_sending, "p_give_up_after_seconds": give_up_after_seconds,
        });
        Self::new("configure_payment_rail", &arguments)
    }

    /// Say whether the acts of a lane need a second person.
    pub fn require_approval(lane: LetterLane, required: bool) -> Self {
        let function = match lane {
            LetterLane::Payments => "configure_payment_lane",
            LetterLane::Events => "configure_event_lane",
            LetterLane::Triggers => "configure_trigger_lane",
        };
        Self::new(function, &json!({"p_approval_required": required}))
    }

    /// Publish an event again.
    pub fn redrive_event(event: Uuid, resend: Resend) -> Self {
        let arguments = json!({
            "p_event_id": event, "p_resend_sent": resend.sent_too,
            "p_dedup_window_seconds": resend.dedup_window_seconds,
        });
        Self::new("redrive_event_outbox", &arguments)
    }

    /// Let a key go on past the FAILED event that blocks it.
    pub fn skip_event(event: Uuid) -> Self {
        Self::new("skip_event_outbox", &json!({"p_event_id": event}))
    }

    /// Run an ended execution again.
    pub fn replay(execution: Uuid) -> Self {
        Self::new("replay_trigger_execution", &json!({"p_id": execution}))
    }

    /// Delete an app.
    pub fn delete_app(app: &str) -> Self {
        Self::new("delete_app", &json!({"p_app": app}))
    }

    /// Let an app have the mail of addresses that are not its own.
    pub fn grant_mail(app: &str, filter: &str) -> Self {
        Self::new("grant_app_mail", &json!({"p_app": app, "p_filter": filter}))
    }

    /// Make an app again what an earlier push has made it.
    pub fn rollback_app(app: &str, version: Option<i32>) -> Self {
        Self::new("rollback_app", &json!({"p_app": app, "p_version": version}))
    }

    /// Write an entry of an app; its value stays text, as a manifest does.
    pub fn set_entry(app: &str, key: &str, value: &RawValue, ttl_seconds: Option<i32>) -> Self {
        #[derive(Serialize)]
        struct Arguments<'a> {
            #[serde(rename = "p_app")]
            app: &'a str,
            #[serde(rename = "p_key")]
            key: &'a str,
            #[serde(rename = "p_value")]
            value: &'a RawValue,
            #[serde(rename = "p_ttl_seconds")]
            ttl_seconds: Option<i32>,
        }
        let arguments = Arguments { app, key, value, ttl_seconds };
        Self::new("set_kv_entry", &arguments)
    }

    /// Remove an entry of an app.
    pub fn delete_entry(app: &str, key: &str) -> Self {
        Self::new("delete_kv_entry", &json!({"p_app": app, "p_key": key}))
    }

    /// Keep a secret of an app, sealed already.
    pub fn set_secret(app: &str, name: &str, secret: &SealedSecret) -> Self {
        let SealedSecret { key_id, sealed } = secret;
        let arguments =
            json!({"p_app": app, "p_name": name, "p_key_id": key_id, "p_sealed": sealed});
        Self::new("set_app_secret", &arguments)
    }

    /// Forget a secret of an app.
    pub fn delete_secret(app: &str, name: &str) -> Self {
        Self::new("delete_app_secret", &json!({"p_app": app, "p_name": name}))
    }

    /// Make an app what its manifest says, which stays text: no number of it becomes a float.
    pub fn push_app(app: &str, manifest: &RawValue) -> Self {
        #[derive(Serialize)]
        struct Arguments<'a> {
            p_app: &'a str,
            p_manifest: &'a RawValue,
        }
        Self::new("push_app", &Arguments { p_app: app, p_manifest: manifest })
    }
}

/// A request that was made, or would be.
#[derive(Debug, Clone, PartialEq, Serialize, sqlx::FromRow)]
pub struct ApprovalRequest {
    /// Its number; none if nothing was asked for.
    pub request_no: Option<i64>,
    /// The lane.
    pub lane: String,
    /// The function that the approval calls.
    pub act: String,
    /// Until when it can be approved.
    pub expires_at: DateTime<Utc>,
    /// What the act would answer.
    pub preview: Json<Value>,
    /// Nothing was changed.
    pub dry_run: bool,
}

/// A request that was approved, or would be.
#[derive(Debug, Clone, PartialEq, Serialize, sqlx::FromRow)]
pub struct ApprovalAnswer {
    /// Its number.
    pub request_no: i64,
    /// The lane.
    pub lane: String,
    /// The function.
    pub act: String,
    /// APPROVED.
    pub state: String,
    /// What the act answered; for many at once, one answer or refusal each.
    pub answer: Json<Value>,
    /// Nothing was changed.
    pub dry_run: bool,
}

/// A request that was rejected or withdrawn, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct RequestEnd {
    /// Its number.
    pub request_no: i64,
    /// The lane.
    pub lane: String,
    /// The function.
    pub act: String,
    /// REJECTED or WITHDRAWN.
    pub state: String,
    /// Nothing was changed.
    pub dry_run: bool,
}

/// A request with what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, sqlx::FromRow)]
pub struct Approval {
    /// Its number.
    pub request_no: i64,
    /// The lane.
    pub lane: String,
    /// The function that the approval calls.
    pub act: String,
    /// With these arguments; hidden from whoever may not see payloads.
    pub arguments: Option<Json<Value>>,
    /// What the act would have answered when it was asked for.
    pub preview: Option<Json<Value>>,
    /// Who asked.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// From which login.
    pub session_role: String,
    /// With which token of the API.
    pub token_id: Option<Uuid>,
    /// Its name.
    pub token_name: Option<String>,
    /// When.
    pub created_at: DateTime<Utc>,
    /// Until when it can be decided.
    pub expires_at: DateTime<Utc>,
    /// WAITING, EXPIRED, APPROVED, REJECTED or WITHDRAWN.
    pub state: String,
    /// Who decided.
    pub decided_by: Option<String>,
    /// From which login.
    pub decided_from_login: Option<String>,
    /// With which token of the API.
    pub decided_with_token: Option<Uuid>,
    /// Its name.
    pub decided_with_token_name: Option<String>,
    /// Why.
    pub decision_reason: Option<String>,
    /// When.
    pub decided_at: Option<DateTime<Utc>>,
    /// What the act answered.
    pub answer: Option<Json<Value>>,
}

/// Which requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct ApprovalQuery<'a> {
    /// Of this state.
    pub state: Option<&'a str>,
    /// Of this lane.
    pub lane: Option<&'a str>,
    /// Only this one.
    pub request_no: Option<i64>,
    /// Older than this one.
    pub before: Option<i64>,
    /// At most so many, the newest first.
    pub limit: i64,
}

/// Decides about requests on behalf of a second person.
#[derive(Debug, Clone)]
pub struct Approver {
    database: Database,
}

impl Approver {
    pub(super) fn new(database: Database) -> Self {
        Self { database }
    }

    /// Agree: the act is done, in the same transaction.
    pub async fn approve(&self, request_no: i64, act: &Act) -> Result<ApprovalAnswer, DbError> {
        self.decide(decision(calls::APPROVE_REQUEST, request_no, act)).await
    }

    /// Do not agree.
    pub async fn reject(&self, request_no: i64, act: &Act) -> Result<RequestEnd, DbError> {
        self.decide(decision(calls::REJECT_REQUEST, request_no, act)).await
    }

    async fn decide<T: Row>(&self, query: Query<'_, T>) -> Result<T, DbError> {
        let mut transaction = self.database.begin(Role::Approver).await?;
        let answer = query.fetch_one(transaction.session()).await?;
        transaction.commit().await?;
        Ok(answer)
    }
}

fn decision<T: Row>(call: calls::Call, request_no: i64, act: &Act) -> Query<'_, T> {
    sqlx::query_as(call.sql).bind(request_no).bind(&act.actor).bind(&act.reason).bind(act.dry_run)
}

impl Operator {
    /// Ask a second person to approve an act.
    pub async fn request_approval(
        &self,
        call: &ActCall,
        act: &Act,
        expires_in_seconds: i32,
    ) -> Result<ApprovalRequest, DbError> {
        self.request_act(call.act, &call.arguments, act, expires_in_seconds).await
    }

    /// Do any act by its name, with its arguments as they are.
    pub async fn act_by_name(
        &self,
        name: &str,
        arguments: &RawValue,
        act: &Act,
    ) -> Result<Value, DbError> {
        let query = sqlx::query_as(calls::DO_ACT.sql)
            .bind(name)
            .bind(Json(arguments))
            .bind(&act.actor)
            .bind(&act.reason)
            .bind(act.dry_run);
        let (answer,): (Json<Value>,) = self.act(query).await?;
        Ok(answer.0)
    }

    /// Ask a second person to approve an act, by its name.
    pub async fn request_act(
        &self,
        name: &str,
        arguments: &RawValue,
        act: &Act,
        expires_in_seconds: i32,
    ) -> Result<ApprovalRequest, DbError> {
        let query = sqlx::query_as(calls::REQUEST_APPROVAL.sql)
            .bind(name)
            .bind(Json(arguments))
            .bind(&act.actor)
            .bind(&act.reason)
            .bind(expires_in_seconds)
            .bind(act.dry_run);
        self.act(query).await
    }

    /// Take one's own request back.
    pub async fn withdraw_request(
        &self,
        request_no: i64,
        act: &Act,
    ) -> Result<RequestEnd, DbError> {
        self.act(decision(calls::WITHDRAW_REQUEST, request_no, act)).await
    }
}

impl Auditor {
    /// Requests for approval, the newest first.
    pub async fn approvals(&self, query: ApprovalQuery<'_>) -> Result<Vec<Approval>, DbError> {
        let (mut transaction, access) = self.database.begin_reading().await?;
        let [arguments, preview, answer] =
            ["arguments", "preview", "answer"].map(|column| access.of(column, "jsonb"));
        let sql = format!(
            "SELECT request_no, lane, act, {arguments} AS arguments, {preview} AS preview, actor, reason, session_role, \
                    token_id, token_name, decided_with_token, decided_with_token_name, created_at, expires_at, state, decided_by, decided_from_login, decision_reason, decided_at, \
                    {answer} AS answer \
               FROM symphony.outbox_approvals \
              WHERE ($1::text IS NULL OR state = $1) AND ($2::text IS NULL OR lane = $2) \
                AND ($3::bigint IS NULL OR request_no = $3) AND ($4::bigint IS NULL OR request_no < $4) \
              ORDER BY request_no DESC LIMIT $5"
        );
        Ok(sqlx::query_as(AssertSqlSafe(sql))
            .bind(query.state)
            .bind(query.lane)
            .bind(query.request_no)
            .bind(query.before)
            .bind(query.limit)
            .fetch_all(transaction.session())
            .await?)
    }

    /// Which lanes want a second person for their acts.
    pub async fn approval_required(&self) -> Result<Vec<(String, bool)>, DbError> {
        let mut transaction: RoleTransaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "SELECT 'payments', approval_required FROM symphony.payment_outbox_settings \
             UNION ALL SELECT 'events', approval_required FROM symphony.event_outbox_settings \
             UNION ALL SELECT 'triggers', approval_required FROM symphony.trigger_outbox_settings",
        )
        .fetch_all(transaction.session())
        .await?)
    }
}
