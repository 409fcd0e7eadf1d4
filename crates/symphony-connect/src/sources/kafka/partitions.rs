//! What a consumer has of its partitions: which are its own, what is in hand, and how far each is done. Pure.
//!
//! A partition is done up to the first record that is not: what is behind it may be applied already and comes again
//! after a restart, and the inbox knows it.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::time::Instant;

use rdkafka::message::OwnedHeaders;
use symphony::consumer::Delivery;
use symphony::event::envelope::Restored;

/// The partitions of one topic that are this process's.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    owned: BTreeMap<i32, Partition>,
    /// Counts assignments, so that a receipt of an earlier one is known for what it is.
    epoch: u64,
    /// Fetched, and not handed out yet.
    fetched: VecDeque<Delivery>,
    /// Left by the loop, to be handed out again from then on.
    left: Vec<(Instant, Delivery)>,
    joined: bool,
}

#[derive(Debug)]
struct Partition {
    epoch: u64,
    /// It is being given away: nothing more is handed out, what is in hand is finished.
    leaving: bool,
    /// Everything there is was fetched.
    at_end: bool,
    records: BTreeMap<i64, Record>,
    /// Everything before is done.
    done_to: Option<i64>,
    committed: Option<i64>,
}

#[derive(Debug)]
struct Record {
    fate: Fate,
    /// For its dead letter, as the headers are.
    key: Option<Vec<u8>>,
    headers: Option<OwnedHeaders>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Waiting,
    InHand,
    Done,
}

/// A record as it was fetched.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) key: Option<Vec<u8>>,
    pub(super) headers: Option<OwnedHeaders>,
    pub(super) restored: Restored,
}

impl Partitions {
    /// These are ours from now on. There may be none, if others have them all.
    pub(super) fn assign(&mut self, partitions: &[i32]) {
        self.joined = true;
        self.epoch += 1;
        for id in partitions {
            let partition = Partition {
                epoch: self.epoch,
                leaving: false,
                at_end: false,
                records: BTreeMap::new(),
                done_to: None,
                committed: None,
            };
            self.owned.insert(*id, partition);
        }
    }

    /// These are to be given away: what is not in hand yet never will be.
    pub(super) fn begin_leaving(&mut self, partitions: &[i32]) {
        for id in partitions {
            if let Some(partition) = self.owned.get_mut(id) {
                partition.leaving = true;
            }
        }
        self.drop_waiting(partitions);
    }

    /// They are another's now.
    pub(super) fn lose(&mut self, partitions: &[i32]) {
        self.drop_waiting(partitions);
        for id in partitions {
            self.owned.remove(id);
        }
    }

    fn drop_waiting(&mut self, partitions: &[i32]) {
        let stays = |delivery: &Delivery| {
            Receipt::of(delivery).is_some_and(|receipt| !partitions.contains(&receipt.partition))
        };
        self.fetched.retain(stays);
        self.left.retain(|(_, delivery)| stays(delivery));
    }

    /// How many records of these are in hand.
    pub(super) fn in_hand(&self, partitions: &[i32]) -> usize {
        let of = |id: &i32| {
            let records = self.owned.get(id).map(|partition| partition.records.values());
            records.into_iter().flatten().filter(|record| record.fate == Fate::InHand).count()
        };
        partitions.iter().map(of).sum()
    }

    /// A record came. One of a partition that is not ours any more is passed over.
    pub(super) fn fetch(&mut self, topic: &str, record: Fetched) {
        let Some(partition) = self.owned.get_mut(&record.partition) else { return };
        if partition.leaving {
            return;
        }
        partition.at_end = false;
        let receipt =
            Receipt { partition: record.partition, offset: record.offset, epoch: partition.epoch };
        let group = record.key.clone().and_then(|key| String::from_utf8(key).ok());
        let tracked = Record { fate: Fate::Waiting, key: record.key, headers: record.headers };
        partition.records.insert(record.offset, tracked);
        self.fetched.push_back(Delivery {
            receipt: receipt.to_string(),
            message_id: format!("{topic}:{}:{}", record.partition, record.offset),
            group,
            order: u128::try_from(record.offset).unwrap_or(0),
            // Kafka does not count.
            receives: 1,
            position: record.restored.position,
            body: record.restored.body,
            defect: record.restored.defect,
        });
    }

    /// Everything that this partition has was fetched.
    pub(super) fn reach_end(&mut self, partition: i32) {
        if let Some(partition) = self.owned.get_mut(&partition) {
            partition.at_end = true;
        }
    }

