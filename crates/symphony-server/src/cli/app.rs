//! The options of what is done with apps.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use uuid::Uuid;

use super::ApprovedAct;

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
    /// Push a folder, and again whenever a file of it changes; print what its scripts log, until Ctrl-C
    #[command(
        after_help = "A mistake is printed, and the app stays what it was until the next change.\n\nExample:\n  symphony app dev examples/apps/orders"
    )]
    Dev(AppPush),
    /// Print the JSON Schema of app.json
    #[command(after_help = "Example:\n  symphony app schema > app.schema.json")]
    Schema,
    /// Run one script of a folder with a request, without a database
    #[command(
        after_help = "The request is an object: payload, sourceKind (http unless it says otherwise), executionId, attempt. Effects are \
                      printed and not made.\n\nExample:\n  symphony app run show-order --folder examples/apps/orders \\\n      \
                      --request '{\"payload\": {\"params\": {\"id\": \"o-1\"}}}' --kv '{\"order/o-1\": {\"id\": \"o-1\", \"item\": \"tea\"}}'"
    )]
    Run(AppRun),
    /// Run the cases in a folder's tests/*.json, without a database
    #[command(after_help = "Example:\n  symphony app test examples/apps/orders")]
    Test(AppTest),
    /// Every app at a glance
    List,
    /// The newest executions, ended or not
    #[command(
        after_help = "Example:\n  symphony app executions --app orders --state failed --limit 20"
    )]
    Executions(AppExecutions),
    /// One execution whole: payload, result, error, logs, attempts; or what is logged from now on
    #[command(
        after_help = "Examples:\n  symphony app logs 0198a5c0-6f3e-7d1b-8c63-2f1d7c3b5a91\n  \
                      symphony app logs --follow --app orders\n  symphony app logs --follow --json"
    )]
    Logs {
        /// The execution
        #[arg(value_parser = execution_id, required_unless_present = "follow")]
        id: Option<Uuid>,
        /// Instead print what scripts log, as their executions end, until Ctrl-C
        #[arg(long, conflicts_with = "id")]
        follow: bool,
        /// Only this app's
        #[arg(long, value_name = "NAME", requires = "follow")]
        app: Option<String>,
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
    /// Make an app again what an earlier push has made it: the one before the last, unless --to names another
    #[command(
        after_help = "It is a push of what was pushed then: what is in flight keeps its version, entries and secrets stay.\n\nExample:\n  \
                      symphony app versions orders\n  symphony app rollback orders --to 3 --reason 'the new one loses receipts' --yes"
    )]
    Rollback {
        /// The app
        name: String,
        /// The version, as `app versions` lists it [default: the one before the last]
        #[arg(long, value_name = "VERSION", value_parser = clap::value_parser!(i32).range(1..))]
        to: Option<i32>,
        /// Who and why.
        #[command(flatten)]
        act: ApprovedAct,
    },
    /// What the last pushes have made of an app, the newest first
    Versions {
        /// The app
        name: String,
    },
    /// Read and write an app's entries
    #[command(subcommand)]
    Kv(Kv),
    /// Keep an app's secrets: sealed at rest, `secrets.NAME` in its scripts
    #[command(subcommand)]
    Secret(AppSecret),
    /// Delete an app and all that is its own; its ledger stays
    Delete(AppAct),
    /// Whose mail is whose, and letting an app have that of others
    #[command(subcommand)]
    Mail(AppMail),
}

/// What to do with the mail of apps.
#[derive(Debug, Subcommand)]
pub enum AppMail {
    /// Let an app have mail that is not its own: an address of another app, or a filter with a *
    #[command(
        after_help = "An app has the addresses that its app.json names and no other app has. Anything else is granted: to whom a filter \
                      is granted reads all mail within it, and no other app can claim an address there any more.\n\n\
                      Example:\n  symphony app mail grant archive '*@example.com' --reason 'keeps a copy of all' --yes"
    )]
    Grant(MailAct),
    /// Take a grant back, from the next message on
    Revoke(MailAct),
    /// Every address and grant
    List {
        /// Only this app's
        app: Option<String>,
    },
}

/// Options of an act on mail.
#[derive(Debug, Clone, Args)]
pub struct MailAct {
    /// The app
    pub app: String,
    /// An address, the beginning of one and *, or *@ and a domain
    pub filter: String,
    /// Who and why.
    #[command(flatten)]
    pub act: ApprovedAct,
}

