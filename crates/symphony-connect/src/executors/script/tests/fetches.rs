//! `fetch`: what it sends and gives back, and where it never goes.

use std::net::IpAddr;
use std::time::Duration;

use symphony::lanes::triggers::executor::{Executor as _, RunOutcome};

use super::{executor, executor_with, handler, in_words, request};
use crate::address::AddressKind;
use crate::address::tests::{SPELLINGS, TABLE, assert_untouched, trap};
use crate::executors::script::{ScriptExecutor, ScriptSettings};
use crate::executors::test_server::TestServer;
use crate::executors::{FetchSettings, Fetcher};

fn allowed() -> FetchSettings {
    FetchSettings { allow_private_addresses: true, ..FetchSettings::default() }
}

fn permissive() -> ScriptExecutor {
    executor_with(ScriptSettings::default(), &allowed())
}

#[tokio::test]
async fn a_request_is_sent_as_given_and_its_answer_given_back() {
    let server = TestServer::answering(201, r#"{"a":"ü","n":1.5}"#).await;
    let url = &server.url;
    let body = format!(
        "const answer = await fetch('{url}/path?q=1', {{ method: 'PUT', headers: {{ 'X-One': '1', authorization: 'Bearer t' }}, body: 'hällo' }});
        return [answer.status, answer.ok, answer.headers['x-two'], answer.text(), answer.json().a, (await answer.json()).n]"
    );
    let source = format!("export default async () => {{ {body} }}");
    let told = in_words(&permissive().run(&request(&source)).await);
    assert_eq!(told, r#"[201,true,"a, b","{\"a\":\"ü\",\"n\":1.5}","ü",1.5]"#);
    let asked = server.asked().remove(0).to_lowercase();
    for part in [
        "put /path?q=1 http/1.1\r\n",
        "x-one: 1\r\n",
        "authorization: bearer t\r\n",
        "content-length: 6\r\n",
        "\r\n\r\nhällo",
    ] {
        assert!(asked.contains(part), "{part}: {asked}");
    }
}

#[tokio::test]
async fn an_answer_can_be_waited_for_and_read_in_every_form() {
    let server = TestServer::answering(200, r#"{"n":1}"#).await;
    let url = &server.url;
    for (body, told) in [
        ("return fetch(url).json().n", "1"),
        ("return (await fetch(url)).json().n", "1"),
        ("return fetch(url).then((r) => r.json()).then((made) => made.n + 1)", "2"),
        ("return (await fetch(url).finally(() => 5)).ok", "true"),
        ("return fetch(url).then(() => { throw 7 }).catch((thrown) => thrown)", "7"),
        (
            "const [a, b] = await Promise.all([fetch(url), fetch(url)]); return a.status + b.status",
            "400",
        ),
        ("return [...fetch(url).bytes()].length", "7"),
        ("return fetch(url).arrayBuffer() instanceof ArrayBuffer", "true"),
        (
            "const r = await fetch(url); return [typeof r.then, r.headers.get('X-TWO'), r.headers['x-two']]",
            r#"["undefined","a, b","a, b"]"#,
        ),
    ] {
        let source = format!("const url = '{url}'; export default async () => {{ {body} }}");
        let answer = in_words(&permissive().run(&request(&source)).await);
        assert_eq!(answer, told, "{body}");
    }
    assert_eq!(server.asked().len(), 10, "waiting asks nothing again");
}

#[tokio::test]
async fn headers_of_an_answer_that_are_repeated_keep_their_values() {
    let server = TestServer::start(
        "HTTP/1.1 200 OK\r\nSet-Cookie: a=1, x\r\nSet-Cookie: b=2\r\nGet: no\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    )
    .await;
    let body = format!(
        "const {{ headers }} = fetch('{}'); return [headers.getSetCookie(), headers.get('get'), headers instanceof Headers]",
        server.url
    );
    let told = in_words(&permissive().run(&request(&handler(&body))).await);
    assert_eq!(told, r#"[["a=1, x","b=2"],"no",true]"#);
}

#[tokio::test]
async fn bytes_are_sent_and_received_as_they_are() {
    let server = TestServer::start_bytes(
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n\x01\xff\xfe\xc3\x28"
            .to_vec(),
    )
    .await;
    let url = &server.url;
    for sent in [
        "new Uint8Array([0, 255, 128])",
        "new Uint8Array([0, 255, 128]).buffer",
        "new DataView(new Uint8Array([9, 0, 255, 128, 9]).buffer, 1, 3)",
    ] {
        let body = format!(
            "const answer = fetch('{url}', {{ method: 'POST', body: {sent} }}); return [[...answer.bytes()], answer.text()]"
        );
        let told = in_words(&permissive().run(&request(&handler(&body))).await);
        assert_eq!(told, "[[1,255,254,195,40],\"\\u0001\u{fffd}\u{fffd}\u{fffd}(\"]", "{sent}");
    }
    for asked in server.asked_bytes() {
        assert!(asked.ends_with(b"\r\n\r\n\x00\xff\x80"), "{asked:?}");
    }
    assert_eq!(server.asked_bytes().len(), 3);
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_not_followed() {
    let trap = TestServer::answering(200, "1").await;
    let server = TestServer::start(format!(
        "HTTP/1.1 302 Found\r\nLocation: {}/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        trap.url
    ))
    .await;
    let body =
        format!("const answer = fetch('{}/'); return [answer.status, answer.ok]", server.url);
    assert_eq!(in_words(&permissive().run(&request(&handler(&body))).await), "[302,false]");
    assert!(trap.asked().is_empty());
}

#[tokio::test]
async fn too_large_an_answer_too_many_calls_and_no_server_are_errors_a_script_can_catch() {
    let large = TestServer::answering(200, &"x".repeat(2 << 20)).await;
    let small = TestServer::answering(200, "not json").await;
    for (body, told) in [
        (
            format!("fetch('{}')", large.url),
            "SCRIPT_ERROR Error: fetch: BAD_RESPONSE: the answer is larger than",
        ),
        (
            format!("for (;;) fetch('{}')", small.url),
            "SCRIPT_ERROR Error: fetch: too many calls in one run",
        ),
        (format!("return fetch('{}').json()", small.url), "SCRIPT_ERROR SyntaxError: "),
        ("fetch('http://127.0.0.1:1/')".to_owned(), "SCRIPT_ERROR Error: fetch: CONNECT_FAILED: "),
        (
            "try { fetch('http://127.0.0.1:1/') } catch (error) { return 'caught' }".to_owned(),
            "\"caught\"",
        ),
    ] {
        let answer = in_words(&permissive().run(&request(&handler(&body))).await);
        assert!(answer.starts_with(told), "{body}: {answer}");
    }
    assert_eq!(small.asked().len(), 17);
}

#[tokio::test]
async fn a_server_that_never_answers_is_waited_for_no_longer_than_the_run() {
    let server = TestServer::start("").await;
    let executor = permissive();
    let body = format!("try {{ fetch('{}') }} catch {{}} return 'swallowed'", server.url);
    let mut request = request(&handler(&body));
    request.timeout = Duration::from_millis(150);
    let execution = executor.run(&request).await;
    assert!(matches!(execution.outcome, RunOutcome::TimedOut), "{execution:?}");
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn no_address_that_is_not_public_is_called_in_whatever_spelling() {
    let (trap, port) = trap().await;
    let addresses = TABLE
        .iter()
        .filter(|(kind, _)| *kind != AddressKind::Public)
        .flat_map(|(_, texts)| texts.iter())
        .map(|text| match text.parse().unwrap() {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        });
    let spellings = SPELLINGS.iter().copied().chain(["169.254.169.254", "localhost"]);
    let hosts: Vec<String> = addresses.chain(spellings.map(str::to_owned)).collect();
    assert!(hosts.len() > 130);
    let hosts_json = serde_json::to_string(&hosts).unwrap();
    // One run for all of them: what is refused by its spelling is no call, and names are few.
    let body = format!(
        "const reached = [];
        for (const host of {hosts_json}) for (const scheme of ['https', 'http']) {{
            try {{ fetch(`${{scheme}}://${{host}}:{port}/`); reached.push(host) }}
            catch (error) {{
                if (!/cannot be called|ADDRESS_REFUSED|must begin with https/.test(error.message)) reached.push(host + ' ' + error.message)
            }}
        }}
        return reached"
    );
    assert_eq!(in_words(&executor().run(&request(&handler(&body))).await), "[]");
    for url in [
        "file:///etc/passwd",
        "ftp://example.com/",
        "gopher://127.0.0.1/",
        "data:text/plain,x",
        "https://user:pw@example.com/",
    ] {
        let told = in_words(&executor().run(&request(&handler(&format!("fetch('{url}')")))).await);
        assert!(told.starts_with("SCRIPT_ERROR TypeError: url must"), "{told}");
    }
    assert_untouched(trap).await;
}

#[test]
fn settings_out_of_bounds_are_refused_by_name() {
    for (settings, field) in [
        (FetchSettings { request_bytes_max: 0, ..allowed() }, "request_bytes_max"),
        (FetchSettings { response_bytes_max: usize::MAX, ..allowed() }, "response_bytes_max"),
        (FetchSettings { connect_timeout_ms: 0, ..allowed() }, "connect_timeout_ms"),
        (FetchSettings { allowed_networks: vec!["x".to_owned()], ..allowed() }, "allowed_networks"),
    ] {
        assert_eq!(Fetcher::new(&settings).err().unwrap().first().field, field);
    }
}
