//! When to claim next, and how far to look. Pure: time comes in, a decision goes out.
//!
//! - A hint (NOTIFY) is followed at once by the **hint leader**, the one worker elected for it, and by workers that
//!   found something last time. The others leave it to them and poll: an enqueue wakes one of sixty-four idle
//!   workers, not sixty-four.
//! - Hints that arrive while a claim is running become one claim after it. After a hint that led to nothing the next
//!   is followed later, each time longer, up to a poll: anybody may send hints.
//! - A full batch claims again at once, from its watermark on; a full look happens at least every second.
//! - Polling finds whatever no hint announced.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

/// A full look is never older than this, however busy the worker is.
const FULL_LOOK_EVERY: Duration = Duration::from_secs(1);
/// A worker that is not the hint leader gathers hints this long when the last claim found less than it asked for.
pub(crate) const COALESCE: (Duration, Duration) =
    (Duration::from_millis(25), Duration::from_millis(50));

/// So often is the pause after a hint that led to nothing doubled, at most.
const DOUBLINGS_MAX: u32 = 5;

/// How far a claim looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Everything due: finds retries, late commits and what was released.
    Full,
    /// At or after this due time: below lie only traces of finished work.
    From(DateTime<Utc>),
}

/// What a claim brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClaimFound {
    pub(crate) asked: usize,
    pub(crate) got: usize,
    /// The due time of the last item.
    pub(crate) through: Option<DateTime<Utc>>,
    /// There is more that cannot be claimed yet.
    pub(crate) more_soon: bool,
    pub(crate) look: Look,
}

/// Decides when one group of one worker claims.
#[derive(Debug)]
pub(crate) struct Pacer {
    poll: (Duration, Duration),
    next_poll: Instant,
    /// An earlier claim than the poll.
    soon: Option<(Instant, Look)>,
    last_full_look: Option<Instant>,
    /// The last claim found something.
    hot: bool,
    watermark: Option<DateTime<Utc>>,
    /// The next claim is because of a hint.
    hinted: bool,
    /// Hints in a row that led to nothing, and until when the next has to wait.
    idle_hints: u32,
    hints_wait_until: Option<Instant>,
    /// Looks in a row after which there still was more that could not be claimed yet.
    early_looks: u32,
}

impl Pacer {
    pub(crate) fn new(now: Instant, poll: (Duration, Duration)) -> Self {
        Self {
            poll,
            next_poll: now,
            soon: None,
            last_full_look: None,
            hot: false,
            watermark: None,
            hinted: false,
            idle_hints: 0,
            hints_wait_until: None,
            early_looks: 0,
        }
    }

    /// Somebody committed work. `jitter` is any number.
    pub(crate) fn hint(&mut self, now: Instant, is_leader: bool, jitter: u64) {
        if is_leader {
            self.claim_by(self.hints_wait_until.map_or(now, |until| until.max(now)), Look::Full);
        } else if self.hot {
            self.claim_by(now + between(COALESCE, jitter), Look::Full);
        } else {
            return;
        }
        self.hinted = true;
    }

    /// A completion may have brought a successor forward; nobody is notified of those.
    pub(crate) fn successor(&mut self, now: Instant) {
        self.claim_by(now, self.watermark.map_or(Look::Full, Look::From));
    }

    /// A claim ended.
    pub(crate) fn claimed(&mut self, now: Instant, found: ClaimFound, jitter: u64) {
        self.soon = None;
        self.hot = found.got > 0;
        self.next_poll = now + between(self.poll, jitter);
        if found.got > 0 {
            self.idle_hints = 0;
            self.hints_wait_until = None;
        } else if self.hinted {
            let pause = between(COALESCE, jitter) * 2_u32.pow(self.idle_hints.min(DOUBLINGS_MAX));
            self.hints_wait_until = Some(now + pause.min(self.poll.0));
            self.idle_hints = self.idle_hints.saturating_add(1);
        }
        self.hinted = false;
        if found.look == Look::Full {
            self.last_full_look = Some(now);
            self.watermark = found.through;
        } else if found.through.is_some() {
            self.watermark = found.through;
        }
        self.early_looks =
            if found.more_soon && found.got == 0 { self.early_looks.saturating_add(1) } else { 0 };
        if found.got >= found.asked {
            let look = match self.watermark {
                Some(watermark) if !self.full_look_is_old(now) => Look::From(watermark),
                _ => Look::Full,
            };
            self.claim_by(now, look);
        } else if found.look != Look::Full && found.got > 0 {
            // The end of what lies above the watermark; retries and late commits may lie below.
            self.claim_by(now, Look::Full);
        } else if found.more_soon {
            let pause = between(COALESCE, jitter) * 2_u32.pow(self.early_looks.min(DOUBLINGS_MAX));
            self.claim_by(now + pause.min(self.poll.0), Look::Full);
        }
    }

