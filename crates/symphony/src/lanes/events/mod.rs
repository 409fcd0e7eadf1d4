//! The event lane: facts committed with their state go to a bus, in order within their key.

pub mod bus;
