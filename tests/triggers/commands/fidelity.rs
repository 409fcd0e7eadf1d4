//! What the database would refuse is refused by `app test`, too: the same code and the same words.

use serde_json::{Value, json};

use super::super::apps::Platform;
use super::Folder;
use crate::support::TestDb;
use crate::support::shell::{dana, dana_with};
use crate::triggers::apps::{request, request_with};

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
    // Their text is longer in the database, which writes a space after each comma.
    ("kv.set('many', Array(90000).fill(1))", "EFFECT_REFUSED"),
    ("queue.send('jobs', Array(90000).fill(1))", "EFFECT_REFUSED"),
    ("queue.send('jobs', Array(45000).fill({ '': 1 }))", "EFFECT_REFUSED"),
    ("email.send({ to: 'a@b,c', subject: 's', text: 't' })", "EFFECT_REFUSED"),
    ("email.send({ to: 'a@b', cc: ['a@b', 'a@b;c'], subject: 's', text: 't' })", "EFFECT_REFUSED"),
    ("email.send({ to: 'a@b', replyTo: 'a@b@c', subject: 's', text: 't' })", "EFFECT_REFUSED"),
    ("email.send({ to: 'a@b', subject: 'x'.repeat(999), text: 't' })", "EFFECT_REFUSED"),
    ("email.send({ to: 'a@b', subject: 's', text: 'x'.repeat(300000) })", "EFFECT_REFUSED"),
    ("queue.send('absent', 1); kv.increment('text')", "EFFECT_REFUSED"),
    ("return { status: 99 }", "BAD_STATUS"),
    ("return { status: 200, headers: { 'a b': 'c' } }", "BAD_HEADER"),
    ("return { status: 200, bodyBase64: 'x' }", "BAD_BODY"),
    (
        "const headers = {}; for (let n = 0; n < 101; n++) headers['x' + n] = ''; return { status: 200, headers }",
        "BAD_HEADER",
    ),
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
        assert_eq!(difference["what"], "error", "{body}");
        assert_eq!(difference["found"], json!(there), "{body}");
        assert_eq!(
            here[index]["differences"].as_array().unwrap().len(),
            1,
            "{body}: nothing is applied here either"
        );
    }
    platform.stop().await;
}

/// What a script sees of its request.
const SEES: &str = "export default (request) => {
    const { payload, headers } = request;
    const tried = (ask) => { try { return ask() } catch (error) { return error.name } };
    return { status: 200, body: {
        method: payload.method, path: payload.path, params: payload.params, query: payload.query,
        body: payload.body, bodyBase64: payload.bodyBase64,
        text: tried(() => request.text()), json: tried(() => request.json()), bytes: tried(() => request.bytes().length),
        names: [...request.query.keys()], cookies: request.cookies,
        own: [payload.headers['x-own'], headers.get('X-Own')], kind: headers.get('content-type'),
        stored: ['authorization', 'cookie', 'proxy-authorization', 'te'].map((name) => payload.headers[name]),
        asked: ['authorization', 'cookie', 'proxy-authorization', 'te'].map((name) => headers.get(name)?.length),
        notStored: payload.headersNotStored,
    } };
};";

#[tokio::test]
async fn a_script_sees_the_same_request_here_and_there() {
    let db = TestDb::new().await;
    let both = ["GET", "POST"]
        .map(|method| json!({"method": method, "path": "/see/{id}", "script": "see"}));
    let app =
        json!({"name": "shop", "scripts": [{"name": "see", "file": "see.js"}], "routes": both});
    let folder =
        Folder::new(&[("app.json", app.to_string().as_bytes()), ("see.js", SEES.as_bytes())]);
    let pushed = dana(&db, &format!("app push {}", folder.path())).await;
    assert!(pushed.ok, "{}", pushed.error);
    let platform = Platform::start(&db).await;
    for (line, headers, body, payload) in [
        ("GET /apps/shop/see/a", "", "", json!({"params": {"id": "a"}})),
        (
            "GET /apps/shop/see/b%20c?x=1&x=2",
            "",
            "",
            json!({"path": "/see/b%20c", "params": {"id": "b c"}, "query": {"x": "2"}, "queryString": "x=1&x=2"}),
        ),
        (
            "POST /apps/shop/see/a",
            "Content-Type: application/json\r\n",
            r#"{"n":[1,"two"]}"#,
            json!({"method": "POST", "params": {"id": "a"}, "body": {"n": [1, "two"]}}),
        ),
        (
            "POST /apps/shop/see/a",
            "Content-Type: Application/Problem+JSON; charset=utf-8\r\n",
            r#""text""#,
            json!({"method": "POST", "params": {"id": "a"}, "body": "text",
                   "headers": {"Content-Type": "Application/Problem+JSON; charset=utf-8"}}),
        ),
        (
            "POST /apps/shop/see/a",
            "",
            r#"{"n": 1}"#,
            json!({"method": "POST", "params": {"id": "a"}, "body": "{\"n\": 1}"}),
        ),
        (
            "GET /apps/shop/see/a",
            "Authorization: Bearer hush\r\nCookie: a=1; b=\"2\"; a=3\r\nProxy-Authorization: hush\r\nTE: trailers\r\nX-Own: 1\r\n",
            "",
            json!({"params": {"id": "a"}, "headers": {
                "Authorization": "Bearer hush", "Cookie": "a=1; b=\"2\"; a=3", "Proxy-Authorization": "hush",
                "TE": "trailers", "X-Own": "1"}}),
        ),
    ] {
        let there = request_with(platform.http(), line, headers, body).await.unwrap();
        assert_eq!(there.status, 200, "{line}: {}", there.body);
        let written = json!({ "payload": payload }).to_string();
        let command = format!("app run see --folder {} --json", folder.path());
        let here = dana_with(&db, &command, &["--request", &written], "").await;
        assert!(here.ok, "{payload}: {}{}", here.output, here.error);
        assert_eq!(here.document()["answer"]["body"], there.json(), "{payload}");
    }
    platform.stop().await;
}

