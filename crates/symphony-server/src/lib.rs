//! The `symphony` command.
//!
//! Layout, in reading order:
//! - [`cli`]: what can be asked, defined and validated in one place.
//! - [`commands`]: one module per command.
//! - [`server`]: which PostgreSQL a command talks to.
//! - [`private_postgres`]: the server Symphony runs itself when it is given none.
//! - [`config`]: the documented defaults, and what lies over them.
//! - [`worker`]: one worker process; [`api`] and [`metrics`]: what it serves, behind the bounds of [`http_server`];
//!   [`telemetry`]: what it logs.
//! - [`kill_points`]: where chaos tests kill it.
//! - [`output`]: tables for people, JSON for scripts, one clear line for errors.

pub mod api;
pub mod apps;
pub mod cli;
pub mod commands;
pub mod config;
pub mod http_server;
pub mod kill_points;
pub mod manage;
pub mod metrics;
pub mod output;
pub mod private_postgres;
pub mod server;
pub mod telemetry;
pub mod worker;
