//! A run, from the first payment to the verdict.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony::db::{Database, DbError, RoleSource};
use symphony_lab::sandbox::{self, Plan, Sandbox};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::dice::{Dice, Tally};
use super::ground::Ground;
use super::operator::OnDuty;
use super::pauses::Pauses;
use super::producers::{Books, Producer};
use super::relay::{About, Relay};
use super::verdict::show_life;
use super::workers::{Equipment, Fleet};
use super::{RAILS, number};
use crate::support::proxy::Cut;

const WORKERS: usize = 3;
const PRODUCERS: usize = 2;
pub const LEASE_SECONDS: u64 = 3;
/// With nothing at all happening for so long, something is stuck.
const STUCK: Duration = Duration::from_mins(2);
/// Every way a worker is killed on purpose.
const KILLS: [&str; 6] = [
    "after_claim",
    "before_send",
    "after_send",
    "before_complete",
    "in_commit_sent",
    "in_commit_unsent",
];

/// How much must have happened before the fire ends.
#[derive(Debug, Clone, Copy)]
pub struct Goals {
    pub kills: u64,
    /// At each named point.
    pub each_kill: u64,
    pub server_kills: u64,
    pub cut_commits: u64,
    pub pauses: u64,
    pub payments: u64,
}

pub struct Run {
    pub started: Instant,
    seed: u64,
    goals: Goals,
    pub ground: Ground,
    pub sandbox: Sandbox,
    pub tally: Arc<Tally>,
    pub books: Arc<Books>,
    pub database: Database,
    pub fleet: Fleet,
    /// Every way along which a commit can be cut.
    producer_relays: Vec<Relay>,
    pub unpaused_since: watch::Sender<Option<Instant>>,
}

/// Set everything on fire, let it burn until the goals are reached, put it out, and judge.
pub async fn run(goals: Goals) {
    run_on(Ground::prepare(SERVER).await, goals).await;
}

/// The same through a pooler, with logins that have exactly the documented grants.
pub async fn run_pooled(goals: Goals) {
    run_on(Ground::prepare_pooled(SERVER).await, goals).await;
}

const SERVER: &[(&str, &str)] = &[("shared_buffers", "64MB")];

async fn run_on(ground: Ground, goals: Goals) {
    let seed =
        number("SYMPHONY_CHAOS_SEED").unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0 >> 32);
    println!("chaos: seed {seed} (SYMPHONY_CHAOS_SEED={seed} repeats its decisions), {goals:?}");
    let started = Instant::now();
    let tally = Arc::new(Tally::default());
    let books = Arc::new(Books::default());
    println!("chaos: PostgreSQL {}, {}", ground.version(), ground.folder.display());
    let sandbox = Sandbox::start(sandbox::Settings {
        faults: faults(seed),
        settle_ms: 300,
        ..sandbox::Settings::new(ground.folder.join("provider.jsonl"))
    })
    .await
    .unwrap();
    let own = ground.relay(None, &tally).await;
    let database = connect(&own).await;
    for rail in RAILS.iter().filter(|rail| rail.fifo.is_some()) {
        let operator = database.operator();
        let act = crate::support::act();
        operator.configure_rail(rail.name, &act, Some(true), rail.fifo, None, None).await.unwrap();
    }
    let equipment = Equipment {
        seed,
        config: ground.folder.join("symphony.toml"),
        log: ground.folder.join("workers.log"),
        tally: tally.clone(),
    };
    fs::write(&equipment.config, config(&sandbox)).unwrap();

    let (stop_producing, stopped_producing) = watch::channel(false);
    let (end_duty, ended_duty) = watch::channel(false);
    let unpaused_since = watch::Sender::new(Some(Instant::now()));
    let mut producer_relays = Vec::new();
    let mut people: Vec<JoinHandle<()>> = Vec::new();
    for number in 0..PRODUCERS {
        let relay = ground.relay_as("symphony_ingest", None, &tally).await;
        let producer = Producer {
            number,
            database: connect(&relay).await,
            dice: Dice::of(seed, &format!("producer {number}")),
            books: books.clone(),
            tally: tally.clone(),
        };
        producer_relays.push(relay);
        people.push(tokio::spawn(producer.produce(stopped_producing.clone())));
    }
    let desk = ground.relay_as("symphony_operator", None, &tally).await;
    let on_duty = OnDuty {
        database: database.clone(),
        desk: connect(&desk).await,
        record: sandbox.record_path().to_owned(),
        dice: Dice::of(seed, "operator"),
        tally: tally.clone(),
        books: books.clone(),
        unpaused_since: unpaused_since.subscribe(),
    };
    let on_duty = tokio::spawn(on_duty.work(ended_duty));
    let fleet = Fleet::start(WORKERS, &ground, &equipment).await;
    let mut run = Run {
        started,
        seed,
        goals,
        ground,
        sandbox,
        tally,
        books,
        database,
        fleet,
        producer_relays,
        unpaused_since,
    };

    run.burn(&people, &on_duty).await;

    stop_producing.send_replace(true);
    run.put_out();
    for producer in people {
        producer.await.expect("the producer");
    }
    run.drain(&on_duty).await;
    end_duty.send_replace(true);
    on_duty.await.expect("the operator");
    run.conclude(&equipment.log).await;
}

