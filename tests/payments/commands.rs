//! Acts from a shell: the real binary, a dry run first, and what the ledger says afterwards.

use serde_json::Value;
use sqlx::ConnectOptions as _;
use symphony::db::PaymentOutcome;
use symphony::domain::{OutboxId, Outcome};

use crate::support::shell::{dana, symphony};
use crate::support::{TestDb, act, payment};

/// Enqueue one, claim it and end it so.
async fn ended(db: &TestDb, instruction: &str, participant: &str, outcome: Outcome) -> OutboxId {
    db.ended(&payment(instruction, participant, "ach"), "REFUSED_BY_RAIL", outcome).await
}

#[tokio::test]
async fn an_act_is_a_dry_run_until_it_is_told_yes() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("inv-1", "acme", "ach")).await.outbox_id;

    let told = dana(&db, "park inv-1 --reason looks␣odd").await;
    assert_eq!(
        told.output,
        format!(
            "would park {item} (instruction inv-1, participant acme, rail ach): PENDING → PARKED\n\
             Nothing was changed: repeat with --yes to do it.\n"
        )
    );
    let told = dana(&db, "park inv-1 --reason looks␣odd --json").await;
    assert_eq!((told.ok, told.json()["dry_run"].as_bool()), (true, Some(true)));
    assert_eq!(
        (db.state(item).await.as_str(), db.acts("payment_outbox_events").await.len()),
        ("DUE", 0)
    );

    let told = dana(&db, "park inv-1 --reason looks␣odd --yes").await;
    assert!(told.ok && told.output.starts_with(&format!("parked {item}")), "{}", told.output);
    let told = dana(&db, &format!("--json release {item} --reason fine --yes")).await;
    assert_eq!(
        told.json(),
        serde_json::json!({
            "act": "release", "outbox_id": item.to_string(), "state_before": "PARKED", "state_after": "PENDING",
            "dry_run": false, "needs_despite_unknown": false, "needs_approver": false,
            "tries": told.json()["tries"],
        })
    );
    assert_eq!(db.state(item).await, "DUE");
    assert_eq!(
        db.acts("payment_outbox_events").await,
        ["PARKED dana looks odd", "RELEASED dana fine"]
    );
}

#[tokio::test]
async fn whoever_acts_is_named_also_behind_sudo_and_nobody_acts_unnamed() {
    let db = TestDb::new().await;
    db.enqueue(&payment("inv-1", "acme", "ach")).await;
    let url = db.options.to_url_lossy().to_string();
    let line = "pause payments --reason maintenance --yes";
    for (variables, arguments, expected) in [
        (&[("USER", "root"), ("SUDO_USER", "kim")][..], "", "kim"),
        (&[("USER", "dana"), ("SUDO_USER", " ")][..], "", "dana"),
        (&[("USER", "dana")][..], "--actor lee", "lee"),
    ] {
        let told = symphony(&url, variables, &format!("{line} {arguments}"), &[], "").await;
        assert!(told.ok, "{}", told.error);
        assert_eq!(
            db.acts("payment_outbox_events").await.last().unwrap(),
            &format!("PAUSED {expected} maintenance"),
            "{variables:?}"
        );
        assert!(dana(&db, "resume payments --reason again --yes").await.ok);
    }
    let told = symphony(&url, &[], line, &[], "").await;
    assert_eq!(
        (told.ok, told.error.as_str()),
        (false, "symphony: nobody is named as acting: add --actor NAME\n")
    );
    let told = dana(&db, "park inv-1 --yes").await;
    assert!(!told.ok && told.error.contains("--reason <REASON>"), "{}", told.error);
}

