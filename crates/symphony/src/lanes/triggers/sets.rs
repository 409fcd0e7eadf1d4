//! Which outcomes are written in one transaction. Those without effects all together; those with effects so that none of a
//! set writes an entry that another one writes or has read, because each must see what the other has done.

use std::collections::HashSet;
use std::sync::Arc;

use uuid::Uuid;

use super::contention::Turn;
use super::executor::{Effect, Read};
use super::unwritten::Unwritten;
use crate::db::{ClaimedTrigger, TriggerOutcome};
use crate::trace::{ItemTrace, TraceId};

/// At most this many with effects in one transaction: it holds their entries until it has ended.
const SET_MAX: usize = 64;

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
        Self {
            written: written.collect(),
            read: read.collect(),
            are_listed: reads.iter().any(|read| matches!(read, Read::List { .. })),
        }
    }
}

/// A set: its outcomes' places, and what they have to do with entries.
#[derive(Default)]
struct Set<'a> {
    places: Vec<usize>,
    written: HashSet<(Uuid, &'a str)>,
    read: HashSet<(Uuid, &'a str)>,
    /// Apps of which one lists keys, and those of which one writes.
    list: HashSet<Uuid>,
    write: HashSet<Uuid>,
}

impl<'a> Set<'a> {
    fn fits(&self, ended: &Ended) -> bool {
        let (app, entries) = (ended.app_id, &ended.entries);
        let writes_others = entries.written.iter().any(|key| {
            self.written.contains(&(app, key.as_str())) || self.read.contains(&(app, key.as_str()))
        });
        let reads_others =
            entries.read.iter().any(|key| self.written.contains(&(app, key.as_str())));
        let lists_others = entries.are_listed && self.write.contains(&app)
            || !entries.written.is_empty() && self.list.contains(&app);
        self.places.len() < SET_MAX && !writes_others && !reads_others && !lists_others
    }

    fn add(&mut self, place: usize, ended: &'a Ended) {
        let (app, entries) = (ended.app_id, &ended.entries);
        self.places.push(place);
        self.written.extend(entries.written.iter().map(|key| (app, key.as_str())));
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
/// would make it run once more.
pub(super) fn sets(ended: &[Ended], is_wanted: impl Fn(&Ended) -> bool) -> Vec<Vec<usize>> {
    let wanted = ended.iter().enumerate().filter(|(_, ended)| is_wanted(ended));
    let (plain, mut busy): (Vec<_>, Vec<_>) =
        wanted.partition(|(_, ended)| ended.outcome.effects.is_none());
    busy.sort_by_key(|(_, ended)| ended.reruns == 0);
    let mut sets: Vec<Set<'_>> = Vec::new();
    for (place, ended) in busy {
        if let Some(set) = sets.iter_mut().find(|set| set.fits(ended)) {
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
            trace_id: TraceId::of_item(app_id),
            trace: None,
        }
    }

    fn reading(reads: &[&str], are_listed: bool, ended: Ended) -> Ended {
        let read = reads.iter().map(|key| (*key).to_owned()).collect();
        Ended { entries: Entries { read, are_listed, ..ended.entries }, ..ended }
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
