//! The forms that act on what is stopped, blocked or contradictory; and one act on many.

use symphony::domain::{OutboxId, Outcome};

use super::{Browser, Scene};
use crate::api::Served;
use crate::approvals::parked;
use crate::support::{TestDb, act, payment};

/// A form of the console, done, and found in its lane's narrative under the reason.
async fn done(dana: &Browser<'_>, db: &TestDb, act: &str, fields: &[(&str, &str)], told: &str) {
    let reason = format!("because of {act}");
    let mut fields = fields.to_vec();
    fields.extend([("reason", reason.as_str()), ("step", "preview")]);
    let path = format!("/console/act/{act}");
    let would = dana.post(&path, &fields).await;
    assert!(would.status == 200 && would.body.contains("What would change"), "{}", would.body);
    *fields.last_mut().unwrap() = ("step", "do");
    let answer = dana.post(&path, &fields).await;
    assert_eq!(answer.status, 303, "{act}: {}", answer.body);
    let found = db
        .count(&format!(
            "outbox_history WHERE event_type = '{told}' AND actor = 'dana' AND reason = '{reason}'"
        ))
        .await;
    assert_eq!(found, 1, "{act}");
}

#[tokio::test]
async fn what_leads_a_fifo_lane_is_offered_to_be_skipped_and_nothing_else_is() {
    let served = Served::new().await;
    let db = &served.db;
    db.make_fifo("ach", "block").await;
    let dana = Browser::of(&served, "dana", "operate").await;
    let offered = async |item: OutboxId| {
        let page = dana.get(&format!("/console/payments/{item}")).await;
        assert_eq!(page.status, 200, "{}", page.body);
        page.body.contains("Skip in its FIFO lane")
    };
    let lane = [("p_participant_id", "acme"), ("p_rail_type", "ach")];
    // A head that waits, and one behind it.
    let waiting = db.enqueue(&payment("inv-0", "other", "ach")).await.outbox_id;
    let behind = db.enqueue(&payment("inv-00", "other", "ach")).await.outbox_id;
    assert_eq!((offered(waiting).await, offered(behind).await), (true, false));
    db.database.operator().park_payment(waiting, &act()).await.unwrap();
    assert_eq!((offered(waiting).await, offered(behind).await), (true, false), "a parked head");
    // What FAILED blocks its lane.
    let head = db.ended(&payment("inv-1", "acme", "ach"), "REFUSED", Outcome::Failed).await;
    let next = db.enqueue(&payment("inv-2", "acme", "ach")).await.outbox_id;
    assert_eq!((offered(head).await, offered(next).await), (true, false));
    assert_eq!(db.count("payment_outbox_blocked_lanes").await, 1);
    done(&dana, db, "skip_outbox_head", &lane, "SKIPPED").await;
    assert_eq!(db.count("payment_outbox_blocked_lanes").await, 0);
    // It is FAILED still, but to skip now would be to skip the next one.
    assert_eq!((offered(head).await, offered(next).await), (false, true));
    let elsewhere = db.ended(&payment("inv-3", "acme", "wire"), "REFUSED", Outcome::Failed).await;
    let page = dana.get(&format!("/console/payments/{elsewhere}")).await;
    assert!(page.body.contains("Redrive") && !page.body.contains("Skip in its FIFO"));
}