    /// A claim failed: the database is away.
    pub(crate) fn failed(&mut self, now: Instant, jitter: u64) {
        self.soon = None;
        self.next_poll = now + between(self.poll, jitter);
        // The queue may have changed meanwhile: look at all of it.
        self.watermark = None;
        self.last_full_look = None;
    }

    /// When the next claim is due.
    pub(crate) fn wakes_at(&self) -> Instant {
        self.soon.map_or(self.next_poll, |(at, _)| at.min(self.next_poll))
    }

    /// How far it looks.
    pub(crate) fn look(&self, now: Instant) -> Look {
        match self.soon {
            Some((at, look)) if at <= now && !self.full_look_is_old(now) => look,
            _ => Look::Full,
        }
    }

    fn claim_by(&mut self, at: Instant, look: Look) {
        self.soon = Some(match self.soon {
            None => (at, look),
            // The earlier time, and the wider look.
            Some((planned, Look::Full)) => (planned.min(at), Look::Full),
            Some((planned, Look::From(_))) => (planned.min(at), look),
        });
    }

    fn full_look_is_old(&self, now: Instant) -> bool {
        self.last_full_look.is_none_or(|at| now.saturating_duration_since(at) >= FULL_LOOK_EVERY)
    }
}

/// A length of time between two, chosen by a number.
pub(crate) fn between((from, to): (Duration, Duration), jitter: u64) -> Duration {
    let span = u64::try_from(to.saturating_sub(from).as_micros()).unwrap_or(u64::MAX - 1);
    from + Duration::from_micros(jitter % (span + 1))
}

