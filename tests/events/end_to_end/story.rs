//! The events of a run, and the producers that commit them with their state, or roll both back.

use std::collections::VecDeque;
use std::sync::Arc;

use sqlx::PgConnection;
use symphony::db::DbError;
use symphony::event::Event;
use uuid::Uuid;

use super::stage::Stage;
use crate::payments::chaos::dice::Dice;
use crate::support::run;

const PRODUCERS: usize = 4;

/// An event as its producer wrote it.
#[derive(Debug, Clone)]
pub struct Told {
    pub id: Uuid,
    pub key: String,
    /// Its place among the events of its key.
    pub number: i32,
    pub text: String,
}

const NUMBERS: [&str; 12] = [
    "0.1",
    "1.10",
    "-0.0",
    "1e-7",
    "-2.5E+3",
    "6.02214076e23",
    "9007199254740993",
    "100.000000000000000000",
    "1234567890123456789012345678901234567890.123456789012345678901234567890",
    "0.000000000000000000000000000000000001",
    "-99999999999999999999999999999999999999999999999999",
    "1.7976931348623157e308",
];

/// As JSON writes them.
const TEXTS: [&str; 9] = [
    r#""""#,
    r#""Zoë, 東京, 😀, é and é""#,
    r#""quote \" backslash \\ slash \/ \b\f\n\r\t""#,
    r#""\u00e9\u0001\u001f\u007f\ud83d\ude00""#,
    "\"\u{2028}\u{2029}\u{feff}\u{202e}\"",
    r#""<a href='x'>&amp; + % = ; \u003c""#,
    r#""  spaces at both ends  ""#,
    r#""1.10""#,
    r#""مرحبا שלום नमस्ते""#,
];

/// The events of one key, in their order.
pub fn of_key(seed: u64, index: usize, count: usize) -> VecDeque<Told> {
    // Some keys are no message group and no header as they are.
    let key = match index % 25 {
        3 => format!("schlüssel 東 {index}"),
        7 => format!("{}{index}", "long-".repeat(40)),
        _ => format!("tr_{index}"),
    };
    let mut dice = Dice::of(seed, &format!("events of {key}"));
    (1..=count)
        .map(|number| {
            let id = Uuid::from_u64_pair(dice.roll(), dice.roll());
            let number = i32::try_from(number).unwrap();
            Told { id, key: key.clone(), number, text: text(&mut dice, id, &key, number) }
        })
        .collect()
}

fn text(dice: &mut Dice, id: Uuid, key: &str, number: i32) -> String {
    let (first, second) = (*dice.pick(&NUMBERS), *dice.pick(&NUMBERS));
    let (said, named) = (*dice.pick(&TEXTS), *dice.pick(&TEXTS));
    let filler = "x".repeat(usize::try_from(dice.between(0, 600)).unwrap());
    let kind = dice.pick(&["submitted.usdc", "settled", "refunded"]);
    let trace = if dice.percent(50) {
        r#""traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "#
    } else {
        ""
    };
    format!(
        r#"{{"payload": {{"number": {number}, "amount": {first}, "said": {said}, {named}: [{second}, [null, true, [[{said}]], {{}}],
            {{"b": false, "a": {{"fee": {second}, "": {first}}}}}], "filler": "{filler}"}},
            "envelope": {{"v": 1, "eventId": "{id}", {trace}"occurredAt": "2026-11-15T12:00:00.123456789+01:00", "tenantId": "tnt_1",
            "type": "events.transfers.{kind}"}}, "key": {{"transferId": "{key}"}}}}"#
    )
}

/// Commit all events of the stage, in transactions of mixed sizes, never far ahead of the dispatchers. Answers the ids of
/// those that were rolled back.
pub async fn produce(stage: Arc<Stage>) -> Vec<Uuid> {
    let mut producers = Vec::new();
    for index in 0..PRODUCERS {
        producers.push(tokio::spawn(produce_some(stage.clone(), index)));
    }
    let mut ghosts = Vec::new();
    for producer in producers {
        ghosts.extend(producer.await.unwrap());
    }
    ghosts
}

