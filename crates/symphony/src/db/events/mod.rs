//! Events: what each role calls, and the types of it.

pub mod producer;

#[cfg(feature = "admin")]
pub(super) mod auditor;
#[cfg(feature = "admin")]
pub(super) mod operator;
#[cfg(feature = "worker")]
pub(super) mod worker;
