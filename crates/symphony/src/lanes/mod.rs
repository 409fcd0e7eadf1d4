//! What each lane means by claim, dispatch and complete. The engine knows none of this.

pub mod events;
pub mod payments;
pub mod triggers;
