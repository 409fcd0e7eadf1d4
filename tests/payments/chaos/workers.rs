//! Real `symphony run` processes, each with its fate: killed at a named point, in the middle of a commit, anywhere,
//! or paused past its leases. Whoever dies is followed by another at once.

use std::fs::{File, OpenOptions};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sqlx::ConnectOptions as _;
use symphony::engine::Point;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::dice::{Dice, Tally};
use super::ground::Ground;
use super::relay::{MidCommit, Relay};
use crate::support::processes::Signal;

/// How often a process that cannot be awaited is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// One worker process at a time.
#[derive(Default)]
pub struct Process(Mutex<State>);

#[derive(Default)]
struct State {
    child: Option<Child>,
    born: Option<Instant>,
    paused: bool,
    killed_by_us: Option<&'static str>,
}

impl State {
    /// Signals only what is not reaped yet: its number cannot have gone to another process.
    fn signal(&mut self, signal: Signal) -> bool {
        let Some(child) = &mut self.child else { return false };
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        crate::support::processes::signal(child.id(), signal);
        true
    }
}

impl Process {
    fn begin(&self, child: Child) {
        *self.0.lock().unwrap() = State {
            child: Some(child),
            born: Some(Instant::now()),
            paused: false,
            killed_by_us: None,
        };
    }

    /// SIGKILL.
    pub fn kill(&self, cause: &'static str) {
        let mut state = self.0.lock().unwrap();
        if state.signal(Signal::KILL) && state.killed_by_us.is_none() {
            state.killed_by_us = Some(cause);
        }
    }

    /// SIGSTOP; `false` if there is nobody to stop.
    pub fn pause(&self) -> bool {
        let mut state = self.0.lock().unwrap();
        let paused = state.signal(Signal::STOP);
        state.paused = paused;
        paused
    }

    pub fn is_paused(&self) -> bool {
        self.0.lock().unwrap().paused
    }

    /// SIGCONT; `false` if it did not live to see it.
    pub fn resume(&self) -> bool {
        let mut state = self.0.lock().unwrap();
        let resumed = state.paused && state.signal(Signal::CONT);
        state.paused = false;
        // It gets the time to say what it has learnt: while it was paused it did not live.
        state.born = state.born.map(|_| Instant::now());
        resumed
    }

    fn terminate(&self) {
        self.0.lock().unwrap().signal(Signal::TERM);
    }

    /// How long the present one has lived, counted from its last pause, if it runs and is not paused.
    pub fn age(&self) -> Option<Duration> {
        let state = self.0.lock().unwrap();
        state.born.filter(|_| !state.paused).map(|born| born.elapsed())
    }

    async fn ended(&self) -> (ExitStatus, Option<&'static str>) {
        let mut tick = tokio::time::interval(LOOK);
        loop {
            tick.tick().await;
            let mut state = self.0.lock().unwrap();
            if let Some(status) = state.child.as_mut().unwrap().try_wait().unwrap() {
                state.born = None;
                return (status, state.killed_by_us);
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let state = self.0.get_mut().unwrap();
        if state.signal(Signal::KILL) {
            state.child.as_mut().unwrap().wait().ok();
        }
    }
}

/// What one incarnation meets.
#[derive(Debug, Clone, Copy)]
enum Fate {
    At(Point, u64),
    InCommit(MidCommit),
    /// Nothing planned: somebody kills it when it has lived long enough.
    Open,
}

impl Fate {
    /// Of the nth incarnation of one worker, whatever happens elsewhere.
    fn of(seed: u64, worker: usize, incarnation: u64) -> Self {
        let mut dice = Dice::of(seed, &format!("fate of {worker}.{incarnation}"));
        match dice.between(1, 100) {
            1..=16 => Self::At(Point::AfterClaim, dice.between(1, 6)),
            17..=34 => Self::At(Point::BeforeSend, dice.between(1, 20)),
            35..=52 => Self::At(Point::AfterSend, dice.between(1, 20)),
            53..=70 => Self::At(Point::BeforeComplete, dice.between(1, 10)),
            71..=96 => {
                Self::InCommit(MidCommit { nth: dice.between(1, 8), forwarded: dice.percent(50) })
            }
            _ => Self::Open,
        }
    }
}

/// What the fleet is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Fates are met.
    Fire,
    /// Nobody is killed any more.
    Calm,
    /// Whoever ends is not followed.
    Leaving,
}

pub struct Worker {
    pub process: Arc<Process>,
    pub relay: Relay,
}

/// All workers.
pub struct Fleet {
    pub workers: Vec<Arc<Worker>>,
    supervisors: Vec<JoinHandle<ExitStatus>>,
    stage: watch::Sender<Stage>,
}

/// What all incarnations share.
#[derive(Clone)]
pub struct Equipment {
    pub seed: u64,
    pub config: PathBuf,
    pub log: PathBuf,
    pub tally: Arc<Tally>,
}

impl Fleet {
    pub async fn start(count: usize, ground: &Ground, equipment: &Equipment) -> Self {
        let stage = watch::Sender::new(Stage::Fire);
        let mut fleet = Self { workers: Vec::new(), supervisors: Vec::new(), stage };
        for index in 0..count {
            let process = Arc::new(Process::default());
            let relay =
                ground.relay_as("symphony_executor", Some(process.clone()), &equipment.tally).await;
            let worker = Arc::new(Worker { process, relay });
            fleet.workers.push(worker.clone());
            let stage = fleet.stage.subscribe();
            let supervisor = supervise(index, worker, equipment.clone(), stage);
            fleet.supervisors.push(tokio::spawn(supervisor));
        }
        fleet
    }