#[tokio::test]
async fn a_parked_item_is_resolved_by_what_a_person_found_out() {
    let db = TestDb::new().await;
    ended(&db, "other", "acme", Outcome::Unknown).await;
    let mut items = Vec::new();
    for (instruction, arguments, state) in [
        ("moved", "--as dispatched --reference BANK-7", "DISPATCHED"),
        ("dead", "--as failed --despite-unknown", "FAILED"),
        ("again", "--as retry --despite-unknown", "DUE"),
    ] {
        let item = ended(&db, instruction, "acme", Outcome::Unknown).await;
        let line = format!("resolve {instruction} {arguments} --reason asked␣the␣bank");
        let told = dana(&db, &line).await;
        assert!(told.ok && told.output.contains("would resolve"), "{}", told.error);
        assert_eq!(db.state(item).await, "PARKED");
        let told = dana(&db, &format!("{line} --yes")).await;
        assert!(told.ok, "{}", told.error);
        assert_eq!(db.state(item).await, state);
        items.push(item);
    }
    let life = db.database.auditor().payment_life(items[0]).await.unwrap().unwrap();
    assert_eq!(life.attempts.last().unwrap().rail_reference.as_deref(), Some("BANK-7"));

    for (arguments, expected) in [
        ("--as dispatched", "--reference <REFERENCE>"),
        ("--as failed --reference X", "goes with --as dispatched only"),
        ("--as dispatched --reference ␣", "--reference is blank"),
        ("--as gone", "--as gone: it is one of three words"),
        ("", "--as <OUTCOME>"),
    ] {
        let told = dana(&db, &format!("resolve other {arguments} --reason r --yes")).await;
        assert!(!told.ok && told.error.contains(expected), "{arguments}: {}", told.error);
    }
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn a_failed_payment_is_redriven_once_and_of_two_items_the_person_chooses() {
    let db = TestDb::new().await;
    let first = ended(&db, "inv-1", "acme", Outcome::Failed).await;
    let told = dana(&db, "redrive inv-1 --reason fixed").await;
    assert!(told.ok && told.output.contains("a new item with a new key"), "{}", told.output);
    assert_eq!(db.count("payment_outbox_instructions").await, 1);
    let told = dana(&db, "redrive inv-1 --reason fixed --yes --json").await.json();
    let second = told["redriven_as"].as_str().unwrap().to_owned();
    assert_eq!(told["sequence_id"], 2);

    let told = dana(&db, "park inv-1 --reason odd --yes").await;
    assert!(!told.ok);
    assert_eq!(
        told.error,
        format!(
            "symphony: instruction \"inv-1\" has 2 items: name one by its outbox id: {first} (REDRIVEN), {second} (DUE)\n"
        )
    );
    assert!(dana(&db, &format!("park {second} --reason odd --yes")).await.ok);
    let told = dana(&db, &format!("redrive {first} --reason again --yes")).await;
    assert!(!told.ok && told.error.contains("only once [P7006"), "{}", told.error);
}

#[tokio::test]
async fn a_lane_goes_on_past_a_failed_or_a_pending_head() {
    let db = TestDb::new().await;
    db.make_fifo("ach", "block").await;
    let failed = ended(&db, "one", "acme", Outcome::Failed).await;
    let second = db.enqueue(&payment("two", "acme", "ach")).await.outbox_id;
    let third = db.enqueue(&payment("three", "acme", "ach")).await.outbox_id;
    assert!(db.claim("w", 9).await.is_empty());

    let line = "skip --participant acme --rail ach --reason go␣on";
    let told = dana(&db, line).await;
    assert!(told.output.starts_with(&format!(
        "would skip {failed} (participant acme, rail ach): it stays FAILED"
    )));
    assert!(db.claim("w", 9).await.is_empty());
    assert!(dana(&db, &format!("{line} --yes")).await.ok);
    let told = dana(&db, &format!("{line} --yes")).await;
    assert!(
        told.output.starts_with(&format!("skipped {second}"))
            && told.output.contains("PENDING → PARKED, outside its lane"),
        "{}",
        told.output
    );
    assert_eq!(db.claim_one("w").await.outbox_id, third);
    let told = dana(&db, &format!("{line} --yes")).await;
    assert!(!told.ok && told.error.contains("is in flight"), "{}", told.error);
    let told = dana(&db, "skip --participant nobody --rail ach --reason r").await;
    assert!(!told.ok && told.error.contains("nothing to skip"), "{}", told.error);
}

#[tokio::test]
async fn what_is_paused_is_not_claimed_until_it_is_resumed() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("inv-1", "acme", "ach")).await.outbox_id;
    for (target, name) in [
        ("payments", "the payment lane"),
        ("rail ach", "rail ach"),
        ("participant acme", "participant acme"),
    ] {
        let told = dana(&db, &format!("pause {target} --reason r")).await;
        assert!(told.output.starts_with(&format!("would pause {name}: RUNNING → PAUSED\n")));
        let told = dana(&db, &format!("pause {target} --reason r --yes")).await;
        assert_eq!(told.output, format!("paused {name}: RUNNING → PAUSED\n"));
        assert!(db.claim("w", 1).await.is_empty(), "{target}");
        let told = dana(&db, &format!("pause {target} --reason r")).await;
        assert_eq!(told.output, format!("{name} is PAUSED already: nothing to change\n"));
        let told = dana(&db, &format!("resume {target} --reason r --yes --json")).await.json();
        assert_eq!(
            (&told["act"], &told["state_before"], &told["state_after"]),
            (&"resume".into(), &"PAUSED".into(), &"RUNNING".into())
        );
        let claimed = db.claim_one("w").await;
        assert_eq!(claimed.outbox_id, item);
        db.complete("w", claimed.lease(), Outcome::Retryable).await.unwrap();
    }
}

