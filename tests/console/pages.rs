//! Every page for every role, and what each may see of it; acts and approvals from pages.

use symphony::domain::{OutboxId, Outcome};

use super::{ACTS, Browser, CANARY, Scene};
use crate::api::Served;
use crate::approvals::parked;
use crate::support::{act, payment};

#[tokio::test]
async fn payloads_are_shown_to_roles_with_payload_rights_and_to_nobody_else() {
    let scene = Scene::new().await;
    let with_payload = [
        format!("/console/payments/{}", scene.parked),
        format!("/console/events/{}", scene.event),
        format!("/console/executions/{}", scene.execution),
    ];
    for scope in ["audit", "operate", "approve"] {
        let browser = Browser::of(&scene.served, "ann", scope).await;
        for path in &with_payload {
            let page = browser.get(path).await;
            assert!(page.body.contains(CANARY), "{scope} {path}: {}", page.body);
        }
    }
    let browser = Browser::of(&scene.served, "eve", "read").await;
    for path in scene.pages() {
        let page = browser.get(&path).await;
        assert!(!page.body.contains(CANARY), "{path}: {}", page.body);
    }
    let page = browser.get(&with_payload[0]).await;
    assert!(page.body.contains("The payload is hidden"), "{}", page.body);
}

#[tokio::test]
async fn a_token_that_only_enqueues_is_not_signed_in_and_is_told_so() {
    let served = Served::new().await;
    for scope in ["ingest", "call"] {
        let token = served.token("shop", scope).await;
        let out = Browser::out(&served);
        let refused = out.send("POST /console/sign-in", "", &[("token", &token)]).await;
        assert_eq!((refused.status, refused.header("set-cookie")), (403, None), "{scope}");
        let told = "This needs a token with scope read";
        assert!(refused.body.contains(told), "{scope}: {}", refused.body);
    }
}

#[tokio::test]
async fn the_overview_names_twenty_paused_things_and_unserved_rails_and_counts_the_others() {
    let served = Served::new().await;
    let db = &served.db;
    db.sql(
        "INSERT INTO payment_outbox_rails (rail_type, paused) SELECT 'paused-' || n, true FROM generate_series(1, 25) n",
    )
    .await;
    for n in 0..23 {
        db.enqueue(&payment(&format!("inv-{n}"), "acme", &format!("rail-{n}"))).await;
    }
    db.sql("UPDATE payment_outbox_pending SET created_at = created_at - INTERVAL '1 hour', next_attempt_at = next_attempt_at - INTERVAL '1 hour'")
        .await;
    let page = Browser::of(&served, "eve", "read").await.get("/console").await.body;
    assert_eq!(page.matches("is paused since").count(), 20, "{page}");
    assert!(page.contains("And 5 more."), "{page}");
    assert_eq!(page.matches("No live worker serves").count(), 20, "{page}");
    assert!(page.contains("And 3 more."), "{page}");
}

#[tokio::test]
async fn money_is_shown_as_it_was_written() {
    let scene = Scene::new().await;
    let browser = Browser::of(&scene.served, "ann", "audit").await;
    let page = browser.get(&format!("/console/payments/{}", scene.parked)).await;
    assert!(page.body.contains("1234567890.10 EUR"), "{}", page.body);
}

#[tokio::test]
async fn any_id_leads_to_what_it_names() {
    let served = Served::new().await;
    let item = served.db.enqueue(&payment("inv-1", "acme", "ach")).await.outbox_id;
    let browser = Browser::of(&served, "eve", "read").await;
    let event = served.db.tell_of("k", 1).await[0];
    for (sought, leads_to) in [
        ("inv-1".to_owned(), format!("/console/payments/{item}")),
        (item.to_string(), format!("/console/payments/{item}")),
        (event.to_string(), format!("/console/events/{event}")),
        ("acme".to_owned(), "/console/participants/acme".to_owned()),
    ] {
        let found = browser.get(&format!("/console/search?q={sought}")).await;
        assert_eq!(found.header("location").as_deref(), Some(leads_to.as_str()), "{sought}");
    }
    let key: uuid::Uuid = served.db.one(&format!("SELECT payment_rail_key('{item}')")).await;
    let none = browser.get(&format!("/console/search?q={key}")).await;
    assert!(none.status == 200 && none.body.contains("Nothing has that id"), "{}", none.body);
    let found = browser.get(&format!("/console/search?q={key}&everywhere=1")).await;
    assert_eq!(found.header("location"), Some(format!("/console/payments/{item}")));
}

