//! One corpus, three checkers: the Rust check and the JSON Schema here, the SQL check in `tests/`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use boon::{Compiler, Schemas};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Event, JSON_SCHEMA, rules};

const CORPUS: &str = include_str!("../../../../tests/fixtures/events.json");

#[derive(Deserialize)]
struct Case {
    name: String,
    /// Which field is refused; none: it is an event.
    field: Option<String>,
    /// The checkers that can see it; all if absent.
    only: Option<Vec<String>>,
    event: Box<RawValue>,
}

fn cases(checker: &str) -> Vec<Case> {
    let all: Vec<Case> = serde_json::from_str(CORPUS).unwrap();
    all.into_iter()
        .filter(|case| case.only.as_ref().is_none_or(|only| only.iter().any(|one| one == checker)))
        .collect()
}

#[test]
fn the_rust_check_agrees_with_the_corpus_on_verdict_and_field() {
    let cases = cases("rust");
    assert!(cases.len() > 250);
    for Case { name, field, event, .. } in cases {
        let verdict = Event::parse(event.get());
        let refused = verdict.as_ref().err().map(|defect| defect.field.clone());
        assert_eq!(refused, field, "{name}: {verdict:?}");
    }
}

#[test]
fn the_json_schema_agrees_with_the_corpus() {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.add_resource("event.json", serde_json::from_str(JSON_SCHEMA).unwrap()).unwrap();
    let schema = compiler.compile("event.json", &mut schemas).unwrap();
    let cases = cases("schema");
    assert!(cases.len() > 250);
    for Case { name, field, event, .. } in cases {
        let event: Value = serde_json::from_str(event.get()).unwrap();
        let verdict = schemas.validate(&event, schema);
        assert_eq!(verdict.is_ok(), field.is_none(), "{name}: {:?}", verdict.err());
    }
    let document: Value = serde_json::from_str(JSON_SCHEMA).unwrap();
    for example in document["examples"].as_array().unwrap() {
        assert!(schemas.validate(example, schema).is_ok());
        Event::parse(&example.to_string()).unwrap();
    }
}

#[test]
fn the_json_schema_uses_the_same_patterns_and_limits() {
    let schema: Value = serde_json::from_str(JSON_SCHEMA).unwrap();
    let envelope = &schema["properties"]["envelope"]["properties"];
    let name = &schema["$defs"]["name"];
    for (found, pattern) in [
        (&envelope["eventId"]["pattern"], rules::EVENT_ID_PATTERN),
        (&envelope["occurredAt"]["pattern"], rules::OCCURRED_AT_PATTERN),
        (&envelope["type"]["pattern"], rules::EVENT_TYPE_PATTERN),
        (&envelope["traceparent"]["pattern"], rules::TRACEPARENT_PATTERN),
        (&envelope["traceparent"]["not"]["pattern"], rules::TRACEPARENT_ZERO_PATTERN),
        (&name["pattern"], rules::NOT_BLANK_PATTERN),
    ] {
        assert_eq!(found, pattern);
    }
    for limit in [&envelope["type"]["maxLength"], &name["maxLength"]] {
        assert_eq!(limit, rules::CHARACTERS_MAX);
    }
}

#[test]
fn no_defect_repeats_a_value() {
    let corpus: Vec<Case> = cases("rust");
    for Case { name, field, event, .. } in corpus {
        let Err(defect) = Event::parse(event.get()) else { continue };
        assert!(field.is_some());
        let value: Value = serde_json::from_str(event.get()).unwrap_or_default();
        let mut texts = Vec::new();
        collect(&value, &mut texts);
        // Shorter ones are in any sentence.
        for text in texts.iter().filter(|text| text.len() > 12) {
            assert!(!defect.to_string().contains(text.as_str()), "{name}: {defect}");
        }
    }
}

fn collect(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| collect(value, texts)),
        Value::Object(members) => members.values().for_each(|value| collect(value, texts)),
        _ => {}
    }
}
