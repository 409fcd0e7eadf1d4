//! One truth about `app.json`: the JSON Schema, the database's check and docs/APPS.md name the same fields and agree on
//! what is right.

use std::collections::BTreeSet;
use std::path::Path;

use boon::{Compiler, Schemas};
use serde_json::{Value, json};

use super::quoted;
use crate::support::TestDb;
use crate::support::shell::symphony;

const SCHEMA: &str = include_str!("../../schemas/app.schema.json");
const PAGE: &str = include_str!("../../docs/APPS.md");

/// Where fields are, in the words of the page; where in the schema; a manifest with one that nobody knows; what a folder
/// has instead of what is pushed.
fn places() -> [(&'static str, &'static str, Value, &'static [&'static str]); 7] {
    [
        ("", "/properties", json!({"zzz": 1}), &["$schema", "name"]),
        ("scripts[].", "/$defs/script/properties", json!({"scripts": [{"zzz": 1}]}), &[]),
        ("routes[].", "/$defs/route/properties", json!({"routes": [{"zzz": 1}]}), &[]),
        ("triggers[].", "/$defs/trigger/properties", json!({"triggers": [{"zzz": 1}]}), &[]),
        ("queues[].", "/$defs/queue/properties", json!({"queues": [{"zzz": 1}]}), &[]),
        ("cors.", "/$defs/cors/properties", json!({"cors": {"zzz": 1}}), &[]),
        ("retention.", "/$defs/retention/properties", json!({"retention": {"zzz": 1}}), &[]),
    ]
}

fn in_schema(pointer: &str) -> BTreeSet<String> {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    schema.pointer(pointer).unwrap().as_object().unwrap().keys().cloned().collect()
}

#[tokio::test]
async fn the_schema_and_the_database_know_the_same_fields() {
    let db = TestDb::new().await;
    for (place, pointer, manifest, of_the_folder) in places() {
        let defect: String =
            db.one(&format!("SELECT symphony.manifest_defect({})", quoted(&manifest))).await;
        let (_, known) = defect.split_once(" has ").unwrap_or_else(|| panic!("{place}: {defect}"));
        let mut known: BTreeSet<String> =
            known.replace(" and ", ", ").split(", ").map(str::to_owned).collect();
        known.extend(of_the_folder.iter().map(|field| (*field).to_owned()));
        // What is read from the file when it is pushed.
        known.remove("source");
        known.remove("modules");
        assert_eq!(known, in_schema(pointer), "{place}");
    }
}

#[test]
fn the_page_explains_every_field_and_no_other() {
    let (_, section) = PAGE.split_once("## The manifest").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let mut explained = BTreeSet::new();
    for line in section.lines().filter(|line| line.starts_with("- `")) {
        let head = line.split([':', '(']).next().unwrap();
        let both = head.contains(" of a route or trigger");
        let mut prefix = "";
        for field in head.split('`').skip(1).step_by(2) {
            if let Some(of_the_same) = field.strip_prefix('.') {
                explained.insert(format!("{prefix}{of_the_same}"));
            } else if both {
                explained
                    .extend(["routes[].", "triggers[]."].map(|place| format!("{place}{field}")));
            } else {
                prefix = field.rfind('.').map_or("", |dot| &field[..=dot]);
                explained.insert(field.to_owned());
            }
        }
    }
    let mut known: BTreeSet<String> = BTreeSet::new();
    for (place, pointer, ..) in places() {
        known.extend(in_schema(pointer).iter().map(|field| format!("{place}{field}")));
    }
    // Explained by what is in them.
    for whole in ["scripts", "routes", "triggers", "cors", "retention"] {
        known.remove(whole);
    }
    assert_eq!(explained, known);
}

