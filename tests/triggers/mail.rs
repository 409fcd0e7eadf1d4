//! Whose mail is whose, and how much of it: addresses that apps claim, what operators grant, the brakes for loops.

use std::sync::Arc;

use serde_json::{Value, json};
use sqlx::Row as _;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::{manifest, quoted};
use crate::support::{TestDb, run};

const INGEST: &str = "symphony_ingest";
const OPERATOR: &str = "symphony_operator";

fn wants(address: &str) -> Value {
    manifest(&[("in", "email", address)])
}

async fn refused(db: &TestDb, app: &str, address: &str) -> String {
    let push = format!("SELECT push_app('{app}', {}, 'dana')", quoted(&wants(address)));
    db.refusal(OPERATOR, &push).await
}

/// How many triggers a message to this address fires.
async fn received(db: &TestDb, recipient: &str) -> i32 {
    db.one_as(INGEST, &format!("SELECT receive_trigger_email('{recipient}', '{{}}')")).await
}

#[tokio::test]
async fn an_address_is_of_the_app_that_names_it_first_and_another_push_is_refused_with_both_named()
{
    let db = TestDb::new().await;
    db.push("shop", &wants("Orders@Example.com")).await;
    db.push("shop", &wants("Orders@Example.com")).await;
    let told = refused(&db, "thief", "orders@example.COM").await;
    assert_eq!(
        told,
        "P7006 app thief may not have the mail of 'orders@example.com': it is app shop's"
    );
    assert_eq!(db.count("apps").await, 1, "nothing of the push is left");
    db.push("other", &wants("sales@example.com")).await;
    assert_eq!(received(&db, "orders@example.com").await, 1);
}

#[tokio::test]
async fn an_address_is_free_again_when_its_app_names_it_no_more_or_is_deleted() {
    let db = TestDb::new().await;
    db.push("shop", &wants("orders@example.com")).await;
    db.push("shop", &manifest(&[])).await;
    db.push("other", &wants("orders@example.com")).await;
    db.one_as::<i32>(OPERATOR, "SELECT items FROM delete_app('other', 'dana', 'test')").await;
    assert_eq!(received(&db, "orders@example.com").await, 0);
    db.push("shop", &wants("orders@example.com")).await;
    assert_eq!(received(&db, "orders@example.com").await, 1);
}

#[tokio::test]
async fn a_filter_with_a_star_needs_a_grant_and_a_grant_covers_what_lies_within_it() {
    let db = TestDb::new().await;
    db.push("shop", &json!({})).await;
    for wide in ["*", "orders@*", "*@example.com"] {
        let told = refused(&db, "shop", wide).await;
        assert!(told.starts_with("P7006 app shop may not have the mail of"), "{wide}: {told}");
        assert!(told.ends_with("an operator grants a filter with a *"), "{wide}: {told}");
    }
    for odd in ["or*ders@example.com", "*.example.com", "**", "*@*"] {
        let told = refused(&db, "shop", odd).await;
        assert!(told.starts_with("P7005 triggers[0].filter must be an address"), "{odd}: {told}");
    }
    db.grant_mail("shop", "*@Example.com").await;
    for within in ["*@example.com", "orders@example.com"] {
        db.push("shop", &wants(within)).await;
        assert_eq!(received(&db, "orders@example.com").await, 1, "{within}");
    }
    for outside in ["*", "orders@*", "*@sub.example.com"] {
        assert!(refused(&db, "shop", outside).await.starts_with("P7006"), "{outside}");
    }
    db.grant_mail("shop", "o*").await;
    db.push("shop", &wants("orders@*")).await;
    assert_eq!(received(&db, "orders@sub.example.com").await, 1);
    assert_eq!(received(&db, "office@sub.example.com").await, 0, "its trigger is narrower");
}

