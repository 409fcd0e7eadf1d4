//! To approve one's own request.

use serde_json::{Value, json};
use sqlx::ConnectOptions as _;

use super::Served;
use crate::approvals::{Person, parked};
use crate::support::shell::symphony;

const APPROVE: &str = "POST /v1/approvals/1/approve";

/// A payment, and dana's request to release it. The token may approve too.
async fn asked() -> (Served, symphony::domain::OutboxId, String) {
    let served = Served::new().await;
    served.db.require_approval("payment").await;
    let item = parked(&served.db, "inv-1").await;
    let dana = served.token("dana", "operate,approve").await;
    let body = json!({"arguments": {"p_outbox_id": item}, "reason": "r"});
    assert_eq!(served.ask(&dana, "POST /v1/acts/release_outbox", &body).await.0, 202);
    (served, item, dana)
}

fn agree() -> Value {
    json!({"reason": "I have looked"})
}

#[tokio::test]
async fn the_token_that_asked_cannot_approve() {
    let (served, item, dana) = asked().await;
    served.refuses(&dana, APPROVE, &agree(), 403, "P7008").await;
    assert_eq!(served.db.state(item).await, "PARKED");
    let kim = served.token("kim", "approve").await;
    assert_eq!(served.ask(&kim, APPROVE, &agree()).await.0, 200, "somebody else can");
}

#[tokio::test]
async fn another_token_of_the_same_person_cannot_approve() {
    let (served, item, _) = asked().await;
    let other = served.token("dana", "approve").await;
    served.refuses(&other, APPROVE, &agree(), 403, "P7008").await;
    assert_eq!(served.db.state(item).await, "PARKED");
}

#[tokio::test]
async fn no_spelling_of_ones_own_name_approves() {
    let (served, item, _) = asked().await;
    for person in ["Dana", "DANA", "dana.", ".dana", "dana␣", "d-a-n-a", "da␣na", "dana_"] {
        let token = served
            .token_command(&format!("create --name x --person={person} --scope approve"))
            .await;
        served.refuses(token["token"].as_str().unwrap(), APPROVE, &agree(), 403, "P7008").await;
    }
    assert_eq!(served.db.state(item).await, "PARKED");
}

#[tokio::test]
async fn nobody_is_named_with_letters_that_look_like_others() {
    let served = Served::new().await;
    // Cyrillic, full width, a letter of no width, one that turns the direction, and none at all.
    for person in ["d\u{430}na", "\u{ff44}ana", "dana\u{200b}", "dana\u{202e}", "..."] {
        let line = "token create --name x --scope approve --person";
        let told = symphony(&served.admin, &[("USER", "root")], line, &[person], "").await;
        assert!(
            !told.ok && told.error.contains("person must be printable ASCII"),
            "{person}: {}",
            told.error
        );
    }
    assert_eq!(served.db.count("api_tokens").await, 0);
}

#[tokio::test]
async fn the_makers_own_login_cannot_approve_what_their_token_asked() {
    let served = Served::new().await;
    served.db.require_approval("payment").await;
    let item = parked(&served.db, "inv-1").await;
    let mut person = Person::new(&served.db, "symphony_approver").await;
    let token = served.token(&person.login, "operate").await;
    let body = json!({"arguments": {"p_outbox_id": item}, "reason": "r"});
    assert_eq!(served.ask(&token, "POST /v1/acts/release_outbox", &body).await.0, 202);
    let refused = person.approve(1).await.unwrap_err();
    assert!(refused.starts_with("P7008"), "{refused}");
    assert_eq!(served.db.state(item).await, "PARKED");
}

