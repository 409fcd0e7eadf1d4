//! Claims about the source itself. Each publishes its own messages, and receives as one process or as two.

use std::sync::Arc;
use std::time::Duration;

use symphony::consumer::{DeadLetterReason, Delivery, ReasonCode, Source};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::{Condition, Probe, Published, Report};
use crate::rails::conformance::{Ruling, Stop, require};

/// How much longer than it must take something may take: brokers look at the clock now and then.
pub(super) const GRACE: Duration = Duration::from_secs(10);
/// A visibility that nobody can wait for.
const LONG: Duration = Duration::from_mins(1);
/// How long a claim looks for what must not come.
const LOOK: Duration = Duration::from_millis(500);

pub(super) async fn all(probe: &dyn Probe, report: &mut Report) {
    let trial = Trial { probe };
    report.add("its terms have limits that can be kept", trial.terms().await);
    report.add("an empty source says so", trial.empty().await);
    report.add("a message arrives whole", trial.arrives_whole().await);
    report.add("messages of one key are delivered in their order", trial.order().await);
    report.add("what was acknowledged never comes again", trial.acknowledged().await);
    report.add("what a lost process held comes again", trial.lost_process().await);
    report.add("what is extended stays hidden from others", trial.extended().await);
    report.add("what was left comes again at once", trial.left().await);
    report.add("what was left with a delay does not come before", trial.left_with_delay().await);
    report
        .add("a dead letter is found with its reason and comes no more", trial.dead_letter().await);
    report.add("dead letters are counted, or said to be unknown", trial.counted().await);
    report.add("what a lost process hides is not acknowledged, and counted", trial.hidden().await);
    report.add("later messages of a group wait for the first, if promised", trial.group().await);
    report.add("a receive that is dropped while it waits loses nothing", trial.dropped().await);
    report.add("a broker that is down is an error and not an empty source", trial.down().await);
    report.add("the same source works again when the broker is back", trial.back_again().await);
}

pub(super) struct Trial<'a> {
    pub(super) probe: &'a dyn Probe,
}