#[tokio::test]
async fn participants_topics_and_breakers_are_switched_from_their_pages() {
    let served = Served::new().await;
    let db = &served.db;
    db.enqueue(&payment("inv-1", "acme", "ach")).await;
    db.sql(
        "INSERT INTO event_outbox_topics (topic) VALUES ('main/transfers'); \
         INSERT INTO outbox_destinations (worker_id, lane, name, breaker, open_since, troubles, calls, window_ms, reported_at) \
         VALUES ('w', 'payments', 'ach', 'OPEN', now(), 9, 1, 3000, now() + INTERVAL '1 hour')",
    )
    .await;
    let dana = Browser::of(&served, "dana", "operate").await;
    for (page, link) in [
        ("/console/participants/acme", "/console/act/pause_payment_participant"),
        ("/console/destinations", "/console/act/pause_event_topic"),
        ("/console/destinations", "/console/act/reset_outbox_destination"),
    ] {
        let shown = dana.get(page).await;
        assert!(shown.body.contains(link), "{link}: {}", shown.body);
    }
    let (participant, topic) = ([("p_participant_id", "acme")], [("p_topic", "main/transfers")]);
    let paused = async |from: &str| db.count(from).await;
    done(&dana, db, "pause_payment_participant", &participant, "PAUSED").await;
    assert_eq!(paused("payment_outbox_paused_participants").await, 1);
    done(&dana, db, "resume_payment_participant", &participant, "RESUMED").await;
    assert_eq!(paused("payment_outbox_paused_participants").await, 0);
    done(&dana, db, "pause_event_topic", &topic, "PAUSED").await;
    assert_eq!(paused("event_outbox_topics WHERE paused").await, 1);
    done(&dana, db, "resume_event_topic", &topic, "RESUMED").await;
    assert_eq!(paused("event_outbox_topics WHERE paused").await, 0);
    let breaker = [("p_lane", "payments"), ("p_name", "ach")];
    done(&dana, db, "reset_outbox_destination", &breaker, "BREAKER_RESET").await;
    assert_eq!(db.count("outbox_destination_resets WHERE name = 'ach'").await, 1);
}

/// A late yes against what the ledger calls FAILED, in each lane.
async fn contradictions(scene: &Scene) -> [i64; 3] {
    let db = &scene.served.db;
    let late = "INSERT INTO LANE_outbox_events (event_type, ITEM, worker_id, details) \
                VALUES ('LATE_OUTCOME', 'ID', 'lost', '{\"state\": \"DISPATCHED\"}')";
    // A script's own effects are true or not there; what goes out may be both.
    db.sql(
        "ALTER TABLE trigger_outbox_attempts DISABLE TRIGGER USER; UPDATE trigger_outbox_attempts SET script_id = NULL; \
         ALTER TABLE trigger_outbox_attempts ENABLE TRIGGER USER",
    )
    .await;
    let mut numbers = [0; 3];
    for (number, (lane, item, id)) in numbers.iter_mut().zip([
        ("payment", "outbox_id", scene.failed.to_string()),
        ("event", "outbox_event", scene.event.to_string()),
        ("trigger", "id", scene.execution.to_string()),
    ]) {
        db.sql(&late.replace("LANE", lane).replace("ITEM", item).replace("ID", &id)).await;
        *number = db
            .one(&format!("SELECT incident_no FROM outbox_incidents WHERE lane = '{lane}s'"))
            .await;
    }
    numbers
}

#[tokio::test]
async fn contradictions_and_dead_letters_of_every_lane_are_closed_by_their_forms() {
    let scene = Scene::new().await;
    let db = &scene.served.db;
    let numbers = contradictions(&scene).await;
    let dana = Browser::of(&scene.served, "dana", "operate").await;
    let listed = dana.get("/console/contradictions").await;
    for (lane, number) in ["payment", "event", "trigger"].into_iter().zip(numbers) {
        let act = format!("close_{lane}_incident");
        assert!(listed.body.contains(&format!("/console/act/{act}?")), "{}", listed.body);
        let number = number.to_string();
        done(&dana, db, &act, &[("p_incident_no", &number)], "INCIDENT_CLOSED").await;
    }
    assert_eq!(db.count("outbox_incidents").await, 0);
    // A closed one is still found by its number.
    let found = dana.get(&format!("/console/search?q={}", numbers[0])).await;
    let told = format!("{}{}", found.body, found.header("location").unwrap_or_default());
    assert!(told.contains(&format!("/console/payments/{}", scene.failed)), "{told}");
    let (payment, execution) = (scene.failed.to_string(), scene.execution.to_string());
    let event = scene.event.to_string();
    let letter = [("p_outbox_id", payment.as_str())];
    done(&dana, db, "close_payment_dead_letter", &letter, "DEAD_LETTER_CLOSED").await;
    let letter = [("p_id", execution.as_str())];
    done(&dana, db, "close_trigger_dead_letter", &letter, "DEAD_LETTER_CLOSED").await;
    // It blocks its key, which closing would leave blocked: it is skipped first.
    let letter = [("p_event_id", event.as_str())];
    done(&dana, db, "skip_event_outbox", &letter, "SKIPPED").await;
    for view in ["payment_outbox_dead_letters", "trigger_outbox_dead_letters"] {
        assert_eq!(db.count(view).await, 0, "{view}");
    }
}

