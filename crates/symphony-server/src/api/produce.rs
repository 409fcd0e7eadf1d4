//! Enqueue and look up: payments and events.

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use symphony::domain::{OutboxId, Payload, PaymentRequest};
use symphony::event::Event;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::caller::{Caller, Scope};
use super::extract::{Answer, Asked, Named, ok, text_of};
use super::problem::{Problem, Refusals};
use super::schemas::{EnqueuedEvent, EnqueuedPayment, EventLife, PaymentLife};
use crate::bounds::ITEM_BYTES_MAX;
use crate::http_server::traceparent;

/// A payment to ask for; `Idempotency-Key` is a header.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PaymentBody {
    /// The business instruction it carries out.
    #[schema(example = "inv-1")]
    instruction_id: String,
    /// Whose stream it joins.
    #[schema(example = "acme")]
    participant_id: String,
    /// The rail that shall carry it.
    #[schema(example = "sepa")]
    rail_type: String,
    /// What the rail needs; amounts are text.
    #[schema(value_type = Object, example = json!({"amount": {"value": "10.00", "currency": "EUR"}}))]
    payload: Box<RawValue>,
    /// W3C trace context; left out, the request's own header counts.
    traceparent: Option<String>,
}

/// Ask for a payment. The same key again answers with the item that is there, and pays nothing twice.
#[utoipa::path(post, path = "/v1/payments", tag = "produce", request_body(content = PaymentBody, content_type = "application/json"),
    params(("Idempotency-Key" = String, Header, description = "the request's key: repeating it never pays twice")),
    responses((status = 201, description = "asked for", body = EnqueuedPayment),
              (status = 200, description = "known already: nothing was written", body = EnqueuedPayment), Refusals))]
pub(super) async fn enqueue_payment(
    caller: Caller,
    headers: HeaderMap,
    request: Request,
) -> Result<Answer<symphony::payments::Enqueued>, Problem> {
    caller.needs(Scope::Ingest)?;
    let key = idempotency_key(&headers)?.ok_or_else(|| {
        Problem::invalid("Idempotency-Key is missing: name the request, once for all its tries")
    })?;
    let text = text_of(request, ITEM_BYTES_MAX).await?;
    let body: PaymentBody = serde_json::from_str(&text)
        .map_err(|error| Problem::invalid(format!("the body: {error}")))?;
    let payload =
        Payload::parse(body.payload.get()).map_err(|error| Problem::invalid(error.to_string()))?;
    let request = PaymentRequest {
        instruction_id: body.instruction_id,
        participant_id: body.participant_id,
        idempotency_key: key,
        rail_type: body.rail_type,
        payload,
        traceparent: body.traceparent.or_else(|| traceparent(&headers)),
    };
    let enqueued = caller.database.producer().enqueue_payment(&request).await?;
    Ok(Answer(created(enqueued.duplicate), enqueued))
}

/// Tell an event. The same event id again answers with what is there.
#[utoipa::path(post, path = "/v1/events", tag = "produce", request_body(content = ref("#/components/schemas/EventBody"), content_type = "application/json",
        description = "an event, as schemas/event.schema.json has it: envelope, key, payload"),
    params(("Idempotency-Key" = Option<String>, Header, description = "the envelope's eventId, if it is given")),
    responses((status = 201, description = "told", body = EnqueuedEvent),
              (status = 200, description = "known already: nothing was written", body = EnqueuedEvent), Refusals))]
pub(super) async fn enqueue_event(
    caller: Caller,
    headers: HeaderMap,
    request: Request,
) -> Result<Answer<symphony::events::Enqueued>, Problem> {
    caller.needs(Scope::Ingest)?;
    let key = idempotency_key(&headers)?;
    let text = text_of(request, ITEM_BYTES_MAX).await?;
    let event = Event::parse(&text).map_err(|error| Problem::invalid(error.to_string()))?;
    if key.is_some_and(|key| key.parse::<Uuid>().ok() != Some(event.event_id())) {
        return Err(Problem::invalid(
            "Idempotency-Key must be the envelope's eventId: an event is known by that",
        ));
    }
    let enqueued = caller.database.producer().enqueue_event(&event).await?;
    Ok(Answer(created(enqueued.duplicate), enqueued))
}

fn created(duplicate: bool) -> StatusCode {
    if duplicate { StatusCode::OK } else { StatusCode::CREATED }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut keys = headers.get_all("idempotency-key").iter();
    let Some(key) = keys.next() else { return Ok(None) };
    match (key.to_str(), keys.next()) {
        (Ok(key), None) => Ok(Some(key.to_owned())),
        _ => Err(Problem::invalid("Idempotency-Key must be given once, in printable ASCII")),
    }
}

/// How a payment is looked for.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PaymentQuery {
    /// Also by the key that a rail knows it by: all payments are looked at, one such request at a time.
    #[serde(default)]
    everywhere: bool,
}

/// The life of a payment, by its outbox id, or by an instruction id that has one item.
#[utoipa::path(get, path = "/v1/payments/{id}", tag = "look up",
    params(("id" = String, Path, description = "outbox or instruction id; with everywhere also a rail's key"), PaymentQuery),
    responses((status = 200, description = "its life, outcome by outcome", body = PaymentLife), Refusals))]
pub(super) async fn payment(
    caller: Caller,
    Named(id): Named<String>,
    Asked(query): Asked<PaymentQuery>,
) -> Result<Answer<symphony::db::PaymentLife>, Problem> {
    caller.needs(Scope::Read)?;
    let reader = caller.database.auditor();
    let found = reader.find_payment_items(&id).await?;
    let mut items: Vec<OutboxId> = found.into_iter().map(|item| item.outbox_id).collect();
    if items.is_empty()
        && query.everywhere
        && let Ok(key) = id.parse::<Uuid>()
    {
        items = caller.find_by_rail_key(key).await?;
    }
    let item = match items.as_slice() {
        [one] => *one,
        [] => return Err(Problem::not_found("payment")),
        // An outbox id names its item, even if an instruction should be called the same.
        many => id.parse::<OutboxId>().ok().filter(|id| many.contains(id)).ok_or_else(|| {
            let ids: Vec<String> = many.iter().map(ToString::to_string).collect();
            let detail = format!("this instruction has several items: {}", ids.join(", "));
            Problem::new(StatusCode::CONFLICT, "P7006", detail)
        })?,
    };
    Ok(ok(reader.payment_life(item).await?.ok_or_else(|| Problem::not_found("payment"))?))
}

/// The life of an event.
#[utoipa::path(get, path = "/v1/events/{id}", tag = "look up", params(("id" = Uuid, Path, description = "the event id")),
    responses((status = 200, description = "its life, outcome by outcome", body = EventLife), Refusals))]
pub(super) async fn event(
    caller: Caller,
    Named(id): Named<Uuid>,
) -> Result<Answer<symphony::db::EventLife>, Problem> {
    caller.needs(Scope::Read)?;
    let life = caller.database.auditor().event_life(id).await?;
    Ok(ok(life.ok_or_else(|| Problem::not_found("event"))?))
}
