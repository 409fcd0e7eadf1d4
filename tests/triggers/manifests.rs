//! What a manifest must be: a defect is named by its field, and nothing has changed.

use serde_json::{Value, json};

use super::{quoted, script};
use crate::support::TestDb;

/// A whole app, in which one thing is then made wrong.
fn whole() -> Value {
    json!({
        "scripts": [script("run"), {"name": "far", "url": "https://example.com/run", "timeoutMs": 500}],
        "routes": [{"method": "GET", "path": "/orders/{id}", "script": "run", "mode": "async", "waitMs": 100, "attempts": 2, "backoffSeconds": [1]}],
        "triggers": [
            {"name": "t", "kind": "kv", "filter": "a*", "script": "run", "attempts": 2, "backoffSeconds": [0, 1]},
            {"name": "c", "kind": "cron", "filter": "* * * * *", "script": "far", "timeZone": "Europe/Berlin", "missed": "catch_up"}
        ],
        "topics": ["news"],
        "queues": ["jobs"]
    })
}

/// Where, what it is made, and how the refusal begins. A null in the middle is a JSON null, `()` takes the member away.
fn defects() -> Vec<(&'static str, Option<Value>, &'static str)> {
    let long = "x".repeat(101);
    vec![
        ("/extra", Some(json!(1)), "extra is not known"),
        ("/scripts", Some(json!({})), "scripts must be an array"),
        ("/scripts", Some(Value::Null), "scripts must be an array"),
        ("/routes", Some(json!("all")), "routes must be an array"),
        ("/triggers", Some(json!(7)), "triggers must be an array"),
        ("/topics", Some(json!({"a": 1})), "topics must be an array"),
        ("/queues", Some(json!(true)), "queues must be an array"),
        ("/queues", Some(json!(vec!["q"; 1001])), "queues has more than 1000 entries"),
        ("/topics", Some(json!([1])), "topics must be names"),
        ("/topics", Some(json!([""])), "topics must be names"),
        ("/topics", Some(json!([null])), "topics must be names"),
        ("/queues", Some(json!(["a b"])), "queues must be names"),
        ("/queues", Some(json!([long])), "queues must be names"),
        ("/scripts/0", Some(json!("run")), "scripts[0] must be an object"),
        ("/routes/0", Some(Value::Null), "routes[0] must be an object"),
        ("/triggers/1", Some(json!([])), "triggers[1] must be an object"),
        ("/scripts/1/colour", Some(json!("red")), "scripts[1].colour is not known"),
        ("/routes/0/name", Some(json!("r")), "routes[0].name is not known"),
        ("/triggers/0/url", Some(json!("https://a")), "triggers[0].url is not known"),
        ("/scripts/0/name", Some(json!(1)), "scripts[0].name must be a string"),
        ("/scripts/0/name", None, "scripts[0].name must be letters"),
        ("/scripts/0/name", Some(json!("-run")), "scripts[0].name must be letters"),
        ("/scripts/0/name", Some(json!("r".repeat(101))), "scripts[0].name must be letters"),
        ("/scripts/1/name", Some(json!("run")), "triggers[1].script must name one of the scripts"),
        ("/scripts/2", Some(script("run")), "script run is there twice"),
        ("/routes/1", Some(whole()["routes"][0].clone()), "route GET /orders/{id} is there twice"),
        (
            "/routes/1",
            Some(json!({"method": "GET", "path": "/orders/{order}", "script": "run"})),
            "routes[1].path: GET /orders/{order} overlaps GET /orders/{id}: both match the same requests, keep one",
        ),
        (
            "/routes/1",
            Some(json!({"method": "GET", "path": "/orders/{*rest}", "script": "run"})),
            "routes[1].path: GET /orders/{*rest} overlaps GET /orders/{id}: both match",
        ),
        ("/scripts/0/source", None, "scripts[0] must have either source or url"),
        ("/scripts/0/url", Some(json!("https://a")), "scripts[0] must have either source or url"),
        ("/scripts/0/source", Some(json!(["x"])), "scripts[0].source must be a string"),
        ("/scripts/0/source", Some(json!("x".repeat(1_048_577))), "scripts[0].source is larger"),
        ("/scripts/1/url", Some(json!("ftp://a")), "scripts[1].url must begin with https://"),
        ("/scripts/1/timeoutMs", Some(json!(0)), "scripts[1].timeoutMs must be a whole number"),
        ("/scripts/1/timeoutMs", Some(json!(300_001)), "scripts[1].timeoutMs must be a whole"),
        ("/scripts/1/timeoutMs", Some(json!("500")), "scripts[1].timeoutMs must be a whole number"),
        ("/scripts/1/timeoutMs", Some(Value::Null), "scripts[1].timeoutMs must be a whole number"),
        ("/scripts/1/timeoutMs", Some(json!(1.5)), "scripts[1].timeoutMs must be a whole number"),
        ("/routes/0/method", None, "routes[0].method must be GET"),
        ("/routes/0/method", Some(json!("get")), "routes[0].method must be GET"),
        ("/routes/0/path", None, "routes[0].path must be a path"),
        ("/routes/0/path", Some(json!("orders")), "routes[0].path must be a path"),
        ("/routes/0/path", Some(json!("/a//b")), "routes[0].path must be a path"),
        ("/routes/0/path", Some(json!("/a?b=c")), "routes[0].path must be a path"),
        ("/routes/0/path", Some(json!("/{}")), "routes[0].path must be a path"),
        ("/routes/0/path", Some(json!("/{*rest}/more")), "routes[0].path must be a path"),
        ("/routes/0/path", Some(json!("/{rest*}")), "routes[0].path must be a path"),
        ("/routes/0/rawBody", Some(json!("yes")), "routes[0].rawBody must be true or false"),
        ("/cors", Some(json!(true)), "cors must be an object"),
        ("/cors", Some(json!({})), "cors.origins must be 1 to 100 origins"),
        ("/cors", Some(json!({"origins": []})), "cors.origins must be 1 to 100 origins"),
        ("/cors", Some(json!({"origins": ["https://a.example/x"]})), "cors.origins must be 1 to"),
        ("/cors", Some(json!({"origins": ["*"], "colour": 1})), "cors.colour is not known"),
        ("/cors", Some(json!({"origins": ["*"], "methods": ["get"]})), "cors.methods must be 1"),
        ("/cors", Some(json!({"origins": ["*"], "headers": ["a b"]})), "cors.headers must be 1"),
        ("/cors", Some(json!({"origins": ["*"], "credentials": 1})), "cors.credentials must be"),
        (
            "/cors",
            Some(json!({"origins": ["*"], "credentials": true})),
            "cors.credentials must not",
        ),
        ("/cors", Some(json!({"origins": ["*"], "maxAgeSeconds": 86401})), "cors.maxAgeSeconds"),
        ("/routes/0/script", None, "routes[0].script must name one of the scripts"),
        ("/routes/0/script", Some(json!("gone")), "routes[0].script must name one of the scripts"),
        ("/routes/0/mode", Some(json!("later")), "routes[0].mode must be sync or async"),
        ("/routes/0/auth", Some(json!("basic")), "routes[0].auth must be none, token or hmac"),
        ("/routes/0/auth", Some(json!("hmac")), "routes[0].signature must be standard-webhooks"),
        ("/routes/0/secret", Some(json!("a")), "routes[0].signature and .secret are for auth hmac"),
        ("/routes/0/waitMs", Some(json!(-1)), "routes[0].waitMs must be a whole number"),
        (
            "/routes/0/attempts",
            Some(json!(21)),
            "routes[0].attempts must be a whole number from 1 to 20",
        ),
        ("/routes/0/backoffSeconds", Some(json!([])), "routes[0].backoffSeconds must be 1 to 20"),
        ("/triggers/0/backoffSeconds", Some(json!(5)), "triggers[0].backoffSeconds must be 1 to"),
        ("/triggers/0/backoffSeconds", Some(json!([1, null])), "triggers[0].backoffSeconds must"),
        ("/triggers/0/backoffSeconds", Some(json!(["1"])), "triggers[0].backoffSeconds must be"),
        ("/triggers/0/backoffSeconds", Some(json!([-1])), "triggers[0].backoffSeconds must be"),
        ("/triggers/0/backoffSeconds", Some(json!(vec![1; 21])), "triggers[0].backoffSeconds must"),
        ("/triggers/0/name", Some(json!("c")), "trigger c is there twice"),
        ("/triggers/0/name", None, "triggers[0].name must be letters"),
        ("/triggers/0/kind", Some(json!("http")), "triggers[0].kind must be kv"),
        ("/triggers/0/kind", None, "triggers[0].kind must be kv"),
        ("/triggers/0/filter", None, "triggers[0].filter must say which"),
        ("/triggers/0/filter", Some(json!("")), "triggers[0].filter must say which"),
        ("/triggers/0/filter", Some(json!("f".repeat(513))), "triggers[0].filter must say which"),
        ("/triggers/0/script", Some(json!("gone")), "triggers[0].script must name one of the"),
        (
            "/triggers/0/timeZone",
            Some(json!("UTC")),
            "triggers[0].timeZone and .missed are for cron",
        ),
        (
            "/triggers/0/missed",
            Some(json!("skip")),
            "triggers[0].timeZone and .missed are for cron",
        ),
        ("/triggers/1/timeZone", Some(json!("Berlin")), "triggers[1].timeZone is not known"),
        ("/triggers/1/timeZone", Some(Value::Null), "triggers[1].timeZone must be a string"),
        ("/triggers/1/missed", Some(json!("all")), "triggers[1].missed must be skip or catch_up"),
    ]
}

