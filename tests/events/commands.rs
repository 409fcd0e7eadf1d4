//! Events from a shell: the real binary, what it tells, and what the log and the ledger say afterwards.

use serde_json::{Value, json};
use symphony::db::{EventOutcome, EventState};
use symphony::event::JSON_SCHEMA;
use uuid::Uuid;

use crate::events::event;
use crate::support::shell::{dana, dana_with};
use crate::support::{TestDb, act, payment};

/// An event of a key, on one line.
fn text(id: Uuid, key: &str, payload: &str) -> String {
    format!(
        r#"{{"envelope": {{"v": 1, "eventId": "{id}", "occurredAt": "2026-11-15T12:00:00Z", "tenantId": "tnt_1", "type": "events.transfers.submitted"}}, "key": {{"transferId": "{key}"}}, "payload": {payload}}}"#
    )
}

/// Events of a key, the first FAILED with this code, the others waiting behind it.
async fn blocked(db: &TestDb, key: &str, code: &str, count: usize) -> Vec<Uuid> {
    let told = db.tell_of(key, count).await;
    let claimed = db.claim_events("w", 50).await;
    let outcomes: Vec<EventOutcome> = claimed
        .iter()
        .filter(|one| one.event_id == told[0])
        .map(|one| EventOutcome {
            destination: Some("main/transfers".into()),
            error_code: Some(code.to_owned()),
            error_message: Some("the topic does not exist".to_owned()),
            ..EventOutcome::new(
                one.lease(),
                one.log_position,
                EventState::Failed { key_continues: false },
            )
        })
        .collect();
    assert_eq!(outcomes.len(), 1);
    db.database.worker().complete_events("w", &outcomes.iter().collect::<Vec<_>>()).await.unwrap();
    told
}

#[tokio::test]
async fn an_event_is_told_shown_and_counted_from_a_shell() {
    let db = TestDb::new().await;
    let id = Uuid::new_v4();
    let event = text(id, "tr_1", "{}");
    let told = dana_with(&db, "enqueue event --event", &[&event], "").await;
    assert!(told.ok, "{}", told.error);
    assert!(
        told.output.starts_with(&format!("{id}  events.transfers.submitted, key tr_1, position "))
            && told.output.ends_with(", PENDING\n"),
        "{}",
        told.output
    );
    let told = dana_with(&db, "enqueue event --json --event", &[&event], "").await.json();
    assert_eq!(
        (&told["new"], &told["known"], &told["events"][0]["duplicate"]),
        (&0.into(), &1.into(), &true.into())
    );
    let status = dana(&db, "status --json").await.json();
    assert_eq!((&status[1]["lane"], &status[1]["pending"]), (&"events".into(), &1.into()));
    assert!(dana(&db, "status").await.output.contains("\npending              0        1"));
    let told = dana(&db, &format!("show {id}")).await.output;
    for expected in [
        &format!("{id}  PENDING\n"),
        "type events.transfers.submitted, tenant tnt_1\n",
        "transferId tr_1, position ",
        "ENQUEUED",
        "now: PENDING, due ",
    ] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    assert_eq!(db.publish_all("w").await, [id]);
}

