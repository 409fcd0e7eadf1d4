//! The judges, judged: what is wrong is found, and what is right is not charged.

use std::sync::Arc;

use super::stage::Stage;
use super::story;
use crate::support::brokers::{python, required_or_skip};

/// Thirty events, published and applied as they should be.
async fn well() -> Arc<Stage> {
    let stage = Stage::new("judged", 3).await;
    let events: Vec<_> = stage.story.iter().flatten().cloned().collect();
    story::tell(&mut stage.db.admin().await, &events, false).await.unwrap();
    assert_eq!(stage.db.publish_all("worker").await.len(), 30);
    stage
        .db
        .sql("INSERT INTO applied (event_id, key, position, event, body) SELECT event_id, event_key, position, event, event::text \
              FROM event_outbox_log ORDER BY position")
        .await;
    stage
}

#[tokio::test]
async fn the_judge_charges_what_is_wrong_and_nothing_else() {
    let one = "(SELECT min(place) FROM applied)";
    for (deed, charge) in [
        ("SELECT 1".to_owned(), None),
        (format!("DELETE FROM applied WHERE place = {one}"), Some("never applied")),
        (
            "INSERT INTO applied SELECT * FROM applied LIMIT 1".to_owned(),
            Some("applied more than once"),
        ),
        (
            format!("UPDATE applied SET event_id = gen_random_uuid() WHERE place = {one}"),
            Some("applied, but never committed"),
        ),
        ("UPDATE applied SET place = -place".to_owned(), Some("applied out of order")),
        (
            format!("UPDATE applied SET position = position + 1 WHERE place = {one}"),
            Some("a position that is not the log's"),
        ),
        (
            // The same number with another digit after the point.
            format!(
                "UPDATE applied SET event = jsonb_set(event, '{{payload,number}}', ((event->'payload'->>'number') || '.0')::jsonb) \
                  WHERE place = {one}"
            ),
            Some("another content"),
        ),
        ("DELETE FROM told WHERE number = 10".to_owned(), Some("in the log, but never committed")),
        (
            "UPDATE told SET number = 11 - number".to_owned(),
            Some("in the log in another order than committed"),
        ),
    ] {
        let stage = well().await;
        stage.db.sql(&deed).await;
        let charges = stage.charges(&[]).await;
        match charge {
            None => assert!(charges.is_empty(), "{charges:?}"),
            Some(charge) => assert!(
                charges.iter().any(|found| found.contains(charge)),
                "{deed}: {charges:?} lacks {charge}"
            ),
        }
        std::fs::remove_dir_all(&stage.folder).unwrap();
    }
    let stage = well().await;
    let ghost = stage.story[0][0].id;
    let charges = stage.charges(&[ghost]).await;
    assert!(
        charges.iter().any(|found| found.contains("rolled back left something")),
        "{charges:?}"
    );
    std::fs::remove_dir_all(&stage.folder).unwrap();
}

#[tokio::test]
async fn the_independent_judge_charges_what_is_wrong_and_nothing_else() {
    required_or_skip!();
    let script = r#"
import sys
def event(id, number, value):
    return '{"envelope": {"eventId": "%s"}, "key": {"transferId": "k"}, "payload": {"number": %d, "value": %s}}' % (id, number, value)
told = [("a", 1, "1.10"), ("b", 2, "1e3"), ("c", 3, "true")]
json.dump([event(*one) for one in told], open(sys.argv[1], "w"))
def charges(*arrivals):
    judge = Judge(sys.argv[1])
    for id, position, number, value in arrivals:
        judge.arrived(id, position, event(id, number, value))
    return sorted(judge.verdict()["charges"])
a, b, c = ("a", 4, 1, "1.10"), ("b", 5, 2, "1000"), ("c", 9, 3, "true")
print(json.dumps([charges(a, b, a, c), charges(a, b), charges(b, a, c), charges(("a", 4, 1, "1.1"), b, c), charges(a, b, ("c", 9, 3, "1")),
    charges(a, b, c, ("d", 10, 4, "1")), charges(a, b, c, ("a", 11, 1, "1.10")), charges(a, ("b", 3, 2, "1000"), c)]))
"#;
    let file = std::env::temp_dir().join(format!("symphony-judge-{}.json", uuid::Uuid::new_v4()));
    let script = format!("{}{script}", include_str!("judge.py"));
    let found = python(&script, &[file.to_str().unwrap()]).await;
    std::fs::remove_file(&file).unwrap();
    let found: Vec<Vec<String>> = serde_json::from_str(&found).unwrap();
    let expected: [&[&str]; 8] = [
        &[],
        &["missing"],
        &["out of order (1 after 2)", "out of order (2 after 0)", "out of order (3 after 1)"],
        &["altered"],
        &["altered"],
        &["invented"],
        &["repeated with another position"],
        &["out of order (2 after 1)"],
    ];
    assert_eq!(found, expected);
}
