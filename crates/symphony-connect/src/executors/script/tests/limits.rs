//! Scripts that take too much: each ends in its code, within its limits, and its neighbours stay well.

use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony::lanes::triggers::executor::{Execution, Executor as _, RunOutcome, Slot};

use super::{NEIGHBOUR, executor, executor_with, handler, in_words, request};
use crate::bounds::scripts::STUCK_PER_APP_MAX;
use crate::executors::script::{ScriptExecutor, ScriptSettings};
use crate::executors::{FetchSettings, OutputLimits};

/// How late an answer may be on a machine that is busy with other tests.
const MARGIN: Duration = Duration::from_secs(2);

async fn within(executor: &ScriptExecutor, source: &str, timeout_ms: u64) -> Execution {
    let mut hostile = request(source);
    hostile.timeout = Duration::from_millis(timeout_ms);
    let started = Instant::now();
    let execution = executor.run(&hostile).await;
    assert!(started.elapsed() < hostile.timeout + MARGIN, "{source}: {:?}", started.elapsed());
    neighbour_is_well(executor).await;
    execution
}

async fn neighbour_is_well(executor: &ScriptExecutor) {
    let mut neighbour = request(&handler("return kv.get('user:9')"));
    neighbour.app_id = NEIGHBOUR;
    assert_eq!(in_words(&executor.run(&neighbour).await), "\"not yours\"");
}

async fn ends(cases: &[&str], timeout_ms: u64, code: &str) {
    let executor = executor();
    for body in cases {
        let execution = within(&executor, &handler(body), timeout_ms).await;
        let told = in_words(&execution);
        assert!(told.starts_with(code), "{body}: {told}");
    }
}

#[tokio::test]
async fn what_runs_for_ever_is_stopped_in_time() {
    let endless = [
        "for (;;);",
        "while (true) { try { for (;;); } catch {} finally { continue } }",
        "kv.set('k', 1); for (;;) { try { kv.get('k') } catch {} }",
        "return new Promise(() => { for (;;); })",
        "return (async () => { for (;;) await null })()",
        "const again = () => queueMicrotask(again); again(); return new Promise(() => {})",
        "const again = () => Promise.resolve().then(again); return again()",
        "return { then(resolve) { resolve(this) } }",
        "function* g() { for (;;) yield 1 } for (const _ of g());",
        "return { toJSON() { for (;;); } }",
        "return { get a() { for (;;); } }",
        "return new Proxy({}, { ownKeys() { for (;;); } })",
        "throw { get message() { for (;;); } }",
        "throw { get name() { for (;;); }, message: 'x' }",
        "[3, 2, 1].sort(() => { for (;;); })",
        "eval('for (;;);')",
        "new Function('for (;;);')()",
        "log({ toJSON() { for (;;); } })",
        "JSON.parse('[1]', () => { for (;;); })",
        "'a'.replace(/a/, () => { for (;;); })",
        "for (;;) log('flood')",
        "for (;;) console.error('x'.repeat(100000))",
    ];
    ends(&endless, 60, "TimedOut").await;
    let executor = executor();
    let loading = within(&executor, "for (;;); export default () => 1", 60).await;
    assert!(matches!(loading.outcome, RunOutcome::TimedOut));
    let loading = within(&executor, "for (;;) await null; export default () => 1", 60).await;
    assert!(matches!(loading.outcome, RunOutcome::TimedOut));
}

#[tokio::test]
async fn a_catastrophic_regular_expression_is_stopped_in_time_and_its_thread_ends() {
    let executor = executor();
    for body in [
        "return /^(a+)+$/.test('a'.repeat(50) + 'b')",
        "return /(x+x+)+y/.exec('x'.repeat(60))",
        "return 'a'.repeat(60).replace(/(a*)*b/g, '')",
        "return /(?=(a+)+$)(?:a|aa)+$/.test('a'.repeat(60) + '!')",
        "for (;;) { try { /^(a|a)*$/.test('a'.repeat(60) + 'b') } catch {} }",
    ] {
        let execution = within(&executor, &handler(body), 80).await;
        assert!(matches!(execution.outcome, RunOutcome::TimedOut), "{body}: {execution:?}");
    }
    // The engine asks for the time while it matches, so none of these threads is stuck.
    wait_until(|| executor.overdue() == 0).await;
}

