//! Which outcomes are written in one transaction. Those without effects all together; those with effects so that none of a
//! set writes an entry that another one has read or compared, because each must see what the other has done. Writes that
//! depend on nothing are applied in order whatever they are, so a hot counter costs one commit for many.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use uuid::Uuid;

use super::contention::Turn;
use super::executor::{Effect, Read};
use super::slots::Slot;
use super::unwritten::Unwritten;
use crate::db::{ClaimedTrigger, TriggerOutcome};
use crate::trace::{ItemTrace, TraceId};

/// At most this many with effects in one transaction: it holds their entries until it has ended.
const SET_MAX: usize = 64;
/// At most so many sets of a batch have outcomes of one app: other apps' wait behind them.
const SETS_PER_APP_MAX: usize = 8;

/// A run that has ended, to be written down.
#[derive(Debug)]
pub struct Ended {
    pub(super) outcome: TriggerOutcome,
    pub(super) app_id: Uuid,
    /// What its run has to do with its app's entries.
    pub(super) entries: Entries,
    /// It was written already leased: a crash of the server may have taken its row.
    pub(super) is_request: bool,
    /// It ran before it was written.
    pub(super) unwritten: Option<Arc<Unwritten>>,
    /// To run it again.
    pub(super) item: Arc<ClaimedTrigger>,
    /// How often it has been run again.
    pub(super) reruns: u32,
    /// Something of it has left the process.
    pub(super) has_left: bool,
    /// If it was run again: the others of its app wait until this is written.
    pub(super) turn: Option<Turn>,
    /// While it is left for the next batch, so that its app begins less.
    pub(super) slot: Mutex<Option<Slot>>,
    pub(super) trace_id: TraceId,
    pub(super) trace: Option<Arc<ItemTrace>>,
}

/// Keys of an app's entries.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pub(super) written: Vec<String>,
    pub(super) read: Vec<String>,
    /// It has listed keys: any new one may be among them.
    pub(super) are_listed: bool,
    /// It has read and compared nothing: what it writes does not depend on what is there.
    pub(super) is_blind: bool,
}

impl Entries {
    pub(super) fn new(effects: &[Effect], reads: &[Read]) -> Self {
        let written = effects.iter().filter_map(|effect| match effect {
            Effect::KvSet { key, .. }
            | Effect::KvDelete { key }
            | Effect::KvIncrement { key, .. }
            | Effect::KvSetIfAbsent { key, .. }
            | Effect::KvCompareAndSet { key, .. } => Some(key.clone()),
            Effect::QueueSend { .. }
            | Effect::PubsubPublish { .. }
            | Effect::EventPublish { .. }
            | Effect::EmailSend { .. } => None,
        });
        let read = reads.iter().filter_map(|read| match read {
            Read::Key { key, .. } => Some(key.clone()),
            Read::List { .. } => None,
        });
        let compares = effects.iter().any(|effect| {
            matches!(effect, Effect::KvSetIfAbsent { .. } | Effect::KvCompareAndSet { .. })
        });
        Self {
            written: written.collect(),
            read: read.collect(),
            are_listed: reads.iter().any(|read| matches!(read, Read::List { .. })),
            is_blind: reads.is_empty() && !compares,
        }
    }
}

