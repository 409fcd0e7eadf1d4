//! What waits for a person, from a shell: listed by pages, closed, settled many at once and by a bank's statement, asked about.

use serde_json::Value;
use sqlx::ConnectOptions as _;
use symphony::db::{PaymentLease, PaymentOutcome};
use symphony::domain::{OutboxId, Outcome};
use uuid::Uuid;

use crate::support::shell::{Told, dana, dana_with, symphony};
use crate::support::{TestDb, act, payment};

/// Enqueue one on a rail, claim it and end it so.
async fn ended(db: &TestDb, name: &str, rail: &str, outcome: Outcome) -> OutboxId {
    db.ended(&payment(name, "acme", rail), "RAIL_REFUSED", outcome).await
}

/// One with an unknown try that a person has called failed all the same.
async fn failed_despite_unknown(db: &TestDb, name: &str) -> OutboxId {
    let item = ended(db, name, "ach", Outcome::Unknown).await;
    let told =
        dana(db, &format!("resolve {name} --as failed --reason r --despite-unknown --yes")).await;
    assert!(told.ok, "{}", told.error);
    item
}

async fn rail_key(db: &TestDb, item: OutboxId) -> Uuid {
    db.database.auditor().rail_key(item).await.unwrap().0
}

fn ids(list: &Value) -> Vec<String> {
    let id = |line: &Value| {
        let id = ["outbox_id", "event_id", "id"].iter().find_map(|name| line[name].as_str());
        id.unwrap_or_default().to_owned()
    };
    list.as_array().unwrap().iter().map(id).collect()
}

#[tokio::test]
async fn pages_show_everything_once_in_either_order_and_each_says_how_to_go_on() {
    let db = TestDb::new().await;
    let mut items = Vec::new();
    for n in 0..5 {
        let outcome = if n % 2 == 0 { Outcome::Failed } else { Outcome::Unknown };
        items.push(ended(&db, &format!("inv-{n}"), "ach", outcome).await.to_string());
    }
    for order in ["", "--newest"] {
        let mut expected = items.clone();
        if order == "--newest" {
            expected.reverse();
        }
        let mut seen = Vec::new();
        let mut command = format!("dlq list --lane payments {order} --limit 2");
        let mut pages = 0;
        loop {
            pages += 1;
            seen.extend(ids(&dana(&db, &format!("{command} --json")).await.json()));
            let told = dana(&db, &command).await.output;
            // As it is printed it can be typed.
            let Some(next) = told.lines().find(|line| line.contains("--after")) else { break };
            command = next.trim().strip_prefix("symphony ").unwrap().to_owned();
        }
        assert_eq!((seen, pages), (expected, 3), "{order}");
    }
}

#[tokio::test]
async fn filters_choose_by_rail_participant_code_and_age_and_lanes_do_not_mix() {
    let db = TestDb::new().await;
    let failed = ended(&db, "inv-1", "ach", Outcome::Failed).await.to_string();
    let parked = ended(&db, "inv-2", "sepa", Outcome::Unknown).await.to_string();
    for (arguments, expected) in [
        ("", vec![&failed, &parked]),
        ("--rail sepa", vec![&parked]),
        ("--participant acme", vec![&failed, &parked]),
        ("--code AC04", vec![&failed, &parked]),
        ("--code RAIL_REFUSED --failed", vec![&failed]),
        ("--code NOPE", vec![]),
        ("--since 1h", vec![&failed, &parked]),
        ("--until 1h", vec![]),
        ("--lane triggers", vec![]),
    ] {
        let list = dana(&db, &format!("dlq list --json {arguments}")).await.json();
        assert_eq!(ids(&list).iter().collect::<Vec<_>>(), expected, "{arguments}");
    }
    for (arguments, expected) in [
        ("--lane events --rail sepa", "are about payments"),
        ("--app shop --rail sepa", "is about executions"),
        ("--after 7.00000000-0000-0000-0000-000000000007", "say which with --lane"),
        ("--after nonsense", "must be a cursor"),
    ] {
        let told = dana(&db, &format!("dlq list {arguments}")).await;
        assert!(!told.ok && told.error.contains(expected), "{arguments}: {}", told.error);
    }
    let counts = dana(&db, "dlq count --json").await.json();
    let lines: Vec<_> = counts.as_array().unwrap().iter().collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(
        (&lines[0]["state"], &lines[0]["place"], &lines[0]["items"]),
        (&"PARKED".into(), &"sepa".into(), &1.into())
    );
    assert!(dana(&db, "dlq count").await.output.contains("RAIL_REFUSED"));
}

