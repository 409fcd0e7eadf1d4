//! What the database says of the lanes, as this process last heard it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use symphony::db::{Database, LaneStatus};
use tokio::sync::Notify;

use crate::bounds::{
    FIGURES_ANSWER_MAX, FIGURES_ASKED_AGAIN_AFTER, FIGURES_COUNTED_EVERY, FIGURES_KEPT_FOR,
    FIGURES_READ_EVERY, FIGURES_WAIT_MAX,
};

/// What is known now.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Whether the database answers; `None` until it was asked.
    pub database_up: Option<bool>,
    /// The lanes, as any process has counted them; none if that was too long ago.
    pub lanes: Vec<LaneStatus>,
}

/// The figures that are the same for every process: one at a time counts them in the database, all read what it counted. A
/// scrape waits only a moment for them, because a page that is late is a process that is down.
#[derive(Debug)]
pub struct Figures {
    database: Database,
    heard: Arc<Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    state: Mutex<State>,
    answered: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// When the question that is not answered yet was asked.
    asking_since: Option<Instant>,
    ended_at: Option<Instant>,
    told_at: Option<Instant>,
    known: Known,
}

impl Figures {
    /// Of this database.
    pub fn new(database: Database) -> Self {
        Self { database, heard: Arc::default() }
    }

    /// What is known. While the database is away that is the last that was heard, and nothing after a while.
    pub async fn known(&self) -> Known {
        let answered = self.heard.answered.notified();
        if self.ask() {
            // Else what was known before is served, and the answer with the next scrape.
            let _in_time = tokio::time::timeout(FIGURES_WAIT_MAX, answered).await;
        }
        self.heard.state().served()
    }

    /// Ask if it is time to, and nobody does; answers whether there is an answer to wait for.
    fn ask(&self) -> bool {
        let mut state = self.heard.state();
        if state.asking_since.is_some() {
            return true;
        }
        if state.ended_at.is_some_and(|at| at.elapsed() < FIGURES_READ_EVERY) {
            return false;
        }
        state.asking_since = Some(Instant::now());
        let (worker, heard) = (self.database.worker(), self.heard.clone());
        tokio::spawn(async move {
            let until = Instant::now() + FIGURES_WAIT_MAX;
            let mut told = worker.status(FIGURES_COUNTED_EVERY).await;
            // Somebody else counts the first ones, such as this process's own console: they are there in a moment.
            while told.as_ref().is_ok_and(Vec::is_empty) && Instant::now() < until {
                tokio::time::sleep(FIGURES_ASKED_AGAIN_AFTER).await;
                told = worker.status(FIGURES_COUNTED_EVERY).await;
            }
            heard.state().hear(told.ok());
            heard.answered.notify_waiters();
        });
        true
    }
}

impl Heard {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn hear(&mut self, told: Option<Vec<LaneStatus>>) {
        let now = Instant::now();
        self.asking_since = None;
        self.ended_at = Some(now);
        self.known.database_up = Some(told.is_some());
        if let Some(lanes) = told {
            self.told_at = Some(now);
            self.known.lanes = lanes;
        }
    }

    fn served(&self) -> Known {
        let silent = self.asking_since.is_some_and(|since| since.elapsed() > FIGURES_ANSWER_MAX);
        let kept = self.told_at.is_some_and(|at| at.elapsed() < FIGURES_KEPT_FOR);
        Known {
            database_up: if silent { Some(false) } else { self.known.database_up },
            lanes: if kept { self.known.lanes.clone() } else { Vec::new() },
        }
    }
}