/// What to do with an app's entries.
#[derive(Debug, Subcommand)]
pub enum Kv {
    /// The value of an entry, as JSON
    Get {
        /// The app
        app: String,
        /// The entry's key
        key: String,
    },
    /// Entries in the order of their keys, with their values
    #[command(after_help = "Example:\n  symphony app kv list orders --prefix stock/ --limit 20")]
    List {
        /// The app
        app: String,
        /// Only keys that begin with this
        #[arg(long, default_value = "")]
        prefix: String,
        /// Only keys after this one: the last of the page before
        #[arg(long, value_name = "KEY")]
        after: Option<String>,
        /// At most so many
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i32).range(1..=1_000))]
        limit: i32,
    },
    /// Write an entry, which fires what watches it
    #[command(
        after_help = "Examples:\n  symphony app kv set orders stock/tea 40 --reason 'a delivery has come' --yes\n  \
                      symphony app kv set orders greeting '\"good morning\"' --ttl 3600 --reason 'only today' --yes"
    )]
    Set {
        /// The app
        app: String,
        /// The entry's key
        key: String,
        /// Its value as JSON, so a text has quotes of its own; `-` reads it from standard input
        #[arg(allow_negative_numbers = true)]
        value: String,
        /// So many seconds, and then it is not there any more
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i32).range(1..=999_999_999))]
        ttl: Option<i32>,
        /// Who and why.
        #[command(flatten)]
        act: ApprovedAct,
    },
    /// Remove an entry, which fires what watches it
    Delete {
        /// The app
        app: String,
        /// The entry's key
        key: String,
        /// Who and why.
        #[command(flatten)]
        act: ApprovedAct,
    },
}

/// What to do with an app's secrets.
#[derive(Debug, Subcommand)]
pub enum AppSecret {
    /// Keep a secret, read from standard input or a file, and never from the command line
    #[command(
        after_help = "It is sealed here, with triggers.secrets_key of symphony.toml, before it reaches the database.\n\nExample:\n  \
                      symphony app secret set orders stripe --from-file stripe.key --reason 'the new account' --yes"
    )]
    Set {
        /// The app
        app: String,
        /// Its name: letters, digits, hyphens and underscores, a letter first
        name: String,
        /// The file that has it [default: standard input]
        #[arg(long, value_name = "FILE")]
        from_file: Option<PathBuf>,
        /// Who and why.
        #[command(flatten)]
        act: ApprovedAct,
    },
    /// Their names, who set them and with which key they are sealed
    List {
        /// The app
        app: String,
    },
    /// Forget a secret
    Delete {
        /// The app
        app: String,
        /// Its name
        name: String,
        /// Who and why.
        #[command(flatten)]
        act: ApprovedAct,
    },
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
    /// Why; needed where a second person must approve a push
    #[arg(long)]
    pub reason: Option<String>,
}

/// Options of `app run`.
#[derive(Debug, Clone, Args)]
pub struct AppRun {
    /// The script's name
    pub script: String,
    /// The app's folder
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub folder: PathBuf,
    /// What it is called with: JSON, or a file that has it
    #[arg(long, value_name = "FILE|JSON")]
    pub request: Option<String>,
    /// Entries that are there: a JSON object of keys and values, or a file that has it
    #[arg(long, value_name = "FILE|JSON")]
    pub kv: Option<String>,
    /// A file with the app's secrets: a JSON object of names and texts
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
}

/// Options of `app test`.
#[derive(Debug, Clone, Args)]
pub struct AppTest {
    /// The app's folder
    #[arg(value_name = "DIR", default_value = ".")]
    pub folder: PathBuf,
    /// A file with the app's secrets, for cases that name none: a JSON object of names and texts
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
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
    pub act: ApprovedAct,
}

/// Options of an act on one app.
#[derive(Debug, Clone, Args)]
pub struct AppAct {
    /// The app
    pub name: String,
    /// Who and why.
    #[command(flatten)]
    pub act: ApprovedAct,
}

fn execution_id(text: &str) -> Result<Uuid, String> {
    let example = "5f0c6f3e-8d1b-4c63-9a0e-2f1d7c3b5a91";
    let wrong =
        |_| format!("an execution's id looks like {example}; `symphony app executions` lists them");
    text.parse().map_err(wrong)
}
