//! Handlers: what they are called with, and what their answers and errors become.

use symphony::lanes::triggers::executor::{Executor as _, LogLine};

use super::super::modules::{NOT_RELATIVE, NOT_THERE};
use super::{executor, handler, in_words, request, run};

async fn module(source: &str) -> String {
    in_words(&executor().run(&request(source)).await)
}

#[tokio::test]
async fn a_handler_is_called_with_the_request() {
    let seen = run("return request").await;
    let seen: serde_json::Value = serde_json::from_str(&seen).unwrap();
    assert_eq!(
        seen,
        serde_json::json!({
            "executionId": "00000000-0000-0000-0000-000000000003",
            "app": "shop",
            "script": "order",
            "sourceKind": "queue",
            "payload": { "message": { "n": 7 } },
            "originPrincipal": "00000000-0000-0000-0000-000000000004",
            "principal": null,
            "depth": 2,
            "rootExecutionId": "00000000-0000-0000-0000-000000000005",
            "attempt": 1,
        })
    );
}

#[tokio::test]
async fn what_a_handler_returns_is_the_value_as_json() {
    for (body, value) in [
        ("return { a: [1, 'ü', null, true], b: undefined }", r#"{"a":[1,"ü",null,true]}"#),
        ("return undefined", "null"),
        ("", "null"),
        ("return () => 1", "null"),
        ("return Symbol('s')", "null"),
        ("return NaN", "null"),
        ("return 'text'", "\"text\""),
        ("return new Date(0)", "\"1970-01-01T00:00:00.000Z\""),
        ("return new Map([[1, 2]])", "{}"),
        ("return Promise.resolve(5)", "5"),
        ("return { then(resolve) { resolve('thenable') } }", "\"thenable\""),
        ("return (async () => { await null; return request.payload.message.n })()", "7"),
        ("return new Promise((resolve) => queueMicrotask(() => resolve('later')))", "\"later\""),
        ("let n = 0; return (async () => { for (; n < 10000; n++) await n; return n })()", "10000"),
    ] {
        assert_eq!(run(body).await, value, "{body}");
    }
}

#[tokio::test]
async fn handlers_may_be_written_in_every_way() {
    for source in [
        "export default function (request) { return 1 }",
        "export default async function named(request) { return 1 }",
        "export default () => 1",
        "const handler = async () => 1; export { handler as default }",
        "const one = await Promise.resolve(1); export default () => one",
        "// a comment\nexport const other = 2;\nexport default (request) => request.attempt",
    ] {
        assert_eq!(module(source).await, "1", "{source}");
    }
}

#[tokio::test]
async fn what_is_thrown_is_told_with_its_line() {
    for (body, told) in [
        ("\n\nthrow new RangeError('too far')", "SCRIPT_ERROR RangeError: too far (line 3)"),
        ("return nothing.there", "SCRIPT_ERROR ReferenceError: nothing is not defined (line 1)"),
        ("\nreturn Promise.reject(new Error('no'))", "SCRIPT_ERROR Error: no (line 2)"),
        (
            "return (async () => {\n await null;\n throw new Error('late') })()",
            "SCRIPT_ERROR Error: late (line 3)",
        ),
        ("throw 'a\\nb\\u0000c'", "SCRIPT_ERROR thrown: a b c"),
        ("throw undefined", "SCRIPT_ERROR thrown: undefined"),
        ("throw null", "MEMORY_LIMIT! the script ran out of memory, or threw null"),
        ("throw Symbol('s')", "SCRIPT_ERROR thrown: [symbol]"),
        ("throw { message: 'half\\ud800', name: 5 }", "SCRIPT_ERROR Error: half\u{fffd}"),
        (
            "throw { get message() { throw 1 } }",
            "SCRIPT_ERROR thrown: an error that cannot be read",
        ),
        (
            "throw new Proxy({}, { get() { throw 1 } })",
            "SCRIPT_ERROR thrown: an error that cannot be read",
        ),
        ("\nkv.get(5)", "SCRIPT_ERROR TypeError: key must be a string (line 2)"),
    ] {
        assert_eq!(run(body).await, told, "{body}");
    }
    let long = run("throw new Error('é'.repeat(5000))").await;
    assert!(long.ends_with("é (line 1)") && long.chars().count() < 520, "{long}");
}

#[tokio::test]
async fn a_script_that_cannot_be_run_is_not_tried_again() {
    for (source, told) in [
        ("export default function (", "SCRIPT_INVALID! SyntaxError: "),
        ("export default 5", "SCRIPT_INVALID! the script has no handler"),
        ("", "SCRIPT_INVALID! the script has no handler"),
        ("export function handler() {}", "SCRIPT_INVALID! the script has no handler"),
        ("export default () => 1; \0", "SCRIPT_INVALID! "),
        ("with (x) {}", "SCRIPT_INVALID! SyntaxError: "),
    ] {
        let told_now = module(source).await;
        assert!(told_now.starts_with(told), "{source}: {told_now}");
    }
    let thrown = module("\nthrow new Error('while loading'); export default () => 1").await;
    assert_eq!(thrown, "SCRIPT_ERROR Error: while loading (line 2)");
}

#[tokio::test]
async fn nothing_can_be_imported_that_was_not_pushed() {
    for name in [
        "std",
        "os",
        "qjs:std",
        "bjson",
        "./other.js",
        "../other.js",
        "/etc/passwd",
        "file:///etc/passwd",
        "https://example.com/x.js",
    ] {
        let told = module(&format!("import x from '{name}'; export default () => x")).await;
        assert!(
            told.starts_with("SCRIPT_INVALID! ")
                && (told.contains(NOT_THERE) || told.contains(NOT_RELATIVE)),
            "{told}"
        );
        let told = run(&format!("return import('{name}')")).await;
        assert!(
            told.starts_with("SCRIPT_ERROR ")
                && (told.contains(NOT_THERE) || told.contains(NOT_RELATIVE)),
            "{told}"
        );
        let told = run(&format!("return eval(\"import('{name}')\")")).await;
        assert!(
            told.starts_with("SCRIPT_ERROR ")
                && (told.contains(NOT_THERE) || told.contains(NOT_RELATIVE)),
            "{told}"
        );
    }
    let told =
        module("import x from '/etc/hostname' with { type: 'text' }; export default () => x").await;
    assert!(told.starts_with("SCRIPT_INVALID! "), "{told}");
}

#[tokio::test]
async fn there_is_nothing_of_the_machine_to_reach() {
    let names = "['std', 'os', 'scriptArgs', 'require', 'process', 'Deno', 'setTimeout', 'setInterval', 'print', \
                 'XMLHttpRequest', 'WebSocket', 'Worker', 'load', 'loadScript', 'read', 'gc', 'module', 'host']";
    for reach in ["globalThis", "(0, eval)('this')", "new Function('return this')()"] {
        let found = run(&format!("return {names}.filter((name) => name in {reach})")).await;
        assert_eq!(found, "[]", "{reach}");
    }
    // Code made of text runs in the same sandbox, with the same host API and no more.
    assert_eq!(run("return eval('1 + 1') + new Function('a', 'return a')(3)").await, "5");
    assert_eq!(run("return eval('kv.get(\"user:9\")')").await, "null");
    assert_eq!(
        run("return Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)").await,
        "SCRIPT_ERROR TypeError: cannot block in this thread (line 1)"
    );
}

#[tokio::test]
async fn runs_share_nothing() {
    let executor = executor();
    let first = request(&handler(
        "globalThis.left = 1; Object.prototype.left = 1; Array.prototype.map = null; return 1",
    ));
    assert_eq!(in_words(&executor.run(&first).await), "1");
    let second = handler("return [typeof globalThis.left, typeof ({}).left, typeof [].map]");
    let told = in_words(&executor.run(&request(&second)).await);
    assert_eq!(told, r#"["undefined","undefined","function"]"#);
}

#[tokio::test]
async fn logs_are_kept_with_level_and_order_also_when_the_handler_throws() {
    let body = "log('a', 1, { b: [2] }, undefined, null, 3n, Symbol('x'), () => 1, new TypeError('t'));
        console.log('l'); console.info('i'); console.warn('w'); console.error('e\\ud800\\u0000'); console.debug('d'); log();
        console.log({ toJSON() { throw 1 } }); throw new Error('x')";
    let execution = executor().run(&request(&handler(body))).await;
    assert_eq!(in_words(&execution), "SCRIPT_ERROR Error: x (line 3)");
    let lines: Vec<_> = execution
        .logs
        .iter()
        .map(|LogLine { level, message, .. }| (level.as_str(), message.as_str()))
        .collect();
    assert_eq!(
        lines,
        [
            ("info", r#"a 1 {"b":[2]} undefined null 3 [symbol] [function] TypeError: t"#),
            ("info", "l"),
            ("info", "i"),
            ("warn", "w"),
            ("error", "e\u{fffd}\u{fffd}"),
            ("debug", "d"),
            ("info", ""),
            ("info", "[unreadable]"),
            ("error", "Error: x\n    at default (script.js:3:58)"),
        ]
    );
    assert!(execution.logs.iter().all(|line| line.at_ms < 20_000));
}
