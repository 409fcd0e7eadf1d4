//! The console as a browser sees it: real pages over HTTP, by a server whose login has exactly the documented grants.

mod acting;
mod attacks;
mod browser;
mod history;
mod pages;
mod speed;

use std::collections::BTreeMap;

use serde_json::json;
use symphony::db::{EventOutcome, EventState};
use symphony::domain::{OutboxId, Outcome};
use uuid::Uuid;

use crate::api::{Served, raw};
use crate::events::event_with;
use crate::support::{TestDb, act, payment};
use crate::triggers::{manifest, quoted};

/// What a page answered.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<String> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    }

    /// A hidden field of a form on it.
    pub fn field(&self, name: &str) -> Option<String> {
        let (_, rest) = self.body.split_once(&format!("name=\"{name}\" value=\""))?;
        Some(rest.split_once('"')?.0.to_owned())
    }
}

/// Somebody's browser: it keeps a cookie, and the token of forms.
pub struct Browser<'a> {
    served: &'a Served,
    pub cookie: String,
    pub form_token: String,
}

impl<'a> Browser<'a> {
    /// Signed in with a new token of this person.
    pub async fn of(served: &'a Served, person: &str, scopes: &str) -> Self {
        let token = served.token(person, scopes).await;
        Self::with(served, &token).await
    }

    /// Signed in with this token.
    pub async fn with(served: &'a Served, token: &str) -> Self {
        let mut browser = Self::out(served);
        let answer = browser.send("POST /console/sign-in", "", &[("token", token)]).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let cookie = answer.header("set-cookie").unwrap();
        cookie.split(';').next().unwrap().clone_into(&mut browser.cookie);
        // A scope that may not look is shown a refusal, which signs out by the same token.
        let page = browser.get("/console").await;
        browser.form_token = page.field("form_token").unwrap();
        browser
    }

    /// Signed out.
    pub fn out(served: &'a Served) -> Self {
        Self { served, cookie: String::new(), form_token: String::new() }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET {path}"), "", &[]).await
    }

    /// A form of ours, sent.
    pub async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let mut fields = fields.to_vec();
        fields.push(("form_token", &self.form_token));
        self.send(&format!("POST {path}"), "Sec-Fetch-Site: same-origin\r\n", &fields).await
    }

    /// A request with these header lines besides the cookie.
    pub async fn send(&self, line: &str, headers: &str, fields: &[(&str, &str)]) -> Answer {
        let body: String =
            url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let cookie = match self.cookie.as_str() {
            "" => String::new(),
            cookie => format!("Cookie: {cookie}\r\n"),
        };
        let kind = if line.starts_with("POST") {
            format!(
                "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n",
                body.len()
            )
        } else {
            String::new()
        };
        let text = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\n{headers}{cookie}{kind}Connection: close\r\n\r\n{body}"
        );
        let answer = raw(self.served.api.address(), text.as_bytes()).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        Answer {
            status: head.split(' ').nth(1).unwrap_or("0").parse().unwrap_or(0),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }
}

/// What would run if it were not escaped, in an attribute and in a text.
pub const HOSTILE: &str = "\"><script>alert(1)</script><img src=x onerror=alert(2)>'&amp;\u{202e}";
/// In every payload, and nowhere else.
pub const CANARY: &str = "canary-in-a-payload";

/// Items of every state in every lane, with hostile text in whatever field takes it.
pub struct Scene {
    pub served: Served,
    pub parked: OutboxId,
    pub failed: OutboxId,
    pub event: Uuid,
    pub execution: Uuid,
}

impl Scene {
    pub async fn new() -> Self {
        let served = Served::new().await;
        let db = &served.db;
        let mut request = payment(&format!("inv-1{HOSTILE}"), &format!("acme{HOSTILE}"), "ach");
        request.payload = symphony::domain::Payload::parse(
            &json!({"amount": {"value": "1234567890.10", "currency": "EUR"}, "note": CANARY, "text": HOSTILE}).to_string(),
        )
        .unwrap();
        let parked = db.ended(&request, HOSTILE, Outcome::Unknown).await;
        request.instruction_id = format!("inv-2{HOSTILE}");
        let failed = db.ended(&request, HOSTILE, Outcome::Failed).await;
        request.instruction_id = format!("inv-3{HOSTILE}");
        db.enqueue(&request).await;
        db.claim(&format!("worker{HOSTILE}"), 1).await;
        let event = failed_event(db).await;
        let execution = failed_execution(db).await;
        db.sql(&format!(
            "INSERT INTO event_outbox_topics (topic) VALUES ($h${HOSTILE}$h$); \
             INSERT INTO outbox_destinations (worker_id, lane, name, breaker, open_since, next_probe_at, troubles, last_trouble, last_trouble_at, \
                    calls, latency_ms, window_ms, rate_per_second, reported_at) \
             SELECT $h$w{HOSTILE}$h$, lane, $h$name{HOSTILE}$h$, 'OPEN', now(), now(), 3, $h${HOSTILE}$h$, now(), 1, 1, 3000, NULL, now() \
               FROM unnest(ARRAY['payments', 'events', 'triggers']) lane"
        ))
        .await;
        let operator = db.database.operator();
        let hostile =
            symphony::domain::Act { actor: HOSTILE.into(), reason: HOSTILE.into(), ..act() };
        let rail = symphony::domain::Switch::Rail(format!("name{HOSTILE}"));
        operator.pause(&rail, &hostile).await.unwrap();
        let participant = symphony::domain::Switch::Participant(format!("acme{HOSTILE}"));
        operator.pause(&participant, &hostile).await.unwrap();
        let known = symphony::domain::Act { despite_unknown: true, ..hostile.clone() };
        let call = symphony::db::ActCall::release(parked, &known);
        operator.request_approval(&call, &hostile, 3_600).await.unwrap();
        Self { served, parked, failed, event, execution }
    }

