//! Whether a connection has a server session of its own, or one that a pooler lends for a transaction.
//!
//! Behind a transaction pooler nothing may be left in a session: no named statement, no LISTEN, no lock. A name that
//! one client prepared means another's statement on the next server connection, so it must be known before the first
//! statement is named. A setting in the start-up packet tells: no pooler passes it on to the sessions that it lends.

use std::fmt::{self, Debug};

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use sqlx::error::BoxDynError;
use sqlx::postgres::{
    PgArguments, PgConnectOptions, PgConnection, PgQueryResult, PgRow, PgStatement, PgTypeInfo,
};
use sqlx::{Connection as _, Either, Execute, Executor, FromRow, Postgres, SqlStr, Transaction};

use super::{DbError, Schema, connect};

/// The setting that only a session of our own has.
const MARK: &str = "symphony.own_session";
/// Asked by the simple protocol, which names nothing.
const ASK_MARK: &str = "SELECT coalesce(current_setting('symphony.own_session', true), '') = 'yes'";

/// How sessions are had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pooler {
    /// Find out with the first connection.
    #[default]
    Detect,
    /// There is none: every connection is a session of our own.
    None,
    /// A transaction pooler lends them.
    Transaction,
}

/// How to connect, and whose sessions come of it.
#[derive(Debug, Clone)]
pub struct Link {
    /// What to connect with.
    pub options: PgConnectOptions,
    /// A pooler lends the sessions.
    pub pooled: bool,
}

impl Link {
    /// Find out, with one connection that is closed again.
    pub async fn find(options: PgConnectOptions, pooler: Pooler) -> Result<Self, DbError> {
        // pgbouncer refuses it at the start, and nothing here reads a float.
        let options = options.extra_float_digits(None);
        if pooler != Pooler::Detect {
            connect(&options).await?.close().await?;
            return Ok(Self { options, pooled: pooler == Pooler::Transaction });
        }
        let marked = options.clone().options([(MARK, "yes")]);
        match connect(&marked).await {
            Ok(mut connection) => {
                let own = has_mark(&mut connection).await?;
                connection.close().await?;
                Ok(if own {
                    Self { options: marked, pooled: false }
                } else {
                    Self { options, pooled: true }
                })
            }
            // A server takes the mark. What refuses it and accepts the same without it is a pooler.
            Err(DbError::Refused { sqlstate, .. }) if may_be_about_the_mark(&sqlstate) => {
                connect(&options).await?.close().await?;
                Ok(Self { options, pooled: true })
            }
            Err(error) => Err(error),
        }
    }

    /// The same link to another host.
    pub(super) fn like(&self, options: PgConnectOptions) -> PgConnectOptions {
        let options = options.extra_float_digits(None);
        if self.pooled { options } else { options.options([(MARK, "yes")]) }
    }
}

/// Whether this connection is a session of our own.
pub(super) async fn has_mark(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    use sqlx::Row as _;
    let row = sqlx::raw_sql(ASK_MARK).fetch_one(connection).await?;
    row.try_get(0)
}

/// Not those that speak of the login, the database or the server's state: those would be refused again.
fn may_be_about_the_mark(code: &str) -> bool {
    !["28", "3D", "53", "57"].iter().any(|class| code.starts_with(class))
}

/// A connection to run statements on. In a session of our own they are kept by name, so that each is parsed once;
/// in a lent one they have no name. Unnamed ones need a transaction around them: parsing and running are two steps,
/// and a pooler may lend another session in between.
pub struct Session<'c> {
    connection: &'c mut PgConnection,
    lent: bool,
    schema: Schema,
}

impl<'c> Session<'c> {
    pub(super) fn new(connection: &'c mut PgConnection, lent: bool, schema: &Schema) -> Self {
        Self { connection, lent, schema: schema.clone() }
    }

    /// One that a transaction pooler lends.
    pub fn lent(connection: &'c mut PgConnection) -> Self {
        Self::new(connection, true, &Schema::default())
    }

    /// The same for the installation in this schema.
    #[must_use]
    pub fn in_schema(self, schema: &Schema) -> Self {
        Self { schema: schema.clone(), ..self }
    }
}

impl Debug for Session<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("lent", &self.lent)
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl<'c> From<&'c mut PgConnection> for Session<'c> {
    fn from(connection: &'c mut PgConnection) -> Self {
        Self::new(connection, false, &Schema::default())
    }
}

impl<'c> From<&'c mut Transaction<'_, Postgres>> for Session<'c> {
    fn from(transaction: &'c mut Transaction<'_, Postgres>) -> Self {
        Self::new(&mut *transaction, false, &Schema::default())
    }
}

impl<'c> From<&'c mut sqlx::pool::PoolConnection<Postgres>> for Session<'c> {
    fn from(connection: &'c mut sqlx::pool::PoolConnection<Postgres>) -> Self {
        Self::new(&mut *connection, false, &Schema::default())
    }
}

/// A row of an answer, read by the names of its columns.
pub(super) trait Row: for<'r> FromRow<'r, PgRow> + Send + Unpin {}

impl<T: for<'r> FromRow<'r, PgRow> + Send + Unpin> Row for T {}

/// A statement with its arguments, not yet run.
#[cfg(any(feature = "admin", feature = "worker"))]
pub(super) type Query<'q, T> = sqlx::query::QueryAs<'q, Postgres, T, PgArguments>;

type Step = Result<Either<PgQueryResult, PgRow>, sqlx::Error>;

impl<'c> Executor<'c> for Session<'c> {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Step>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let Self { connection, lent, schema } = self;
        connection.fetch_many(SessionStatement { query, lent, schema })
    }

    fn fetch_optional<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let Self { connection, lent, schema } = self;
        connection.fetch_optional(SessionStatement { query, lent, schema })
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, sqlx::Error>>
    where
        'c: 'e,
    {
        let sql = self.schema.statement(sql);
        self.connection.prepare_with(sql, parameters)
    }
}

/// A statement as a session runs it: for its schema, and without a name where the session is lent.
struct SessionStatement<E> {
    query: E,
    lent: bool,
    schema: Schema,
}

impl<'q, E: Execute<'q, Postgres>> Execute<'q, Postgres> for SessionStatement<E> {
    fn sql(self) -> SqlStr {
        self.schema.statement(self.query.sql())
    }

    fn statement(&self) -> Option<&PgStatement> {
        self.query.statement()
    }

    fn take_arguments(&mut self) -> Result<Option<PgArguments>, BoxDynError> {
        self.query.take_arguments()
    }

    fn persistent(&self) -> bool {
        !self.lent && self.query.persistent()
    }
}