#[tokio::test]
async fn the_list_names_what_waits_for_a_person_and_what_to_type_next() {
    let db = TestDb::new().await;
    assert_eq!(dana(&db, "dlq list").await.output, "nothing waits for a person\n");
    let failed = ended(&db, "failed", "acme", Outcome::Failed).await;
    let unknown = ended(&db, "unknown", "acme", Outcome::Unknown).await;
    let parked = db.enqueue(&payment("parked", "acme", "wire")).await.outbox_id;
    db.database.operator().park_payment(parked, &act()).await.unwrap();
    let dispatched = ended(&db, "fine", "acme", Outcome::Dispatched).await;
    db.enqueue(&payment("due", "acme", "ach")).await;

    let list = dana(&db, "dlq list --json").await.json();
    let lines: Vec<(String, String, String)> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|line| {
            let text = |name: &str| line[name].as_str().unwrap().to_owned();
            (text("outbox_id"), text("state"), text("next_command"))
        })
        .collect();
    let expected = [
        (failed, "FAILED", format!("symphony redrive {failed} --reason WHY")),
        (unknown, "PARKED", format!("symphony show {unknown}")),
        (parked, "PARKED", format!("symphony release {parked} --reason WHY")),
    ]
    .map(|(item, state, next)| (item.to_string(), state.to_owned(), next));
    assert_eq!(lines, expected, "longest first");
    assert_eq!(
        (&list[0]["error_code"], &list[0]["rail_code"]),
        (&"REFUSED_BY_RAIL".into(), &"AC04".into())
    );

    let told = dana(&db, "dlq list").await.output;
    for expected in [
        "REFUSED_BY_RAIL / AC04",
        "PARKED, unknown",
        " s  ",
        "ask the rail (symphony inquire ID --reason WHY), then: symphony resolve ID",
    ] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    assert!(!told.contains(&dispatched.to_string()) && !told.contains("there are more"), "{told}");

    for (arguments, expected) in [
        ("--failed", vec![failed]),
        ("--parked", vec![unknown, parked]),
        ("--rail wire", vec![parked]),
        ("--failed --rail wire", vec![]),
        ("--limit 2", vec![failed, unknown]),
    ] {
        let list = dana(&db, &format!("dlq list --json {arguments}")).await.json();
        let ids: Vec<String> = list
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line["outbox_id"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(
            ids,
            expected.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "{arguments}"
        );
    }
    assert!(dana(&db, "dlq list --limit 2").await.output.contains("there are more: raise --limit"));

    for (_, _, next) in &lines {
        let told = dana(&db, next.strip_prefix("symphony ").unwrap()).await;
        assert!(told.ok, "{next}: {}", told.error);
    }
    assert!(dana(&db, &format!("redrive {failed} --reason WHY --yes")).await.ok);
    let list = dana(&db, "dlq list --failed --json").await.json();
    assert_eq!(list.as_array().unwrap().len(), 0, "a redriven one waits for nobody");
}

