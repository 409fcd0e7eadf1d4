//! Consumers: effects once, order within a key, dead letters, outages; with real brokers.

mod boundaries;
mod command;
mod effects;
pub mod ground;
mod inbox;
mod outages;
mod policies;
pub mod program;