#[tokio::test]
async fn a_worker_and_a_request_are_found_by_name_and_number() {
    let served = Served::new().await;
    let item = parked(&served.db, "inv-1").await;
    let call = symphony::db::ActCall::release(item, &act());
    served.db.database.operator().request_approval(&call, &act(), 3_600).await.unwrap();
    served
        .db
        .sql(
            "INSERT INTO outbox_destinations (worker_id, lane, name, breaker, troubles, calls, window_ms, reported_at) \
             VALUES ('host-7-payments', 'payments', 'ach', 'CLOSED', 0, 0, 3000, now())",
        )
        .await;
    let browser = Browser::of(&served, "eve", "read").await;
    for (sought, leads_to) in [
        ("host-7-payments", "/console/workers?worker=host%2D7%2Dpayments"),
        ("1", "/console/approvals/1"),
    ] {
        let found = browser.get(&format!("/console/search?q={sought}")).await;
        assert_eq!(found.header("location").as_deref(), Some(leads_to), "{sought}: {}", found.body);
    }
}

#[tokio::test]
async fn references_keys_and_traces_are_looked_for_in_everything_when_asked() {
    let served = Served::new().await;
    let db = &served.db;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let mut request = payment("inv-1", "acme", "ach");
    request.idempotency_key = "order-77".to_owned();
    request.traceparent = Some(format!("00-{trace}-b7ad6b7169203331-01"));
    let item = db.enqueue(&request).await.outbox_id;
    let claimed = db.claim_one("w").await;
    let completion = symphony::db::PaymentOutcome {
        rail_reference: Some("SEPA-77120".to_owned()),
        ..symphony::db::PaymentOutcome::new(claimed.lease(), Outcome::Dispatched)
    };
    db.database.worker().complete_payment("w", &completion).await.unwrap();
    let browser = Browser::of(&served, "eve", "read").await;
    for sought in ["SEPA-77120", "order-77", trace] {
        let none = browser.get(&format!("/console/search?q={sought}")).await;
        assert!(none.body.contains("Look through all for it"), "{sought}: {}", none.body);
        let found = browser.get(&format!("/console/search?q={sought}&everywhere=1")).await;
        let leads_to = format!("/console/payments/{item}");
        assert_eq!(found.header("location"), Some(leads_to), "{sought}: {}", found.body);
    }
    let none = browser.get("/console/search?q=SEPA-7712_&everywhere=1").await;
    assert!(none.body.contains("were looked through"), "no pattern: {}", none.body);
}

