//! The claims themselves. Each makes its own messages and asks the consumer what arrived.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use chrono::Utc;
use symphony::event::envelope::Format;
use symphony::lanes::events::bus::{Bus, Cause, Message, Publication};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::{Arrival, Condition, Probe, Report};
use crate::rails::conformance::{Ruling, Stop, require};

/// What a bus may take over its own limit before it counts as unbounded.
const GRACE: Duration = Duration::from_secs(1);
/// In every payload, and in no answer.
const PAYLOAD_MARK: &str = "mark-of-the-payload";
/// How often a mended broker may still fail: a broken connection can be noticed one call late.
const CALLS_UNTIL_WELL_MAX: u32 = 20;

pub(super) async fn all(bus: &dyn Bus, probe: &dyn Probe) -> Report {
    let trial = Trial { bus, probe, position: AtomicI64::new(0), leaks: AtomicU64::new(0) };
    let mut report = Report::default();
    let mut add = |name, ruling| report.add(name, ruling);
    add("its terms have limits that can be kept", trial.terms());
    add("an empty batch has no answers", trial.empty_batch().await);
    add("an accepted message arrives as it was published", trial.arrives_whole().await);
    add("a full batch is answered one by one and arrives whole", trial.full_batch().await);
    add("a batch of large messages arrives whole", trial.large_batch().await);
    add("messages of one key arrive in the order they were published", trial.order().await);
    add("keys that are no plain words are carried and told apart", trial.odd_keys().await);
    add(
        "the same event id twice is accepted twice and deduplicated if promised",
        trial.duplicate().await,
    );
    add("an oversize message is refused and the rest of its batch arrives", trial.oversize().await);
    add("a message the broker refuses does not hold up its batch", trial.spoilt().await);
    add("a topic that does not exist is tried again later", trial.missing_topic().await);
    add("a broker that is down is unwell, not a refusal", trial.down().await);
    add("the bus works again when the broker is back", trial.back_again(Condition::Down).await);
    add("a lost answer is unknown, and publishing again is safe", trial.lost_answer().await);
    add("a broker that hangs is unknown within the timeout", trial.hang().await);
    add("the bus works again after a hang", trial.back_again(Condition::Hanging).await);
    add("a slow broker within the timeout is waited for", trial.slow().await);
    add("calls side by side are each answered for their own", trial.side_by_side().await);
    add("no answer repeats the payload", trial.no_leaks());
    report
}

struct Trial<'a> {
    bus: &'a dyn Bus,
    probe: &'a dyn Probe,
    position: AtomicI64,
    leaks: AtomicU64,
}

