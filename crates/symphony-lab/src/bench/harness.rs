//! Databases for the benchmark, and the clock around it.

use std::time::{Duration, Instant};

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};
use symphony::db::{Database, PaymentClaim, PaymentOutcome, RoleSource, migrate};
use symphony::domain::{Act, Outcome};

use crate::LabError;

const TEMPLATE: &str = "symphony_bench_template";
/// A copy is not the database on record, and nothing would be dispatched in it.
// symphony-guard: allow, a measurement's own database
const OWN_INSTALLATION: &str = "UPDATE symphony.symphony_installation SET installation_id = gen_random_uuid(), \
     database_oid = (SELECT oid FROM pg_database WHERE datname = current_database())";
const DATABASE: &str = "symphony_bench";

/// The template, and how to talk about it.
pub(super) struct Bench<'a> {
    server: &'a PgConnectOptions,
    talk: bool,
}

/// One timed run: a database of its own.
pub(super) struct Run<'a> {
    options: &'a PgConnectOptions,
}

/// The middle one.
pub(super) fn median(mut figures: Vec<u64>) -> u64 {
    figures.sort_unstable();
    figures.get(figures.len() / 2).copied().unwrap_or(0)
}

/// So many items in so much time, per second.
pub(super) fn per_second(items: u32, took: Duration) -> u64 {
    u64::from(items) * 1_000_000 / u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1)
}

async fn execute(options: &PgConnectOptions, sql: &str) -> Result<(), LabError> {
    let mut connection = options.connect().await?;
    // The benchmark's own text, never a user's.
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await?;
    connection.close().await?;
    Ok(())
}

impl<'a> Bench<'a> {
    /// Make the template, on this server.
    pub(super) async fn prepare(
        server: &'a PgConnectOptions,
        talk: bool,
    ) -> Result<Self, LabError> {
        let bench = Self { server, talk };
        bench.progress("preparing the template");
        bench.clean_up().await?;
        execute(server, &format!("CREATE DATABASE {TEMPLATE}")).await?;
        let template = server.clone().database(TEMPLATE);
        migrate::migrate(&template, migrate::Options::default()).await?;
        execute(&template, include_str!("raw_limit.sql")).await?;
        execute(&template, include_str!("workloads.sql")).await?;
        execute(&template, "VACUUM ANALYZE bench.source").await?;
        Ok(bench)
    }

    /// Add a lane's own workloads.
    pub(super) async fn extend_template(&self, sql: &str) -> Result<(), LabError> {
        let template = self.server.clone().database(TEMPLATE);
        execute(&template, sql).await?;
        execute(&template, "VACUUM ANALYZE").await
    }

    /// Say what is being done, if anybody wants to know.
    pub(super) fn progress(&self, what: &str) {
        if self.talk {
            eprintln!("… {what}");
        }
    }

    /// Measure something in a database of its own.
    pub(super) async fn measure<T>(
        &self,
        workload: impl AsyncFn(&Run<'_>) -> Result<T, LabError>,
    ) -> Result<T, LabError> {
        execute(self.server, &format!("DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")).await?;
        execute(
            self.server,
            &format!("CREATE DATABASE {DATABASE} TEMPLATE {TEMPLATE} STRATEGY file_copy"),
        )
        .await?;
        let options = self.server.clone().database(DATABASE);
        execute(&options, OWN_INSTALLATION).await?;
        // Otherwise the copy's own write-back would be measured.
        execute(self.server, "CHECKPOINT").await?;
        workload(&Run { options: &options }).await
    }

    /// Drop what was made.
    pub(super) async fn clean_up(&self) -> Result<(), LabError> {
        for database in [DATABASE, TEMPLATE] {
            execute(self.server, &format!("DROP DATABASE IF EXISTS {database} WITH (FORCE)"))
                .await?;
        }
        Ok(())
    }
}

impl Run<'_> {
    /// How to connect to it.
    pub(super) fn options(&self) -> &PgConnectOptions {
        self.options
    }

    /// Run statements of the benchmark's own.
    pub(super) async fn execute(&self, sql: &str) -> Result<(), LabError> {
        execute(self.options, sql).await
    }

