//! `symphony demo`: the tour. Real worker processes carry payments to two simulated banks and events to a receiver, all
//! of which fail on purpose, and run the example app for clients who order over HTTP; one worker is killed; at the end
//! the others' own records are held against the ledger. Exits 0 only if they agree.
//!
//! - `producers`, `workers`, `banks`, `operator`: who takes part; `events`, `orders`: the other lanes, with
//!   their receiver and their app
//! - `ledger`: what the database says; whether it is true is for the lab's judge
//! - `story`, `report`: what is told

mod banks;
mod events;
mod ledger;
mod operator;
mod options;
mod orders;
mod producers;
mod report;
mod story;
mod workers;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::Utc;
use rustix::process::Signal;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use symphony::db::{Database, RoleSource, migrate};

use self::banks::Banks;
use self::events::{AcceptedEvents, EventReceiver};
pub use self::options::DemoOptions;
use self::orders::{ORDERS, Placed, Shop};
use self::producers::AcceptedPayments;
use self::report::Kill;
pub use self::report::Report;
use self::story::{Story, grouped, seconds};
use self::workers::{LEASE_SECONDS, WORKERS, Worker};
use crate::LabError;
use crate::host::{DemoHost, Tone};
use crate::judge::{Evidence, Figures, judge};
use crate::private_postgres::PrivatePostgres;

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

/// Run the tour on this server until its end, or until somebody interrupts it, and leave nothing behind. With `quiet`
/// nothing is told: the report is what is wanted.
pub async fn run(
    options: &DemoOptions,
    server: &PrivatePostgres,
    host: &dyn DemoHost,
    quiet: bool,
    interrupted: impl Future<Output = Result<(), LabError>>,
) -> Result<Report, LabError> {
    let story = Story::new(host, quiet);
    let mut folder = Folder::fresh(server.data_folder().join("demo"))?;
    story.write(&format!(
        "PostgreSQL {} of our own, data in {}\n",
        server.server_version(),
        server.data_folder().display()
    ))?;
    let server = server.connect_options().application_name("symphony");
    let result = tokio::select! {
        result = tour(options, &server, &folder.path, &story) => result,
        result = interrupted => {
            result?;
            story.end_progress()?;
            Err(LabError::new("interrupted: everything the demo had started is ended and removed"))
        }
    };
    match &result {
        Ok(report) if !report.holds() => {
            folder.keep = true;
            host.note(&format!(
                "the banks' records and the workers' logs are kept in {}, the ledger in database {DATABASE}",
                folder.path.display()
            ));
        }
        _ => drop_database(&server).await?,
    }
    result
}

async fn tour(
    options: &DemoOptions,
    server: &PgConnectOptions,
    folder: &Path,
    story: &Story<'_>,
) -> Result<Report, LabError> {
    let database_options = fresh_database(server).await?;
    let database =
        Database::connect(database_options.clone(), 12, RoleSource::EachTransaction).await?;
    story.write("schema installed: every move below is a SQL function, and nobody can write the tables directly\n")?;
    operator::make_ordered(&database, ORDERED_RAIL).await?;
    let banks = Banks::open(folder).await?;
    let event_receiver = EventReceiver::listen().await?;
    let shop = Shop::open(story.host, folder, &database, &database_options).await?;
    let config = workers::configure(folder, &banks, &event_receiver, &shop)?;
    let workers = (1..=WORKERS)
        .map(|number| {
            Worker::start(number, folder, &config, &database_options, &event_receiver.secret)
        })
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
    let run = DemoRun { options, story, database, banks, event_receiver, shop, workers };
    let banks = [&run.banks.main, &run.banks.forgetful];
    let (answers, kill) = tokio::select! {
        result = run.run_until_drained() => result?,
        failure = run.show_progress() => return Err(failure),
        failure = operator::settle_what_is_parked(&run.database, &banks, story) => return Err(failure),
    };
    story.end_progress()?;
    operator::refuse_rewriting(&database_options, story).await?;
    run.judge(&answers, kill).await
}

/// What everybody was told yes to.
struct Answers {
    payments: AcceptedPayments,
    events: AcceptedEvents,
    orders: Vec<Placed>,
}

/// Everything that takes part.
struct DemoRun<'a> {
    options: &'a DemoOptions,
    story: &'a Story<'a>,
    database: Database,
    banks: Banks,
    event_receiver: EventReceiver,
    shop: Shop,
    workers: Mutex<Vec<Worker>>,
}

