//! Games with prototypes, getters and proxies: the host takes only strings, so they end in plain values or errors.

use symphony::lanes::triggers::executor::{Effect, Executor as _, RunOutcome};

use super::{NEIGHBOUR, executor, handler, in_words, request};

/// Everything a script may have changed before it uses the host API.
const POISONS: &[(&str, &str)] = &[
    (
        "Object.prototype setter",
        "Object.defineProperty(Object.prototype, 'value', { set(v) { throw 1 }, get() { return 'poison' }, configurable: true })",
    ),
    (
        "Object.prototype numbers",
        "Object.defineProperty(Object.prototype, 0, { set(v) { throw 1 }, get() { return 'T' }, configurable: true })",
    ),
    (
        "Object.prototype.toJSON",
        "Object.defineProperty(Object.prototype, 'toJSON', { value: undefined, writable: true })",
    ),
    ("Array iterator", "Array.prototype[Symbol.iterator] = function* () { yield 'poison' }"),
    ("Array iterator gone", "delete Array.prototype[Symbol.iterator]"),
    (
        "Array methods",
        "for (const k of Object.getOwnPropertyNames(Array.prototype)) try { Array.prototype[k] = () => 'poison' } catch {}",
    ),
    (
        "String methods",
        "for (const k of Object.getOwnPropertyNames(String.prototype)) try { String.prototype[k] = () => 'poison' } catch {}",
    ),
    ("String numbers", "Object.defineProperty(String.prototype, 0, { get() { return 'T' } })"),
    ("String iterator", "String.prototype[Symbol.iterator] = function* () { yield 'poison' }"),
    (
        "String toPrimitive",
        "String.prototype[Symbol.toPrimitive] = () => 'poison'; String.prototype.toString = String.prototype.valueOf = () => 'poison'",
    ),
    (
        "Function.prototype.call",
        "Function.prototype.call = Function.prototype.apply = Function.prototype.bind = () => 'poison'",
    ),
    (
        "Function.prototype[hasInstance]",
        "Object.defineProperty(Error, Symbol.hasInstance, { value: () => { throw 1 } })",
    ),
    ("JSON", "JSON.stringify = () => '\"poison\"'; JSON.parse = () => 'poison'"),
    ("JSON gone", "delete globalThis.JSON"),
    ("Reflect", "Reflect.apply = () => 'poison'; delete globalThis.Reflect"),
    ("Object", "Object.freeze = Object.defineProperty = () => 'poison'; globalThis.Object = null"),
    ("Promise", "globalThis.Promise = function () { throw 1 }"),
    (
        "Promise.prototype.then",
        "Promise.prototype.then = function () { throw new Error('poison') }",
    ),
    (
        "Promise constructor",
        "Object.defineProperty(Promise.prototype, 'constructor', { get() { throw 1 } })",
    ),
    ("Promise species", "Object.defineProperty(Promise, Symbol.species, { get() { throw 1 } })"),
    ("Error", "globalThis.Error = globalThis.TypeError = function () { throw 'poison' }"),
    ("prepareStackTrace", "Error.prepareStackTrace = () => { throw 'poison' }"),
    ("Number", "Number.prototype.toString = Number.prototype.valueOf = () => 'poison'"),
    ("Map and Set", "Map.prototype.get = Set.prototype.has = () => { throw 1 }"),
    ("RegExp", "RegExp.prototype.exec = () => { throw 1 }"),
    ("Symbol", "globalThis.Symbol = null"),
    (
        "Object.prototype.get",
        "Object.prototype.get = () => 'poison'; Object.prototype.set = undefined; Object.prototype.enumerable = true",
    ),
    (
        "__proto__",
        "Object.defineProperty(Object.prototype, '__proto__', { get() { throw 1 }, set() { throw 1 } })",
    ),
];

#[tokio::test]
async fn no_change_of_a_prototype_reaches_the_host() {
    let executor = executor();
    for (name, poison) in POISONS {
        let body = format!(
            "{poison};
            kv.set('k', {{ value: [1, 'two'] }}); kv.delete('d'); queue.send('q', 'm'); log('l', 5);
            let refused; try {{ kv.get(5) }} catch (error) {{ refused = error.message }}
            const listed = kv.list('user:'), got = kv.get('k');
            return {{ n: listed.length, first: listed[0], two: got.value[1], refused, three: kv.get('user:3') }}"
        );
        let execution = executor.run(&request(&handler(&body))).await;
        assert_eq!(
            in_words(&execution),
            r#"{"n":3,"first":"user:1","two":"two","refused":"key must be a string","three":"three"}"#,
            "{name}"
        );
        let effects = serde_json::to_string(&execution.effects).unwrap();
        assert_eq!(
            effects,
            r#"[{"kind":"kv_set","key":"k","value":{"value":[1,"two"]}},{"kind":"kv_delete","key":"d"},{"kind":"queue_send","queue":"q","message":"m"}]"#,
            "{name}"
        );
        assert_eq!(execution.logs[0].message, "l 5", "{name}");
    }
    assert!(POISONS.len() > 25);
}