    /// Whether somebody is not followed any more, though nobody asked for that.
    pub fn lost_one(&self) -> bool {
        self.supervisors.iter().any(JoinHandle::is_finished)
    }

    /// No more kills: everybody is replaced by one that has nothing to fear.
    pub fn calm(&self) {
        self.stage.send_replace(Stage::Calm);
        for worker in &self.workers {
            worker.relay.disarm();
            worker.process.resume();
            worker.process.kill("anywhere");
        }
    }

    /// SIGTERM for all; how they ended.
    pub async fn leave(self) -> Vec<ExitStatus> {
        self.stage.send_replace(Stage::Leaving);
        for worker in &self.workers {
            worker.process.terminate();
        }
        let mut ends = Vec::new();
        for supervisor in self.supervisors {
            ends.push(supervisor.await.unwrap());
        }
        ends
    }
}

async fn supervise(
    index: usize,
    worker: Arc<Worker>,
    equipment: Equipment,
    stage: watch::Receiver<Stage>,
) -> ExitStatus {
    let tally = &equipment.tally;
    let mut again = tokio::time::interval(Duration::from_millis(200));
    again.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for incarnation in 0.. {
        let fate = match *stage.borrow() {
            Stage::Fire => Fate::of(equipment.seed, index, incarnation),
            Stage::Calm | Stage::Leaving => Fate::Open,
        };
        worker.relay.arm(match fate {
            Fate::InCommit(at) => Some(at),
            Fate::At(..) | Fate::Open => None,
        });
        worker.process.begin(spawn(&worker.relay, &equipment, fate));
        let (status, killed_by_us) = worker.process.ended().await;
        if *stage.borrow() == Stage::Leaving {
            return status;
        }
        match (status.signal(), killed_by_us, fate) {
            (Some(9), Some(cause), _) => tally.add(&format!("kill {cause}")),
            (Some(9), None, Fate::At(point, _)) => tally.add(&format!("kill {}", point.name())),
            // The server was away when it started, and it said so.
            (None, None, _) if status.code() == Some(1) => {
                tally.add("start in vain");
                again.tick().await;
            }
            other => panic!("worker {index} ended by itself: {other:?}"),
        }
    }
    unreachable!("incarnations do not run out")
}

fn spawn(relay: &Relay, equipment: &Equipment, fate: Fate) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_symphony"));
    command
        .arg("run")
        .arg("--config")
        .arg(&equipment.config)
        .env("DATABASE_URL", relay.options.to_url_lossy().as_str())
        .env_remove("SYMPHONY_KILL_AT")
        .stdin(Stdio::null())
        .stdout(log(equipment))
        .stderr(log(equipment));
    if let Fate::At(point, passes) = fate {
        command.env("SYMPHONY_KILL_AT", format!("{}:{passes}", point.name()));
    }
    command.spawn().unwrap()
}

fn log(equipment: &Equipment) -> File {
    OpenOptions::new().create(true).append(true).open(&equipment.log).unwrap()
}