async fn connect(relay: &Relay) -> Database {
    Database::connect(relay.options.clone(), 4, RoleSource::EachTransaction).await.unwrap()
}

fn config(sandbox: &Sandbox) -> String {
    let mut text = format!(
        "[worker]\nlease_seconds = {LEASE_SECONDS}\nlease_margin_ms = 200\nbatch_items_max = 50\npoll_ms = [100, 300]\n\
         repair_ms = [300, 600]\nshutdown_seconds = 20\n[api]\nlisten = \"off\"\n[log]\nlevel = \"warn\"\n"
    );
    for rail in RAILS {
        text += &format!(
            "[rails.{}]\nkind = \"sandbox\"\nurl = \"http://{}\"\ntimeout_ms = 400\ninquiry_timeout_ms = 400\n\
             connect_timeout_ms = 300\nconcurrency_max = 6\nbreaker_open_ms = 100\nbreaker_open_max_ms = 500\n",
            rail.name,
            sandbox.address()
        );
    }
    text
}

/// Every way a provider fails, some of them at about every fourth request.
fn faults(seed: u64) -> Plan {
    let plan = format!(
        r#"{{"seed": {seed},
            "per_mille": {{"delay:100": 40, "delay:700": 15, "hang_before": 10, "hang_after": 15, "refuse:AC04": 12,
                "error_before:503": 15, "error_before:429": 10, "error_after:500": 20, "reset_before": 15, "reset_after": 20,
                "answer_twice": 25, "garbage_before": 8, "garbage_after": 10, "slow_drip_before": 5, "slow_drip_after": 8}},
            "inquiry_per_mille": {{"delay:100": 40, "delay:700": 10, "error:503": 40, "hang": 15, "garbage": 20, "reset": 30}}}}"#
    );
    Plan::from_json(plan.as_bytes()).unwrap()
}

impl Run {
    /// Until every goal is reached.
    async fn burn(&mut self, people: &[JoinHandle<()>], on_duty: &JoinHandle<()>) {
        let mut dice = Dice::of(self.seed, "director");
        let soon = |dice: &mut Dice, from, to| Instant::now() + dice.duration_ms(from, to);
        let mut next_cut = soon(&mut dice, 500, 1500);
        let mut pauses = Pauses::new(&mut dice);
        let mut next_server_kill = soon(&mut dice, 5_000, 12_000);
        let mut next_kill = dice.duration_ms(3_000, 7_000);
        let mut moved = Moved::new(&self.signature());
        let mut reported = Instant::now();
        let mut tick = tokio::time::interval(Duration::from_millis(25));
        while !self.goals_reached() {
            tick.tick().await;
            let now = Instant::now();
            if people.iter().chain([on_duty]).any(JoinHandle::is_finished) || self.fleet.lost_one()
            {
                self.fail("somebody gave up under fire, see above");
            }
            if !moved.still(&self.signature()) {
                self.fail("nothing moves any more");
            }
            if reported.elapsed() > Duration::from_secs(5) {
                reported = now;
                println!("chaos: {}", self.progress());
            }
            pauses.direct(self, &mut dice);
            if now >= next_cut {
                next_cut = soon(&mut dice, 200, 1_600);
                self.cut(&mut dice);
            }
            for worker in &self.fleet.workers {
                if worker.process.age().is_some_and(|age| age > next_kill) {
                    worker.process.kill("anywhere");
                    next_kill = dice.duration_ms(3_000, 7_000);
                }
            }
            if now >= next_server_kill {
                self.ground.kill_server().await;
                self.tally.add("server kill");
                next_server_kill = soon(&mut dice, 6_000, 18_000);
            }
        }
        println!("chaos: {}", self.progress());
    }