/// A set: its outcomes' places, and what they have to do with entries.
#[derive(Default)]
struct Set<'a> {
    places: Vec<usize>,
    /// Whether all who write it are blind.
    written: HashMap<(Uuid, &'a str), bool>,
    read: HashSet<(Uuid, &'a str)>,
    apps: HashSet<Uuid>,
    /// Apps of which one lists keys, and those of which one writes.
    list: HashSet<Uuid>,
    write: HashSet<Uuid>,
}

impl<'a> Set<'a> {
    fn fits(&self, ended: &Ended) -> bool {
        let (app, entries) = (ended.app_id, &ended.entries);
        let writes_others = entries.written.iter().any(|key| {
            let key = (app, key.as_str());
            let others_are_blind = self.written.get(&key);
            self.read.contains(&key)
                || others_are_blind.is_some_and(|are_blind| !(*are_blind && entries.is_blind))
        });
        let reads_others =
            entries.read.iter().any(|key| self.written.contains_key(&(app, key.as_str())));
        let lists_others = entries.are_listed && self.write.contains(&app)
            || !entries.written.is_empty() && self.list.contains(&app);
        self.places.len() < SET_MAX && !writes_others && !reads_others && !lists_others
    }

    fn add(&mut self, place: usize, ended: &'a Ended) {
        let (app, entries) = (ended.app_id, &ended.entries);
        self.places.push(place);
        self.apps.insert(app);
        let blind = entries.is_blind;
        self.written.extend(entries.written.iter().map(|key| ((app, key.as_str()), blind)));
        self.read.extend(entries.read.iter().map(|key| (app, key.as_str())));
        if entries.are_listed {
            self.list.insert(app);
        }
        if !entries.written.is_empty() {
            self.write.insert(app);
        }
    }
}

/// The places of the outcomes of each set, in the order in which the sets are written. What was run again comes before what
/// would make it run once more. What is in none of them is left for the next batch.
pub(super) fn sets(ended: &[Ended], is_wanted: impl Fn(&Ended) -> bool) -> Vec<Vec<usize>> {
    let wanted = ended.iter().enumerate().filter(|(_, ended)| is_wanted(ended));
    let (plain, mut busy): (Vec<_>, Vec<_>) =
        wanted.partition(|(_, ended)| ended.outcome.effects.is_none());
    busy.sort_by_key(|(_, ended)| ended.reruns == 0);
    let mut sets: Vec<Set<'_>> = Vec::new();
    let mut sets_of: HashMap<Uuid, usize> = HashMap::new();
    for (place, ended) in busy {
        let sets_of_app = sets_of.entry(ended.app_id).or_default();
        let found = sets.iter_mut().find(|set| set.fits(ended));
        let is_in_it = found.as_ref().is_some_and(|set| set.apps.contains(&ended.app_id));
        if !is_in_it && *sets_of_app == SETS_PER_APP_MAX {
            continue;
        }
        *sets_of_app += usize::from(!is_in_it);
        if let Some(set) = found {
            set.add(place, ended);
        } else {
            let mut set = Set::default();
            set.add(place, ended);
            sets.push(set);
        }
    }
    let plain: Vec<usize> = plain.into_iter().map(|(place, _)| place).collect();
    let plain = (!plain.is_empty()).then_some(plain);
    plain.into_iter().chain(sets.into_iter().map(|set| set.places)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;
    use sqlx::types::Json;

    use super::*;
    use crate::db::{TriggerLease, TriggerState};
    use crate::domain::LeaseToken;

    fn ended(app: u128, writes: &[&str], has_effects: bool) -> Ended {
        let (id, lease_token) = (Uuid::nil(), LeaseToken(Uuid::nil()));
        let mut outcome =
            TriggerOutcome::new(TriggerLease { id, lease_token }, TriggerState::Dispatched);
        outcome.effects = has_effects.then(|| RawValue::NULL.to_owned());
        let app_id = Uuid::from_u128(app);
        let item = ClaimedTrigger {
            id,
            lease_token,
            app_id,
            source_kind: "queue".to_owned(),
            trigger_id: None,
            script_id: None,
            reply_to: None,
            payload: Json(RawValue::NULL.to_owned()),
            origin_principal: None,
            principal: None,
            trigger_depth: 0,
            root_execution_id: id,
            attempt_count: 0,
            next_attempt_at: chrono::DateTime::UNIX_EPOCH,
            created_at: chrono::DateTime::UNIX_EPOCH,
            traceparent: None,
            parent_execution_id: None,
        };
        let written = writes.iter().map(|key| (*key).to_owned()).collect();
        let entries = Entries { written, ..Entries::default() };
        let item = Arc::new(item);
        Ended {
            outcome,
            app_id,
            entries,
            is_request: false,
            unwritten: None,
            item,
            reruns: 0,
            has_left: false,
            turn: None,
            slot: Mutex::default(),
            trace_id: TraceId::of_item(app_id),
            trace: None,
        }
    }

    fn reading(reads: &[&str], are_listed: bool, ended: Ended) -> Ended {
        let read = reads.iter().map(|key| (*key).to_owned()).collect();
        Ended { entries: Entries { read, are_listed, ..ended.entries }, ..ended }
    }

    fn blind(ended: Ended) -> Ended {
        Ended { entries: Entries { is_blind: true, ..ended.entries }, ..ended }
    }

    fn all_sets(ended: &[Ended]) -> Vec<Vec<usize>> {
        sets(ended, |_| true)
    }

    #[test]
    fn no_two_of_a_set_write_the_same_entry() {
        let all = [
            ended(1, &[], false),
            ended(1, &["a", "b"], true),
            ended(1, &["b"], true),
            ended(2, &["b"], true),
            ended(1, &["c"], true),
            ended(1, &["a"], true),
            ended(1, &[], true),
            ended(1, &[], false),
        ];
        assert_eq!(all_sets(&all), [vec![0, 7], vec![1, 3, 4, 6], vec![2, 5]]);
    }

    #[test]
    fn none_of_a_set_writes_what_another_has_read() {
        let all = [
            reading(&["x"], false, ended(1, &["y"], true)),
            reading(&["y"], false, ended(1, &["x"], true)),
            reading(&["x"], false, ended(1, &["z"], true)),
            reading(&["y"], false, ended(2, &["x"], true)),
            reading(&[], true, ended(1, &["w"], true)),
            ended(1, &["v"], true),
        ];
        assert_eq!(all_sets(&all), [vec![0, 2, 3, 5], vec![1], vec![4]]);
    }

    #[test]
    fn writes_of_one_entry_that_depend_on_nothing_share_a_set() {
        let all = [
            blind(ended(1, &["n"], true)),
            blind(ended(1, &["n", "m"], true)),
            ended(1, &["n"], true),
            blind(ended(1, &["m"], true)),
            ended(1, &["k"], true),
            blind(ended(1, &["k"], true)),
            reading(&["m"], false, ended(1, &["l"], true)),
        ];
        assert_eq!(all_sets(&all), [vec![0, 1, 3, 4], vec![2, 5, 6]]);
        let effect = |compares: bool| {
            let (key, by) = ("n".to_owned(), 1);
            if compares {
                let value = RawValue::NULL.to_owned();
                return Effect::KvSetIfAbsent { key, value, ttl_seconds: None };
            }
            Effect::KvIncrement { key, by, ttl_seconds: None }
        };
        let read = Read::Key { key: "m".to_owned(), version: None };
        assert!(Entries::new(&[effect(false)], &[]).is_blind);
        assert!(!Entries::new(&[effect(false), effect(true)], &[]).is_blind);
        assert!(!Entries::new(&[effect(false)], &[read]).is_blind);
    }

    #[test]
    fn of_one_app_so_many_sets_are_written_and_the_rest_is_left_for_the_next_batch() {
        let mut all: Vec<Ended> = (0..50).map(|_| ended(1, &["n"], true)).collect();
        all.push(ended(2, &["n"], true));
        all.push(ended(1, &["m"], true));
        let sets = all_sets(&all);
        assert_eq!(sets.len(), SETS_PER_APP_MAX);
        assert_eq!(sets.first(), Some(&vec![0, 50, 51]), "other apps are in the first");
        assert_eq!(sets.iter().map(Vec::len).sum::<usize>(), SETS_PER_APP_MAX + 2);
    }

    #[test]
    fn what_was_run_again_is_written_first() {
        let all = [
            ended(1, &["a"], true),
            Ended { reruns: 1, ..ended(1, &["a"], true) },
            ended(1, &[], false),
        ];
        assert_eq!(all_sets(&all), [vec![2], vec![1], vec![0]]);
        assert_eq!(sets(&all, |ended| ended.reruns == 0), [vec![2], vec![0]]);
    }

    #[test]
    fn a_set_is_bounded() {
        let all: Vec<Ended> = (0..=SET_MAX).map(|_| ended(1, &[], true)).collect();
        assert_eq!(all_sets(&all).iter().map(Vec::len).collect::<Vec<_>>(), [SET_MAX, 1]);
    }
}
