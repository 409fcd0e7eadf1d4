//! One worker process: the engines of its lanes on a database, until somebody asks it to stop. Used by `run`, `up` and
//! `demo`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future;
use sqlx::postgres::PgConnectOptions;
use symphony::db::Database;
use symphony::engine::{self, Engine, Group, LaneMetrics, Points, ScriptHealth, Start};
use symphony::lanes::events::EventLane;
use symphony::lanes::payments::{PaymentLane, RailSetup, needs_marks};
use symphony::lanes::triggers::{HeldUpOutcomes, Replies, Retention, Ticker, TriggerLane};
use symphony::trace::Traces;
use symphony::witness::Witness;
use symphony_connect::email::SmtpListener;
use symphony_connect::executors::ScriptExecutor;
use tokio::task::JoinHandle;

use crate::apps::Apps;
use crate::apps::adapters::MailInbox;
use crate::cli::LaneName;
use crate::commands::suggested_command::symphony_of;
use crate::config::{Config, EventPlan, TriggerPlan, build_rails};
use crate::output::Failure;

/// Why a process runs no more scripts.
const EXHAUSTED: &str = "too many scripts' threads do not come back, as the log says: this process runs no more scripts, and only \
     a new one ends them";

/// What a process shall work: everything that can be wrong with it is said before anything is started.
pub struct Plan {
    /// The rails, if payments are worked.
    pub rails: Option<Vec<RailSetup>>,
    /// Routes and buses, if events are.
    pub events: Option<EventPlan>,
    /// How scripts are run, if triggers are.
    pub triggers: Option<TriggerPlan>,
    metrics: Vec<(&'static str, Arc<LaneMetrics>)>,
}

impl Plan {
    /// The lanes named, or all that are configured; of the rails, those named or all. The one place that decides whether a
    /// configuration is right: `run`, `up`, `doctor` and `config --check` all ask here, and all of it is said at once.
    pub fn new(config: &Config, lanes: &[LaneName], rails: &[String]) -> Result<Self, Failure> {
        let mut defects = config.defects.clone();
        config.check(&mut defects);
        let nothing =
            config.rails.is_empty() && !config.events.has_routes() && !config.triggers.enabled;
        let wanted = |lane: LaneName, configured: bool| {
            if lanes.is_empty() { configured } else { lanes.contains(&lane) }
        };
        // With nothing configured, the payment lane's own words say what is missing.
        let payments = wanted(LaneName::Payments, !config.rails.is_empty() || nothing);
        let rails = payments.then(|| build_rails(&config.rails, rails, &mut defects));
        let events = wanted(LaneName::Events, config.events.has_routes())
            .then(|| config.events.plan(&config.buses, &mut defects));
        let triggers = wanted(LaneName::Triggers, config.triggers.enabled)
            .then(|| config.triggers.plan(&mut defects))
            .flatten();
        let names = [
            ("payments", rails.is_some()),
            ("events", events.is_some()),
            ("triggers", triggers.is_some()),
        ];
        let metrics = names.iter().filter(|(_, worked)| *worked);
        let metrics = metrics.map(|(lane, _)| (*lane, Arc::default())).collect();
        let plan = Self { rails, events, triggers, metrics };
        for contradiction in engine::contradictions(&config.worker.engine(), &plan.groups()) {
            defects.add(&contradiction.field, contradiction.problem);
        }
        if defects.is_empty() { Ok(plan) } else { Err(Failure::from(defects)) }
    }

    fn groups(&self) -> Vec<Group> {
        let rails = self.rails.iter().flatten().map(RailSetup::group);
        let events = self.events.iter().map(|plan| plan.settings.group(plan.buses.iter()));
        let triggers = self.triggers.iter().map(|plan| plan.settings.group());
        rails.chain(events).chain(triggers).collect()
    }

    /// The lanes with what they will count.
    pub fn metrics(&self) -> Vec<(&'static str, Arc<LaneMetrics>)> {
        self.metrics.clone()
    }

    /// The lanes' names.
    pub fn lanes(&self) -> String {
        self.metrics.iter().map(|(lane, _)| *lane).collect::<Vec<_>>().join(",")
    }

    /// The rails' names.
    pub fn rail_names(&self) -> Vec<String> {
        self.rails.iter().flatten().map(|rail| rail.name.clone()).collect()
    }

