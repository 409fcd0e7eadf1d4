//! Every way a call to the database can end badly, as one enum with stable codes.
//!
//! Each code has a page under docs/errors/. Messages come from the SQL functions, which never repeat a
//! payload; a driver's message is only passed on where it cannot contain data.

use sqlx::error::DatabaseError;

/// What makes a second terminal outcome impossible, lane by lane.
const ONE_TERMINAL: [&str; 3] = [
    "payment_outbox_attempts_one_terminal_per_outbox",
    "event_outbox_attempts_one_terminal_per_event",
    "trigger_outbox_attempts_one_terminal_per_item",
];

/// A failed call to the database.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DbError {
    /// P0001: somebody tried to rewrite the ledger.
    #[error("{message}")]
    AppendOnly {
        /// What the database said.
        message: String,
    },
    /// P7001: the item has a terminal outcome already. A concurrency event, not a fault.
    #[error("{message}")]
    TerminalExists {
        /// What the database said.
        message: String,
    },
    /// P7002: the lease is gone. A concurrency event, not a fault; never retry the completion.
    #[error("{message}")]
    LeaseLost {
        /// What the database said.
        message: String,
    },
    /// P7003: not a state a worker may report, or not a resolution.
    #[error("{message}")]
    InvalidState {
        /// What the database said.
        message: String,
    },
    /// P7004: the idempotency key belongs to another request.
    #[error("{message}")]
    KeyReused {
        /// What the database said.
        message: String,
    },
    /// P7005: an argument is missing, blank, too large or of the wrong shape.
    #[error("{message}")]
    InvalidArgument {
        /// What the database said; names the argument.
        message: String,
    },
    /// P7006: the item's present state does not allow this act.
    #[error("{message}")]
    ActRefused {
        /// What the database said.
        message: String,
    },
    /// P7007: no such item.
    #[error("{message}")]
    NoSuchItem {
        /// What the database said.
        message: String,
    },
    /// P7008: a second person must approve.
    #[error("{message}")]
    ApprovalMissing {
        /// What the database said.
        message: String,
    },
    /// P7009: the rail never said what became of an earlier try, and the act does not say that it is meant all the same.
    #[error("{message}")]
    UnknownTries {
        /// What the database said.
        message: String,
    },
    /// P7010: an access token of the API is unknown, expired or revoked.
    #[error("{message}")]
    TokenRefused {
        /// What the database said.
        message: String,
    },
    /// P7011: what a run had read has changed. Nothing was applied: run it again.
    #[error("{message}")]
    ReadsChanged {
        /// What the database said.
        message: String,
    },
    /// P7012: a sender has sent as much mail to an address as it may in an hour.
    #[error("{message}")]
    TooMuchMail {
        /// What the database said.
        message: String,
    },
    /// P7020: the server is not the one this installation is known to run on: a failover, a restore or a copy.
    #[error("{message}")]
    OtherServer {
        /// What the database said.
        message: String,
    },
    /// 23505 on the terminal index: the backstop held. Record it with `record_terminal_blocked`.
    #[error("a second terminal outcome was refused by the unique index")]
    TerminalBlocked,
    /// 23505 anywhere else: an integrity alarm.
    #[error("integrity alarm: {constraint} was about to be violated")]
    Integrity {
        /// The constraint's name.
        constraint: String,
    },
    /// 40001, 40P01: the transaction lost a race and did nothing; repeat it.
    #[error("the transaction lost a race and was rolled back: repeat it ({sqlstate})")]
    Retry {
        /// Which of them.
        sqlstate: String,
    },
    /// 42501: the login lacks a privilege.
    #[error("missing privilege: {message}; grant the login the Symphony role it acts as")]
    MissingPrivilege {
        /// What the database said.
        message: String,
    },
    /// 42501 at the start: the login is no member of a role that may do this.
    #[error("login {login} lacks {}: GRANT {} TO {login}", one_of(roles), roles.first().unwrap_or(&"it"))]
    MissingRole {
        /// Who we are to the server.
        login: String,
        /// The roles that would do, the best one first.
        roles: &'static [&'static str],
    },
    /// 42P01, 42883: Symphony's schema is not installed here, or not this version's.
    #[error(
        "Symphony's schema is not installed in this database, or is older: run `symphony migrate` ({message})"
    )]
    NotMigrated {
        /// What the database said.
        message: String,
    },
    /// 22021, 22P05: a text that PostgreSQL cannot store.
    #[error(
        "a text argument contains a NUL character or invalid UTF-8, which PostgreSQL cannot store"
    )]
    NulCharacter,
    /// The transaction surely did not commit: the server said so after the connection was lost.
    #[error("the connection was lost and the transaction was rolled back: repeat it")]
    NotCommitted,
    /// The connection was lost during COMMIT and nobody could be asked what became of it.
    #[error(
        "the connection was lost during COMMIT and transaction {xid} could not be looked up: ask again before repeating it"
    )]
    CommitUnknown {
        /// The transaction, for `pg_xact_status`.
        xid: String,
    },
    /// The server could not be reached, or went away.
    #[error("cannot reach PostgreSQL: {message}")]
    Unreachable {
        /// What the driver said.
        message: String,
    },
    /// The server is of a release that the schema cannot be installed on.
    #[error(
        "the server is PostgreSQL {version} and must be {} or newer: upgrade it, or name another server",
        super::SERVER_VERSION_MIN
    )]
    ServerTooOld {
        /// The server's, such as 14.18.
        version: String,
    },
    /// Anything else the server said.
    #[error("PostgreSQL refused: {message} (SQLSTATE {sqlstate})")]
    Refused {
        /// The SQLSTATE.
        sqlstate: String,
        /// What the database said.
        message: String,
    },
    /// The server answered with something this version does not understand.
    #[error("unexpected answer from PostgreSQL: {message}")]
    Unexpected {
        /// What was wrong with it.
        message: String,
    },
}

