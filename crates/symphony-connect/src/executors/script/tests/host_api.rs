//! The host API: every function, and what it is not to be called with.

use symphony::lanes::triggers::executor::{Executor as _, RunOutcome};

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
async fn numbers_are_added_to_and_read_back() {
    let (value, effects) = wanted(
        "kv.increment('n'); kv.increment('n', 4, { ttlSeconds: 60 }); kv.set('m', 1); kv.increment('m', -3); kv.delete('d');
         kv.increment('d'); return [kv.get('n'), kv.get('m'), kv.get('d'), kv.list('n')]",
    )
    .await;
    assert_eq!(value, r#"[5,-2,1,["n"]]"#);
    assert!(
        effects.starts_with(
            r#"[{"kind":"kv_increment","key":"n","by":1},{"kind":"kv_increment","key":"n","by":4,"ttlSeconds":60},"#
        ),
        "{effects}"
    );
    for (body, problem) in [
        ("kv.increment('n', 1.5)", "by must be a whole number"),
        ("kv.increment('n', '1')", "by must be a whole number"),
        ("kv.set('n', 'x'); kv.increment('n')", "key must be one that holds a whole number"),
        ("kv.set('n', 1, { ttlSeconds: 0 })", "options.ttlSeconds must be a whole number from 1"),
        ("kv.set('n', 1, 5)", "options must be an object"),
        ("kv.list('', { limit: 1001 })", "options.limit must be from 1 to 1000"),
        ("queue.send('q', 1, { key: '' })", "options.key must not be empty"),
    ] {
        let said = run(body).await;
        assert!(said.starts_with(&format!("SCRIPT_ERROR TypeError: {problem}")), "{body}: {said}");
    }
}

#[tokio::test]
async fn comparisons_say_what_they_found_and_are_decided_again_when_they_are_applied() {
    let (value, effects) = wanted(
        "return [kv.setIfAbsent('user:1', 0), kv.setIfAbsent('user:2', 0), kv.setIfAbsent('new', 1), kv.setIfAbsent('new', 2),
                 kv.compareAndSet('user:1', { balance: 1.1, name: 'Ada' }, 'next'), kv.compareAndSet('user:1', 'other', 'no'),
                 kv.compareAndSet('user:1', 'next', 'last'), kv.compareAndSet('none', null, []), kv.get('user:1')]",
    )
    .await;
    assert_eq!(value, r#"[false,false,true,false,true,false,true,true,"last"]"#);
    assert_eq!(
        effects,
        concat!(
            r#"[{"kind":"kv_set_if_absent","key":"new","value":1},"#,
            r#"{"kind":"kv_compare_and_set","key":"user:1","expected":{"balance":1.1,"name":"Ada"},"value":"next"},"#,
            r#"{"kind":"kv_set","key":"user:1","value":"last"},"#,
            r#"{"kind":"kv_compare_and_set","key":"none","expected":null,"value":[]}]"#
        )
    );
    let (value, effects) = wanted(
        "const { value, version } = kv.getWithVersion('user:3');
         return [value, version, kv.getWithVersion('none'), kv.compareVersionAndSet('user:3', 'v1', 1),
                 kv.compareVersionAndSet('user:3', version, 2), kv.compareVersionAndSet('none', null, 3)]",
    )
    .await;
    assert_eq!(value, r#"["three","v7",{"value":null,"version":null},false,true,true]"#);
    let sets =
        r#"[{"kind":"kv_set","key":"user:3","value":2},{"kind":"kv_set","key":"none","value":3}]"#;
    assert_eq!(effects, sets);
    let own = run("kv.set('a', 1); kv.getWithVersion('a')").await;
    assert!(own.starts_with("SCRIPT_ERROR TypeError: key must not be one that this run"), "{own}");
}

#[tokio::test]
async fn a_list_goes_on_after_a_key() {
    assert_eq!(
        run("kv.set('user:2b', 1); kv.delete('user:3');
             return [kv.list('user:', { limit: 2 }), kv.list('user:', { after: 'user:2' }), kv.list('user:', { after: 'user:9' })]")
        .await,
        r#"[["user:1","user:2"],["user:2b"],[]]"#
    );
}

/// What a run has read, as JSON.
async fn read(body: &str) -> String {
    let execution = executor().run(&request(&handler(body))).await;
    assert!(matches!(execution.outcome, RunOutcome::Value(_)), "{execution:?}");
    serde_json::to_string(&execution.reads).unwrap()
}

#[tokio::test]
async fn what_a_run_rests_on_is_noted_once_and_only_if_it_wants_something() {
    assert_eq!(read("kv.get('user:1'); kv.list()").await, "[]");
    // Neither its own writes, nor what is only added to, nor a comparison that is decided later.
    assert_eq!(
        read("kv.set('own', 1); kv.get('own'); kv.increment('n'); kv.setIfAbsent('new', 1); kv.compareAndSet('user:3', 'three', 4)")
            .await,
        "[]"
    );
    assert_eq!(
        read("kv.get('user:3'); kv.get('user:3'); kv.get('none'); kv.setIfAbsent('user:2', 1); kv.list('user:', { limit: 1 }); kv.set('k', 1)")
            .await,
        concat!(
            r#"[{"key":"none","version":null},{"key":"user:2","version":"v4"},{"key":"user:3","version":"v7"},"#,
            r#"{"prefix":"user:","after":null,"limit":1,"listing":"user:1"}]"#
        )
    );
    assert_eq!(read("kv.increment('n'); kv.get('n')").await, r#"[{"key":"n","version":null}]"#);
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
async fn mail_has_copies_html_and_attachments() {
    let (value, effects) = wanted(
        "email.send({ to: 'a@b.example', cc: ['c@d.example'], bcc: 'e@f.example', replyTo: 'r@s.example', subject: 'S', text: 'T',
            html: '<p>', attachments: [{ name: 'ü.txt', content: 'ü' }, { name: 'a', contentType: 'image/png', content: new Uint8Array([0, 255]) }] })",
    )
    .await;
    assert_eq!(value, "null");
    assert_eq!(
        effects,
        concat!(
            r#"[{"kind":"email_send","message":{"attachments":[{"name":"ü.txt","contentBase64":"w7w="},"#,
            r#"{"name":"a","contentType":"image/png","contentBase64":"AP8="}],"bcc":"e@f.example","cc":["c@d.example"],"#,
            r#""html":"<p>","replyTo":"r@s.example","subject":"S","text":"T","to":"a@b.example"}}]"#
        )
    );
    for (more, problem) in [
        ("cc: 5", "message.cc must be an email address, or 1 to 50 of them"),
        (
            "cc: Array(40).fill('a@b.example'), bcc: Array(10).fill('a@b.example')",
            "message.to, cc and bcc must have at most 50",
        ),
        ("replyTo: ['a@b.example', 'c@d.example']", "message.replyTo must be one email address"),
        ("html: 5", "message.html must be text without NUL"),
        ("attachments: {}", "message.attachments must be a list"),
        (
            "attachments: [{ name: 'a', content: 5 }]",
            "message.attachments[0].content must be a string",
        ),
        ("attachments: [{ content: '' }]", "message.attachments must each have a name"),
        (
            "attachments: [{ name: 'a\\n', content: '' }]",
            "message.attachments[0].name must be one line",
        ),
        (
            "attachments: [{ name: 'a', contentType: 'multipart/mixed', content: '' }]",
            "message.attachments[0].contentType must be",
        ),
        (
            "attachments: Array(11).fill({ name: 'a', content: '' })",
            "message.attachments must be at most 10",
        ),
        (
            "attachments: [{ name: 'a', content: new Uint8Array(600000) }]",
            "message.attachments must be at most 524288 bytes",
        ),
    ] {
        let told =
            run(&format!("email.send({{ to: 'a@b.example', subject: '', text: '', {more} }})"))
                .await;
        assert!(told.starts_with(&format!("SCRIPT_ERROR TypeError: {problem}")), "{more}: {told}");
    }
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
    assert!(matches!(execution.outcome, RunOutcome::TimedOut), "{execution:?}");
    assert_eq!(execution.logs.len(), 1);
}
