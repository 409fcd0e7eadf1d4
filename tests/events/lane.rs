//! The lane on the engine, against a bus inside the test whose answers the test decides.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use symphony::engine::{self, Engine, EngineSettings, LaneMetrics, Points, Start};
use symphony::engine::{BreakerSettings, BreakerState};
use symphony::event::Event;
use symphony::lanes::events::bus::{Bus, Cause, Message, Publication, Terms, Trouble};
use symphony::lanes::events::{
    BusSetup, EventLane, EventSettings, MessageLook, OnFailed, Retry, Route, TypePattern,
};
use tokio::sync::Notify;
use uuid::Uuid;

use super::event;
use crate::support::{TestDb, until};

/// What the bus does with the nth publication of an event.
pub(super) enum Reply {
    Take,
    /// Take it and answer that nobody knows.
    TakeSilently,
    Refuse,
    Again,
    /// The bus is away, and surely has not taken it.
    Away,
    /// Wait until the bus is opened, then take it.
    Wait,
    Panic,
}

pub(super) type Script = dyn Fn(&Message, usize) -> Reply + Send + Sync;

pub(super) struct ScriptedBus {
    terms: Terms,
    /// What was taken, in order.
    taken: Mutex<Vec<(String, i64, Uuid)>>,
    tries: Mutex<HashMap<Uuid, usize>>,
    batches: Mutex<Vec<Vec<String>>>,
    calls: AtomicUsize,
    open: Notify,
    script: Box<Script>,
}

impl ScriptedBus {
    pub(super) fn new(
        script: impl Fn(&Message, usize) -> Reply + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::with_terms(Terms { timeout: Duration::from_secs(2), ..Terms::default() }, script)
    }

    fn with_terms(
        terms: Terms,
        script: impl Fn(&Message, usize) -> Reply + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            terms,
            taken: Mutex::default(),
            tries: Mutex::default(),
            batches: Mutex::default(),
            calls: AtomicUsize::new(0),
            open: Notify::new(),
            script: Box::new(script),
        })
    }

    pub(super) fn taken(&self) -> Vec<(String, i64, Uuid)> {
        self.taken.lock().unwrap().clone()
    }

    /// The ids of one key, in the order of their first arrival.
    pub(super) fn of_key(&self, key: &str) -> Vec<Uuid> {
        let mut ids: Vec<Uuid> = Vec::new();
        for (of, _, id) in self.taken() {
            if of == key && !ids.contains(&id) {
                ids.push(id);
            }
        }
        ids
    }
}

#[async_trait::async_trait]
impl Bus for ScriptedBus {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    async fn publish(&self, _topic: &str, batch: &[&Message]) -> Vec<Publication> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.batches
            .lock()
            .unwrap()
            .push(batch.iter().map(|message| message.key.clone()).collect());
        let mut answers = Vec::new();
        for message in batch {
            let nth = {
                let mut tries = self.tries.lock().unwrap();
                let nth = tries.entry(message.event_id).or_default();
                *nth += 1;
                *nth
            };
            let take = || {
                let taken = (message.key.clone(), message.position, message.event_id);
                self.taken.lock().unwrap().push(taken);
                Publication::Accepted { reference: format!("m-{}", message.position) }
            };
            let again = |unknown, cause| Publication::Again {
                trouble: Trouble::new("TROUBLE", "as the test says"),
                unknown,
                cause,
                retry_after: None,
            };
            answers.push(match (self.script)(message, nth) {
                Reply::Take => take(),
                Reply::TakeSilently => {
                    take();
                    again(true, Cause::Destination)
                }
                Reply::Refuse => Publication::Refused(Trouble::new("OVERSIZE", "as the test says")),
                Reply::Again => again(false, Cause::Message),
                Reply::Away => again(false, Cause::Destination),
                Reply::Wait => {
                    self.open.notified().await;
                    take()
                }
                Reply::Panic => panic!("as the test says"),
            });
        }
        answers
    }
}

pub(super) fn route(pattern: &str, on_failed: OnFailed) -> Route {
    Route {
        pattern: TypePattern::parse(pattern).unwrap(),
        bus: "test".to_owned(),
        topic: "t".to_owned(),
        on_failed,
    }
}