impl DbError {
    /// The stable code; its page is listed in `docs/errors/README.md`.
    pub fn code(&self) -> &str {
        match self {
            Self::AppendOnly { .. } => "P0001",
            Self::TerminalExists { .. } => "P7001",
            Self::LeaseLost { .. } => "P7002",
            Self::InvalidState { .. } => "P7003",
            Self::KeyReused { .. } => "P7004",
            Self::InvalidArgument { .. } => "P7005",
            Self::ActRefused { .. } => "P7006",
            Self::NoSuchItem { .. } => "P7007",
            Self::ApprovalMissing { .. } => "P7008",
            Self::UnknownTries { .. } => "P7009",
            Self::TokenRefused { .. } => "P7010",
            Self::ReadsChanged { .. } => "P7011",
            Self::TooMuchMail { .. } => "P7012",
            Self::OtherServer { .. } => "P7020",
            Self::TerminalBlocked | Self::Integrity { .. } => "23505",
            Self::Retry { .. } => "40001",
            Self::MissingPrivilege { .. } | Self::MissingRole { .. } => "42501",
            Self::NotMigrated { .. } => "SYM01",
            Self::NulCharacter => "22021",
            Self::NotCommitted => "SYM02",
            Self::CommitUnknown { .. } => "SYM03",
            Self::Unreachable { .. } => "SYM04",
            Self::Refused { .. } | Self::Unexpected { .. } => "SYM05",
            Self::ServerTooOld { .. } => "SYM07",
        }
    }

    /// Two workers met at one item: log it as CONCURRENCY_EVENT, never page anybody.
    pub fn is_concurrency_event(&self) -> bool {
        matches!(self, Self::TerminalExists { .. } | Self::LeaseLost { .. })
    }

    /// Nothing was written, and the same call may succeed.
    pub fn is_safe_to_repeat(&self) -> bool {
        matches!(self, Self::Retry { .. } | Self::NotCommitted)
    }

