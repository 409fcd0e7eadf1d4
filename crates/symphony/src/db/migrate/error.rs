//! Why a migration did not happen, in words that say what to do.

use super::repair;
use crate::db::{DbError, Schema};
use crate::schema::SCHEMA_VERSION;

/// How many things one message names.
const NAMED_MAX: usize = 30;

/// Why a migration did not happen, or not wholly. Nothing was changed, unless it says so.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// Nothing there.
    #[error(
        "Symphony is not installed in schema {schema} of this database: run `{}`",
        .schema.command("migrate")
    )]
    NotInstalled {
        /// Where it was looked for.
        schema: Schema,
    },
    /// Other functions.
    #[error(
        "this database has functions, views or privileges of another version than this build: run `{}`",
        .schema.command("migrate")
    )]
    CodeDiffers {
        /// Where.
        schema: Schema,
    },
    /// From the future.
    #[error(
        "this database has schema version {installed}, newer than this build's {SCHEMA_VERSION}: use a newer symphony"
    )]
    Newer {
        /// Its version.
        installed: i32,
    },
    /// Other tables.
    #[error(
        "this database has other tables than this build (until 1.0 they change in place): keep the older symphony, or recreate everything, ledger included, with `{}` ({})",
        .schema.command("migrate --fresh --yes"),
        named(.differences)
    )]
    TablesDiffer {
        /// Where.
        schema: Schema,
        /// In what.
        differences: Vec<String>,
    },
    /// Not as declared.
    #[error(
        "the schema is not as declared: {}; `{}` says what is wrong, `{}` restores what it can",
        named(.differences),
        .schema.command("doctor"),
        .schema.command("migrate")
    )]
    ChangedByHand {
        /// Where.
        schema: Schema,
        /// In what.
        differences: Vec<String>,
    },
    /// What a migration cannot prove or may not touch.
    #[error(
        "the schema was not stamped, because {} left that migrate does not touch: {}{}",
        things(.remaining),
        named(.remaining),
        restored(.repaired)
    )]
    Refused {
        /// What is left.
        remaining: Vec<String>,
        /// What was restored, and stays so.
        repaired: Vec<String>,
    },
    /// Somebody else's objects under our names.
    #[error(
        "other objects bear Symphony's names, and are neither adopted nor dropped: {}; rename or remove them first",
        named(.objects)
    )]
    Foreign {
        /// Each with its owner.
        objects: Vec<String>,
    },
    /// Somebody else's objects stand on ours.
    #[error(
        "other objects stand on what would have to be dropped: {message}; drop or change them first"
    )]
    Dependents {
        /// What the database said.
        message: String,
    },
    /// An older installation.
    #[error(
        "an older installation is here ({found}): `{}` drops it, if it holds no unfinished rows",
        .schema.command("migrate --replace-legacy --yes")
    )]
    Legacy {
        /// Where the new one was to be installed.
        schema: Schema,
        /// What was found.
        found: String,
    },
    /// One from before Symphony had a schema of its own.
    #[error(
        "an installation of an earlier build is here, in the schemas public and symphony_internal: let that build finish what waits in it, then drop it with `DROP OWNED BY symphony_control` and migrate again"
    )]
    EarlierBuild,
    /// An older installation with work in it.
    #[error(
        "the older table payment_outbox still holds {rows} unfinished rows: finish or remove them first"
    )]
    LegacyUnfinished {
        /// How many.
        rows: i64,
    },
    /// Somebody holds a lock.
    #[error(
        "waited {seconds} s for a lock, in vain: blocked by {by}; nothing was changed, try again when it has ended"
    )]
    Blocked {
        /// How long.
        seconds: u64,
        /// By whom.
        by: String,
    },
    /// The login may not.
    #[error(
        "the login lacks the rights to migrate: {message}; it needs CREATEROLE and CREATE on the database, or be a superuser"
    )]
    Privilege {
        /// What the database said.
        message: String,
    },
    /// Anything else.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl MigrateError {
    /// The stable code whose page explains more, where there is one.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::NotInstalled { .. }
            | Self::EarlierBuild
            | Self::CodeDiffers { .. }
            | Self::TablesDiffer { .. }
            | Self::Newer { .. } => Some("SYM01"),
            Self::ChangedByHand { .. }
            | Self::Refused { .. }
            | Self::Foreign { .. }
            | Self::Dependents { .. } => Some("SYM06"),
            Self::Privilege { .. } => Some("42501"),
            Self::Db(error) => Some(error.code()),
            Self::Legacy { .. } | Self::LegacyUnfinished { .. } | Self::Blocked { .. } => None,
        }
    }
}

fn named(all: &[String]) -> String {
    let mut text = all.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join("; ");
    if all.len() > NAMED_MAX {
        text.push_str(&format!("; and {} more", all.len() - NAMED_MAX));
    }
    text.replace('\n', " ")
}

fn things(all: &[String]) -> String {
    if all.len() == 1 { "one thing is".to_owned() } else { format!("{} things are", all.len()) }
}

fn restored(repaired: &[String]) -> String {
    if repaired.is_empty() {
        String::new()
    } else {
        format!("; restored meanwhile: {}", named(repaired))
    }
}

impl From<sqlx::Error> for MigrateError {
    fn from(error: sqlx::Error) -> Self {
        if let sqlx::Error::Database(inner) = &error
            && inner.code().as_deref() == Some("2BP01")
        {
            return Self::Dependents { message: repair::words(&error) };
        }
        match DbError::from(error) {
            DbError::MissingPrivilege { message } => Self::Privilege { message },
            other => Self::Db(other),
        }
    }
}
