//! Approvals from a shell: an act that asks, the line the second person copies, and what waits.

use serde_json::json;
use sqlx::ConnectOptions as _;
use symphony::domain::Outcome;

use super::{Person, parked};
use crate::support::shell::{Told, symphony};
use crate::support::{TestDb, payment};

/// Two people with exactly their grants, at a database whose payments want approval.
struct Desk {
    db: TestDb,
    dana: String,
    kim: String,
}

impl Desk {
    async fn new() -> Self {
        let db = TestDb::new().await;
        db.require_approval("payment").await;
        let url =
            async |role: &str| Person::new(&db, role).await.options.to_url_lossy().to_string();
        let (dana, kim) = (url("symphony_operator").await, url("symphony_approver").await);
        Self { db, dana, kim }
    }

    async fn dana(&self, line: &str) -> Told {
        symphony(&self.dana, &[("USER", "dana")], line, &[], "").await
    }

    async fn kim(&self, line: &str) -> Told {
        symphony(&self.kim, &[("USER", "kim")], line, &[], "").await
    }
}

#[tokio::test]
async fn an_act_that_needs_approval_asks_and_the_line_it_prints_carries_it_out() {
    let desk = Desk::new().await;
    let item = parked(&desk.db, "inv-1").await;
    let line = "resolve inv-1 --as retry --reason the␣bank␣never␣got␣it";
    let told = desk.dana(line).await;
    assert!(
        told.ok
            && told
                .output
                .ends_with("repeat with --yes to ask a second person, who must approve it.\n"),
        "{}",
        told.output
    );
    let told = desk.dana(&format!("{line} --yes")).await;
    assert_eq!(
        (told.ok, told.error.as_str()),
        (false, ""),
        "asked for is not done: the exit code says so"
    );
    assert!(
        told.output.starts_with(&format!("asked a second person to resolve {item}")),
        "{}",
        told.output
    );
    let copied = told
        .output
        .lines()
        .find(|line| line.contains("approval approve"))
        .unwrap()
        .trim()
        .to_owned();
    assert_eq!(copied, "symphony approval approve 1 --reason WHY --yes");
    assert_eq!(desk.db.state(item).await, "PARKED");

    let list = desk.kim("approval list").await.output;
    assert!(
        list.contains("WAITING") && list.contains("resolve_outbox") && list.contains("dana"),
        "{list}"
    );
    let shown = desk.kim("approval show 1").await.output;
    assert!(
        shown.contains("p_resolution RETRY")
            && shown.contains("PARKED → PENDING")
            && shown.contains("the bank never got it"),
        "{shown}"
    );
    let told = desk.dana("approval approve 1 --reason fine --yes").await;
    assert!(!told.ok && told.error.contains("symphony_approver"), "{}", told.error);

    let copied = copied.strip_prefix("symphony ").unwrap().replace("WHY", "I␣asked␣them");
    let told = desk.kim(copied.trim_end_matches(" --yes")).await;
    assert!(
        told.ok
            && told
                .output
                .starts_with("would approve request 1 of dana (resolve_outbox) → PARKED → PENDING"),
        "{}",
        told.output
    );
    assert_eq!(desk.db.state(item).await, "PARKED");
    let told = desk.kim(&copied).await;
    assert!(
        told.ok && told.output.starts_with("approved request 1 of dana"),
        "{}{}",
        told.output,
        told.error
    );
    assert_eq!(desk.db.state(item).await, "DUE");
    let told_life = desk.dana("show inv-1").await.output;
    for words in ["APPROVAL_REQUESTED", "APPROVAL_GIVEN", "RESOLVED", "by dana, approved by kim"] {
        assert!(told_life.contains(words), "{words}: {told_life}");
    }
    let again = desk.kim(&copied).await;
    assert!(!again.ok && again.error.contains("is APPROVED already [P7006"), "{}", again.error);
}

#[tokio::test]
async fn scripts_get_the_request_as_json_and_a_code_of_its_own() {
    let desk = Desk::new().await;
    parked(&desk.db, "inv-1").await;
    let told = desk.dana("--json release inv-1 --reason r --yes").await.json();
    assert_eq!((&told["act"], &told["state"]), (&json!("release"), &json!("WAITING")));
    assert_eq!(told["approval"]["request_no"], 1);
    assert_eq!(told["approval"]["approve"], "symphony approval approve 1 --reason WHY --yes");
    let list = desk.kim("approval list --json").await.json();
    assert_eq!((&list[0]["request_no"], &list[0]["state"]), (&json!(1), &json!("WAITING")));
    let told = desk.kim("approval reject 1 --reason no --yes --json").await.json();
    assert_eq!((&told["decision"], &told["state"]), (&json!("reject"), &json!("REJECTED")));
    let told = desk.kim("approval show 1 --json").await.json();
    assert_eq!((&told["state"], &told["decision_reason"]), (&json!("REJECTED"), &json!("no")));
    assert!(desk.kim("approval list").await.output.contains("nothing waits"));
    assert!(desk.kim("approval list --state all").await.output.contains("REJECTED"));
    let none = desk.kim("approval show 99").await;
    assert!(!none.ok && none.error.contains("there is no request 99"), "{}", none.error);
}

