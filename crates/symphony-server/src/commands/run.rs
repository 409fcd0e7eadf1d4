//! `symphony run`: production workers, until SIGTERM or Ctrl-C.

use std::process::ExitCode;

use sqlx::postgres::PgConnectOptions;
use symphony::db::Database;

use super::database::StopSignals;
use crate::api::Api;
use crate::cli::{Global, Run};
use crate::config::Config;
use crate::http_server::raise_open_files_limit;
use crate::output::{self, Failure};
use crate::server::Server;
use crate::worker::{Plan, Workers};
use crate::{kill_points, telemetry};

pub(super) async fn run(global: &Global, options: &Run) -> Result<ExitCode, Failure> {
    let mut config = Config::load_all(global.config.as_deref())?;
    config.set_api_listen(options.api.as_deref());
    config.set_database_url(global.database_url.as_deref());
    telemetry::start(&config.log);
    raise_open_files_limit();
    // Everything that can be wrong with the settings is said before anything is started.
    let plan = Plan::new(&config, &options.lanes, &options.rails)?;
    let points = kill_points::from_environment()?;
    let server = Server::open(global).await?;
    let result = async {
        let database = server.worker_database(&config.database).await?;
        let listen = listen_options(&config, &server)?;
        let (lanes, rails) = (plan.lanes(), plan.rail_names().join(","));
        let api = start_api(&config, &plan, &database).await?;
        let mut signals = StopSignals::new()?;
        let mut workers = Box::pin(plan.start(&config, &database, listen, points)).await?;
        tracing::info!(
            worker_id = workers.ids(),
            lanes,
            rails,
            database = output::asked().map(output::AskedDatabase::text),
            address = api.as_ref().map(|api| api.address().to_string()),
            version = env!("CARGO_PKG_VERSION"),
            "working"
        );
        if let Some(address) = workers.apps_address() {
            tracing::info!(%address, "apps are served");
        }
        if let Some(address) = workers.mail_address() {
            tracing::info!(%address, "mail is taken");
        }
        let broken = tokio::select! {
            () = signals.received() => None,
            () = end_of_input(), if options.until_input_ends => None,
            why = workers.broken() => Some(broken(why)),
        };
        let stopped = stop(workers, api, &mut signals).await;
        broken.map_or(stopped, Err)
    }
    .await;
    server.close().await?;
    result
}

/// The API, unless it is off. Before the first claim: a port that is taken must not cost anybody a lease.
pub(super) async fn start_api(
    config: &Config,
    plan: &Plan,
    database: &Database,
) -> Result<Option<Api>, Failure> {
    if config.api.listen == "off" {
        return Ok(None);
    }
    Ok(Some(Api::start(&config.api, database.clone(), plan.metrics(), config.http_server).await?))
}

/// A worker that is half dead ends as a whole, so that whoever watches over it starts another.
pub(super) fn broken(why: Option<String>) -> Failure {
    let died = || "a task of the worker died, as the log says: start another worker".to_owned();
    Failure::new(why.unwrap_or_else(died))
}

/// Until standard input ends. A thread of its own, which may go on reading when the process ends.
async fn end_of_input() {
    let (ended, wait) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        // However it ends: nobody is there any more.
        drop(std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()));
        drop(ended);
    });
    drop(wait.await);
}

/// Stop gracefully; a second signal stops at once.
pub(super) async fn stop(
    workers: Workers,
    api: Option<Api>,
    signals: &mut StopSignals,
) -> Result<ExitCode, Failure> {
    tracing::info!(
        "stopping: nothing more is claimed, what is in flight may end; a second signal stops at once"
    );
    let held = tokio::select! {
        held = workers.stop() => held,
        () = signals.received() => {
            return Err(Failure::new("stopped at once: what was held comes back when its leases expire"));
        }
    };
    if let Some(api) = api {
        api.stop();
    }
    if held > 0 {
        return Err(Failure::new(format!(
            "{held} items were still held: they come back when their leases expire, and their rail is asked first"
        )));
    }
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Where to LISTEN: the direct connection, if one is configured.
pub(super) fn listen_options(
    config: &Config,
    server: &Server,
) -> Result<PgConnectOptions, Failure> {
    match &config.database.listen_url {
        None => Ok(server.options().clone().application_name("symphony listener")),
        Some(url) => Server::parse_url(url)
            .map(|options| options.application_name("symphony listener"))
            .map_err(|problem| Failure::new(format!("database.listen_url {problem}"))),
    }
}
