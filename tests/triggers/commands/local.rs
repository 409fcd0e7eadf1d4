//! Scripts of a folder run where there is no database: one by `app run`, the folder's own cases by `app test`.

use super::{Folder, ORDERS};
use crate::support::shell::{Told, symphony};

/// With a database that is not there, so that nobody can have asked it.
async fn alone(line: &str, more: &[&str]) -> Told {
    symphony("postgres://nobody@127.0.0.1:1/none", &[], &format!("app {line}"), more, "").await
}

#[tokio::test]
async fn the_example_apps_pass_their_own_tests() {
    for (app, passed) in [("orders", 10), ("shortener", 9)] {
        let told = alone(&format!("test {ORDERS}/../{app}"), &[]).await;
        assert!(told.ok, "{}{}", told.output, told.error);
        assert!(told.output.ends_with(&format!("{passed} passed, 0 failed\n")), "{}", told.output);
    }
}

#[tokio::test]
async fn a_case_that_comes_out_otherwise_is_told_with_both() {
    let folder = Folder::new(&[
        ("app.json", br#"{"name": "shop", "scripts": [{"name": "add", "file": "add.js"}]}"#),
        ("add.js", b"export default ({ payload }) => { kv.increment('n', payload.by); log('added'); return { n: 1 } }"),
        (
            "tests/add.json",
            br#"[{"name": "right", "script": "add", "request": {"payload": {"by": 2}}, "kv": {"n": 5},
                  "expect": {"answer": {"n": 1}, "kv": {"n": 7}, "effects": [], "logs": ["added"]}},
                 {"name": "wrong", "script": "add", "request": {"payload": {"by": 2}},
                  "expect": {"answer": {"n": 2}, "kv": {"n": 3}}},
                 {"name": "throws", "script": "add", "expect": {"error": "SCRIPT_ERROR", "kv": {}}},
                 {"name": "throws unexpectedly", "script": "add", "expect": {"kv": {}}}]"#,
        ),
    ]);
    let told = alone(&format!("test {}", folder.path()), &[]).await;
    assert!(!told.ok);
    assert_eq!(
        told.output,
        "ok      tests/add.json: right\n\
         FAILED  tests/add.json: wrong\n  \
           answer: expected {\"n\":2}, found {\"n\":1}\n  \
           kv: expected {\"n\":3}, found {\"n\":2}\n\
         FAILED  tests/add.json: throws\n  \
           error: expected \"SCRIPT_ERROR\", found null\n  \
           kv: expected {}, found {\"n\":1}\n\
         FAILED  tests/add.json: throws unexpectedly\n  \
           kv: expected {}, found {\"n\":1}\n\
         1 passed, 3 failed\n"
    );
    folder.rewrite("add.js", |text| text.replace("log('added')", "throw new Error('no')"));
    let told = alone(&format!("test {} --json", folder.path()), &[]).await;
    let cases = told.document();
    let cases = cases.get("answer").unwrap_or(&cases);
    assert_eq!((&cases[2]["passed"], &cases[3]["passed"]), (&true.into(), &false.into()));
    assert_eq!(cases[3]["differences"][0]["found"], "SCRIPT_ERROR: Error: no (line 1)");
    folder.rewrite("tests/add.json", |text| text.replace("\"expect\"", "\"expects\""));
    let told = alone(&format!("test {}", folder.path()), &[]).await;
    assert!(told.error.contains("/tests/add.json: unknown field `expects`"), "{}", told.error);
}

#[tokio::test]
async fn a_script_is_run_with_a_request_and_entries_that_were_given() {
    let order = r#"{"order/o-1": {"id": "o-1", "email": "kim@example.com", "item": "tea"}}"#;
    let request = r#"{"payload": {"params": {"id": "o-1"}}}"#;
    let line = format!("run show-order --folder {ORDERS}");
    let told = alone(&line, &["--request", request, "--kv", order]).await;
    assert!(told.ok, "{}", told.error);
    assert!(
        told.output
            .ends_with("answer {\"status\":200,\"body\":{\"id\":\"o-1\",\"item\":\"tea\"}}\n"),
        "{}",
        told.output
    );
    let folder = Folder::new(&[("request.json", request.as_bytes())]);
    let file = format!("{}/request.json", folder.path());
    let told = alone(&line, &["--request", &file]).await;
    assert!(told.output.contains("no such order"), "{}", told.output);
    let told = alone(&format!("run nothing --folder {ORDERS}"), &[]).await;
    assert!(
        told.error.contains("there is no script \"nothing\": there are take-order"),
        "{}",
        told.error
    );
    let told = alone(&line, &["--request", "{\"pay\": 1}"]).await;
    assert!(told.error.contains("--request: unknown field `pay`"), "{}", told.error);
    let thrown = alone(&line, &["--request", r#"{"payload": {"params": null}}"#]).await;
    assert!(
        !thrown.ok && thrown.output.contains("at default (scripts/show-order.js:3:"),
        "{}",
        thrown.output
    );
}
