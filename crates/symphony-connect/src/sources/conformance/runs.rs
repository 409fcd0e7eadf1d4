//! Claims about the consumer's loop with this source: what an outage, a failing event or a lost process costs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use symphony::consumer::{
    Applied, Apply, ApplyError, ConsumerMetrics, ConsumerSettings, Received, Source, run,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::claims::{
    GRACE, Trial, failed, published, receive_all, require_short_visibility, trouble,
};
use super::{Probe, Report};
use crate::rails::conformance::{Ruling, Stop, require};

/// Tries of one event before it is dead-lettered.
const TRIES_MAX: u32 = 3;

pub(super) async fn all(probe: &dyn Probe, report: &mut Report) {
    let trial = Trial { probe };
    report.add(
        "while what events are applied to is away nothing is delivered twice, lost or reordered",
        trial.outage().await,
    );
    report.add("behind a failing event no delivery is counted", trial.behind_a_failure().await);
    report.add("a loop that is dropped in the middle loses nothing", trial.dropped_loop().await);
    report.add("restarts during an outage are no tries", trial.restarts().await);
    report.add("what a lost process hides is not taken for nothing", trial.lag().await);
}

/// Applies events as it is told to.
#[derive(Default)]
struct Applies {
    away: AtomicBool,
    /// How often the first event of the key `failing` fails.
    failures: AtomicU32,
    applied: Mutex<Vec<(String, i64, u32)>>,
}

impl Applies {
    fn applied(&self) -> Vec<(String, i64, u32)> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The places of each key, in the order in which they were applied.
    fn by_key(&self) -> HashMap<String, Vec<i64>> {
        let mut by_key: HashMap<_, Vec<_>> = HashMap::new();
        for (key, place, _) in self.applied() {
            by_key.entry(key).or_default().push(place);
        }
        by_key
    }
}

#[async_trait]
impl Apply for Applies {
    async fn apply(&self, received: &Received) -> Result<Applied, ApplyError> {
        if self.away.load(Ordering::SeqCst) {
            return Err(ApplyError::unavailable("away"));
        }
        let key = received.event.key().to_owned();
        let place = received.position.unwrap_or_default();
        let failing = key == "failing" && place == 1;
        let fail = |left: u32| left.checked_sub(1);
        if failing && self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fail).is_ok() {
            return Err(ApplyError::Again("told to fail".to_owned()));
        }
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        applied.push((key, place, received.receives));
        Ok(Applied::Now)
    }
}

struct Running {
    metrics: Arc<ConsumerMetrics>,
    stop: watch::Sender<bool>,
    task: JoinHandle<usize>,
}

impl Running {
    fn start(source: Arc<dyn Source>, applies: &Arc<Applies>) -> Self {
        let metrics = Arc::new(ConsumerMetrics::default());
        let (stop, stopped) = watch::channel(false);
        let settings = ConsumerSettings {
            receives_max: TRIES_MAX,
            retry_delay: Duration::from_millis(100),
            shutdown: GRACE,
            ..ConsumerSettings::default()
        };
        let (counted, applies) = (metrics.clone(), applies.clone());
        let task =
            tokio::spawn(async move { run(source, applies, &settings, counted, stopped).await });
        Self { metrics, stop, task }
    }

    async fn stop(self) -> Ruling {
        self.stop.send_replace(true);
        match self.task.await {
            Ok(0) => Ok(()),
            Ok(left) => Err(failed(&format!("{left} messages were left in hand"))),
            Err(_) => Err(failed("the loop died")),
        }
    }
}

