//! The server as a process: is it there, is it ours, does it answer; starting and stopping it.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use sqlx::error::DatabaseError;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{ConnectOptions, Connection};
use tokio::time::{Instant, sleep, timeout};

use super::Settings;
use super::account::Account;
use super::binaries::Binaries;
use super::cluster::Layout;
use super::error::{PrivatePostgresError, fatal_line, says_no_space};

use crate::bounds::{
    CONNECT_SECONDS_MAX, PORT_ATTEMPTS_MAX, SHARED_MEMORY_RELEASE_SECONDS_MAX, START_SECONDS_MAX,
};

const POLL: Duration = Duration::from_millis(50);

/// SQLSTATE invalid_password.
const INVALID_PASSWORD: &str = "28P01";

/// Everything needed to handle the server of one data folder, under the start lock.
pub(super) struct Server<'a> {
    pub(super) layout: &'a Layout,
    pub(super) account: &'a Account,
    pub(super) binaries: &'a Binaries,
    pub(super) password: &'a str,
    pub(super) start_lock: &'a File,
}

/// A server that has answered.
#[derive(Debug, Clone)]
pub(super) struct Running {
    pub(super) address: Address,
    pub(super) version: String,
}

/// Where a server listens, from its postmaster.pid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) port: u16,
    socket_folder: Option<PathBuf>,
}

impl Address {
    pub(super) fn connect_options(&self, password: &str) -> PgConnectOptions {
        // Encryption adds nothing on one machine, and PGSSLMODE is about some other server.
        let options = PgConnectOptions::new_without_pgpass()
            .username("postgres")
            .database("postgres")
            .password(password)
            .ssl_mode(PgSslMode::Disable)
            .port(self.port);
        match &self.socket_folder {
            Some(folder) => options.socket(folder),
            None => options.host("127.0.0.1"),
        }
    }
}

