//! The consumer whose effects are judged: the library's own, with an inbox. Its handler fails now and then, and it dies
//! once in the middle.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::PgConnection;
use symphony::consumer::{
    ApplyError, ConsumerLoop, ConsumerMetrics, ConsumerSettings, Handler, Received, Source,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::stage::Stage;
use crate::payments::chaos::dice::Dice;

pub const NAME: &str = "ledger";

/// Writes an effect, and then fails at some first tries.
#[derive(Clone)]
pub struct Effects {
    stage: Arc<Stage>,
    tried: Arc<Mutex<HashSet<Uuid>>>,
}

impl Effects {
    pub fn new(stage: &Arc<Stage>) -> Self {
        Self { stage: stage.clone(), tried: Arc::default() }
    }
}

#[async_trait]
impl Handler for Effects {
    async fn handle(
        &self,
        received: &Received,
        connection: &mut PgConnection,
    ) -> Result<(), ApplyError> {
        let event = &received.event;
        sqlx::query(
            "INSERT INTO applied (event_id, key, position, event, body) VALUES ($1, $2, $3, $4::jsonb, $4)",
        )
        .bind(event.event_id())
        .bind(event.key())
        .bind(received.position)
        .bind(event.body().get())
        .execute(connection)
        .await?;
        if self.tried.lock().unwrap().insert(event.event_id()) {
            let mut dice = Dice::of(self.stage.seed, &format!("effect {}", event.event_id()));
            match dice.between(1, 1000) {
                1..=20 => {
                    self.stage.tally.add("handler failed");
                    return Err(ApplyError::Again("told to fail".to_owned()));
                }
                21..=25 => {
                    self.stage.tally.add("handler panicked");
                    panic!("told to panic");
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A consumer at work.
struct Running {
    metrics: Arc<ConsumerMetrics>,
    stop: watch::Sender<bool>,
    task: JoinHandle<usize>,
}

impl Running {
    fn start(effects: &Effects, source: Arc<dyn Source>) -> Self {
        let consumer = ConsumerLoop::new(NAME, effects.clone());
        let metrics = consumer.metrics();
        let (stop, stopped) = watch::channel(false);
        let settings = ConsumerSettings {
            receives_max: 1_000,
            retry_delay: Duration::from_millis(100),
            retry_delay_max: Duration::from_secs(1),
            shutdown: Duration::from_secs(10),
            ..ConsumerSettings::default()
        };
        let database = effects.stage.db.database.clone();
        let task = tokio::spawn(async move {
            consumer.run(&database, source, settings, stopped).await.unwrap()
        });
        Self { metrics, stop, task }
    }
}

/// A second process of the same consumer comes in the middle and leaves again, as in a deployment.
#[cfg(feature = "kafka")]
pub async fn lend_a_hand(stage: &Arc<Stage>, open: impl AsyncFn() -> Arc<dyn Source>) {
    stage.until("it is needed", 55, |now| now.applied).await;
    let helper = Running::start(&Effects::new(stage), open().await);
    stage.until("it has helped", 80, |now| now.applied).await;
    helper.stop.send_replace(true);
    assert_eq!(helper.task.await.unwrap(), 0, "it left something in hand");
    assert_eq!(helper.metrics.dead_letters(), 0, "no event is a dead letter");
    stage.tally.add("lent a hand");
}

/// Apply everything that is published; die once on the way.
pub async fn consume(stage: &Arc<Stage>, open: impl AsyncFn() -> Arc<dyn Source>) {
    let effects = Effects::new(stage);
    let first = Running::start(&effects, open().await);
    let share = Dice::of(stage.seed, "the consumer's death").between(20, 50);
    stage.until("the consumer works", usize::try_from(share).unwrap(), |now| now.applied).await;
    first.task.abort();
    assert!(first.task.await.is_err_and(|error| error.is_cancelled()), "it ended by itself");
    stage.tally.add("consumer killed");
    let second = Running::start(&effects, open().await);
    stage.until("everything is applied", 100, |now| now.applied).await;
    second.stop.send_replace(true);
    second.task.await.unwrap();
    for metrics in [&first.metrics, &second.metrics] {
        assert_eq!(metrics.dead_letters(), 0, "no event is a dead letter");
        for _ in 0..metrics.duplicates.get() {
            stage.tally.add("repeated to the consumer");
        }
    }
}
