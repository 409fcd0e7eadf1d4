//! One truth about `app.json`: the JSON Schema, the database's check and docs/APPS.md name the same fields and agree on
//! what is right.

use std::collections::BTreeSet;
use std::path::Path;

use boon::{Compiler, Schemas};
use serde_json::{Value, json};

use super::apps::{Platform, request};
use super::quoted;
use crate::support::shell::symphony;
use crate::support::{TestDb, until};

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

/// Codes that stand in a file of the source, before its tests.
fn codes(file: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let is_code = |text: &&str| {
        text.len() > 4
            && text.starts_with(|c: char| c.is_ascii_uppercase())
            && text.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    };
    text.split(['"', '\'', '{', '}']).filter(is_code).map(str::to_owned).collect()
}

#[test]
fn the_page_has_every_code_that_a_client_of_an_app_can_hear() {
    let mut said = BTreeSet::new();
    for file in [
        "crates/symphony-server/src/apps/mod.rs",
        "crates/symphony-server/src/apps/answers.rs",
        "crates/symphony-server/src/apps/callers.rs",
        "crates/symphony-server/src/apps/routes.rs",
        "crates/symphony-server/src/http_server.rs",
        "crates/symphony/src/lanes/triggers/answer.rs",
        "crates/symphony/src/lanes/triggers/contention.rs",
        "crates/symphony/src/lanes/triggers/ended.rs",
        "crates/symphony/src/lanes/triggers/mod.rs",
        "crates/symphony/src/lanes/triggers/requests.rs",
        "crates/symphony-connect/src/http_client/endpoint.rs",
        "crates/symphony-connect/src/http_client/exchange.rs",
        "crates/symphony-connect/src/http_client/mod.rs",
        "crates/symphony-connect/src/http_client/tls.rs",
        "crates/symphony-connect/src/executors/http.rs",
        "crates/symphony-connect/src/executors/script/mod.rs",
        "crates/symphony-connect/src/executors/script/run.rs",
        "crates/symphony-connect/src/executors/script/threads.rs",
        "sql/functions/triggers/complete_trigger_outbox_attempts.sql",
        "sql/functions/triggers/complete_trigger_requests.sql",
        "sql/functions/triggers/delete_app.sql",
        "sql/functions/triggers/expire_trigger_reply.sql",
        "sql/functions/triggers/place_trigger.sql",
        "sql/functions/triggers/repair_trigger_outbox_leases.sql",
        "sql/functions/triggers/settle_triggers.sql",
    ] {
        said.extend(codes(file));
    }
    // Of tokens, which the API's door refuses.
    said.extend(["RATE_LIMITED".to_owned()]);
    for not_a_code in [
        // States, methods, and lines of logs.
        "DISPATCHED",
        "FAILED",
        "RETRYABLE",
        "OPTIONS",
        "SCRIPT_THREAD_STUCK",
        "CONCURRENCY_EVENT",
        "STALE",
        // Events of an item's story, and what a late completion is answered.
        "DELETED",
        "LEASE_EXPIRED_REPAIRED",
        "ZOMBIE_REQUEUE",
        // Bounds, and what PEM says.
        "HEADERS_MAX",
        "HEADER_BYTES_MAX",
        "CERTIFICATE",
        // Of mail that is sent, which no client waits for.
        "EMAIL_NOT_CONFIGURED",
        // Fired by scripts, never by a client.
        "TRIGGER_DEPTH_EXCEEDED",
    ] {
        said.remove(not_a_code);
    }
    assert!(said.len() > 30, "{said:?}");
    let (_, section) = PAGE.split_once("## What clients are told").unwrap();
    let (table, _) = section.split_once("\n## ").unwrap();
    let told: BTreeSet<String> = table
        .lines()
        .filter(|line| line.starts_with('|'))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .filter(|word| word.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
        .map(str::to_owned)
        .collect();
    let missing: Vec<_> = said.difference(&told).collect();
    assert!(missing.is_empty(), "not in the table: {missing:?}");
    let unknown: Vec<_> = told.difference(&said).collect();
    assert!(unknown.is_empty(), "nobody says: {unknown:?}");
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

/// One of the schema's definitions, compiled.
fn definition(name: &str, schemas: &mut Schemas) -> boon::SchemaIndex {
    let mut compiler = Compiler::new();
    compiler.add_resource("app.json", serde_json::from_str(SCHEMA).unwrap()).unwrap();
    compiler.compile(&format!("app.json#/$defs/{name}"), schemas).unwrap()
}

#[tokio::test]
async fn the_schema_describes_what_every_kind_of_trigger_hands_over() {
    let db = TestDb::new().await;
    let say = "export default (request) => { log(JSON.stringify(request)); \
               if (request.payload.operation === 'delete') throw new Error('a dead letter'); return 'said' }";
    let mut triggers: Vec<Value> = [
        ("kv", "*"),
        ("pubsub", "news"),
        ("queue", "jobs"),
        ("email", "orders@example.com"),
        ("dead_letter", "*"),
    ]
    .iter()
    .map(|(kind, filter)| {
        json!({"name": kind, "kind": kind, "filter": filter, "script": "say", "attempts": 1, "backoffSeconds": [0]})
    })
    .collect();
    triggers.push(json!({"name": "cron", "kind": "cron", "filter": "* * * * *", "script": "say"}));
    let manifest = json!({
        "scripts": [{"name": "say", "source": say}], "topics": ["news"], "queues": ["jobs"],
        "routes": [{"method": "POST", "path": "/{id}/{*rest}", "script": "say"},
                   {"method": "PUT", "path": "/raw", "script": "say", "rawBody": true},
                   {"method": "GET", "path": "/", "script": "say"}],
        "triggers": triggers,
    });
    db.push("shop", &manifest).await;
    let platform = Platform::start(&db).await;
    for (method, path, body) in
        [("POST", "a/b/c?x=1", r#"{"n": 1}"#), ("PUT", "raw", "bytes"), ("GET", "", "")]
    {
        let path = format!("/apps/shop/{path}");
        assert_eq!(request(platform.http(), method, &path, body).await.unwrap().status, 200);
    }
    db.kv_set("shop", "a", &json!({"n": 1})).await;
    db.kv_set("shop", "a", &json!(2)).await;
    db.one_as::<bool>("symphony_ingest", "SELECT kv_delete('shop', 'a') IS NULL").await;
    db.send("shop", "jobs", &json!("work")).await;
    db.one_as::<i32>("symphony_ingest", "SELECT publish_topic('shop', 'news', '{}')").await;
    for mail in [
        "From: Ann <ann@example.com>\r\nTo: orders@example.com\r\nSubject: hello\r\nDate: Sun, 15 Nov 2026 10:00:00 +0100\r\n\
         MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/html\r\n\r\n<p>\r\n\
         --b\r\nContent-Type: application/pdf\r\nContent-Disposition: attachment; filename=a.pdf\r\n\r\nx\r\n--b--\r\n",
        "X: y\r\n\r\n",
    ] {
        let kept = request(platform.http(), "POST", "/mail/orders@example.com", mail).await;
        assert_eq!(kept.unwrap().status, 204);
    }
    let kinds = "SELECT count(DISTINCT source_kind) FROM trigger_outbox_executions";
    db.sql("UPDATE trigger_cron SET next_tick_at = clock_timestamp() - interval '1 minute'").await;
    until("each kind has run", async || db.one::<i64>(kinds).await == 7).await;
    until("all have ended", async || {
        db.is_idle().await && db.count("trigger_outbox_executions").await >= 12
    })
    .await;
    let mut schemas = Schemas::new();
    let seen = definition("request", &mut schemas);
    let rows = "SELECT jsonb_agg(jsonb_build_object('kind', source_kind, 'payload', payload, 'logs', logs)) FROM trigger_outbox_executions";
    let rows: Value = db.one(rows).await;
    for row in rows.as_array().unwrap() {
        let kind = row["kind"].as_str().unwrap();
        let payload = definition(&format!("{kind}Payload"), &mut schemas);
        let told = schemas.validate(&row["payload"], payload);
        assert!(told.is_ok(), "{kind}: {}\n{}", row["payload"], told.unwrap_err());
        let said = row["logs"][0]["message"].as_str().unwrap();
        let given: Value = serde_json::from_str(said).unwrap();
        let told = schemas.validate(&given, seen);
        assert!(told.is_ok(), "{kind}: {given}\n{}", told.unwrap_err());
        // Nothing is there that it does not name, and each kind has its own payload.
        let mut other = row["payload"].clone();
        other["zzz"] = json!(1);
        assert!(schemas.validate(&other, payload).is_err(), "{kind}");
        let mut other = given.clone();
        other["sourceKind"] = json!(if kind == "cron" { "kv" } else { "cron" });
        assert!(schemas.validate(&other, seen).is_err(), "{kind}");
    }
    platform.stop().await;
}

#[tokio::test]
async fn the_schema_is_printed_without_a_database() {
    let told = symphony("postgres://nobody@127.0.0.1:1/none", &[], "app schema", &[], "").await;
    assert_eq!((told.ok, told.output.as_str()), (true, SCHEMA));
}
