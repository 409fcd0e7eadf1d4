//! The options of `symphony token`: access tokens of the HTTP API.

use clap::{Args, Subcommand, ValueEnum};
use uuid::Uuid;

/// What `token --help` teaches.
pub(super) const HELP: &str = "A token is shown once, when it is made; the database keeps only its SHA-256. The login needs \
     symphony_auth.\n\nScopes:\n  \
     ingest   enqueue payments and events\n  \
     operate  act\n  \
     approve  approve what others ask for\n  \
     read     look, without payloads\n  \
     audit    look, payloads included\n  \
     call     call routes of apps that need a token\n\n\
     Examples:\n  \
     symphony token create --name shop --person shop --scope ingest\n  \
     symphony token create --name 'dana at work' --person dana --scope operate,read\n  \
     symphony token list\n  \
     symphony token revoke 5f0c6f3e-8d1b-4c63-9a0e-2f1d7c3b5a91 --reason 'laptop lost'";

/// What to do with tokens.
#[derive(Debug, Clone, Subcommand)]
pub enum Token {
    /// Make one, and print it: it is never shown again
    #[command(override_usage = "symphony token create --name NAME --person NAME --scope SCOPES")]
    Create(TokenCreate),
    /// All of them, the newest first
    List,
    /// Make one useless, from the next request on
    Revoke {
        /// The token's id, as `token list` prints it
        id: Uuid,
        /// Why
        #[arg(long)]
        reason: String,
        /// Who you are [default: $SUDO_USER, else $USER]
        #[arg(long, value_name = "NAME")]
        actor: Option<String>,
    },
}

/// Options of `token create`.
#[derive(Debug, Clone, Args)]
pub struct TokenCreate {
    /// What it is for
    #[arg(long)]
    pub name: String,
    /// Whose it is: their database login, if they have one; two tokens of one person cannot approve each other
    #[arg(long, value_name = "NAME")]
    pub person: String,
    /// What it may do; several are separated by commas
    #[arg(long, value_enum, value_delimiter = ',', required = true)]
    pub scope: Vec<TokenScope>,
    /// For how many days
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=365))]
    pub expires_in_days: u16,
    /// Who you are [default: $SUDO_USER, else $USER]
    #[arg(long, value_name = "NAME")]
    pub actor: Option<String>,
}

/// What a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TokenScope {
    /// Enqueue payments and events
    Ingest,
    /// Act
    Operate,
    /// Approve what others ask for
    Approve,
    /// Look, without payloads
    Read,
    /// Look, payloads included
    Audit,
    /// Call the routes of apps that need a token
    Call,
}

impl TokenScope {
    /// Its word in the database.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Operate => "operate",
            Self::Approve => "approve",
            Self::Read => "read",
            Self::Audit => "audit",
            Self::Call => "call",
        }
    }
}