async fn produce_some(stage: Arc<Stage>, index: usize) -> Vec<Uuid> {
    let mut dice = Dice::of(stage.seed, &format!("producer {index}"));
    let mut connection = stage.db.admin().await;
    // A key has one producer, so that its order is known without asking the outbox.
    let mut keys: Vec<VecDeque<Told>> =
        stage.story.iter().skip(index).step_by(PRODUCERS).cloned().collect();
    let mut ghosts = Vec::new();
    while !keys.is_empty() {
        stage.wait_for_room().await;
        let size = *dice.pick(&[1, 1, 2, 5, 10, 40, 100]);
        let mut events = Vec::new();
        while events.len() < size && !keys.is_empty() {
            let at = usize::try_from(dice.between(0, keys.len() as u64 - 1)).unwrap();
            match keys[at].pop_front() {
                Some(event) => events.push(event),
                None => drop(keys.swap_remove(at)),
            }
        }
        if events.is_empty() {
            break;
        }
        if dice.percent(10) {
            let lost: Vec<Told> = events.iter().map(ghost).collect();
            ghosts.extend(lost.iter().map(|event| event.id));
            run(&mut connection, "BEGIN").await.unwrap();
            // Whether it was refused does not matter: nothing of it stays.
            let _rolled_back = tell(&mut connection, &lost, false).await;
            run(&mut connection, "ROLLBACK").await.unwrap();
            stage.tally.add("rolled back");
        }
        let one_by_one = size <= 5 && dice.percent(40);
        loop {
            run(&mut connection, "BEGIN").await.unwrap();
            match tell(&mut connection, &events, one_by_one).await {
                Ok(()) => break run(&mut connection, "COMMIT").await.unwrap(),
                // One by one means locks in any order, so that anybody may be a deadlock's victim.
                Err(error) => {
                    run(&mut connection, "ROLLBACK").await.unwrap();
                    assert!(error.is_transient(), "{error:?}");
                    stage.tally.add("deadlock");
                }
            }
        }
        stage.tally.add("committed");
        if dice.percent(5) {
            // A producer that did not hear the answer says it again.
            stage.db.tell(&events.iter().map(parsed).collect::<Vec<_>>()).await;
            stage.tally.add("told again");
        }
    }
    ghosts
}

fn ghost(event: &Told) -> Told {
    let id = Uuid::new_v4();
    let text = event.text.replace(&event.id.to_string(), &id.to_string());
    Told { id, text, ..event.clone() }
}

fn parsed(event: &Told) -> Event {
    Event::parse(&event.text).unwrap_or_else(|defect| panic!("{defect}: {}", event.text))
}

/// State and events, in the caller's transaction.
pub async fn tell(
    connection: &mut PgConnection,
    events: &[Told],
    one_by_one: bool,
) -> Result<(), DbError> {
    sqlx::query(
        "INSERT INTO told (event_id, key, number, text) SELECT * FROM unnest($1::uuid[], $2::text[], $3::int[], $4::text[])",
    )
    .bind(events.iter().map(|event| event.id).collect::<Vec<_>>())
    .bind(events.iter().map(|event| event.key.clone()).collect::<Vec<_>>())
    .bind(events.iter().map(|event| event.number).collect::<Vec<_>>())
    .bind(events.iter().map(|event| event.text.clone()).collect::<Vec<_>>())
    .execute(&mut *connection)
    .await?;
    let events: Vec<Event> = events.iter().map(parsed).collect();
    if one_by_one {
        for event in &events {
            symphony::events::enqueue(&mut *connection, event).await?;
        }
    } else {
        let bodies: Vec<_> = events.iter().map(Event::body).collect();
        let answers = symphony::events::enqueue_batch_unchecked(connection, &bodies).await?;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    }
    Ok(())
}
