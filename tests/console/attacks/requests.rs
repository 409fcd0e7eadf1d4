//! Games with hosts, addresses, methods and frames.

use super::{Browser, Scene};
use crate::api::{Served, raw};

/// What a browser is told about every answer, refusals and parts included.
const PROTECTION: [(&str, &str); 5] = [
    ("content-security-policy", "default-src 'none'; script-src 'self'; style-src 'self'"),
    ("x-frame-options", "DENY"),
    ("x-content-type-options", "nosniff"),
    ("cache-control", "no-store"),
    ("referrer-policy", "same-origin"),
];

#[tokio::test]
async fn every_answer_forbids_frames_inline_code_and_copies() {
    let scene = Scene::new().await;
    let browser = Browser::of(&scene.served, "ann", "operate").await;
    let out = Browser::out(&scene.served);
    let refused =
        browser.send("POST /console/act/pause_payment_lane", "", &[("reason", "r")]).await;
    let mut answers = vec![refused, out.get("/console").await, out.get("/console/sign-in").await];
    for path in ["/console", "/console/nowhere", "/console/style.css", "/console/approvals/99"] {
        answers.push(browser.get(path).await);
    }
    for answer in answers {
        for (name, value) in PROTECTION {
            let found = answer.header(name).unwrap_or_default();
            assert!(found.starts_with(value), "{name}: {found} in {}", answer.head);
        }
        let policy = answer.header("content-security-policy").unwrap();
        assert!(
            policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
    }
}

#[tokio::test]
async fn no_form_leads_to_another_site_afterwards() {
    let served = Served::new().await;
    let dana = Browser::of(&served, "dana", "operate").await;
    let (out, token) = (Browser::out(&served), served.token("eve", "read").await);
    for away in [
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "/consolex",
        "javascript:alert(1)",
        "/console\\..\\x",
        "/console\r\nX: y",
    ] {
        let fields = [("reason", "r"), ("step", "do"), ("back", away)];
        let done = dana.post("/console/act/pause_payment_lane", &fields).await;
        assert_eq!(done.header("location").as_deref(), Some("/console"), "{away}");
        let entered =
            out.send("POST /console/sign-in", "", &[("token", &token), ("to", away)]).await;
        assert!(entered.body.contains("0;url=/console\""), "{away}: {}", entered.body);
    }
}

#[tokio::test]
async fn a_name_that_leads_to_this_machine_is_shown_no_page() {
    let served = Served::new().await;
    let dana = Browser::of(&served, "dana", "operate").await;
    for host in ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", ""] {
        for path in ["/console", "/console/sign-in", "/console/live"] {
            let text = format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {}\r\nConnection: close\r\n\r\n",
                dana.cookie
            );
            let answer = raw(served.api.address(), text.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 403"), "{host} {path}: {answer}");
        }
    }
}

#[tokio::test]
async fn no_path_climbs_and_no_query_asks_for_what_is_not_there() {
    let served = Served::new().await;
    let dana = Browser::of(&served, "dana", "operate").await;
    for (line, status) in [
        ("GET /console/", 404),
        ("GET /console/nowhere", 404),
        ("GET /console/../console", 404),
        ("GET //console", 404),
        ("GET /console/payments/%ff", 422),
        ("GET /console/payments/%00", 303),
        ("GET /console/search?q=%00", 422),
        ("GET /console/events/x", 422),
        ("GET /console/executions/x", 422),
        ("GET /console/approvals/x", 422),
        ("GET /console/approvals/-1", 404),
        ("GET /console/approvals?before=x", 422),
        ("GET /console/approvals?state=x", 200),
        ("GET /console/waiting/none", 404),
        ("GET /console/waiting/payments?after=x", 422),
        ("GET /console/audit?before=1~2", 422),
        ("GET /console/audit?before=1~2~3~4", 422),
        ("GET /console/contradictions?after=-8000000000000000000~payments~1", 422),
        ("GET /console/participants/nobody", 404),
        ("GET /console/apps/none", 404),
        ("GET /console/act/none", 404),
    ] {
        let found = dana.send(line, "Sec-Fetch-Site: same-origin\r\n", &[]).await;
        assert_eq!(found.status, status, "{line}: {}", found.body);
    }
}

#[tokio::test]
async fn another_method_is_refused_by_every_page() {
    let served = Served::new().await;
    let dana = Browser::of(&served, "dana", "operate").await;
    for (line, status) in [
        ("DELETE /console", 405),
        ("PUT /console/act/park_outbox", 405),
        ("TRACE /console", 405),
        ("OPTIONS /console", 405),
        ("POST /console/waiting", 405),
    ] {
        let found = dana.send(line, "Sec-Fetch-Site: same-origin\r\n", &[]).await;
        assert_eq!(found.status, status, "{line}: {}", found.body);
    }
}
