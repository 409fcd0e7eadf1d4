//! Every proof of the project, in one binary against one real PostgreSQL.
//!
//! A name is a claim. Each test has a database of its own, cloned from one template; time is set in the row,
//! never slept away. `scripts/test` runs this on every PostgreSQL it can get (15 and 18).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub
)]

mod support;

mod acts;
mod acts_commands;
mod app_commands;
mod apps;
mod attacks;
mod bad_input;
mod bench_command;
mod borders;
mod bounds;
mod buses;
mod busy_rails;
mod chaos;
mod claims;
mod client_certificates;
mod commands;
mod commits;
mod completions;
mod configurations;
mod conformance;
mod consumers;
mod dead_letters;
mod engine;
mod enqueue;
mod event_commands;
mod events;
mod events_end_to_end;
mod fifo;
mod fifo_acts;
mod house_rules;
mod incidents;
mod languages;
mod listeners;
mod losses;
mod messages;
mod migrations;
mod night;
mod outputs;
mod private_postgres;
mod privileges;
mod races;
mod rail_processes;
mod run_command;
mod sandbox_command;
mod schema;
mod scripts;
mod sessions;
mod tampering;
mod tour;
mod triggers;
mod wake_up;
mod webhooks;