/// A FAILED execution, as its lane leaves it.
async fn failed_execution(db: &TestDb) -> Uuid {
    let id = Uuid::new_v4();
    db.sql(&format!(
        "INSERT INTO trigger_outbox_executions (id, app_id, app_name, source_kind, script_name, root_execution_id, trigger_depth, \
                payload, state, error_code, attempts, created_at) \
         VALUES ('{id}', '{id}', 'shop', 'kv', 'main', '{id}', 0, '{{}}', 'FAILED', 'SCRIPT_ERROR', 1, clock_timestamp()); \
         INSERT INTO trigger_outbox_attempts (id, attempt_no, app_id, source_kind, root_execution_id, state, error_code, worker_id) \
         VALUES ('{id}', 1, '{id}', 'kv', '{id}', 'FAILED', 'SCRIPT_ERROR', 'w')"
    ))
    .await;
    id
}

#[tokio::test]
async fn a_closed_dead_letter_is_not_listed_or_counted_any_more_in_any_lane() {
    let db = TestDb::new().await;
    let item = ended(&db, "inv-1", "ach", Outcome::Failed).await;
    let execution = failed_execution(&db).await;
    let depth = "SELECT sum(dlq_count)::bigint FROM supervisor_outbox_status";
    assert_eq!(db.one::<i64>(depth).await, 2);
    assert_eq!(
        ids(&dana(&db, "dlq list --lane triggers --json").await.json()),
        [execution.to_string()]
    );

    let line = format!("dlq close inv-1 {execution} --reason paid␣by␣hand");
    let told = dana(&db, &line).await;
    assert!(
        told.ok && told.output.contains(&format!("would close {item} (RAIL_REFUSED)")),
        "{}",
        told.output
    );
    assert_eq!(db.one::<i64>(depth).await, 2, "a dry run");
    let told = dana(&db, &format!("{line} --yes")).await;
    assert!(told.ok && told.output.starts_with("closed "), "{}{}", told.output, told.error);
    assert_eq!(db.one::<i64>(depth).await, 0);
    assert_eq!(dana(&db, "dlq list").await.output, "nothing waits for a person\n");
    let story = dana(&db, "show inv-1").await.output;
    assert!(story.contains("DEAD_LETTER_CLOSED: paid by hand, by dana"), "{story}");
    let again = dana(&db, &format!("{line} --yes")).await;
    assert!(!again.ok && again.error.contains("closed already"), "{}", again.error);
    let nobody = dana(&db, "dlq close nope --reason r").await;
    assert!(!nobody.ok && nobody.error.contains("no item has"), "{}", nobody.error);
    // It can still be redriven, and is then no dead letter anyway.
    assert!(dana(&db, "redrive inv-1 --reason r --yes").await.ok);
}

#[tokio::test]
async fn what_blocks_a_fifo_lane_is_not_closed_away() {
    let db = TestDb::new().await;
    db.make_fifo("ach", "block").await;
    ended(&db, "inv-1", "ach", Outcome::Failed).await;
    let told = dana(&db, "dlq close inv-1 --reason r --yes").await;
    assert!(
        !told.ok && told.error.contains("blocks its FIFO lane") && told.error.contains("P7006"),
        "{}",
        told.error
    );
}

