//! Which PostgreSQL a command talks to: decided here for all commands, and printed.

use std::str::FromStr as _;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};
use symphony::db::migrate::{self, State};
use symphony::db::{Database, Pooler, Role, RoleSource, Schema, connect, find_writable};

use crate::cli::Global;
use crate::config::{Config, DatabaseSection};
use crate::output::{self, AskedDatabase, Failure};
use symphony_lab::private_postgres::{PrivatePostgres, Settings};

mod hosts;

/// The private server's database.
const PRIVATE_DATABASE: &str = "symphony";

/// A PostgreSQL to talk to. Close it with [`close`](Self::close), so that the private one is stopped.
#[derive(Debug)]
pub struct Server {
    options: PgConnectOptions,
    /// More than one: of these one takes writes at a time.
    hosts: Vec<PgConnectOptions>,
    private: Option<PrivatePostgres>,
    pooler: Pooler,
    schema: Schema,
}

impl Server {
    /// The server that was named: by the flag or the environment, else by the file. A private one only if asked for:
    /// a person who forgot to name theirs would act on the wrong one.
    pub async fn open(global: &Global) -> Result<Self, Failure> {
        match Self::named(global).await? {
            Some(named) => Ok(named),
            None if global.private => {
                let private = Self::start_private(global).await?;
                output::set_asked(private.asked());
                Ok(private)
            }
            None => Err(Failure::new(
                "no database is named: set DATABASE_URL, --database-url or [database] url in symphony.toml; or add --private \
                 for the private PostgreSQL of `symphony up`",
            )),
        }
    }

    /// The same for commands that make a private one where none was named.
    pub async fn open_or_private(global: &Global) -> Result<Self, Failure> {
        match Self::named(global).await? {
            Some(named) => Ok(named),
            None => Self::start_private(global).await,
        }
    }

    async fn named(global: &Global) -> Result<Option<Self>, Failure> {
        if global.private {
            return Ok(None);
        }
        let config = Config::load(global.config.as_deref());
        let (url, source) = match &global.database_url {
            Some(url) => (Some(url.clone()), "--database-url or DATABASE_URL"),
            None => (config.as_ref().ok().and_then(|c| c.database.url.clone()), "database.url"),
        };
        let Some(url) = url else {
            // A file that cannot be read may have named one.
            return config.map(|_| None);
        };
        let hosts = Self::parse_hosts(&url)
            .map_err(|problem| Failure::new(format!("{source}: database.url {problem}")))?;
        let options = match hosts.as_slice() {
            [only] => only.clone(),
            several => find_writable(several).await?,
        };
        let schema = Self::schema_of(global, config.as_ref().ok())?;
        let pooler = config.map_or(Pooler::Detect, |config| config.database.pooler.into());
        let server = Self { options, hosts, private: None, pooler, schema };
        output::set_asked(server.asked());
        Ok(Some(server))
    }

    async fn start_private(global: &Global) -> Result<Self, Failure> {
        let settings = Settings {
            data_folder: global.data_folder.clone().unwrap_or_else(Settings::default_data_folder),
            port: global.private_port,
            binaries: global.postgres_binaries.clone(),
            extra_settings: Vec::new(),
        };
        let private = PrivatePostgres::start(&settings).await?;
        let options = private.connect_options().application_name("symphony");
        let schema = Self::schema_of(global, Config::load(global.config.as_deref()).ok().as_ref())?;
        let server = Self {
            options,
            hosts: Vec::new(),
            private: Some(private),
            pooler: Pooler::None,
            schema,
        };
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

    /// The schema that was named: by the flag or the environment, else by the file.
    pub fn schema_of(global: &Global, config: Option<&Config>) -> Result<Schema, Failure> {
        match (&global.schema, config) {
            (Some(schema), _) => Ok(schema.clone()),
            (None, Some(config)) => config
                .database
                .schema()
                .map_err(|error| Failure::new(error.within("database").to_string())),
            (None, None) => Ok(Schema::default()),
        }
    }

    /// A database URL, which may name several hosts as libpq's do. What is wrong is said without repeating it.
    pub fn parse_hosts(url: &str) -> Result<Vec<PgConnectOptions>, String> {
        hosts::split(url)?.iter().map(|url| Self::parse_url(url)).collect()
    }

    /// A database URL with one host.
    pub fn parse_url(url: &str) -> Result<PgConnectOptions, String> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err("must look like postgres://user@host:5432/database".to_owned());
        }
        let options = PgConnectOptions::from_str(url).map_err(|error| {
            format!("is not valid: {error}; it must look like postgres://user@host:5432/database")
        })?;
        // pgbouncer refuses extra_float_digits at the start, and nothing here reads a float.
        Ok(options.application_name("symphony").extra_float_digits(None))
    }

    /// How to connect.
    pub fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    /// The schema everything is installed in.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The private server, if it is that.
    pub fn private(&self) -> Option<&PrivatePostgres> {
        self.private.as_ref()
    }

    /// One connection.
    pub async fn connect(&self) -> Result<PgConnection, Failure> {
        Ok(connect(&self.options).await?)
    }

    /// Look around in one transaction, which is rolled back. Nothing stays behind, not even a statement's name: a
    /// pooler would lend that session to somebody else.
    pub async fn look<T>(
        &self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut connection = self.connect().await?;
        let mut transaction = connection.begin().await?;
        let found = work(&mut transaction).await?;
        transaction.clear_cached_statements().await?;
        transaction.rollback().await?;
        connection.close().await?;
        Ok(found)
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
        self.look(async |c| Ok(migrate::require_declared(c, &self.schema).await?)).await?;
        Ok(database)
    }

    async fn database_with(
        &self,
        connections_max: u32,
        roles: RoleSource,
    ) -> Result<Database, Failure> {
        if self.private.is_some() {
            let (state, _) =
                self.look(async |c| Ok(migrate::check(c, &self.schema).await?)).await?;
            if matches!(state, State::NotInstalled | State::CodeDiffers) {
                let options =
                    migrate::Options { schema: self.schema.clone(), ..migrate::Options::default() };
                migrate::migrate(&self.options, options).await?;
            }
        }
        self.look(async |c| Ok(migrate::require_known(c, &self.schema).await?)).await?;
        let connected = if self.hosts.len() > 1 {
            let hosts = self.hosts.clone();
            Database::connect_to_any(self.pooler, hosts, connections_max, roles).await
        } else {
            let options = self.options.clone();
            Database::connect_through(self.pooler, options, connections_max, roles).await
        };
        Ok(connected?.in_schema(self.schema.clone()))
    }

    /// The database layer for a command that does one thing; its answer will say which of the lanes are paused.
    pub async fn database_as(&self, role: Role) -> Result<Database, Failure> {
        let database = self.database(1).await?;
        output::set_lanes(&database.lane_states(role).await?);
        Ok(database)
    }

    /// Host and database, without the password.
    pub fn asked(&self) -> AskedDatabase {
        let host = self.options.get_host();
        AskedDatabase {
            host: match self.options.get_socket() {
                Some(socket) => socket.display().to_string(),
                None => host.to_owned(),
            },
            port: self.options.get_port(),
            name: self.options.get_database().unwrap_or(self.options.get_username()).to_owned(),
            schema: self.schema.clone(),
            login: self.options.get_username().to_owned(),
            private: self.private.is_some(),
        }
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
                // Another process has created it meanwhile.
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

    /// Disconnect; the last process that uses the private server stops it.
    pub async fn close(self) -> Result<(), Failure> {
        if let Some(private) = self.private {
            private.stop().await?;
        }
        Ok(())
    }
}
