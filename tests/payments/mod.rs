//! The payment lane: its contract in the database, its commands, and proofs that nothing is paid twice or lost.

mod acts;
mod bad_input;
mod borders;
mod busy_rails;
pub mod chaos;
mod claims;
mod commands;
mod commits;
mod completions;
mod dead_letters;
mod enqueue;
mod fifo;
mod fifo_acts;
mod incidents;
mod night;
mod races;
mod rail_processes;
mod wake_up;
