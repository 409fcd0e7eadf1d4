//! Workers paused past their leases, one at a time.

use std::time::{Duration, Instant};

use super::dice::Dice;
use super::director::{LEASE_SECONDS, Run};
use super::relay::About;

/// A worker that has lived so long is at work.
const AT_WORK: Duration = Duration::from_millis(700);

enum State {
    /// Until then everybody works.
    Until(Instant),
    /// This one is to be paused, at the next opportunity.
    Meant { worker: usize, length: Duration, anywhere: bool },
    /// This one is paused, until then.
    Paused { worker: usize, until: Instant },
}

pub struct Pauses(State);

impl Pauses {
    pub fn new(dice: &mut Dice) -> Self {
        Self(State::Until(Instant::now() + dice.duration_ms(1_000, 4_000)))
    }

    /// Do what is due.
    pub fn direct(&mut self, run: &Run, dice: &mut Dice) {
        let now = Instant::now();
        match self.0 {
            State::Until(next) if now >= next => {
                let worker =
                    usize::try_from(dice.between(0, run.fleet.workers.len() as u64 - 1)).unwrap();
                let lease_ms = LEASE_SECONDS * 1000;
                let length = dice.duration_ms(lease_ms + 300, lease_ms + 2_500);
                // With an outcome in its hand, with a fresh claim, or at any moment.
                let relay = &run.fleet.workers[worker].relay;
                let anywhere = match dice.between(1, 100) {
                    1..=60 => {
                        relay.pause_at(About::Complete);
                        false
                    }
                    61..=80 => {
                        relay.pause_at(About::Claim);
                        false
                    }
                    _ => true,
                };
                self.0 = State::Meant { worker, length, anywhere };
            }
            State::Meant { worker, length, anywhere } => {
                let process = &run.fleet.workers[worker].process;
                // One that has just started holds nothing yet.
                if anywhere && process.age().is_some_and(|age| age > AT_WORK) {
                    process.pause();
                }
                if process.is_paused() {
                    run.unpaused_since.send_replace(None);
                    self.0 = State::Paused { worker, until: now + length };
                }
            }
            State::Paused { worker, until } if now >= until => {
                if run.fleet.workers[worker].process.resume() {
                    run.tally.add("pause survived");
                }
                run.unpaused_since.send_replace(Some(now));
                self.0 = State::Until(now + dice.duration_ms(1_500, 5_000));
            }
            State::Until(_) | State::Paused { .. } => {}
        }
    }
}
