//! Every envelope on every wire, written and read back.
#![allow(clippy::unwrap_used)]

use super::{Binding, Envelope, Format, Written, restore};
use crate::event::{Event, Parts};

const BINDINGS: [Binding; 4] = [Binding::Http, Binding::Nats, Binding::Sns, Binding::Kafka];
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// As PostgreSQL writes an accepted event.
fn event(key_name: &str, key: &str, tenant: &str, traced: bool, payload: &str) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let trace = if traced { format!(", \"traceparent\": \"{TRACE}\"") } else { String::new() };
    format!(
        "{{\"key\": {{{}: {}}}, \"payload\": {payload}, \"envelope\": {{\"v\": 1, \"type\": \"events.transfers.submitted\", \
         \"eventId\": \"01890a5d-ac96-774b-bcce-b302099a8057\", \"tenantId\": {}, \
         \"occurredAt\": \"2026-11-02T09:30:00.120+02:00\"{trace}}}}}",
        quoted(key_name),
        quoted(key),
        quoted(tenant)
    )
}

fn write(format: &Format, event: &str) -> Written {
    format.write(event, &Parts::read(event).unwrap(), 42)
}

#[test]
fn what_is_written_in_any_envelope_on_any_wire_is_read_back_as_the_same_text() {
    let payload =
        r#"{"n": 1.10, "big": 123456789012345678901234567890.00, "text": "ü \" \\ \n 100 %"}"#;
    for (key_name, key, tenant) in [
        ("transferId", "tr_1", "acme"),
        ("ключ", "two words, \"quoted\", 50 % and %41", "tnt é"),
        ("a b", "line\nline\u{1}\u{7f}", "ten\tant"),
        ("id", "😀", "x=y;z"),
    ] {
        for traced in [true, false] {
            let event = event(key_name, key, tenant, traced, payload);
            let parsed = Event::parse(&event).unwrap();
            for (envelope, binding) in
                Envelope::ALL.iter().flat_map(|e| BINDINGS.map(|binding| (*e, binding)))
            {
                let written = write(&Format::new(envelope, binding), &event);
                let restored =
                    restore(binding, written.headers.iter().cloned(), written.body.into());
                let case = format!("{envelope:?} {binding:?} {key_name} {key}");
                assert_eq!(restored.defect, None, "{case}");
                assert_eq!(std::str::from_utf8(&restored.body).unwrap(), event, "{case}");
                assert_eq!(restored.position, Some(42), "{case}");
                let again = Event::parse(std::str::from_utf8(&restored.body).unwrap()).unwrap();
                assert_eq!((again.key(), again.key_name()), (parsed.key(), parsed.key_name()));
            }
        }
    }
}

#[test]
fn headers_are_what_their_wire_can_carry() {
    let event =
        event("кey\n", "tr 1\r\nx: y \"%\" é", "tenant\u{0}".trim_end_matches('\0'), true, "{}");
    for (envelope, binding) in
        Envelope::ALL.iter().flat_map(|e| BINDINGS.map(|binding| (*e, binding)))
    {
        let written = write(&Format::new(envelope, binding), &event);
        for (name, value) in &written.headers {
            let case = format!("{envelope:?} {binding:?} {name}: {value:?}");
            assert!(!value.is_empty(), "{case}");
            match binding {
                Binding::Http => assert!(
                    value.bytes().all(|b| b.is_ascii_graphic()) && *name == name.to_lowercase(),
                    "{case}"
                ),
                Binding::Nats | Binding::Sns => {
                    assert!(!value.chars().any(char::is_control), "{case}");
                }
                Binding::Kafka => {}
            }
        }
        let mut names: Vec<&str> = written.headers.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), written.headers.len(), "a name twice: {names:?}");
        if binding == Binding::Sns {
            assert!(names.len() <= 10, "SNS takes ten attributes: {names:?}");
            assert!(names.contains(&"type"), "subscriptions filter by it: {names:?}");
        }
    }
}

#[test]
fn a_cloud_event_has_what_the_specification_asks_for() {
    let event = event("transferId", "tr 1", "acme", true, r#"{"n": 1.10}"#);
    let format = Format {
        source: "https://pay.example".to_owned(),
        ..Format::new(Envelope::CloudEventsStructured, Binding::Kafka)
    };
    let written = write(&format, &event);
    assert_eq!(written.content_type, "application/cloudevents+json");
    assert_eq!(
        written.body,
        format!(
            "{{\"specversion\": \"1.0\", \"source\": \"https://pay.example\", \"id\": \"01890a5d-ac96-774b-bcce-b302099a8057\", \
             \"type\": \"events.transfers.submitted\", \"subject\": \"tr 1\", \"time\": \"2026-11-02T09:30:00.120+02:00\", \
             \"tenantid\": \"acme\", \"keyname\": \"transferId\", \"sequence\": \"0000000000000000042\", \
             \"traceparent\": \"{TRACE}\", \"datacontenttype\": \"application/json\", \"data\": {{\"n\": 1.10}}}}"
        )
    );
    let header = |written: &Written, name: &str| {
        written.headers.iter().find(|(own, _)| *own == name).map(|(_, value)| value.clone())
    };
    assert_eq!(header(&written, "content-type").as_deref(), Some("application/cloudevents+json"));
    let binary = write(&Format::new(Envelope::CloudEventsBinary, Binding::Http), &event);
    assert_eq!((binary.body.as_str(), binary.content_type), (r#"{"n": 1.10}"#, "application/json"));
    assert_eq!(header(&binary, "ce-subject").as_deref(), Some("tr%201"));
    assert_eq!(header(&binary, "ce-source").as_deref(), Some("/symphony"));
    let nats = write(&Format::new(Envelope::CloudEventsBinary, Binding::Nats), &event);
    assert_eq!(header(&nats, "ce-datacontenttype").as_deref(), Some("application/json"));
    let kafka = write(&Format::new(Envelope::CloudEventsBinary, Binding::Kafka), &event);
    assert_eq!(header(&kafka, "ce_subject").as_deref(), Some("tr 1"));
    assert_eq!(header(&kafka, "content-type").as_deref(), Some("application/json"));
}

#[test]
fn an_envelope_that_is_not_whole_is_a_defect_that_names_what_is_missing() {
    let body = br#"{"specversion": "1.0", "id": "x", "data": {}}"#;
    let none: [(&str, &str); 0] = [];
    let field = |restored: super::Restored| restored.defect.map(|defect| defect.field);
    assert_eq!(field(restore(Binding::Nats, none, body.to_vec())).as_deref(), Some("time"));
    let other = br#"{"specversion": "0.3", "id": "x", "data": {}}"#;
    assert_eq!(field(restore(Binding::Nats, none, other.to_vec())).as_deref(), Some("specversion"));
    let headers = [("Ce-Specversion", "1.0"), ("ce-id", "x"), ("ce-time", "x")];
    let restored = restore(Binding::Nats, headers, b"{}".to_vec());
    assert_eq!(
        (restored.body.as_slice(), field(restored.clone()).as_deref()),
        (&b"{}"[..], Some("ce-tenantid"))
    );
    // What has no envelope of ours is left to the event's own check.
    let plain = restore(Binding::Nats, [("position", "7")], b"garbage".to_vec());
    assert_eq!((plain.defect, plain.position), (None, Some(7)));
}
