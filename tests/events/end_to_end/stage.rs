//! What every run stands on: a database, a folder, how far everybody is, and the judge.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use uuid::Uuid;

use super::story::{self, Told};
use crate::payments::chaos::dice::Tally;
use crate::payments::chaos::number;
use crate::support::TestDb;

pub const PER_KEY: usize = 10;

/// How many events are where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    pub told: usize,
    pub sent: usize,
    pub applied: usize,
}

pub struct Stage {
    pub name: &'static str,
    pub seed: u64,
    pub db: TestDb,
    pub folder: PathBuf,
    /// Key by key.
    pub story: Vec<VecDeque<Told>>,
    pub tally: Tally,
    pub total: usize,
    started: Instant,
    progress: watch::Sender<Progress>,
}

impl Stage {
    pub async fn new(name: &'static str, keys: usize) -> Arc<Self> {
        let seed = number("SYMPHONY_CHAOS_SEED").unwrap_or_else(|| Uuid::new_v4().as_u64_pair().0);
        println!("{name}: SYMPHONY_CHAOS_SEED={seed}");
        let folder = std::env::temp_dir().join(format!("symphony-{name}-{}", Uuid::new_v4()));
        std::fs::create_dir(&folder).unwrap();
        let db = TestDb::new().await;
        // No unique constraint: what was applied twice shall be seen.
        db.sql(
            "CREATE TABLE told (event_id uuid PRIMARY KEY, key text, number int, text text); \
             CREATE TABLE applied (place bigserial, event_id uuid, key text, position bigint, event jsonb, body text)",
        )
        .await;
        let story: Vec<_> = (0..keys).map(|key| story::of_key(seed, key, PER_KEY)).collect();
        let stage = Arc::new(Self {
            name,
            seed,
            db,
            folder,
            story,
            tally: Tally::default(),
            total: keys * PER_KEY,
            started: Instant::now(),
            progress: watch::Sender::default(),
        });
        let texts: Vec<_> = stage.story.iter().flatten().map(|event| event.text.as_str()).collect();
        std::fs::write(stage.expected(), serde_json::to_vec(&texts).unwrap()).unwrap();
        tokio::spawn(look(Arc::downgrade(&stage)));
        stage
    }

    /// The file with all events as they are told, for clients in other languages.
    pub fn expected(&self) -> PathBuf {
        self.folder.join("expected.json")
    }

