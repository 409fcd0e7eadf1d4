//! One worker process: a lane's engine on a database, until somebody asks it to stop. Used by `run`, `up` and `demo`.

use std::sync::Arc;

use sqlx::postgres::PgConnectOptions;
use symphony::db::Database;
use symphony::engine::{self, Engine, LaneMetrics, Points, Start};
use symphony::lanes::payments::{PaymentLane, RailSetup, needs_marks};

use crate::config::Config;
use crate::output::Failure;

/// Start the payment lane.
pub async fn start_payments(
    config: &Config,
    database: &Database,
    listen: PgConnectOptions,
    rails: Vec<RailSetup>,
    points: Points,
    metrics: Arc<LaneMetrics>,
) -> Result<Engine, Failure> {
    refuse_unmarked(database, &rails).await?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let lane = PaymentLane::new(database.executor(), engine::new_worker_id(&host), rails);
    Engine::start(Start {
        lane,
        database: database.clone(),
        listen,
        settings: config.worker.engine(),
        metrics,
        points,
    })
    .map_err(|contradiction| Failure::new(contradiction.to_string()))
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