impl Server<'_> {
    /// The server if it runs, once it answers; `None` if it does not run.
    pub(super) async fn find(&self) -> Result<Option<Running>, PrivatePostgresError> {
        let deadline = Instant::now() + Duration::from_secs(START_SECONDS_MAX);
        loop {
            let Some(pid_file) = self.read_pid_file() else { return Ok(None) };
            if owner_of(pid_file.pid, &self.layout.cluster) != Owner::ThisServer {
                return Ok(None);
            }
            // It may be starting, recovering or stopping: then it refuses, and we look again.
            let refusal = match pid_file.address {
                None => "it has opened no port yet".to_owned(),
                Some(address) => match self.ask_version(&address).await {
                    Ok(version) => return Ok(Some(Running { address, version })),
                    Err(error) if is_invalid_password(&error) => {
                        let path = self.layout.password.clone();
                        return Err(PrivatePostgresError::PasswordRefused { path });
                    }
                    Err(error) => error.to_string(),
                },
            };
            if Instant::now() > deadline {
                let log = self.layout.log.clone();
                return Err(PrivatePostgresError::DidNotStart { reason: refusal, log });
            }
            sleep(POLL).await;
        }
    }

    /// Whether a server died here without a farewell, so that starting one means recovering.
    pub(super) fn was_killed(&self) -> bool {
        self.pid_file_path().exists()
    }

    /// Starts the server. Call it only if there is none.
    pub(super) async fn launch(
        &self,
        settings: &Settings,
    ) -> Result<Running, PrivatePostgresError> {
        let deadline = Instant::now() + Duration::from_secs(SHARED_MEMORY_RELEASE_SECONDS_MAX);
        let mut port_attempts = 0;
        loop {
            self.set_misleading_pid_file_aside()?;
            let port = match settings.port {
                Some(port) => check_port(port)?,
                None => self.free_port()?,
            };
            self.layout.write_settings(self.account, settings, port)?;
            let Err(said) = self.pg_ctl_start().await? else {
                if let Some(running) = self.find().await? {
                    return Ok(running);
                }
                return Err(self.did_not_start("it ended right after its start".to_owned()));
            };

            if says_no_space(&said) {
                let folder = self.layout.folder.clone();
                return Err(PrivatePostgresError::NoSpace { folder });
            }
            if said.contains("Address already in use") {
                port_attempts += 1;
                if settings.port.is_none() && port_attempts < PORT_ATTEMPTS_MAX {
                    continue;
                }
                let reason = "Address already in use".to_owned();
                return Err(PrivatePostgresError::PortTaken { port, reason });
            }
            // PostgreSQL itself guards against two servers on one cluster; all there is to do is to
            // wait until the last child of the killed one is gone.
            let not_let_go = said.contains("pre-existing shared memory block")
                || said.contains("lock file \"postmaster.pid\" already exists");
            if not_let_go && Instant::now() < deadline {
                sleep(POLL).await;
                continue;
            }
            return Err(self.did_not_start(fatal_line(&said)));
        }
    }

    /// Stops the server, if it runs.
    pub(super) async fn stop(&self) -> Result<(), PrivatePostgresError> {
        // pg_ctl signals whatever process the file names, so look whose it is first.
        let Some(pid_file) = self.read_pid_file() else { return Ok(()) };
        if owner_of(pid_file.pid, &self.layout.cluster) != Owner::ThisServer {
            return Ok(());
        }
        let said = self.pg_ctl(&["stop", "-m", "fast"]).await?;
        said.or_else(|said| {
            // It may have ended by itself meanwhile; what counts is that it is gone.
            if self.read_pid_file().is_none() {
                return Ok(());
            }
            let log = self.layout.log.clone();
            Err(PrivatePostgresError::DidNotStop { reason: fatal_line(&said), log })
        })
    }

    /// `Err` holds what pg_ctl and the server said.
    async fn pg_ctl_start(&self) -> Result<Result<(), String>, PrivatePostgresError> {
        let log_length = fs::metadata(&self.layout.log).map_or(0, |log| log.len());
        // The log goes to a file by pg_ctl's hand: the server must not keep our pipes open.
        let log = self.layout.log.to_string_lossy();
        let said = self.pg_ctl(&["start", "-l", &log]).await?;
        Ok(said.map_err(|said| said + &read_from(&self.layout.log, log_length)))
    }

    /// `Err` holds what pg_ctl said. pg_ctl is given the start lock as its standard input: if we
    /// are killed, nobody else starts or stops the server before it has ended. It does not pass it
    /// on to the server.
    async fn pg_ctl(&self, arguments: &[&str]) -> Result<Result<(), String>, PrivatePostgresError> {
        let program = self.binaries.program("pg_ctl");
        let start_lock = self.start_lock.try_clone();
        let start_lock =
            start_lock.map_err(PrivatePostgresError::io("lock", &self.layout.folder))?;
        let output = self
            .account
            .command(&program)
            .args(arguments)
            .args(["-s", "-w", "-t", &START_SECONDS_MAX.to_string(), "-D"])
            .arg(&self.layout.cluster)
            .stdin(Stdio::from(start_lock))
            .output()
            .await
            .map_err(PrivatePostgresError::cannot_run(&program))?;
        if output.status.success() {
            return Ok(Ok(()));
        }
        let said = [output.stdout, output.stderr].concat();
        Ok(Err(String::from_utf8_lossy(&said).into_owned()))
    }

    async fn ask_version(&self, address: &Address) -> Result<String, sqlx::Error> {
        let options = address.connect_options(self.password).disable_statement_logging();
        let ask = async {
            let mut connection = PgConnection::connect_with(&options).await?;
            let version =
                sqlx::query_scalar("SHOW server_version").fetch_one(&mut connection).await?;
            connection.close().await?;
            Ok(version)
        };
        let limit = Duration::from_secs(CONNECT_SECONDS_MAX);
        let no_answer = || sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
        timeout(limit, ask).await.unwrap_or_else(|_| Err(no_answer()))
    }

    /// After a crash the number in postmaster.pid may have gone to some other process of the same
    /// user, or to a zombie that a container without an init never reaps. PostgreSQL would take
    /// either for a running server. Its own guard, the shared memory of the cluster, stays in
    /// force.
    fn set_misleading_pid_file_aside(&self) -> Result<(), PrivatePostgresError> {
        let Some(pid_file) = self.read_pid_file() else { return Ok(()) };
        if owner_of(pid_file.pid, &self.layout.cluster) != Owner::SomeoneElse {
            return Ok(());
        }
        let path = self.pid_file_path();
        fs::rename(&path, path.with_extension("pid.stale"))
            .map_err(PrivatePostgresError::io("set aside", &path))
    }

    fn free_port(&self) -> Result<u16, PrivatePostgresError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let address = listener.and_then(|listener| listener.local_addr());
        address
            .map(|address| address.port())
            .map_err(|error| self.did_not_start(format!("no free port on 127.0.0.1: {error}")))
    }

    fn did_not_start(&self, reason: String) -> PrivatePostgresError {
        PrivatePostgresError::DidNotStart { reason, log: self.layout.log.clone() }
    }

    fn pid_file_path(&self) -> PathBuf {
        self.layout.cluster.join("postmaster.pid")
    }

    fn read_pid_file(&self) -> Option<PidFile> {
        PidFile::parse(&fs::read_to_string(self.pid_file_path()).ok()?)
    }
}

