//! Forms of other sites, of other sessions, and that a scope was not shown.

use super::Browser;
use crate::api::{Served, raw};
use crate::approvals::parked;

const PAUSE: &str = "POST /console/act/pause_payment_lane";

async fn is_paused(served: &Served) -> bool {
    served.db.count("payment_outbox_settings WHERE paused").await == 1
}

#[tokio::test]
async fn a_form_of_another_site_is_refused() {
    let served = Served::new().await;
    let dana = Browser::of(&served, "dana", "operate").await;
    let good = [("form_token", dana.form_token.as_str()), ("reason", "r"), ("step", "do")];
    for headers in [
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Sec-Fetch-Site: none\r\n",
        "Sec-Fetch-Site: cross-site\r\nOrigin: http://localhost\r\n",
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
        "Origin: http://localhost.evil.example\r\n",
        "Origin: http://localhost:1\r\n",
    ] {
        let refused = dana.send(PAUSE, headers, &good).await;
        assert_eq!(refused.status, 403, "{headers}: {}", refused.body);
        assert!(refused.body.contains("CROSS_SITE"), "{headers}");
    }
    assert!(!is_paused(&served).await);
    assert_eq!(dana.send(PAUSE, "Origin: http://localhost\r\n", &good).await.status, 303);
    assert!(is_paused(&served).await);
}

#[tokio::test]
async fn another_site_signs_nobody_in_or_out() {
    let served = Served::new().await;
    let token = served.token("eve", "read").await;
    let dana = Browser::of(&served, "dana", "operate").await;
    for headers in ["Sec-Fetch-Site: cross-site\r\n", "Origin: http://evil.example\r\n"] {
        let entered = dana.send("POST /console/sign-in", headers, &[("token", &token)]).await;
        assert!(entered.status == 403 && entered.header("set-cookie").is_none(), "{headers}");
        let fields = [("form_token", dana.form_token.as_str())];
        assert_eq!(
            dana.send("POST /console/sign-out", headers, &fields).await.status,
            403,
            "{headers}"
        );
    }
    assert_eq!(dana.get("/console").await.status, 200);
}

#[tokio::test]
async fn a_form_without_the_token_of_its_session_is_refused() {
    let served = Served::new().await;
    let dana = Browser::of(&served, "dana", "operate").await;
    for token in [None, Some(""), Some("0")] {
        let mut fields = vec![("reason", "r"), ("step", "do")];
        fields.extend(token.map(|token| ("form_token", token)));
        let refused = dana.send(PAUSE, "Sec-Fetch-Site: same-origin\r\n", &fields).await;
        assert_eq!(refused.status, 403, "{token:?}: {}", refused.body);
        assert!(refused.body.contains("FORM_TOKEN"), "{token:?}");
    }
    assert!(!is_paused(&served).await);
}

#[tokio::test]
async fn a_form_of_another_session_is_refused() {
    let served = Served::new().await;
    let dana = Browser::of(&served, "dana", "operate").await;
    let eve = Browser::of(&served, "eve", "operate").await;
    let fields = [("form_token", eve.form_token.as_str()), ("reason", "r"), ("step", "do")];
    let refused = dana.send(PAUSE, "Sec-Fetch-Site: same-origin\r\n", &fields).await;
    assert!(refused.status == 403 && refused.body.contains("FORM_TOKEN"), "{}", refused.body);
    assert!(!is_paused(&served).await);
}

#[tokio::test]
async fn a_form_that_is_no_form_is_refused() {
    let served = Served::new().await;
    let dana = Browser::of(&served, "dana", "operate").await;
    for kind in ["text/plain", "application/json", "multipart/form-data; boundary=x"] {
        let text = format!(
            "{PAUSE} HTTP/1.1\r\nHost: localhost\r\nCookie: {}\r\nContent-Type: {kind}\r\nContent-Length: 8\r\nConnection: close\r\n\r\nreason=r",
            dana.cookie
        );
        assert!(
            raw(served.api.address(), text.as_bytes()).await.starts_with("HTTP/1.1 415"),
            "{kind}"
        );
    }
    assert!(!is_paused(&served).await);
}

#[tokio::test]
async fn an_address_alone_does_nothing() {
    let served = Served::new().await;
    let dana = Browser::of(&served, "dana", "operate").await;
    let path =
        format!("/console/act/pause_payment_lane?reason=r&step=do&form_token={}", dana.form_token);
    let shown = dana.get(&path).await;
    assert_eq!(shown.status, 200, "it only shows the form");
    assert!(!is_paused(&served).await);
}