impl Trial<'_> {
    async fn terms(&self) -> Ruling {
        let source = self.fresh().await;
        let terms = source.terms();
        require(!terms.visibility.is_zero(), "the visibility is zero")?;
        require(terms.batch_max >= 1, "a call takes nothing")?;
        require(terms.held_max >= terms.batch_max, "a batch is more than may be in hand")?;
        require(terms.broker_receives_max != Some(0), "the broker gives up at once")
    }

    async fn empty(&self) -> Ruling {
        let source = self.fresh().await;
        let found = receive(&*source, 1).await?;
        require(found.is_empty(), "a message that nobody published")
    }

    async fn arrives_whole(&self) -> Ruling {
        let source = self.fresh().await;
        let messages = [published("ключ: two words", 7), published("b", 8)];
        self.probe.publish(&messages).await;
        let found = receive_all(&*source, 2).await?;
        for message in &messages {
            let arrived = found.iter().find(|one| one.body == message.body.as_bytes());
            let arrived = arrived.ok_or_else(|| failed("a body is not as it was published"))?;
            require(arrived.position == Some(message.position), "the position is another")?;
            require(arrived.receives == 1, format!("{} receives at first", arrived.receives))?;
            require(source.is_ours(arrived), "a message in hand is not ours")?;
        }
        let [one, other] = found.as_slice() else { return Err(failed("not two messages")) };
        require(one.message_id != other.message_id, "two messages with one id")?;
        acknowledge_all(&*source, &found).await
    }

    async fn order(&self) -> Ruling {
        let source = self.fresh().await;
        let messages: Vec<_> = (1..=20).map(|position| published("order", position)).collect();
        self.probe.publish(&messages).await;
        let mut positions = Vec::new();
        while positions.len() < messages.len() {
            let found = receive_all(&*source, 1).await?;
            positions.extend(found.iter().filter_map(|one| one.position));
            acknowledge_all(&*source, &found).await?;
        }
        let expected: Vec<_> = (1..=20).collect();
        require(positions == expected, format!("delivered {positions:?}"))
    }

    async fn acknowledged(&self) -> Ruling {
        let source = self.fresh().await;
        require_short_visibility(&*source)?;
        self.probe.publish(&[published("once", 1)]).await;
        let found = receive_all(&*source, 1).await?;
        acknowledge_all(&*source, &found).await?;
        let over = Instant::now() + source.terms().visibility * 2;
        while Instant::now() < over {
            require(receive(&*source, 1).await?.is_empty(), "it came again")?;
        }
        Ok(())
    }

    async fn lost_process(&self) -> Ruling {
        let lost = self.fresh().await;
        require_short_visibility(&*lost)?;
        self.probe.publish(&[published("lost", 1), published("lost", 2)]).await;
        let held = receive_all(&*lost, 1).await?;
        drop(lost);
        let next = self.probe.open().await;
        let again = receive_all(&*next, 1).await?;
        let same =
            again.first().map(|one| &one.message_id) == held.first().map(|one| &one.message_id);
        require(same, "what comes again is not what was held first, or has another id")?;
        acknowledge_all(&*next, &again).await
    }

    async fn extended(&self) -> Ruling {
        let source = self.fresh().await;
        require_short_visibility(&*source)?;
        self.probe.publish(&[published("hidden", 1)]).await;
        let held: Vec<_> = receive_all(&*source, 1).await?.into_iter().map(Arc::new).collect();
        // Afterwards: of a group's members only one may get it at all.
        let other = self.probe.open().await;
        let visibility = source.terms().visibility;
        let over = Instant::now() + visibility * 2;
        while Instant::now() < over {
            source.extend(&held).await.map_err(trouble)?;
            let look = timeout(visibility / 4, other.receive(1)).await;
            let seen = look.is_ok_and(|found| found.is_ok_and(|found| !found.is_empty()));
            let ours = held.iter().all(|one| source.is_ours(one));
            require(!seen || !ours, "another process received it")?;
        }
        for one in &held {
            source.acknowledge(one).await.map_err(trouble)?;
        }
        Ok(())
    }

    async fn left(&self) -> Ruling {
        let source = self.fresh().await;
        self.probe.publish(&[published("left", 1), published("left", 2)]).await;
        let found = receive_all(&*source, 1).await?;
        for one in &found {
            source.leave(one, Duration::ZERO).await.map_err(trouble)?;
        }
        let started = Instant::now();
        let again = receive_all(&*source, found.len()).await?;
        require(started.elapsed() < GRACE, format!("it came after {:?}", started.elapsed()))?;
        let positions: Vec<_> = again.iter().filter_map(|one| one.position).collect();
        let mut sorted = positions.clone();
        sorted.sort_unstable();
        require(positions.first() == Some(&1) && positions == sorted, "in another order")?;
        acknowledge_all(&*source, &again).await
    }

    async fn left_with_delay(&self) -> Ruling {
        let source = self.fresh().await;
        self.probe.publish(&[published("delayed", 1)]).await;
        let found = receive_all(&*source, 1).await?;
        let delay = Duration::from_secs(2);
        for one in &found {
            source.leave(one, delay).await.map_err(trouble)?;
        }
        let started = Instant::now();
        let again = receive_all(&*source, 1).await?;
        let waited = started.elapsed();
        // The broker counts from when it heard of it.
        require(waited + LOOK >= delay, format!("it came after {waited:?}"))?;
        acknowledge_all(&*source, &again).await
    }

    async fn dead_letter(&self) -> Ruling {
        let source = self.fresh().await;
        let messages = [published("dead", 1), published("dead", 2)];
        self.probe.publish(&messages).await;
        let found = receive_all(&*source, 1).await?;
        let first = found.first().ok_or_else(|| failed("nothing came"))?;
        let reason =
            DeadLetterReason { code: ReasonCode::Rejected, message: "two\nlines".to_owned() };
        source.dead_letter(first, &reason).await.map_err(trouble)?;
        let letters = self.probe.dead_letters().await;
        let expected = messages.first().map(|message| message.body.clone()).unwrap_or_default();
        let there: Vec<_> = letters.iter().filter(|letter| letter.body == expected).collect();
        require(there.len() == 1, format!("{} dead letters of it", there.len()))?;
        require(
            there.iter().all(|letter| letter.reason == "REJECTED"),
            format!("the reason is {letters:?}"),
        )?;
        // The next of its key comes, and it does not.
        for one in found.iter().skip(1) {
            source.leave(one, Duration::ZERO).await.map_err(trouble)?;
        }
        let next = receive_all(&*source, 1).await?;
        let next_body = next.first().map(|one| one.body.clone());
        let second = messages.get(1).map(|message| message.body.clone().into_bytes());
        require(next_body == second, "the next of its key did not come")?;
        acknowledge_all(&*source, &next).await
    }

    async fn counted(&self) -> Ruling {
        let source = self.fresh().await;
        let counted = source.dead_letters_waiting().await.map_err(trouble)?;
        if counted.is_none() {
            return Err(Stop::NotApplicable("it says that it cannot tell".to_owned()));
        }
        require(counted == Some(0), format!("{counted:?} before there was one"))?;
        self.probe.publish(&[published("counted", 1)]).await;
        let found = receive_all(&*source, 1).await?;
        let reason = DeadLetterReason { code: ReasonCode::Poison, message: String::new() };
        for one in &found {
            source.dead_letter(one, &reason).await.map_err(trouble)?;
        }
        let counted = source.dead_letters_waiting().await.map_err(trouble)?;
        require(counted == Some(1), format!("{counted:?} after one"))
    }

    async fn hidden(&self) -> Ruling {
        let lost = self.fresh().await;
        require_short_visibility(&*lost)?;
        let count = async |source: &dyn Source| source.unacknowledged().await.map_err(trouble);
        let Some(before) = count(&*lost).await? else {
            return Err(Stop::NotApplicable("it says that nothing is ever hidden".to_owned()));
        };
        require(before == 0, format!("{before} before there was one"))?;
        self.probe.publish(&[published("hidden", 1)]).await;
        receive_all(&*lost, 1).await?;
        drop(lost);
        let next = self.probe.open().await;
        let counted = count(&*next).await?;
        require(counted == Some(1), format!("{counted:?} while it is hidden"))?;
        let again = receive_all(&*next, 1).await?;
        acknowledge_all(&*next, &again).await?;
        let counted = count(&*next).await?;
        require(counted == Some(0), format!("{counted:?} after it was acknowledged"))
    }

    async fn group(&self) -> Ruling {
        let (source, other) = (self.fresh().await, self.probe.open().await);
        if !source.terms().keeps_group_order {
            return Err(Stop::NotApplicable(
                "the broker does not promise it: the loop sees to it".to_owned(),
            ));
        }
        self.probe.publish(&[published("group", 1), published("group", 2)]).await;
        let found = receive(&*source, 1).await?;
        require(found.len() == 1, format!("{} messages for one asked for", found.len()))?;
        let seen = receive(&*other, 10).await?;
        require(
            seen.is_empty(),
            "another process received the second while the first was in hand",
        )?;
        acknowledge_all(&*source, &found).await?;
        let next = receive_all(&*other, 1).await?;
        acknowledge_all(&*other, &next).await
    }

    async fn dropped(&self) -> Ruling {
        let source = self.fresh().await;
        require_short_visibility(&*source)?;
        for position in 1..=3 {
            // Whether the call had taken it already nobody knows.
            let cut_off = timeout(Duration::from_millis(50), source.receive(1)).await;
            require(cut_off.is_err() || position > 1, "a message that nobody published")?;
            if let Ok(Ok(found)) = cut_off {
                acknowledge_all(&*source, &found).await?;
            }
            self.probe.publish(&[published("dropped", position)]).await;
        }
        let started = Instant::now();
        let mut last = None;
        while last != Some(3) {
            require(started.elapsed() < source.terms().visibility + GRACE, "not all of them came")?;
            let found = receive(&*source, 1).await?;
            last = found.last().and_then(|one| one.position).or(last);
            acknowledge_all(&*source, &found).await?;
        }
        Ok(())
    }

    async fn down(&self) -> Ruling {
        let source = self.fresh().await;
        self.make(Condition::Down).await?;
        let found = receive(&*source, 1).await;
        self.make(Condition::Well).await?;
        require(found.is_err(), "it says that there is nothing")
    }

    async fn back_again(&self) -> Ruling {
        let source = self.fresh().await;
        self.probe.publish(&[published("back", 1)]).await;
        self.make(Condition::Down).await?;
        // A client that fetches ahead may have it already.
        let mut found = receive(&*source, 1).await.unwrap_or_default();
        self.make(Condition::Well).await?;
        if found.is_empty() {
            found = receive_all(&*source, 1).await?;
        }
        acknowledge_all(&*source, &found).await
    }

    // --- the words claims are written in ---

    /// A source, and a queue in which there is nothing.
    pub(super) async fn fresh(&self) -> Arc<dyn Source> {
        self.probe.clear().await;
        self.probe.open().await
    }

    async fn make(&self, condition: Condition) -> Ruling {
        if self.probe.make(condition).await {
            Ok(())
        } else {
            Err(Stop::NotApplicable("the probe cannot make it so".to_owned()))
        }
    }
}

