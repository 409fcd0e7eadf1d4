//! What the overview draws, and the stream that keeps it going. The lanes are looked at whether or not anybody watches, so
//! that whoever opens the overview sees what led to what they see.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, TimeDelta, Utc};
use futures_util::{StreamExt as _, stream};
use serde::Serialize;
use serde_json::json;
use symphony::db::{Auditor, Database, DbError, Incident, LaneActivity, LaneFigures, LaneStatus};
use symphony::db::{Paused, Unserved};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::sessions::Session;
use super::{Console, page};
use crate::api::{Problem, Scope};
use crate::bounds::{
    ATTENTION_SHOWN_MAX, FIGURES_ANSWER_MAX, LIVE_INTERVAL, LIVE_REMEMBERED, LIVE_SAMPLE_EVERY,
    LIVE_SAMPLES_MAX, PAUSED_COUNTED_MAX,
};
use crate::http_server::Peer;

/// The lanes at one moment.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sample {
    pub(super) at: DateTime<Utc>,
    pub(super) lanes: Vec<LaneSample>,
}

/// One lane at that moment.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LaneSample {
    #[serde(flatten)]
    pub(super) status: LaneStatus,
    /// Of all live workers, whichever process they are of.
    #[serde(flatten)]
    pub(super) activity: LaneActivity,
}

/// What of a lane is drawn: what is remembered is sent without the rest.
#[derive(Serialize)]
struct DrawnLane<'a> {
    lane: &'a str,
    pending: i64,
    oldest_pending_age_seconds: i64,
    #[serde(flatten)]
    activity: LaneActivity,
}

/// What is wrong or stopped. Every role that looks may know.
#[derive(Debug, Clone)]
pub(super) struct Attention {
    pub(super) incidents: Vec<Incident>,
    pub(super) unserved: Vec<Unserved>,
    /// One more than are counted, if there are more.
    pub(super) paused: Vec<Paused>,
}

/// What all who look share.
pub(crate) struct Live {
    database: Database,
    /// One asks at a time; the others get what it found.
    asking: Mutex<Asked>,
    samples: std::sync::Mutex<VecDeque<Arc<Sample>>>,
}

#[derive(Default)]
struct Asked {
    /// When the newest sample was taken.
    at: Option<Instant>,
    /// Somebody has acted since.
    outdated: bool,
    attention: Option<(Instant, Arc<Attention>)>,
}

impl Live {
    pub(crate) fn new(database: Database) -> Self {
        Self { database, asking: Mutex::default(), samples: std::sync::Mutex::default() }
    }

    /// Look every few seconds, until the task is ended. While the database is away there is nothing to remember.
    pub(crate) fn keep_looking(self: &Arc<Self>) -> JoinHandle<()> {
        let live = self.clone();
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(LIVE_SAMPLE_EVERY);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let mut asked = live.asking.lock().await;
                if asked.at.is_none_or(|at| at.elapsed() >= LIVE_INTERVAL) {
                    drop(live.look(&mut asked, LIVE_SAMPLE_EVERY).await);
                }
            }
        })
    }

    /// Every lane at a glance, not older than the interval: to count a million rows takes longer than anybody wants to wait.
    pub(crate) async fn status(&self, reader: &Auditor) -> Result<Vec<LaneStatus>, DbError> {
        match self.now().await? {
            Some(sample) => Ok(sample.lanes.iter().map(|lane| lane.status.clone()).collect()),
            // Another process counts for the first time in a while.
            None => reader.status().await,
        }
    }

    /// The newest sample, not older than the interval; none while another process is the first to count.
    pub(super) async fn now(&self) -> Result<Option<Arc<Sample>>, DbError> {
        let mut asked = self.asking.lock().await;
        if !asked.outdated && asked.at.is_some_and(|at| at.elapsed() < LIVE_INTERVAL) {
            return Ok(self.samples().last().cloned());
        }
        self.look(&mut asked, LIVE_INTERVAL).await?;
        Ok(self.samples().last().cloned())
    }

    /// What needs a person, not older than the interval.
    pub(super) async fn attention(&self, reader: &Auditor) -> Result<Arc<Attention>, DbError> {
        let mut asked = self.asking.lock().await;
        if let Some((at, attention)) = &asked.attention
            && at.elapsed() < LIVE_INTERVAL
        {
            return Ok(attention.clone());
        }
        let attention = Arc::new(Attention {
            incidents: reader.incidents(ATTENTION_SHOWN_MAX + 1).await?,
            unserved: reader.unserved().await?,
            paused: reader.paused_after(None, PAUSED_COUNTED_MAX + 1).await?,
        });
        asked.attention = Some((Instant::now(), attention.clone()));
        Ok(attention)
    }

    /// Somebody has acted: what they look at next is asked for anew.
    pub(super) async fn forget(&self) {
        let mut asked = self.asking.lock().await;
        asked.outdated = true;
        asked.attention = None;
    }

    /// What is remembered, the oldest first.
    fn samples(&self) -> Vec<Arc<Sample>> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.iter().cloned().collect()
    }

    /// As any process has counted it within this time; else this one counts, for all.
    async fn look(&self, asked: &mut Asked, age_max: Duration) -> Result<(), DbError> {
        // Whoever has acted sees it at once.
        let age_max = if asked.outdated { Duration::from_millis(1) } else { age_max };
        let figures = self.database.worker().figures(age_max).await?;
        asked.at = Some(Instant::now());
        asked.outdated = false;
        if !figures.is_empty() {
            let lanes = figures.into_iter().map(LaneSample::from).collect();
            let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
            remember(&mut samples, Sample { at: Utc::now(), lanes });
        }
        Ok(())
    }
}