#[tokio::test]
async fn many_are_redriven_at_once_and_what_the_rail_never_answered_is_left() {
    let db = TestDb::new().await;
    ended(&db, "inv-1", "ach", Outcome::Failed).await;
    ended(&db, "inv-2", "ach", Outcome::Failed).await;
    let unknown = failed_despite_unknown(&db, "inv-3").await;
    let line = "redrive --rail ach --reason corrected";
    let told = dana(&db, line).await;
    assert!(
        told.ok && told.output.contains("2 would be done, 1 left, 0 refused"),
        "{}{}",
        told.output,
        told.error
    );
    // In eighty columns, too, each is named so that it can be looked at.
    let url = db.options.to_url_lossy();
    let desk = [("USER", "dana"), ("COLUMNS", "80")];
    let told = symphony(url.as_str(), &desk, line, &[], "").await.output;
    assert!(told.contains(&format!("    symphony show {unknown}\n")), "{told}");
    assert!(told.lines().all(|line| line.chars().count() <= 80), "{told}");
    assert_eq!(db.count("payment_outbox_instructions WHERE redrive_no = 1").await, 0);
    let done = dana(&db, &format!("{line} --yes --json")).await.json();
    assert_eq!((done["done"].as_i64(), done["left"].as_i64()), (Some(2), Some(1)));
    let left: Vec<_> =
        done["lines"].as_array().unwrap().iter().filter(|line| line["result"] == "left").collect();
    assert_eq!(left[0]["id"], unknown.to_string());
    assert_eq!(db.count("payment_outbox_instructions WHERE redrive_no = 1").await, 2);
    assert_eq!(
        db.count(&format!("payment_outbox_instructions WHERE redrive_of = '{unknown}'")).await,
        0
    );
    // Nobody passes over that for many at once.
    let told = dana(&db, &format!("{line} --despite-unknown --yes")).await;
    assert!(!told.ok, "{}", told.output);
    // The cap.
    for n in 4..7 {
        ended(&db, &format!("inv-{n}"), "sepa", Outcome::Failed).await;
    }
    let told = dana(&db, "redrive --rail sepa --limit 2 --reason r --yes").await;
    assert!(told.output.contains("there are more like that"), "{}", told.output);
    assert_eq!(
        db.count("payment_outbox_instructions WHERE redrive_no = 1 AND rail_type = 'sepa'").await,
        2
    );
}

#[tokio::test]
async fn many_are_resolved_at_once_only_where_no_outcome_is_unknown() {
    let db = TestDb::new().await;
    let unknown = ended(&db, "inv-1", "ach", Outcome::Unknown).await;
    for name in ["inv-2", "inv-3"] {
        db.enqueue(&payment(name, "acme", "ach")).await;
        assert!(dana(&db, &format!("park {name} --reason odd --yes")).await.ok);
    }
    let told = dana(&db, "resolve --rail ach --as dispatched --reference R --reason r --yes").await;
    assert!(!told.ok && told.error.contains("--statement"), "{}", told.error);
    let told = dana(&db, "resolve --rail ach --as failed --reason r --yes").await;
    assert!(told.ok && told.output.contains("2 done, 1 left"), "{}{}", told.output, told.error);
    assert_eq!(db.state(unknown).await, "PARKED");
    assert_eq!(db.count("payment_outbox_attempts WHERE error_code = 'RESOLVED_FAILED'").await, 2);
}

async fn with_statement(db: &TestDb, text: &str, arguments: &str) -> Told {
    dana_with(
        db,
        &format!("resolve --statement - --reason statement␣of␣today {arguments}"),
        &[],
        text,
    )
    .await
}

