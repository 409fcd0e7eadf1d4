//! The `symphony` command.
//!
//! Layout, in reading order:
//! - [`cli`]: what can be asked, defined and validated in one place.
//! - [`commands`]: one module per command.
//! - [`server`]: which PostgreSQL a command talks to.
//! - [`config`]: the documented defaults, and what lies over them.
//! - [`worker`]: one worker process; [`api`], the console and [`metrics`]: what it serves, behind the bounds of
//!   [`http_server`]; [`telemetry`]: what it logs; `traces`: what it tells a collector.
//! - [`kill_points`]: where chaos tests kill it. `bounds`: every bound of the crate.
//! - [`output`]: tables for people, JSON for scripts, one clear line for errors.

pub mod api;
pub mod apps;
mod bounds;
pub mod cli;
pub mod commands;
pub mod config;
mod console;
mod edit_distance;
pub mod http_server;
pub mod kill_points;
pub mod metrics;
pub mod output;
pub mod server;
pub mod telemetry;
#[cfg(feature = "otlp")]
pub mod traces;
pub mod worker;
