//! Consumers: effects once, order within a key, dead letters; with real brokers.

mod boundaries;
mod command;
mod effects;
pub mod ground;
mod inbox;