#[tokio::test]
async fn where_a_rail_said_yes_late_the_list_says_to_look_and_two_people_are_needed() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("inv-1", "acme", "ach")).await.outbox_id;
    let lost_lease = db.claim_one("lost").await.lease();
    db.expire(item).await;
    let claimed = db.claim_one("w").await;
    db.complete("w", claimed.lease(), Outcome::Failed).await.unwrap();
    let late = PaymentOutcome::new(lost_lease, Outcome::Dispatched);
    db.database.worker().record_late_payment("lost", &late).await.unwrap();

    let list = dana(&db, "dlq list --json").await.json();
    assert_eq!(list[0]["next_command"], format!("symphony show {item}"));
    let told = dana(&db, "dlq list").await.output;
    assert!(told.contains("FAILED, late yes") && told.contains("may pay twice"), "{told}");
    let told = dana(&db, "redrive inv-1 --reason r").await;
    assert!(
        told.ok && told.output.contains("LATE_OUTCOME DISPATCHED OUTCOME UNKNOWN"),
        "{}",
        told.output
    );
    assert!(
        told.output.contains("--despite-unknown")
            && told.output.contains("a second person must agree that it was not")
            && told.output.contains("repeat with --yes to ask a second person"),
        "{}",
        told.output
    );
    let told = dana(&db, "redrive inv-1 --reason r --yes --despite-unknown").await;
    assert!(
        told.output.contains("symphony approval approve 1 --reason WHY --yes"),
        "{}",
        told.output
    );
    assert_eq!(db.ledger(item).await.len(), 2, "nothing was done yet");
    let kim = db.login("symphony_approver").await.to_url_lossy().to_string();
    let line = "approval approve 1 --reason the␣bank␣returned␣it --yes";
    let told = symphony(&kim, &[("USER", "kim")], line, &[], "").await;
    assert!(told.ok && told.output.contains("FAILED → REDRIVEN"), "{}{}", told.output, told.error);
}

#[tokio::test]
async fn a_rail_is_shown_and_configured_and_a_dry_run_meets_the_same_refusals() {
    let db = TestDb::new().await;
    assert!(dana(&db, "rail").await.output.contains("no rail has been configured"));
    let told = dana(&db, "rail ach").await;
    assert!(
        !told.ok && told.error.contains("there is no rail \"ach\"; there is none yet"),
        "{}",
        told.error
    );

    let line = "rail ach --fifo true --on-failed continue --reason the␣bank␣wants␣order";
    let told = dana(&db, line).await;
    assert!(
        told.output.starts_with(
            "would configure rail ach: fifo false → true, on failed block → continue\n"
        ),
        "{}{}",
        told.output,
        told.error
    );
    assert_eq!(
        (db.count("payment_outbox_rails").await, db.acts("payment_outbox_events").await.len()),
        (0, 0)
    );
    let told = dana(&db, &format!("{line} --yes")).await;
    assert_eq!(told.output, "configured rail ach: fifo false → true, on failed block → continue\n");
    assert_eq!(db.acts("payment_outbox_events").await, ["CONFIGURED dana the bank wants order"]);
    let told = dana(&db, "rail ach --json").await.json();
    assert_eq!((&told[0]["fifo"], &told[0]["on_failed"]), (&true.into(), &"continue".into()));
    assert!(dana(&db, line).await.output.contains("is so already"));

    db.enqueue(&payment("inv-1", "acme", "ach")).await;
    for yes in ["", "--yes"] {
        let told = dana(&db, &format!("rail ach --fifo false --reason r {yes}")).await;
        assert!(!told.ok && told.error.contains("--fifo cannot change while"), "{}", told.error);
    }
    for (arguments, expected) in [
        ("rail ach --fifo true", "--reason <REASON>"),
        ("rail --fifo true --reason r", "NAME"),
        ("rail ach --fifo maybe --reason r", "invalid value 'maybe'"),
        ("rail ach --on-failed explode --reason r", "invalid value 'explode'"),
    ] {
        let told = dana(&db, arguments).await;
        assert!(!told.ok && told.error.contains(expected), "{arguments}: {}", told.error);
    }
}