/// Whether it is worth a claim now: idle calls always are; otherwise wait until a quarter is free, because a
/// claim of three costs nearly as much as one of a hundred.
pub(crate) fn worth_claiming(
    held: usize,
    concurrency_max: usize,
    room: usize,
    capacity: usize,
) -> bool {
    room > 0 && (held < concurrency_max || room.saturating_mul(4) >= capacity)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const POLL: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));
    type Event = fn(&mut Pacer, Instant);
    const MS: Duration = Duration::from_millis(1);

    fn due(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).unwrap()
    }

    fn found(asked: usize, got: usize, look: Look) -> ClaimFound {
        ClaimFound { asked, got, through: (got > 0).then(|| due(100)), more_soon: false, look }
    }

    /// A pacer whose last claim, a full look at `now`, brought this.
    fn after(now: Instant, asked: usize, got: usize) -> Pacer {
        let mut pacer = Pacer::new(now, POLL);
        pacer.claimed(now, found(asked, got, Look::Full), 0);
        pacer
    }

    #[test]
    fn the_first_claim_is_a_full_look_at_once() {
        let now = Instant::now();
        let pacer = Pacer::new(now, POLL);
        assert_eq!((pacer.wakes_at(), pacer.look(now)), (now, Look::Full));
    }

    #[test]
    fn what_the_next_claim_is_after_what_happened() {
        let now = Instant::now();
        let nothing: Event = |_, _| {};
        let hint_leading: Event = |pacer, now| pacer.hint(now, true, 0);
        let hint_other: Event = |pacer, now| pacer.hint(now, false, 0);
        let successor: Event = |pacer, now| pacer.successor(now);
        //  the last claim | what happens        | next claim after | looking
        for (asked, got, event, wait, look) in [
            (500, 500, nothing, Duration::ZERO, Look::From(due(100))),
            (500, 499, nothing, 250 * MS, Look::Full),
            (500, 0, nothing, 250 * MS, Look::Full),
            (500, 0, hint_leading, Duration::ZERO, Look::Full),
            (500, 9, hint_leading, Duration::ZERO, Look::Full),
            (500, 0, hint_other, 250 * MS, Look::Full),
            (500, 9, hint_other, 25 * MS, Look::Full),
            (500, 9, successor, Duration::ZERO, Look::From(due(100))),
            (500, 0, successor, Duration::ZERO, Look::Full),
            (500, 500, hint_leading, Duration::ZERO, Look::Full),
        ] {
            let mut pacer = after(now, asked, got);
            event(&mut pacer, now);
            let case = format!("asked {asked}, got {got}, then after {wait:?}");
            assert_eq!(pacer.wakes_at() - now, wait, "{case}");
            assert_eq!(pacer.look(pacer.wakes_at()), look, "{case}");
        }
    }

    #[test]
    fn hints_of_strangers_are_paced_and_an_honest_one_is_followed_at_once_again() {
        let start = Instant::now();
        let mut pacer = after(start, 500, 0);
        let mut claims = 0;
        // A hint every millisecond, for ten seconds, and never any work.
        for step in 1..=10_000u32 {
            let now = start + step * MS;
            pacer.hint(now, true, u64::from(step));
            if pacer.wakes_at() <= now {
                claims += 1;
                pacer.claimed(now, found(500, 0, pacer.look(now)), 0);
            }
        }
        assert!((36..=50).contains(&claims), "{claims} claims in ten seconds");
        // Once it is quiet, the next one is followed at once.
        let now = start + 11_000 * MS;
        pacer.claimed(start + 10_700 * MS, found(500, 0, Look::Full), 600_000);
        pacer.hint(now, true, 0);
        assert_eq!(pacer.wakes_at(), now);
        // A hint that led to work resets the pause.
        pacer.claimed(now, found(500, 3, Look::Full), 0);
        pacer.hint(now, true, 0);
        assert_eq!(pacer.wakes_at(), now);
    }

    #[test]
    fn a_busy_worker_still_takes_a_full_look_every_second() {
        let start = Instant::now();
        let mut pacer = after(start, 10, 10);
        let mut full_looks = 0;
        for step in 1..=3_000u32 {
            let now = start + step * MS;
            let look = pacer.look(now);
            full_looks += usize::from(look == Look::Full);
            pacer.claimed(now, found(10, 10, look), 0);
        }
        assert_eq!(full_looks, 3);
    }

    #[test]
    fn the_end_of_a_watermarked_run_is_followed_by_a_full_look() {
        let now = Instant::now();
        let mut pacer = after(now, 10, 10);
        pacer.claimed(now, found(10, 4, Look::From(due(100))), 0);
        assert_eq!((pacer.wakes_at(), pacer.look(now)), (now, Look::Full));
    }

    #[test]
    fn a_failed_claim_waits_for_a_poll_and_forgets_its_watermark() {
        let now = Instant::now();
        let mut pacer = after(now, 10, 10);
        pacer.failed(now, 0);
        assert_eq!(pacer.wakes_at() - now, 250 * MS);
        pacer.successor(now);
        assert_eq!(pacer.look(now), Look::Full);
    }

    #[test]
    fn what_cannot_be_claimed_yet_is_looked_for_soon_and_then_less_often() {
        let now = Instant::now();
        let mut pacer = Pacer::new(now, POLL);
        let more = |got| ClaimFound { more_soon: true, ..found(500, got, Look::Full) };
        let mut waits = Vec::new();
        for got in [3, 0, 0, 0, 0, 0, 3] {
            pacer.claimed(now, more(got), 0);
            waits.push(pacer.wakes_at() - now);
        }
        assert_eq!(waits, [25 * MS, 50 * MS, 100 * MS, 200 * MS, 250 * MS, 250 * MS, 25 * MS]);
    }

    #[test]
    fn jitter_stays_between_its_bounds() {
        for jitter in [0, 1, 749_999, 750_000, 750_001, u64::MAX] {
            let wait = between(POLL, jitter);
            assert!(wait >= POLL.0 && wait <= POLL.1, "{jitter}: {wait:?}");
        }
        assert_eq!(between((MS, MS), 17), MS);
    }

    #[test]
    fn small_claims_wait_for_company_unless_calls_are_idle() {
        //  held, concurrency, room, capacity | worth it
        for (held, concurrency, room, capacity, worth) in [
            (0, 100, 200, 200, true),
            (99, 100, 101, 200, true),
            (100, 100, 100, 200, true),
            (160, 100, 40, 200, false),
            (150, 100, 50, 200, true),
            (200, 100, 0, 200, false),
            (0, 100, 0, 200, false),
            (0, 1, 1, 2, true),
        ] {
            assert_eq!(
                worth_claiming(held, concurrency, room, capacity),
                worth,
                "{held} held of {capacity}"
            );
        }
    }
}