#[tokio::test]
async fn a_form_without_end_is_refused() {
    let served = Served::new().await;
    let dana = Browser::of(&served, "dana", "operate").await;
    let large = "x".repeat(2 * 1024 * 1024);
    let refused =
        dana.post("/console/act/pause_payment_lane", &[("reason", &large), ("step", "do")]).await;
    // Whoever goes on sending after the refusal may find the connection reset.
    assert!([0, 413].contains(&refused.status), "{}", refused.status);
    assert!(!is_paused(&served).await);
}

/// Each form by a scope that was not shown it.
async fn acts_alone(scope: &str) {
    let served = Served::new().await;
    let item = parked(&served.db, "inv-1").await;
    let id = item.to_string();
    let fields = [("p_outbox_id", id.as_str()), ("reason", "r"), ("step", "do")];
    let browser = Browser::of(&served, "eve", scope).await;
    for act in ["release_outbox", "park_outbox", "pause_payment_lane"] {
        let refused = browser.post(&format!("/console/act/{act}"), &fields).await;
        assert_eq!(refused.status, 403, "{scope} {act}: {}", refused.body);
    }
    if scope != "approve" {
        for decision in ["approve", "reject"] {
            let path = format!("/console/approvals/1/{decision}");
            assert_eq!(
                browser.post(&path, &[("reason", "r")]).await.status,
                403,
                "{scope} {decision}"
            );
        }
    }
    assert_eq!(served.db.state(item).await, "PARKED");
    assert!(!is_paused(&served).await);
}

#[tokio::test]
async fn a_reader_does_nothing_by_a_form_that_it_was_not_shown() {
    acts_alone("read").await;
}

#[tokio::test]
async fn an_auditor_does_nothing_by_a_form_that_it_was_not_shown() {
    acts_alone("audit").await;
}

#[tokio::test]
async fn an_approver_acts_by_no_form_that_it_was_not_shown() {
    acts_alone("approve").await;
}

#[tokio::test]
async fn only_acts_have_forms() {
    let served = Served::new().await;
    let dana = Browser::of(&served, "dana", "operate").await;
    for act in [
        "create_api_token",
        "approve_outbox_request",
        "claim_outbox_batch",
        "pg_sleep",
        "..%2fx",
        "%00",
    ] {
        let refused =
            dana.post(&format!("/console/act/{act}"), &[("reason", "r"), ("step", "do")]).await;
        assert!([404, 422].contains(&refused.status), "{act}: {}", refused.status);
    }
}

#[tokio::test]
async fn no_form_names_who_acts_or_approves() {
    let served = Served::new().await;
    let item = parked(&served.db, "inv-1").await.to_string();
    let dana = Browser::of(&served, "dana", "operate").await;
    let named = [
        ("p_outbox_id", item.as_str()),
        ("reason", "r"),
        ("step", "do"),
        ("p_actor", "omar"),
        ("p_approver", "kim"),
        ("actor", "omar"),
    ];
    assert_eq!(dana.post("/console/act/release_outbox", &named).await.status, 303);
    let told = served.db.acts("payment_outbox_events").await;
    assert_eq!(told.last().unwrap(), "RELEASED dana r");
}

#[tokio::test]
async fn nobody_approves_their_own_request_in_the_console() {
    let served = Served::new().await;
    served.db.require_approval("payment").await;
    let item = parked(&served.db, "inv-1").await;
    let id = item.to_string();
    let dana = Browser::of(&served, "dana", "operate,approve").await;
    let fields = [("p_outbox_id", id.as_str()), ("reason", "r"), ("step", "do")];
    assert_eq!(dana.post("/console/act/release_outbox", &fields).await.status, 303);
    let own = dana.post("/console/approvals/1/approve", &[("reason", "mine")]).await;
    assert!(own.status == 403 && own.body.contains("P7008"), "{}", own.body);
    for person in ["dana", "Dana", "dana."] {
        let same = Browser::of(&served, person, "approve").await;
        let own = same.post("/console/approvals/1/approve", &[("reason", "mine")]).await;
        assert_eq!(own.status, 403, "{person}: {}", own.body);
    }
    assert_eq!(served.db.state(item).await, "PARKED");
}