pub(super) fn quick() -> EngineSettings {
    EngineSettings {
        lease: Duration::from_secs(8),
        lease_margin: Duration::from_secs(1),
        shutdown: Duration::from_secs(5),
        poll: (Duration::from_millis(20), Duration::from_millis(50)),
        ..EngineSettings::default()
    }
}

fn settings() -> EventSettings {
    // Retried at once: the contract's own steps are tested in SQL.
    let retry = Retry { steps_seconds: vec![0], ..Retry::default() };
    EventSettings { retry, ..EventSettings::default() }
}

pub(super) fn start_with(
    db: &TestDb,
    bus: &Arc<ScriptedBus>,
    routes: Vec<Route>,
    breaker: BreakerSettings,
    engine: EngineSettings,
) -> Engine {
    let setup = BusSetup {
        name: "test".to_owned(),
        bus: bus.clone(),
        look: MessageLook::default(),
        concurrency_max: 10,
        breaker,
    };
    let lane = EventLane::new(
        db.database.worker(),
        engine::new_worker_id("test"),
        vec![setup],
        routes,
        settings(),
    )
    .unwrap();
    Engine::start(Start {
        lane,
        database: db.database.clone(),
        listen: db.options.clone(),
        settings: engine,
        metrics: Arc::new(LaneMetrics::default()),
        points: Points::default(),
    })
    .unwrap()
}

/// A worker that hardly ever polls: what it does, somebody told it to.
pub(super) fn seldom() -> EngineSettings {
    EngineSettings { poll: (Duration::from_secs(50), Duration::from_mins(1)), ..quick() }
}

/// Such a worker, once it follows hints.
pub(super) async fn start_seldom(db: &TestDb, bus: &Arc<ScriptedBus>) -> Engine {
    let engine = start_with(db, bus, vec![route("*", OnFailed::Block)], never_open(), seldom());
    let metrics = engine.metrics().clone();
    until("hints arrive and this worker follows them", async || {
        metrics.listener_up.get() == 1 && metrics.hint_leader.get() == 1
    })
    .await;
    engine
}

pub(super) fn never_open() -> BreakerSettings {
    BreakerSettings { failures_to_open: u32::MAX, ..BreakerSettings::default() }
}

fn start(db: &TestDb, bus: &Arc<ScriptedBus>) -> Engine {
    start_with(db, bus, vec![route("*", OnFailed::Block)], never_open(), quick())
}

pub(super) async fn until_sent(db: &TestDb, events: i64) {
    until("all are sent", async || {
        db.count("event_outbox_attempts WHERE state = 'DISPATCHED'").await == events
    })
    .await;
}

/// 10 rounds of events of 40 keys; answers the ids by key.
async fn tell_forty_keys(db: &TestDb) -> HashMap<String, Vec<Uuid>> {
    let mut by_key: HashMap<String, Vec<Uuid>> = HashMap::new();
    for round in 0..10 {
        let events: Vec<Event> = (0..40).map(|n| event(&format!("key_{n}"), round)).collect();
        db.tell(&events).await;
        for event in events {
            by_key.entry(event.key().to_owned()).or_default().push(event.event_id());
        }
    }
    by_key
}

