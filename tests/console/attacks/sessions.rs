//! Sessions that are missing, stolen, over or guessed.

use futures_util::future::join_all;

use super::{Browser, Scene};
use crate::api::Served;

const PAUSE: &str = "/console/act/pause_payment_lane";

/// Neither shown nor done anything.
async fn is_locked_out(scene: &Scene, browser: &Browser<'_>) {
    for path in scene.pages() {
        let page = browser.get(&path).await;
        assert_eq!(page.status, 303, "{} {path}", browser.cookie);
        assert!(page.header("location").unwrap().starts_with("/console/sign-in?to="), "{path}");
        assert!(page.body.is_empty());
    }
    assert_eq!(browser.get("/console/live").await.status, 401, "{}", browser.cookie);
    let act = browser.post(PAUSE, &[("reason", "r"), ("step", "do")]).await;
    assert_eq!(act.status, 401, "{}: {}", browser.cookie, act.body);
    assert_eq!(scene.served.db.count("payment_outbox_settings WHERE paused").await, 0);
}

#[tokio::test]
async fn without_a_session_nothing_is_shown_and_nothing_done() {
    let scene = Scene::new().await;
    is_locked_out(&scene, &Browser::out(&scene.served)).await;
}

#[tokio::test]
async fn a_cookie_that_was_never_given_opens_nothing() {
    let scene = Scene::new().await;
    let good = Browser::of(&scene.served, "ann", "operate").await;
    let (name, id) = good.cookie.split_once('=').unwrap();
    for cookie in [
        format!("{name}={}", "0".repeat(64)),
        format!("{name}="),
        format!("{name}={}", &id[..63]),
        format!("{name}={id}0"),
        format!("{name}={id} OR 1=1"),
        format!("other={id}"),
    ] {
        let form_token = good.form_token.clone();
        is_locked_out(&scene, &Browser { cookie, form_token, ..Browser::out(&scene.served) }).await;
    }
}

#[tokio::test]
async fn a_second_cookie_beside_the_right_one_opens_nothing() {
    let scene = Scene::new().await;
    let good = Browser::of(&scene.served, "ann", "operate").await;
    let (name, _) = good.cookie.split_once('=').unwrap();
    for cookie in [
        format!("{}; {}", good.cookie, good.cookie),
        format!("{name}={}; {}", "0".repeat(64), good.cookie),
    ] {
        let form_token = good.form_token.clone();
        is_locked_out(&scene, &Browser { cookie, form_token, ..Browser::out(&scene.served) }).await;
    }
}

#[tokio::test]
async fn a_bearer_token_opens_no_page_and_a_cookie_no_address_of_the_api() {
    let served = Served::new().await;
    let good = Browser::of(&served, "ann", "operate").await;
    let token = served.token("eve", "operate").await;
    let bearer = format!("Authorization: Bearer {token}\r\n");
    assert_eq!(Browser::out(&served).send("GET /console", &bearer, &[]).await.status, 303);
    assert_eq!(good.get("/v1/status").await.status, 401);
    let (_, id) = good.cookie.split_once('=').unwrap();
    let as_token = format!("Authorization: Bearer symphony_{id}\r\n");
    assert_eq!(good.send("GET /v1/status", &as_token, &[]).await.status, 401);
}

/// A cookie that somebody else has set before is not the session afterwards.
#[tokio::test]
async fn signing_in_gives_a_new_cookie() {
    let served = Served::new().await;
    let token = served.token("eve", "read").await;
    let planted = Browser::with(&served, &token).await;
    let answer = planted.send("POST /console/sign-in", "", &[("token", &token)]).await;
    let given = answer.header("set-cookie").unwrap();
    assert!(!given.contains(planted.cookie.split_once('=').unwrap().1), "{given}");
}

#[tokio::test]
async fn signing_in_again_ends_the_session_before() {
    let served = Served::new().await;
    let before = Browser::of(&served, "ann", "operate").await;
    let other = Browser::of(&served, "kim", "read").await;
    let token = served.token("eve", "read").await;
    let answer = before.send("POST /console/sign-in", "", &[("token", &token)]).await;
    assert_eq!(answer.status, 200);
    assert_eq!(before.get("/console").await.status, 303, "what was left open is over");
    assert_eq!(other.get("/console").await.status, 200);
}