#[tokio::test]
async fn poison_that_answers_changes_only_the_scripts_own_answer() {
    let executor = executor();
    for (body, told) in [
        ("Object.prototype.toJSON = () => 'mine'; return { a: 1 }", "\"mine\""),
        ("Array.prototype.toJSON = () => [1]; return 5", "5"),
        (
            "Object.defineProperty(Array.prototype, 0, { set(v) { throw new Error('s') }, get() { return 2 } }); kv.set('k', [1])",
            "SCRIPT_ERROR Error: s (line 1)",
        ),
        ("Object.prototype.then = (resolve) => resolve(5); return {}", "5"),
        (
            "Object.prototype.then = () => {}; return {}",
            "SCRIPT_ERROR the handler's promise never settled",
        ),
        (
            "Object.prototype.then = () => { throw new Error('t') }; return {}",
            "SCRIPT_ERROR Error: t (line 1)",
        ),
        (
            "Object.defineProperty(Object.prototype, 'then', { get() { throw new Error('g') } }); return {}",
            "SCRIPT_ERROR Error: g (line 1)",
        ),
        ("Promise.prototype.then = (resolve) => resolve('stolen'); return Promise.resolve(1)", "1"),
        ("Object.prototype.toJSON = () => undefined; return {}", "null"),
        ("Object.prototype.toJSON = () => 1n; return {}", "SCRIPT_ERROR TypeError: "),
        ("return JSON.rawJSON('1')", "1"),
        (
            "return { a: JSON.rawJSON('\"\\\\u0000\"') }",
            "SCRIPT_ERROR the handler's value must be JSON that the database can hold",
        ),
        ("globalThis.JSON = { stringify: () => '{' }; return 7", "7"),
    ] {
        let answer = in_words(&executor.run(&request(&handler(body))).await);
        assert!(answer.starts_with(told), "{body}: {answer}");
    }
}

#[tokio::test]
async fn the_host_api_cannot_be_changed() {
    let executor = executor();
    for attempt in [
        "kv = 1",
        "globalThis.kv = 1",
        "delete globalThis.kv",
        "Object.defineProperty(globalThis, 'kv', { value: 1 })",
        "kv.set = 1",
        "kv.get.x = 1",
        "console.log = 1",
        "Object.setPrototypeOf(kv, null)",
        "fetch = 1",
        "log.x = 1",
        "email.extra = 1",
    ] {
        let body = format!(
            "let failed = false; try {{ {attempt} }} catch {{ failed = true }} return [failed, typeof kv.get, typeof fetch]"
        );
        let told = in_words(&executor.run(&request(&handler(&body))).await);
        assert_eq!(told, r#"[true,"function","function"]"#, "{attempt}");
    }
}

/// Stack frames, callers and arguments lead to functions that are not the script's.
#[tokio::test]
async fn the_hosts_own_functions_give_no_more_than_the_host_api() {
    let executor = executor();
    let body = "const found = [];
        const look = (f) => { if (typeof f === 'function' && f !== me && f !== look) found.push(f) };
        Error.prepareStackTrace = (error, sites) => {
            for (const site of sites) for (const k of ['getFunction', 'getThis']) { try { look(site[k]()) } catch {} }
            return 'x' };
        try { kv.get(5) } catch (error) { error.stack }
        kv.set('own', { toJSON() { try { new Error('x').stack; look(this.toJSON.caller) } catch {} return 1 } });
        const attempts = [['kv_set', 'forged', '{', '', ''], ['kv_set', 'forged', {}, 1, 2], ['describe', 'a', 'b', 'c', 'd'], ['run'], [],
            ['kv_set'], ['nothing', '', '', '', ''], [{ toString: () => 'kv_set' }, 'forged', '1', '', ''], ['fetch', 'https://127.0.0.1/', 'GET', '{}', '']];
        Error.prepareStackTrace = undefined; if (found.length > 0) log('found');
        for (const f of found) for (const a of attempts) { try { f(...a) } catch {} }
        return 'survived'";
    let source = format!("export default function me(request) {{ {body} }}");
    let execution = executor.run(&request(&source)).await;
    assert_eq!(in_words(&execution), "\"survived\"");
    assert!(
        execution.logs.iter().any(|line| line.message == "found"),
        "the host's functions can be seen no more"
    );
    // They were called with everything, but what is not JSON or not a string went nowhere.
    for effect in &execution.effects {
        assert!(!matches!(effect, Effect::KvSet { key, .. } if key == "forged"), "{effect:?}");
    }
}

#[tokio::test]
async fn no_spelling_of_a_key_reaches_another_app() {
    let executor = executor();
    let body = format!(
        "Object.prototype.app_id = Object.prototype.appId = '{NEIGHBOUR}'; request.app = 'other'; request.appId = '{NEIGHBOUR}';
        const found = ['user:9', '../user:9', '{NEIGHBOUR}/user:9', 'user:9\\u0000', '%', 'user:_', '*'].map((key) => {{ try {{ return kv.get(key) }} catch {{ return null }} }});
        return [found, kv.list('user:9'), kv.list('%'), kv.list('')]"
    );
    let told = in_words(&executor.run(&request(&handler(&body))).await);
    assert_eq!(
        told,
        r#"[[null,null,null,null,null,null,null],[],[],["user:1","user:2","user:3"]]"#
    );
}

#[tokio::test]
async fn a_poisoned_run_leaves_its_neighbour_well() {
    let executor = executor();
    for (name, poison) in POISONS {
        executor.run(&request(&handler(&format!("{poison}; throw new Error('x')")))).await;
        let mut neighbour = request(&handler(
            "return Promise.resolve(JSON.stringify([...'ab'].map((x) => x + x)))",
        ));
        neighbour.app_id = NEIGHBOUR;
        let execution = executor.run(&neighbour).await;
        assert!(
            matches!(&execution.outcome, RunOutcome::Value(v) if v.get() == r#""[\"aa\",\"bb\"]""#),
            "{name}"
        );
    }
}