/// The manifest with the member at a pointer set, or taken away.
fn made_wrong(at: &str, value: Option<Value>) -> Value {
    let mut manifest = whole();
    let (parent, name) = at.rsplit_once('/').unwrap();
    match (manifest.pointer_mut(parent).unwrap(), value) {
        (Value::Array(list), Some(value)) => {
            let place = name.parse::<usize>().unwrap();
            list.resize(list.len().max(place + 1), Value::Null);
            list[place] = value;
        }
        (Value::Object(members), Some(value)) => {
            members.insert(name.to_owned(), value);
        }
        (Value::Object(members), None) => {
            members.remove(name).unwrap();
        }
        other => panic!("{at}: {other:?}"),
    }
    manifest
}

const EVERYTHING: &str = "SELECT md5(concat(\
    (SELECT jsonb_agg(to_jsonb(x) ORDER BY id) FROM apps x), (SELECT jsonb_agg(to_jsonb(x) ORDER BY id) FROM scripts x), \
    (SELECT jsonb_agg(to_jsonb(x) ORDER BY id) FROM routes x), (SELECT jsonb_agg(to_jsonb(x) ORDER BY id) FROM triggers x), \
    (SELECT jsonb_agg(to_jsonb(x) ORDER BY name) FROM topics x), (SELECT jsonb_agg(to_jsonb(x) ORDER BY name) FROM queues x), \
    (SELECT jsonb_agg(to_jsonb(x) ORDER BY trigger_id) FROM trigger_cron x)))";