/// Somebody who hands out tokens and acts: the one person who could invent another.
#[tokio::test]
async fn who_hands_out_tokens_cannot_approve_with_a_person_they_invented() {
    let served = Served::new().await;
    served.db.require_approval("payment").await;
    let item = parked(&served.db, "inv-1").await;
    let mut omar =
        Person::new(&served.db, "symphony_auth, symphony_operator, symphony_approver").await;
    let url = omar.options.to_url_lossy().to_string();
    let make = async |line: &str| {
        let line = format!("token create --name x {line} --json");
        let told = symphony(&url, &[("USER", "omar")], &line, &[], "").await;
        assert!(told.ok, "{}", told.error);
        told.json()["token"].as_str().unwrap().to_owned()
    };
    // Asked with their own login, approved with an invented person's token.
    let arguments = json!({"p_outbox_id": item});
    assert_eq!(omar.request("release_outbox", &arguments).await, 1);
    let invented = make("--person kim --scope operate,approve").await;
    served.refuses(&invented, APPROVE, &agree(), 403, "P7008").await;
    // Asked with an invented person's token, approved with their own login.
    let body = json!({"arguments": arguments, "reason": "r"});
    assert_eq!(served.ask(&invented, "POST /v1/acts/release_outbox", &body).await.0, 202);
    let refused = omar.approve(2).await.unwrap_err();
    assert!(refused.starts_with("P7008"), "{refused}");
    // Asked with a token under their own name, approved with the invented person's.
    let own = make(&format!("--person {} --scope operate", omar.login)).await;
    assert_eq!(served.ask(&own, "POST /v1/acts/release_outbox", &body).await.0, 202);
    served.refuses(&invented, "POST /v1/approvals/3/approve", &agree(), 403, "P7008").await;
    assert_eq!(served.db.state(item).await, "PARKED");
}

#[tokio::test]
async fn an_approval_names_nobody_but_its_token() {
    let (served, item, _) = asked().await;
    let kim = served.token("kim", "approve").await;
    for named in ["actor", "approver", "person"] {
        let mut body = agree();
        body[named] = json!("omar");
        served.refuses(&kim, APPROVE, &body, 422, "P7005").await;
    }
    assert_eq!(served.db.state(item).await, "PARKED");
}

#[tokio::test]
async fn an_approval_is_good_once() {
    let (served, item, _) = asked().await;
    let kim = served.token("kim", "approve").await;
    assert_eq!(served.ask(&kim, APPROVE, &agree()).await.0, 200);
    served.db.database.operator().park_payment(item, &crate::support::act()).await.unwrap();
    served.refuses(&kim, APPROVE, &agree(), 409, "P7006").await;
    assert_eq!(served.db.state(item).await, "PARKED");
}

#[tokio::test]
async fn a_request_that_has_expired_is_approved_by_nobody() {
    let (served, item, _) = asked().await;
    served.db.sql("ALTER TABLE outbox_approval_requests DISABLE TRIGGER USER; UPDATE outbox_approval_requests SET created_at = created_at - INTERVAL '3 days', expires_at = clock_timestamp() - INTERVAL '1 second'").await;
    let kim = served.token("kim", "approve").await;
    served.refuses(&kim, APPROVE, &agree(), 409, "P7006").await;
    assert_eq!(served.db.state(item).await, "PARKED");
}

#[tokio::test]
async fn nobody_withdraws_what_another_person_asked_for() {
    let (served, _, _) = asked().await;
    let omar = served.token("omar", "operate,approve").await;
    served.refuses(&omar, "POST /v1/approvals/1/withdraw", &agree(), 403, "P7008").await;
    assert_eq!(served.db.one::<String>("SELECT state FROM outbox_approvals").await, "WAITING");
}

#[tokio::test]
async fn one_person_alone_cannot_switch_approval_off() {
    let (served, item, dana) = asked().await;
    let body = json!({"arguments": {"p_approval_required": false}, "reason": "r"});
    let (status, told) = served.ask(&dana, "POST /v1/acts/configure_payment_lane", &body).await;
    assert_eq!((status, told["state"].as_str()), (202, Some("WAITING")), "{told}");
    served.refuses(&dana, "POST /v1/approvals/2/approve", &agree(), 403, "P7008").await;
    let body = json!({"arguments": {"p_outbox_id": item}, "reason": "r"});
    assert_eq!(served.ask(&dana, "POST /v1/acts/release_outbox", &body).await.0, 202);
    assert_eq!(served.db.state(item).await, "PARKED");
}