    fn cut(&self, dice: &mut Dice) {
        let cut = if dice.percent(50) { Cut::BeforeCommit } else { Cut::AfterCommit };
        match dice.between(1, 100) {
            1..=25 => dice.pick(&self.producer_relays).cut(cut, Some(About::Enqueue)),
            26..=70 => dice.pick(&self.fleet.workers).relay.cut(cut, Some(About::Complete)),
            71..=85 => dice.pick(&self.fleet.workers).relay.cut(cut, Some(About::Claim)),
            _ => dice.pick(&self.fleet.workers).relay.cut(cut, None),
        }
    }

    fn goals_reached(&self) -> bool {
        let each =
            KILLS.iter().all(|way| self.tally.sum(&format!("kill {way}")) >= self.goals.each_kill);
        each && self.tally.sum("kill ") >= self.goals.kills
            && self.tally.sum("server kill") >= self.goals.server_kills
            && self.tally.sum("cut ") >= self.goals.cut_commits
            && self.tally.sum("pause survived") >= self.goals.pauses
            && self.accepted() >= self.goals.payments
    }

    fn accepted(&self) -> u64 {
        self.books.accepted.lock().unwrap().len() as u64
    }

    fn signature(&self) -> String {
        let kills = self.tally.sum("kill ");
        format!(
            "{} {kills} {:?}",
            self.accepted(),
            self.sandbox.record_path().metadata().unwrap().len()
        )
    }

    fn progress(&self) -> String {
        let count = |what| self.tally.sum(what);
        let waiting: Vec<_> = RAILS
            .iter()
            .zip(&self.books.backlog)
            .map(|(rail, waiting)| {
                format!("{} {}", rail.name, waiting.load(std::sync::atomic::Ordering::Relaxed))
            })
            .collect();
        format!(
            "{} s, {} payments accepted ({} waiting), {} kills, {} pauses, {} server kills, {} cut commits",
            self.started.elapsed().as_secs(),
            self.accepted(),
            waiting.join(", "),
            count("kill "),
            count("pause survived"),
            count("server kill"),
            count("cut ")
        )
    }

    /// From here on nothing fails any more.
    fn put_out(&self) {
        self.sandbox.set_faults(Plan::default()).unwrap();
        for relay in &self.producer_relays {
            relay.disarm();
        }
        self.fleet.calm();
        self.unpaused_since.send_replace(Some(Instant::now()));
    }

    /// Until nothing waits; said clearly, should that never be.
    async fn drain(&self, on_duty: &JoinHandle<()>) {
        let count = "SELECT (SELECT count(*) FROM symphony.payment_outbox_pending) + (SELECT count(*) FROM symphony.payment_outbox_blocked_lanes), \
                            (SELECT count(*) FROM symphony.payment_outbox_attempts) + (SELECT count(*) FROM symphony.payment_outbox_events)";
        let mut moved = Moved::new("");
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        loop {
            tick.tick().await;
            // The first connection may still be one to the server that was just killed.
            let (waiting, written): (i64, i64) =
                match sqlx::query_as(count).fetch_one(self.database.pool()).await {
                    Ok(counted) => counted,
                    Err(error) => {
                        let error = DbError::from(error);
                        assert!(error.is_transient() && moved.still("away"), "{error}");
                        continue;
                    }
                };
            if waiting == 0 {
                return;
            }
            if on_duty.is_finished() || self.fleet.lost_one() {
                self.fail("somebody gave up after the fire, see above");
            }
            if !moved.still(&format!("{waiting} {written}")) {
                let stuck: Vec<String> = sqlx::query_scalar(
                    "SELECT outbox_id::text FROM symphony.payment_outbox_pending ORDER BY participant_id, sequence_id LIMIT 3",
                )
                .fetch_all(self.database.pool())
                .await
                .unwrap();
                for id in stuck {
                    show_life(&self.database, &id).await;
                }
                self.fail(&format!("{waiting} items are stuck, the first of them above"));
            }
        }
    }

    /// End the run with everything kept.
    fn fail(&self, why: &str) -> ! {
        self.ground.keep();
        panic!(
            "{why}; seed {}, {}; everything is kept in {}",
            self.seed,
            self.progress(),
            self.ground.folder.display()
        );
    }
}

/// Whether something still changes now and then.
struct Moved {
    seen: String,
    at: Instant,
}

impl Moved {
    fn new(seen: &str) -> Self {
        Self { seen: seen.to_owned(), at: Instant::now() }
    }

    fn still(&mut self, now: &str) -> bool {
        if self.seen != now {
            *self = Self::new(now);
        }
        self.at.elapsed() < STUCK
    }
}