/// So many at least; errors are passed over, a connection in doubt may be noticed late.
pub(super) async fn receive_all(source: &dyn Source, count: usize) -> Result<Vec<Delivery>, Stop> {
    let limit = source.terms().visibility.min(LONG) * 2 + GRACE;
    let started = Instant::now();
    let mut found = Vec::new();
    while found.len() < count {
        if started.elapsed() > limit {
            return Err(failed(&format!("{} of {count} came within {limit:?}", found.len())));
        }
        match receive(source, source.terms().batch_max).await {
            Ok(some) => found.extend(some),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    Ok(found)
}

async fn acknowledge_all(source: &dyn Source, found: &[Delivery]) -> Ruling {
    for one in found {
        source.acknowledge(one).await.map_err(trouble)?;
    }
    Ok(())
}

/// Claims that wait for a whole visibility need one that ends.
pub(super) fn require_short_visibility(source: &dyn Source) -> Ruling {
    if source.terms().visibility > LONG {
        return Err(Stop::NotApplicable("its visibility is too long to wait for".to_owned()));
    }
    Ok(())
}

/// One call; it must not take for ever.
async fn receive(source: &dyn Source, max: usize) -> Result<Vec<Delivery>, Stop> {
    match timeout(LONG, source.receive(max)).await {
        Ok(found) => found.map_err(trouble),
        Err(_elapsed) => Err(failed("a receive did not end within a minute")),
    }
}

#[allow(clippy::needless_pass_by_value)] // for map_err
pub(super) fn trouble(error: symphony::consumer::SourceError) -> Stop {
    failed(&error.message)
}

pub(super) fn failed(why: &str) -> Stop {
    Stop::Failed(why.to_owned())
}

/// An event with this place in the log.
pub(super) fn published(key: &str, position: i64) -> Published {
    let body = serde_json::json!({
        "envelope": {
            "v": 1,
            "eventId": Uuid::new_v4(),
            "occurredAt": "2026-01-01T00:00:00Z",
            "tenantId": "tnt_conformance",
            "type": "events.conformance.checked",
        },
        "key": { "name": key },
        "payload": { "place": position },
    });
    Published { key: key.to_owned(), position, body: body.to_string() }
}
