//! The options of `restore`: going on after a database was restored, copied or promoted.

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};

use super::ApprovedAct;

/// What to do about another server.
#[derive(Debug, Clone, Subcommand)]
pub enum Restore {
    /// Is this the server the installation is known to run on? What would be asked, what parked? Changes nothing
    #[command(
        after_help = "Exit code 0: work goes on here. 1: nothing is dispatched until `symphony restore accept`."
    )]
    Check,
    /// Go on here: whatever may have been sent is inquired after before anything is sent again
    #[command(
        after_help = "Do not accept a copy made for tests while the real rails are configured: it would pay for real.\n\n\
                      Example:\n  symphony restore accept --reason 'backup of 03:00, incident 4711' --yes"
    )]
    Accept(AcceptServer),
}

/// Options of `restore accept`.
#[derive(Debug, Clone, Args)]
pub struct AcceptServer {
    /// Until when this database knows everything, as 2026-01-31T03:00:00Z [default: the newest sign of a worker in it].
    /// Keys that a rail may have forgotten since then are not relied on
    #[arg(long, value_name = "TIME")]
    pub lost_since: Option<DateTime<Utc>>,
    /// For how long rails are also asked first about new payments: a producer asks again for what was lost
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400)]
    pub ask_first_for: i32,
    /// Who and why.
    #[command(flatten)]
    pub act: ApprovedAct,
}