/// What we need of a postmaster.pid.
#[derive(Debug, PartialEq, Eq)]
struct PidFile {
    pid: u32,
    /// `None` while the server is still opening its sockets.
    address: Option<Address>,
}

impl PidFile {
    /// The lines: pid, data folder, start time, port, socket folder, address, shared memory,
    /// status.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(str::trim);
        let pid = lines.next()?.parse().ok()?;
        let port = lines.nth(2).and_then(|port| port.parse().ok());
        let socket_folder = lines.next();
        let address_line = lines.next();
        let address = match (port, socket_folder, address_line) {
            (Some(port), Some(socket_folder), Some(_)) => {
                let socket_folder = (!socket_folder.is_empty()).then(|| socket_folder.into());
                Some(Address { port, socket_folder })
            }
            _ => None,
        };
        Some(Self { pid, address })
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Owner {
    /// A server that runs on this cluster.
    ThisServer,
    /// Some other process, or what is left of one.
    SomeoneElse,
    /// No process.
    Nobody,
}

/// Whose the number is now. By its command line, which everyone may read: its working folder would
/// say it better, but is closed even to root in a container.
fn owner_of(pid: u32, cluster: &Path) -> Owner {
    let Ok(command_line) = fs::read(format!("/proc/{pid}/cmdline")) else { return Owner::Nobody };
    if is_server_on(&command_line, cluster) { Owner::ThisServer } else { Owner::SomeoneElse }
}

/// `/usr/lib/postgresql/15/bin/postgres -D <cluster>`, with zeros between and after the words.
fn is_server_on(command_line: &[u8], cluster: &Path) -> bool {
    let mut words = command_line.split(|byte| *byte == 0);
    let program = words.next().unwrap_or_default();
    let cluster = cluster.as_os_str().as_encoded_bytes();
    program.ends_with(b"postgres") && words.any(|word| word == cluster)
}

fn check_port(port: u16) -> Result<u16, PrivatePostgresError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .map(|_| port)
        .map_err(|error| PrivatePostgresError::PortTaken { port, reason: error.to_string() })
}

fn is_invalid_password(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .and_then(DatabaseError::code)
        .is_some_and(|code| code == INVALID_PASSWORD)
}

fn read_from(path: &Path, offset: u64) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    // Only to explain a failure that is already known, so an unreadable log adds nothing.
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_file_is_read_with_and_without_a_socket() {
        let with = "4711\n/d/postgres\n1700000000\n40001\n/d/run\n127.0.0.1\n  1 2\nready   \n";
        let address = Address { port: 40001, socket_folder: Some("/d/run".into()) };
        assert_eq!(PidFile::parse(with), Some(PidFile { pid: 4711, address: Some(address) }));

        let without = "4711\n/d/postgres\n1700000000\n40001\n\n127.0.0.1\n  1 2\nready   \n";
        let address = Address { port: 40001, socket_folder: None };
        assert_eq!(PidFile::parse(without), Some(PidFile { pid: 4711, address: Some(address) }));
    }

    #[test]
    fn a_pid_file_in_the_making_has_no_address_yet() {
        let early = "4711\n/d/postgres\n1700000000\n40001\n";
        assert_eq!(PidFile::parse(early), Some(PidFile { pid: 4711, address: None }));
        assert_eq!(PidFile::parse(""), None);
    }

    #[test]
    fn only_a_server_on_this_cluster_is_this_server() {
        let is_ours = |words: &[u8]| is_server_on(words, Path::new("/d/postgres"));
        assert!(is_ours(b"/usr/lib/postgresql/15/bin/postgres\0-D\0/d/postgres\0"));
        assert!(!is_ours(b"/usr/lib/postgresql/15/bin/postgres\0-D\0/e/postgres\0"));
        assert!(!is_ours(b"vim\0/d/postgres\0"));
        assert!(!is_ours(b"postgres: checkpointer \0"));
        assert!(!is_ours(b""), "a zombie has no command line");
    }
}