#[tokio::test]
async fn a_banks_statement_settles_what_it_names_and_stops_at_a_contradiction() {
    let db = TestDb::new().await;
    let paid = ended(&db, "paid", "ach", Outcome::Unknown).await;
    let refused = ended(&db, "refused", "ach", Outcome::Unknown).await;
    let failed = ended(&db, "failed", "ach", Outcome::Failed).await;
    let waits = db.enqueue(&payment("waits", "acme", "ach")).await.outbox_id;
    let mut keys = Vec::new();
    for item in [paid, refused, failed, waits] {
        keys.push(rail_key(&db, item).await);
    }
    let good = format!(
        "date,key,reference,result\n1,{},R-1,executed\n1,{},,refused\n1,{},R-9,executed\n1,TX-4711,R-2,executed\n",
        keys[0], keys[1], keys[3]
    );
    let told = with_statement(&db, &good, "").await;
    assert!(told.ok, "{}", told.error);
    for expected in [
        "PARKED → DISPATCHED, reference R-1",
        "PARKED → FAILED",
        "it is not parked",
        "4 lines: 2 would settle, 1 are not parked: the machine has them still, 1 are no payments of this installation",
        "Nothing was changed",
    ] {
        assert!(told.output.contains(expected), "{expected}: {}", told.output);
    }
    assert_eq!(db.count("payment_outbox_pending WHERE hold = 'PARKED'").await, 2);

    // The ledger calls this one FAILED, and the bank executed it: that may be another's statement, or money that moved twice.
    let bad = format!("{good}1,{},R-7,executed\n", keys[2]);
    let told = with_statement(&db, &bad, "--yes").await;
    assert!(
        !told.ok && told.error.contains("nothing was changed: 1 lines contradict"),
        "{}",
        told.error
    );
    assert!(told.output.contains("do not redrive it"), "{}", told.output);
    assert_eq!(db.count("payment_outbox_pending WHERE hold = 'PARKED'").await, 2);

    let told = with_statement(&db, &bad, "--skip-contradictions --yes").await;
    assert!(!told.ok, "a contradiction is never success");
    assert!(told.output.contains("2 settled"), "{}{}", told.output, told.error);
    assert_eq!(
        (db.state(paid).await, db.state(refused).await),
        ("DISPATCHED".into(), "FAILED".into())
    );
    let reason: String = db
        .one(&format!("SELECT reason FROM payment_outbox_events WHERE event_type = 'RESOLVED' AND outbox_id = '{refused}'"))
        .await;
    assert_eq!(reason, "statement of today (statement -, line 3)");
    // Again: everything is said already.
    let again = with_statement(&db, &good, "--yes").await;
    assert!(
        again.ok && again.output.contains("2 agree with the ledger already"),
        "{}{}",
        again.output,
        again.error
    );
    let none = with_statement(&db, "a,b\n1,2\n", "").await;
    assert!(!none.ok && none.error.contains("no column key"), "{}", none.error);
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn names_that_do_not_exist_are_refused_with_those_that_are_near() {
    let db = TestDb::new().await;
    db.enqueue(&payment("inv-1", "acme", "sepa")).await;
    for (arguments, expected) in [
        ("rail spea", "there is no rail \"spea\"; did you mean sepa?"),
        ("participant amce", "there is no participant \"amce\"; did you mean acme?"),
        ("rail wire", "there is no rail \"wire\""),
    ] {
        for verb in ["pause", "resume"] {
            let told = dana(&db, &format!("{verb} {arguments} --reason r --yes")).await;
            assert!(
                !told.ok && told.error.contains(expected),
                "{verb} {arguments}: {}",
                told.error
            );
            assert!(told.error.contains("P7007"), "{}", told.error);
        }
    }
    db.push("shop", &serde_json::json!({})).await;
    db.database.worker().register_topics(&["main/orders"]).await.unwrap();
    for (arguments, expected) in [
        ("dlq list --rail spea", "there is no rail \"spea\"; did you mean sepa?"),
        ("dlq list --participant amce --json", "there is no participant"),
        ("dlq list --topic ordres", "a topic is named as bus/topic, such as main/orders"),
        ("dlq list --app shpo", "there is no app \"shpo\"; did you mean shop?"),
        ("redrive --rail spea --reason r", "did you mean sepa?"),
        ("redrive --participant amce --reason r --yes", "did you mean acme?"),
        ("redrive --app shpo --reason r", "did you mean shop?"),
        ("resolve --rail spea --as failed --reason r", "did you mean sepa?"),
        ("rail show spea", "did you mean sepa?"),
        ("rail spea --json", "there is no rail"),
    ] {
        let told = dana(&db, arguments).await;
        assert!(!told.ok && told.error.contains(expected), "{arguments}: {}", told.error);
        assert!(told.error.contains("P7007") && told.output.is_empty(), "{arguments}");
    }
    for arguments in [
        "dlq list --rail sepa",
        "dlq list --participant acme",
        "dlq list --topic orders",
        "dlq list --topic main/orders",
        "dlq list --app shop",
        "redrive --rail sepa --reason r",
        "redrive --app shop --reason r",
        "rail show sepa",
    ] {
        let told = dana(&db, arguments).await;
        assert!(told.ok, "{arguments}: {}", told.error);
    }
    assert_eq!(db.count("payment_outbox_rails WHERE paused").await, 0);
    assert_eq!(dana(&db, "pause list").await.output, "nothing is paused\n");
    for line in ["pause rail sepa", "pause participant acme", "pause events"] {
        assert!(dana(&db, &format!("{line} --reason the␣bank␣moves --yes")).await.ok);
    }
    let list = dana(&db, "pause list --json").await.json();
    let told: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|p| {
            (p["kind"].as_str().unwrap(), p["name"].as_str().unwrap(), p["actor"].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        told,
        [("lane", "events", "dana"), ("rail", "sepa", "dana"), ("participant", "acme", "dana")]
    );
    let table = dana(&db, "pause list").await.output;
    assert!(table.contains("symphony resume rail sepa --reason WHY"), "{table}");
    let status = dana(&db, "status").await.output;
    for expected in ["rail sepa is paused since", "no live worker serves rail sepa: 1 wait"] {
        assert!(status.contains(expected), "{expected}: {status}");
    }
    let served = dana(&db, "doctor").await.output;
    assert!(served.contains("no live worker serves rail sepa"), "{served}");
}

#[tokio::test]
async fn show_says_what_a_payment_waits_for_where_it_goes_and_what_it_became() {
    let db = TestDb::new().await;
    db.make_fifo("ach", "block").await;
    let head = ended(&db, "inv-1", "ach", Outcome::Failed).await;
    let behind = db.enqueue(&payment("inv-2", "acme", "ach")).await.outbox_id;
    assert!(dana(&db, "pause rail ach --reason r --yes").await.ok);
    let life = dana(&db, "show inv-2").await.output;
    for expected in [
        "10.00 EUR to iban DE89…3000".to_owned(),
        format!(
            "waits behind {head}, which FAILED and blocks its lane: symphony redrive {head} --reason WHY"
        ),
        "rail ach is paused: symphony resume rail ach --reason WHY".to_owned(),
        "no live worker serves rail ach".to_owned(),
        format!("the rail knows it as {}", rail_key(&db, behind).await),
    ] {
        assert!(life.contains(&expected), "{expected}: {life}");
    }
    assert!(!life.contains("DE89370400440532013000"), "{life}");
    assert!(dana(&db, "redrive inv-1 --reason again --yes").await.ok);
    let new: OutboxId =
        db.one("SELECT outbox_id FROM payment_outbox_instructions WHERE redrive_no = 1").await;
    let old = dana(&db, &format!("show {head}")).await.output;
    assert!(
        old.contains(&format!("redriven as {new}"))
            && old.contains(&format!("REDRIVEN as {new}: again, by dana")),
        "{old}"
    );
    let redrive = dana(&db, &format!("show {new}")).await.output;
    assert!(redrive.contains(&format!("redrive 1 of {head}")), "{redrive}");
    let waiting = dana(&db, "show inv-2").await.output;
    assert!(waiting.contains(&format!("waits behind {new} of its FIFO lane")), "{waiting}");
}

#[tokio::test]
async fn show_tells_late_outcomes_resolutions_and_executions() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("inv-1", "acme", "ach")).await.outbox_id;
    let claimed = db.claim_one("w").await;
    db.expire(item).await;
    db.database.worker().repair::<PaymentLease>("r", 10).await.unwrap();
    let late = PaymentOutcome {
        rail_reference: Some("R-late".to_owned()),
        ..PaymentOutcome::new(claimed.lease(), Outcome::Dispatched)
    };
    db.database.worker().record_late_payment("w", &late).await.unwrap();
    assert!(dana(&db, "park inv-1 --reason look --yes").await.ok);
    assert!(
        dana(&db, "resolve inv-1 --as dispatched --reference R-late --reason seen --yes").await.ok
    );
    let life = dana(&db, "show inv-1").await.output;
    for expected in [
        "LATE_OUTCOME DISPATCHED, reference R-late",
        "RESOLVED as DISPATCHED, reference R-late: seen, by dana",
        "LEASE_EXPIRED_REPAIRED of w",
    ] {
        assert!(life.contains(expected), "{expected}: {life}");
    }
    let execution = failed_execution(&db).await;
    let life = dana(&db, &format!("show {execution}")).await.output;
    for expected in [
        "FAILED",
        "app shop, kv, script main",
        "attempt 1: FAILED, error SCRIPT_ERROR",
        "symphony app logs",
    ] {
        assert!(life.contains(expected), "{expected}: {life}");
    }
}

