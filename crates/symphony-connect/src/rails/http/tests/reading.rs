//! What answers say about the money, as a table.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, TimeZone as _, Utc};
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue, RETRY_AFTER};
use symphony::json::Pointer;
use symphony::lanes::payments::rail::Inquiry;
use symphony::lanes::payments::rail::Verdict::{Accepted, Refused, Retryable, Unknown};

use crate::http_client::Reply;
use crate::http_client::retry_after;
use crate::rails::http::reading::Reader;
use crate::rails::taxonomy::{CodeTable, Preset};

const KEY: &str = "5f0c6f3e-0000-4000-8000-000000000001";

fn reader() -> Reader {
    let codes = BTreeMap::from([
        ("http:503".to_owned(), Retryable),
        ("BUSY".to_owned(), Retryable),
        ("51".to_owned(), Refused),
    ]);
    Reader {
        table: CodeTable::new(&[Preset::Iso20022, Preset::Http], &codes).unwrap(),
        code: Pointer::new("/code"),
        reason: Pointer::new("/reason"),
        reference: Pointer::new("/reference"),
        message: Pointer::new("/message"),
        key: None,
        key_header: HeaderName::from_static("idempotency-key"),
        not_found_code: String::new(),
    }
}

fn reply(status: u16, body: &str) -> Reply {
    Reply { status, headers: HeaderMap::new(), body: body.to_owned().into() }
}

fn now() -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2026, 1, 2, 3, 4, 5).unwrap()
}