    /// Every page, with what is in it.
    pub fn pages(&self) -> Vec<String> {
        let participant: String =
            url::form_urlencoded::byte_serialize(format!("acme{HOSTILE}").as_bytes()).collect();
        let participant = participant.replace('+', "%20");
        let hostile: String = url::form_urlencoded::byte_serialize(HOSTILE.as_bytes()).collect();
        vec![
            "/console".to_owned(),
            "/console/search".to_owned(),
            format!("/console/search?q={hostile}"),
            format!("/console/payments/{}", self.parked),
            format!("/console/payments/{}", self.failed),
            format!("/console/events/{}", self.event),
            format!("/console/executions/{}", self.execution),
            "/console/waiting".to_owned(),
            "/console/waiting/payments".to_owned(),
            format!(
                "/console/waiting/payments?rail={hostile}&code={hostile}&state=FAILED&newest=1"
            ),
            "/console/waiting/events".to_owned(),
            "/console/waiting/triggers".to_owned(),
            "/console/approvals".to_owned(),
            "/console/approvals?state=WAITING".to_owned(),
            "/console/approvals/1".to_owned(),
            "/console/participants".to_owned(),
            format!("/console/participants/{participant}"),
            "/console/destinations".to_owned(),
            "/console/apps".to_owned(),
            "/console/apps/shop".to_owned(),
            "/console/workers".to_owned(),
            "/console/contradictions".to_owned(),
            "/console/audit".to_owned(),
            "/console/audit?lane=payments".to_owned(),
        ]
    }

    /// Every act's form, with a hostile argument.
    pub fn forms() -> BTreeMap<&'static str, String> {
        let hostile: String = url::form_urlencoded::byte_serialize(HOSTILE.as_bytes()).collect();
        ACTS.iter()
            .map(|(act, argument)| {
                (*act, format!("/console/act/{act}?{argument}={hostile}&back={hostile}"))
            })
            .collect()
    }
}

/// Every act that the console must offer: the eight kinds of the specification, in each lane that has them.
pub const ACTS: [(&str, &str); 19] = [
    ("redrive_outbox", "p_outbox_id"),
    ("resolve_outbox", "p_outbox_id"),
    ("park_outbox", "p_outbox_id"),
    ("release_outbox", "p_outbox_id"),
    ("inquire_outbox", "p_outbox_id"),
    ("skip_outbox_head", "p_rail_type"),
    ("redrive_event_outbox", "p_event_id"),
    ("skip_event_outbox", "p_event_id"),
    ("replay_trigger_execution", "p_id"),
    ("pause_payment_lane", "x"),
    ("resume_payment_lane", "x"),
    ("pause_payment_rail", "p_rail_type"),
    ("resume_payment_rail", "p_rail_type"),
    ("pause_payment_participant", "p_participant_id"),
    ("pause_event_topic", "p_topic"),
    ("resume_event_lane", "x"),
    ("pause_app", "p_app"),
    ("resume_app", "p_app"),
    ("reset_outbox_destination", "p_name"),
];

async fn failed_event(db: &TestDb) -> Uuid {
    let key = HOSTILE.replace('"', "\\\"").replace('\u{202e}', "");
    let payload = json!({"note": CANARY}).to_string();
    db.tell(&[event_with(Uuid::new_v4(), &key, &payload)]).await;
    let claimed = db.claim_events("w", 10).await;
    let event = &claimed[0];
    let outcome = EventOutcome {
        error_code: Some("REFUSED".to_owned()),
        error_message: Some(HOSTILE.to_owned()),
        destination: Some(format!("bus/{HOSTILE}").into()),
        ..EventOutcome::new(
            event.lease(),
            event.log_position,
            EventState::Failed { key_continues: false },
        )
    };
    db.database.worker().complete_events("w", &[&outcome]).await.unwrap();
    event.event_id
}

async fn failed_execution(db: &TestDb) -> Uuid {
    db.push("shop", &manifest(&[("t", "kv", "*")])).await;
    db.kv_set("shop", "a", &json!({"note": CANARY, "text": HOSTILE})).await;
    let item = db.claim_item("w").await;
    let logs = quoted(&json!([{"level": "info", "text": format!("{CANARY} {HOSTILE}")}]));
    let settled: String = db
        .one_as(
            "symphony_executor",
            &format!(
                "SELECT result FROM complete_trigger_outbox_attempts(p_worker_id => 'w', p_ids => ARRAY['{}'::uuid], \
                 p_lease_tokens => ARRAY['{}'::uuid], p_states => ARRAY['FAILED'], p_results => ARRAY[NULL::jsonb], \
                 p_effects => ARRAY['[]'::jsonb], p_error_codes => ARRAY['BROKEN'], p_error_messages => ARRAY[$h${HOSTILE}$h$], \
                 p_logs => ARRAY[{logs}])",
                item.id, item.token
            ),
        )
        .await;
    assert_eq!(settled, "OK");
    item.id
}