#[tokio::test(flavor = "multi_thread")]
async fn order_within_a_key_holds_across_retries_and_several_workers() {
    let db = TestDb::new().await;
    // Every seventh event is in trouble twice, one of the two silently taken.
    let bus = ScriptedBus::new(|message, nth| match (message.position % 7, nth) {
        (0, 1) => Reply::TakeSilently,
        (0, 2) => Reply::Again,
        _ => Reply::Take,
    });
    let engines = [start(&db, &bus), start(&db, &bus), start(&db, &bus)];
    let told = tell_forty_keys(&db).await;
    until_sent(&db, 400).await;
    for engine in engines {
        assert_eq!(engine.stop().await, 0);
    }
    for (key, ids) in told {
        assert_eq!(bus.of_key(&key), ids, "{key}");
    }
    // A repetition may come only while nothing later of its key is out.
    let mut last: HashMap<String, i64> = HashMap::new();
    for (key, position, _) in bus.taken() {
        let before = last.insert(key, position);
        assert!(before.is_none_or(|before| before <= position));
    }
    for batch in bus.batches.lock().unwrap().iter() {
        let mut keys = batch.clone();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), batch.len(), "never two of a key in one batch");
        assert!(batch.len() <= 10);
    }
    let figures = db.database.auditor().event_figures().await.unwrap();
    assert!(figures.holds() && figures.inversions == 0, "{figures:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_whose_calls_hang_slows_no_other() {
    let db = TestDb::new().await;
    let bus = ScriptedBus::with_terms(
        Terms { timeout: Duration::from_secs(4), batch_max: 1, ..Terms::default() },
        |message, _| if message.key == "hangs" { Reply::Wait } else { Reply::Take },
    );
    let engine = start(&db, &bus);
    db.tell_of("hangs", 1).await;
    until("the call hangs", async || bus.calls.load(Ordering::SeqCst) == 1).await;
    let events: Vec<Event> = (0..300).map(|n| event(&format!("key_{n}"), n)).collect();
    let bucket: i16 = db.one("SELECT symphony.event_bucket('hangs')").await;
    let beside = 300
        - db.count(&format!(
            "generate_series(0, 299) g WHERE symphony.event_bucket('key_' || g) = {bucket}"
        ))
        .await;
    db.tell(&events).await;
    until("all others but those of its bucket are out", async || {
        i64::try_from(bus.taken().len()).unwrap() >= beside
    })
    .await;
    assert_eq!(bus.of_key("hangs").len(), 0);
    bus.open.notify_waiters();
    until_sent(&db, 301).await;
    assert_eq!(engine.stop().await, 0);
}

