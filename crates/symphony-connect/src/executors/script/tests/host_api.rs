//! The host API: every function, and what it is not to be called with.

use symphony::lanes::triggers::executor::{Executor as _, Outcome};

use super::{executor, handler, in_words, request, run};

/// The value and the effects, as JSON.
async fn wanted(body: &str) -> (String, String) {
    let execution = executor().run(&request(&handler(body))).await;
    (in_words(&execution), serde_json::to_string(&execution.effects).unwrap())
}

#[tokio::test]
async fn entries_are_read_from_the_apps_own_store() {
    assert_eq!(run("return kv.get('user:1')").await, r#"{"name":"Ada","balance":1.1}"#);
    assert_eq!(
        run("return [kv.get('user:2'), kv.get('none'), kv.get('user:9')]").await,
        "[null,null,null]"
    );
    assert_eq!(run("return kv.list('user:')").await, r#"["user:1","user:2","user:3"]"#);
    assert_eq!(
        run("return [kv.list(), kv.list('x'), kv.list('user:3')]").await,
        r#"[["user:1","user:2","user:3"],[],["user:3"]]"#
    );
    assert_eq!(
        run("return (async () => (await kv.get('user:3')) + (await kv.list('')).length)()").await,
        "\"three3\""
    );
}

#[tokio::test]
async fn a_script_reads_its_own_writes() {
    let body = "kv.set('user:1', { n: 1 }); kv.set('user:4', [4]); kv.delete('user:2'); kv.set('user:5', 5); kv.delete('user:5');
        kv.set('other', null);
        const one = kv.get('user:1'); one.n = 99;
        return [kv.get('user:1'), kv.get('user:4'), kv.get('user:2'), kv.get('user:5'), kv.get('other'), kv.list('user:'), kv.list()]";
    assert_eq!(
        run(body).await,
        r#"[{"n":1},[4],null,null,null,["user:1","user:3","user:4"],["other","user:1","user:3","user:4"]]"#
    );
}

#[tokio::test]
async fn effects_come_out_in_order_and_in_the_words_of_the_contract() {
    let body = "kv.set('k', { a: 1.5 }); kv.delete('d'); queue.send('orders', [1]); pubsub.publish('news', 'hi');
        events.publish({ type: 'events.x', n: 1 }); email.send({ to: 'a@b.example', subject: 'S', text: 'T\\nü', extra: 1 });
        email.send({ to: ['a@b.example', 'c@d.example'], subject: '', text: '' }); return 'done'";
    let (value, effects) = wanted(body).await;
    assert_eq!(value, "\"done\"");
    assert_eq!(
        effects,
        concat!(
            r#"[{"kind":"kv_set","key":"k","value":{"a":1.5}},{"kind":"kv_delete","key":"d"},"#,
            r#"{"kind":"queue_send","queue":"orders","message":[1]},{"kind":"pubsub_publish","topic":"news","message":"hi"},"#,
            r#"{"kind":"event_publish","event":{"type":"events.x","n":1}},"#,
            r#"{"kind":"email_send","message":{"subject":"S","text":"T\nü","to":"a@b.example"}},"#,
            r#"{"kind":"email_send","message":{"subject":"","text":"","to":["a@b.example","c@d.example"]}}]"#
        )
    );
}

#[tokio::test]
async fn a_script_that_fails_leaves_no_effects() {
    for end in [
        "throw new Error('x')",
        "return new Promise(() => {})",
        "return 'x'.repeat(300000)",
        "return '\\u0000'",
    ] {
        let (told, effects) = wanted(&format!("kv.set('k', 1); log('logged'); {end}")).await;
        assert!(told.contains("SCRIPT_ERROR ") || told.contains("OUTPUT_LIMIT! "), "{told}");
        assert_eq!(effects, "[]");
    }
}

#[tokio::test]
async fn an_effect_that_was_refused_is_not_wanted() {
    let (value, effects) = wanted(
        "try { kv.set('', 1) } catch {} try { kv.set('k', 1n) } catch {} return kv.list().length",
    )
    .await;
    assert_eq!((value.as_str(), effects.as_str()), ("3", "[]"));
}

#[tokio::test]
async fn wrong_arguments_throw_a_type_error_that_names_them() {
    let long = "'x'.repeat(600)";
    let cases = [
        ("kv.get()", "key must be a string"),
        ("kv.get(5)", "key must be a string"),
        ("kv.get({ toString: () => 'user:1' })", "key must be a string"),
        ("kv.get(new String('user:1'))", "key must be a string"),
        ("kv.get('\\ud800')", "key must be well-formed text"),
        ("kv.set('', 1)", "key must be 1 to 512 characters"),
        ("kv.set('  ', 1)", "key must be 1 to 512 characters"),
        ("kv.set('a\\u0000', 1)", "key must be 1 to 512 characters"),
        ("kv.set(LONG, 1)", "key must be 1 to 512 characters"),
        ("kv.set('k')", "value must be something that JSON can hold"),
        ("kv.set('k', () => 1)", "value must be something that JSON can hold"),
        ("kv.set('k', '\\u0000')", "value must be JSON that the database can hold"),
        ("kv.set('k', { '\\ud800': 1 })", "value must be JSON that the database can hold"),
        (
            "let a = []; for (let i = 0; i < 200; i++) a = [a]; kv.set('k', a)",
            "value must be JSON that the database can hold",
        ),
        ("kv.set('k', 1n)", ""),
        ("const c = {}; c.c = c; kv.set('k', c)", ""),
        ("kv.delete(null)", "key must be a string"),
        ("kv.delete('')", "key must be 1 to 512 characters"),
        ("kv.list(5)", "prefix must be a string"),
        ("queue.send(5, 1)", "queue must be a string"),
        ("queue.send(LONG, 1)", "queue must be 1 to 255 characters"),
        ("queue.send('q')", "message must be something that JSON can hold"),
        ("pubsub.publish({}, 1)", "topic must be a string"),
        ("pubsub.publish('', 1)", "topic must be 1 to 255 characters"),
        ("pubsub.publish('t', undefined)", "message must be something that JSON can hold"),
        ("events.publish('x')", "event must be an object"),
        ("events.publish(null)", "event must be an object"),
        ("events.publish([1])", "event must be an object"),
        ("events.publish({ toJSON: () => 5 })", "event must be an object"),
        ("email.send()", "message must be an object"),
        ("email.send({})", "message.to must be something that JSON can hold"),
        ("email.send({ to: 5, subject: '', text: '' })", "message.to must be an email address"),
        ("email.send({ to: [], subject: '', text: '' })", "message.to must be an email address"),
        (
            "email.send({ to: 'a@b\\r\\nBcc: c@d', subject: '', text: '' })",
            "message.to must be an email address",
        ),
        (
            "email.send({ to: 'a@b', subject: 'x\\nBcc: c@d', text: '' })",
            "message.subject must be one line",
        ),
        ("email.send({ to: 'a@b', text: '' })", "message.subject must be a string"),
        ("email.send({ to: 'a@b', subject: '' })", "message.text must be a string"),
        ("fetch()", "url must be a string"),
        ("fetch('not a url')", "url is not a URL"),
        ("fetch('https://example.com', 5)", "options must be an object"),
        ("fetch('https://example.com', { method: 'A B' })", "options.method must be a method"),
        ("fetch('https://example.com', { method: 'CONNECT' })", "options.method must be a method"),
        (
            "fetch('https://example.com', { headers: [] })",
            "options.headers must be an object of strings",
        ),
        (
            "fetch('https://example.com', { headers: { a: 1 } })",
            "options.headers must be an object of strings",
        ),
        (
            "fetch('https://example.com', { headers: { 'a b': '' } })",
            "options.headers has a name that is none",
        ),
        (
            "fetch('https://example.com', { headers: { a: 'x\\r\\ny: z' } })",
            "options.headers has a value for a",
        ),
        (
            "fetch('https://example.com', { headers: { Host: 'x' } })",
            "options.headers must not set host",
        ),
        (
            "fetch('https://example.com', { headers: { 'Content-Length': '5' } })",
            "options.headers must not set content-length",
        ),
        (
            "fetch('https://example.com', { headers: { 'Transfer-Encoding': 'chunked' } })",
            "options.headers must not set transfer",
        ),
        ("fetch('https://example.com', { body: {} })", "options.body must be a string"),
        (
            "fetch('https://example.com', { body: 'x'.repeat(2000000) })",
            "options.body must be at most",
        ),
    ];
    let executor = executor();
    for (call, problem) in cases {
        let call = call.replace("LONG", long);
        let execution = executor.run(&request(&handler(&format!("{call}; return 1")))).await;
        let told = in_words(&execution);
        assert!(
            told.starts_with("SCRIPT_ERROR TypeError: ") && told.contains(problem),
            "{call}: {told}"
        );
        // And a script can go on after it.
        let body =
            format!("try {{ {call} }} catch (error) {{ return error instanceof TypeError }}");
        assert_eq!(in_words(&executor.run(&request(&handler(&body))).await), "true", "{call}");
    }
}

#[tokio::test]
async fn a_store_that_fails_is_an_error_the_script_can_catch_and_another_attempt_can_overcome() {
    assert_eq!(
        run("kv.get('broken')").await,
        "SCRIPT_ERROR Error: kv.get: the store is away (line 1)"
    );
    assert_eq!(
        run("try { kv.get('broken') } catch (e) { return e.message }").await,
        "\"kv.get: the store is away\""
    );
}

#[tokio::test]
async fn a_store_that_hangs_is_waited_for_no_longer_than_the_run() {
    let mut request =
        request(&handler("log('before'); try { kv.get('slow') } catch {} for (;;) kv.set('k', 1)"));
    request.timeout = std::time::Duration::from_millis(100);
    let execution = executor().run(&request).await;
    assert!(matches!(execution.outcome, Outcome::TimedOut), "{execution:?}");
    assert_eq!(execution.logs.len(), 1);
}