#[tokio::test]
async fn a_thread_that_does_not_ask_for_the_time_is_given_up_and_loses_its_slot_a_second_later() {
    let executor = Arc::new(executor());
    // Some seconds of work in one call of the engine's own, which asks nobody.
    let body = handler("log('begun'); return 'a'.repeat(60000).indexOf('a'.repeat(30000) + 'b')");
    let taken = Arc::new(());
    for overdue in 1..=2 {
        let mut stuck = request(&body);
        stuck.timeout = Duration::from_millis(100);
        stuck.slot = Slot::new(taken.clone());
        let execution = executor.run(&stuck).await;
        drop(stuck);
        assert!(matches!(execution.outcome, RunOutcome::TimedOut), "{execution:?}");
        assert_eq!(execution.logs.len(), 1);
        assert_eq!(executor.overdue(), overdue);
        assert_eq!(Arc::strong_count(&taken), overdue + 1);
    }
    // Whoever has a slot is well.
    let execution = within(&executor, &handler("return 1"), 5_000).await;
    assert_eq!(in_words(&execution), "1");
    wait_until(|| Arc::strong_count(&taken) == 1).await;
    assert_eq!((executor.overdue(), executor.stuck()), (2, 2), "they still run");
    wait_until(|| executor.overdue() == 0).await;
    assert_eq!(executor.stuck(), 0);
}

#[tokio::test]
async fn an_app_whose_threads_are_stuck_gets_no_more_and_its_neighbours_do() {
    let executor = executor();
    let body = handler("return 'a'.repeat(60000).indexOf('a'.repeat(30000) + 'b')");
    let runs = (0..STUCK_PER_APP_MAX).map(|_| within(&executor, &body, 50));
    futures_util::future::join_all(runs).await;
    let refused = in_words(&within(&executor, &handler("return 1"), 5_000).await);
    assert!(refused.starts_with("EXECUTOR_STUCK "), "given up, and not stuck yet: {refused}");
    wait_until(|| executor.stuck() == STUCK_PER_APP_MAX).await;
    let refused = in_words(&within(&executor, &handler("return 1"), 5_000).await);
    assert!(refused.starts_with("EXECUTOR_STUCK "), "{refused}");
    let mut other = request(&handler("return 1"));
    other.app_id = NEIGHBOUR;
    assert_eq!(in_words(&executor.run(&other).await), "1");
    wait_until(|| executor.stuck() == 0).await;
    assert_eq!(in_words(&within(&executor, &handler("return 1"), 5_000).await), "1");
}

#[tokio::test]
async fn a_run_whose_waiting_is_dropped_stops() {
    let executor = executor();
    let mut endless = request(&handler("for (;;);"));
    endless.timeout = Duration::from_hours(1);
    tokio::select! {
        execution = executor.run(&endless) => panic!("{execution:?}"),
        () = neighbour_is_well(&executor) => {}
    }
    wait_until(|| executor.overdue() == 0).await;
}

#[tokio::test]
async fn what_takes_too_much_memory_is_stopped() {
    let bombs = [
        "let s = 'ab'; for (;;) s += s",
        "let s = 'ab'; for (;;) { s += s; s.charCodeAt(1) }",
        "const a = []; for (;;) a.push(a.length)",
        "const a = []; for (;;) a.push({ a })",
        "const a = []; for (;;) a.push(new Array(100000).fill(0))",
        "return new ArrayBuffer(1e9).byteLength",
        "return new SharedArrayBuffer(1e9).byteLength",
        "const a = []; for (;;) a.push(new ArrayBuffer(1000000))",
        "const a = []; for (;;) a.push(new Uint8Array(1000000))",
        "return new Float64Array(100000000).length",
        "return 'x'.repeat(1000000000).length",
        "return 'x'.padEnd(500000000).length",
        "const m = new Map(); for (let i = 0;; i++) m.set(i, i)",
        "let o = {}; for (;;) o = { o, p: [o] }",
        "const o = {}; for (let i = 0;; i++) o['key' + i] = i",
        "let f = () => 1; for (;;) { const g = f; f = () => [g, new Array(100)] }",
        "const a = []; const again = () => { a.push(Promise.resolve().then(() => a)); return again2() }; const again2 = () => { for (;;) a.push(again) }; again()",
        "return JSON.stringify(new Array(10000000).fill('0123456789'))",
        "return Array.from({ length: 100000000 }, (_, i) => ({ i }))",
        "globalThis.keep = []; for (;;) keep.push('x'.repeat(1000) + keep.length)",
        "let n = 3n; for (const a = [];;) { n *= n; a.push(n) }",
        "return (async () => { const a = []; for (;;) { await null; a.push(new Array(1000)) } })()",
    ];
    let executor = executor();
    for body in bombs {
        let told = in_words(&within(&executor, &handler(body), 15_000).await);
        let huge_number = body.contains("3n") && told.starts_with("SCRIPT_ERROR RangeError: ");
        // Out of memory between two awaits, the engine cannot even tell the promise.
        let between = body.contains("await") && told.contains("never settled");
        assert!(told.starts_with("MEMORY_LIMIT! ") || huge_number || between, "{body}: {told}");
    }
}