#[test]
fn a_provider_without_codes_is_read_by_its_status_alone() {
    let by_status = Reader { code: None, reason: None, ..reader() };
    for (verdict, status, body) in [
        (Accepted, 200, r#"{"reference": "R1"}"#),
        (Accepted, 201, "{}"),
        (Unknown, 202, "{}"),
        (Unknown, 200, "garbage"),
        (Refused, 422, ""),
        (Unknown, 500, ""),
    ] {
        let answer = by_status.dispatch(KEY, &reply(status, body), now());
        assert_eq!(answer.verdict, verdict, "{status} {body}: {answer:?}");
    }
}

#[test]
fn code_and_status_are_read_together_and_the_careful_reading_wins() {
    for (verdict, status, body) in [
        (Accepted, 200, r#"{"code": "ACSC", "reference": "R1"}"#),
        // Success without the code that says so: read at the wrong place, it could be anything.
        (Unknown, 201, r#" {"reference": "R1"} "#),
        (Unknown, 200, r#"{"status": "RJCT"}"#),
        (Unknown, 202, "{}"),
        (Unknown, 200, r#"{"code": null}"#),
        // A refusal with 200 is a refusal.
        (Refused, 200, r#"{"code": "AC04"}"#),
        (Refused, 200, r#"{"code": 51}"#),
        (Retryable, 200, r#"{"code": "BUSY"}"#),
        (Refused, 422, r#"{"code": "AC04"}"#),
        (Refused, 404, r#"{"code": "AC01"}"#),
        (Refused, 409, r#"{"code": "AC04"}"#),
        (Refused, 400, "<html>Bad Request</html>"),
        (Refused, 422, ""),
        (Retryable, 429, ""),
        (Retryable, 401, "no"),
        (Retryable, 429, r#"{"code": "AC04"}"#),
        (Retryable, 400, r#"{"code": "BUSY"}"#),
        (Retryable, 503, r#"{"code": "BUSY"}"#),
        (Retryable, 503, "<html>"),
        // Pending.
        (Unknown, 200, r#"{"code": "PDNG"}"#),
        (Unknown, 202, r#"{"code": "ACSP"}"#),
        // Duplicates, and reasons that turn a refusal into doubt.
        (Unknown, 200, r#"{"code": "AM05"}"#),
        (Unknown, 422, r#"{"code": "AM05"}"#),
        (Refused, 200, r#"{"code": "RJCT", "reason": "AC04"}"#),
        (Unknown, 200, r#"{"code": "RJCT", "reason": "AM05"}"#),
        (Unknown, 200, r#"{"code": "RJCT", "reason": "ACSC"}"#),
        (Retryable, 200, r#"{"code": "RJCT", "reason": "BUSY"}"#),
        (Accepted, 200, r#"{"code": "ACSC", "reason": "G000"}"#),
        (Unknown, 200, r#"{"code": "ACSC", "reason": "AC04"}"#),
        (Unknown, 200, r#"{"code": "PDNG", "reason": "AC04"}"#),
        // Contradictions.
        (Unknown, 500, r#"{"code": "ACSC"}"#),
        (Unknown, 502, r#"{"code": "AC04"}"#),
        (Unknown, 503, r#"{"code": "AC04"}"#),
        (Unknown, 503, r#"{"code": "ACSC"}"#),
        (Unknown, 400, r#"{"code": "ACSC"}"#),
        (Unknown, 302, r#"{"code": "AC04"}"#),
        // Nobody mapped it.
        (Unknown, 200, r#"{"code": "SOMETHING"}"#),
        (Unknown, 422, r#"{"code": "insufficient_funds"}"#),
        (Unknown, 200, r#"{"code": "ac04"}"#),
        (Unknown, 200, r#"{"code": "http:200"}"#),
        (Unknown, 204, ""),
        (Unknown, 301, ""),
        (Unknown, 404, ""),
        (Unknown, 409, ""),
        (Unknown, 500, "{}"),
        (Unknown, 504, ""),
        // Nonsense.
        (Unknown, 200, ""),
        (Unknown, 200, "OK"),
        (Unknown, 200, "<html>AC04</html>"),
        (Unknown, 200, r#"{"code": "ACSC""#),
        (Unknown, 200, r#"{"code": "ACSC"} trailing"#),
        (Unknown, 200, r#"["ACSC"]"#),
        (Unknown, 200, "true"),
        (Unknown, 200, r#"{"code": ""}"#),
        (Unknown, 200, r#"{"code": "AC04 "}"#),
        (Unknown, 200, r#"{"code": {"code": "ACSC"}}"#),
        (Unknown, 200, r#"{"code": true}"#),
        (Unknown, 200, r#"{"code": "ACSC", "code": "AC04"}"#),
        (Unknown, 422, r#"{"code": "AC04", "code": "AC01"}"#),
    ] {
        let answer = reader().dispatch(KEY, &reply(status, body), now());
        assert_eq!(answer.verdict, verdict, "{status} {body}: {answer:?}");
        assert!(answer.code.is_some(), "{status} {body}");
        assert_eq!(answer.error_code.is_none(), verdict == Accepted, "{status} {body}");
    }
}

#[test]
fn trouble_is_the_rails_and_not_the_payments() {
    for (status, body, trouble) in [
        (200, r#"{"code": "ACSC"}"#, false),
        (200, r#"{"code": "AC04"}"#, false),
        (422, "", false),
        (404, "", false),
        (200, "nonsense", true),
        (401, "", true),
        (429, "", true),
        (500, "", true),
        (503, r#"{"code": "BUSY"}"#, true),
    ] {
        let answer = reader().dispatch(KEY, &reply(status, body), now());
        assert_eq!(answer.trouble, trouble, "{status} {body}");
    }
}

#[test]
fn an_inquiry_is_found_not_found_or_unclear() {
    let name = |inquiry: &Inquiry| match inquiry {
        Inquiry::Found(answer) => format!("found {:?}", answer.verdict),
        Inquiry::NotFound => "not found".to_owned(),
        Inquiry::Unclear(answer) => format!("unclear {:?}", answer.verdict),
    };
    for (expected, status, body) in [
        ("found Accepted", 200, r#"{"code": "ACSC"}"#),
        ("found Refused", 200, r#"{"code": "RJCT"}"#),
        ("found Unknown", 200, r#"{"code": "PDNG"}"#),
        ("found Unknown", 200, r#"{"code": "WHATEVER"}"#),
        ("not found", 404, ""),
        ("not found", 404, "<html>"),
        ("not found", 404, r#"{"code": "NO_SUCH_PAYMENT"}"#),
        ("unclear Unknown", 404, r#"{"code": "ACSC"}"#),
        ("unclear Unknown", 404, r#"{"code": "AC04"}"#),
        ("unclear Unknown", 200, "{}"),
        ("unclear Unknown", 200, ""),
        ("unclear Unknown", 204, ""),
        ("unclear Unknown", 302, ""),
        ("unclear Unknown", 401, ""),
        ("unclear Unknown", 410, ""),
        ("unclear Unknown", 422, r#"{"code": "AC04"}"#),
        ("unclear Unknown", 500, r#"{"code": "ACSC"}"#),
    ] {
        let inquiry = reader().inquiry(KEY, &reply(status, body), now());
        assert_eq!(name(&inquiry), expected, "{status} {body}");
    }
    let strict = Reader { not_found_code: "NO_SUCH_PAYMENT".to_owned(), ..reader() };
    for (expected, body) in [
        ("not found", r#"{"code": "NO_SUCH_PAYMENT"}"#),
        ("unclear Unknown", r#"{"code": "NO_SUCH_PAGE"}"#),
        ("unclear Unknown", "<html>"),
        ("unclear Unknown", ""),
    ] {
        assert_eq!(name(&strict.inquiry(KEY, &reply(404, body), now())), expected, "{body}");
    }
}

#[test]
fn an_answer_for_another_key_is_not_believed() {
    let with_header = |key: &'static str| {
        let mut reply = reply(200, r#"{"code": "ACSC"}"#);
        reply.headers.insert("idempotency-key", HeaderValue::from_static(key));
        reply
    };
    assert_eq!(reader().dispatch(KEY, &with_header(KEY), now()).verdict, Accepted);
    assert_eq!(reader().dispatch(KEY, &with_header("other"), now()).verdict, Unknown);
    let strict = Reader { key: Pointer::new("/key"), ..reader() };
    for (verdict, status, body) in [
        (Accepted, 200, format!(r#"{{"code": "ACSC", "key": "{KEY}"}}"#)),
        (Unknown, 200, r#"{"code": "ACSC", "key": "other"}"#.to_owned()),
        (Unknown, 200, r#"{"code": "ACSC"}"#.to_owned()),
        (Unknown, 422, r#"{"code": "AC04", "key": "other"}"#.to_owned()),
        (Refused, 422, r#"{"code": "AC04"}"#.to_owned()),
    ] {
        assert_eq!(strict.dispatch(KEY, &reply(status, &body), now()).verdict, verdict, "{body}");
    }
}

#[test]
fn texts_are_bounded_and_cannot_draw_on_a_terminal() {
    let long = "x".repeat(10_000);
    let body = format!(
        r#"{{"code": "ACSC", "reference": "R\u0000\u001b[2J1", "message": "a\nb\u202ec{long}"}}"#
    );
    let answer = reader().dispatch(KEY, &reply(200, &body), now());
    assert_eq!(answer.reference.as_deref(), Some("R  [2J1"));
    let message = answer.message.unwrap();
    assert!(message.starts_with("a b cxxx"), "{message}");
    assert_eq!(message.chars().count(), 500);
    let answer = reader().dispatch(KEY, &reply(200, r#"{"code": "ACSC", "reference": {}}"#), now());
    assert_eq!((answer.verdict, answer.reference), (Accepted, None));
}

#[test]
fn retry_after_is_seconds_or_a_date_and_at_most_a_day() {
    for (value, seconds) in [
        ("120", Some(120)),
        ("0", Some(0)),
        ("86401", Some(86_400)),
        ("99999999999999999999999", Some(86_400)),
        ("Fri, 02 Jan 2026 03:05:05 GMT", Some(60)),
        ("Friday, 02-Jan-26 03:05:05 GMT", Some(60)),
        ("Fri Jan  2 03:05:05 2026", Some(60)),
        ("Fri, 02 Jan 2026 03:00:00 GMT", Some(0)),
        ("Sat, 02 Jan 2027 03:04:05 GMT", Some(86_400)),
        ("soon", None),
        ("-1", None),
        ("1.5", None),
        ("", None),
    ] {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))]);
        assert_eq!(retry_after(&headers, now()), seconds.map(Duration::from_secs), "{value}");
    }
}
