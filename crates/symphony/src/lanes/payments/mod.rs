//! The payment lane: items go to rails.

pub mod rail;