#[tokio::test]
async fn a_defect_of_a_manifest_is_named_by_its_field_and_changes_nothing() {
    let db = TestDb::new().await;
    assert_eq!(db.push("shop", &whole()).await, 2);
    let before: String = db.one(EVERYTHING).await;
    let defects = defects();
    assert!(defects.len() >= 40);
    for (at, value, expected) in defects {
        let push =
            format!("SELECT push_app('shop', {}, 'dana')", quoted(&made_wrong(at, value.clone())));
        let refusal = db.refusal("symphony_operator", &push).await;
        assert!(refusal.starts_with(&format!("P7005 {expected}")), "{at} {value:?}: {refusal}");
        assert!(!refusal.contains("xxxxx"), "{at}: a refusal repeats no contents");
    }
    assert_eq!(db.one::<String>(EVERYTHING).await, before);
    assert_eq!(db.count("trigger_outbox_events").await, 1);
}

#[tokio::test]
async fn routes_that_share_a_beginning_or_a_method_alone_are_no_overlap() {
    let db = TestDb::new().await;
    let route = |method: &str, path: &str| json!({"method": method, "path": path, "script": "run"});
    let manifest = json!({
        "scripts": [script("run")],
        "routes": [
            route("GET", "/orders/{id}"), route("GET", "/orders/new"), route("PUT", "/orders/{order}"),
            route("GET", "/orders/{order}/lines"), route("GET", "/files/{*rest}"), route("GET", "/files/index"),
            route("GET", "/files"), route("GET", "/filesystems/{id}"),
        ],
    });
    assert_eq!(db.push("shop", &manifest).await, 1);
    assert_eq!(db.count("routes").await, 8);
}

#[tokio::test]
async fn a_push_is_refused_for_its_other_arguments_too() {
    let db = TestDb::new().await;
    let role = "symphony_operator";
    for (arguments, expected) in [
        ("'Shop', '{}', 'dana'", "P7005 p_app must be a name for a URL"),
        ("'1shop', '{}', 'dana'", "P7005 p_app must be a name for a URL"),
        ("NULL, '{}', 'dana'", "P7005 p_app must be a name for a URL"),
        ("repeat('a', 64), '{}', 'dana'", "P7005 p_app must be a name for a URL"),
        ("'shop', '{}', ' '", "P7005 p_actor is blank"),
        ("'shop', NULL, 'dana'", "P7005 p_manifest must be a JSON object"),
        ("'shop', '[]', 'dana'", "P7005 p_manifest must be a JSON object"),
    ] {
        let refusal = db.refusal(role, &format!("SELECT push_app({arguments})")).await;
        assert!(refusal.starts_with(expected), "{arguments}: {refusal}");
    }
    let refusal = db
        .refusal(
            role,
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT push_app('shop', '{}', 'dana')",
        )
        .await;
    assert!(refusal.starts_with("P7005 transaction_isolation"), "{refusal}");
    assert_eq!(db.count("apps").await, 0);
    assert_eq!(db.push("shop", &json!({})).await, 0, "an app may be empty");
}

#[tokio::test]
async fn a_push_twice_changes_nothing() {
    let db = TestDb::new().await;
    db.push("shop", &whole()).await;
    let before: String = db.one(EVERYTHING).await;
    assert_eq!(db.push("shop", &whole()).await, 0);
    assert_eq!(db.one::<String>(EVERYTHING).await, before);
}
