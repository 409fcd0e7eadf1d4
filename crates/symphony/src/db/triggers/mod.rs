//! Triggers: what each role calls, and the types of it.

pub mod producer;

#[cfg(feature = "admin")]
pub(super) mod app_data;
#[cfg(feature = "admin")]
pub(super) mod auditor;
#[cfg(feature = "worker")]
pub(super) mod leased_requests;
#[cfg(feature = "admin")]
pub(super) mod operator;
#[cfg(feature = "worker")]
pub(super) mod retention;
#[cfg(any(feature = "admin", feature = "worker"))]
pub(super) mod sealed;
#[cfg(feature = "worker")]
pub(super) mod worker;