/// Each process has its own: a balancer in front of several must be sticky (ops/kubernetes).
#[tokio::test]
async fn a_session_of_another_process_is_none_here_and_the_page_says_sign_in() {
    let served = Served::new().await;
    let other = super::history::beside(&served).await;
    let browser = Browser::of(&served, "eve", "read").await;
    let (_, id) = browser.cookie.split_once('=').unwrap();
    let port = other.address().port();
    let text = format!(
        "GET /console HTTP/1.1\r\nHost: localhost\r\nCookie: symphony_session_{port}={id}\r\nConnection: close\r\n\r\n"
    );
    let answer = crate::api::raw(other.address(), text.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 303"), "{answer}");
    assert!(answer.contains("/console/sign-in?to="), "{answer}");
    assert_eq!(browser.get("/console").await.status, 200, "it goes on where it began");
    other.stop();
}

#[tokio::test]
async fn lists_are_paged_and_leave_nothing_out() {
    let served = Served::new().await;
    let browser = Browser::of(&served, "eve", "read").await;
    let items = served.db.enqueue_stream("acme", "ach", 120).await;
    for item in &items {
        served.db.database.operator().park_payment(*item, &act()).await.unwrap();
    }
    let expected: Vec<String> = items.iter().map(OutboxId::to_string).collect();
    for list in ["/console/waiting/payments", "/console/participants/acme"] {
        let (mut seen, mut path, mut pages) = (Vec::new(), list.to_owned(), 0);
        loop {
            let page = browser.get(&path).await;
            assert_eq!(page.status, 200, "{path}: {}", page.body);
            seen.extend(expected.iter().filter(|id| page.body.contains(id.as_str())).cloned());
            pages += 1;
            let Some((_, rest)) = page.body.split_once("rel=\"next\" href=\"") else { break };
            path = rest.split('"').next().unwrap().replace("&amp;", "&");
        }
        seen.sort();
        let mut all = expected.clone();
        all.sort();
        assert_eq!((seen, pages), (all, 3), "{list}");
    }
    // Acts of three lanes, interleaved.
    for n in 0..30 {
        let reason = format!("reason-{n:02}-");
        let why = symphony::domain::Act { reason, ..act() };
        let operator = served.db.database.operator();
        let switch = if n % 2 == 0 {
            symphony::domain::Switch::Events
        } else {
            symphony::domain::Switch::Triggers
        };
        operator.pause(&switch, &why).await.unwrap();
        operator.resume(&switch, &why).await.unwrap();
    }
    let (mut path, mut rows) = ("/console/audit".to_owned(), 0);
    let mut reasons = std::collections::BTreeMap::new();
    loop {
        let page = browser.get(&path).await;
        rows += page.body.matches("<tr>").count() - 1;
        for n in 0..30 {
            let found = page.body.matches(&format!("reason-{n:02}-")).count();
            *reasons.entry(n).or_insert(0) += found;
        }
        let Some((_, rest)) = page.body.split_once("rel=\"next\" href=\"") else { break };
        path = rest.split('"').next().unwrap().replace("&amp;", "&");
    }
    assert_eq!(rows, 120 + 60);
    assert!(reasons.values().all(|found| *found == 2), "{reasons:?}");
}

#[tokio::test]
async fn an_act_is_previewed_then_done_under_the_tokens_person() {
    let served = Served::new().await;
    let item = parked(&served.db, "inv-1").await;
    let dana = Browser::of(&served, "dana", "operate").await;
    let item_page = format!("/console/payments/{item}");
    let page = dana.get(&item_page).await;
    assert!(page.body.contains("/console/act/resolve_outbox?back="), "{}", page.body);
    let id = item.to_string();
    let fields = |step| {
        [
            ("p_outbox_id", id.as_str()),
            ("reason", "all is well"),
            ("step", step),
            ("back", item_page.as_str()),
        ]
    };
    let would = dana.post("/console/act/release_outbox", &fields("preview")).await;
    assert!(would.status == 200 && would.body.contains("What would change"), "{}", would.body);
    assert_eq!(served.db.state(item).await, "PARKED", "a preview changes nothing");
    let done = dana.post("/console/act/release_outbox", &fields("do")).await;
    assert_eq!((done.status, done.header("location")), (303, Some(item_page.clone())));
    assert_eq!(served.db.state(item).await, "DUE");
    let page = dana.get(&item_page).await;
    assert!(page.body.contains("Done: release a parked payment"), "{}", page.body);
    assert!(!dana.get(&item_page).await.body.contains("Done: release"), "told once");
    let told = served.db.acts("payment_outbox_events").await;
    assert_eq!(told.last().unwrap(), "RELEASED dana all is well");
    // The overview knows of one's own act at once.
    let pause = [("reason", "for a while"), ("step", "do")];
    assert!(!dana.get("/console").await.body.contains("lane <b>payments</b> is paused"));
    assert_eq!(dana.post("/console/act/pause_payment_lane", &pause).await.status, 303);
    let overview = dana.get("/console").await;
    assert!(overview.body.contains("/console/act/resume_payment_lane"), "{}", overview.body);
    // What the database refuses is told beside what was typed.
    let again = dana.post("/console/act/release_outbox", &fields("do")).await;
    assert_eq!(again.status, 409, "{}", again.body);
    assert!(again.body.contains("P7006") && again.body.contains("all is well"), "{}", again.body);
    let no_reason = dana.post("/console/act/release_outbox", &[("p_outbox_id", &id)]).await;
    assert!(no_reason.status == 422 && no_reason.body.contains("Reason is missing"));
}

#[tokio::test]
async fn where_approval_is_needed_an_act_becomes_a_request_and_only_a_second_person_approves_it() {
    let served = Served::new().await;
    served.db.require_approval("payment").await;
    let item = parked(&served.db, "inv-1").await;
    let id = item.to_string();
    let dana = Browser::of(&served, "dana", "operate,approve").await;
    let fields = |step| [("p_outbox_id", id.as_str()), ("reason", "it is safe"), ("step", step)];
    let would = dana.post("/console/act/release_outbox", &fields("preview")).await;
    assert!(would.body.contains("A second person must approve it"), "{}", would.body);
    let asked = dana.post("/console/act/release_outbox", &fields("do")).await;
    assert_eq!(asked.header("location").as_deref(), Some("/console/approvals/1"));
    assert_eq!(served.db.state(item).await, "PARKED");
    let own = dana.post("/console/approvals/1/approve", &[("reason", "mine")]).await;
    assert_eq!(own.status, 403, "{}", own.body);
    assert!(own.body.contains("P7008"), "{}", own.body);
    for person in ["Dana", "DANA"] {
        let same = Browser::of(&served, person, "approve").await;
        let own = same.post("/console/approvals/1/approve", &[("reason", "mine")]).await;
        assert_eq!(own.status, 403, "{person}: {}", own.body);
    }
    let reader = Browser::of(&served, "eve", "read").await;
    assert!(!reader.get("/console/approvals/1").await.body.contains("Approve: it is done"));
    let refused = reader.post("/console/approvals/1/approve", &[("reason", "no")]).await;
    assert_eq!(refused.status, 403);
    assert_eq!(served.db.state(item).await, "PARKED");
    let kim = Browser::of(&served, "kim", "approve").await;
    let page = kim.get("/console/approvals/1").await;
    assert!(page.body.contains("Approve: it is done at once"), "{}", page.body);
    let done = kim.post("/console/approvals/1/approve", &[("reason", "I have looked")]).await;
    assert_eq!((done.status, served.db.state(item).await.as_str()), (303, "DUE"), "{}", done.body);
    let told = served.db.acts("payment_outbox_events").await;
    assert_eq!(told.last().unwrap(), "RELEASED dana kim it is safe");
    let life = reader.get(&format!("/console/payments/{item}")).await;
    assert!(life.body.contains("approved by kim"), "{}", life.body);
    let again = kim.post("/console/approvals/1/approve", &[("reason", "again")]).await;
    assert_eq!(again.status, 409, "{}", again.body);
    // One's own can be taken back, another one rejected.
    served.db.database.operator().park_payment(item, &act()).await.unwrap();
    for (number, decision, state) in [("2", "withdraw", "WITHDRAWN"), ("3", "reject", "REJECTED")] {
        dana.post("/console/act/release_outbox", &fields("do")).await;
        let who = if decision == "withdraw" { &dana } else { &kim };
        let path = format!("/console/approvals/{number}/{decision}");
        assert_eq!(who.post(&path, &[("reason", "no")]).await.status, 303, "{decision}");
        let found: String = served
            .db
            .one(&format!("SELECT state FROM outbox_approvals WHERE request_no = {number}"))
            .await;
        assert_eq!(found, state);
    }
    assert_eq!(served.db.state(item).await, "PARKED");
}

type Arguments<'a> = &'a [(&'a str, &'a str)];

#[tokio::test]
async fn every_kind_of_act_is_done_from_its_page() {
    let scene = Scene::new().await;
    let dana = Browser::of(&scene.served, "dana", "operate").await;
    let (parked, failed) = (scene.parked.to_string(), scene.failed.to_string());
    let (event, execution) = (scene.event.to_string(), scene.execution.to_string());
    let known: &[(&str, Arguments<'_>, &str)] = &[
        ("pause_payment_lane", &[], "PAUSED"),
        ("resume_payment_lane", &[], "RESUMED"),
        ("pause_event_lane", &[], "PAUSED"),
        ("resume_event_lane", &[], "RESUMED"),
        ("pause_trigger_lane", &[], "PAUSED"),
        ("resume_trigger_lane", &[], "RESUMED"),
        ("pause_payment_rail", &[("p_rail_type", "ach")], "PAUSED"),
        ("resume_payment_rail", &[("p_rail_type", "ach")], "RESUMED"),
        ("pause_app", &[("p_app", "shop")], "PAUSED"),
        ("resume_app", &[("p_app", "shop")], "RESUMED"),
        ("redrive_outbox", &[("p_outbox_id", &failed)], "REDRIVEN"),
        (
            "resolve_outbox",
            &[
                ("p_outbox_id", &parked),
                ("p_resolution", "DISPATCHED"),
                ("p_rail_reference", "R-1"),
            ],
            "RESOLVED",
        ),
        ("skip_event_outbox", &[("p_event_id", &event)], "SKIPPED"),
        ("redrive_event_outbox", &[("p_event_id", &event)], "REDRIVEN"),
        ("replay_trigger_execution", &[("p_id", &execution)], "REPLAYED"),
    ];
    for (act, arguments, told) in known {
        let page = dana.get(&format!("/console/act/{act}")).await;
        assert_eq!(page.status, 200, "{act}");
        let reason = format!("because of {act}");
        let mut fields = arguments.to_vec();
        fields.extend([("reason", reason.as_str()), ("step", "do")]);
        let done = dana.post(&format!("/console/act/{act}"), &fields).await;
        assert_eq!(done.status, 303, "{act}: {}", done.body);
        let audit = dana.get("/console/audit").await;
        assert!(audit.body.contains(&reason), "{act} is in the audit");
        let lane = if act.contains("event") {
            "event"
        } else if act.contains("trigger") || act.contains("app") {
            "trigger"
        } else {
            "payment"
        };
        let found = scene.served.db.count(&format!(
            "{lane}_outbox_events WHERE event_type = '{told}' AND actor = 'dana' AND reason = '{reason}'"
        )).await;
        assert_eq!(found, 1, "{act}");
    }
    // What stops a payment on its way, and what asks about one whose outcome is unknown.
    let db = &scene.served.db;
    let unclear = db.ended(&payment("inv-10", "other", "wire"), "TIMEOUT", Outcome::Unknown).await;
    let on_its_way = db.enqueue(&payment("inv-9", "other", "sepa")).await.outbox_id;
    for (act, item, told) in
        [("park_outbox", on_its_way, "PARKED"), ("inquire_outbox", unclear, "INQUIRY_ASKED")]
    {
        let item = item.to_string();
        let fields = [("p_outbox_id", item.as_str()), ("reason", "r"), ("step", "do")];
        let done = dana.post(&format!("/console/act/{act}"), &fields).await;
        assert_eq!(done.status, 303, "{act}: {}", done.body);
        let events = format!(
            "payment_outbox_events WHERE event_type = '{told}' AND actor = 'dana' AND outbox_id = '{item}'"
        );
        assert_eq!(db.count(&events).await, 1, "{act}");
    }
    assert!(ACTS.len() > known.len());
}

#[tokio::test]
async fn the_stream_tells_the_lanes_again_and_again_until_the_token_is_revoked() {
    let served = Served::new().await;
    served.db.enqueue(&payment("inv-1", "acme", "ach")).await;
    let made = served.token_command("create --name a --person eve --scope read").await;
    let browser = Browser::with(&served, made["token"].as_str().unwrap()).await;
    // The answer ends when the stream does: `raw` reads to the end.
    let stream = browser.get("/console/live");
    let revoked = async {
        super::history::until_counted_again(&served).await;
        served
            .token_command(&format!("revoke {} --reason lost", made["token_id"].as_str().unwrap()))
            .await;
    };
    let (answer, ()) = tokio::join!(stream, revoked);
    assert_eq!(answer.header("content-type").as_deref(), Some("text/event-stream; charset=utf-8"));
    assert!(answer.body.contains("\"lane\":\"payments\",\"pending\":1"), "{}", answer.body);
}

#[tokio::test]
async fn the_address_alone_leads_to_the_console_and_its_parts_are_served() {
    let served = Served::new().await;
    let browser = Browser::out(&served);
    assert_eq!(browser.get("/").await.header("location").as_deref(), Some("/console"));
    let first = browser.get("/console/waiting/payments?code=A").await;
    let to = first.header("location").unwrap();
    assert_eq!(to, "/console/sign-in?to=%2Fconsole%2Fwaiting%2Fpayments%3Fcode%3DA");
    let form = browser.get(&to).await;
    assert_eq!(form.field("to").as_deref(), Some("/console/waiting/payments?code=A"));
    for (path, kind) in
        [("/console/style.css", "text/css"), ("/console/script.js", "text/javascript")]
    {
        let asset = browser.get(path).await;
        assert!(asset.status == 200 && asset.header("content-type").unwrap().starts_with(kind));
    }
    let link = served.api.sign_in_link(&served.token("eve", "read").await).unwrap();
    let path = link.split_once("/console").unwrap().1;
    let entered = browser.get(&format!("/console{path}")).await;
    assert!(entered.status == 200 && entered.header("set-cookie").is_some(), "{}", entered.body);
    let again = browser.get(&format!("/console{path}")).await;
    assert!(again.status == 401 && again.header("set-cookie").is_none(), "it is good once");
}