    /// Up to so many, those that were left first. A group is passed over as long as one of it has to wait.
    pub(super) fn take(&mut self, max: usize, now: Instant) -> Vec<Delivery> {
        let (mut due, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.left).into_iter().partition(|(at, _)| *at <= now);
        due.sort_by_key(|(_, delivery)| delivery.order);
        let held_back: HashSet<String> =
            waiting.iter().filter_map(|(_, delivery)| delivery.group.clone()).collect();
        let mut taken = Vec::new();
        self.left = waiting;
        for (at, delivery) in due {
            if taken.len() < max {
                taken.push(delivery);
            } else {
                self.left.push((at, delivery));
            }
        }
        // One that did not fit is still before what was fetched after it.
        let held_back: HashSet<String> = held_back
            .into_iter()
            .chain(self.left.iter().filter_map(|(_, delivery)| delivery.group.clone()))
            .collect();
        let mut rest = VecDeque::with_capacity(self.fetched.len());
        while let Some(delivery) = self.fetched.pop_front() {
            let waits = delivery.group.as_ref().is_some_and(|group| held_back.contains(group));
            if waits || taken.len() >= max {
                rest.push_back(delivery);
            } else {
                taken.push(delivery);
            }
        }
        self.fetched = rest;
        for delivery in &taken {
            self.set(delivery, Fate::InHand);
        }
        taken
    }

    /// When the next that was left is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.left.iter().map(|(at, _)| *at).min()
    }

    /// Never again. `false`: it is another's to say.
    pub(super) fn acknowledge(&mut self, delivery: &Delivery) -> bool {
        self.set(delivery, Fate::Done)
    }

    /// Again, not before then. One of a partition that is being given away comes to its next owner.
    pub(super) fn leave(&mut self, delivery: &Delivery, at: Instant) {
        let stays = self.record(delivery).is_some_and(|partition| !partition.leaving);
        if self.set(delivery, Fate::Waiting) && stays {
            self.left.push((at, delivery.clone()));
        }
    }

    /// It is in hand, and nobody waits for it to be given away.
    pub(super) fn is_ours(&self, delivery: &Delivery) -> bool {
        self.record(delivery).is_some_and(|partition| !partition.leaving)
    }

    /// Its key and headers, for its dead letter. `None`: it is another's.
    pub(super) fn original(
        &self,
        delivery: &Delivery,
    ) -> Option<(Option<Vec<u8>>, Option<OwnedHeaders>)> {
        let receipt = Receipt::of(delivery)?;
        let record = self.record(delivery)?.records.get(&receipt.offset)?;
        Some((record.key.clone(), record.headers.clone()))
    }

    /// What is done and not committed yet: partitions, and the first offset that is not done.
    pub(super) fn take_commits(&mut self) -> Vec<(i32, i64)> {
        let mut found = Vec::new();
        for (id, partition) in &mut self.owned {
            while let Some(first) = partition.records.first_entry() {
                if first.get().fate != Fate::Done {
                    break;
                }
                partition.done_to = Some(first.key() + 1);
                first.remove();
            }
            if let Some(done_to) = partition.done_to
                && partition.committed != Some(done_to)
            {
                partition.committed = Some(done_to);
                found.push((*id, done_to));
            }
        }
        found
    }

    /// The last commit failed: it is to be repeated.
    pub(super) fn forget_commits(&mut self) {
        for partition in self.owned.values_mut() {
            partition.committed = None;
        }
    }

    /// Fetched and not handed out.
    pub(super) fn waiting(&self) -> usize {
        self.fetched.len()
    }

    /// Records that are not committed, or behind one that is not.
    pub(super) fn tracked(&self) -> usize {
        self.owned.values().map(|partition| partition.records.len()).sum()
    }

    /// The group has spoken.
    pub(super) fn is_member(&self) -> bool {
        self.joined
    }

    /// Which assignment it is.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Why "nothing was received" would not mean that there is nothing.
    pub(super) fn unsettled(&self) -> Option<String> {
        if !self.joined {
            return Some("the group has given no partitions yet".to_owned());
        }
        let unread = self.owned.iter().filter(|(_, partition)| !partition.at_end);
        let unread: BTreeSet<_> = unread.map(|(id, _)| id.to_string()).collect();
        let names = unread.into_iter().collect::<Vec<_>>().join(", ");
        (!names.is_empty()).then(|| format!("nothing comes from partitions {names}"))
    }

    fn record(&self, delivery: &Delivery) -> Option<&Partition> {
        let receipt = Receipt::of(delivery)?;
        let partition = self.owned.get(&receipt.partition)?;
        let known = partition.epoch == receipt.epoch;
        (known && partition.records.contains_key(&receipt.offset)).then_some(partition)
    }

    fn set(&mut self, delivery: &Delivery, fate: Fate) -> bool {
        let Some(receipt) = Receipt::of(delivery) else { return false };
        let partition = self.owned.get_mut(&receipt.partition);
        let partition = partition.filter(|partition| partition.epoch == receipt.epoch);
        let Some(record) = partition.and_then(|it| it.records.get_mut(&receipt.offset)) else {
            return false;
        };
        record.fate = fate;
        if fate == Fate::Done {
            (record.key, record.headers) = (None, None);
        }
        true
    }
}