#[tokio::test]
async fn many_are_ticked_previewed_and_done_at_once() {
    let served = Served::new().await;
    let db = &served.db;
    let mut failed = Vec::new();
    for n in 0..3 {
        let request = payment(&format!("inv-{n}"), "acme", "ach");
        failed.push(db.ended(&request, "REFUSED", Outcome::Failed).await.to_string());
    }
    let unclear = parked(db, "inv-9").await.to_string();
    let dana = Browser::of(&served, "dana", "operate").await;
    let list = dana.get("/console/waiting/payments").await;
    for id in failed.iter().chain([&unclear]) {
        let tick = format!("name=\"item\" value=\"{id}\"");
        assert!(list.body.contains(&tick), "{}", list.body);
    }
    let reader = Browser::of(&served, "eve", "read").await;
    assert!(!reader.get("/console/waiting/payments").await.body.contains("name=\"item\""));
    let back = "/console/waiting/payments?state=FAILED";
    let base = [("act", "redrive_outbox"), ("reason", "the bank is back"), ("back", back)];
    let with = |items: &[&str], step: &'static str| {
        let mut fields: Vec<(&str, String)> =
            base.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        fields.extend(items.iter().map(|item| ("item", (*item).to_owned())));
        fields.push(("step", step.to_owned()));
        fields
    };
    let post = async |browser: &Browser<'_>, fields: Vec<(&str, String)>| {
        let fields: Vec<(&str, &str)> =
            fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        browser.post("/console/many/payments", &fields).await
    };
    let redrives = "payment_outbox_instructions WHERE redrive_of IS NOT NULL";
    let all = [failed[0].as_str(), &failed[1], &failed[1], &unclear];
    let would = post(&dana, with(&all, "preview")).await;
    assert_eq!(would.status, 200, "{}", would.body);
    let hidden = |id: &str| format!("<input type=\"hidden\" name=\"item\" value=\"{id}\">");
    assert!(would.body.contains(&hidden(&failed[0])), "{}", would.body);
    assert_eq!(would.body.matches(&hidden(&failed[1])).count(), 1, "each once");
    assert!(!would.body.contains(&hidden(&unclear)), "what is refused is not sent again");
    assert!(would.body.contains("refused") && would.body.contains("P7006"), "{}", would.body);
    assert_eq!(db.count(redrives).await, 0, "a preview changes nothing");
    // Whoever may not, and what is not offered.
    let refused = post(&reader, with(&all, "do")).await;
    assert_eq!(refused.status, 403, "{}", refused.body);
    let none = post(&dana, with(&[], "do")).await;
    assert!(none.status == 422 && none.body.contains("Nothing is ticked"), "{}", none.body);
    let many: Vec<String> = (0..101).map(|_| uuid::Uuid::new_v4().to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(post(&dana, with(&many, "preview")).await.status, 422, "more than the bound");
    let mut fields = with(&all, "do");
    fields[0].1 = "pause_payment_lane".to_owned();
    assert_eq!(post(&dana, fields).await.status, 422, "only what the list offers");
    assert_eq!(db.count(redrives).await, 0);

    let did = post(&dana, with(&all[..2], "do")).await;
    assert_eq!((did.status, did.header("location").as_deref()), (303, Some(back)), "{}", did.body);
    assert_eq!(db.count(redrives).await, 2);
    assert!(dana.get(back).await.body.contains("Done with 2: redrive a failed payment"));
    let acts = db.acts("payment_outbox_events").await;
    let told = acts.iter().filter(|act| *act == "REDRIVEN dana the bank is back").count();
    assert_eq!(told, 2, "each in the ledger: {acts:?}");
    // What is done already is refused, and said so.
    let again = post(&dana, with(&[&failed[0], &failed[2]], "do")).await;
    assert!(again.status == 200 && again.body.contains("Not all of it was done"), "{}", again.body);
    assert_eq!(db.count(redrives).await, 3);
}

