//! Pushing a folder: what it says it changed, and every kind of bad folder.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;

use super::{Folder, ORDERS, app, says};
use crate::support::TestDb;

#[tokio::test]
async fn a_push_says_what_it_changed_and_when_nothing_did() {
    let db = TestDb::new().await;
    assert_eq!(says(&db, "list").await, "there is no app yet: symphony app push DIR\n");
    assert_eq!(
        says(&db, &format!("push {ORDERS}")).await,
        "created app orders: 6 scripts, 2 routes, 4 triggers, 1 queue\n"
    );
    assert_eq!(
        says(&db, &format!("push {ORDERS}")).await,
        "app orders is so already: nothing changed\n"
    );
    let folder = Folder::orders();
    folder.rewrite("scripts/count-orders.js", |text| text + "// more\n");
    folder.rewrite("app.json", |text| {
        text.replace("\"attempts\": 3", "\"attempts\": 4")
            .replace("\"/orders/{id}\"", "\"/order/{id}\"")
            .replace("\"queues\"", "\"topics\": [\"news\"], \"queues\"")
    });
    assert_eq!(
        says(&db, &format!("push {}", folder.path())).await,
        "pushed app orders:\n  changed script count-orders, version 2\n  new route GET /order/{id}\n  \
         changed trigger receipts\n  new topic news\n  gone route GET /orders/{id}\n"
    );
    let told = app(&db, &format!("push {} --json", folder.path())).await.json();
    assert_eq!(
        (&told["app"], &told["created"], &told["scripts_changed"], &told["changes"]),
        (&json!("orders"), &json!(false), &json!(0), &json!([]))
    );
    let told = app(&db, &format!("push {ORDERS} --json")).await.json();
    assert_eq!(
        told["changes"][0],
        json!({"what": "changed", "kind": "script", "name": "count-orders", "version": 3})
    );
    let pushed: Vec<String> =
        db.one("SELECT array_agg(event_type || ' ' || actor) FROM trigger_outbox_events").await;
    assert_eq!(pushed, ["PUSHED dana"; 5]);
}

