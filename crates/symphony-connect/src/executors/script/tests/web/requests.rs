//! A route's request as its script sees it, and the answer it gives.

use serde_json::value::RawValue;
use symphony::lanes::triggers::executor::Executor as _;

use super::{executor, in_words, request};

async fn routed(payload: &str, body: &str) -> String {
    let source = format!("export default async (request) => {{ {body} }}");
    let mut routed = request(&source);
    routed.source_kind = "http".to_owned();
    routed.payload = RawValue::from_string(payload.to_owned()).unwrap().into();
    in_words(&executor().run(&routed).await)
}

#[tokio::test]
async fn a_body_is_text_json_and_bytes_however_it_came() {
    let ask = "const parsed = () => { try { return request.json() } catch (error) { return error.name } };
        return [request.text(), parsed(), [...request.bytes()]]";
    for (payload, told) in [
        (
            r#"{"headers":{"content-type":"application/json; charset=utf-8"},"body":{"a":[1]}}"#,
            r#"["{\"a\":[1]}",{"a":[1]},[123,34,97,34,58,91,49,93,125]]"#,
        ),
        (
            r#"{"headers":{"content-type":"application/vnd.x+JSON"},"body":"t"}"#,
            r#"["\"t\"","t",[34,116,34]]"#,
        ),
        (r#"{"headers":{"content-type":"text/plain"},"body":"[1]"}"#, r#"["[1]",[1],[91,49,93]]"#),
        (r#"{"headers":{},"body":null}"#, r#"["","SyntaxError",[]]"#),
        (
            r#"{"headers":{},"body":null,"bodyBase64":"/wA="}"#,
            "[\"\u{fffd}\\u0000\",\"SyntaxError\",[255,0]]",
        ),
        (
            r#"{"headers":{"content-type":"application/json"},"body":null,"bodyBase64":"WzEgXQ=="}"#,
            r#"["[1 ]",[1],[91,49,32,93]]"#,
        ),
    ] {
        // The database holds no NUL.
        let told = told.replace("\\u0000", "?");
        let ask = ask.replace("request.text()", "request.text().replace('\\0', '?')");
        assert_eq!(routed(payload, &ask).await, told, "{payload}");
    }
}

#[tokio::test]
async fn what_has_several_values_has_all_of_them() {
    let payload = r#"{"headers":{"accept":"a, b","cookie":"id=7; theme=\"dark\"; id=8; broken; =x; __proto__=p"},
        "query":{"tag":"b"},"queryString":"tag=a&tag=b&q=%20","body":null}"#;
    let told = routed(
        payload,
        "return [request.query.getAll('tag'), request.query.get('q'), request.headers.get('Accept'), request.cookies,
            request.payload.query.tag, Object.keys(request).includes('cookies'), 'cookies' in JSON.parse(JSON.stringify(request))]",
    )
    .await;
    assert_eq!(
        told,
        r#"[["a","b"]," ","a, b",{"id":"7","theme":"dark","__proto__":"p"},"b",false,false]"#
    );
}

#[tokio::test]
async fn an_answer_may_have_bytes_and_headers_of_the_web() {
    let payload = r#"{"headers":{},"body":null}"#;
    for (answer, told) in [
        (
            "{ status: 200, body: new Uint8Array([0, 255]) }",
            r#"{"status":200,"bodyBase64":"AP8="}"#,
        ),
        (
            "{ status: 200, body: new Uint8Array([9, 0, 255, 9]).subarray(1, 3) }",
            r#"{"status":200,"bodyBase64":"AP8="}"#,
        ),
        (
            "{ status: 200, body: new Uint8Array([0, 255]).buffer }",
            r#"{"status":200,"bodyBase64":"AP8="}"#,
        ),
        (
            "{ status: 200, headers: new Headers([['Set-Cookie', 'a=1'], ['Set-Cookie', 'b=2'], ['X', 'y']]), body: 'text' }",
            r#"{"status":200,"headers":{"set-cookie":["a=1","b=2"],"x":"y"},"body":"text"}"#,
        ),
        ("{ body: 1 }", r#"{"body":1}"#),
        ("null", "null"),
    ] {
        assert_eq!(routed(payload, &format!("return {answer}")).await, told, "{answer}");
    }
}