#[tokio::test]
async fn within_another_apps_grant_nothing_is_claimed_and_what_was_claimed_before_stays() {
    let db = TestDb::new().await;
    db.push("shop", &wants("orders@example.com")).await;
    db.push("archive", &json!({})).await;
    let grant =
        "SELECT addresses_of_others FROM grant_app_mail('archive', '*@example.com', 'dana', 'r')";
    assert_eq!(db.one_as::<i32>(OPERATOR, grant).await, 1);
    db.push("archive", &wants("*@example.com")).await;
    assert_eq!(received(&db, "orders@example.com").await, 2, "both have it");
    db.push("shop", &wants("orders@example.com")).await;
    let told = refused(&db, "thief", "billing@example.com").await;
    assert_eq!(
        told,
        "P7006 app thief may not have the mail of 'billing@example.com': it is app archive's"
    );
    db.push("thief", &json!({})).await;
    db.grant_mail("thief", "billing@example.com").await;
    db.push("thief", &wants("billing@example.com")).await;
    assert_eq!(received(&db, "billing@example.com").await, 2);
}

#[tokio::test]
async fn a_revoked_grant_ends_with_the_next_message_without_a_push() {
    let db = TestDb::new().await;
    db.push("shop", &wants("orders@example.com")).await;
    db.push("archive", &json!({})).await;
    db.grant_mail("archive", "*").await;
    db.push("archive", &wants("*")).await;
    let revoke =
        |dry: bool| format!("SELECT revoke_app_mail('archive', '*', 'dana', 'no more', {dry})");
    assert_eq!(db.refusal(OPERATOR, &revoke(true)).await, "OK");
    assert_eq!(received(&db, "orders@example.com").await, 2, "a dry run changes nothing");
    assert_eq!(db.refusal(OPERATOR, &revoke(false)).await, "OK");
    assert_eq!(received(&db, "orders@example.com").await, 1);
    assert_eq!(received(&db, "x@example.com").await, 0);
    assert!(db.refusal(OPERATOR, &revoke(false)).await.starts_with("P7007"));
    let told: Vec<String> = db
        .one("SELECT array_agg(event_type || ' ' || reason ORDER BY event_no) FROM trigger_outbox_events WHERE event_type LIKE 'MAIL%'")
        .await;
    assert_eq!(told, ["MAIL_GRANTED test", "MAIL_REVOKED no more"]);
    assert!(refused(&db, "archive", "*").await.starts_with("P7006"));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_apps_that_push_one_address_at_the_same_moment_one_has_it() {
    let db = TestDb::new().await;
    for round in 0..5 {
        let mut pushes = JoinSet::new();
        let barrier = Arc::new(Barrier::new(4));
        for n in 0..4 {
            let mut operator = db.as_role(OPERATOR).await;
            let barrier = barrier.clone();
            // Each names two, in an order of its own.
            let own = manifest(&[
                (["a", "b"][n % 2], "email", &format!("a{round}@example.com")),
                (["b", "a"][n % 2], "email", &format!("b{round}@example.com")),
            ]);
            let push = format!("SELECT push_app('app{n}-{round}', {}, 'dana')", quoted(&own));
            pushes.spawn(async move {
                barrier.wait().await;
                run(&mut operator, &push).await.map_err(|error| error.code().to_owned())
            });
        }
        let told = pushes.join_all().await;
        let wrong = told.iter().filter_map(|told| told.as_ref().err());
        assert_eq!(wrong.collect::<Vec<_>>(), ["P7006"; 3], "{told:?}");
        assert_eq!(received(&db, &format!("a{round}@example.com")).await, 1);
    }
}

#[tokio::test]
async fn mail_is_found_by_index_among_the_triggers_of_many_apps() {
    let db = TestDb::new().await;
    db.push("shop", &wants("orders@example.com")).await;
    db.sql(
        "INSERT INTO apps (name) SELECT 'app-' || n FROM generate_series(1, 2000) n; \
         INSERT INTO mail_addresses (address, app_id) SELECT a.name || '@example.com', a.id FROM apps a WHERE a.name <> 'shop'; \
         INSERT INTO triggers (app_id, name, source_kind, filter, script_name, attempts_max, backoff_seconds) \
         SELECT a.id, 'in', 'email', a.name || '@example.com', 'run', 1, '{1}' FROM apps a WHERE a.name <> 'shop'; \
         ANALYZE",
    )
    .await;
    let mut admin = db.admin().await;
    for mail in ["NULL", "'{}'"] {
        run(&mut admin, "BEGIN").await.unwrap();
        let call = format!("SELECT receive_trigger_email('orders@example.com', {mail})");
        run(&mut admin, &call).await.unwrap();
        let read = sqlx::query(
            "SELECT relname::text AS name, seq_tup_read + coalesce(idx_tup_fetch, 0) AS rows FROM pg_stat_xact_user_tables \
              WHERE schemaname = 'symphony' ORDER BY 2 DESC LIMIT 1",
        )
        .fetch_one(&mut admin)
        .await
        .unwrap();
        let (name, rows): (String, i64) = (read.get("name"), read.get("rows"));
        assert!(rows <= 4, "{rows} rows of {name} were read for one message");
        run(&mut admin, "ROLLBACK").await.unwrap();
    }
}

#[tokio::test]
async fn a_sender_is_put_off_after_so_many_an_hour_and_nobody_else_with_it() {
    let db = TestDb::new().await;
    db.push("shop", &wants("orders@example.com")).await;
    let send = async |sender: &str| {
        let call = format!(
            "SELECT receive_trigger_email('Orders@example.com', '{{}}', p_sender => '{sender}', p_per_hour_max => 2)"
        );
        db.refusal(INGEST, &call).await
    };
    assert_eq!(send("robot@a.example").await, "OK");
    assert_eq!(send("Robot@a.example").await, "OK");
    for _ in 0..2 {
        assert!(send("robot@a.example").await.starts_with("P7012"));
    }
    assert_eq!(
        db.one::<i32>("SELECT mails FROM mail_counts").await,
        2,
        "what is refused is not counted"
    );
    assert_eq!(send("other@a.example").await, "OK");
    db.sql("UPDATE mail_counts SET since = since - interval '1 hour'").await;
    assert_eq!(send("robot@a.example").await, "OK");
    assert_eq!(db.count("trigger_outbox_pending").await, 4);
}

#[tokio::test]
async fn an_address_is_put_off_after_so_many_an_hour_whoever_they_say_they_are() {
    let db = TestDb::new().await;
    let app =
        manifest(&[("in", "email", "orders@example.com"), ("other", "email", "other@example.com")]);
    db.push("shop", &app).await;
    let send = async |address: &str, sender: &str| {
        let call = format!(
            "SELECT receive_trigger_email('{address}', '{{}}', p_sender => {sender}, p_per_hour_max => 2, p_address_per_hour_max => 3)"
        );
        db.refusal(INGEST, &call).await
    };
    for n in 1..=3 {
        assert_eq!(send("Orders@example.com", &format!("'bounce-{n}@list.example'")).await, "OK");
    }
    for sender in ["'bounce-4@list.example'", "''", "NULL"] {
        let told = send("orders@example.com", sender).await;
        assert!(told.starts_with("P7012 p_address_per_hour_max: this address"), "{told}");
    }
    assert_eq!(
        db.count("mail_counts").await,
        4,
        "each sender and the address: who is refused leaves no count"
    );
    // A sender without a name has a count of its own, beside the address's.
    for _ in 0..2 {
        assert_eq!(send("other@example.com", "''").await, "OK");
    }
    assert!(
        send("other@example.com", "NULL").await.starts_with("P7012 p_per_hour_max: this sender")
    );
    assert_eq!(send("other@example.com", "'ann@client.example'").await, "OK");
    db.sql("UPDATE mail_counts SET since = since - interval '1 hour'").await;
    assert_eq!(send("orders@example.com", "'bounce-4@list.example'").await, "OK");
}

#[tokio::test]
async fn an_answer_that_is_faster_than_the_relay_stands_deeper_too() {
    let db = TestDb::new().await;
    db.push("shop", &wants("orders@example.com")).await;
    assert_eq!(received(&db, "orders@example.com").await, 1);
    let item = db.claim_item("w").await;
    let message = json!({"to": "robot@example.org", "subject": "Re", "text": "thank you"});
    db.done("w", &item, json!([{"kind": "email_send", "message": message}])).await;
    let sent = db.claim_item("w").await;
    let key = sent.payload["messageKey"].as_str().unwrap();
    let answer = format!(
        "SELECT receive_trigger_email('orders@example.com', '{{}}', NULL, ARRAY['{key}']::uuid[])"
    );
    assert_eq!(db.one_as::<i32>(INGEST, &answer).await, 1);
    assert_eq!(db.claim_item("w").await.depth, sent.depth + 1);
}