/// A manifest of a folder, and whether it is right.
fn corpus() -> Vec<(Value, bool)> {
    let script = json!({"name": "s", "file": "s.js"});
    let with = |list: &str, entry: Value| json!({"scripts": [script], list: [entry]});
    let route = |more: Value| {
        let mut route = json!({"method": "GET", "path": "/", "script": "s"});
        route.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        with("routes", route)
    };
    let trigger = |more: Value| {
        let mut trigger = json!({"name": "t", "kind": "kv", "filter": "*", "script": "s"});
        trigger.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        with("triggers", trigger)
    };
    let scripts = |entry: Value| json!({"scripts": [entry]});
    let cors = |more: Value| json!({ "cors": more });
    vec![
        (json!({}), true),
        (json!([]), false),
        (json!({"scripts": {}}), false),
        (json!({"topics": ["a.b-c_1"], "queues": ["q", {"name": "r", "serial": true}]}), true),
        (json!({"topics": [""]}), false),
        (json!({"topics": [7]}), false),
        (json!({"queues": [{"name": "r", "serial": 1}]}), false),
        (json!({"queues": [{"serial": true}]}), false),
        (scripts(script.clone()), true),
        (scripts(json!({"name": "s", "url": "https://example.com"})), true),
        (scripts(json!({"name": "s", "url": "ftp://example.com"})), false),
        (scripts(json!({"name": "-s", "file": "s.js"})), false),
        (scripts(json!({"name": "s", "file": "s.js", "timeoutMs": 300_000})), true),
        (scripts(json!({"name": "s", "file": "s.js", "timeoutMs": 300_001})), false),
        (scripts(json!({"name": "s", "file": "s.js", "timeoutMs": "1"})), false),
        (route(json!({})), true),
        (route(json!({"path": "/orders/{id}/{*rest}"})), true),
        (route(json!({"path": "orders"})), false),
        (route(json!({"path": "/{Id}"})), false),
        (route(json!({"method": "get"})), false),
        (route(json!({"mode": "async", "waitMs": 1, "rawBody": true, "attempts": 20})), true),
        (route(json!({"mode": "later"})), false),
        (route(json!({"attempts": 0})), false),
        (route(json!({"attempts": 1.5})), false),
        (route(json!({"backoffSeconds": []})), false),
        (route(json!({"backoffSeconds": [0, 999_999]})), true),
        (route(json!({"backoffSeconds": [1_000_000]})), false),
        (route(json!({"auth": "hmac", "signature": "stripe", "secret": "k"})), true),
        (route(json!({"auth": "hmac", "signature": "stripe"})), false),
        (route(json!({"auth": "hmac", "signature": "own", "secret": "k"})), false),
        (route(json!({"auth": "token", "secret": "k"})), false),
        (route(json!({"auth": "hmac", "signature": "stripe", "secret": "9"})), false),
        (trigger(json!({})), true),
        (trigger(json!({"kind": "sms"})), false),
        (trigger(json!({"filter": ""})), false),
        (trigger(json!({"missed": "skip"})), false),
        (trigger(json!({"timeZone": "UTC"})), false),
        (
            trigger(
                json!({"kind": "cron", "filter": "0 7 * * *", "timeZone": "Europe/Berlin", "missed": "catch_up"}),
            ),
            true,
        ),
        (trigger(json!({"kind": "cron", "filter": "0 7 * * *", "missed": "often"})), false),
        (json!({"retention": {"executionsDays": 30, "logsDays": 7}}), true),
        (json!({"retention": {"executionsDays": 0}}), false),
        (json!({"retention": {"logsDays": 36_501}}), false),
        (cors(json!({"origins": ["*"]})), true),
        (cors(json!({})), false),
        (cors(json!({"origins": ["https://example.com/"]})), false),
        (cors(json!({"origins": ["*"], "credentials": true})), false),
        (
            cors(
                json!({"origins": ["https://a.example"], "credentials": true, "maxAgeSeconds": 86_400}),
            ),
            true,
        ),
        (cors(json!({"origins": ["*"], "maxAgeSeconds": 86_401})), false),
        (cors(json!({"origins": ["*"], "methods": ["get"]})), false),
        (cors(json!({"origins": ["*"], "headers": ["x y"]})), false),
    ]
}

#[tokio::test]
async fn the_schema_and_the_database_agree_on_what_is_right() {
    let db = TestDb::new().await;
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.add_resource("app.json", serde_json::from_str(SCHEMA).unwrap()).unwrap();
    let schema = compiler.compile("app.json", &mut schemas).unwrap();
    for (manifest, is_right) in corpus() {
        assert_eq!(schemas.validate(&manifest, schema).is_ok(), is_right, "schema: {manifest}");
        let mut pushed = manifest.clone();
        let scripts = pushed.get_mut("scripts").and_then(Value::as_array_mut);
        for script in scripts.into_iter().flatten() {
            if script.get("file").is_some() {
                script["source"] = json!("export default () => 1");
            }
        }
        let defect: Option<String> =
            db.one(&format!("SELECT symphony.manifest_defect({})", quoted(&pushed))).await;
        assert_eq!(defect.is_none(), is_right, "database: {manifest}: {defect:?}");
    }
    for app in ["orders", "shortener"] {
        let file = format!("../../examples/apps/{app}/app.json");
        let text =
            std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        let manifest: Value = serde_json::from_str(&text).unwrap();
        assert!(schemas.validate(&manifest, schema).is_ok(), "{app}");
        assert_eq!(manifest["$schema"], "../../../schemas/app.schema.json", "{app}");
    }
}

#[tokio::test]
async fn the_schema_is_printed_without_a_database() {
    let told = symphony("postgres://nobody@127.0.0.1:1/none", &[], "app schema", &[], "").await;
    assert_eq!((told.ok, told.output.as_str()), (true, SCHEMA));
}