#[tokio::test]
async fn a_script_may_recover_from_too_much_memory_and_stays_within_it() {
    let body = "try { new ArrayBuffer(1e9) } catch (error) { return error.message }";
    assert_eq!(in_words(&executor().run(&request(&handler(body))).await), "\"out of memory\"");
}

#[tokio::test]
async fn memory_may_run_out_anywhere_without_harm_to_the_process() {
    let body = "const hold = ['x'.repeat(FILL)];
        const step = async (k) => {
            hold.push(JSON.parse(JSON.stringify({ k, a: [1, { b: 'c'.repeat(50) }] })), /(\\w)(\\w)/.exec('ab' + k));
            hold.push(new Map([[k, new Set([k])]]), new Uint8Array(64), `${k}`, class { x = k }, new Proxy({}, {}));
            await Promise.all([null, k, Promise.reject(new Error('r')).catch((e) => hold.push(e))]);
            kv.set('k' + k % 9, { k }); log(k); hold.push(kv.get('user:1'), eval('({z:' + k + '})'));
        };
        return (async () => { for (let k = 0;; k++) await step(k) })()";
    for step in 0..60 {
        let settings = ScriptSettings {
            memory_max_bytes: (1 << 20) + step * 997,
            output: OutputLimits { effects_max: 100_000, ..OutputLimits::default() },
            ..ScriptSettings::default()
        };
        let executor = executor_with(settings, &FetchSettings::default());
        let source = handler(&body.replace("FILL", &(100_000 + step * 1_013).to_string()));
        let told = in_words(&within(&executor, &source, 15_000).await);
        assert!(told.starts_with("MEMORY_LIMIT! "), "{step}: {told}");
    }
}

#[tokio::test]
async fn what_calls_too_deep_is_stopped() {
    let deep = [
        "const f = () => f() + 1; return f()",
        "class A { get a() { return this.a } } return new A().a",
        "return new Proxy({}, { get(t, k, r) { return r[k] } }).x",
        "const o = { toString() { return '' + this } }; return '' + o",
        "return { toJSON() { return JSON.stringify(this) } }",
        "const f = (...a) => f(...a, 1); return f()",
        "const a = []; a[0] = a; return a.flat(Infinity)",
        "let s = '['.repeat(100000); return JSON.parse(s)",
        "let a = []; for (let i = 0; i < 100000; i++) a = [a]; return a",
        "const f = () => [1].map(f); return f()",
        "const f = () => 'a'.replace(/a/, f); return f()",
        "const f = () => Reflect.apply(f, null, []); return f()",
        "const f = () => eval('f()'); return f()",
        "const f = async () => { await f() }; return f()",
    ];
    ends(&deep, 15_000, "STACK_LIMIT! ").await;
    // Nested too deep to be read at all.
    let executor = executor();
    for source in [
        format!("export default () => {}1{}", "(".repeat(100_000), ")".repeat(100_000)),
        format!("export default () => {}{}", "[".repeat(100_000), "]".repeat(100_000)),
        handler(&format!("return new RegExp('{}')", "(".repeat(100_000))),
    ] {
        let told = in_words(&within(&executor, &source, 15_000).await);
        let code = told.split(' ').next().unwrap();
        assert!(["STACK_LIMIT!", "SCRIPT_INVALID!", "SCRIPT_ERROR"].contains(&code), "{told}");
    }
}

