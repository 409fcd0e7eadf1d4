//! What a run has read of its app's entries, as it was then: compared when its effects are applied.

use std::collections::BTreeMap;

use symphony::lanes::triggers::executor::Read;

/// Of an entry that is read again, the first read counts: what the script did until then rests on it.
#[derive(Debug, Default)]
pub(super) struct Reads {
    keys: BTreeMap<String, Option<String>>,
    lists: Vec<Read>,
    /// Looked at, and not yet of any consequence.
    last: Option<(String, Option<String>)>,
}

impl Reads {
    /// An entry was looked at; `None` if it was not there.
    pub(super) fn looked(&mut self, key: &str, version: Option<String>) {
        self.last = Some((key.to_owned(), version));
    }

    /// What was looked at was the run's own.
    pub(super) fn forget_last(&mut self) {
        self.last = None;
    }

    /// What the script does from here on rests on what was looked at.
    pub(super) fn note_last(&mut self) {
        if let Some((key, version)) = self.last.take() {
            self.keys.entry(key).or_insert(version);
        }
    }

    pub(super) fn listed(
        &mut self,
        prefix: &str,
        after: Option<&str>,
        limit: u32,
        listing: String,
    ) {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        self.lists.push(Read::List { prefix, after, limit, listing });
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.keys.len().saturating_add(self.lists.len())
    }

    pub(super) fn take(&mut self) -> Vec<Read> {
        let keys = std::mem::take(&mut self.keys).into_iter();
        let keys = keys.map(|(key, version)| Read::Key { key, version });
        keys.chain(std::mem::take(&mut self.lists)).collect()
    }
}