#[tokio::test]
async fn a_refused_event_is_failed_at_once_and_blocks_its_key_or_not_as_the_route_says() {
    for (on_failed, out) in [(OnFailed::Block, 1), (OnFailed::Continue, 3)] {
        let db = TestDb::new().await;
        let bus = ScriptedBus::new(|message, _| {
            if message.body.contains(r#""n": 1"#) { Reply::Refuse } else { Reply::Take }
        });
        let routes = vec![route("*", on_failed)];
        let engine = start_with(&db, &bus, routes, never_open(), quick());
        let told = db.tell_of("k", 4).await;
        until_sent(&db, out).await;
        until("it failed", async || db.event_state(told[1]).await == "FAILED").await;
        assert_eq!(engine.stop().await, 0);
        assert_eq!(bus.taken().len(), usize::try_from(out).unwrap(), "{on_failed:?}");
        assert_eq!(db.event_ledger(told[1]).await, ["0.1 FAILED"]);
        let life = db.database.auditor().event_life(told[1]).await.unwrap().unwrap();
        assert_eq!(life.attempts[0].error_code.as_deref(), Some("OVERSIZE"));
        assert_eq!(life.attempts[0].destination.as_deref(), Some("test/t"));
        db.assert_events_hold().await;
    }
}

#[tokio::test]
async fn an_event_that_never_gets_through_is_failed_at_the_ceiling() {
    let db = TestDb::new().await;
    let bus = ScriptedBus::new(|_, _| Reply::Again);
    let engine = start(&db, &bus);
    let told = db.tell_of("k", 2).await;
    until("it failed", async || db.event_state(told[0]).await == "FAILED").await;
    assert_eq!(engine.stop().await, 0);
    let ledger = db.event_ledger(told[0]).await;
    assert_eq!((ledger.len(), ledger.last().unwrap().as_str()), (10, "0.10 FAILED"));
    let life = db.database.auditor().event_life(told[0]).await.unwrap().unwrap();
    assert_eq!(life.attempts[9].error_code.as_deref(), Some("RETRY_CEILING"));
    assert!(db.event_ledger(told[1]).await.is_empty(), "the one behind it was never tried");
}

#[tokio::test]
async fn a_call_without_an_answer_is_unknown_and_published_again_under_the_same_id() {
    let db = TestDb::new().await;
    let bus = ScriptedBus::with_terms(
        Terms { timeout: Duration::from_millis(200), batch_max: 1, ..Terms::default() },
        |_, nth| if nth == 1 { Reply::Wait } else { Reply::Take },
    );
    let engine = start(&db, &bus);
    let told = db.tell_of("k", 1).await;
    until_sent(&db, 1).await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(db.event_ledger(told[0]).await, ["0.1 RETRYABLE", "0.2 DISPATCHED"]);
    let life = db.database.auditor().event_life(told[0]).await.unwrap().unwrap();
    assert!(life.attempts[0].outcome_unknown);
    assert_eq!(life.attempts[0].error_code.as_deref(), Some("TIMEOUT"));
}

#[tokio::test]
async fn a_bus_that_panics_costs_an_attempt_and_not_the_worker() {
    let db = TestDb::new().await;
    let bus = ScriptedBus::new(|_, nth| if nth == 1 { Reply::Panic } else { Reply::Take });
    let engine = start(&db, &bus);
    let told = db.tell_of("k", 2).await;
    until_sent(&db, 2).await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(db.event_ledger(told[0]).await, ["0.1 RETRYABLE", "0.2 DISPATCHED"]);
    assert_eq!(bus.of_key("k"), told);
    db.assert_events_hold().await;
}

#[tokio::test]
async fn a_bus_that_is_away_for_longer_than_ten_tries_fails_nothing() {
    let db = TestDb::new().await;
    let bus = ScriptedBus::new(|_, nth| if nth <= 15 { Reply::Away } else { Reply::Take });
    let engine = start(&db, &bus);
    let told = db.tell_of("k", 1).await;
    until("it is published", async || db.event_state(told[0]).await == "SENT").await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(db.event_ledger(told[0]).await.last().unwrap(), "0.16 DISPATCHED");
    assert_eq!(db.count("event_outbox_attempts WHERE NOT spends_attempt").await, 15);
}

/// Away, for as long as the number is 1.
fn bus_in_trouble() -> (Arc<ScriptedBus>, Arc<AtomicUsize>) {
    let trouble = Arc::new(AtomicUsize::new(1));
    let sick = trouble.clone();
    let bus = ScriptedBus::new(move |_, _| match sick.load(Ordering::SeqCst) {
        1 => Reply::Away,
        _ => Reply::Take,
    });
    (bus, trouble)
}

#[tokio::test]
async fn a_bus_in_trouble_is_left_alone_and_costs_its_events_no_attempts() {
    let db = TestDb::new().await;
    let (bus, trouble) = bus_in_trouble();
    let breaker = BreakerSettings {
        failures_to_open: 3,
        open_for: Duration::from_mins(10),
        open_for_max: Duration::from_mins(10),
    };
    let engine = start_with(&db, &bus, vec![route("*", OnFailed::Block)], breaker, quick());
    let events: Vec<Event> = (0..60).map(|n| event(&format!("key_{n}"), n)).collect();
    db.tell(&events).await;
    until("all are set aside", async || {
        db.count("event_outbox_blocked WHERE due_at > clock_timestamp() + INTERVAL '5 minutes'")
            .await
            > 40
            && db.count("event_outbox_cursors WHERE lease_token IS NOT NULL").await == 0
    })
    .await;
    let calls = bus.calls.load(Ordering::SeqCst);
    assert!(
        calls <= 10 + 3,
        "{calls} calls, though ten may be under way when the third has failed"
    );
    assert!(db.count("event_outbox_attempts").await < 60);
    assert_eq!(engine.stop().await, 0);
    trouble.store(0, Ordering::SeqCst);
    db.make_keys_due().await;
    let well = start(&db, &bus);
    until_sent(&db, 60).await;
    assert_eq!(well.stop().await, 0);
    db.assert_events_hold().await;
}

#[tokio::test]
async fn what_waited_for_a_bus_goes_out_as_soon_as_it_is_back_whatever_its_own_pause() {
    let db = TestDb::new().await;
    let (bus, down) = bus_in_trouble();
    let breaker = BreakerSettings {
        failures_to_open: 3,
        open_for: Duration::from_millis(100),
        open_for_max: Duration::from_millis(400),
    };
    let engine = start_with(&db, &bus, vec![route("*", OnFailed::Block)], breaker, quick());
    let events: Vec<Event> = (0..60).map(|n| event(&format!("key_{n}"), n)).collect();
    db.tell(&events).await;
    let destination = engine.metrics().destinations.get().unwrap()[0].clone();
    until("all wait", async || {
        destination.state() != BreakerState::Closed
            && db.count("event_outbox_waiting").await == 60
            && db.count("event_outbox_cursors WHERE lease_token IS NOT NULL").await == 0
    })
    .await;
    let later = "UPDATE event_outbox_blocked SET due_at = clock_timestamp() + INTERVAL '1 hour' WHERE hasten_from IS NOT NULL";
    db.sql(later).await;
    // Probes go on although nothing is due for an hour.
    let calls = bus.calls.load(Ordering::SeqCst);
    until("it is probed", async || bus.calls.load(Ordering::SeqCst) >= calls + 3).await;
    db.sql(later).await;
    down.store(0, Ordering::SeqCst);
    let returned_at = std::time::Instant::now();
    until_sent(&db, 60).await;
    println!("60 events went out {} ms after the bus was back", returned_at.elapsed().as_millis());
    assert!(returned_at.elapsed() < Duration::from_secs(5), "{:?}", returned_at.elapsed());
    let page = symphony_server::metrics::render(
        &[("events", engine.metrics().clone())],
        &symphony_server::metrics::Known::default(),
    );
    for line in [
        "bus_breaker_state{bus=\"test\",topic=\"t\"} 0",
        "bus_answers_total{bus=\"test\",topic=\"t\",answer=\"accepted\"} 60",
    ] {
        assert!(page.contains(line), "{line} is missing: {page}");
    }
    assert_eq!(engine.stop().await, 0);
    db.assert_events_hold().await;
}

#[tokio::test]
async fn a_type_without_a_route_waits_visibly() {
    let db = TestDb::new().await;
    let bus = ScriptedBus::new(|_, _| Reply::Take);
    let routes = vec![route("other.*", OnFailed::Block)];
    let engine = start_with(&db, &bus, routes, never_open(), quick());
    let told = db.tell_of("k", 1).await;
    until("it was tried", async || !db.event_ledger(told[0]).await.is_empty()).await;
    assert_eq!(engine.stop().await, 0);
    let life = db.database.auditor().event_life(told[0]).await.unwrap().unwrap();
    assert_eq!(life.attempts[0].error_code.as_deref(), Some("NO_ROUTE"));
    assert_eq!(bus.calls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_stop_lets_the_call_in_flight_end_and_gives_the_rest_back() {
    let db = TestDb::new().await;
    let bus = ScriptedBus::new(|message, _| {
        if message.body.contains(r#""n": 0"#) { Reply::Wait } else { Reply::Take }
    });
    let engine = start(&db, &bus);
    let told = db.tell_of("k", 5).await;
    until("the first call is under way", async || bus.calls.load(Ordering::SeqCst) == 1).await;
    let stop = tokio::spawn(engine.stop());
    until("the worker stops", async || {
        bus.open.notify_waiters();
        stop.is_finished()
    })
    .await;
    assert_eq!(stop.await.unwrap(), 0);
    assert_eq!(db.event_state(told[0]).await, "SENT");
    assert_eq!(db.count("event_outbox_cursors WHERE lease_token IS NOT NULL").await, 0);
    assert_eq!(db.count("event_outbox_attempts").await, 1, "no attempt is counted for the others");
    db.assert_events_hold().await;
}

#[tokio::test]
async fn an_outcome_that_came_after_its_lease_was_lost_is_evidence_and_the_event_goes_out_again() {
    let db = TestDb::new().await;
    let bus = ScriptedBus::new(|_, nth| if nth == 1 { Reply::Wait } else { Reply::Take });
    let slow = start(&db, &bus);
    let told = db.tell_of("k", 1).await;
    until("the call is under way", async || bus.calls.load(Ordering::SeqCst) == 1).await;
    db.expire_buckets().await;
    let other = start(&db, &bus);
    until_sent(&db, 1).await;
    bus.open.notify_waiters();
    until("the evidence is kept", async || {
        db.count("event_outbox_events WHERE event_type = 'LATE_OUTCOME'").await == 1
    })
    .await;
    slow.stop().await;
    other.stop().await;
    assert_eq!(db.event_ledger(told[0]).await, ["0.1 ZOMBIE_REQUEUE", "0.2 DISPATCHED"]);
    assert_eq!(bus.taken().len(), 2, "the wire saw it twice, under one id");
    db.assert_events_hold().await;
}

#[tokio::test]
async fn a_new_event_is_published_at_once_by_a_hint() {
    let db = TestDb::new().await;
    let bus = ScriptedBus::new(|_, _| Reply::Take);
    let engine = start_seldom(&db, &bus).await;
    let started = std::time::Instant::now();
    db.tell_of("k", 1).await;
    until("it is out", async || bus.taken().len() == 1).await;
    assert!(started.elapsed() < Duration::from_secs(20), "not by a poll");
    engine.stop().await;
}