    /// The file that says that nothing more is published.
    pub fn finished(&self) -> PathBuf {
        self.folder.join("finished")
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Wait until so many hundredths of all events are there.
    pub async fn until(&self, what: &str, share: usize, of: fn(&Progress) -> usize) {
        let wanted = self.total * share / 100;
        let mut progress = self.progress.subscribe();
        loop {
            let before = *progress.borrow_and_update();
            if of(&before) >= wanted {
                return;
            }
            // As long as anything moves there is hope.
            let moved = progress.wait_for(|now| *now != before);
            if tokio::time::timeout(Duration::from_mins(1), moved).await.is_err() {
                let figures = self.db.database.auditor().event_figures().await.unwrap();
                panic!(
                    "{what}: waited for {wanted} in vain, at {before:?}; {figures:?}; {}",
                    self.hints()
                );
            }
        }
    }

    /// So that events are told while others are published.
    pub async fn wait_for_room(&self) {
        let most = (self.total / 8).min(500);
        let mut progress = self.progress.subscribe();
        progress.wait_for(|now| now.told < now.sent + most).await.unwrap();
    }

    /// For somebody who wants to know why it failed.
    fn hints(&self) -> String {
        let log = std::fs::read_to_string(self.folder.join("dispatchers.log")).unwrap_or_default();
        let bad: Vec<_> = log.lines().filter(|line| !line.contains(" INFO ")).collect();
        let last = bad.len().saturating_sub(20);
        format!(
            "seed {}, folder {}, faults: {}\nthe dispatchers' last complaints:\n{}",
            self.seed,
            self.folder.display(),
            self.tally.list(""),
            bad[last..].join("\n")
        )
    }

    /// What an independent client found out.
    pub fn hear(&self, verdict: &str) {
        let verdict: serde_json::Value = serde_json::from_str(verdict).unwrap();
        println!("{}: the independent client: {verdict}", self.name);
        let charges = verdict["charges"].as_object().unwrap();
        assert!(charges.is_empty(), "{charges:#?}\n{}", self.hints());
        assert_eq!(verdict["events"], self.total);
    }

    /// What is wrong: every committed event must be published and applied once, in order within its key and unchanged, and
    /// nothing else.
    pub async fn charges(&self, ghosts: &[Uuid]) -> Vec<String> {
        let mut charges = Vec::new();
        for (charge, select) in [
            (
                "not in the log",
                "SELECT event_id::text FROM told EXCEPT SELECT event_id::text FROM event_outbox_log",
            ),
            (
                "in the log, but never committed by a producer",
                "SELECT event_id::text FROM event_outbox_log EXCEPT SELECT event_id::text FROM told",
            ),
            (
                "in the log in another order than committed",
                "SELECT key || ' ' || number FROM (SELECT t.key, number, lag(number) OVER \
                   (PARTITION BY t.key ORDER BY position) AS before FROM told t JOIN event_outbox_log USING (event_id)) AS o \
                  WHERE number <> coalesce(before, 0) + 1",
            ),
            (
                "never applied",
                "SELECT key || ' ' || number || ' ' || event_id FROM told t \
                  WHERE NOT EXISTS (SELECT FROM applied a WHERE a.event_id = t.event_id)",
            ),
            (
                "applied more than once",
                "SELECT event_id || ' ' || count(*) || ' times' FROM applied GROUP BY event_id HAVING count(*) > 1",
            ),
            (
                "applied, but never committed by a producer",
                "SELECT event_id::text FROM applied EXCEPT SELECT event_id::text FROM told",
            ),
            (
                "applied out of order",
                "SELECT key || ' ' || number || ' after ' || before FROM (SELECT t.key, number, lag(number) OVER \
                   (PARTITION BY t.key ORDER BY place) AS before FROM told t JOIN applied USING (event_id)) AS o \
                  WHERE number < before",
            ),
            (
                "applied with a position that is not the log's",
                "SELECT a.event_id || ' ' || coalesce(a.position::text, 'none') FROM applied a \
                   JOIN event_outbox_log l USING (event_id) WHERE a.position IS DISTINCT FROM l.position",
            ),
            (
                "applied with another content",
                "SELECT a.event_id::text FROM applied a JOIN told t USING (event_id) \
                  WHERE a.key <> t.key OR a.event IS DISTINCT FROM t.text::jsonb \
                     OR a.event::text <> t.text::jsonb::text OR a.body::jsonb::text <> t.text::jsonb::text",
            ),
        ] {
            let sql = format!(
                "SELECT count(*), (array_agg(found ORDER BY found))[1:5] FROM ({select}) AS x (found)"
            );
            let (count, first): (i64, Option<Vec<String>>) =
                sqlx::query_as(sqlx::AssertSqlSafe(sql))
                    .fetch_one(&mut self.db.admin().await)
                    .await
                    .unwrap();
            if count > 0 {
                charges.push(format!("{count} {charge}, such as {:?}", first.unwrap_or_default()));
            }
        }
        let risen: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM unnest($1::uuid[]) AS g (id) WHERE id IN (SELECT event_id FROM event_outbox_identities) \
                OR id IN (SELECT event_id FROM applied) OR id IN (SELECT event_id FROM event_inbox)",
        )
        .bind(ghosts)
        .fetch_one(&mut self.db.admin().await)
        .await
        .unwrap();
        if risen > 0 {
            charges.push(format!("{risen} of {} rolled back left something", ghosts.len()));
        }
        let figures = self.db.database.auditor().event_figures().await.unwrap();
        let all = i64::try_from(self.total).unwrap();
        if !(figures.holds() && (figures.events, figures.sent, figures.pending) == (all, all, 0)) {
            charges.push(format!("the ledger does not hold for {all}: {figures:?}"));
        }
        charges
    }

    /// It was, by the charges and by the dispatchers' own log.
    pub async fn judge(&self, ghosts: &[Uuid]) {
        let charges = self.charges(ghosts).await;
        assert!(charges.is_empty(), "{}\n{}", charges.join("\n"), self.hints());
        let log = std::fs::read_to_string(self.folder.join("dispatchers.log")).unwrap();
        let alarms: Vec<_> = log
            .lines()
            .filter(|line| line.contains(" ERROR ") || line.contains("panicked"))
            .collect();
        assert!(alarms.is_empty(), "{alarms:#?}");

        let unknown = self.db.count("event_outbox_attempts WHERE outcome_unknown").await;
        let figures = self.db.database.auditor().event_figures().await.unwrap();
        println!(
            "{}: {} events in {:.1} s: {} outcomes, {unknown} unknown; {} rolled back; {}",
            self.name,
            self.total,
            self.started.elapsed().as_secs_f64(),
            figures.outcomes,
            ghosts.len(),
            self.tally.list("")
        );
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

/// Keep the figures fresh as long as anybody wants them.
async fn look(stage: std::sync::Weak<Stage>) {
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    let Some(mut connection) = async { Some(stage.upgrade()?.db.admin().await) }.await else {
        return;
    };
    let sql = "SELECT (SELECT count(*) FROM told), \
                      (SELECT count(*) FROM event_outbox_attempts WHERE state = 'DISPATCHED'), \
                      (SELECT count(*) FROM applied)";
    loop {
        tick.tick().await;
        let (told, sent, applied): (i64, i64, i64) =
            sqlx::query_as(sql).fetch_one(&mut connection).await.unwrap();
        let [told, sent, applied] =
            [told, sent, applied].map(|count| usize::try_from(count).unwrap());
        let Some(stage) = stage.upgrade() else { return };
        stage.progress.send_replace(Progress { told, sent, applied });
    }
}
