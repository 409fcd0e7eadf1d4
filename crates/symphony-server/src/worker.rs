//! One worker process: the engines of its lanes on a database, until somebody asks it to stop. Used by `run`, `up` and
//! `demo`.

use std::sync::Arc;

use futures_util::future;
use sqlx::postgres::PgConnectOptions;
use symphony::db::Database;
use symphony::engine::{self, Engine, Group, LaneMetrics, Points, Start};
use symphony::lanes::events::EventLane;
use symphony::lanes::payments::{PaymentLane, RailSetup, needs_marks};
use symphony::lanes::triggers::{Replies, Ticker, TriggerLane};
use symphony::witness::Witness;
use symphony_connect::email::SmtpListener;
use tokio::task::JoinHandle;

use crate::apps::Apps;
use crate::apps::adapters::Inbox;
use crate::cli::LaneName;
use crate::config::{Config, EventPlan, TriggerPlan, build_rails};
use crate::output::Failure;

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
        let payments_worker = engine::new_worker_id(&host);
        let mut witness = Witness::open(
            database.executor(),
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
            let lane = PaymentLane::new(database.executor(), payments_worker, rails);
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
            let executor = database.executor();
            let lane = EventLane::new(executor, worker_id, plan.buses, plan.routes, plan.settings)
                .map_err(|error| Failure::new(error.to_string()))?;
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
            let executors = plan.executors(database)?;
            let replies = Replies::default();
            // Before the first claim: a port that is taken must not cost anybody a lease.
            if config.triggers.http_listen != "off" {
                let http_listen = &config.triggers.http_listen;
                workers.apps = Some(
                    Apps::start(
                        http_listen,
                        database.clone(),
                        listen.clone(),
                        replies.clone(),
                        config.http_server,
                    )
                    .await?,
                );
            }
            workers.mail = listen_for_mail(config, database).await?;
            workers.ticker = Some(tokio::spawn(Ticker::new(database.executor()).run()));
            let worker_id = engine::new_worker_id(&host);
            let start = Start {
                lane: TriggerLane::new(
                    database.executor(),
                    worker_id,
                    executors,
                    plan.settings,
                    replies,
                ),
                database: database.clone(),
                listen,
                settings: config.worker.engine(),
                metrics: triggers,
                points,
            };
            workers.engines.push(Engine::start(start).map_err(|error| contradiction(&error))?);
        }
        Ok(workers)
    }
}

fn contradiction(contradiction: &engine::Contradiction) -> Failure {
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
    let inbox = Arc::new(Inbox(database.ingest()));
    let listener = SmtpListener::bind(address, email.listener.clone(), inbox).await;
    Ok(Some(listener.map_err(|error| Failure::new(format!("triggers.email.listen: {error}")))?))
}

/// The engines of one process, and what serves its apps.
#[derive(Default)]
pub struct Workers {
    engines: Vec<Engine>,
    apps: Option<Apps>,
    mail: Option<SmtpListener>,
    ticker: Option<JoinHandle<()>>,
    witness: Option<JoinHandle<()>>,
}

impl Workers {
    /// Who works, lane by lane.
    pub fn ids(&self) -> String {
        self.engines.iter().map(Engine::worker_id).collect::<Vec<_>>().join(",")
    }

    /// Wait until any engine has ended by itself; answers why, if there is more to say than that a task died.
    pub async fn broken(&self) -> Option<String> {
        future::select_all(self.engines.iter().map(|engine| Box::pin(engine.broken()))).await.0
    }

    /// Stop all of them; answers how much was still held at the end.
    pub async fn stop(self) -> u64 {
        for task in [&self.ticker, &self.witness].into_iter().flatten() {
            task.abort();
        }
        if let Some(mail) = self.mail {
            mail.stop().await;
        }
        let held = future::join_all(self.engines.into_iter().map(Engine::stop)).await;
        // Last: whoever waits for an answer may still get it.
        if let Some(apps) = self.apps {
            apps.stop();
        }
        held.into_iter().sum()
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
    let executor = database.executor();
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
    let marking = database.executor().rails_that_mark_sending().await?;
    for setup in rails {
        let needs = needs_marks(setup.rail.terms());
        let name = &setup.name;
        match (needs, marking.contains(name)) {
            (true, false) => {
                return Err(Failure::new(format!(
                    "rail {name} can neither deduplicate nor be asked, so its sends must be marked: \
                     symphony rail {name} --marks-sending true --reason '…' --yes"
                )));
            }
            (false, true) => {
                return Err(Failure::new(format!(
                    "rail {name} is set to mark its sends, but this worker would not: what it loses would count as \
                     unsent; symphony rail {name} --marks-sending false --reason '…' --yes"
                )));
            }
            _ => {}
        }
    }
    Ok(())
}
