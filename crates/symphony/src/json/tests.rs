//! What is refused and where; what is shown. Texts and names of events are tested with events.
#![allow(clippy::unwrap_used)]

use serde_json::value::RawValue;

use super::{JsonProblem, Members, Rules, check, list, pretty, text_of};

fn raw(text: &str) -> &RawValue {
    serde_json::from_str(text).unwrap()
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    for (text, told) in [
        ("", "line 1, column 0: EOF while parsing a value"),
        ("{\n \"a\": x}", "line 2, column 7: expected value"),
        (
            "[1, \"\\u0000\"]",
            "line 1, column 12: [1] has a NUL character (\\u0000), which no database can keep",
        ),
        ("\"\\ud800\"", "line 1, column 8: it has half a surrogate pair, which is no text"),
        (
            "{\"a\": 1,\n\"b\": 2, \"a\": 3}",
            "line 2, column 11: a is there twice: readers would disagree on its value",
        ),
    ] {
        assert_eq!(check(text, Rules::default()).unwrap_err().to_string(), told);
    }
}

#[test]
fn depth_and_digits_are_bounded_and_nothing_becomes_a_float() {
    let rules = Rules { names_may_repeat: true, depth_max: 2, digits_max: 20 };
    let problem = |text: &str| check(text, rules).err().map(|error| error.problem);
    for good in [
        "[[]]",
        r#"{"a": 1, "a": 2}"#,
        "12345678901234567890.12345678901234567890",
        "-1e19",
        "1.5E-19",
        "0.1e20",
    ] {
        assert_eq!(problem(good), None, "{good}");
    }
    for wide in ["123456789012345678901", "1e20", "1e-21", "1E+99999999999999999999", "-1.5e-20"] {
        assert_eq!(problem(wide), Some(JsonProblem::WideNumber), "{wide}");
    }
    assert_eq!(problem("[[[]]]"), Some(JsonProblem::TooDeep));
}

#[test]
fn one_level_is_taken_apart_and_what_it_is_not_is_said() {
    let members = Members::read("order", raw(r#"{"n": 1.10, "na\u006de": "\u00e9"}"#)).unwrap();
    assert_eq!(members.names().collect::<Vec<_>>(), ["n", "name"]);
    assert_eq!(members.get("n").unwrap().get(), "1.10");
    assert_eq!(members.need_text("order.name", "a name").unwrap(), "é");
    let told = |error: crate::FieldError| error.to_string();
    for (error, expected) in [
        (
            Members::read("order", raw("[]")).map(drop),
            "order must be a JSON object, not a JSON list",
        ),
        (
            Members::read("order", raw(r#"{"a": 1, "\u0061": 2}"#)).map(drop),
            "order repeats a key: readers would disagree on its value",
        ),
        (
            Members::read("order", raw(r#"{"\ud800": 2}"#)).map(drop),
            "order has a key that is not readable as text",
        ),
        (members.need("order.x", "a number").map(drop), "order.x is missing: it must be a number"),
        (
            members.need_text("order.n", "a name").map(drop),
            "order.n must be a name, not a JSON number",
        ),
        (
            text_of("x", raw(r#""\ud800""#), "a name").map(drop),
            "x is not readable as text: it must be a name",
        ),
        (list("x", raw("{}")).map(drop), "x must be a JSON list, not a JSON object"),
    ] {
        assert_eq!(error.map_err(told).unwrap_err(), expected);
    }
}

#[test]
fn what_is_shown_keeps_every_digit() {
    let value =
        raw(r#"{"b": [1.10, {}, [] ], "a": {"wei": 115792089237316195423570985008687907853.10}}"#);
    let shown = "{\n  \"a\": {\n    \"wei\": 115792089237316195423570985008687907853.10\n  },\n  \
                 \"b\": [\n    1.10,\n    {},\n    []\n  ]\n}";
    assert_eq!(pretty(value), shown);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(pretty(raw(&deep)).contains(&"[".repeat(90_000)));
}
