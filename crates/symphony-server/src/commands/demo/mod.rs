//! `symphony demo`: the tour. Real worker processes carry payments to two simulated banks and events to a receiver, all
//! of which fail on purpose, and run the example app for clients who order over HTTP; one worker is killed; at the end
//! the others' own records are held against the ledger. Exits 0 only if they agree.
//!
//! - `producers`, `workers`, `banks`, `people`: who takes part; `events`, `orders`: the other lanes, with
//!   their receiver and their app
//! - `ledger`: what the database says; `judge`: whether it is true (pure)
//! - `story`, `report`: what is told

mod banks;
mod events;
mod judge;
#[cfg(test)]
mod judge_tests;
mod ledger;
mod orders;
mod people;
mod producers;
mod report;
mod story;
mod workers;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::Utc;
use rustix::process::Signal;
use sqlx::Connection as _;
use sqlx::postgres::PgConnectOptions;
use symphony::db::{Database, RoleSource, migrate};

use self::banks::Banks;
use self::events::{Hearer, Told};
use self::orders::{ORDERS, Placed, Shop};
use self::report::{Kill, Report};
use self::story::{Story, Tone, grouped, seconds};
use self::workers::{LEASE_SECONDS, WORKERS, Worker};
use super::alone::Alone;
use crate::cli::{Demo, Global};
use crate::output::{self, Failure};
use crate::server::Server;

const DATABASE: &str = "symphony_demo";
const ORDERED_RAIL: &str = "instant";
/// One event for so many payments.
const EVENTS_PER_PAYMENT_OF: u32 = 2;
/// One of these is killed: whichever has its hands full.
const VICTIMS: [usize; 2] = [1, 2];
/// These have a story of their own, without a kill in it.
const SPARED: [&str; 2] = [producers::STORY, producers::CANNOT_BE_SETTLED];
/// How long to look for a moment at which it holds several payments, and for one at which it holds any.
const LOOK_FOR_MANY: Duration = Duration::from_secs(1);
const LOOK_FOR_ANY: Duration = Duration::from_secs(3);

pub(super) async fn run(global: &Global, options: &Demo) -> Result<ExitCode, Failure> {
    if global.database_url.is_some() {
        return Err(Failure::new(
            "the demo uses the private PostgreSQL, not yours: unset DATABASE_URL and --database-url",
        ));
    }
    let story = Story::new(global.json);
    let server = Server::open_or_private(global).await?;
    let result = Box::pin(on_a_stage(global, options, &server, &story)).await;
    server.close().await?;
    result
}

/// Make room, run the tour until its end or Ctrl-C, and leave nothing behind.
async fn on_a_stage(
    global: &Global,
    options: &Demo,
    server: &Server,
    story: &Story,
) -> Result<ExitCode, Failure> {
    let Some(private) = server.private() else {
        return Err(Failure::new("no private PostgreSQL is running"));
    };
    let _alone = Alone::on(private.data_folder(), "demo.lock", "a demo runs")?;
    let mut folder = Folder::fresh(private.data_folder().join("demo"))?;
    story.write(&format!(
        "PostgreSQL {} of our own, data in {}\n",
        private.server_version(),
        private.data_folder().display()
    ))?;
    let result = tokio::select! {
        result = tour(options, server, &folder.path, story) => result,
        result = super::database::wait_for_signal() => {
            result?;
            story.end_progress()?;
            Err(Failure::new("interrupted: everything the demo had started is ended and removed"))
        }
    };
    match &result {
        Ok(report) if !report.holds() => {
            folder.keep = true;
            output::note(&format!(
                "the banks' records and the workers' logs are kept in {}, the ledger in database {DATABASE}",
                folder.path.display()
            ));
        }
        _ => drop_database(server).await?,
    }
    let report = result?;
    if global.json {
        output::json(&report)?;
    }
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn tour(
    options: &Demo,
    server: &Server,
    folder: &Path,
    story: &Story,
) -> Result<Report, Failure> {
    let database_options = fresh_database(server).await?;
    let database =
        Database::connect(database_options.clone(), 12, RoleSource::EachTransaction).await?;
    story.write("schema installed: every move below is a SQL function, and nobody can write the tables directly\n")?;
    people::make_ordered(&database, ORDERED_RAIL).await?;
    let banks = Banks::open(folder).await?;
    let hearer = Hearer::listen().await?;
    let shop = Shop::open(folder, &database, &database_options).await?;
    let config = workers::configure(folder, &banks, &hearer, &shop)?;
    let workers = (1..=WORKERS)
        .map(|number| Worker::start(number, folder, &config, &database_options, &hearer.secret))
        .collect::<Result<Vec<_>, _>>()?;
    story.write(&format!(
        "{WORKERS} worker processes; {} payments and {} events of {} merchants in {} s;\n\
         two simulated banks and a receiver of webhooks, all of which fail on purpose;\n\
         and {ORDERS} orders over HTTP to an app, whose mail is caught\n\n",
        grouped(options.payments),
        grouped(options.payments / EVENTS_PER_PAYMENT_OF),
        producers::MERCHANTS,
        options.seconds
    ))?;
    let workers = Mutex::new(workers);
    let stage = Stage { options, story, database, banks, hearer, shop, workers };
    let banks = [&stage.banks.main, &stage.banks.forgetful];
    let (answers, kill) = tokio::select! {
        result = stage.play() => result?,
        failure = stage.show_progress() => return Err(failure),
        failure = people::settle_what_is_parked(&stage.database, &banks, story) => return Err(failure),
    };
    story.end_progress()?;
    people::refuse_rewriting(&database_options, story).await?;
    stage.judge(&answers, kill).await
}

/// What everybody was told yes to.
struct Answers {
    payments: BTreeSet<String>,
    events: Told,
    orders: Vec<Placed>,
}

/// Everything that takes part.
struct Stage<'a> {
    options: &'a Demo,
    story: &'a Story,
    database: Database,
    banks: Banks,
    hearer: Hearer,
    shop: Shop,
    workers: Mutex<Vec<Worker>>,
}

