//! What one process remembers of messages that it gave back. Nothing here is needed for effects to happen once.

use std::collections::HashMap;

/// At most this many messages are remembered; then all are forgotten, and their tries begin anew.
const REMEMBERED_MAX: usize = 10_000;

/// What this process knows of a message's past.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Past {
    /// Tries that failed here. Whether a delivery that this process has not seen led to a try nobody knows: events
    /// never tried must not pay for restarts, so such count towards the ceiling of all deliveries only.
    pub(super) failed: u32,
    /// Deliveries seen here.
    pub(super) deliveries: u32,
}

/// The pasts of messages that were given back, by the bus's id of them.
#[derive(Debug, Default)]
pub(super) struct Memory(HashMap<String, Past>);

impl Memory {
    pub(super) fn remember(&mut self, message_id: &str, past: Past) {
        if self.0.len() >= REMEMBERED_MAX {
            self.0.clear();
        }
        self.0.insert(message_id.to_owned(), past);
    }

    /// It is back: what was remembered of it is now kept with it.
    pub(super) fn recall(&mut self, message_id: &str) -> Past {
        self.0.remove(message_id).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_back_is_remembered_until_it_is_back() {
        let mut memory = Memory::default();
        let past = Past { failed: 2, deliveries: 3 };
        memory.remember("a", past);
        assert_eq!(memory.recall("a"), past);
        assert_eq!(memory.recall("a"), Past::default());
    }
}