    fn metrics_of(&self, lane: &str) -> Arc<LaneMetrics> {
        let own = self.metrics.iter().find(|(name, _)| *name == lane);
        own.map(|(_, metrics)| metrics.clone()).unwrap_or_default()
    }

    /// Start working.
    pub async fn start(
        self,
        config: &Config,
        database: &Database,
        listen: PgConnectOptions,
        points: Points,
    ) -> Result<Workers, Failure> {
        if let Some(rails) = &self.rails {
            refuse_unmarked(database, rails).await?;
        }
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let (payments, events) = (self.metrics_of("payments"), self.metrics_of("events"));
        let triggers = self.metrics_of("triggers");
        let mut workers = Workers::default();
        let traces = workers.start_traces(config, self.metrics())?;
        let payments_worker = engine::new_worker_id(&host);
        let mut witness = Witness::open(
            database.worker(),
            payments_worker.clone(),
            config.database.witness_folder().as_deref(),
        )
        .await
        .map_err(|error| Failure::new(error.to_string()))?;
        // Before the first claim, so that whoever starts it reads at once why nothing is dispatched.
        let state = witness.beat().await?;
        witness.report(&state);
        workers.witness = Some(tokio::spawn(witness.run()));
        if let Some(rails) = self.rails {
            name_endpoints(database, &rails).await?;
            let lane = PaymentLane::new(database.worker(), payments_worker, rails)
                .with_traces(traces.clone());
            let start = Start {
                lane,
                database: database.clone(),
                listen: listen.clone(),
                settings: config.worker.engine(),
                metrics: payments,
                points: points.clone(),
            };
            workers.engines.push(Engine::start(start).map_err(|error| contradiction(&error))?);
        }
        if let Some(plan) = self.events {
            let worker_id = engine::new_worker_id(&host);
            let executor = database.worker();
            let lane = EventLane::new(executor, worker_id, plan.buses, plan.routes, plan.settings)
                .map_err(|error| Failure::new(error.to_string()))?
                .with_traces(traces.clone());
            let start = Start {
                lane,
                database: database.clone(),
                listen: listen.clone(),
                settings: config.worker.engine(),
                metrics: events,
                points: points.clone(),
            };
            workers.engines.push(Engine::start(start).map_err(|error| contradiction(&error))?);
        }
        if let Some(plan) = self.triggers {
            let (executors, scripts) = plan.executors(database)?;
            let replies = Replies::default();
            let worker_id = engine::new_worker_id(&host);
            let mut lane = TriggerLane::new(
                database.worker(),
                worker_id,
                executors,
                plan.settings,
                replies.clone(),
            )
            .with_traces(traces);
            let health = Arc::new(Health {
                scripts,
                held_up: lane.held_up_outcomes(),
                has_ended: AtomicBool::new(false),
            });
            // Set once: a plan is started once.
            let _set_once = triggers.scripts.set(health.clone());
            workers.health = Some(health);
            // Before the first claim, so that a port in use does not leave leases behind.
            if config.triggers.http_listen != "off" {
                let http_listen = &config.triggers.http_listen;
                let leased = lane.leased_requests(config.worker.engine().lease);
                workers.apps = Some(
                    Apps::start(
                        http_listen,
                        database.clone(),
                        listen.clone(),
                        replies,
                        Some(leased),
                        config.triggers.serving(config.http_server),
                    )
                    .await?,
                );
            }
            workers.mail = listen_for_mail(config, database).await?;
            workers.ticker = Some(tokio::spawn(Ticker::new(database.worker()).run()));
            let retention = Retention::new(
                database.worker(),
                Arc::clone(&triggers),
                config.triggers.executions_days,
                config.triggers.logs_days,
            );
            workers.retention = Some(tokio::spawn(retention.run()));
            let start = Start {
                lane,
                database: database.clone(),
                listen,
                settings: config.worker.engine(),
                metrics: triggers,
                points,
            };
            workers.triggers = Some(Engine::start(start).map_err(|error| contradiction(&error))?);
        }
        Ok(workers)
    }
}

/// Stop what runs and serves apps.
async fn stop_triggers(
    engine: Option<Engine>,
    apps: Option<Apps>,
    mail: Option<SmtpListener>,
) -> u64 {
    if let Some(mail) = mail {
        mail.stop().await;
    }
    let held = match engine {
        Some(engine) => engine.stop().await,
        None => 0,
    };
    // Last, so that a client that waits may still get its answer.
    if let Some(apps) = apps {
        apps.stop();
    }
    held
}

fn contradiction(contradiction: &symphony::FieldError) -> Failure {
    Failure::new(contradiction.to_string())
}

async fn listen_for_mail(
    config: &Config,
    database: &Database,
) -> Result<Option<SmtpListener>, Failure> {
    let email = &config.triggers.email;
    if email.listen == "off" {
        return Ok(None);
    }
    // Checked when the plan was made.
    let address =
        email.listen.parse().map_err(|_| Failure::new("triggers.email.listen is wrong"))?;
    let inbox = Arc::new(MailInbox::new(database, email.authserv_id.clone(), email.rates()));
    let listener = SmtpListener::bind(address, email.listener.clone(), inbox).await;
    Ok(Some(listener.map_err(|error| Failure::new(format!("triggers.email.listen: {error}")))?))
}

/// The engines of one process, and what serves its apps.
#[derive(Default)]
pub struct Workers {
    /// Of payments and events.
    engines: Vec<Engine>,
    triggers: Option<Engine>,
    apps: Option<Apps>,
    mail: Option<SmtpListener>,
    ticker: Option<JoinHandle<()>>,
    retention: Option<JoinHandle<()>>,
    witness: Option<JoinHandle<()>>,
    #[cfg(feature = "otlp")]
    exporter: Option<crate::traces::Exporter>,
    health: Option<Arc<Health>>,
    /// The trigger lane while it ends by itself; answers how much it still held.
    ended_triggers: Option<JoinHandle<u64>>,
}

/// How this process's scripts are.
#[derive(Debug)]
struct Health {
    scripts: Arc<ScriptExecutor>,
    held_up: HeldUpOutcomes,
    has_ended: AtomicBool,
}

impl ScriptHealth for Health {
    fn overdue(&self) -> usize {
        self.scripts.overdue()
    }