#[tokio::test]
async fn many_become_one_request_where_a_second_person_must_approve() {
    let served = Served::new().await;
    let db = &served.db;
    db.require_approval("payment").await;
    let mut items = Vec::new();
    for n in 0..2 {
        let item = db.enqueue(&payment(&format!("inv-{n}"), "acme", "ach")).await.outbox_id;
        db.database.operator().park_payment(item, &act()).await.unwrap();
        items.push(item);
    }
    let ids: Vec<String> = items.iter().map(ToString::to_string).collect();
    let dana = Browser::of(&served, "dana", "operate").await;
    let fields = |step: &'static str| {
        let mut fields = vec![("act", "release_outbox"), ("reason", "it is safe"), ("step", step)];
        fields.extend(ids.iter().map(|id| ("item", id.as_str())));
        fields
    };
    let would = dana.post("/console/many/payments", &fields("preview")).await;
    assert!(would.body.contains("all of them become one request"), "{}", would.body);
    // Also where the form says otherwise.
    let asked = dana.post("/console/many/payments", &fields("do")).await;
    assert_eq!(asked.header("location").as_deref(), Some("/console/approvals/1"), "{}", asked.body);
    assert_eq!(db.state(items[0]).await, "PARKED");
    let kim = Browser::of(&served, "kim", "approve").await;
    assert_eq!(kim.get("/console/approvals/1").await.status, 200);
    let done = kim.post("/console/approvals/1/approve", &[("reason", "I have looked")]).await;
    assert_eq!(done.status, 303, "{}", done.body);
    for item in items {
        assert_eq!(db.state(item).await, "DUE");
    }
    assert_eq!(db.count("outbox_approvals").await, 1);
}

#[tokio::test]
async fn what_is_cut_goes_on_on_a_next_page() {
    let scene = Scene::new().await;
    let db = &scene.served.db;
    // 60 workers with a lease each, 60 contradictions, 60 pending executions.
    db.sql(&format!(
        "INSERT INTO outbox_destinations (worker_id, lane, name, breaker, troubles, calls, window_ms, reported_at) \
         SELECT 'w~' || lpad(n::text, 3, '0'), 'payments', 'ach', 'CLOSED', 0, 0, 3000, now() + CASE WHEN n % 2 = 0 THEN INTERVAL '1 hour' ELSE INTERVAL '-1 minute' END \
           FROM generate_series(1, 60) n; \
         INSERT INTO payment_outbox_events (event_type, outbox_id, worker_id, details) \
         SELECT 'LATE_OUTCOME', '{}', 'lost', '{{\"state\": \"DISPATCHED\"}}' FROM generate_series(1, 60)",
        scene.failed
    ))
    .await;
    for n in 0..60 {
        db.enqueue(&payment(&format!("held-{n}"), "many", "sepa")).await;
        db.claim(&format!("holder~{n:03}"), 1).await;
        db.kv_set("shop", &format!("k{n}"), &serde_json::json!(n)).await;
    }
    let dana = Browser::of(&scene.served, "dana", "operate").await;
    for (start, mark, count, pages) in [
        ("/console/workers", ">w~", 60, 2),
        ("/console/workers", "<code>holder~", 60, 2),
        ("/console/contradictions", "/console/act/close_payment_incident", 60, 2),
        ("/console/apps/shop", ">pending</span>", 60, 2),
    ] {
        // Two lists of one page are each paged by themselves.
        let (of_leases, of_workers) = (mark.contains("holder"), mark.contains("w~"));
        let (mut path, mut seen, mut visited) = (start.to_owned(), 0, 0);
        loop {
            let page = dana.get(&path).await;
            assert_eq!(page.status, 200, "{path}: {}", page.body);
            seen += page.body.matches(mark).count();
            visited += 1;
            let links = page.body.split("rel=\"next\" href=\"").skip(1);
            let links = links.map(|rest| rest.split('"').next().unwrap().replace("&amp;", "&"));
            let has = |link: &str, name: &str| {
                let (_, query) = link.split_once('?').unwrap();
                query.split('&').any(|part| part.starts_with(name))
            };
            let next = links.into_iter().find(|link| {
                (!of_leases || has(link, "leased_after=") && !has(link, "after="))
                    && (!of_workers || !has(link, "leased_after="))
            });
            let Some(next) = next else { break };
            path = next;
        }
        assert_eq!((seen, visited), (count, pages), "{mark} of {start}");
    }
    let overview = dana.get("/console").await;
    assert!(overview.body.contains("/console/contradictions"), "{}", overview.body);
    let only = dana.get("/console/workers?worker=holder~007").await;
    assert_eq!(only.body.matches("<code>holder~").count(), 1, "{}", only.body);
}
