//! `Headers` and `structuredClone`.

use super::{all_are, each_is};

#[tokio::test]
async fn headers_have_no_case_and_several_values() {
    all_are(&[
        ("[...new Headers({ 'X-B': 1, a: ' two ' })]", r#"[["a","two"],["x-b","1"]]"#),
        ("new Headers([['A', '1'], ['a', '2']]).get('a')", r#""1, 2""#),
        ("new Headers(new Headers({ a: '1' })).has('A')", "true"),
        ("new Headers().get('a')", "null"),
        ("(() => { const h = new Headers(); h.append('Set-Cookie', 'a=1'); h.append('set-cookie', 'b=2, c'); return [h.getSetCookie(), h.get('set-cookie'), [...h]] })()",
            r#"[["a=1","b=2, c"],"a=1, b=2, c",[["set-cookie","a=1"],["set-cookie","b=2, c"]]]"#),
        ("(() => { const h = new Headers({ a: 1, b: 2 }); h.append('a', 3); h.set('A', 4); h.delete('b'); return [...h.entries()] })()", r#"[["a","4"]]"#),
        ("(() => { const seen = []; new Headers({ b: 2, a: 1 }).forEach((value, name) => seen.push(name + value)); return [seen, [...new Headers({ b: 2 }).keys()], [...new Headers({ b: 2 }).values()]] })()",
            r#"[["a1","b2"],["b"],["2"]]"#),
        ("new Headers([['x', '1'], ['Set-Cookie', 'a'], ['Set-Cookie', 'b']])", r#"{"set-cookie":["a","b"],"x":"1"}"#),
        ("new Headers({ 'a b': '1' })", r#""TypeError""#),
        ("new Headers({ '': '1' })", r#""TypeError""#),
        (r"new Headers({ a: 'x\r\ny: z' })", r#""TypeError""#),
        (r"new Headers({ a: '\u0100' })", r#""TypeError""#),
        (r"new Headers({ a: '\r\nü\t' }).get('a')", r#""ü""#),
        ("new Headers([['a']])", r#""TypeError""#),
        ("new Headers('a: b')", r#""TypeError""#),
        ("new Headers().get('a b')", r#""TypeError""#),
    ])
    .await;
}

#[tokio::test]
async fn a_clone_is_equal_and_shares_nothing() {
    all_are(&[
        ("structuredClone({ a: [1, 'b', null, undefined, { c: true }] })", r#"{"a":[1,"b",null,null,{"c":true}]}"#),
        ("structuredClone(1n) === 1n && Object.is(structuredClone(-0), -0)", "true"),
        ("(() => { const a = { n: [1] }, b = structuredClone(a); b.n.push(2); return [a, a.n === b.n] })()", r#"[{"n":[1]},false]"#),
        ("(() => { const a = { x: {} }; a.self = a; a.y = a.x; const b = structuredClone(a); return [b.self === b, b.x === b.y, b === a] })()", "[true,true,false]"),
        ("(() => { const d = structuredClone(new Date(7)); return [d instanceof Date, d.getTime()] })()", "[true,7]"),
        ("(() => { const m = structuredClone(new Map([[{ k: 1 }, new Set([1, 2])]])); const [[k, v]] = m; return [k, [...v], m instanceof Map] })()", r#"[{"k":1},[1,2],true]"#),
        ("(() => { const r = structuredClone(/a+/gi); return [r.source, r.flags, r.lastIndex] })()", r#"["a+","gi",0]"#),
        ("(() => { const a = new Uint8Array([1, 2, 3]).subarray(1), b = structuredClone(a); a[0] = 9; return [[...b], b.byteOffset, b.buffer.byteLength] })()", "[[2,3],1,3]"),
        ("(() => { const [a, b] = structuredClone([new Uint16Array(4), 0].map((x, i, all) => i ? new DataView(all.buffer ?? new ArrayBuffer(2)) : x)); return [a.length, b.byteLength] })()", "[4,2]"),
        ("(() => { const buffer = new ArrayBuffer(2); const [a, b] = structuredClone([new Uint8Array(buffer), new Uint8Array(buffer)]); return a.buffer === b.buffer })()", "true"),
        ("(() => { const e = structuredClone(new RangeError('r', { cause: { c: 1 } })); return [e instanceof RangeError, e.name, e.message, e.cause] })()", r#"[true,"RangeError","r",{"c":1}]"#),
        ("(() => { class A { constructor() { this.x = 1 } get y() { return 2 } } const c = structuredClone(new A()); return [c, c.constructor === Object] })()", r#"[{"x":1},true]"#),
        ("(() => { const a = structuredClone(Object.assign([1, , 3], { x: 1 })); return [1 in a, a.length, a.x] })()", "[false,3,1]"),
        ("structuredClone(Object('boxed')) instanceof String", "true"),
        (r#"(() => { const c = structuredClone(JSON.parse('{"__proto__": 5}')); return [Object.keys(c), Object.getPrototypeOf(c) === Object.prototype] })()"#, r#"[["__proto__"],true]"#),
        ("structuredClone(() => 1)", r#""DataCloneError""#),
        ("structuredClone({ f() {} })", r#""DataCloneError""#),
        ("structuredClone(Symbol())", r#""DataCloneError""#),
        ("structuredClone(new WeakMap())", r#""DataCloneError""#),
        ("structuredClone({ get a() { throw new RangeError('g') } })", r#""RangeError""#),
    ])
    .await;
}

#[tokio::test]
async fn what_is_transferred_is_taken_away_once_all_is_cloned() {
    each_is(&[
        ("const buffer = new Uint8Array([1, 2]).buffer, made = structuredClone({ buffer }, { transfer: [buffer] });
          return [buffer.detached, [...new Uint8Array(made.buffer)]]", "[true,[1,2]]"),
        ("const buffer = new ArrayBuffer(2);
          try { structuredClone({ f() {} }, { transfer: [buffer] }) } catch (error) { return [error.name, buffer.detached] }", r#"["DataCloneError",false]"#),
        ("try { structuredClone(1, { transfer: [{}] }) } catch (error) { return error.name }", r#""DataCloneError""#),
    ])
    .await;
}
