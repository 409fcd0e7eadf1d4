//! The private PostgreSQL that Symphony runs where no `DATABASE_URL` is set.
//!
//! [`PrivatePostgres::start`] makes the cluster if it is missing, starts its server or finds it
//! running, and returns once it answers. The server is a process of its own that survives ours
//! being killed: the next start finds it again. Any number of processes share it, and the last to
//! [`stop`](PrivatePostgres::stop) stops it.
//!
//! | file | decides |
//! |---|---|
//! | `mod.rs` | the order of things, and who may start and stop |
//! | `cluster.rs` | what lies where in the data folder, initdb, the server's settings |
//! | `server.rs` | whether the server runs, starting and stopping it |
//! | `binaries.rs` | which server programs to run |
//! | `account.rs` | who runs them |
//! | `error.rs` | what to say when it fails |
//!
//! Two locks, both of which the system lets go when a process dies, however it dies. `start.lock`
//! is held alone while deciding; `users.lock` is held together while using. Whoever holds the first
//! and can turn its share of the second into all of it is the last user.

mod account;
mod binaries;
mod cluster;
mod error;
mod server;

use std::fmt;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use tokio::time::{Instant, sleep};

use account::{Account, is_root};
use binaries::Binaries;
use cluster::Layout;

use crate::bounds::START_LOCK_SECONDS_MAX;
pub use error::PrivatePostgresError;
use server::{Running, Server};

const START_LOCK_POLL: Duration = Duration::from_millis(50);

/// What the caller decides about the private server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where everything is kept. Made if it is missing.
    pub data_folder: PathBuf,
    /// The port on 127.0.0.1; `None` for any free one.
    pub port: Option<u16>,
    /// The folder with postgres, initdb and pg_ctl; `None` for the environment variable
    /// `SYMPHONY_POSTGRES_BIN`, and without that for what a search finds.
    pub binaries: Option<PathBuf>,
    /// Lines for postgresql.conf that win over ours. They take effect when a server is started, not
    /// when one is found running.
    pub extra_settings: Vec<(String, String)>,
}

impl Settings {
    /// The settings of a server in this folder, everything else by default.
    pub fn new(data_folder: impl Into<PathBuf>) -> Self {
        let data_folder = data_folder.into();
        Self { data_folder, port: None, binaries: None, extra_settings: Vec::new() }
    }

    /// `SYMPHONY_DATA`, else a place that outlives the session: /var/lib for root, the user's data
    /// folder for others, and the current folder for a user without a home.
    pub fn default_data_folder() -> PathBuf {
        let variable = |name| std::env::var_os(name).filter(|s| !s.is_empty()).map(PathBuf::from);
        if let Some(folder) = variable("SYMPHONY_DATA") {
            return folder;
        }
        if is_root() {
            return PathBuf::from("/var/lib/symphony");
        }
        variable("XDG_DATA_HOME")
            .filter(|folder| folder.is_absolute())
            .or_else(|| Some(variable("HOME")?.join(".local/share")))
            .map_or_else(|| PathBuf::from(".symphony"), |folder| folder.join("symphony"))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::new(Self::default_data_folder())
    }
}

/// How the server came to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The cluster was made, and its server started for the first time.
    Created,
    /// The server was started, having been stopped in good order.
    Started,
    /// The server was started, having been killed before: it recovered what was committed.
    Recovered,
    /// The server was running already.
    Found,
}

/// How [`PrivatePostgres::stop`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// We were the last user, and the server is down.
    Stopped,
    /// Another process uses the server, and it was left running.
    LeftRunning,
}

/// A use of the private server. Dropping it ends the use and leaves the server running, for the
/// next start to find; [`stop`](Self::stop) also stops the server if nobody else uses it.
pub struct PrivatePostgres {
    layout: Layout,
    account: Account,
    binaries: Binaries,
    password: String,
    running: Running,
    origin: Origin,
    users_lock: File,
}

