//! Script in every field that stores text.

use super::{Browser, Scene};
use crate::console::HOSTILE;

/// Nothing stored became markup, and nothing acts on the reader's eyes.
fn assert_clean(path: &str, body: &str) {
    // What was typed stays in its field as it is.
    let mut parts = body.split(" value=\"");
    let mut shown = parts.next().unwrap().to_owned();
    shown.extend(parts.map(|part| part.split_once('"').unwrap().1));
    let typed = regex_lite::Regex::new("(?s)(<textarea[^>]*>)[^<]*</textarea>").unwrap();
    let shown = typed.replace_all(&shown, "$1</textarea>");
    let body = shown.as_ref();
    for bad in ["<script>alert", "<img", "onerror=alert(2)>", "\u{202e}", "style=\"", "javascript:"]
    {
        assert!(!body.contains(bad), "{path} has {bad}: {body}");
    }
    let scripts = body.matches("<script").count();
    assert_eq!(scripts, 1, "{path}: its own script, and none inline");
}

/// Every page and every form, as this scope sees them.
async fn every_page_is_clean(scope: &str) {
    let scene = Scene::new().await;
    let browser = Browser::of(&scene.served, "eve", scope).await;
    for path in scene.pages() {
        let page = browser.get(&path).await;
        assert_eq!(page.status, 200, "{scope} {path}: {}", page.body);
        assert_clean(&path, &page.body);
        assert!(page.body.contains("<main"), "{path}");
    }
    for (act, path) in Scene::forms() {
        let page = browser.get(&path).await;
        let may = scope == "operate";
        assert_eq!(page.status, if may { 200 } else { 403 }, "{scope} {act}: {}", page.body);
        assert!(may || page.body.contains("This needs a token with scope operate"), "{act}");
        assert_clean(&path, &page.body);
    }
}

#[tokio::test]
async fn stored_script_runs_on_no_page_of_a_reader() {
    every_page_is_clean("read").await;
}

#[tokio::test]
async fn stored_script_runs_on_no_page_of_an_auditor() {
    every_page_is_clean("audit").await;
}

#[tokio::test]
async fn stored_script_runs_on_no_page_of_an_operator() {
    every_page_is_clean("operate").await;
}

#[tokio::test]
async fn stored_script_runs_on_no_page_of_an_approver() {
    every_page_is_clean("approve").await;
}

/// What is typed comes back on the next page: beside a refusal, in a preview, as a notice.
#[tokio::test]
async fn script_that_is_typed_into_a_form_comes_back_as_text() {
    let scene = Scene::new().await;
    let dana = Browser::of(&scene.served, "dana", "operate").await;
    let item = scene.parked.to_string();
    for (target, step) in [(HOSTILE, "do"), (HOSTILE, "preview"), (item.as_str(), "preview")] {
        let fields = [("p_outbox_id", target), ("reason", HOSTILE), ("step", step)];
        let page = dana.post("/console/act/release_outbox", &fields).await;
        assert!([200, 409, 422].contains(&page.status), "{}", page.status);
        assert_clean("/console/act/release_outbox", &page.body);
    }
}

/// A browser that took an answer of the API for a page would run what is in it.
#[tokio::test]
async fn an_answer_of_the_api_is_never_a_page() {
    let scene = Scene::new().await;
    let token = scene.served.token("ann", "audit").await;
    for path in [
        format!("/v1/payments/{}", scene.parked),
        "/v1/payments/%3Cscript%3E".to_owned(),
        "/v1/dead-letters/payments".to_owned(),
    ] {
        let bearer = format!("Authorization: Bearer {token}\r\n");
        let answer = Browser::out(&scene.served).send(&format!("GET {path}"), &bearer, &[]).await;
        let kind = answer.header("content-type").unwrap();
        assert!(kind.ends_with("json"), "{path}: {kind}");
        assert_eq!(answer.header("x-content-type-options").as_deref(), Some("nosniff"), "{path}");
    }
}
