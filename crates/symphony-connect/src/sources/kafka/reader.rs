//! The thread that belongs to one consumer of Kafka: it fetches, commits, and takes part in the group.
//!
//! It never stops asking, whatever the loop does: a consumer that does not ask for some minutes is taken for dead, and
//! its partitions go to others. While there is enough in hand it asks for nothing but news of the group.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::client::OAuthToken;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedHeaders, BorrowedMessage, Headers as _, Message as _};
use rdkafka::topic_partition_list::TopicPartitionListElem;
use rdkafka::{ClientContext, Offset, Statistics, TopicPartitionList};
use symphony::event::envelope::{Binding, restore};
use tokio::sync::Notify;

use super::partitions::{Fetched, Partitions};
use crate::bounds::kafka::{FETCHED_MAX, POLL_INTERVAL, UNCOMMITTED_MAX};
use crate::kafka::KafkaContext;

/// What the thread and the loop share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    partitions: Mutex<Partitions>,
    /// Something in hand was finished.
    finished: Condvar,
    /// Something came, or the group has changed.
    pub(super) news: Notify,
    stopping: AtomicBool,
    trouble: Mutex<Option<String>>,
}

impl Shared {
    pub(super) fn partitions(&self) -> MutexGuard<'_, Partitions> {
        self.partitions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever waits for partitions to be free is told.
    pub(super) fn finished(&self) {
        self.finished.notify_all();
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.finished.notify_all();
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// What the last error said, if nothing has come since.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// Wait until nothing of these is in hand, or for so long.
    fn wait_for(&self, partitions: &[i32], within: Duration) {
        let until = Instant::now() + within;
        let mut state = self.partitions();
        while state.in_hand(partitions) > 0 && !self.is_stopping() {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return };
            let waited = self.finished.wait_timeout(state, left);
            state = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
    }
}

/// Takes part in the group.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) context: KafkaContext,
    pub(super) shared: Arc<Shared>,
    pub(super) topic: String,
    /// How long what is in hand may take before its partition is given away all the same.
    pub(super) revoke_wait: Duration,
}

impl ClientContext for Member {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: RDKafkaLogLevel, fac: &str, message: &str) {
        self.context.log(level, fac, message);
    }

    fn stats(&self, _: Statistics) {}

    fn error(&self, error: KafkaError, reason: &str) {
        self.shared.set_trouble(Some(reason.to_owned()));
        self.context.error(error, reason);
    }

    fn generate_oauth_token(
        &self,
        config: Option<&str>,
    ) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        self.context.generate_oauth_token(config)
    }
}

impl ConsumerContext for Member {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(list) => {
                self.shared.partitions().assign(&ids(list));
            }
            // Another may have them already: there is nothing to wait for.
            Rebalance::Revoke(list) if consumer.assignment_lost() => {
                self.shared.partitions().lose(&ids(list));
            }
            Rebalance::Revoke(list) => {
                let ids = ids(list);
                self.shared.partitions().begin_leaving(&ids);
                self.shared.wait_for(&ids, self.revoke_wait);
                store(consumer, &self.shared, &self.topic);
                self.shared.partitions().lose(&ids);
            }
            Rebalance::Error(error) => self.shared.set_trouble(Some(error.to_string())),
        }
        self.shared.news.notify_waiters();
    }
}

fn ids(list: &TopicPartitionList) -> Vec<i32> {
    list.elements().iter().map(TopicPartitionListElem::partition).collect()
}

/// Until it is told to stop; then what is done is committed and the group is left.
#[allow(clippy::needless_pass_by_value)] // the group is left when it is dropped here, at the end
pub(super) fn read(consumer: BaseConsumer<Member>, shared: &Shared, topic: &str) {
    let (mut paused_at, mut store_at) = (None, Instant::now());
    while !shared.is_stopping() {
        pace(&consumer, shared, &mut paused_at);
        match consumer.poll(POLL_INTERVAL) {
            Some(Ok(message)) => {
                shared.set_trouble(None);
                shared.partitions().fetch(topic, fetched(&message));
                shared.news.notify_waiters();
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                shared.partitions().reach_end(partition);
                shared.news.notify_waiters();
            }
            Some(Err(error)) if shared.trouble().is_none() => {
                shared.set_trouble(Some(error.to_string()));
            }
            Some(Err(_)) | None => {}
        }
        if Instant::now() >= store_at {
            store(&consumer, shared, topic);
            store_at = Instant::now() + POLL_INTERVAL;
        }
    }
    store(&consumer, shared, topic);
}

/// Ask for no more while there is enough: all that is assigned is paused, what is assigned meanwhile as well.
fn pace(consumer: &BaseConsumer<Member>, shared: &Shared, paused_at: &mut Option<u64>) {
    let (full, epoch) = {
        let state = shared.partitions();
        let full = state.waiting() >= FETCHED_MAX || state.tracked() >= UNCOMMITTED_MAX;
        (full, state.epoch())
    };
    let wanted = full.then_some(epoch);
    if *paused_at == wanted {
        return;
    }
    let Ok(assigned) = consumer.assignment() else { return };
    let done = if full { consumer.pause(&assigned) } else { consumer.resume(&assigned) };
    if done.is_ok() {
        *paused_at = wanted;
    }
}

/// The consumer commits it, soon or before the partition is given away.
fn store(consumer: &BaseConsumer<Member>, shared: &Shared, topic: &str) {
    let done = shared.partitions().take_commits();
    if done.is_empty() {
        return;
    }
    let mut list = TopicPartitionList::new();
    let mut stored = true;
    for (partition, offset) in done {
        stored &= list.add_partition_offset(topic, partition, Offset::Offset(offset)).is_ok();
    }
    stored &= consumer.store_offsets(&list).is_ok();
    if !stored {
        shared.partitions().forget_commits();
    }
}

fn fetched(message: &BorrowedMessage<'_>) -> Fetched {
    let payload = message.payload().unwrap_or_default();
    let named = message.headers().into_iter().flat_map(|headers| headers.iter());
    let named =
        named.filter_map(|header| Some((header.key, std::str::from_utf8(header.value?).ok()?)));
    let restored = restore(Binding::Kafka, named, payload.to_vec());
    // A dead letter is written in our own envelope, which other headers would contradict.
    let unchanged = restored.body == payload;
    Fetched {
        partition: message.partition(),
        offset: message.offset(),
        key: message.key().map(<[u8]>::to_vec),
        headers: message.headers().filter(|_| unchanged).map(BorrowedHeaders::detach),
        restored,
    }
}