#[tokio::test]
async fn many_at_once_are_one_request() {
    let desk = Desk::new().await;
    for n in 1..=3 {
        let request = payment(&format!("inv-{n}"), "acme", "ach");
        desk.db.ended(&request, "REFUSED_BY_RAIL", Outcome::Failed).await;
    }
    let told = desk.dana("redrive --rail ach --reason list␣corrected --yes").await;
    assert!(
        !told.ok && told.output.contains("0 done, 3 wait for a second person, 0 left, 0 refused"),
        "{}",
        told.output
    );
    assert!(
        told.output.contains("symphony approval approve 1 --reason WHY --yes"),
        "{}",
        told.output
    );
    assert_eq!(desk.db.count("payment_outbox_instructions").await, 3);
    let told = desk.kim("approval approve 1 --reason r --yes").await;
    assert!(told.ok && told.output.contains("3 of 3 acts"), "{}{}", told.output, told.error);
    assert_eq!(desk.db.count("payment_outbox_instructions WHERE redrive_no = 1").await, 3);
    for n in 4..=5 {
        let request = payment(&format!("inv-{n}"), "acme", "swift");
        desk.db.ended(&request, "REFUSED_BY_RAIL", Outcome::Failed).await;
    }
    let told = desk.dana("dlq close inv-4 inv-5 --reason by␣hand --yes").await;
    assert!(
        told.output.contains("asked a second person to close 2 dead letters"),
        "{}",
        told.output
    );
    assert!(desk.kim("approval approve 2 --reason r --yes").await.ok);
    assert_eq!(desk.db.count("payment_outbox_dead_letters").await, 0);
}

#[tokio::test]
async fn a_banks_statement_is_settled_by_one_request() {
    let desk = Desk::new().await;
    let item = desk.db.ended(&payment("inv-1", "acme", "ach"), "TIMEOUT", Outcome::Unknown).await;
    let key = desk.db.database.auditor().rail_key(item).await.unwrap();
    let statement = format!("key,reference,result\n{key},R-1,executed\n");
    let line = "resolve --statement - --reason of␣today --yes";
    let told = symphony(&desk.dana, &[("USER", "dana")], line, &[], &statement).await;
    assert!(told.output.contains("1 wait for a second person"), "{}{}", told.output, told.error);
    assert_eq!(desk.db.state(item).await, "PARKED");
    assert!(desk.kim("approval approve 1 --reason compared --yes").await.ok);
    assert_eq!(desk.db.ledger(item).await.last().unwrap(), "2 DISPATCHED");
}

#[tokio::test]
async fn a_rail_a_resume_and_the_rule_itself_are_asked_for() {
    let desk = Desk::new().await;
    let told = desk.dana("rail ach --on-failed continue --reason r").await;
    assert!(
        told.ok && told.output.contains("would configure rail ach: on failed block → continue"),
        "{}",
        told.output
    );
    assert!(told.output.contains("to ask a second person"), "{}", told.output);
    let told = desk.dana("rail ach --on-failed continue --reason r --yes").await;
    assert!(
        told.output.starts_with("asked a second person to configure rail ach"),
        "{}",
        told.output
    );
    assert!(desk.dana("pause payments --reason r --yes").await.ok, "to stop needs nobody");
    let told = desk.dana("resume payments --reason r --yes").await;
    assert!(
        told.output.starts_with("asked a second person to resume the payment lane"),
        "{}",
        told.output
    );
    let told = desk.dana("approval require payments --off --reason r --yes").await;
    assert!(
        told.output
            .starts_with("asked a second person to end the approval of acts of the payments lane"),
        "{}",
        told.output
    );
    for number in 1..=3 {
        let told = desk.kim(&format!("approval approve {number} --reason r --yes")).await;
        assert!(told.ok, "{number}: {}{}", told.output, told.error);
    }
    let told = desk.dana("approval require payments --off --reason r --yes").await;
    assert!(told.ok && told.output.contains("need no approval already"), "{}", told.output);
    assert!(desk.dana("rail ach --on-failed block --reason r --yes").await.ok);
    // Asking is possible where nobody must.
    parked(&desk.db, "inv-1").await;
    let told = desk.dana("release inv-1 --reason r --request-approval --yes").await;
    assert!(told.output.contains("approval approve 4"), "{}", told.output);
    let told = desk.dana("approval withdraw 4 --reason alone␣will␣do --yes").await;
    assert!(
        told.ok && told.output.starts_with("withdrawn request 4"),
        "{}{}",
        told.output,
        told.error
    );
}

#[tokio::test]
async fn what_waits_is_in_status_and_doctor() {
    let desk = Desk::new().await;
    parked(&desk.db, "inv-1").await;
    desk.dana("release inv-1 --reason r --yes").await;
    let told = desk.dana("status --json").await.json();
    assert_eq!(told[0]["approval_waiting_count"], 1);
    let told = desk.dana("status").await.output;
    assert!(told.contains("approvals") && told.contains("symphony approval list"), "{told}");
    let told = desk.dana("doctor").await;
    assert!(
        told.output.contains("payments: 1 act waits for a second person: symphony approval list"),
        "{}",
        told.output
    );
}

#[tokio::test]
async fn doctor_names_logins_that_could_be_both_persons_of_an_approval() {
    let desk = Desk::new().await;
    let both = Person::new(&desk.db, "symphony_auth, symphony_operator").await.login;
    let only = Person::new(&desk.db, "symphony_auth").await.login;
    let told = desk.dana("doctor --json").await.output;
    assert!(told.contains(&format!("{both} has symphony_auth and acts itself")), "{told}");
    assert!(!told.contains(&format!("{only} has symphony_auth")), "{told}");
}
