//! How far a stop has come. Stages only go up; a task that dies raises the last one.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

/// How far a stop has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Running,
    /// No more claims; what is in flight may end.
    Draining,
    /// Time is up.
    Stopping,
    /// A task of the engine died: no more claims, no more renewals; what is held comes back through its lease.
    Broken,
}

/// A task of the engine: if it ends while the engine runs, or panics at any time, the engine is broken. A worker
/// that is half alive would claim what it cannot complete, or renew for ever what nobody works on.
pub(super) async fn watched(
    name: &'static str,
    task: BoxFuture<'static, ()>,
    stage: watch::Sender<Stage>,
    stopping: Arc<AtomicBool>,
) {
    let panicked = AssertUnwindSafe(task).catch_unwind().await.is_err();
    if panicked || *stage.borrow() == Stage::Running {
        stopping.store(true, Ordering::Release);
        raise(&stage, Stage::Broken);
        tracing::error!(
            group = name,
            event = "ENGINE_BROKEN",
            "a task of the engine died: nothing more is claimed, and what is held comes back when its leases expire"
        );
    }
}

/// Stages only go up.
pub(super) fn raise(stage: &watch::Sender<Stage>, to: Stage) {
    stage.send_if_modified(|now| {
        let higher = *now < to;
        *now = to.max(*now);
        higher
    });
}