impl PrivatePostgres {
    /// Makes the cluster if it is missing, starts the server or finds it running, and waits until
    /// it accepts connections.
    pub async fn start(settings: &Settings) -> Result<Self, PrivatePostgresError> {
        let layout = Layout::prepare(&settings.data_folder)?;
        let start_lock = StartLock::take(&layout).await?;
        let account = Account::of_cluster(&layout.cluster)?;
        account.must_reach(&layout.folder).await?;

        let made_by = layout.made_by()?;
        let chosen = settings.binaries.as_deref();
        let binaries = Binaries::find(chosen, &account, &layout.folder, made_by).await?;
        if made_by.is_none() {
            layout.create(&account, &binaries, &start_lock.0).await?;
        }
        let password = layout.read_password()?;
        let users_lock = layout.open_lock("users.lock")?;

        let server = Server {
            layout: &layout,
            account: &account,
            binaries: &binaries,
            password: &password,
            start_lock: &start_lock.0,
        };
        let mut found = server.find().await?;
        if let (Some(running), Some(port)) = (&found, settings.port)
            && running.address.port != port
        {
            make_way(&server, running, port, &users_lock).await?;
            found = None;
        }
        let (running, origin) = if let Some(running) = found {
            (running, Origin::Found)
        } else {
            let origin = match (made_by, server.was_killed()) {
                (None, _) => Origin::Created,
                (Some(_), true) => Origin::Recovered,
                (Some(_), false) => Origin::Started,
            };
            (server.launch(settings).await?, origin)
        };

        // Never held alone but under the start lock, which is ours: this does not wait.
        users_lock.lock_shared().map_err(PrivatePostgresError::io("lock", &layout.folder))?;
        Ok(Self { layout, account, binaries, password, running, origin, users_lock })
    }

    /// How to connect as the superuser `postgres` to the database `postgres`: by the unix socket if
    /// there is one, else by loopback. Beware: its `Debug` output has the password in it.
    pub fn connect_options(&self) -> PgConnectOptions {
        self.running.address.connect_options(&self.password)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.running.address.port
    }

    /// What the server calls its version, as in `15.14 (Debian 15.14-0+deb12u1)`.
    pub fn server_version(&self) -> &str {
        &self.running.version
    }

    /// The server's major version, as in 15.
    pub fn server_major(&self) -> u16 {
        self.binaries.major
    }

    /// The folder of the server's programs.
    pub fn binaries(&self) -> &Path {
        &self.binaries.folder
    }

    /// The data folder, absolute and without symbolic links.
    pub fn data_folder(&self) -> &Path {
        &self.layout.folder
    }

    /// How the server came to run.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Ends this use of the server; the last user stops it. Connections still open are closed by
    /// the server, their transactions rolled back.
    pub async fn stop(self) -> Result<Stop, PrivatePostgresError> {
        let start_lock = StartLock::take(&self.layout).await?;
        let io = |doing| PrivatePostgresError::io(doing, &self.layout.folder);
        // Not in one step: the system may drop a shared lock before it refuses the whole one.
        self.users_lock.unlock().map_err(io("unlock"))?;
        if !try_lock(&self.users_lock).map_err(io("lock"))? {
            return Ok(Stop::LeftRunning);
        }
        let server = Server {
            layout: &self.layout,
            account: &self.account,
            binaries: &self.binaries,
            password: &self.password,
            start_lock: &start_lock.0,
        };
        server.stop().await?;
        Ok(Stop::Stopped)
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        // Closing the file would do, if not for a child that another thread may be forking right
        // now: it would hold the lock until it has become a program. An error leaves it to the
        // closing.
        self.users_lock.unlock().ok();
    }
}

/// By hand, to leave the password out.
impl fmt::Debug for PrivatePostgres {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PrivatePostgres")
            .field("data_folder", &self.layout.folder)
            .field("running", &self.running)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

/// The right to decide about the server of a data folder, until dropped. The file is also handed to
/// the programs that carry out a decision, so that it outlasts us if we are killed meanwhile.
struct StartLock(File);

impl StartLock {
    /// Polled and not awaited in the system, so that a caller may give up at any time.
    async fn take(layout: &Layout) -> Result<Self, PrivatePostgresError> {
        let file = layout.open_lock("start.lock")?;
        let deadline = Instant::now() + Duration::from_secs(START_LOCK_SECONDS_MAX);
        while !try_lock(&file).map_err(PrivatePostgresError::io("lock", &layout.folder))? {
            if Instant::now() > deadline {
                let folder = layout.folder.clone();
                let seconds = START_LOCK_SECONDS_MAX;
                return Err(PrivatePostgresError::Busy { folder, seconds });
            }
            sleep(START_LOCK_POLL).await;
        }
        Ok(Self(file))
    }
}

/// Whether all of the lock is ours now.
fn try_lock(file: &File) -> std::io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Stops a server that runs on another port than the configured one, if nobody uses it.
async fn make_way(
    server: &Server<'_>,
    running: &Running,
    wanted: u16,
    users_lock: &File,
) -> Result<(), PrivatePostgresError> {
    let folder = &server.layout.folder;
    if !try_lock(users_lock).map_err(PrivatePostgresError::io("lock", folder))? {
        let (folder, running_on) = (folder.clone(), running.address.port);
        return Err(PrivatePostgresError::OnAnotherPort { folder, running_on, wanted });
    }
    users_lock.unlock().map_err(PrivatePostgresError::io("unlock", folder))?;
    server.stop().await
}
