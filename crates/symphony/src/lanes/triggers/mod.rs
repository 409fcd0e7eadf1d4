//! The trigger lane: requests, changes, ticks and messages become rows of one shape, and rows become runs of scripts.
//!
//! - [`executor`]: what runs scripts; adapters are in `symphony-connect`.

pub mod executor;
