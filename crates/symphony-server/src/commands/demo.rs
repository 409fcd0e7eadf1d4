//! `symphony demo`: the lab's tour on the private PostgreSQL, with what it borrows from this crate.

use std::path::Path;
use std::process::ExitCode;

use async_trait::async_trait;
use sqlx::postgres::PgConnectOptions;
use symphony::db::{Auditor, Database, Operator, PaymentLife};
use symphony::lanes::triggers::Replies;
use symphony_lab::LabError;
use symphony_lab::demo::{self, DemoOptions};
use symphony_lab::host::{DemoHost, ServedApps, Tone};
use uuid::Uuid;

use super::exclusive_lock::ExclusiveLock;
use super::{app, database, show};
use crate::apps::{Apps, AppsSettings};
use crate::cli::Global;
use crate::output::{self, Failure};
use crate::server::Server;

pub(super) async fn run(global: &Global, options: &DemoOptions) -> Result<ExitCode, Failure> {
    if global.database_url.is_some() {
        return Err(Failure::new(
            "the demo uses the private PostgreSQL, not yours: unset DATABASE_URL and --database-url",
        ));
    }
    let server = Server::open_or_private(global).await?;
    let result = run_alone(global, options, &server).await;
    server.close().await?;
    result
}

async fn run_alone(
    global: &Global,
    options: &DemoOptions,
    server: &Server,
) -> Result<ExitCode, Failure> {
    let Some(private) = server.private() else {
        return Err(Failure::new("no private PostgreSQL is running"));
    };
    let _alone = ExclusiveLock::acquire(private.data_folder(), "demo.lock", "a demo runs")?;
    let mut signals = database::StopSignals::new()?;
    let interrupted = async move {
        signals.received().await;
        Ok(())
    };
    let tour = demo::run(options, private, &Product, global.json, interrupted);
    let report = Box::pin(tour).await?;
    if global.json {
        output::json(&report)?;
    }
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is shown.
struct Product;

#[async_trait]
impl DemoHost for Product {
    fn print(&self, text: &str) -> Result<(), LabError> {
        Ok(output::print(text)?)
    }

    fn print_verbatim(&self, text: &str) -> Result<(), LabError> {
        Ok(output::print_verbatim(text)?)
    }

    fn note(&self, text: &str) {
        output::note(text);
    }

    fn width(&self) -> usize {
        output::width()
    }

    fn toned(&self, tone: Tone, text: &str) -> String {
        let tone = match tone {
            Tone::Good => output::Tone::Good,
            Tone::Bad => output::Tone::Bad,
            Tone::Notable => output::Tone::Notable,
            Tone::Faint => output::Tone::Faint,
            Tone::Heading => output::Tone::Heading,
        };
        output::toned(tone, text)
    }

    fn hanging(&self, lead: &str, text: &str) -> String {
        output::hanging(lead, text)
    }

    fn payment_life(&self, life: &PaymentLife) -> String {
        show::render(life)
    }

    async fn execution_tree(&self, auditor: &Auditor, root: Uuid) -> Result<String, LabError> {
        Ok(app::tree(auditor, root).await?)
    }

    async fn push_app(
        &self,
        operator: &Operator,
        folder: &Path,
        actor: &str,
    ) -> Result<(), LabError> {
        app::push(operator, folder, actor).await?;
        Ok(())
    }

    async fn serve_apps(
        &self,
        database: &Database,
        listen: &PgConnectOptions,
    ) -> Result<Box<dyn ServedApps>, LabError> {
        let (replies, settings) = (Replies::default(), AppsSettings::default());
        let (database, listen) = (database.clone(), listen.clone());
        Ok(Box::new(Apps::start("127.0.0.1:0", database, listen, replies, None, settings).await?))
    }
}

#[async_trait]
impl ServedApps for Apps {
    fn address(&self) -> std::net::SocketAddr {
        Self::address(self)
    }

    async fn stop(self: Box<Self>) {
        Self::stop(*self);
    }
}
