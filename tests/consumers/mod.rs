//! Consumers: effects once, order within a key, dead letters; with real brokers.

mod inbox;