impl Trial<'_> {
    async fn outage(&self) -> Ruling {
        let source = self.fresh().await;
        require_short_visibility(&*source)?;
        let away_for = source.terms().visibility * 2;
        let applies = Arc::new(Applies::default());
        applies.away.store(true, Ordering::SeqCst);
        let messages: Vec<_> =
            (1..=5).flat_map(|place| [published("a", place), published("b", place)]).collect();
        self.probe.publish(&messages).await;
        let running = Running::start(source, &applies);
        until("it is noticed", || running.metrics.away.get() == 1).await?;
        let over = Instant::now() + away_for;
        while Instant::now() < over {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let lag = running.metrics.lag.seconds();
        require(lag.is_some_and(|seconds| seconds > 0), format!("the lag is {lag:?}"))?;
        applies.away.store(false, Ordering::SeqCst);
        until("all are applied", || applies.applied().len() >= 10).await?;
        let received = running.metrics.received.get();
        let letters = running.metrics.dead_letters();
        running.stop().await?;
        require(received == 10, format!("10 messages were delivered {received} times"))?;
        require(letters == 0, format!("{letters} dead letters"))?;
        in_order(&applies, 5)
    }

    async fn behind_a_failure(&self) -> Ruling {
        let source = self.fresh().await;
        let applies = Arc::new(Applies::default());
        applies.failures.store(TRIES_MAX - 1, Ordering::SeqCst);
        let messages: Vec<_> = (1..=4).map(|place| published("failing", place)).collect();
        self.probe.publish(&messages).await;
        let running = Running::start(source, &applies);
        until("all are applied", || applies.applied().len() >= 4).await?;
        let letters = running.metrics.dead_letters();
        running.stop().await?;
        require(letters == 0, format!("{letters} dead letters"))?;
        in_order(&applies, 4)?;
        let counted: Vec<_> = applies.applied().into_iter().skip(1).map(|(.., n)| n).collect();
        require(counted == [1, 1, 1], format!("those behind were counted {counted:?} times"))
    }

    async fn dropped_loop(&self) -> Ruling {
        let source = self.fresh().await;
        require_short_visibility(&*source)?;
        let applies = Arc::new(Applies::default());
        let messages: Vec<_> =
            (1..=10).flat_map(|place| [published("a", place), published("b", place)]).collect();
        self.probe.publish(&messages).await;
        let lost = Running::start(source, &applies);
        until("some are applied", || applies.applied().len() >= 3).await?;
        lost.task.abort();
        drop(lost);
        let next = Running::start(self.probe.open().await, &applies);
        let all = || applies.by_key().values().filter(|places| places.contains(&10)).count() == 2;
        until("all are applied", all).await?;
        next.stop().await?;
        for (key, places) in applies.by_key() {
            // At least once: what was applied and not acknowledged comes again.
            let missing: Vec<_> = (1..=10).filter(|place| !places.contains(place)).collect();
            require(missing.is_empty(), format!("{key}: {missing:?} were lost"))?;
        }
        Ok(())
    }
}

impl Trial<'_> {
    async fn restarts(&self) -> Ruling {
        let applies = Arc::new(Applies::default());
        applies.away.store(true, Ordering::SeqCst);
        applies.failures.store(TRIES_MAX - 1, Ordering::SeqCst);
        let mut source = self.fresh().await;
        self.probe.publish(&[published("failing", 1)]).await;
        for _ in 0..2 {
            let running = Running::start(source, &applies);
            until("it is away", || running.metrics.away.get() == 1).await?;
            running.stop().await?;
            source = self.probe.open().await;
        }
        applies.away.store(false, Ordering::SeqCst);
        let running = Running::start(source, &applies);
        let ended = || applies.applied().len() + letters(&running) >= 1;
        until("it is applied", ended).await?;
        let letters = letters(&running);
        running.stop().await?;
        require(letters == 0, "dead-lettered for tries that there were not")
    }

    async fn lag(&self) -> Ruling {
        let lost = self.fresh().await;
        require_short_visibility(&*lost)?;
        if lost.unacknowledged().await.map_err(trouble)?.is_none() {
            return Err(Stop::NotApplicable("it says that nothing is ever hidden".to_owned()));
        }
        self.probe.publish(&[published("hidden", 1)]).await;
        receive_all(&*lost, 1).await?;
        drop(lost);
        let applies = Arc::new(Applies::default());
        let running = Running::start(self.probe.open().await, &applies);
        let lag = || running.metrics.lag.seconds();
        let wrong = AtomicBool::new(false);
        let is_over = || {
            // Looked at first: it may be 0 once the event is applied.
            let is_0 = lag() == Some(0);
            let over = !applies.applied().is_empty();
            wrong.fetch_or(is_0 && !over, Ordering::SeqCst);
            over
        };
        until("it is applied", is_over).await?;
        until("there is nothing, and the lag is 0", || lag() == Some(0)).await?;
        running.stop().await?;
        require(!wrong.into_inner(), "the lag was 0 while an event was hidden")
    }
}

fn letters(running: &Running) -> usize {
    usize::try_from(running.metrics.dead_letters()).unwrap_or(usize::MAX)
}

fn in_order(applies: &Applies, last: i64) -> Ruling {
    let expected: Vec<_> = (1..=last).collect();
    for (key, places) in applies.by_key() {
        require(places == expected, format!("{key}: applied {places:?}"))?;
    }
    Ok(())
}

async fn until(what: &str, holds: impl Fn() -> bool) -> Ruling {
    let started = Instant::now();
    while !holds() {
        if started.elapsed() > Duration::from_mins(1) {
            return Err(failed(&format!("waited for a minute, in vain: {what}")));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
