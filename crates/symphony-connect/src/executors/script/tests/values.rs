//! Getters, proxies, `toJSON` and conversions in what a script returns and wants.

use symphony::lanes::triggers::executor::Executor as _;

use super::{executor, handler, in_words, request};

/// A value made on the way out, and what becomes of it.
const VALUES: &[(&str, &str)] = &[
    ("{ get a() { return 1 } }", r#"{"a":1}"#),
    ("{ get a() { throw new Error('g') } }", "Error: g"),
    ("{ toJSON: () => ({ b: 2 }) }", r#"{"b":2}"#),
    ("{ toJSON() { throw new Error('j') } }", "Error: j"),
    ("{ toJSON: 5, a: 1 }", r#"{"toJSON":5,"a":1}"#),
    ("{ toJSON: () => ({ toJSON: () => 1, c: 3 }) }", r#"{"c":3}"#),
    ("new Proxy({ a: 1 }, {})", r#"{"a":1}"#),
    ("new Proxy([1, 2], {})", "[1,2]"),
    ("new Proxy({}, { get() { throw new Error('p') } })", "Error: p"),
    (
        "new Proxy({}, { ownKeys: () => ['x'], getOwnPropertyDescriptor: () => ({ value: 1, enumerable: true, configurable: true }), get: (t, k) => k === 'x' ? 'made' : undefined })",
        r#"{"x":"made"}"#,
    ),
    ("new Proxy({}, { ownKeys: () => 5 })", "TypeError: "),
    (
        "(() => { const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); return proxy })()",
        "TypeError: ",
    ),
    ("(() => { const c = {}; c.c = [c]; return c })()", "TypeError: "),
    ("1n", "TypeError: "),
    ("Object(1n)", "TypeError: "),
    ("{ [Symbol.toPrimitive]: () => { throw new Error('never asked') }, a: 1 }", r#"{"a":1}"#),
    ("Object('boxed')", "\"boxed\""),
    ("Object.assign(Object('boxed'), { toString() { throw new Error('s') } })", "Error: s"),
    ("Object.assign(Object(5), { valueOf: () => 6 })", "6"),
    ("Object.assign([1, 2], { length: 1, x: 1 })", "[1]"),
    ("[, 1, undefined, () => 1, Symbol()]", "[null,1,null,null,null]"),
    ("{ a: undefined, b: () => 1, [Symbol('c')]: 1 }", "{}"),
    ("Object.create(null, { a: { value: 1, enumerable: true }, b: { value: 2 } })", r#"{"a":1}"#),
    ("Object.create({ inherited: 1 })", "{}"),
    ("new Error('not thrown')", "{}"),
    ("[NaN, Infinity, -0, 1e300, 0.1, 2 ** 53]", "[null,null,0,1e+300,0.1,9007199254740992]"),
    ("new Uint8Array([1, 2])", r#"{"0":1,"1":2}"#),
    ("{ '__proto__': 1, ['__proto__']: 2, constructor: 3 }", r#"{"__proto__":2,"constructor":3}"#),
    ("'\\ud83d\\ude00 \\u2028 \\\" \\\\ /'", "\"😀 \u{2028} \\\" \\\\ /\""),
    ("'\\ud800'", "must be JSON that the database can hold"),
    ("{ '\\u0000': 1 }", "must be JSON that the database can hold"),
];

fn matches(told: &str, expected: &str) -> bool {
    told == expected || (told.starts_with("SCRIPT_ERROR ") && told.contains(expected))
}

#[tokio::test]
async fn a_returned_value_becomes_plain_json_or_an_error() {
    let executor = executor();
    for (value, expected) in VALUES {
        let told = in_words(&executor.run(&request(&handler(&format!("return ({value})")))).await);
        assert!(matches(&told, expected), "{value}: {told}");
        let later = format!("return (async () => {{ await null; return ({value}) }})()");
        let told = in_words(&executor.run(&request(&handler(&later))).await);
        assert!(matches(&told, expected), "async {value}: {told}");
    }
}

#[tokio::test]
async fn an_effects_value_becomes_plain_json_or_an_error() {
    let executor = executor();
    for (value, expected) in VALUES {
        let execution = executor
            .run(&request(&handler(&format!("queue.send('q', ({value})); return 1"))))
            .await;
        let told = in_words(&execution);
        if told == "1" {
            let effects = serde_json::to_string(&execution.effects).unwrap();
            let wanted = format!(r#"[{{"kind":"queue_send","queue":"q","message":{expected}}}]"#);
            assert_eq!(effects, wanted, "{value}");
        } else {
            assert!(matches(&told, expected), "{value}: {told}");
        }
    }
}

/// A value that does something while it is written.
#[tokio::test]
async fn what_happens_while_a_value_is_written_happens_in_order() {
    let body = "kv.set('outer', { toJSON() { kv.set('inner', 1); return kv.get('inner') } });
        return { get seen() { kv.set('late', 2); return kv.list('').length } }";
    let execution = executor().run(&request(&handler(body))).await;
    assert_eq!(in_words(&execution), r#"{"seen":6}"#);
    let effects = serde_json::to_string(&execution.effects).unwrap();
    assert_eq!(
        effects,
        r#"[{"kind":"kv_set","key":"inner","value":1},{"kind":"kv_set","key":"outer","value":1},{"kind":"kv_set","key":"late","value":2}]"#
    );
}

/// Checked once and used once: an argument cannot be one thing when it is looked at and another when it is used.
#[tokio::test]
async fn an_argument_that_changes_between_two_looks_is_looked_at_once() {
    let body = "let looks = 0;
        const message = { get to() { looks++; return looks > 1 ? 'x\\r\\ny@z' : 'a@b.example' }, subject: 's', text: 't' };
        email.send(message); return looks";
    let execution = executor().run(&request(&handler(body))).await;
    assert_eq!(in_words(&execution), "1");
    let effects = serde_json::to_string(&execution.effects).unwrap();
    assert!(effects.contains(r#""to":"a@b.example""#), "{effects}");
}
