//! What the corpus (`tests/fixtures/events.json`) cannot say: bytes, depth, paths and speed.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::rules::EVENT_BYTES_MAX;
use super::{Event, Parts};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn with_payload(payload: &str) -> String {
    format!(
        r#"{{"envelope": {{"v": 1, "eventId": "5F0C6F3E-8d1b-4c63-9a0e-2f1d7c3b5a91",
            "occurredAt": "2026-11-02T09:30:00.123456789+05:30", "tenantId": "tnt_1",
            "traceparent": "{TRACE}", "type": "events.transfers.submitted.usdc"}},
            "key": {{"transferId": "tr_1"}}, "payload": {payload}}}"#
    )
}

#[test]
fn an_event_is_taken_apart_and_its_text_is_kept_to_the_last_digit() {
    let text = with_payload(
        r#"{"n": 12345678901234567890.123456789012345678901234567890, "m": 1.10, "e": 1E+2}"#,
    );
    let event = Event::parse(&format!(" \n{text}\t ")).unwrap();
    assert_eq!(event.event_id().to_string(), "5f0c6f3e-8d1b-4c63-9a0e-2f1d7c3b5a91");
    assert_eq!(event.occurred_at(), "2026-11-02T09:30:00.123456789+05:30");
    assert_eq!((event.tenant_id(), event.traceparent()), ("tnt_1", Some(TRACE)));
    assert_eq!(event.event_type(), "events.transfers.submitted.usdc");
    assert_eq!((event.key_name(), event.key()), ("transferId", "tr_1"));
    assert_eq!(event.body().get(), text);
}

#[test]
fn an_event_of_exactly_the_limit_is_taken_and_one_byte_more_is_not() {
    let empty = with_payload(r#"{"padding": ""}"#).len();
    let sized =
        |bytes: usize| with_payload(&format!(r#"{{"padding": "{}"}}"#, "x".repeat(bytes - empty)));
    assert!(Event::parse(&sized(EVENT_BYTES_MAX)).is_ok());
    let defect = Event::parse(&sized(EVENT_BYTES_MAX + 1)).unwrap_err();
    assert_eq!(defect.to_string(), "event is over 256000 bytes");
}

#[test]
fn what_readers_would_read_differently_is_refused_and_its_place_is_named() {
    for (payload, field) in [
        (r#"{"a": 1, "a": 1}"#, "payload.a"),
        (r#"{"a": 1, "\u0061": 2}"#, "payload.a"),
        (r#"{"b": [0, {"c": {"d": 1, "e": [], "d": 2}}]}"#, "payload.b[1].c.d"),
        (r#"{"a": "x\u0000"}"#, "payload.a"),
        (r#"{"a": [[], ["\u0000"]]}"#, "payload.a[1][0]"),
        (r#"{"\u0000": 1}"#, "payload.?"),
        (r#"{"a": "\ud800"}"#, "payload.a"),
        (r#"{"a": "\udc00\ud800"}"#, "payload.a"),
        (r#"{"x": 1, "\ud800": 1}"#, "payload"),
        (r#"{"DE89 3704 0044": {"a": 1, "a": 2}}"#, "payload.?.a"),
        (r#"{"": {"a": 1, "a": 2}}"#, "payload.?.a"),
    ] {
        let defect = Event::parse(&with_payload(payload)).unwrap_err();
        assert_eq!(defect.field, field, "{payload}");
        assert!(!defect.to_string().contains("3704"), "{defect}");
    }
    for payload in [
        r#"{"a": {"a": {"a": 1}}, "b": [{"a": 1}, {"a": 2}]}"#,
        r#"{"a": "a", "b": "a", "c": ["a", "a"], "A": "\\u0000 \" { [ , \ud83d\ude00"}"#,
    ] {
        Event::parse(&with_payload(payload)).unwrap();
    }
}

#[test]
fn no_depth_of_nesting_exhausts_the_stack() {
    let deep = |inside: &str| {
        let payload = format!(r#"{{"a": {}{inside}{}}}"#, "[".repeat(120_000), "]".repeat(120_000));
        Event::parse(&with_payload(&payload))
    };
    deep("1").unwrap();
    assert!(deep(r#""\u0000""#).unwrap_err().field.len() < 200);
}

#[test]
fn parts_are_what_the_whole_check_reads_wherever_they_stand() {
    let event = with_payload(r#"{"envelope": {"type": "not.this"}, "n": [1, {"type": 2}]}"#);
    let value: serde_json::Value = serde_json::from_str(&event).unwrap();
    let part = |name: &str| format!(r#""{name}": {}"#, value[name]);
    let last = format!("{{{}, {}, {}}}", part("key"), part("payload"), part("envelope"));
    let middle = format!("{{{}, {}, {}}}", part("key"), part("envelope"), part("payload"));
    let escaped = event.replace("tnt_1", r"tnt\u005f1").replace("tenantId", r"tenant\u0049d");
    let untraced = event.replace(&format!(r#""traceparent": "{TRACE}","#), "");
    for text in [&event, &last, &middle, &escaped, &untraced] {
        let parsed = Event::parse(text).unwrap();
        let parts = Parts::read(text).unwrap();
        assert_eq!(parts.event_type, parsed.event_type());
        assert_eq!(parts.tenant_id, parsed.tenant_id());
        assert_eq!(parts.occurred_at, parsed.occurred_at());
        assert_eq!(parts.traceparent.as_deref(), parsed.traceparent());
        assert_eq!((&*parts.key_name, &*parts.key), (parsed.key_name(), parsed.key()));
        let again = Event::parse(&parts.to_event()).unwrap();
        assert_eq!((again.event_id(), again.key()), (parsed.event_id(), parsed.key()));
    }
    assert!(matches!(Parts::read(&event).unwrap().tenant_id, std::borrow::Cow::Borrowed("tnt_1")));
}

#[test]
fn what_was_never_accepted_has_no_parts() {
    for (text, missing) in [
        ("", "envelope"),
        ("[]", "envelope"),
        ("{}", "envelope"),
        ("{", "envelope"),
        (r#"{"envelope": {}}"#, "key"),
        (r#"{"envelope": {"type": "a.b"}, "key": {}}"#, "key"),
        (r#"{"envelope": {"type": "a.b"}, "key": {"a": "b"}}"#, "envelope.eventId"),
    ] {
        assert_eq!(Parts::read(text).unwrap_err().field, missing, "{text}");
    }
}
