//! What a handler's value is as an HTTP answer, and whether it can be sent. Found out before anything of its run is applied:
//! an error means that nothing was.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::json::{self, Kind, Members};

/// What an answer that says its own status may have.
const NAMES: [&str; 4] = ["status", "headers", "body", "bodyBase64"];

/// The names of an answer's headers, and all of them as they are sent. More than a client or a proxy takes, and far less
/// than a server's map of headers can hold.
const HEADERS_MAX: usize = 100;
const HEADER_BYTES_MAX: usize = 16 << 10;

/// An answer that says its own status. Any other value is the body of a 200.
#[derive(Debug)]
pub struct ScriptAnswer<'a> {
    /// From 200.
    pub status: u16,
    /// By name, with the values in the order in which they are sent.
    pub headers: Vec<(String, Vec<String>)>,
    /// Text is sent as it is, anything else as JSON.
    pub body: Option<&'a RawValue>,
    /// Bytes instead of a body.
    pub body_base64: Option<Cow<'a, str>>,
}

/// Why an answer cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerDefect {
    /// A stable name.
    pub code: &'static str,
    /// One line for whoever wrote the script.
    pub problem: String,
}

impl AnswerDefect {
    fn new(code: &'static str, problem: impl Into<String>) -> Self {
        Self { code, problem: problem.into() }
    }
}

impl<'a> ScriptAnswer<'a> {
    /// Take a handler's value apart; `None` if it is the body of a 200.
    ///
    /// # Errors
    /// It means to be an answer of its own and cannot be sent.
    pub fn read(value: &'a RawValue) -> Result<Option<Self>, AnswerDefect> {
        if Kind::of(value) != Kind::Object {
            return Ok(None);
        }
        let Some(members) = Members::of(value) else { return Ok(None) };
        let Some(status) = members.get("status").filter(|status| says_status(status, &members))
        else {
            return Ok(None);
        };
        for (name, code) in NAMES.iter().zip(["BAD_STATUS", "BAD_HEADER", "BAD_BODY", "BAD_BODY"]) {
            if members.all(name).count() > 1 {
                return Err(AnswerDefect::new(code, format!("the answer's {name} is there twice")));
            }
        }
        let status = status_of(status)?;
        if let Some(other) = members.names().find(|name| !NAMES.contains(name)) {
            let other = printable(other);
            let problem =
                format!("the answer has {other}, which is not sent: put it into its body");
            return Err(AnswerDefect::new("BAD_BODY", problem));
        }
        let headers = members.get("headers").map(headers_of).transpose()?.unwrap_or_default();
        let given = |name| members.get(name).filter(|value| Kind::of(value) != Kind::Null);
        let (body, base64) = (given("body"), given("bodyBase64"));
        let body_base64 = base64.map(|base64| bytes_of(base64, body.is_some())).transpose()?;
        Ok(Some(Self { status, headers, body, body_base64 }))
    }
}

/// A status that is a number, or text that reads as one, is meant for the client. Any other is only if nothing but what an
/// answer has is beside it.
fn says_status(status: &RawValue, members: &Members<'_>) -> bool {
    let reads_as_number = match Kind::of(status) {
        Kind::Number => true,
        Kind::Text => json::text(status).is_some_and(|text| {
            text.contains(|c: char| c.is_ascii_digit()) && text.trim().parse::<f64>().is_ok()
        }),
        _ => false,
    };
    reads_as_number
        || members.names().all(|name| NAMES.contains(&name))
            && members.names().any(|name| name != "status")
}

fn status_of(status: &RawValue) -> Result<u16, AnswerDefect> {
    let number = status.get().parse().ok().filter(|status| (200..=999).contains(status));
    number.ok_or_else(|| {
        let found = printable(status.get());
        let problem =
            format!("the answer's status is {found}: it must be a number from 200 to 999");
        AnswerDefect::new("BAD_STATUS", problem)
    })
}

fn headers_of(headers: &RawValue) -> Result<Vec<(String, Vec<String>)>, AnswerDefect> {
    let Some(members) = Members::of(headers).filter(|_| Kind::of(headers) == Kind::Object) else {
        let kind = Kind::of(headers);
        let problem = format!("the answer's headers must be an object, not {kind}");
        return Err(AnswerDefect::new("BAD_HEADER", problem));
    };
    let read = members.iter().map(|(name, value)| {
        let values = is_name(name).then(|| one_or_several(value)).flatten();
        let values = values.ok_or_else(|| {
            let name = printable(name);
            let problem = format!(
                "the answer's header {name} must be a token with one line of visible ASCII, or a list of those"
            );
            AnswerDefect::new("BAD_HEADER", problem)
        })?;
        Ok((name.to_owned(), values))
    });
    let headers: Vec<(String, Vec<String>)> = read.collect::<Result<_, _>>()?;
    // As `name: value` and the end of the line, for each value.
    let bytes = |(name, values): &(String, Vec<String>)| -> usize {
        values.iter().map(|value| name.len() + value.len() + 4).sum()
    };
    if headers.len() > HEADERS_MAX || headers.iter().map(bytes).sum::<usize>() > HEADER_BYTES_MAX {
        let problem = format!(
            "the answer's headers must have at most {HEADERS_MAX} names and {HEADER_BYTES_MAX} bytes"
        );
        return Err(AnswerDefect::new("BAD_HEADER", problem));
    }
    Ok(headers)
}

/// A header's value, or a list of values: it is sent that often.
fn one_or_several(value: &RawValue) -> Option<Vec<String>> {
    let one =
        |value: &RawValue| Some(json::text(value).filter(|text| is_value(text))?.into_owned());
    match Kind::of(value) {
        Kind::List => json::list("headers", value).ok()?.into_iter().map(one).collect(),
        _ => one(value).map(|value| vec![value]),
    }
}

