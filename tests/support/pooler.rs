//! A real pgbouncer in transaction mode. `scripts/ensure-brokers` gets it; a test that needs it passes over without, unless
//! `SYMPHONY_REQUIRE_BROKERS` is set.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::brokers::Leashed;

/// The password of every login that goes through it.
const PASSWORD: &str = "x";

/// The program, if it is here.
pub fn found() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOUND.get_or_init(find).as_deref();
    assert!(
        found.is_some() || std::env::var_os("SYMPHONY_REQUIRE_BROKERS").is_none(),
        "SYMPHONY_REQUIRE_BROKERS is set, and pgbouncer is not there: run scripts/ensure-brokers"
    );
    if found.is_none() {
        println!("passed over: no pgbouncer here; scripts/ensure-brokers would get it");
    }
    found
}

fn find() -> Option<PathBuf> {
    let named = std::env::var_os("SYMPHONY_PGBOUNCER").filter(|path| !path.is_empty());
    if let Some(path) = named {
        return Some(PathBuf::from(path));
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/ensure-brokers");
    let look = r#"found=$("$0" --find --quiet --print); eval "$found"; printf '%s' "${SYMPHONY_PGBOUNCER:-}""#;
    let output = Command::new("bash").args(["-c", look]).arg(script).stderr(Stdio::null()).output();
    let path = String::from_utf8(output.expect("bash, to look for pgbouncer").stdout).unwrap();
    (!path.is_empty()).then(|| PathBuf::from(path))
}

/// A running one. It has few sessions to lend, so that clients meet each other's.
pub struct Pooler {
    pub port: u16,
    folder: PathBuf,
    _process: Leashed,
}

impl Pooler {
    /// Before a server on this port of loopback, for these logins.
    pub async fn start(server_port: u16, logins: &[&str]) -> Self {
        Self::start_with(server_port, logins, "").await
    }

    /// The same with further lines in its settings.
    pub async fn start_with(server_port: u16, logins: &[&str], more: &str) -> Self {
        let program = found().expect("the test looks for it first");
        let folder = std::env::temp_dir().join(format!("symphony-pooler-{}", uuid::Uuid::new_v4()));
        fs::create_dir(&folder).unwrap();
        // As root it changes to another user, who must be able to read this.
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        let users: Vec<_> =
            logins.iter().map(|login| format!("\"{login}\" \"{PASSWORD}\"\n")).collect();
        fs::write(folder.join("users"), users.concat()).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={server_port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}/users\npool_mode = transaction\ndefault_pool_size = 3\n\
             max_client_conn = 500\nserver_login_retry = 1\nserver_tls_sslmode = disable\nquery_wait_timeout = 10\nlog_connections = 0\n\
             log_disconnections = 0\nlog_pooler_errors = 0\n{more}",
            folder.display()
        );
        let file = folder.join("pgbouncer.ini");
        fs::write(&file, settings).unwrap();
        let file = file.to_str().unwrap();
        let root = rustix::process::getuid().is_root();
        let arguments: &[&str] = if root { &["-q", "-u", "postgres", file] } else { &["-q", file] };
        let process = Leashed::start(program, arguments);
        super::until("pgbouncer listens", async || {
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()
        })
        .await;
        Self { port, folder, _process: process }
    }

    /// The same database and login, through it.
    pub fn before(&self, options: &PgConnectOptions) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(self.port)
            .ssl_mode(PgSslMode::Disable)
            .username(options.get_username())
            .password(PASSWORD)
            .database(options.get_database().unwrap())
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).ok();
    }
}
