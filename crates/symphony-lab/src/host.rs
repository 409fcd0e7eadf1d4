//! What the laboratory borrows from the program that calls it: the product's own parts, and its screen.

use std::net::SocketAddr;
use std::path::Path;

use async_trait::async_trait;
use sqlx::postgres::PgConnectOptions;
use symphony::db::{Auditor, Database, Operator, PaymentLife};
use uuid::Uuid;

use crate::LabError;

/// What a colour means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Good,
    /// Wrong.
    Bad,
    /// Neither, and worth finding.
    Notable,
    /// Beside the point.
    Faint,
    /// A heading.
    Heading,
}

/// What the demo borrows.
#[async_trait]
pub trait DemoHost: Sync {
    /// Text for people; lines that are too long for the terminal are wrapped.
    fn print(&self, text: &str) -> Result<(), LabError>;
    /// Text as it is.
    fn print_verbatim(&self, text: &str) -> Result<(), LabError>;
    /// A note beside the answer.
    fn note(&self, text: &str);
    /// How many columns a line has.
    fn width(&self) -> usize;
    /// Text in the colour of its tone, where colours are shown.
    fn toned(&self, tone: Tone, text: &str) -> String;
    /// A sentence after its lead.
    fn hanging(&self, lead: &str, text: &str) -> String;
    /// A payment's life, as `symphony show` prints it.
    fn payment_life(&self, life: &PaymentLife) -> String;
    /// What fired what, as `symphony app tree` draws it.
    async fn execution_tree(&self, auditor: &Auditor, root: Uuid) -> Result<String, LabError>;
    /// As `symphony app push` does it.
    async fn push_app(
        &self,
        operator: &Operator,
        folder: &Path,
        actor: &str,
    ) -> Result<(), LabError>;
    /// Serve apps over HTTP, at any free port, and run none of their scripts.
    async fn serve_apps(
        &self,
        database: &Database,
        listen: &PgConnectOptions,
    ) -> Result<Box<dyn ServedApps>, LabError>;
}

/// What `bench triggers` borrows.
#[async_trait]
pub trait TriggerHost: Sync {
    /// Connect as a worker is configured to.
    async fn connect(&self, options: &PgConnectOptions) -> Result<Database, LabError>;
    /// A worker of the trigger lane, with its own HTTP surface.
    async fn start(
        &self,
        database: &Database,
        listen: &PgConnectOptions,
    ) -> Result<Box<dyn ServedApps>, LabError>;
}

/// Apps that are being served.
#[async_trait]
pub trait ServedApps: Send + Sync {
    /// Where.
    fn address(&self) -> SocketAddr;
    /// Serve no more.
    async fn stop(self: Box<Self>);
}
