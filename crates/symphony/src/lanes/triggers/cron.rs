//! When cron triggers are due. Any process may fire a tick; the database lets one do so.

use std::str::FromStr as _;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use croner::Cron;

use crate::db::{DbError, DueTick, Worker};

/// At most this many ticks in one look.
const TICKS_MAX: i64 = 500;
/// How often to look.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// When to look again at a schedule that cannot be read.
const UNREADABLE_FOR: TimeDelta = TimeDelta::hours(1);

/// A cron expression in its time zone.
#[derive(Debug, Clone)]
pub struct Schedule {
    cron: Cron,
    zone: Tz,
}

/// A schedule that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadSchedule(String);

impl Schedule {
    /// Read five fields (minute, hour, day, month, weekday) or six (second first), or a name such as `@daily`.
    pub fn parse(expression: &str, time_zone: &str) -> Result<Self, BadSchedule> {
        let zone = time_zone.parse().map_err(|_| {
            BadSchedule("timeZone is not known: give a name such as Europe/Berlin".to_owned())
        })?;
        let cron = Cron::from_str(expression).map_err(|error| {
            BadSchedule(format!(
                "filter is not a cron expression such as '0 9 * * MON-FRI': {error}"
            ))
        })?;
        Ok(Self { cron, zone })
    }

    /// The first tick after a moment; `None` if there is none (the 30th of February).
    pub fn next_after(&self, moment: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let next = self.cron.find_next_occurrence(&moment.with_timezone(&self.zone), false).ok()?;
        let next = next.with_timezone(&Utc);
        (next > moment).then_some(next)
    }
}

/// What to do about a due tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    /// Fire it, or only set the clock.
    fire: bool,
    next: DateTime<Utc>,
}

/// How long after its time a tick still counts as kept; later it was missed.
const KEPT_WITHIN: TimeDelta = TimeDelta::seconds(60);

/// Decide what to do about a tick: pure, so that it can be tested as a table.
fn step(due: &DueTick) -> Step {
    let never = due.now + TimeDelta::days(36_500);
    let Ok(schedule) = Schedule::parse(&due.expression, &due.time_zone) else {
        return Step { fire: false, next: due.now + UNREADABLE_FOR };
    };
    let Some(tick_at) = due.tick_at else {
        return Step { fire: false, next: schedule.next_after(due.now).unwrap_or(never) };
    };
    if due.catch_up || due.now - tick_at <= KEPT_WITHIN {
        return Step { fire: true, next: schedule.next_after(tick_at).unwrap_or(never) };
    }
    // Missed: skip the ticks in the past, and fire the next one at its time.
    Step { fire: false, next: schedule.next_after(due.now).unwrap_or(never) }
}

/// Fires cron triggers. Any number of processes may run one: the database lets each tick be fired once.
#[derive(Debug)]
pub struct Ticker {
    worker: Worker,
}

impl Ticker {
    /// A ticker on this database.
    pub fn new(worker: Worker) -> Self {
        Self { worker }
    }

    /// Fire whatever is due; answers how many ticks this process fired.
    pub async fn fire_due(&self) -> Result<usize, DbError> {
        let mut fired = 0;
        for due in self.worker.due_ticks(TICKS_MAX).await? {
            let Step { fire, next } = step(&due);
            let first = self.worker.fire_cron_tick(due.trigger_id, due.tick_at, next, fire).await?;
            fired += usize::from(first && fire);
        }
        Ok(fired)
    }

    /// Fire for ever.
    pub async fn run(self) {
        loop {
            if let Err(error) = self.fire_due().await {
                tracing::warn!(lane = "triggers", code = error.code(), %error, "cron triggers were not looked at");
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn due(expression: &str, zone: &str, tick: Option<&str>, now: &str, catch_up: bool) -> DueTick {
        DueTick {
            trigger_id: uuid::Uuid::nil(),
            expression: expression.to_owned(),
            time_zone: zone.to_owned(),
            catch_up,
            tick_at: tick.map(at),
            now: at(now),
        }
    }

    #[test]
    fn ticks_are_kept_in_their_own_time_zone_also_when_its_clock_is_changed() {
        for (expression, zone, after, next) in [
            ("0 9 * * *", "Europe/Berlin", "2026-03-28T08:00:00Z", "2026-03-29T07:00:00Z"),
            ("0 9 * * *", "Europe/Berlin", "2026-10-24T07:00:00Z", "2026-10-25T08:00:00Z"),
            ("0 9 * * *", "America/New_York", "2026-11-15T12:00:00Z", "2026-11-15T14:00:00Z"),
            ("*/5 * * * *", "UTC", "2026-11-15T12:00:00Z", "2026-11-15T12:05:00Z"),
            ("0 0 29 2 *", "UTC", "2026-11-15T12:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 12 * * MON-FRI", "UTC", "2026-11-13T12:00:00Z", "2026-11-16T12:00:00Z"),
        ] {
            let schedule = Schedule::parse(expression, zone).unwrap();
            assert_eq!(schedule.next_after(at(after)), Some(at(next)), "{expression} {zone}");
        }
    }

    #[test]
    fn a_schedule_that_cannot_be_read_is_refused_in_words() {
        for (expression, zone) in
            [("every day", "UTC"), ("61 * * * *", "UTC"), ("", "UTC"), ("* * * * *", "Mars/Base")]
        {
            assert!(Schedule::parse(expression, zone).is_err(), "{expression} {zone}");
        }
    }

    #[test]
    fn a_missed_tick_is_fired_or_left_out_as_the_trigger_says() {
        let cases = [
            // Never set: no tick yet.
            (
                due("0 * * * *", "UTC", None, "2026-11-15T12:30:00Z", false),
                false,
                "2026-11-15T13:00:00Z",
            ),
            // In time.
            (
                due(
                    "0 * * * *",
                    "UTC",
                    Some("2026-11-15T12:00:00Z"),
                    "2026-11-15T12:00:01Z",
                    false,
                ),
                true,
                "2026-11-15T13:00:00Z",
            ),
            // Hours late.
            (
                due(
                    "0 * * * *",
                    "UTC",
                    Some("2026-11-15T09:00:00Z"),
                    "2026-11-15T12:30:00Z",
                    false,
                ),
                false,
                "2026-11-15T13:00:00Z",
            ),
            (
                due("0 * * * *", "UTC", Some("2026-11-15T09:00:00Z"), "2026-11-15T12:30:00Z", true),
                true,
                "2026-11-15T10:00:00Z",
            ),
            // Unreadable.
            (
                due("nonsense", "UTC", Some("2026-11-15T09:00:00Z"), "2026-11-15T12:30:00Z", true),
                false,
                "2026-11-15T13:30:00Z",
            ),
        ];
        for (due, fire, next) in cases {
            assert_eq!(step(&due), Step { fire, next: at(next) }, "{due:?}");
        }
    }
}
