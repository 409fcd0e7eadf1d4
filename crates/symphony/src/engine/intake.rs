//! Work that this process has written already leased to itself. No claim brought it, but it is held, carried out and
//! written down like a claim's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::clock::Moment;
use super::puller::{self, Outlet};
use super::{Clock, Lane, Shared, Stage};

/// Batches under way at once.
const BATCHES_MAX: usize = 4;
/// How often to look whether there is room again.
const LOOK_FOR_ROOM: Duration = Duration::from_millis(20);

/// What a batch is handed over with.
type Batch<W> = (Moment, Vec<W>);

/// The engine's end.
#[derive(Debug)]
pub struct Intake<W> {
    batches: mpsc::Receiver<Batch<W>>,
    open: Arc<AtomicBool>,
}

/// The writer's end.
#[derive(Debug)]
pub struct Handover<W> {
    batches: mpsc::Sender<Batch<W>>,
    open: Arc<AtomicBool>,
    clock: Clock,
}

/// The engine takes nothing at present, or never again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntakeClosed;

/// The right to hand over one batch. While it is held, the engine does not stop.
#[derive(Debug)]
pub struct Permit<W> {
    permit: mpsc::OwnedPermit<Batch<W>>,
    asked_at: Moment,
}

impl<W: Send> Intake<W> {
    /// Both ends.
    pub fn new() -> (Handover<W>, Self) {
        let (sender, receiver) = mpsc::channel(BATCHES_MAX);
        let open = Arc::new(AtomicBool::new(true));
        let handover = Handover { batches: sender, open: open.clone(), clock: Clock::default() };
        (handover, Self { batches: receiver, open })
    }
}

impl<W: Send> Handover<W> {
    /// Ask before anything is leased.
    pub fn permit(&self) -> Result<Permit<W>, IntakeClosed> {
        if !self.open.load(Ordering::Acquire) {
            return Err(IntakeClosed);
        }
        let asked_at = self.clock.now();
        let permit = self.batches.clone().try_reserve_owned().map_err(|_| IntakeClosed)?;
        Ok(Permit { permit, asked_at })
    }
}

impl<W> Permit<W> {
    /// These are leased to this process now.
    pub fn hand_over(self, works: Vec<W>) {
        self.permit.send((self.asked_at, works));
    }
}

/// Take up what comes in until the engine stops, and what was being written then.
pub(super) async fn take_up<L: Lane>(
    shared: Arc<Shared<L>>,
    mut intake: Intake<L::Work>,
    outlet: Outlet<L>,
    _pulling: watch::Receiver<()>,
) {
    let Some(group) = shared.groups.first() else { return };
    let mut stage = shared.stage.clone();
    loop {
        let is_open = intake.open.load(Ordering::Acquire);
        let batch = tokio::select! {
            biased;
            _ = stage.wait_for(|stage| *stage > Stage::Running), if !intake.batches.is_closed() => {
                // Batches that are being written have a permit, and still come.
                intake.open.store(false, Ordering::Release);
                intake.batches.close();
                continue;
            }
            batch = intake.batches.recv() => batch,
            () = tokio::time::sleep(LOOK_FOR_ROOM), if !is_open && !intake.batches.is_closed() => {
                intake.open.store(has_room(&shared), Ordering::Release);
                continue;
            }
        };
        let Some((asked_at, works)) = batch else { return };
        shared.room.take_all(works.len());
        group.held.fetch_add(works.len(), Ordering::AcqRel);
        puller::begin(&shared, 0, group, asked_at, works, &outlet);
        if !intake.batches.is_closed() {
            intake.open.store(has_room(&shared), Ordering::Release);
        }
    }
}

/// What is held is bounded, and nothing is begun while outcomes cannot be written.
fn has_room<L: Lane>(shared: &Shared<L>) -> bool {
    shared.room.free() > 0 && !shared.unwritten.load(Ordering::Acquire)
}