#[tokio::test]
async fn a_file_is_a_list_or_lines_or_documents_and_keeps_its_order() {
    let db = TestDb::new().await;
    let ids: Vec<Uuid> = (0..6).map(|_| Uuid::new_v4()).collect();
    let of = |n: usize| text(ids[n], "k", &format!(r#"{{"n": {n}}}"#));
    let pretty = |n: usize| {
        serde_json::to_string_pretty(&serde_json::from_str::<Value>(&of(n)).unwrap()).unwrap()
    };
    let told =
        dana_with(&db, "enqueue event -", &[], &format!("\n [{},\n{}]\n", of(0), of(1))).await;
    assert!(
        told.ok
            && told.output.contains("item 2")
            && told.output.ends_with("2 new, 0 known already\n"),
        "{}",
        told.output
    );
    let told =
        dana_with(&db, "enqueue event -", &[], &format!("\u{feff}{}\n\n{}", of(2), of(3))).await;
    assert!(told.ok && told.output.contains("line 3"), "{}{}", told.output, told.error);
    let told =
        dana_with(&db, "enqueue event -", &[], &format!("{}\n{}", pretty(4), pretty(5))).await;
    assert!(told.ok && told.output.contains("item 2"), "{}{}", told.output, told.error);
    assert_eq!(db.publish_all("w").await, ids);
    let path = std::env::temp_dir().join(crate::support::unique("events") + ".jsonl");
    std::fs::write(&path, of(0)).unwrap();
    let told = dana_with(&db, "enqueue event", &[path.to_str().unwrap()], "").await;
    assert!(
        told.output.ends_with("SENT (known already; nothing was written)\n"),
        "{}",
        told.output
    );
    std::fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn one_bad_event_and_nothing_of_the_file_is_written() {
    let db = TestDb::new().await;
    let known = db.tell_of("known", 1).await[0];
    let good = text(Uuid::new_v4(), "k", "{}");
    // What the library refuses …
    let lines = [
        good.as_str(),
        "",
        "nonsense",
        &text(Uuid::new_v4(), "", "{}"),
        &good.replace("\"v\": 1", "\"v\": 2"),
    ]
    .join("\n");
    let told = dana_with(&db, "enqueue event -", &[], &lines).await;
    assert!(!told.ok && told.output.is_empty());
    for expected in [
        "symphony: line 3: event is not valid JSON [P7005: docs/errors/shared/P7005.md]\n",
        "symphony: line 4: key must be a string",
        "symphony: line 5: envelope.v must be the number 1",
        "symphony: 3 of 4 events refused, and nothing was written\n",
    ] {
        assert!(told.error.contains(expected), "{expected}: {}", told.error);
    }
    // … and what only the database knows.
    let list = format!(
        "[{good}, {}, {}]",
        text(known, "known", r#"{"other": 1}"#),
        text(Uuid::new_v4(), "k", r#"{"card": {"pan": "4111"}}"#)
    );
    let told = dana_with(&db, "enqueue event - --json", &[], &list).await;
    assert!(!told.ok && told.error.contains("2 of 3 events refused"), "{}", told.error);
    let report = told.json();
    assert_eq!(
        (&report["new"], &report["known"], &report["refused"]),
        (&0.into(), &0.into(), &2.into())
    );
    let refused: Vec<(&Value, &Value)> = report["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| (&line["at"], &line["error_code"]))
        .collect();
    assert_eq!(refused, [(&"item 2".into(), &"P7004".into()), (&"item 3".into(), &"P7005".into())]);
    let message = report["events"][1]["error_message"].as_str().unwrap();
    assert!(message.contains("payload.card.pan") && !message.contains("4111"), "{message}");
    assert_eq!(db.count("event_outbox_log").await, 1);
}

#[tokio::test]
async fn a_long_file_goes_in_pieces_and_stops_at_the_first_bad_one() {
    let db = TestDb::new().await;
    let mut lines: Vec<String> =
        (0..10_001).map(|n| text(Uuid::new_v4(), &format!("k{}", n % 7), "{}")).collect();
    lines.push("{}".to_owned());
    let told = dana_with(&db, "enqueue event -", &[], &lines.join("\n")).await;
    assert!(!told.ok);
    assert!(
        told.error.contains("line 10002: envelope is missing")
            && told.error.contains(
                "1 of 2 events refused, and none of these was written, but the 10000 before them"
            ),
        "{}",
        told.error
    );
    assert_eq!(db.count("event_outbox_log").await, 10_000);
    lines.pop();
    let told = dana_with(&db, "enqueue event -", &[], &lines.join("\n")).await;
    assert_eq!(
        (told.ok, told.output.as_str()),
        (true, "1 new, 10000 known already\n"),
        "{}",
        told.error
    );
}

#[tokio::test]
async fn a_mistake_is_one_clear_line_that_names_the_field_and_no_value() {
    let db = TestDb::new().await;
    let good = text(Uuid::new_v4(), "k", "{}");
    for (arguments, input, expected) in [
        (&["--event", "{"][..], "", "--event: event is not valid JSON"),
        (&["--event", &good.replace("tnt_1", "")], "", "--event: envelope.tenantId must be"),
        (
            &["--event", &good.replace("2026-11-15", "2026-02-30")],
            "",
            "envelope.occurredAt must be",
        ),
        (&["-"], "\n \n", "standard input is empty"),
        (&["-"], "[{},", "standard input is not valid JSON: line 1, column"),
        (&["-"], "{\n \"a\": secret", "standard input is not valid JSON: line 2, column"),
        (&["/no/such/file"], "", "cannot read /no/such/file"),
        (&["/tmp"], "", "cannot read /tmp: it is a folder"),
    ] {
        let told = dana_with(&db, "enqueue event", arguments, input).await;
        assert!(!told.ok && told.error.contains(expected), "{arguments:?}: {}", told.error);
        assert_eq!(told.error.lines().count(), 1, "{}", told.error);
        assert!(!told.error.contains("secret") && !told.error.contains("02-30"), "{}", told.error);
    }
    let told = dana(&db, "enqueue event").await;
    assert!(!told.ok && told.error.contains("--event <JSON>"), "{}", told.error);
    let told = dana(&db, "enqueue event --json-schema").await;
    assert_eq!((told.ok, told.output.as_str()), (true, JSON_SCHEMA));
}

#[tokio::test]
async fn the_life_of_a_failed_event_says_what_it_blocks_and_what_to_type() {
    let db = TestDb::new().await;
    let told = blocked(&db, r"k\u001b[2J", "NO_SUCH_TOPIC", 2).await;
    let (first, second) = (told[0], told[1]);
    let life = dana(&db, &format!("show {first}")).await.output;
    for expected in [
        format!("{first}  FAILED\n"),
        "attempt 1: Failed, to main/transfers, error NO_SUCH_TOPIC (the topic does not exist), by w\n"
            .to_owned(),
        format!("now: blocks its key: symphony redrive --event-id {first} --reason WHY, or symphony skip --event-id {first} --reason WHY\n"),
    ] {
        assert!(life.contains(&expected), "{expected}: {life}");
    }
    assert!(!life.contains('\u{1b}'), "{life:?}");
    let life = dana(&db, &format!("show {second}")).await.output;
    assert!(life.contains(&format!("now: waits behind {first}, which FAILED")), "{life}");

    assert!(
        dana(&db, &format!("redrive --event-id {first} --reason fixed --dedup-window 0 --yes"))
            .await
            .ok
    );
    assert_eq!(db.publish_all("w").await, told);
    let life = dana(&db, &format!("show {first}")).await.output;
    assert!(life.contains("REDRIVEN: fixed, by dana\n"), "{life}");
    assert!(life.contains("redrive 1, attempt 1: Dispatched"), "{life}");
    let life = dana(&db, &format!("show --json {first}")).await.json();
    assert_eq!(
        (&life[0]["record"]["state"], &life[0]["attempts"][1]["redrive_no"]),
        (&"SENT".into(), &1.into())
    );
    assert_eq!(life[0]["record"]["event"]["payload"]["n"], 0);
    let told = dana(&db, &format!("show {}", Uuid::new_v4())).await;
    assert!(!told.ok && told.error.contains("and no event that id"), "{}", told.error);
}

#[tokio::test]
async fn a_redrive_is_a_dry_run_that_says_when_the_bus_would_no_longer_swallow_it() {
    let db = TestDb::new().await;
    let told = blocked(&db, "k", "NO_SUCH_TOPIC", 2).await;
    let line = format!("redrive --event-id {} --reason fixed", told[0]);
    let would = dana(&db, &line).await.output;
    for expected in [
        "would redrive 1 event, under the same event id:\n",
        "FAILED → PENDING",
        "in 4 min",
        "until 300 s after its last attempt the broker would swallow the repeated id without a word",
        "Nothing was changed: repeat with --yes to do it.\n",
    ] {
        assert!(would.contains(expected), "{expected}: {would}");
    }
    assert!(!would.contains("careful"), "{would}");
    let would = dana(&db, &format!("{line} --dedup-window 0")).await.output;
    assert!(would.contains("at once") && would.contains("careful: SNS FIFO swallows"), "{would}");
    assert_eq!(
        (db.event_state(told[0]).await.as_str(), db.acts("event_outbox_events").await.len()),
        ("FAILED", 0)
    );

    let done = dana(&db, &format!("{line} --yes --json")).await.json();
    assert_eq!(
        (&done["act"], &done["dry_run"], &done["events"][0]["state_after"]),
        (&"redrive".into(), &false.into(), &"PENDING".into())
    );
    assert_eq!(db.acts("event_outbox_events").await, ["REDRIVEN dana fixed"]);
    assert!(db.publish_all("w").await.is_empty(), "the window is not over");
    db.make_keys_due().await;
    assert_eq!(db.publish_all("w").await, told);

    let again = dana(&db, &line).await;
    assert!(
        !again.ok && again.error.contains("to publish it again say so (--sent) [P7006"),
        "{}",
        again.error
    );
    assert!(dana(&db, &format!("{line} --sent")).await.output.contains("SENT → PENDING"));
}

#[tokio::test]
async fn a_filter_redrives_what_it_names_all_or_none() {
    let db = TestDb::new().await;
    let mut first = Vec::new();
    for key in ["a", "b", "c"] {
        first.push(
            blocked(&db, key, if key == "c" { "OVERSIZE" } else { "NO_SUCH_TOPIC" }, 1).await[0],
        );
    }
    let sent = db.tell_of("d", 1).await;
    db.publish_all("w").await;
    for (filter, expected) in [
        ("--event-type *", &first[..]),
        ("--event-type events.transfers.*", &first[..]),
        ("--event-type events.transfers", &[]),
        ("--error-code NO_SUCH_TOPIC", &first[..2]),
        ("--key b --tenant tnt_1 --since 1h", &first[1..2]),
        ("--tenant other", &[]),
        ("--until 1h", &[]),
        ("--event-type * --limit 2", &first[..2]),
        ("--sent --event-type *", &sent[..]),
    ] {
        let would = dana(&db, &format!("redrive {filter} --reason r --json")).await.json();
        let ids: Vec<Value> = expected.iter().map(|id| json!(id)).collect();
        let found: Vec<&Value> =
            would["events"].as_array().unwrap().iter().map(|line| &line["event_id"]).collect();
        assert_eq!(found, ids.iter().collect::<Vec<_>>(), "{filter}");
        assert_eq!(would["more"], filter.contains("--limit"), "{filter}");
    }
    let none = dana(&db, "redrive --tenant other --reason r --yes").await;
    assert_eq!(
        (none.ok, none.output.as_str()),
        (true, "no FAILED event is like that: nothing to redrive\n")
    );
    let done =
        dana(&db, "redrive --error-code NO_SUCH_TOPIC --reason r --yes --dedup-window 0").await;
    assert!(done.ok && done.output.starts_with("redriven 2 events"), "{}", done.output);
    assert_eq!(db.event_state(first[2]).await, "FAILED");

    // One of them cannot be: none is.
    let line = format!("redrive --event-id {},{} --reason r --yes", first[2], sent[0]);
    let refused = dana(&db, &line).await;
    assert!(!refused.ok && refused.error.contains("[P7006"), "{}", refused.error);
    assert_eq!(db.event_state(first[2]).await, "FAILED");
}

#[tokio::test]
async fn the_redrives_that_help_and_the_runbook_show_find_what_ran_out_of_attempts() {
    let db = TestDb::new().await;
    let told = blocked(&db, "a", "RETRY_CEILING", 2).await;
    blocked(&db, "b", "OVERSIZE", 1).await;
    let help = dana(&db, "redrive --help").await.output;
    let runbook = include_str!("../../docs/OPERATING.md");
    let mut shown = 0;
    for text in [help.replace("\\\n", " "), runbook.to_owned()] {
        let commands =
            text.split(['\n', '`']).filter_map(|line| line.split_once("symphony redrive "));
        for (_, command) in commands.filter(|(_, command)| command.contains("RETRY_CEILING")) {
            let words = command.split(" --reason").next().unwrap().replace('\'', "");
            let line = words.replace("TYPE", "events.transfers.submitted");
            let would = dana(&db, &format!("redrive {line} --reason r --json")).await.json();
            let found: Vec<_> =
                would["events"].as_array().unwrap().iter().map(|one| &one["event_id"]).collect();
            assert_eq!(found, [&json!(told[0])], "{command}: {would}");
            shown += 1;
        }
    }
    assert_eq!(shown, 4, "in help, the list of commands, the outage and the dead letters");
}

#[tokio::test]
async fn a_redrive_that_does_not_say_what_is_refused_with_one_line() {
    let db = TestDb::new().await;
    let event = db.tell(&[event("k", 0)]).await[0];
    for (arguments, expected) in [
        (String::new(), "name what to redrive: a payment by its id, events by --event-id"),
        ("--sent".to_owned(), "name what to redrive"),
        ("inv-1 --key k".to_owned(), "not both at once"),
        (format!("--event-id {event} --key k"), "not both at once"),
        (event.to_string(), "is an event: symphony redrive --event-id"),
        (
            format!("--event-id {event}"),
            "is PENDING: it will be published without a redrive [P7006",
        ),
        (format!("--event-id {}", Uuid::new_v4()), "no event has the id"),
        (format!("--event-id {event} --actor ␣"), "--actor is blank"),
    ] {
        let told = dana(&db, &format!("redrive {arguments} --reason r --yes")).await;
        assert!(!told.ok && told.error.contains(expected), "{arguments}: {}", told.error);
        assert_eq!(told.error.lines().count(), 1, "{}", told.error);
    }
    for (arguments, expected) in [
        ("--event-type Events.X", "must be a type such as"),
        ("--since yesterday", "or how long ago, such as 90s, 30m, 2h or 7d"),
        ("--event-id nothing", "invalid value 'nothing'"),
        ("--key k --dedup-window 9999999", "604800"),
    ] {
        let told = dana(&db, &format!("redrive {arguments} --reason r")).await;
        assert!(!told.ok && told.error.contains(expected), "{arguments}: {}", told.error);
    }
    assert!(
        dana(&db, &format!("redrive --event-id {event}")).await.error.contains("--reason <REASON>")
    );
}

#[tokio::test]
async fn a_key_goes_on_past_the_event_that_blocks_it() {
    let db = TestDb::new().await;
    let told = blocked(&db, "k", "OVERSIZE", 3).await;
    let line = format!("skip --event-id {} --reason nobody␣reads␣it", told[0]);
    let would = dana(&db, &line).await.output;
    assert_eq!(
        would,
        format!(
            "would skip {} (type events.transfers.submitted, key k): it stays FAILED, consumers do not get it, \
             and its key goes on with the 2 waiting behind it\nNothing was changed: repeat with --yes to do it.\n",
            told[0]
        )
    );
    assert!(db.publish_all("w").await.is_empty());
    let done = dana(&db, &format!("{line} --yes --json")).await.json();
    assert_eq!((&done["act"], &done["waiting"]), (&"skip".into(), &2.into()));
    assert_eq!(db.acts("event_outbox_events").await, ["SKIPPED dana nobody reads it"]);
    assert_eq!(db.publish_all("w").await, told[1..]);
    let again = dana(&db, &line).await;
    assert!(!again.ok && again.error.contains("blocks nothing"), "{}", again.error);
    for arguments in ["", "--participant acme", "--rail ach", "--event-id x --rail ach"] {
        let told = dana(&db, &format!("skip {arguments} --reason r")).await;
        assert!(!told.ok, "{arguments}");
    }
}

#[tokio::test]
async fn the_event_lane_is_paused_and_resumed_by_its_name() {
    let db = TestDb::new().await;
    let told = db.tell_of("k", 1).await;
    let would = dana(&db, "pause events --reason r").await.output;
    assert!(would.starts_with("would pause the event lane: RUNNING → PAUSED\n"), "{would}");
    assert!(dana(&db, "pause events --reason r --yes").await.ok);
    assert!(db.publish_all("w").await.is_empty());
    assert!(dana(&db, "status").await.output.contains("PAUSED"));
    let again = dana(&db, "pause events --reason r").await.output;
    assert_eq!(again, "the event lane is PAUSED already: nothing to change\n");
    let done = dana(&db, "resume events --reason r --yes --json").await.json();
    assert_eq!((&done["act"], &done["state_after"]), (&"resume".into(), &"RUNNING".into()));
    assert_eq!(db.publish_all("w").await, told);
    let done = dana(&db, "pause payments --reason r --yes").await.output;
    assert_eq!(done, "paused the payment lane: RUNNING → PAUSED\n");
}

#[tokio::test]
async fn the_list_of_dead_letters_has_both_lanes_and_what_to_type_next() {
    let db = TestDb::new().await;
    let parked = db.enqueue(&payment("inv-1", "acme", "wire")).await.outbox_id;
    db.database.operator().park_payment(parked, &act()).await.unwrap();
    let first = blocked(&db, "a", "NO_SUCH_TOPIC", 2).await[0];
    let second = blocked(&db, "b", "OVERSIZE", 1).await[0];

    let list = dana(&db, "dlq list").await.output;
    for expected in [
        parked.to_string(),
        first.to_string(),
        "FAILED, blocks its key".to_owned(),
        "main/transfers".to_owned(),
        format!("symphony redrive --event-id {second} --reason WHY"),
        "or let the key go on without it: symphony skip --event-id ID".to_owned(),
    ] {
        assert!(list.contains(&expected), "{expected}: {list}");
    }
    for (arguments, expected) in [
        ("", vec![parked.to_string(), first.to_string(), second.to_string()]),
        ("--lane payments", vec![parked.to_string()]),
        ("--lane events", vec![first.to_string(), second.to_string()]),
        ("--lane events --limit 1", vec![first.to_string()]),
        ("--failed", vec![first.to_string(), second.to_string()]),
        ("--parked", vec![parked.to_string()]),
        ("--rail wire", vec![parked.to_string()]),
    ] {
        let list = dana(&db, &format!("dlq list --json {arguments}")).await.json();
        let ids: Vec<String> = list
            .as_array()
            .unwrap()
            .iter()
            .map(|line| {
                let name = if line["lane"] == "events" { "event_id" } else { "outbox_id" };
                line[name].as_str().unwrap().to_owned()
            })
            .collect();
        assert_eq!(ids, expected, "{arguments}");
        for line in list.as_array().unwrap() {
            let next = line["next_command"].as_str().unwrap().strip_prefix("symphony ").unwrap();
            assert!(dana(&db, next).await.ok, "{next}");
        }
    }
    assert!(dana(&db, "dlq list --limit 1").await.output.contains("there are more"));
    let told = dana(&db, "dlq list --lane events --rail wire").await;
    assert!(!told.ok && told.error.contains("leave out --lane events"), "{}", told.error);
}

#[tokio::test]
async fn every_help_of_an_event_command_teaches_with_an_example() {
    let db = TestDb::new().await;
    for (command, expected) in [
        ("enqueue event", "symphony enqueue event events.jsonl"),
        ("redrive", "symphony redrive --event-type 'events.transfers.*'"),
        ("skip", "symphony skip --event-id"),
        ("show", "symphony show inv-1"),
        ("status", "events behind a FAILED one"),
        ("dlq list", "symphony dlq list --lane events"),
        ("pause events", "symphony pause events --reason"),
    ] {
        let told = dana(&db, &format!("{command} --help")).await;
        assert!(told.ok && told.output.contains(expected), "{command}: {}", told.output);
    }
}

#[tokio::test]
async fn a_topic_is_paused_by_its_name_and_everybody_is_told() {
    let db = TestDb::new().await;
    let told = dana(&db, "pause topic main/orders --reason r").await;
    assert!(told.error.contains("; no worker has named any yet"), "{}", told.error);
    db.database.worker().register_topics(&["main/orders", "main/rest"]).await.unwrap();
    let told = dana(&db, "pause topic orders --reason r").await;
    assert!(told.error.contains("a topic is named as bus/topic, such as main/orders"));
    let told = dana(&db, "pause topic main/order --reason r").await;
    assert!(told.error.contains("did you mean main/orders"), "{}", told.error);
    let told = dana(&db, "pause topic main/orders --reason r --yes").await;
    assert_eq!(told.output, "paused topic main/orders: RUNNING → PAUSED\n");

    let event = db.tell_of("k", 1).await.remove(0);
    let claimed = db.claim_events("w", 50).await.remove(0);
    let unsent = symphony::db::EventOutcome {
        destination: Some("main/orders".into()),
        ..symphony::db::EventOutcome::new(
            claimed.lease(),
            claimed.log_position,
            symphony::db::EventState::Unsent,
        )
    };
    db.database.worker().complete_events("w", &[&unsent]).await.unwrap();
    let told = dana(&db, &format!("show {event}")).await.output;
    assert!(told.contains("topic main/orders is paused since 20"), "{told}");
    assert!(told.contains(" by dana: symphony resume topic main/orders --reason WHY"), "{told}");
    let told = dana(&db, "pause list").await.output;
    assert!(told.contains("topic") && told.contains("resume topic main/orders"), "{told}");
    let told = dana(&db, "status --json").await.json();
    assert_eq!(told[1]["paused_parts"][0]["name"], "main/orders", "{told}");
    let told = dana(&db, "resume topic main/orders --reason r --yes").await;
    assert_eq!(told.output, "resumed topic main/orders: PAUSED → RUNNING\n");
    assert_eq!(db.publish_all("w").await, [event]);
}
