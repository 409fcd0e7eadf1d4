//! Which events the database accepts: the same corpus that the library and the JSON Schema are held to.

use serde::Deserialize;
use serde_json::value::RawValue;
use symphony::event::Event;

use crate::support::{TestDb, code, run};

#[derive(Deserialize)]
struct Case {
    name: String,
    event: Box<RawValue>,
    field: Option<String>,
    #[serde(default)]
    only: Vec<String>,
}

fn corpus() -> Vec<Case> {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../fixtures/events.json")).unwrap();
    // What only text has (duplicate names), or what JSONB refuses before any check, is not for the database.
    cases
        .into_iter()
        .filter(|case| case.only.is_empty() || case.only.iter().any(|one| one == "sql"))
        .collect()
}

#[tokio::test]
async fn the_database_judges_every_event_of_the_corpus_as_the_library_does() {
    let db = TestDb::new().await;
    let cases = corpus();
    assert!(cases.len() > 120, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let mut connection = db.as_role("symphony_ingest").await;
        run(&mut connection, "BEGIN").await.unwrap();
        let answer: Result<(Option<String>, Option<String>), _> = sqlx::query_as(
            "SELECT error_code, error_message FROM enqueue_event_outbox_batch(ARRAY[$1::jsonb])",
        )
        .bind(case.event.get())
        .fetch_one(&mut connection)
        .await;
        run(&mut connection, "ROLLBACK").await.unwrap();
        let found = match answer {
            Ok((None, _)) => None,
            Ok((Some(code), Some(message))) if code == "P7005" => {
                Some(message.split(' ').next().unwrap_or_default().to_owned())
            }
            other => Some(format!("{other:?}")),
        };
        if found != case.field {
            wrong.push(format!("{}: found {found:?}, expected {:?}", case.name, case.field));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[tokio::test]
async fn what_is_a_time_does_not_depend_on_the_producers_session() {
    let db = TestDb::new().await;
    let good = super::event("k", 1);
    for (style, other) in [("SQL, DMY", "15/11/2026T12:00:00Z"), ("German", "15.11.2026T12:00:00Z")]
    {
        let mut connection = db.as_role("symphony_ingest").await;
        run(&mut connection, &format!("SET datestyle = '{style}'")).await.unwrap();
        let body = good.body().get().replace("2026-11-15T12:00:00Z", other);
        for (body, expected) in
            [(body.as_str(), Some("P7005".to_owned())), (good.body().get(), None)]
        {
            let (found,): (Option<String>,) = sqlx::query_as(
                "SELECT error_code FROM enqueue_event_outbox_batch(ARRAY[$1::jsonb])",
            )
            .bind(body)
            .fetch_one(&mut connection)
            .await
            .unwrap();
            assert_eq!(found, expected, "{style}: {body}");
        }
    }
}

#[tokio::test]
async fn a_bad_event_is_found_among_a_few_good_ones_and_among_many() {
    let db = TestDb::new().await;
    let mut wrong = Vec::new();
    let bad: Vec<Case> = corpus().into_iter().filter(|case| case.field.is_some()).collect();
    // Many are looked at all at once.
    for around in [1, 15] {
        for case in &bad {
            let good: Vec<_> = (0..2 * around).map(|n| super::event("k", n)).collect();
            let mut bodies: Vec<&RawValue> = good.iter().map(Event::body).collect();
            bodies.insert(around, &case.event);
            let answers = db.database.producer().enqueue_events(&bodies).await.unwrap();
            let refused: Vec<_> = answers
                .iter()
                .enumerate()
                .filter_map(|(n, answer)| Some((n, answer.as_ref().err()?.code())))
                .collect();
            if refused != [(around, "P7005")] {
                wrong.push(format!("{} among {}: {refused:?}", case.name, 2 * around));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let told = i64::try_from(bad.len() * (2 + 30)).unwrap();
    assert_eq!(db.count("event_outbox_log").await, told);
}

#[tokio::test]
async fn good_events_are_accepted_one_by_one_and_all_at_once() {
    let db = TestDb::new().await;
    let good: Vec<Case> = corpus().into_iter().filter(|case| case.field.is_none()).collect();
    let ordinary: Vec<_> = (0..30).map(|n| super::event("k", n)).collect();
    for case in &good {
        let mut bodies: Vec<&RawValue> = ordinary.iter().map(Event::body).collect();
        bodies.push(&case.event);
        let mut connection = db.as_role("symphony_ingest").await;
        run(&mut connection, "BEGIN").await.unwrap();
        let answers =
            symphony::events::enqueue_batch_unchecked(&mut connection, &bodies).await.unwrap();
        run(&mut connection, "ROLLBACK").await.unwrap();
        assert!(answers.iter().all(Result::is_ok), "{}", case.name);
        assert_eq!(answers.len(), 31);
    }
}

#[tokio::test]
async fn a_refused_event_names_its_field_and_leaves_nothing_behind() {
    let db = TestDb::new().await;
    for case in corpus().iter().filter(|case| case.field.is_some()).take(20) {
        let mut connection = db.as_role("symphony_ingest").await;
        let refused = sqlx::query("SELECT * FROM enqueue_event_outbox($1::jsonb)")
            .bind(case.event.get())
            .execute(&mut connection)
            .await
            .map_err(symphony::db::DbError::from);
        assert_eq!(code(refused), "P7005", "{}", case.name);
    }
    assert_eq!(db.count("event_outbox_log").await, 0);
    assert_eq!(db.count("event_outbox_identities").await, 0);
}

#[tokio::test]
async fn personal_data_is_refused_at_any_depth_and_the_list_is_the_operators() {
    let db = TestDb::new().await;
    let field = async |payload: &str| {
        let event = super::event("k", 0);
        let body = event.body().get().replace(r#"{"n": 0}"#, payload);
        let (message,): (Option<String>,) = sqlx::query_as(
            "SELECT error_message FROM enqueue_event_outbox_batch(ARRAY[$1::jsonb])",
        )
        .bind(body)
        .fetch_one(&mut db.as_role("symphony_ingest").await)
        .await
        .unwrap();
        message.map(|message| message.split(' ').next().unwrap_or_default().to_owned())
    };
    assert_eq!(field(r#"{"email": "x"}"#).await.as_deref(), Some("payload.email"));
    assert_eq!(
        field(r#"{"customer": {"lines": [{"id": 1}, {"iban": "x"}]}}"#).await.as_deref(),
        Some("payload.customer.lines[1].iban")
    );
    assert_eq!(field(r#"{"note": "email", "list": ["email"]}"#).await, None, "values are free");
    db.database
        .operator()
        .configure_events(Some(&["shoe_size".to_owned()]), None, &crate::support::act())
        .await
        .unwrap();
    assert_eq!(field(r#"{"email": "x"}"#).await, None);
    assert_eq!(
        field(r#"{"a": [[{"shoe_size": 43}]]}"#).await.as_deref(),
        Some("payload.a[0][0].shoe_size")
    );
    assert_eq!(
        db.count("event_outbox_events WHERE event_type = 'CONFIGURED' AND actor = 'dana'").await,
        1
    );
}

#[tokio::test]
async fn an_event_of_exactly_256_kib_is_accepted_and_one_byte_more_is_not() {
    let db = TestDb::new().await;
    let sized = |bytes: usize| {
        let empty = super::event_with(uuid::Uuid::new_v4(), "k", r#"{"a": ""}"#);
        // As PostgreSQL prints it.
        let printed = serde_json::from_str::<serde_json::Value>(empty.body().get()).unwrap();
        let spaces = printed.to_string().matches([':', ',']).count() - 2;
        let fill = bytes - printed.to_string().len() - spaces;
        empty.body().get().replace(r#""a": """#, &format!(r#""a": "{}""#, "x".repeat(fill)))
    };
    for (bytes, accepted) in [(256_000, true), (256_001, false)] {
        let text = sized(bytes);
        let printed: i32 = sqlx::query_scalar("SELECT octet_length($1::jsonb::text)")
            .bind(&text)
            .fetch_one(&mut db.admin().await)
            .await
            .unwrap();
        assert_eq!(usize::try_from(printed).unwrap(), bytes, "the test's own arithmetic");
        let (error,): (Option<String>,) = sqlx::query_as(
            "SELECT error_message FROM enqueue_event_outbox_batch(ARRAY[$1::jsonb])",
        )
        .bind(&text)
        .fetch_one(&mut db.as_role("symphony_ingest").await)
        .await
        .unwrap();
        assert_eq!(error.is_none(), accepted, "{bytes}: {error:?}");
    }
}
