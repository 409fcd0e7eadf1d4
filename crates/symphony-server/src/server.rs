//! Which PostgreSQL a command talks to: the one it was given, or the private one.

use std::str::FromStr as _;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};
use symphony::db::migrate::{self, State};
use symphony::db::{Database, DbError, RoleSource};

use crate::cli::Global;
use crate::config::DatabaseSection;
use crate::output::Failure;
use crate::private_postgres::{PrivatePostgres, Settings};

/// The private server's database.
const PRIVATE_DATABASE: &str = "symphony";

/// A PostgreSQL to talk to. Close it with [`close`](Self::close), so that the private one is stopped.
#[derive(Debug)]
pub struct Server {
    options: PgConnectOptions,
    private: Option<PrivatePostgres>,
}

impl Server {
    /// The server the options name, or the private one, started if need be.
    pub async fn open(global: &Global) -> Result<Self, Failure> {
        if let Some(url) = &global.database_url {
            let options = Self::parse_url(url, "--database-url or DATABASE_URL")?;
            return Ok(Self { options, private: None });
        }
        let settings = Settings {
            data_folder: global.data_folder.clone().unwrap_or_else(Settings::default_data_folder),
            port: global.private_port,
            binaries: global.postgres_binaries.clone(),
            extra_settings: Vec::new(),
        };
        let private = PrivatePostgres::start(&settings).await?;
        let options = private.connect_options().application_name("symphony");
        let server = Self { options, private: Some(private) };
        match server.ensure_database(PRIVATE_DATABASE).await {
            Ok(()) => {
                Ok(Self { options: server.options.clone().database(PRIVATE_DATABASE), ..server })
            }
            Err(failure) => {
                server.close().await?;
                Err(failure)
            }
        }
    }

    /// A database URL from `source`.
    pub fn parse_url(url: &str, source: &str) -> Result<PgConnectOptions, Failure> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(Failure::new(format!(
                "database URL must look like postgres://user@host:5432/database (from {source})"
            )));
        }
        let options = PgConnectOptions::from_str(url)
            .map_err(|error| Failure::new(format!("database URL is not valid: {error}")))?;
        Ok(options.application_name("symphony"))
    }

    /// How to connect.
    pub fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    /// The private server, if it is that.
    pub fn private(&self) -> Option<&PrivatePostgres> {
        self.private.as_ref()
    }

    /// One connection.
    pub async fn connect(&self) -> Result<PgConnection, Failure> {
        self.options.connect().await.map_err(|error| self.unreachable(error))
    }

    /// The database layer, on a migrated database. The private one is migrated here, being our own.
    pub async fn database(&self, connections_max: u32) -> Result<Database, Failure> {
        self.database_with(connections_max, RoleSource::EachTransaction).await
    }

    /// The same, as a worker's configuration says. Whoever sends wants the live schema as declared, not only its stamp.
    pub async fn worker_database(&self, section: &DatabaseSection) -> Result<Database, Failure> {
        let roles =
            if section.login_has_role { RoleSource::Login } else { RoleSource::EachTransaction };
        let database = self.database_with(section.connections_max, roles).await?;
        let mut connection = self.connect().await?;
        migrate::require_declared(&mut connection).await?;
        connection.close().await?;
        Ok(database)
    }

    async fn database_with(
        &self,
        connections_max: u32,
        roles: RoleSource,
    ) -> Result<Database, Failure> {
        if self.private.is_some() {
            let mut connection = self.connect().await?;
            let (state, _) = migrate::check(&mut connection).await?;
            connection.close().await?;
            if matches!(state, State::NotInstalled | State::CodeDiffers) {
                migrate::migrate(&self.options, migrate::Options::default()).await?;
            }
        }
        // One connection first: the pool would hide the reason behind a time-out.
        let mut connection = self.connect().await?;
        migrate::require_known(&mut connection).await?;
        connection.close().await?;
        Ok(Database::connect(self.options.clone(), connections_max, roles).await?)
    }

    /// Make a database if it is missing. Only on the private server.
    pub async fn ensure_database(&self, name: &'static str) -> Result<(), Failure> {
        let mut connection = self.connect().await?;
        let exists: bool =
            sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
                .bind(name)
                .fetch_one(&mut connection)
                .await?;
        if !exists {
            let sql = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"));
            match sqlx::raw_sql(sql).execute(&mut connection).await {
                // Another process was faster.
                Err(sqlx::Error::Database(error))
                    if matches!(error.code().as_deref(), Some("42P04" | "23505")) => {}
                other => {
                    other?;
                }
            }
        }
        connection.close().await?;
        Ok(())
    }

    /// Leave it; the last to leave stops the private one.
    pub async fn close(self) -> Result<(), Failure> {
        if let Some(private) = self.private {
            private.stop().await?;
        }
        Ok(())
    }

    fn unreachable(&self, error: sqlx::Error) -> Failure {
        match error {
            sqlx::Error::Database(_) => error.into(),
            other => DbError::Unreachable {
                message: format!(
                    "{}:{}: {other}",
                    self.options.get_host(),
                    self.options.get_port()
                ),
            }
            .into(),
        }
    }
}
