//! The `symphony` command.
//!
//! Layout, in reading order:
//! - [`cli`]: what can be asked, defined and validated in one place.
//! - [`commands`]: one module per command.
//! - [`server`]: which PostgreSQL a command talks to.
//! - [`private_postgres`]: the server Symphony runs itself when it is given none.
//! - [`output`]: tables for people, JSON for scripts, one clear line for errors.

pub mod cli;
pub mod commands;
pub mod output;
pub mod private_postgres;
pub mod server;