#[tokio::test]
async fn a_script_may_recover_from_calling_too_deep() {
    let body = "const f = () => f() + 1; try { f() } catch (error) { return error.name }";
    assert_eq!(in_words(&executor().run(&request(&handler(body))).await), "\"RangeError\"");
}

#[tokio::test]
async fn too_large_an_answer_is_refused() {
    let large = [
        "return 'x'.repeat(300000)",
        "return new Array(200000).fill(1)",
        "return { toJSON: () => 'x'.repeat(262143) }",
        "return 'ü'.repeat(140000)",
    ];
    ends(&large, 15_000, "OUTPUT_LIMIT! the handler's value is larger than 262144 bytes").await;
    let just = executor().run(&request(&handler("return 'x'.repeat(262142)"))).await;
    assert!(matches!(just.outcome, RunOutcome::Value(_)));
}

#[tokio::test]
async fn too_many_effects_end_the_run_even_if_the_error_is_swallowed() {
    let floods = [
        "for (let i = 0; i < 1001; i++) kv.set('k', i)",
        "for (;;) { try { queue.send('q', 1) } catch {} }",
        "for (let i = 0; i < 1001; i++) { try { kv.delete('k') } catch { return 'swallowed' } }",
        "for (let i = 0; i < 20; i++) pubsub.publish('t', 'x'.repeat(100000))",
        "return (async () => { for (;;) { try { await events.publish({}) } catch { await null } } })()",
        "for (let i = 0; i < 2000; i++) { try { email.send({ to: 'a@b', subject: 's', text: 't' }) } catch {} }",
    ];
    ends(&floods, 15_000, "OUTPUT_LIMIT! more than ").await;
    let just = "for (let i = 0; i < 1000; i++) kv.set('k' + i, i); return kv.list('k').length";
    let execution = executor().run(&request(&handler(just))).await;
    assert_eq!((in_words(&execution).as_str(), execution.effects.len()), ("1000", 1_000));
}

#[tokio::test]
async fn a_flood_of_logs_is_cut_off_and_the_run_goes_on() {
    for body in [
        "for (let i = 0; i < 100000; i++) log('line', i); return 'done'",
        "for (let i = 0; i < 100000; i++) log(''); return 'done'",
        "for (let i = 0; i < 10; i++) log('x'.repeat(5000000)); return 'done'",
    ] {
        let execution = within(&executor(), &handler(body), 15_000).await;
        assert_eq!(in_words(&execution), "\"done\"");
        let bytes: usize = execution.logs.iter().map(|line| line.message.len()).sum();
        assert!(bytes <= (64 << 10) + 100 && execution.logs.len() <= 2_050, "{bytes}");
        assert!(execution.logs.last().unwrap().message.starts_with("the log is full"));
    }
}

#[tokio::test]
async fn more_runs_than_slots_wait_their_turn() {
    let settings = ScriptSettings {
        concurrency_max: 2,
        concurrency_max_per_app: 2,
        ..ScriptSettings::default()
    };
    let executor = executor_with(settings, &FetchSettings::default());
    let request = request(&handler("let n = 0; for (let i = 0; i < 1e5; i++) n += i; return n"));
    let runs = (0..50).map(|_| executor.run(&request));
    for execution in futures_util::future::join_all(runs).await {
        assert_eq!(in_words(&execution), "4999950000");
    }
}

#[test]
fn settings_out_of_bounds_are_refused_by_name() {
    let good = ScriptSettings::default();
    for (settings, field) in [
        (ScriptSettings { memory_max_bytes: 1_000, ..good.clone() }, "memory_max_bytes"),
        (ScriptSettings { stack_max_bytes: 1 << 30, ..good.clone() }, "stack_max_bytes"),
        (ScriptSettings { concurrency_max: 0, ..good.clone() }, "concurrency_max"),
        (ScriptSettings { concurrency_max_per_app: 17, ..good.clone() }, "concurrency_max_per_app"),
        (
            ScriptSettings {
                output: OutputLimits { result_bytes_max: 0, ..OutputLimits::default() },
                ..good.clone()
            },
            "output.result_bytes_max",
        ),
    ] {
        assert_eq!(settings.check().unwrap_err().first().field, field);
    }
    assert!(good.check().is_ok());
}

async fn wait_until(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_mins(1), "it never came to be");
        // A core that looks all the time is one less for threads at the lowest priority.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