impl Trial<'_> {
    fn terms(&self) -> Ruling {
        let terms = self.bus.terms();
        require(!terms.timeout.is_zero(), "the timeout is zero")?;
        require(terms.batch_max >= 1, "a batch takes nothing")
    }

    async fn empty_batch(&self) -> Ruling {
        require(self.publish(&[]).await?.is_empty(), "answers to nothing")
    }

    async fn arrives_whole(&self) -> Ruling {
        let message = self.event("whole", 0, true);
        self.accepted(&[&message]).await?;
        self.arrived(&[&message]).await
    }

    async fn full_batch(&self) -> Ruling {
        let messages = self.of_many_keys("full", self.bus.terms().batch_max);
        let messages: Vec<_> = messages.iter().collect();
        self.accepted(&messages).await?;
        self.arrived(&messages).await
    }

    async fn large_batch(&self) -> Ruling {
        let bytes = self.probe.oversize_bytes().map_or(100_000, |bytes| bytes.min(200_000) / 2);
        let count = self.bus.terms().batch_max.min(10);
        let messages: Vec<_> =
            (0..count).map(|n| self.event(&format!("large-{n}"), bytes, false)).collect();
        let messages: Vec<_> = messages.iter().collect();
        self.accepted(&messages).await?;
        self.arrived(&messages).await
    }

    async fn order(&self) -> Ruling {
        let messages: Vec<_> = (0..20).map(|_| self.message("order")).collect();
        for message in &messages {
            self.accepted(&[message]).await?;
        }
        let arrivals = self.probe.received(messages.len()).await;
        let positions: Vec<_> = arrivals.iter().map(|arrival| arrival.position).collect();
        let expected: Vec<_> = messages.iter().map(|message| message.position).collect();
        require(positions == expected, format!("published {expected:?}, arrived {positions:?}"))
    }

    async fn odd_keys(&self) -> Ruling {
        let long = "x".repeat(400);
        let keys = ["two words", "ключ", "line\nline", "a:b/c,d", "", long.as_str()];
        for key in keys {
            let message = self.message(key);
            self.accepted(&[&message]).await?;
            self.arrived(&[&message]).await?;
        }
        Ok(())
    }

    async fn duplicate(&self) -> Ruling {
        let (message, after) = (self.message("twice"), self.message("twice"));
        self.accepted(&[&message]).await?;
        self.accepted(&[&message]).await?;
        // What follows in the same key shows that the repetition is through, or was swallowed.
        self.accepted(&[&after]).await?;
        let promised = !self.bus.terms().dedup_window.is_zero();
        let arrivals = self.probe.received(if promised { 2 } else { 3 }).await;
        let times = count(&arrivals, &message);
        require(times >= 1, "it never arrived")?;
        require(!promised || times == 1, format!("it arrived {times} times"))
    }

    async fn oversize(&self) -> Ruling {
        let Some(bytes) = self.probe.oversize_bytes() else {
            return Err(Stop::NotApplicable("no size is too large".to_owned()));
        };
        let large = self.event("oversize", bytes, false);
        self.one_is_refused(&large).await
    }

    async fn spoilt(&self) -> Ruling {
        let mut spoilt = self.message("spoilt");
        if !self.probe.spoil(&mut spoilt) {
            return Err(Stop::NotApplicable("the broker takes every message".to_owned()));
        }
        self.one_is_refused(&spoilt).await
    }

    /// In the middle of a batch, if the bus takes batches.
    async fn one_is_refused(&self, refused: &Message) -> Ruling {
        let (first, last) = (self.message("first"), self.message("last"));
        let answers = if self.bus.terms().batch_max >= 3 {
            self.publish(&[&first, refused, &last]).await?
        } else {
            let mut answers = Vec::new();
            for message in [&first, refused, &last] {
                answers.extend(self.publish(&[message]).await?);
            }
            answers
        };
        let as_expected = matches!(
            answers.as_slice(),
            [Publication::Accepted { .. }, Publication::Refused(_), Publication::Accepted { .. }]
        );
        require(as_expected, format!("answers {answers:?}"))?;
        let arrivals = self.probe.received(2).await;
        require(count(&arrivals, refused) == 0, "what was refused arrived")?;
        require(
            count(&arrivals, &first) >= 1 && count(&arrivals, &last) >= 1,
            "what was accepted did not arrive",
        )
    }

    async fn missing_topic(&self) -> Ruling {
        let Some(topic) = self.probe.missing_topic() else {
            return Err(Stop::NotApplicable("the bus has no topics".to_owned()));
        };
        let message = self.message("missing");
        let answers = self.publish_to(&topic, &[&message]).await?;
        let as_expected = matches!(
            answers.as_slice(),
            [Publication::Again { unknown: false, trouble, cause: Cause::Setup, .. }]
                if trouble.code == "NO_SUCH_TOPIC"
        );
        require(as_expected, format!("answers {answers:?}"))
    }

    async fn down(&self) -> Ruling {
        self.make(Condition::Down).await?;
        let messages = self.of_many_keys("down", self.bus.terms().batch_max.min(3));
        let answers = self.publish(&messages.iter().collect::<Vec<_>>()).await;
        self.make(Condition::Well).await?;
        let answers = answers?;
        require(answers.len() == messages.len(), "not one answer each")?;
        let unwell = answers
            .iter()
            .all(|answer| matches!(answer, Publication::Again { cause: Cause::Destination, .. }));
        require(unwell, format!("answers {answers:?}"))
    }

    /// With the same bus, and without anybody's help.
    async fn back_again(&self, condition: Condition) -> Ruling {
        self.make(condition).await?;
        let message = self.message("back");
        let answers = self.publish(&[&message]).await;
        self.make(Condition::Well).await?;
        require(
            matches!(answers?.as_slice(), [Publication::Again { .. }]),
            "it was not told to come again",
        )?;
        self.until_accepted(&message).await?;
        let arrivals = self.probe.received(1).await;
        require(count(&arrivals, &message) >= 1, "it was accepted and did not arrive")
    }

    async fn lost_answer(&self) -> Ruling {
        // So that there is a connection to break.
        let before = self.message("before");
        self.accepted(&[&before]).await?;
        self.arrived(&[&before]).await?;
        self.make(Condition::AnswersLost).await?;
        let message = self.message("lost");
        let answers = self.publish(&[&message]).await;
        self.make(Condition::Well).await?;
        let answers = answers?;
        let unknown = matches!(answers.as_slice(), [Publication::Again { unknown: true, .. }]);
        require(unknown, format!("answers {answers:?}"))?;
        self.until_accepted(&message).await?;
        let after = self.message("lost");
        self.accepted(&[&after]).await?;
        let promised = !self.bus.terms().dedup_window.is_zero();
        let arrivals = self.probe.received(if promised { 2 } else { 3 }).await;
        let times = count(&arrivals, &message);
        require(times >= 1, "it never arrived")?;
        require(!promised || times == 1, format!("it arrived {times} times"))
    }

    async fn hang(&self) -> Ruling {
        let before = self.message("before");
        self.until_accepted(&before).await?;
        self.arrived(&[&before]).await?;
        self.make(Condition::Hanging).await?;
        let message = self.message("hang");
        let started = Instant::now();
        let answers = self.publish(&[&message]).await;
        let took = started.elapsed();
        self.make(Condition::Well).await?;
        let answers = answers?;
        require(took <= self.bus.terms().timeout + GRACE, format!("it took {took:?}"))?;
        let unknown = matches!(
            answers.as_slice(),
            [Publication::Again { unknown: true, cause: Cause::Destination, .. }]
        );
        require(unknown, format!("answers {answers:?}"))?;
        self.until_accepted(&message).await?;
        let arrivals = self.probe.received(1).await;
        require(count(&arrivals, &message) >= 1, "it was accepted and did not arrive")
    }

    async fn slow(&self) -> Ruling {
        let before = self.message("before");
        self.until_accepted(&before).await?;
        self.arrived(&[&before]).await?;
        self.make(Condition::Slow(self.bus.terms().timeout / 4)).await?;
        let message = self.message("slow");
        let answers = self.publish(&[&message]).await;
        self.make(Condition::Well).await?;
        let answers = answers?;
        require(
            matches!(answers.as_slice(), [Publication::Accepted { .. }]),
            format!("answers {answers:?}"),
        )?;
        self.arrived(&[&message]).await
    }

    async fn side_by_side(&self) -> Ruling {
        let messages: Vec<_> = (0..4).map(|n| self.of_many_keys(&format!("side {n}"), 2)).collect();
        let calls = messages.iter().map(|pair| async {
            // One at a time where the bus takes no more.
            for part in pair.chunks(self.bus.terms().batch_max.min(2)) {
                self.accepted(&part.iter().collect::<Vec<_>>()).await?;
            }
            Ok(())
        });
        for ruling in futures_util::future::join_all(calls).await {
            ruling?;
        }
        self.arrived(&messages.iter().flatten().collect::<Vec<_>>()).await
    }

    fn no_leaks(&self) -> Ruling {
        let leaks = self.leaks.load(Ordering::Relaxed);
        require(leaks == 0, format!("{leaks} answers did"))
    }

    // --- the words claims are written in ---

    fn message(&self, key: &str) -> Message {
        self.event(key, 0, false)
    }

    /// An event of about so many bytes, in Symphony's own envelope.
    fn event(&self, key: &str, bytes: usize, traced: bool) -> Message {
        let mut event = serde_json::json!({
            "envelope": {
                "v": 1,
                "eventId": Uuid::new_v4(),
                "occurredAt": Utc::now().to_rfc3339(),
                "tenantId": "tnt_conformance",
                "type": "events.conformance.checked",
            },
            "key": { "trialId": key },
            "payload": { "note": PAYLOAD_MARK, "filling": "x".repeat(bytes) },
        });
        if let Some(envelope) = event.get_mut("envelope").filter(|_| traced) {
            let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
            envelope["traceparent"] = trace.into();
        }
        let format = Format::own(self.bus.terms().binding);
        let position = self.position.fetch_add(1, Ordering::Relaxed) + 1;
        // It has every part.
        Message::new(&format, &event.to_string(), position, Utc::now()).unwrap_or_else(|_| {
            Message {
                event_id: Uuid::nil(),
                position,
                key: key.to_owned(),
                event_type: String::new(),
                created_at: Utc::now(),
                body: String::new(),
                content_type: "",
                headers: Vec::new(),
            }
        })
    }

    fn of_many_keys(&self, prefix: &str, count: usize) -> Vec<Message> {
        (0..count).map(|n| self.message(&format!("{prefix}-{n}"))).collect()
    }

    async fn make(&self, condition: Condition) -> Ruling {
        if self.probe.make(condition).await {
            Ok(())
        } else {
            Err(Stop::NotApplicable("the probe cannot make it so".to_owned()))
        }
    }

    async fn publish(&self, batch: &[&Message]) -> Result<Vec<Publication>, Stop> {
        self.publish_to(self.probe.topic(), batch).await
    }

    async fn publish_to(&self, topic: &str, batch: &[&Message]) -> Result<Vec<Publication>, Stop> {
        let limit = self.bus.terms().timeout + GRACE;
        let Ok(answers) = timeout(limit, self.bus.publish(topic, batch)).await else {
            return Err(Stop::Failed(format!("no answer within {limit:?}")));
        };
        for answer in &answers {
            let text = format!("{answer:?}");
            if text.contains(PAYLOAD_MARK) {
                self.leaks.fetch_add(1, Ordering::Relaxed);
            }
        }
        require(
            answers.len() == batch.len(),
            format!("{} answers to {} messages", answers.len(), batch.len()),
        )?;
        Ok(answers)
    }

    async fn accepted(&self, batch: &[&Message]) -> Ruling {
        let answers = self.publish(batch).await?;
        let all = answers.iter().all(|answer| matches!(answer, Publication::Accepted { .. }));
        require(all, format!("answers {answers:?}"))
    }

    async fn until_accepted(&self, message: &Message) -> Ruling {
        let mut last = Vec::new();
        for _ in 0..CALLS_UNTIL_WELL_MAX {
            last = self.publish(&[message]).await?;
            if matches!(last.as_slice(), [Publication::Accepted { .. }]) {
                return Ok(());
            }
        }
        Err(Stop::Failed(format!("still {last:?} after {CALLS_UNTIL_WELL_MAX} calls")))
    }

    /// Each of these, with everything that belongs to it.
    async fn arrived(&self, messages: &[&Message]) -> Ruling {
        let arrivals = self.probe.received(messages.len()).await;
        for message in messages {
            let expected = Arrival {
                event_id: message.event_id,
                position: message.position,
                event_type: message.event_type.clone(),
                body: message.body.clone(),
            };
            require(
                arrivals.contains(&expected),
                format!("position {} did not arrive as published", message.position),
            )?;
        }
        Ok(())
    }
}

fn count(arrivals: &[Arrival], message: &Message) -> usize {
    arrivals.iter().filter(|arrival| arrival.event_id == message.event_id).count()
}
