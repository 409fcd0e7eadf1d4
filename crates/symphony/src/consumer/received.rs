//! An event as it arrived.

use crate::event::Event;

/// An event as it arrived.
#[derive(Debug, Clone)]
pub struct Received {
    /// The event, checked.
    pub event: Event,
    /// Its place in the producer's log, if the message says so: within a key, a lower one is older.
    pub position: Option<i64>,
    /// How often the bus has delivered it or it was tried again in hand, this time included.
    pub receives: u32,
}
