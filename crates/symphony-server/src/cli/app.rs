//! The options of what is done with apps.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use uuid::Uuid;

use super::ActOptions;

/// What `app --help` teaches.
pub(super) const HELP: &str = "Examples:\n  \
     symphony app push examples/apps/orders\n  \
     symphony app executions --app orders --state failed\n  \
     symphony app tree 0198a5c0-6f3e-7d1b-8c63-2f1d7c3b5a91\n  \
     symphony app replay 0198a5c0-6f3e-7d1b-8c63-2f1d7c3b5a91 --reason WHY\n\n\
     docs/APPS.md has the folder, the manifest and what each command prints.";

/// What to do with apps.
#[derive(Debug, Subcommand)]
pub enum App {
    /// Create an app from a folder, or make it what the folder says
    #[command(
        after_help = "The folder has app.json and the scripts it names. It is the whole truth: a route, trigger, topic or queue it \
                      does not name is gone afterwards.\n\nExample:\n  symphony app push examples/apps/orders"
    )]
    Push(AppPush),
    /// Every app at a glance
    List,
    /// The newest executions, ended or not
    #[command(
        after_help = "Example:\n  symphony app executions --app orders --state failed --limit 20"
    )]
    Executions(AppExecutions),
    /// One execution whole: payload, result, error, logs, attempts
    Logs {
        /// The execution
        #[arg(value_parser = execution_id)]
        id: Uuid,
    },
    /// What fired what: the whole tree of an execution, whichever of it is named
    Tree {
        /// Any execution of the tree
        #[arg(value_parser = execution_id)]
        id: Uuid,
    },
    /// Run an ended execution again, with what it had and the script as it is now
    #[command(
        after_help = "The one that ended stays as it is; the new one is tried once.\n\nExample:\n  \
                      symphony app replay 0198a5c0-6f3e-7d1b-8c63-2f1d7c3b5a91 \\\n      --reason 'the script was corrected' --yes"
    )]
    Replay(ExecutionAct),
    /// Delete an app and all that is its own; its ledger stays
    Delete(AppAct),
    /// Run nothing of an app until it is resumed; what fires it is written and waits
    Pause(AppSwitch),
    /// Run an app again
    Resume(AppSwitch),
}

/// Options of `app push`.
#[derive(Debug, Clone, Args)]
pub struct AppPush {
    /// The app's folder
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// The app's name [default: name in app.json, else the folder's]
    #[arg(long)]
    pub name: Option<String>,
    /// Who you are [default: $SUDO_USER, else $USER, else the account]
    #[arg(long, value_name = "NAME")]
    pub actor: Option<String>,
}

/// Options of `app executions`.
#[derive(Debug, Clone, Args)]
pub struct AppExecutions {
    /// Only this app's
    #[arg(long, value_name = "NAME")]
    pub app: Option<String>,
    /// Only those in this state
    #[arg(long, value_enum, ignore_case = true)]
    pub state: Option<ExecutionState>,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
}

/// How far an execution has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExecutionState {
    /// It has not ended
    Pending,
    /// It answered
    Dispatched,
    /// It ended without an answer
    Failed,
}

impl ExecutionState {
    /// As the database calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Dispatched => "DISPATCHED",
            Self::Failed => "FAILED",
        }
    }
}

/// Options of an act on one execution.
#[derive(Debug, Clone, Args)]
pub struct ExecutionAct {
    /// The execution
    #[arg(value_parser = execution_id)]
    pub id: Uuid,
    /// Who and why.
    #[command(flatten)]
    pub act: ActOptions,
    /// The second person, where one is needed
    #[arg(long, value_name = "NAME")]
    pub approver: Option<String>,
}

/// Options of an act on one app.
#[derive(Debug, Clone, Args)]
pub struct AppAct {
    /// The app
    pub name: String,
    /// Who and why.
    #[command(flatten)]
    pub act: ActOptions,
    /// The second person, where one is needed
    #[arg(long, value_name = "NAME")]
    pub approver: Option<String>,
}

/// Options of `app pause` and `app resume`, which lose nothing and are done at once.
#[derive(Debug, Clone, Args)]
pub struct AppSwitch {
    /// The app
    pub name: String,
    /// Why; kept in the ledger
    #[arg(long, default_value = "no reason given")]
    pub reason: String,
    /// Who you are [default: $SUDO_USER, else $USER]
    #[arg(long, value_name = "NAME")]
    pub actor: Option<String>,
}

fn execution_id(text: &str) -> Result<Uuid, String> {
    let example = "5f0c6f3e-8d1b-4c63-9a0e-2f1d7c3b5a91";
    let wrong =
        |_| format!("an execution's id looks like {example}; `symphony app executions` lists them");
    text.parse().map_err(wrong)
}