impl From<LaneFigures> for LaneSample {
    fn from(figures: LaneFigures) -> Self {
        Self { status: figures.status, activity: figures.activity }
    }
}

/// The newest is always kept; of what is remembered each is some seconds after the one before, however many look.
fn remember(samples: &mut VecDeque<Arc<Sample>>, sample: Sample) {
    let every = TimeDelta::from_std(LIVE_SAMPLE_EVERY).unwrap_or_default();
    let remembered = TimeDelta::from_std(LIVE_REMEMBERED).unwrap_or_default();
    let before = samples.len().checked_sub(2).and_then(|place| samples.get(place));
    if before.is_some_and(|before| sample.at - before.at < every) {
        samples.pop_back();
    }
    let since = sample.at - remembered;
    samples.push_back(Arc::new(sample));
    while samples.front().is_some_and(|first| first.at < since) || samples.len() > LIVE_SAMPLES_MAX
    {
        samples.pop_front();
    }
}

/// Server-sent events: what is remembered first, then a sample each interval, as long as session and token are good. While
/// the database is away, that is what is said.
pub(super) async fn stream(console: Arc<Console>, session: Arc<Session>, peer: Peer) -> Response {
    let watching = Watching { console, session, peer, told_history: false };
    let (watching, first) = match watching.tell().await {
        Ok(told) => told,
        Err(problem) => return page::refusal(&problem, None),
    };
    let rest = stream::unfold(watching, |watching| async move {
        tokio::time::sleep(LIVE_INTERVAL).await;
        // Who has signed out sees nothing more.
        if !watching.session.goes_on() {
            return None;
        }
        let (watching, told) = watching.tell().await.ok()?;
        Some((told, watching))
    });
    let events = stream::once(async { first }).chain(rest);
    let body = Body::from_stream(events.map(Ok::<_, Infallible>));
    let kind = (header::CONTENT_TYPE, "text/event-stream; charset=utf-8");
    // nginx would keep events back until it has a page of them.
    let unbuffered = (HeaderName::from_static("x-accel-buffering"), "no");
    ([kind, unbuffered], body).into_response()
}

/// Somebody who has the overview open.
struct Watching {
    console: Arc<Console>,
    session: Arc<Session>,
    peer: Peer,
    told_history: bool,
}

impl Watching {
    /// The next event. An error only if the token is no longer good: whoever watches a database that is away sees that it
    /// comes back.
    async fn tell(mut self) -> Result<(Self, String), Problem> {
        let told = tokio::time::timeout(FIGURES_ANSWER_MAX, self.ask()).await;
        let told = match told {
            Ok(Ok(told)) => told,
            Ok(Err(problem)) if problem.status() == StatusCode::UNAUTHORIZED => {
                self.session.end();
                return Err(problem);
            }
            Ok(Err(_)) | Err(_) => "event: away\ndata: {}\n\n".to_owned(),
        };
        Ok((self, told))
    }

    async fn ask(&mut self) -> Result<String, Problem> {
        // Each time: whose token is revoked sees nothing more.
        let caller = self.console.door.caller(&self.session.secret, self.peer).await?;
        caller.needs(Scope::Read)?;
        let live = &self.console.live;
        let sample = live.now().await?;
        if self.told_history {
            return Ok(sample.map(|sample| event(&sample)).unwrap_or_default());
        }
        self.told_history = true;
        Ok(history(&live.samples()))
    }
}

fn event(sample: &Sample) -> String {
    format!("data: {}\n\n", serde_json::to_string(sample).unwrap_or_default())
}

/// How the charts begin, and how much of them a page keeps: it remembers as this process does.
fn history(samples: &[Arc<Sample>]) -> String {
    let drawn = |lane: &LaneSample| {
        json!(DrawnLane {
            lane: &lane.status.lane,
            pending: lane.status.pending,
            oldest_pending_age_seconds: lane.status.oldest_pending_age_seconds,
            activity: lane.activity,
        })
    };
    let before = samples.split_last().map(|(_, before)| before).unwrap_or_default();
    let before = before.iter().map(
        |sample| json!({"at": sample.at, "lanes": sample.lanes.iter().map(drawn).collect::<Vec<_>>()}),
    );
    let told = json!({
        "seconds": LIVE_REMEMBERED.as_secs(), "every_seconds": LIVE_SAMPLE_EVERY.as_secs(),
        "samples_max": LIVE_SAMPLES_MAX, "samples": before.collect::<Vec<_>>(),
    });
    let newest = samples.last().map(|sample| event(sample)).unwrap_or_default();
    format!("event: history\ndata: {told}\n\n{newest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(seconds: impl Iterator<Item = i64>) -> Vec<i64> {
        let mut samples = VecDeque::new();
        for second in seconds {
            let at = DateTime::UNIX_EPOCH + TimeDelta::seconds(second);
            remember(&mut samples, Sample { at, lanes: Vec::new() });
        }
        samples.iter().map(|sample| sample.at.timestamp()).collect()
    }

    #[test]
    fn what_is_remembered_is_bounded_however_many_look() {
        assert_eq!(kept([0, 2, 4, 6, 8, 10].into_iter()), [0, 4, 8, 10], "somebody looks");
        assert_eq!(kept([0, 5, 10, 15].into_iter()), [0, 5, 10, 15], "nobody does");
        for every in [1, 2, 5] {
            let last = 4 * 3_600;
            let samples = kept((0..=last).step_by(every));
            assert!(samples.len() <= LIVE_SAMPLES_MAX, "{} of every {every} s", samples.len());
            let first = samples.first().copied().unwrap_or_default();
            assert!(last - first <= 1_800 && last - first > 1_780, "half an hour: {first}");
        }
    }
}
