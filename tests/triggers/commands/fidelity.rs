//! What the database would refuse is refused by `app test`, too: the same code and the same words.

use serde_json::{Value, json};

use super::super::apps::Platform;
use super::Folder;
use crate::support::TestDb;
use crate::support::shell::dana;
use crate::triggers::apps::request;

/// A script's body, and the code with which it ends.
const MISTAKES: &[(&str, &str)] = &[
    ("queue.send('absent', 1)", "EFFECT_REFUSED"),
    ("queue.send('Not declared', 1)", "EFFECT_REFUSED"),
    ("pubsub.publish('absent', 1)", "EFFECT_REFUSED"),
    ("pubsub.publish('jobs', 1)", "EFFECT_REFUSED"),
    ("kv.set('n', 'text'); kv.increment('n')", "SCRIPT_ERROR"),
    ("kv.increment('text')", "EFFECT_REFUSED"),
    ("kv.set('large', 'x'.repeat(300000))", "EFFECT_REFUSED"),
    ("queue.send('jobs', 'x'.repeat(300000))", "EFFECT_REFUSED"),
    ("email.send({ to: 'a@b,c', subject: 's', text: 't' })", "EFFECT_REFUSED"),
    ("email.send({ to: 'a@b', cc: ['a@b', 'a@b;c'], subject: 's', text: 't' })", "EFFECT_REFUSED"),
    ("email.send({ to: 'a@b', replyTo: 'a@b@c', subject: 's', text: 't' })", "EFFECT_REFUSED"),
    ("email.send({ to: 'a@b', subject: 'x'.repeat(999), text: 't' })", "EFFECT_REFUSED"),
    ("email.send({ to: 'a@b', subject: 's', text: 'x'.repeat(300000) })", "EFFECT_REFUSED"),
    ("queue.send('absent', 1); kv.increment('text')", "EFFECT_REFUSED"),
    ("return { status: 99 }", "BAD_STATUS"),
    ("return { status: 200, headers: { 'a b': 'c' } }", "BAD_HEADER"),
    ("return { status: 200, bodyBase64: 'x' }", "BAD_BODY"),
];

#[tokio::test]
async fn every_mistake_fails_here_as_it_fails_there() {
    let db = TestDb::new().await;
    let mut files = Vec::new();
    let mut scripts = Vec::new();
    let mut routes = Vec::new();
    let mut cases = Vec::new();
    for (index, (body, code)) in MISTAKES.iter().enumerate() {
        let (name, file) = (format!("s{index}"), format!("s{index}.js"));
        files.push((file.clone(), format!("export default () => {{ {body} }}").into_bytes()));
        scripts.push(json!({"name": name, "file": file}));
        routes.push(json!({"method": "GET", "path": format!("/{name}"), "script": name}));
        cases.push(json!({"name": name, "script": name, "kv": {"text": "so"}, "expect": {"answer": 0, "error": null, "kv": {"text": "so"}, "effects": []}}));
        assert!(!code.is_empty());
    }
    let manifest =
        json!({"name": "shop", "scripts": scripts, "routes": routes, "queues": ["jobs"]});
    files.push(("app.json".into(), manifest.to_string().into_bytes()));
    files.push(("tests/all.json".into(), Value::Array(cases).to_string().into_bytes()));
    let files: Vec<(&str, &[u8])> =
        files.iter().map(|(name, text)| (name.as_str(), text.as_slice())).collect();
    let folder = Folder::new(&files);
    let pushed = dana(&db, &format!("app push {}", folder.path())).await;
    assert!(pushed.ok, "{}", pushed.error);
    db.kv_set("shop", "text", &json!("so")).await;
    let here = dana(&db, &format!("app test {} --json", folder.path())).await.document();
    let platform = Platform::start(&db).await;
    for (index, (body, code)) in MISTAKES.iter().enumerate() {
        let answer =
            request(platform.http(), "GET", &format!("/apps/shop/s{index}"), "").await.unwrap();
        assert!(answer.status >= 500 && answer.body.contains(code), "{body}: {}", answer.body);
        let there: String = db
            .one(&format!("SELECT error_code || ': ' || error_message FROM trigger_outbox_executions WHERE script_name = 's{index}'"))
            .await;
        let difference = &here[index]["differences"][0];
        assert_eq!(difference["what"], "error", "{body}: {}", here[index]);
        assert_eq!(difference["found"], json!(there), "{body}");
        assert_eq!(
            here[index]["differences"].as_array().unwrap().len(),
            1,
            "{body}: nothing is applied here either"
        );
    }
    platform.stop().await;
}

#[tokio::test]
async fn a_case_and_a_file_have_secrets_and_none_is_printed() {
    let app = br#"{"name": "shop", "scripts": [{"name": "use", "file": "use.js"}]}"#;
    let script = b"export default () => { log('has', secrets.api); return secrets.api.length }";
    let cases = br#"[{"name": "own", "script": "use", "secrets": {"api": "canary-of-a-case"}, "expect": {"answer": 16, "logs": ["has [secret api]"]}},
                     {"name": "none", "script": "use", "secrets": {}, "expect": {"error": "SCRIPT_ERROR"}},
                     {"name": "of the file", "script": "use", "expect": {"answer": 13}}]"#;
    let file = br#"{"api": "canary-a-file"}"#;
    let folder = Folder::new(&[
        ("app.json", app),
        ("use.js", script),
        ("tests/a.json", cases),
        ("secrets.json", file),
    ]);
    let alone = async |line: &str| {
        let url = "postgres://nobody@127.0.0.1:1/none";
        crate::support::shell::symphony(url, &[], line, &[], "").await
    };
    let path = folder.path();
    let told = alone(&format!("app test {path} --secret-file {path}/secrets.json")).await;
    assert!(told.ok, "{}{}", told.output, told.error);
    let told =
        alone(&format!("app run use --folder {path} --secret-file {path}/secrets.json")).await;
    assert_eq!(told.output, "info: has [secret api]\nanswer 13\n", "{}", told.error);
    folder.rewrite("secrets.json", |_| "{\"api\": 7}".to_owned());
    let told =
        alone(&format!("app run use --folder {path} --secret-file {path}/secrets.json")).await;
    assert!(told.error.contains("must be a JSON object of names and texts"), "{}", told.error);
    folder.rewrite("secrets.json", |_| "{\"api\": \"short\"}".to_owned());
    let told =
        alone(&format!("app run use --folder {path} --secret-file {path}/secrets.json")).await;
    assert!(told.error.contains("secrets.api must be 8 to 16384 bytes"), "{}", told.error);
}