/// `PARTITION:OFFSET:EPOCH`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Receipt {
    partition: i32,
    offset: i64,
    epoch: u64,
}

impl Receipt {
    fn of(delivery: &Delivery) -> Option<Self> {
        let mut parts = delivery.receipt.split(':');
        Some(Self {
            partition: parts.next()?.parse().ok()?,
            offset: parts.next()?.parse().ok()?,
            epoch: parts.next()?.parse().ok()?,
        })
    }
}

impl std::fmt::Display for Receipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.partition, self.offset, self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn partitions(records: &[(i32, i64, &str)]) -> Partitions {
        let mut partitions = Partitions::default();
        partitions.assign(&[0, 1]);
        for (partition, offset, key) in records {
            let record = Fetched {
                partition: *partition,
                offset: *offset,
                key: Some(key.as_bytes().to_vec()),
                headers: None,
                restored: Restored { body: Vec::new(), position: None, defect: None },
            };
            partitions.fetch("t", record);
        }
        partitions
    }

    fn offsets(found: &[Delivery]) -> Vec<u128> {
        found.iter().map(|delivery| delivery.order).collect()
    }

    #[test]
    fn a_partition_is_done_up_to_its_first_record_that_is_not() {
        let mut all = partitions(&[(0, 5, "a"), (0, 6, "b"), (0, 9, "c"), (1, 3, "d")]);
        let found = all.take(10, Instant::now());
        assert_eq!(all.take_commits(), []);
        for (place, commits) in
            [(1, vec![]), (3, vec![(1, 4)]), (0, vec![(0, 7)]), (2, vec![(0, 10)])]
        {
            assert!(found.get(place).is_some_and(|delivery| all.acknowledge(delivery)));
            assert_eq!(all.take_commits(), commits, "after {place}");
        }
        all.forget_commits();
        assert_eq!(all.take_commits(), [(0, 10), (1, 4)], "a commit that failed is repeated");
        assert_eq!(all.tracked(), 0);
    }

    #[test]
    fn what_is_given_away_is_finished_and_nothing_of_it_is_begun() {
        let mut all = partitions(&[(0, 1, "a"), (0, 2, "b"), (0, 3, "c"), (1, 1, "d")]);
        let found = all.take(2, Instant::now());
        all.begin_leaving(&[0]);
        assert_eq!(all.in_hand(&[0]), 2);
        assert!(found.iter().all(|delivery| !all.is_ours(delivery)));
        assert_eq!(offsets(&all.take(10, Instant::now())), [1], "of the other partition only");
        let [first, second] = found.as_slice() else { return assert_eq!(found.len(), 2) };
        assert!(all.acknowledge(first), "what is in hand may still be finished");
        all.leave(second, Instant::now());
        assert_eq!(all.in_hand(&[0]), 0);
        assert_eq!(all.take_commits(), [(0, 2)], "the one that was left comes to the next owner");
        all.lose(&[0]);
        assert!(!all.acknowledge(second), "it is another's");
        all.assign(&[0]);
        assert!(!all.acknowledge(second), "and it was of an earlier assignment");
    }

    #[test]
    fn what_was_left_comes_again_when_it_is_due_and_its_group_waits_for_it() {
        let mut all = partitions(&[(0, 1, "a"), (0, 2, "a"), (0, 3, "b")]);
        let now = Instant::now();
        let later = now + Duration::from_secs(9);
        for delivery in all.take(1, now) {
            all.leave(&delivery, later);
        }
        assert_eq!(offsets(&all.take(10, now)), [3], "the second of a waits for the first");
        assert_eq!(all.next_due(), Some(later));
        assert_eq!(offsets(&all.take(10, later)), [1, 2]);
    }

    #[test]
    fn nothing_received_means_that_there_is_nothing_only_once_every_end_was_reached() {
        let mut all = Partitions::default();
        assert!(all.unsettled().is_some_and(|why| why.contains("no partitions yet")));
        all.assign(&[0, 1]);
        all.reach_end(0);
        assert!(all.unsettled().is_some_and(|why| why.ends_with("partitions 1")));
        all.reach_end(1);
        assert_eq!(all.unsettled(), None);
        let mut none = Partitions::default();
        none.assign(&[]);
        assert_eq!(none.unsettled(), None, "others have them all");
    }
}