impl Stage<'_> {
    /// Everything that happens, until nothing is pending; what everybody was told, and the kill.
    async fn play(&self) -> Result<(Answers, Kill), Failure> {
        let (database, story) = (&self.database, self.story);
        producers::make_mistakes(database, story).await?;
        events::make_a_mistake(database, story).await?;
        let special = producers::ask_for_the_special_ones(database).await?;
        let Demo { payments, seconds } = *self.options;
        let (mut accepted, told, orders, kill, (), redriven) = tokio::try_join!(
            self.produce(),
            events::tell(database, payments / EVENTS_PER_PAYMENT_OF, seconds),
            self.shop.sell(seconds, story),
            self.kill_a_worker(),
            self.calm_the_banks(),
            people::unblock_the_order(database, ORDERED_RAIL, story),
        )?;
        accepted.extend(special);
        accepted.insert(redriven.to_string());
        people::wait_for("the last payment to end", async || {
            Ok((ledger::progress(database).await?.pending == 0).then_some(()))
        })
        .await?;
        people::wait_for("the last event to be published", async || {
            let lanes = database.auditor().status().await?;
            Ok(lanes.iter().all(|lane| lane.pending == 0).then_some(()))
        })
        .await?;
        people::wait_for("the last receipt to be sent", async || {
            Ok((ledger::app(database).await?.pending == 0).then_some(()))
        })
        .await?;
        Ok((Answers { payments: accepted, events: told, orders }, kill))
    }

    async fn produce(&self) -> Result<BTreeSet<String>, Failure> {
        let Demo { payments, seconds } = *self.options;
        let accepted = producers::produce(&self.database, payments, seconds).await?;
        producers::repeat(&self.database, payments, self.story).await?;
        Ok(accepted)
    }

    /// Faults by chance end before the payments do: so late, nobody would wait for a fourth try and its pause.
    async fn calm_the_banks(&self) -> Result<(), Failure> {
        tokio::time::sleep(Duration::from_millis(u64::from(self.options.seconds) * 800)).await;
        self.banks.calm_down()?;
        self.story.tell(
            Tone::Notable,
            "calm",
            "the banks behave again; what is still in doubt is asked about",
        )
    }

    /// Kill a worker in the middle of its work, and see what becomes of what it held.
    async fn kill_a_worker(&self) -> Result<Kill, Failure> {
        tokio::try_join!(
            async {
                let after = Duration::from_millis(u64::from(self.options.seconds) * 400);
                tokio::time::sleep(after).await;
                Ok(())
            },
            // Not among what the killed worker holds: then it might have been sent, and would not fail by itself.
            people::see_the_invalid_one_fail(&self.database, self.story),
        )?;
        let mut victims = VICTIMS.iter().copied().cycle();
        let looking = Instant::now();
        // Frozen while we look, so that it has its hands full when it dies.
        let (victim, process, held) = loop {
            let victim = victims.next().unwrap_or_default();
            let process = self.worker(victim, |worker| Ok(worker.process()))?;
            self.worker(victim, |worker| worker.signal(Signal::STOP))?;
            let held = ledger::held_by(&self.database, process, &SPARED).await?;
            let wanted = if looking.elapsed() < LOOK_FOR_MANY { 5 } else { 1 };
            if held.items >= wanted && !held.named || looking.elapsed() > LOOK_FOR_ANY {
                break (victim, process, held.items);
            }
            self.worker(victim, |worker| worker.signal(Signal::CONT))?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        self.worker(victim, Worker::kill)?;
        let (at, killed) = (Utc::now(), Instant::now());
        let name = self.worker(victim, |worker| Ok(worker.name.clone()))?;
        self.story.tell(
            Tone::Bad,
            "killed",
            &format!("{name} (process {process}) with SIGKILL, {held} payments in its hands, some already sent"),
        )?;
        people::wait_for("the killed worker's payments", async || {
            Ok((ledger::held_by(&self.database, process, &[]).await?.items == 0).then_some(()))
        })
        .await?;
        let recovered_after = killed.elapsed();
        self.story.tell(
            Tone::Good,
            "recovered",
            &format!(
                "its leases of {LEASE_SECONDS} s ran out, {} after the kill the last was taken over; the bank is asked first",
                seconds(recovered_after)
            ),
        )?;
        Ok(Kill { process, at, held, recovered_after })
    }

    /// Until it fails: where things stand.
    async fn show_progress(&self) -> Failure {
        let mut pace = tokio::time::interval(self.story.pace());
        pace.tick().await;
        loop {
            pace.tick().await;
            if let Err(failure) = self.show_progress_once().await {
                return failure;
            }
        }
    }

    async fn show_progress_once(&self) -> Result<(), Failure> {
        for worker in self.workers().iter_mut() {
            worker.check()?;
        }
        let executed = self.banks.executed().await?;
        let now = ledger::progress(&self.database).await?;
        let arrived = self.hearer.receiver.arrivals_so_far();
        self.story.progress(&[
            format!("asked {}", grouped(now.asked)),
            format!("dispatched {}", grouped(now.dispatched)),
            format!("in flight {}", now.in_flight),
            format!("retried {}", now.retried),
            format!("unknown {}", now.unknown),
            format!("failed {}", now.failed),
            format!("parked {}", now.parked),
            format!("banks executed {}", grouped(executed)),
            format!("events {}", grouped(arrived)),
            format!("mails {}", grouped(self.shop.mail.count())),
        ])
    }

    /// Stop everything, then hold the banks' records against the ledger.
    async fn judge(self, answers: &Answers, kill: Kill) -> Result<Report, Failure> {
        let mut workers = self.workers.into_inner().unwrap_or_else(PoisonError::into_inner);
        for worker in &mut workers {
            worker.stop().await?;
        }
        let faults = self.banks.faults();
        let records = self.banks.close().await?;
        let items = ledger::items(&self.database, kill.process).await?;
        let progress = ledger::progress(&self.database).await?;
        let figures = judge::compare(&answers.payments, &items, &records, ORDERED_RAIL);
        let arrivals = self.hearer.receiver.stop().await;
        let ledger = self.database.auditor().event_figures().await?;
        let events = events::judge(&answers.events, &arrivals, &ledger);
        let mails = self.shop.close().await;
        let orders = orders::judge(&answers.orders, &mails, &ledger::app(&self.database).await?);
        let took = self.story.elapsed();
        let report =
            Report::new(took, (figures, events, orders), &items, &records, &progress, kill, faults);
        report.tell(self.story, &self.database).await?;
        Ok(report)
    }

    fn workers(&self) -> std::sync::MutexGuard<'_, Vec<Worker>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn worker<T>(
        &self,
        number: usize,
        ask: impl FnOnce(&mut Worker) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut workers = self.workers();
        ask(workers.get_mut(number).ok_or_else(|| Failure::new("no such worker"))?)
    }
}

/// A database without a past.
async fn fresh_database(server: &Server) -> Result<PgConnectOptions, Failure> {
    drop_database(server).await?;
    server.ensure_database(DATABASE).await?;
    let options = server.options().clone().database(DATABASE);
    migrate::migrate(&options, migrate::Options::default()).await?;
    Ok(options)
}

async fn drop_database(server: &Server) -> Result<(), Failure> {
    let mut connection = server.connect().await?;
    sqlx::raw_sql("DROP DATABASE IF EXISTS symphony_demo WITH (FORCE)")
        .execute(&mut connection)
        .await?;
    connection.close().await?;
    Ok(())
}

/// The demo's files, gone when it ends. What a killed demo left is removed by the next.
struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    fn fresh(path: PathBuf) -> Result<Self, Failure> {
        let cannot = |error| Failure::new(format!("cannot make {} anew: {error}", path.display()));
        if path.exists() {
            fs::remove_dir_all(&path).map_err(cannot)?;
        }
        fs::create_dir(&path).map_err(cannot)?;
        Ok(Self { path, keep: false })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep {
            // If it cannot be removed now, the next demo tries again.
            drop(fs::remove_dir_all(&self.path));
        }
    }
}
