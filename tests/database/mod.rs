//! What all lanes share in the database: installing it, who may do what, what was tampered with or lost.

mod attacks;
mod bounds;
mod losses;
mod migrations;
mod plans;
mod private_postgres;
mod privileges;
mod schema;
mod schemas;
pub mod sessions;
mod tables;
mod tampering;