impl DemoRun<'_> {
    /// Everything that happens, until nothing is pending; what everybody was told, and the kill.
    async fn run_until_drained(&self) -> Result<(Answers, Kill), LabError> {
        let (database, story) = (&self.database, self.story);
        producers::make_mistakes(database, story).await?;
        events::make_a_mistake(database, story).await?;
        let special = producers::ask_for_the_special_ones(database).await?;
        let DemoOptions { payments, seconds } = *self.options;
        let (mut accepted, told, orders, kill, (), redriven) = tokio::try_join!(
            self.produce(),
            events::tell(database, payments / EVENTS_PER_PAYMENT_OF, seconds),
            self.shop.sell(seconds, story),
            self.kill_a_worker(),
            self.stop_the_faults(),
            operator::unblock_the_order(database, ORDERED_RAIL, story),
        )?;
        accepted.extend(special);
        let refused = producers::ordered(producers::BLOCKS_ITS_LANE);
        let redrive = accepted.values().find(|payment| payment.instruction_id == refused).cloned();
        accepted.extend(redrive.map(|payment| (redriven.to_string(), payment)));
        operator::wait_for("the last payment to end", async || {
            Ok((ledger::progress(database).await?.pending == 0).then_some(()))
        })
        .await?;
        operator::wait_for("the last event to be published", async || {
            let lanes = database.auditor().status().await?;
            Ok(lanes.iter().all(|lane| lane.pending == 0).then_some(()))
        })
        .await?;
        operator::wait_for("the last receipt to be sent", async || {
            Ok((ledger::app(database).await?.pending == 0).then_some(()))
        })
        .await?;
        Ok((Answers { payments: accepted, events: told, orders }, kill))
    }

    async fn produce(&self) -> Result<AcceptedPayments, LabError> {
        let DemoOptions { payments, seconds } = *self.options;
        let accepted = producers::produce(&self.database, payments, seconds).await?;
        producers::repeat(&self.database, payments, self.story).await?;
        Ok(accepted)
    }

    /// Faults by chance end before the payments do: so late, nobody would wait for a fourth try and its pause.
    async fn stop_the_faults(&self) -> Result<(), LabError> {
        tokio::time::sleep(Duration::from_millis(u64::from(self.options.seconds) * 800)).await;
        self.banks.stop_random_faults()?;
        self.story.tell(
            Tone::Notable,
            "calm",
            "the banks behave again; what is still in doubt is asked about",
        )
    }

    /// Kill a worker in the middle of its work, and see what becomes of what it held.
    async fn kill_a_worker(&self) -> Result<Kill, LabError> {
        tokio::try_join!(
            async {
                let after = Duration::from_millis(u64::from(self.options.seconds) * 400);
                tokio::time::sleep(after).await;
                Ok(())
            },
            // Not among what the killed worker holds: then it might have been sent, and would not fail by itself.
            operator::see_the_invalid_one_fail(&self.database, self.story),
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
        operator::wait_for("the killed worker's payments", async || {
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
    async fn show_progress(&self) -> LabError {
        let mut pace = tokio::time::interval(self.story.pace());
        pace.tick().await;
        loop {
            pace.tick().await;
            if let Err(failure) = self.show_progress_once().await {
                return failure;
            }
        }
    }

    async fn show_progress_once(&self) -> Result<(), LabError> {
        for worker in self.workers().iter_mut() {
            worker.check()?;
        }
        let executed = self.banks.executed().await?;
        let now = ledger::progress(&self.database).await?;
        let arrived = self.event_receiver.receiver.arrivals_so_far();
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
    async fn judge(self, answers: &Answers, kill: Kill) -> Result<Report, LabError> {
        let mut workers = self.workers.into_inner().unwrap_or_else(PoisonError::into_inner);
        for worker in &mut workers {
            worker.stop().await?;
        }
        let faults = self.banks.faults();
        let records = self.banks.close().await?;
        let items = ledger::items(&self.database).await?;
        let doubts = ledger::doubts(&self.database, kill.process).await?;
        let progress = ledger::progress(&self.database).await?;
        let evidence = Evidence {
            accepted: &answers.payments,
            redrives_are_accepted: true,
            items: &items,
            records: &records,
            fifo_rails: &[ORDERED_RAIL],
        };
        let figures = Figures::new(evidence, &judge(evidence));
        let arrivals = self.event_receiver.receiver.stop().await;
        let ledger = self.database.auditor().event_figures().await?;
        let events = events::judge(&answers.events, &arrivals, &ledger);
        let mails = self.shop.close().await;
        let orders = orders::judge(&answers.orders, &mails, &ledger::app(&self.database).await?);
        let took = self.story.elapsed();
        let report = Report::new(
            took,
            (figures, events, orders),
            &doubts,
            &records,
            &progress,
            kill,
            faults,
        );
        report.tell(self.story, &self.database).await?;
        Ok(report)
    }

    fn workers(&self) -> std::sync::MutexGuard<'_, Vec<Worker>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn worker<T>(
        &self,
        number: usize,
        ask: impl FnOnce(&mut Worker) -> Result<T, LabError>,
    ) -> Result<T, LabError> {
        let mut workers = self.workers();
        ask(workers.get_mut(number).ok_or_else(|| LabError::new("no such worker"))?)
    }
}

/// A database without a past.
async fn fresh_database(server: &PgConnectOptions) -> Result<PgConnectOptions, LabError> {
    drop_database(server).await?;
    execute(server, "CREATE DATABASE symphony_demo").await?;
    let options = server.clone().database(DATABASE);
    migrate::migrate(&options, migrate::Options::default()).await?;
    Ok(options)
}

async fn drop_database(server: &PgConnectOptions) -> Result<(), LabError> {
    execute(server, "DROP DATABASE IF EXISTS symphony_demo WITH (FORCE)").await
}

async fn execute(server: &PgConnectOptions, sql: &'static str) -> Result<(), LabError> {
    let mut connection = server.connect().await?;
    sqlx::raw_sql(sql).execute(&mut connection).await?;
    connection.close().await?;
    Ok(())
}

/// The demo's files, gone when it ends. What a killed demo left is removed by the next.
struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    fn fresh(path: PathBuf) -> Result<Self, LabError> {
        let cannot = |error| LabError::new(format!("cannot make {} anew: {error}", path.display()));
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
