//! What a process serves over HTTP: `/metrics`, `/healthz`, `/readyz`, and the management of apps.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use symphony::db::{Database, LaneStatus};
use symphony::engine::LaneMetrics;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::config::listen_address;
use crate::http_server::{self, HttpServerSettings};
use crate::output::Failure;
use crate::{manage, metrics};

/// How old the database's figures may be: scrapes within that time share one query.
const FIGURES_FOR: Duration = Duration::from_secs(5);

/// As Prometheus reads it.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A running server.
#[derive(Debug)]
pub struct Api {
    address: SocketAddr,
    task: JoinHandle<()>,
}

struct Served {
    database: Database,
    lanes: Vec<(&'static str, Arc<LaneMetrics>)>,
    figures: Mutex<Option<(Instant, Vec<LaneStatus>)>>,
}

impl Api {
    /// Serve at an address; loopback only, until there are tokens.
    pub async fn start(
        listen: &str,
        database: Database,
        lanes: Vec<(&'static str, Arc<LaneMetrics>)>,
        bounds: HttpServerSettings,
    ) -> Result<Self, Failure> {
        let listener = bind(listen).await?;
        let manage = manage::router(database.clone());
        let served = Arc::new(Served { database, lanes, figures: Mutex::new(None) });
        let router = Router::new()
            .route("/metrics", get(metrics_page))
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .with_state(served)
            .merge(manage);
        Self::serve(listener, router, bounds)
    }

    /// Serve figures that need no database.
    pub async fn start_with_page(
        listen: &str,
        page: impl Fn() -> String + Clone + Send + Sync + 'static,
        bounds: HttpServerSettings,
    ) -> Result<Self, Failure> {
        let listener = bind(listen).await?;
        let router = Router::new()
            .route(
                "/metrics",
                get(|| async move { ([(header::CONTENT_TYPE, METRICS_TYPE)], page()) }),
            )
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(|| async { "ready\n" }));
        Self::serve(listener, router, bounds)
    }

    fn serve(
        listener: TcpListener,
        router: Router,
        bounds: HttpServerSettings,
    ) -> Result<Self, Failure> {
        let address = listener.local_addr()?;
        Ok(Self { address, task: http_server::serve(listener, router, bounds) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stop serving.
    pub fn stop(self) {
        self.task.abort();
    }
}

async fn bind(listen: &str) -> Result<TcpListener, Failure> {
    // `consume` has no plan that would have checked it.
    let refused = |problem: String| Failure::new(format!("the address of /metrics {problem}"));
    let address = listen_address(listen, "127.0.0.1:9464").map_err(refused)?;
    let Some(address) = address.filter(|address| address.ip().is_loopback()) else {
        return Err(refused(format!(
            "is {listen}: only loopback addresses are served, because there are no access tokens yet"
        )));
    };
    TcpListener::bind(address).await.map_err(|error| {
        Failure::new(format!("cannot listen on {listen}: {error}; choose another with --api or api.listen, or \"off\""))
    })
}

async fn metrics_page(State(served): State<Arc<Served>>) -> impl IntoResponse {
    let figures = served.figures().await;
    let page = metrics::render(&served.lanes, &figures);
    ([(header::CONTENT_TYPE, METRICS_TYPE)], page)
}

async fn ready(State(served): State<Arc<Served>>) -> impl IntoResponse {
    // As the role a worker has: the login may have no other.
    match served.database.executor().rails_that_mark_sending().await {
        Ok(_) => (StatusCode::OK, "ready\n".to_owned()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", error.code())),
    }
}

impl Served {
    /// The lanes as the database sees them; the last known ones while it is away.
    async fn figures(&self) -> Vec<LaneStatus> {
        let mut known = self.figures.lock().await;
        if let Some((at, figures)) = known.as_ref()
            && at.elapsed() < FIGURES_FOR
        {
            return figures.clone();
        }
        match self.database.executor().status().await {
            Ok(figures) => {
                *known = Some((Instant::now(), figures.clone()));
                figures
            }
            Err(_) => known.as_ref().map(|(_, figures)| figures.clone()).unwrap_or_default(),
        }
    }
}