#[tokio::test]
async fn a_refused_act_is_one_clear_line_and_changes_nothing() {
    let db = TestDb::new().await;
    db.enqueue(&payment("flying", "acme", "ach")).await;
    db.claim_one("w").await;
    let nobody = "00000000-0000-7000-8000-000000000000";
    for (line, expected) in [
        ("park nothing".to_owned(), "no item has the outbox or instruction id \"nothing\""),
        (format!("park {nobody}"), "no item has the outbox or instruction id"),
        ("park flying".to_owned(), "is in flight: wait for its outcome"),
        ("release flying".to_owned(), "is in flight"),
        ("redrive flying".to_owned(), "only a FAILED item can be redriven"),
        ("pause rail ␣".to_owned(), "the rail is blank"),
        ("park flying --actor ␣".to_owned(), "--actor is blank"),
    ] {
        let told = dana(&db, &format!("{line} --reason r --yes")).await;
        assert!(!told.ok && told.error.contains(expected), "{line}: {}", told.error);
        assert_eq!(told.error.lines().count(), 1, "{}", told.error);
    }
    let told = dana(&db, "park flying --reason ␣ --yes --json").await;
    let error: Value = serde_json::from_str(&told.error).unwrap();
    assert_eq!(
        (&error["code"], &error["error"]),
        (&"P7005".into(), &"--reason is blank: it must name something".into())
    );
    assert!(db.acts("payment_outbox_events").await.is_empty());
}

#[tokio::test]
async fn what_producers_wrote_cannot_act_on_the_operators_terminal() {
    let db = TestDb::new().await;
    ended(&db, "\u{1b}[2Jgone", "acme\r\nFAKE", Outcome::Failed).await;
    let told = dana(&db, "dlq list").await.output;
    assert!(told.contains("\\u{1b}[2Jgone") && told.contains("acme\\r\\nFAKE"), "{told:?}");
    assert!(!told.contains(['\u{1b}', '\r']), "{told:?}");
}

#[tokio::test]
async fn a_login_that_is_only_an_operator_can_do_all_of_it() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("inv-1", "acme", "ach")).await.outbox_id;
    let login = crate::support::unique("on_call");
    db.sql(&format!("CREATE ROLE {login} LOGIN PASSWORD 'x'; GRANT symphony_operator TO {login}"))
        .await;
    let url = db.options.clone().username(&login).password("x").to_url_lossy().to_string();
    for line in [
        "park inv-1 --reason r --yes",
        "dlq list",
        "rail ach",
        "rail ach --on-failed block --reason r --yes",
    ] {
        let told = symphony(&url, &[("USER", "dana")], line, &[], "").await;
        assert!(told.ok, "{line}: {}", told.error);
    }
    assert_eq!(db.state(item).await, "PARKED");
    db.sql(&format!("REVOKE symphony_operator FROM {login}; DROP ROLE {login}")).await;
}