#[tokio::test]
async fn the_cookie_is_no_token_is_out_of_scripts_reach_and_never_crosses_sites() {
    let served = Served::new().await;
    let token = served.token("eve", "read").await;
    let browser = Browser::out(&served);
    let answer = browser.send("POST /console/sign-in", "", &[("token", &token)]).await;
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.contains("; HttpOnly; SameSite=Strict; Max-Age="), "{cookie}");
    assert!(!cookie.contains(&token[9..]) && !answer.body.contains(&token[9..]), "{cookie}");
    let signed_in = Browser::with(&served, &token).await;
    for path in ["/console", "/console/audit", "/console/sign-in"] {
        let page = signed_in.get(path).await;
        assert!(!page.body.contains(&token[9..]) && !page.head.contains(&token[9..]), "{path}");
    }
}

#[tokio::test]
async fn a_revoked_token_ends_its_session_at_the_next_request() {
    let served = Served::new().await;
    let made = served.token_command("create --name a --person eve --scope operate").await;
    let browser = Browser::with(&served, made["token"].as_str().unwrap()).await;
    assert_eq!(browser.get("/console").await.status, 200);
    let id = made["token_id"].as_str().unwrap();
    served.token_command(&format!("revoke {id} --reason lost")).await;
    let act = browser.post(PAUSE, &[("reason", "r"), ("step", "do")]).await;
    assert_eq!(act.status, 401, "{}", act.body);
    let page = browser.get("/console").await;
    assert!(page.status == 303 && page.header("location").unwrap().contains("sign-in"));
    assert_eq!(served.db.count("payment_outbox_settings WHERE paused").await, 0);
}

#[tokio::test]
async fn an_expired_token_ends_its_session_for_good() {
    let served = Served::new().await;
    let browser = Browser::of(&served, "ann", "read").await;
    served.db.sql("UPDATE api_tokens SET created_at = created_at - INTERVAL '2 years', expires_at = clock_timestamp() - INTERVAL '1 second'").await;
    assert_eq!(browser.get("/console").await.status, 303);
    served.db.sql("UPDATE api_tokens SET expires_at = clock_timestamp() + INTERVAL '1 day'").await;
    assert_eq!(browser.get("/console").await.status, 303, "what has ended does not come back");
}

#[tokio::test]
async fn a_cookie_is_worth_nothing_after_signing_out() {
    let served = Served::new().await;
    let browser = Browser::of(&served, "kim", "read").await;
    let out = browser.post("/console/sign-out", &[]).await;
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"), "{}", out.head);
    assert_eq!(browser.get("/console").await.status, 303);
}

#[tokio::test]
async fn an_address_that_signs_in_does_so_once() {
    let served = Served::new().await;
    let link = served.api.sign_in_link(&served.token("eve", "read").await).unwrap();
    let path = format!("/console{}", link.split_once("/console").unwrap().1);
    let browser = Browser::out(&served);
    // A chat that shows links looks first.
    let looked = browser.send(&format!("HEAD {path}"), "", &[]).await;
    assert!(looked.status == 200 && looked.header("set-cookie").is_none(), "{}", looked.head);
    assert!(browser.get(&path).await.header("set-cookie").is_some());
    let again = browser.get(&path).await;
    assert!(again.status == 401 && again.header("set-cookie").is_none(), "{}", again.body);
    let guessed = browser.get(&format!("/console/sign-in?code={}", "0".repeat(64))).await;
    assert!(guessed.status == 401 && guessed.header("set-cookie").is_none(), "{}", guessed.body);
}

#[tokio::test]
async fn guessing_tokens_at_the_sign_in_is_slowed_down_and_told_nothing() {
    let served = Served::new().await;
    let browser = Browser::out(&served);
    let guesses: Vec<String> = (0..60).map(|n| format!("symphony_{n:064x}")).collect();
    // At once: one after the other takes too long where the machine is busy.
    let asked = guesses.iter().map(async |guess| {
        let answer = browser.send("POST /console/sign-in", "", &[("token", guess)]).await;
        assert!(answer.header("set-cookie").is_none() && !answer.body.contains(guess));
        answer.status
    });
    let statuses = join_all(asked).await;
    let expected = statuses.iter().all(|status| [401, 429].contains(status));
    assert!(statuses.contains(&429) && expected, "{statuses:?}");
}

#[tokio::test]
async fn a_sign_in_without_end_is_refused() {
    let served = Served::new().await;
    let large = "x".repeat(2 * 1024 * 1024);
    let answer =
        Browser::out(&served).send("POST /console/sign-in", "", &[("token", &large)]).await;
    assert!([0, 413].contains(&answer.status), "{}", answer.status);
}