    /// Run statements at the same time, one connection each; answers how long all of them took.
    async fn together(&self, statements: Vec<String>) -> Result<Duration, LabError> {
        let mut connections = Vec::new();
        for sql in statements {
            let mut connection = self.options.connect().await?;
            // Connected, with the catalog read, before the clock starts.
            sqlx::raw_sql("SELECT count(*) FROM bench.source WHERE n < 10")
                .execute(&mut connection)
                .await?;
            connections.push((connection, sql));
        }
        let started = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for (mut connection, sql) in connections {
            tasks.spawn(async move {
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await?;
                Ok::<PgConnection, sqlx::Error>(connection)
            });
        }
        let mut finished = Vec::new();
        while let Some(result) = tasks.join_next().await {
            finished.push(result.map_err(|error| LabError::new(error.to_string()))??);
        }
        let took = started.elapsed();
        for connection in finished {
            connection.close().await?;
        }
        Ok(took)
    }

    /// The same statement over equal parts of the source, by this many sessions.
    pub(super) async fn split(
        &self,
        sessions: u32,
        items: u32,
        sql: &str,
    ) -> Result<u64, LabError> {
        Ok(per_second(items, self.timed_split(sessions, items, sql).await?))
    }

    async fn timed_split(
        &self,
        sessions: u32,
        items: u32,
        sql: &str,
    ) -> Result<Duration, LabError> {
        let bound = |n: u32| (u64::from(items) * u64::from(n) / u64::from(sessions)).to_string();
        let statements = (0..sessions)
            .map(|n| sql.replace("@LO@", &bound(n)).replace("@HI@", &bound(n + 1)))
            .collect();
        self.together(statements).await
    }

    /// The raw limit of a drain: lease everything, then end everything.
    pub(super) async fn raw_drain(&self, sessions: u32, items: u32) -> Result<u64, LabError> {
        self.execute(&format!("CALL bench.raw_insert(0, {items})")).await?;
        let leased = self.timed_split(sessions, items, "CALL bench.raw_lease(@LO@, @HI@)").await?;
        let ended = self.timed_split(sessions, items, "CALL bench.raw_end(@LO@, @HI@)").await?;
        Ok(per_second(items, leased + ended))
    }

    pub(super) async fn fill_from_source(&self, items: u32) -> Result<(), LabError> {
        self.execute(&format!("CALL bench.enqueue_bulk(0, {items}, 'ACH')")).await
    }

    pub(super) async fn fill(
        &self,
        rail: &str,
        prefix: &str,
        items: u32,
        participants: u32,
    ) -> Result<(), LabError> {
        self.execute(&format!("CALL bench.fill({items}, '{rail}', '{prefix}', {participants})"))
            .await
    }

    /// Drain so many items with so many workers.
    pub(super) async fn drain(&self, workers: u32, items: u32) -> Result<u64, LabError> {
        self.drain_by("bench.drain", "symphony.payment_outbox_attempts", workers, items).await
    }

    pub(super) async fn fill_events(&self, items: u32) -> Result<(), LabError> {
        self.execute(&format!("CALL bench.enqueue_events(0, {items})")).await
    }

    /// Drain so many events with so many workers.
    pub(super) async fn drain_events(&self, workers: u32, items: u32) -> Result<u64, LabError> {
        self.drain_by("bench.drain_events", "symphony.event_outbox_attempts", workers, items).await
    }

    async fn drain_by(
        &self,
        procedure: &str,
        ledger: &str,
        workers: u32,
        items: u32,
    ) -> Result<u64, LabError> {
        let before = self.count(ledger).await?;
        let share = items / workers;
        let statements = (0..workers)
            .map(|n| format!("CALL {procedure}('bench-worker-{n}.4711.5f3a9c1e', {share})"))
            .collect();
        let took = self.together(statements).await?;
        let done = self.count(ledger).await? - before;
        // A worker that gave up early would look fast.
        if done < i64::from(share * workers) {
            return Err(LabError::new(format!("only {done} of {items} items were drained")));
        }
        Ok(per_second(items, took))
    }