    fn stuck(&self) -> usize {
        self.scripts.stuck()
    }

    fn held_up(&self) -> usize {
        self.held_up.count()
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }
}

impl Workers {
    /// Begin to export spans, if that is configured.
    #[cfg(feature = "otlp")]
    fn start_traces(
        &mut self,
        config: &Config,
        lanes: Vec<(&'static str, Arc<LaneMetrics>)>,
    ) -> Result<Traces, Failure> {
        self.exporter = crate::traces::Exporter::start(&config.traces, lanes)?;
        Ok(self.exporter.as_ref().map(crate::traces::Exporter::traces).unwrap_or_default())
    }

    /// Nobody collects: the configuration was refused if it says so.
    #[cfg(not(feature = "otlp"))]
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, clippy::needless_pass_by_value)] // as with the feature
    fn start_traces(
        &mut self,
        _config: &Config,
        _lanes: Vec<(&'static str, Arc<LaneMetrics>)>,
    ) -> Result<Traces, Failure> {
        Ok(Traces::default())
    }

    /// The worker ids, by lane.
    pub fn ids(&self) -> String {
        let engines = self.engines.iter().chain(&self.triggers);
        engines.map(Engine::worker_id).collect::<Vec<_>>().join(",")
    }

    /// Wait until any engine has ended by itself, or this process cannot go on; answers why, if there is more to say than
    /// that a task died. Where scripts have stuck too many threads, the trigger lane ends, and this process only if it has
    /// no other lane.
    pub async fn broken(&mut self) -> Option<String> {
        loop {
            let engines = self.engines.iter().chain(&self.triggers);
            let engines = future::select_all(engines.map(|engine| Box::pin(engine.broken())));
            let exhausted = async {
                match (&self.health, &self.triggers) {
                    (Some(health), Some(_)) => health.scripts.exhausted().await,
                    _ => future::pending().await,
                }
            };
            tokio::select! {
                (why, ..) = engines => return why,
                () = exhausted => {}
            }
            if self.engines.is_empty() {
                return Some(EXHAUSTED.to_owned());
            }
            self.end_triggers();
        }
    }

    /// Its threads go on at the lowest priority, and nothing but a new process ends them; the other lanes need none.
    fn end_triggers(&mut self) {
        tracing::error!(
            lane = "triggers",
            event = "SCRIPTS_ENDED",
            "{EXHAUSTED}; its other lanes go on"
        );
        if let Some(health) = &self.health {
            health.has_ended.store(true, Ordering::Release);
        }
        if let Some(ticker) = self.ticker.take() {
            ticker.abort();
        }
        let (engine, apps, mail) = (self.triggers.take(), self.apps.take(), self.mail.take());
        self.ended_triggers = Some(tokio::spawn(stop_triggers(engine, apps, mail)));
    }

    /// Stop all of them; answers how much was still held at the end.
    pub async fn stop(self) -> u64 {
        for task in [&self.ticker, &self.retention, &self.witness].into_iter().flatten() {
            task.abort();
        }
        let engines = future::join_all(self.engines.into_iter().map(Engine::stop));
        let triggers = stop_triggers(self.triggers, self.apps, self.mail);
        let ended = async {
            match self.ended_triggers {
                Some(ending) => ending.await.unwrap_or(0),
                None => 0,
            }
        };
        let (held, of_triggers, of_ended) = tokio::join!(engines, triggers, ended);
        #[cfg(feature = "otlp")]
        if let Some(exporter) = self.exporter {
            exporter.stop().await;
        }
        held.into_iter().sum::<u64>() + of_triggers + of_ended
    }

    /// Where apps are served.
    pub fn apps_address(&self) -> Option<std::net::SocketAddr> {
        self.apps.as_ref().map(Apps::address)
    }

    /// Where mail comes in.
    pub fn mail_address(&self) -> Option<std::net::SocketAddr> {
        self.mail.as_ref().map(SmtpListener::local_addr)
    }
}

/// Write down what the rails' names stand for, and say what may have been sent elsewhere under the same names.
async fn name_endpoints(database: &Database, rails: &[RailSetup]) -> Result<(), Failure> {
    let executor = database.worker();
    for setup in rails {
        let present = &setup.rail.terms().endpoint;
        let earlier = setup.previous.iter().map(|rail| &rail.terms().endpoint);
        let endpoints: Vec<_> = std::iter::once(present).chain(earlier).collect();
        for endpoint in &endpoints {
            executor
                .register_endpoint(&setup.name, endpoint.fingerprint(), endpoint.description())
                .await?;
        }
        for unknown in executor.unknown_by_endpoint(&setup.name).await? {
            let sent_to =
                unknown.endpoint.as_deref().map(|sent_to| sent_to.trim_start_matches('?'));
            let Some(sent_to) = sent_to.filter(|sent_to| *sent_to != present.fingerprint()) else {
                continue;
            };
            let what = if endpoints.iter().any(|endpoint| endpoint.fingerprint() == sent_to) {
                "payments may have been sent to an earlier endpoint of this rail: they are asked about there"
            } else {
                "payments may have been sent to an endpoint this rail no longer has: they are parked, unless it is \
                 configured as `previous`"
            };
            tracing::warn!(
                rail = setup.name,
                endpoint = sent_to,
                description = unknown.description,
                payments = unknown.items,
                parked = unknown.parked,
                event = "OTHER_ENDPOINT",
                "{what}"
            );
        }
    }
    Ok(())
}

/// What the database does with a lost worker's items depends on whether sends are marked: both sides must agree.
pub async fn refuse_unmarked(database: &Database, rails: &[RailSetup]) -> Result<(), Failure> {
    let marking = database.worker().rails_that_mark_sending().await?;
    for setup in rails {
        let needs = needs_marks(setup.rail.terms());
        let name = &setup.name;
        match (needs, marking.contains(name)) {
            (true, false) => {
                return Err(Failure::new(format!(
                    "rail {name} can neither deduplicate nor be asked, so its sends must be marked: \
                     {}",
                    symphony_of("rail", name, "--marks-sending true --reason WHY --yes")
                )));
            }
            (false, true) => {
                return Err(Failure::new(format!(
                    "rail {name} is set to mark its sends, but this worker would not: what it loses would count as \
                     unsent; {}",
                    symphony_of("rail", name, "--marks-sending false --reason WHY --yes")
                )));
            }
            _ => {}
        }
    }
    Ok(())
}