#[tokio::test]
async fn an_app_is_named_by_the_option_or_by_its_file_or_by_its_folder() {
    let db = TestDb::new().await;
    let nested =
        Folder::new(&[("shop-7/app.json", b"{}"), ("other/app.json", br#"{"name": "mine"}"#)]);
    let told = says(&db, &format!("push {}/shop-7/", nested.path())).await;
    assert_eq!(told, "created app shop-7: it has nothing yet\n");
    assert!(says(&db, &format!("push {}/other", nested.path())).await.contains("app mine:"));
    let told = says(&db, &format!("push {}/other --name yours", nested.path())).await;
    assert!(told.contains("app yours:"), "{told}");
    let told = says(&db, "list").await;
    assert_eq!(told.lines().count(), 4, "{told}");
    let told = app(&db, &format!("push {}/other --name No␣Name", nested.path())).await;
    assert_eq!(
        told.error,
        "symphony: the app's name must be a name for a URL: lowercase letters, digits and hyphens, a letter first, \
         at most 63 [P7005: docs/errors/shared/P7005.md]\n"
    );
}

#[tokio::test]
async fn a_bad_folder_is_one_clear_line_that_names_the_field() {
    let db = TestDb::new().await;
    let script = |file: &str| format!(r#"{{"scripts": [{{"name": "x", "file": "{file}"}}]}}"#);
    let trigger = |fields: &str| {
        format!(
            r#"{{"scripts": [{{"name": "x", "file": "x.js"}}], "triggers": [{{"name": "t", "script": "x", {fields}}}]}}"#
        )
    };
    let routes = |first: &str, second: &str| {
        format!(
            r#"{{"scripts": [{{"name": "x", "file": "x.js"}}], "routes": [
                {{"method": "GET", "path": "{first}", "script": "x"}},
                {{"method": "GET", "path": "{second}", "script": "x"}}]}}"#
        )
    };
    let cases: Vec<(String, &str)> = vec![
        (
            routes("/orders/{id}", "/orders/{order}"),
            "/app.json: routes[1].path: GET /orders/{order} overlaps GET /orders/{id}: both match the \
             same requests, keep one [P7005",
        ),
        (
            routes("/orders", "/orders/n{id}x"),
            "/app.json: routes[1].path: /orders/n{id}x has a parameter that is not a whole segment such \
             as {id} [P7005",
        ),
        (
            "{".into(),
            "/app.json is not valid JSON: line 1, column 1: EOF while parsing an object\n",
        ),
        (
            "{\n \"name\": secret}".into(),
            "/app.json is not valid JSON: line 2, column 10: expected value\n",
        ),
        (
            String::new(),
            "/app.json is not valid JSON: line 1, column 0: EOF while parsing a value\n",
        ),
        (
            r#"{"queues": ["secret"], "queues": []}"#.into(),
            ": queues is there twice: readers would disagree on its value\n",
        ),
        (
            r#"{"queues": ["\u0000"]}"#.into(),
            ": queues[0] has a NUL character (\\u0000), which no database can keep\n",
        ),
        ("[]".into(), "/app.json: it must be a JSON object [P7005"),
        (r#"{"name": 7}"#.into(), "/app.json: name must be a string [P7005"),
        (
            r#"{"script": []}"#.into(),
            "/app.json: script is not known: it has $schema, name, scripts, routes, triggers, topics, queues, cors, retention [P7005",
        ),
        (r#"{"scripts": {}}"#.into(), "/app.json: scripts must be an array [P7005"),
        (r#"{"scripts": [7]}"#.into(), "/app.json: scripts[0] must be an object [P7005"),
        (
            r#"{"scripts": [{"name": "x", "source": "secret"}]}"#.into(),
            "scripts[0].source is not known: put it into a file, and name that in file [P7005",
        ),
        (
            r#"{"scripts": [{"name": "x", "files": "x.js"}]}"#.into(),
            "scripts[0].files is not known: a script has name, file, url, timeoutMs [P7005",
        ),
        (
            r#"{"scripts": [{"name": "x"}]}"#.into(),
            "scripts[0] must have either file or url [P7005",
        ),
        (
            r#"{"scripts": [{"name": "x", "file": "x.js", "url": "https://x"}]}"#.into(),
            "scripts[0] must have either file or url [P7005",
        ),
        (
            r#"{"scripts": [{"name": "x", "file": 7}]}"#.into(),
            "scripts[0].file must be a string [P7005",
        ),
        (
            r#"{"scripts": [{"name": "x", "url": "ftp://x"}]}"#.into(),
            "/app.json: scripts[0].url must begin with https:// or http:// [P7005",
        ),
        (script("no.js"), "scripts[0].file: \"no.js\" is missing [P7005"),
        (
            script(""),
            "scripts[0].file: \"\" must be a path inside the folder, such as scripts/order.js [P7005",
        ),
        (
            script("../x.js"),
            "scripts[0].file: \"../x.js\" must be a path inside the folder, such as scripts/order.js [P7005",
        ),
        (
            script("scripts/../x.js"),
            "scripts[0].file: \"scripts/../x.js\" must be a path inside the folder",
        ),
        (
            script("/etc/passwd"),
            "scripts[0].file: \"/etc/passwd\" must be a path inside the folder",
        ),
        (
            script("out.js"),
            "scripts[0].file: \"out.js\" is a link that leads out of the folder [P7005",
        ),
        (script("scripts"), "scripts[0].file: \"scripts\" is not a file [P7005"),
        (script("latin.js"), "scripts[0].file: \"latin.js\" is not UTF-8 text [P7005"),
        (script("nul.js"), "scripts[0].file: \"nul.js\" has a NUL character [P7005"),
        (script("large.js"), "scripts[0].file: \"large.js\" is larger than 1 MiB [P7005"),
        (
            script("wrong.js"),
            "/app.json: scripts[0]: wrong.js:2:13: unexpected token in expression: ';', in `return 1 +;` [P7005",
        ),
        (
            script("./imports.js"),
            "scripts[0]: imports.js:1:10: lib/none.js exports no one, in `import { one } from './lib/none.js';` [P7005",
        ),
        (
            script("no-handler.js"),
            "scripts[0]: no-handler.js: the script has no handler: write export default function (request) { … } [P7005",
        ),
        (
            trigger(r#""kind": "cron", "filter": "61 * * * *""#),
            "/app.json: triggers[0].filter is not a cron expression such as '0 9 * * MON-FRI'",
        ),
        (
            trigger(r#""kind": "cron", "filter": "@daily", "timeZone": "Mars/Base""#),
            "/app.json: triggers[0].timeZone is not known: give a name such as Europe/Berlin [P7005",
        ),
        (trigger(r#""kind": "cron""#), "/app.json: triggers[0].filter must say which"),
        (
            trigger(r#""kind": "smoke", "filter": "x""#),
            "/app.json: triggers[0].kind must be kv, cron, pubsub, queue, email or dead_letter [P7005",
        ),
        (
            trigger(r#""kind": "kv", "filter": "x", "retries": 3"#),
            "/app.json: triggers[0].retries is not known: it has name, kind, filter",
        ),
        (
            r#"{"routes": [{"method": "GET", "path": "/", "script": "x"}]}"#.into(),
            "/app.json: routes[0].script must name one of the scripts [P7005",
        ),
    ];
    let folder = Folder::new(&[
        ("x.js", b"export default () => 1"),
        ("scripts/x.js", b"export default () => 1"),
        ("lib/none.js", b"export const none = 0"),
        ("wrong.js", b"export default function () {\n  return 1 +;\n}"),
        ("imports.js", b"import { one } from './lib/none.js';\nexport default () => one"),
        ("no-handler.js", b"export const one = 1"),
        ("latin.js", b"// caf\xe9"),
        ("nul.js", b"// \0"),
        ("large.js", &vec![b' '; 1024 * 1024 + 1]),
    ]);
    symlink("/etc/passwd", folder.0.join("out.js")).unwrap();
    for (manifest, expected) in cases {
        fs::write(folder.0.join("app.json"), &manifest).unwrap();
        let told = app(&db, &format!("push {} --name shop", folder.path())).await;
        assert!(!told.ok && told.error.contains(expected), "{manifest}: {}", told.error);
        assert_eq!(told.error.lines().count(), 1, "{}", told.error);
        assert!(!told.error.contains("secret"), "{}", told.error);
    }
    for (push, expected) in [
        ("/no/such/folder", "symphony: cannot read /no/such/folder: No such file or directory"),
        ("/etc/passwd", "symphony: cannot read /etc/passwd: it is not a folder\n"),
        ("/etc", "symphony: /etc/app.json is missing\n"),
    ] {
        let told = app(&db, &format!("push {push}")).await;
        assert!(!told.ok && told.error.starts_with(expected), "{push}: {}", told.error);
    }
    fs::remove_file(folder.0.join("app.json")).unwrap();
    symlink("/etc/passwd", folder.0.join("app.json")).unwrap();
    let told = app(&db, &format!("push {}", folder.path())).await;
    assert!(
        told.error.ends_with("/app.json is a link that leads out of the folder\n"),
        "{}",
        told.error
    );
    fs::remove_file(folder.0.join("app.json")).unwrap();
    assert_eq!(db.count("apps").await, 0);
    // A link that stays inside is a file like any other, and exactly 1 MiB is not too large.
    symlink("x.js", folder.0.join("in.js")).unwrap();
    fs::write(folder.0.join("large.js"), " ".repeat(1024 * 1024 - 22) + "export default () => 1")
        .unwrap();
    for file in ["in.js", "./scripts/x.js", "large.js"] {
        fs::write(folder.0.join("app.json"), script(file)).unwrap();
        says(&db, &format!("push {} --name shop", folder.path())).await;
    }
}

#[tokio::test]
async fn a_script_is_pushed_with_what_it_imports_and_has_a_new_version_when_that_changes() {
    let db = TestDb::new().await;
    let folder = Folder::new(&[
        ("app.json", br#"{"scripts": [{"name": "a", "file": "scripts/a.js"}, {"name": "b", "file": "scripts/b.ts"}]}"#),
        ("scripts/a.js", b"import { tax } from '../lib/tax.js'; export default () => tax"),
        ("scripts/b.ts", b"const n: number = 1; export default () => n"),
        ("lib/tax.js", b"export const tax = 19"),
        ("lib/other.js", b"not even JavaScript"),
    ]);
    says(&db, &format!("push {} --name shop", folder.path())).await;
    folder.rewrite("lib/tax.js", |text| text.replace("19", "20"));
    assert_eq!(
        says(&db, &format!("push {} --name shop", folder.path())).await,
        "pushed app shop:\n  changed script a, version 2\n"
    );
    let kept: Vec<String> = db
        .one("SELECT array_agg(name || version || ' ' || file || ' ' || modules ORDER BY name, version) FROM scripts")
        .await;
    assert_eq!(
        kept,
        [
            r#"a1 scripts/a.js {"lib/tax.js": "export const tax = 19"}"#,
            r#"a2 scripts/a.js {"lib/tax.js": "export const tax = 20"}"#,
            "b1 scripts/b.ts {}",
        ]
    );
    let javascript: String = db.one("SELECT source FROM scripts WHERE name = 'b'").await;
    assert_eq!(javascript, "const n         = 1; export default () => n");
}
