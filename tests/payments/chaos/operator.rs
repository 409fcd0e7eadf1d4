//! The person on duty: settles what was parked by what the provider's own record says, lets failed heads of FIFO
//! lanes be tried again or passed over, and has patience in place of the clock.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use symphony::db::{ActCall, Database, DbError, LetterFilter, WaitingItem, WaitingQuery};
use symphony::domain::{Act, OutboxId, Resolution};
use symphony_lab::sandbox::{Line, Record};
use tokio::sync::watch;

use super::RAILS;
use super::dice::{Dice, Tally};
use super::producers::Books;

/// Once nobody is paused, whatever was about to be sent has been sent and worked on after this long: the longest
/// call, and the provider's longest delay, with a good margin.
const QUIET: Duration = Duration::from_secs(3);

pub struct OnDuty {
    /// For what no person could do: setting the time in rows.
    pub database: Database,
    /// For what the person does.
    pub desk: Database,
    pub record: PathBuf,
    pub dice: Dice,
    pub tally: Arc<Tally>,
    pub books: Arc<Books>,
    /// Since when no worker has been paused; `None` while one is.
    pub unpaused_since: watch::Receiver<Option<Instant>>,
}

impl OnDuty {
    /// Be on duty until told to stop.
    pub async fn work(mut self, mut stop: watch::Receiver<bool>) {
        let mut pace = tokio::time::interval(Duration::from_millis(250));
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut parked_since = HashMap::new();
        loop {
            tokio::select! {
                _ = pace.tick() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            match self.look_around(&mut parked_since).await {
                Ok(()) => {}
                // The database is away, or somebody was faster: the next look tells.
                Err(error) if error.is_transient() => {}
                Err(DbError::ActRefused { .. }) => self.tally.add("act came too late"),
                Err(error) => panic!("the operator was refused: {error:?}"),
            }
        }
    }

    async fn look_around(
        &mut self,
        parked_since: &mut HashMap<OutboxId, Instant>,
    ) -> Result<(), DbError> {
        self.pass_time().await?;
        self.count_backlog().await?;
        let reader = self.desk.auditor();
        let query = WaitingQuery {
            parked: true,
            failed: false,
            rail_type: None,
            participant_id: None,
            filter: LetterFilter { limit: 10_000, ..LetterFilter::default() },
        };
        let parked = reader.waiting(query).await?;
        parked_since.retain(|id, _| parked.iter().any(|item| item.outbox_id == *id));
        let quiet_since = *self.unpaused_since.borrow();
        let mut settled = Vec::new();
        for item in parked {
            let since = *parked_since.entry(item.outbox_id).or_insert_with(Instant::now);
            if quiet_since.is_some_and(|quiet| quiet.max(since).elapsed() > QUIET) {
                settled.push(item);
            }
        }
        if !settled.is_empty() {
            let path = self.record.clone();
            let record = tokio::task::spawn_blocking(move || Record::read(&path).unwrap());
            let record = record.await.unwrap();
            for item in settled {
                self.settle(&item, &record).await?;
            }
        }
        for rail in RAILS {
            let query = WaitingQuery {
                parked: false,
                failed: true,
                rail_type: Some(rail.name),
                participant_id: None,
                filter: LetterFilter { limit: 10_000, ..LetterFilter::default() },
            };
            for item in reader.waiting(query).await?.iter().filter(|item| item.blocks_its_lane) {
                self.unblock(item).await?;
            }
        }
        Ok(())
    }

    /// What the provider says is what the ledger is told.
    async fn settle(&mut self, item: &WaitingItem, record: &Record) -> Result<(), DbError> {
        let key = self.database.auditor().rail_key(item.outbox_id).await?.to_string();
        let fate = record.lines.iter().find_map(|line| match line {
            Line::Executed(line) if line.key == key => {
                Some(Resolution::Dispatched { rail_reference: line.reference() })
            }
            Line::Refused(line) if line.key == key => Some(Resolution::Failed),
            _ => None,
        });
        let resolution = fate.unwrap_or(Resolution::Retry);
        // Sometimes the lane shall not wait for it, even if it is sent again: it goes on alone.
        if self.dice.percent(20) {
            self.pass_over(item).await?;
        }
        let reason = "as the provider's statement says";
        let act = act(reason);
        match self.desk.operator().resolve_payment(item.outbox_id, &resolution, &act).await {
            Err(DbError::ApprovalMissing { .. }) => {
                self.have_approved(&ActCall::resolve(item.outbox_id, &resolution, &act), &act)
                    .await?;
            }
            other => drop(other?),
        }
        self.tally.add(match resolution {
            Resolution::Dispatched { .. } => "resolved dispatched",
            Resolution::Failed => "resolved failed",
            Resolution::Retry => "resolved retry",
        });
        Ok(())
    }

    /// A failed head blocks its lane: try it again in its place, or go on without it.
    async fn unblock(&mut self, item: &WaitingItem) -> Result<(), DbError> {
        if self.dice.percent(70) {
            let act = act("the merchant corrected the account");
            match self.desk.operator().redrive_payment(item.outbox_id, &act).await {
                Err(DbError::ApprovalMissing { .. }) => {
                    self.have_approved(&ActCall::redrive(item.outbox_id, &act), &act).await?;
                }
                other => drop(other?),
            }
            self.tally.add("redriven");
            return Ok(());
        }
        self.pass_over(item).await
    }

    /// A rail has told a lost worker yes: a second person, with another login, has read the provider's record too.
    async fn have_approved(&self, call: &ActCall, act: &Act) -> Result<(), DbError> {
        let request = self.desk.operator().request_approval(call, act, 600).await?;
        let agree = Act { actor: "omar".to_owned(), ..act.clone() };
        let number = request.request_no.expect("it was no dry run");
        self.database.approver().approve(number, &agree).await?;
        self.tally.add("approved");
        Ok(())
    }

    async fn pass_over(&mut self, item: &WaitingItem) -> Result<(), DbError> {
        let operator = self.desk.operator();
        let (participant, rail) = (&item.participant_id, &item.rail_type);
        let act = act("the merchant withdrew it");
        let dry = Act { dry_run: true, ..act.clone() };
        match operator.skip_payment_head(participant, rail, &dry).await {
            Ok(would) if would.outbox_id == item.outbox_id => {}
            // Not the head, or not of a lane at all.
            Ok(_) | Err(DbError::ActRefused { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
        let skipped = operator.skip_payment_head(participant, rail, &act).await?;
        assert_eq!(skipped.outbox_id, item.outbox_id, "the head changed although it cannot move");
        self.tally.add("skipped");
        Ok(())
    }

    /// Pauses between attempts grow to an hour; nobody waits for that. Time is set in the row.
    async fn pass_time(&self) -> Result<(), DbError> {
        sqlx::query(
            "UPDATE symphony.payment_outbox_pending SET next_attempt_at = clock_timestamp() \
              WHERE lease_token IS NULL AND hold IS NULL \
                AND next_attempt_at > clock_timestamp() + INTERVAL '2 seconds'",
        )
        .execute(self.database.pool())
        .await?;
        Ok(())
    }

    async fn count_backlog(&self) -> Result<(), DbError> {
        let counts: Vec<(String, i64)> = sqlx::query_as(
            "SELECT rail_type, count(*) FROM symphony.payment_outbox_pending GROUP BY rail_type",
        )
        .fetch_all(self.database.pool())
        .await?;
        for (rail, gauge) in RAILS.iter().zip(&self.books.backlog) {
            let count = counts.iter().find(|(name, _)| name == rail.name);
            gauge.store(count.map_or(0, |(_, count)| *count), Ordering::Relaxed);
        }
        Ok(())
    }
}

fn act(reason: &str) -> Act {
    Act {
        actor: "dana".to_owned(),
        reason: reason.to_owned(),
        dry_run: false,
        // Whoever acts here has read the provider's own record.
        despite_unknown: true,
    }
}