    /// The database was away, out of resources, or did not say: the same call may be answered later. Whether
    /// this one was carried out must be found out by whoever repeats it.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Retry { .. }
            | Self::NotCommitted
            | Self::CommitUnknown { .. }
            | Self::Unreachable { .. } => true,
            // Connection, resources, operator, system; and a standby that is not promoted yet.
            Self::Refused { sqlstate, .. } => {
                ["08", "53", "57", "58", "25006"].iter().any(|class| sqlstate.starts_with(class))
            }
            _ => false,
        }
    }

    /// A person must say something first, and until then waiting is right: the server is not the one this
    /// installation ran on, and `symphony restore accept` is awaited (P7020).
    pub fn waits_for_a_person(&self) -> bool {
        matches!(self, Self::OtherServer { .. })
    }

    /// The server has answered, and the answer is no: as long as nobody changes anything it stays that.
    pub fn is_refusal(&self) -> bool {
        !self.is_transient() && !self.waits_for_a_person()
    }

    /// 55P03: somebody holds what the transaction needs for longer than it may wait. It did nothing.
    pub fn is_lock_timeout(&self) -> bool {
        matches!(self, Self::Refused { sqlstate, .. } if sqlstate == "55P03")
    }

    /// 57014: the statement took longer than it may, or somebody cancelled it. It did nothing.
    pub fn is_time_out(&self) -> bool {
        matches!(self, Self::Refused { sqlstate, .. } if sqlstate == "57014")
    }

    /// 22003, 22008: a number or a date that PostgreSQL cannot store. Whoever gave it must give another.
    pub fn is_out_of_range(&self) -> bool {
        matches!(self, Self::Refused { sqlstate, .. } if sqlstate == "22003" || sqlstate == "22008")
    }

    /// The installation is not as this worker needs it: a grant is missing, the schema is another version's, or was
    /// just changed under a prepared statement (0A000). Repeating helps once somebody has mended it.
    pub fn needs_operator(&self) -> bool {
        match self {
            Self::MissingPrivilege { .. } | Self::MissingRole { .. } | Self::NotMigrated { .. } => {
                true
            }
            Self::Refused { sqlstate, .. } => sqlstate == "0A000",
            _ => false,
        }
    }
}

fn one_of(roles: &[&str]) -> String {
    match roles {
        [one] => format!("role {one}"),
        several => format!("every one of the roles {}", several.join(", ")),
    }
}

impl From<sqlx::Error> for DbError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(database) => from_server(database.as_ref()),
            sqlx::Error::Io(error) => Self::Unreachable { message: error.to_string() },
            sqlx::Error::Tls(error) => Self::Unreachable { message: error.to_string() },
            sqlx::Error::Protocol(message) => Self::Unreachable { message },
            sqlx::Error::PoolTimedOut => Self::Unreachable {
                message: "no connection within the time limit; is the server running and has it connections left?".into(),
            },
            sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => {
                Self::Unreachable { message: "the connection pool is closed".into() }
            }
            other => Self::Unexpected { message: other.to_string() },
        }
    }
}

fn from_server(error: &dyn DatabaseError) -> DbError {
    let sqlstate = error.code().unwrap_or_default().into_owned();
    let message = error.message().to_owned();
    match sqlstate.as_str() {
        "P0001" => DbError::AppendOnly { message },
        "P7001" => DbError::TerminalExists { message },
        "P7002" => DbError::LeaseLost { message },
        "P7003" => DbError::InvalidState { message },
        "P7004" => DbError::KeyReused { message },
        "P7005" => DbError::InvalidArgument { message },
        "P7006" => DbError::ActRefused { message },
        "P7007" => DbError::NoSuchItem { message },
        "P7008" => DbError::ApprovalMissing { message },
        "P7009" => DbError::UnknownTries { message },
        "P7010" => DbError::TokenRefused { message },
        "P7011" => DbError::ReadsChanged { message },
        "P7012" => DbError::TooMuchMail { message },
        "P7020" => DbError::OtherServer { message },
        "23505" => match error.constraint() {
            Some(index) if ONE_TERMINAL.contains(&index) => DbError::TerminalBlocked,
            constraint => DbError::Integrity {
                constraint: constraint.unwrap_or("a unique constraint").to_owned(),
            },
        },
        "40001" | "40P01" => DbError::Retry { sqlstate },
        "42501" => DbError::MissingPrivilege { message },
        "42P01" | "42883" => DbError::NotMigrated { message },
        "22021" | "22P05" => DbError::NulCharacter,
        // SET LOCAL ROLE in a cluster that has never been migrated.
        "22023" if message.starts_with("role \"symphony_") => DbError::NotMigrated { message },
        "57P01" | "57P02" | "57P03" | "08006" | "53300" => DbError::Unreachable { message },
        _ => DbError::Refused { sqlstate, message },
    }
}
