//! The signature of every database function Rust calls, and the statement that calls it.
//!
//! Which ones is said in `calls.txt`; the build reads each signature out of `sql/functions/`. Arguments are passed by name,
//! in the order of the declaration; results are named columns. A test compares each with the live catalog.

/// A function of the public contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Its name in Symphony's schema.
    pub function: &'static str,
    /// Its arguments, as `pg_get_function_arguments` prints them.
    pub arguments: &'static str,
    /// Its result, as `pg_get_function_result` prints it.
    pub result: &'static str,
    /// The statement that calls it.
    pub sql: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/calls.rs"));