    async fn count(&self, table: &str) -> Result<i64, LabError> {
        let mut connection = self.options.connect().await?;
        let count = sqlx::query_scalar(AssertSqlSafe(format!("SELECT count(*) FROM {table}")))
            .fetch_one(&mut connection)
            .await?;
        connection.close().await?;
        Ok(count)
    }

    /// Drain so many items from a backlog that is filled up again, untimed, whenever it is empty.
    pub(super) async fn drain_repeatedly(&self, items: u32, depth: u32) -> Result<u64, LabError> {
        let mut took = Duration::ZERO;
        let mut done = 0;
        while done < items {
            if done > 0 {
                self.fill("ACH", &format!("shallow{done}"), depth, 10_000).await?;
            }
            took += self
                .together(vec![format!(
                    "CALL bench.drain('bench-worker-0.4711.5f3a9c1e', {depth})"
                )])
                .await?;
            done += depth;
        }
        Ok(per_second(done, took))
    }

    /// A transaction that saw the database before the run, and stays open until dropped.
    pub(super) async fn hold_snapshot(&self) -> Result<PgConnection, LabError> {
        let mut connection = self.options.connect().await?;
        sqlx::raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM symphony.payment_outbox_settings")
            .execute(&mut connection)
            .await?;
        Ok(connection)
    }

    async fn database(&self) -> Result<Database, LabError> {
        Ok(Database::connect(self.options.clone(), 1, RoleSource::EachTransaction).await?)
    }

    fn act() -> Act {
        Act {
            actor: "bench".to_owned(),
            reason: "bench".to_owned(),
            dry_run: false,
            despite_unknown: false,
        }
    }

    pub(super) async fn make_fifo(&self, rail: &str) -> Result<(), LabError> {
        self.database()
            .await?
            .operator()
            .configure_rail(rail, &Self::act(), Some(true), None, None, None)
            .await?;
        Ok(())
    }

    pub(super) async fn pause(&self, rail: &str) -> Result<(), LabError> {
        let switch = symphony::domain::Switch::Rail(rail.to_owned());
        self.database().await?.operator().pause(&switch, &Self::act()).await?;
        Ok(())
    }

    pub(super) async fn record_routine_events(&self) -> Result<(), LabError> {
        self.database()
            .await?
            .operator()
            .configure_payments(&Self::act(), Some(true), None)
            .await?;
        Ok(())
    }

    /// Make a lane, fail its head so that it blocks, and let a claim set aside what stands behind it, as
    /// happens once to each item of such a lane. Answers how many items per second that took.
    pub(super) async fn block_lane(&self, rail: &str, behind: u32) -> Result<u64, LabError> {
        self.fill(rail, "blocked", behind + 1, 1).await?;
        let executor = self.database().await?.worker();
        let request = PaymentClaim {
            endpoints: None,
            worker_id: "bench",
            batch_size: 1,
            lease_seconds: 60,
            rails: None,
            due_from: None,
        };
        let items = executor.claim_payments(&request).await?.items;
        let [head] = items.as_slice() else {
            return Err(LabError::new("the lane to block has no head"));
        };
        executor
            .complete_payment("bench", &PaymentOutcome::new(head.lease(), Outcome::Failed))
            .await?;
        let started = Instant::now();
        if !executor.claim_payments(&request).await?.items.is_empty() {
            return Err(LabError::new("an item overtook the failed head of its lane"));
        }
        Ok(per_second(behind, started.elapsed()))
    }

    /// Keep the planner's statistics as they are now: of empty tables (`analyzed`), or none at all.
    pub(super) async fn freeze_statistics(&self, analyzed: bool) -> Result<(), LabError> {
        if analyzed {
            self.execute("ANALYZE").await?;
        }
        self.execute(
            "ALTER TABLE symphony.payment_outbox_pending SET (autovacuum_enabled = off); \
             ALTER TABLE symphony.payment_outbox_instructions SET (autovacuum_enabled = off); \
             ALTER TABLE symphony.payment_outbox_attempts SET (autovacuum_enabled = off); \
             ALTER TABLE symphony.participant_outbox_sequences SET (autovacuum_enabled = off)",
        )
        .await
    }
}