fn bytes_of(base64: &RawValue, has_body: bool) -> Result<Cow<'_, str>, AnswerDefect> {
    let text = json::text(base64).filter(|text| !has_body && is_base64(text));
    text.ok_or_else(|| {
        let problem =
            "the answer's bodyBase64 must be base64 with padding, and body must be left out";
        AnswerDefect::new("BAD_BODY", problem)
    })
}

fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    text.len().is_multiple_of(4)
        && text.len() - digits.len() <= 2
        && digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(&byte))
}

fn is_name(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token)
}

fn is_value(value: &str) -> bool {
    value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte))
}

fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(60).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The code of what cannot be sent, the status of an answer of its own, or `None` for the body of a 200.
    fn read(value: &str) -> Option<String> {
        let raw = RawValue::from_string(value.to_owned()).unwrap();
        match ScriptAnswer::read(&raw) {
            Ok(answer) => answer.map(|answer| answer.status.to_string()),
            Err(defect) => Some(defect.code.to_owned()),
        }
    }

    #[test]
    fn what_cannot_be_sent_is_named() {
        for (value, found) in [
            (r#"{"status": 204}"#, "204"),
            (r#"{"status": 200, "headers": {"X-A": "a b"}, "body": 1.10}"#, "200"),
            (r#"{"status": 200, "body": null, "bodyBase64": null}"#, "200"),
            (r#"{"status": 99}"#, "BAD_STATUS"),
            (r#"{"status": 1000}"#, "BAD_STATUS"),
            (r#"{"status": 99999, "body": "x"}"#, "BAD_STATUS"),
            (r#"{"status": -1}"#, "BAD_STATUS"),
            (r#"{"status": 404.5}"#, "BAD_STATUS"),
            (r#"{"status": 1e99}"#, "BAD_STATUS"),
            (r#"{"status": "404"}"#, "BAD_STATUS"),
            (r#"{"status": " -1 ", "id": 5}"#, "BAD_STATUS"),
            (r#"{"status": null, "body": 1}"#, "BAD_STATUS"),
            (r#"{"status": "open", "headers": 1}"#, "BAD_STATUS"),
            (r#"{"status": 200, "status": 404}"#, "BAD_STATUS"),
            (r#"{"st\u0061tus": 99}"#, "BAD_STATUS"),
            (r#"{"status": 200, "headers": 1}"#, "BAD_HEADER"),
            (r#"{"status": 200, "headers": null}"#, "BAD_HEADER"),
            (r#"{"status": 200, "headers": [["a", "b"]]}"#, "BAD_HEADER"),
            (r#"{"status": 200, "headers": {"a b": "x"}}"#, "BAD_HEADER"),
            (r#"{"status": 200, "headers": {"a": 1}}"#, "BAD_HEADER"),
            (r#"{"status": 200, "headers": {"a": "x\r\nSet-Cookie: b"}}"#, "BAD_HEADER"),
            (r#"{"status": 200, "headers": {"a": "ü"}}"#, "BAD_HEADER"),
            (r#"{"status": 200, "headers": {"set-cookie": ["a=1", "b=2"]}}"#, "200"),
            (r#"{"status": 200, "headers": {"set-cookie": ["a=1", 2]}}"#, "BAD_HEADER"),
            (r#"{"status": 200, "bodyBase64": "AP8="}"#, "200"),
            (r#"{"status": 200, "bodyBase64": "AP8"}"#, "BAD_BODY"),
            (r#"{"status": 200, "bodyBase64": "A==="}"#, "BAD_BODY"),
            (r#"{"status": 200, "bodyBase64": 5}"#, "BAD_BODY"),
            (r#"{"status": 200, "body": 1, "bodyBase64": "AP8="}"#, "BAD_BODY"),
            (r#"{"status": 404, "error": "no such order"}"#, "BAD_BODY"),
        ] {
            assert_eq!(read(value).as_deref(), Some(found), "{value}");
        }
    }

    #[test]
    fn headers_have_a_bound_on_their_names_and_on_all_of_them() {
        let names = |count: usize| {
            let headers: Vec<String> = (0..count).map(|n| format!("\"x{n}\": \"\"")).collect();
            format!("{{\"status\": 200, \"headers\": {{{}}}}}", headers.join(","))
        };
        let one = |bytes: usize| {
            let value = "v".repeat(bytes);
            format!("{{\"status\": 200, \"headers\": {{\"x\": \"{value}\"}}}}")
        };
        let often = |count: usize| {
            let values = vec!["\"\""; count].join(",");
            format!("{{\"status\": 200, \"headers\": {{\"x\": [{values}]}}}}")
        };
        for (value, found) in [
            (names(100), "200"),
            (names(101), "BAD_HEADER"),
            // As they are sent: `x: v` and the end of the line.
            (one((16 << 10) - 5), "200"),
            (one((16 << 10) - 4), "BAD_HEADER"),
            (often((16 << 10) / 5), "200"),
            (often((16 << 10) / 5 + 1), "BAD_HEADER"),
        ] {
            let told = value.len().min(60);
            assert_eq!(read(&value).as_deref(), Some(found), "{}", &value[..told]);
        }
    }

    #[test]
    fn json_that_has_a_status_of_its_own_is_the_body_of_a_200() {
        for value in [
            "null",
            "[200]",
            r#""404""#,
            r#"{"status": "open"}"#,
            r#"{"status": "open", "id": 404}"#,
            r#"{"status": "open", "title": "t", "body": "b"}"#,
            r#"{"status": true}"#,
            r#"{"headers": 1, "body": "b"}"#,
            r#"{"items": [{"status": 99}]}"#,
        ] {
            assert_eq!(read(value), None, "{value}");
        }
    }
}
