//! Webhooks against real sockets: raw servers, for the bytes. The local receiver is tried in symphony-lab.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod addresses;
mod conformance;
mod settings;
mod wire;

use chrono::Utc;
use symphony::event::envelope::{Binding, Format};
use symphony::lanes::events::bus::Message;
use uuid::Uuid;

use super::{EndpointSettings, HttpBus, HttpBusSettings};

pub(super) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
pub(super) const OTHER_SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
pub(super) const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// One endpoint, `billing`, at this URL.
pub(super) fn settings(url: &str) -> HttpBusSettings {
    let endpoint = EndpointSettings {
        url: url.to_owned(),
        secret_env: "SECRET".to_owned(),
        timeout_ms: 500,
        connect_timeout_ms: None,
        ..EndpointSettings::default()
    };
    HttpBusSettings {
        endpoints: [("billing".to_owned(), endpoint)].into(),
        allow_private_addresses: true,
        ..HttpBusSettings::default()
    }
}

pub(super) fn environment(name: &str) -> Option<String> {
    match name {
        "SECRET" => Some(SECRET.to_owned()),
        "BOTH" => Some(format!("{OTHER_SECRET} {SECRET}")),
        "WRONG" => Some(OTHER_SECRET.to_owned()),
        "PLAIN" => Some("not a webhook secret".to_owned()),
        _ => None,
    }
}

pub(super) fn bus(url: &str) -> HttpBus {
    HttpBus::new(&settings(url), environment).unwrap()
}

pub(super) fn message(position: i64) -> Message {
    let event_id = Uuid::new_v4();
    let body = format!(
        r#"{{ "envelope":{{"v":1, "eventId":"{event_id}","occurredAt":"2026-11-02T09:30:00Z",
        "tenantId":"tnt é","traceparent":"{TRACE}","type":"events.transfers.submitted"}},
        "key":{{"transferId":"tr_{position}"}}, "payload":{{"n":1.10, "text":"ü \u00fc \/"}} }}"#
    );
    let format = Format::own(Binding::Http);
    Message::new(&format, &body, position, Utc::now()).unwrap()
}
