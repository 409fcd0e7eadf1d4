//! Ways to move money.
//!
//! - [`http`]: a rail for any provider that takes JSON over HTTP; everything about it is configuration.
//! - [`taxonomy`]: which code of a provider means which verdict.
//! - [`signature`]: how a request proves where it comes from.
//! - [`conformance`]: the claims every rail must keep, checked against a provider that misbehaves on purpose.

pub mod conformance;
pub mod http;
pub mod signature;
pub mod taxonomy;