#[tokio::test]
async fn a_printed_command_leads_to_the_same_database_and_shows_no_password() {
    let db = TestDb::new().await;
    ended(&db, "inv-1", "ach", Outcome::Failed).await;
    let url = db.options.to_url_lossy().to_string();
    let words = ["--database-url", url.as_str(), "dlq", "list", "--json"];
    let told =
        symphony("postgres://nobody@127.0.0.1:1/nothing", &[("USER", "dana")], "", &words, "")
            .await;
    let next = told.json()[0]["next_command"].as_str().unwrap().to_owned();
    assert!(next.starts_with("symphony --database-url "), "{next}");
    // Where the environment says it, the same shell says it again.
    let next =
        dana(&db, "dlq list --json").await.json()[0]["next_command"].as_str().unwrap().to_owned();
    assert!(next.starts_with("symphony redrive "), "{next}");
}

#[tokio::test]
async fn an_inquiry_by_sql_is_refused_where_there_is_nothing_to_ask() {
    let db = TestDb::new().await;
    let operator = db.database.operator();
    let fresh = db.enqueue(&payment("inv-1", "acme", "ach")).await.outbox_id;
    let failed = {
        let claimed = db.claim_one("w").await;
        db.database
            .worker()
            .complete_payment("w", &PaymentOutcome::new(claimed.lease(), Outcome::Failed))
            .await
            .unwrap();
        fresh
    };
    let never = db.enqueue(&payment("inv-2", "acme", "ach")).await.outbox_id;
    for item in [failed, never] {
        assert_eq!(crate::support::code(operator.inquire(item, &act()).await), "P7006");
    }
    let parked = ended(&db, "inv-3", "sepa", Outcome::Unknown).await;
    let asked = operator.inquire(parked, &act()).await.unwrap();
    assert_eq!((asked.state_before.as_str(), asked.attempts_before), ("PARKED", 1));
    let only: bool = db
        .one(&format!("SELECT only_ask FROM payment_outbox_pending WHERE outbox_id = '{parked}'"))
        .await;
    assert!(only, "it is asked about and not sent");
    // A person who releases it takes that back.
    assert!(dana(&db, "park inv-3 --reason r --yes").await.ok);
    assert!(dana(&db, "release inv-3 --reason r --despite-unknown --yes").await.ok);
    assert_eq!(db.count("payment_outbox_pending WHERE only_ask").await, 0);
}