#[tokio::test]
async fn numbers_are_added_here_as_they_are_there() {
    let db = TestDb::new().await;
    let app = json!({"name": "shop", "scripts": [{"name": "add", "file": "add.js"}],
                     "routes": [{"method": "GET", "path": "/{key}/{by}", "script": "add"}]});
    let add = b"export default ({ payload: { params } }) => { kv.increment(params.key, Number(params.by)) }";
    let folder = Folder::new(&[("app.json", app.to_string().as_bytes()), ("add.js", add)]);
    assert!(dana(&db, &format!("app push {}", folder.path())).await.ok);
    let platform = Platform::start(&db).await;
    let numbers = [
        "1.5",
        "-1.5",
        "0.10",
        "-0.10",
        "1e3",
        "1.5e1",
        "25e-1",
        "-1",
        "9.99",
        "-9.99",
        "0",
        "-0",
        "0.0",
        "9223372036854775807",
        "-9223372036854775808",
        "123456789012345678901234567890.5",
        "1e40",
    ];
    for (n, number) in numbers.iter().enumerate() {
        for by in ["1", "-1", "9007199254740991"] {
            let key = format!("n{n}");
            let entry = format!(
                "INSERT INTO kv_entries (app_id, key, value) SELECT id, '{key}', '{number}' FROM apps \
                 ON CONFLICT (app_id, key) DO UPDATE SET value = excluded.value"
            );
            db.sql(&entry).await;
            let line = format!("/apps/shop/{key}/{by}");
            assert_eq!(request(platform.http(), "GET", &line, "").await.unwrap().status, 200);
            let there = db.entry("shop", &key).await.unwrap();
            let given = json!({"payload": {"params": {"key": key, "by": by}}}).to_string();
            let command = format!("app run add --folder {}", folder.path());
            let entries = format!("{{\"{key}\": {number}}}");
            let here = dana_with(&db, &command, &["--request", &given, "--kv", &entries], "").await;
            let expected = format!("entry {key} {there}\nanswer null\n");
            assert_eq!(here.output, expected, "{number} and {by}: {}", here.error);
        }
    }
    platform.stop().await;
}

#[tokio::test]
async fn a_case_sees_how_long_entries_are_there() {
    let app = br#"{"name": "shop", "scripts": [{"name": "keep", "file": "keep.js"}]}"#;
    let script = b"export default () => {
        kv.set('a', 1, { ttlSeconds: 60 });
        kv.set('b', 1, { ttlSeconds: 60 }); kv.set('b', 2);
        kv.increment('c', 1, { ttlSeconds: 70 }); kv.increment('c', 1);
        kv.increment('old', 1, { ttlSeconds: 80 });
        kv.setIfAbsent('d', 1, { ttlSeconds: 90 });
        kv.set('e', 1, { ttlSeconds: 60 }); kv.delete('e');
    }";
    let cases = br#"[{"name": "right", "script": "keep", "kv": {"old": 1}, "expect": {"ttlSeconds": {"a": 60, "c": 70, "d": 90}}},
                     {"name": "wrong", "script": "keep", "kv": {"old": 1}, "expect": {"ttlSeconds": {}}}]"#;
    let folder = Folder::new(&[("app.json", app), ("keep.js", script), ("tests/a.json", cases)]);
    let url = "postgres://nobody@127.0.0.1:1/none";
    let path = folder.path();
    let told =
        crate::support::shell::symphony(url, &[], &format!("app test {path}"), &[], "").await;
    assert_eq!(
        told.output,
        "ok      tests/a.json: right\n\
         FAILED  tests/a.json: wrong\n  \
           ttlSeconds: expected {}, found {\"a\":60,\"c\":70,\"d\":90}\n\
         1 passed, 1 failed\n",
        "{}",
        told.error
    );
    let told = crate::support::shell::symphony(
        url,
        &[],
        &format!("app run keep --folder {path}"),
        &[],
        "",
    )
    .await;
    assert!(told.output.contains("entry a 1, for 60 seconds\nentry b 2\n"), "{}", told.output);
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
