//! Where a run takes place: a folder, a PostgreSQL of its own with fsync that can be killed whole, and a watcher that
//! clears everything away however the run ends.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use symphony::db::migrate;
use symphony_lab::private_postgres::{Origin, PrivatePostgres, Settings};

use super::dice::Tally;
use super::relay::Relay;
use super::workers::Process;
use crate::support::pooler::Pooler;
use crate::support::processes::{self, Signal, signal_if_there};

const DATABASE: &str = "chaos";

pub struct Ground {
    pub folder: PathBuf,
    settings: Settings,
    postgres: Option<PrivatePostgres>,
    options: PgConnectOptions,
    port: Arc<AtomicU16>,
    pooler: Option<(Pooler, Arc<AtomicU16>)>,
}

/// Those who go through a pooler, each with exactly one role.
const PARTIES: [&str; 3] = ["symphony_executor", "symphony_ingest", "symphony_operator"];

fn login_of(role: &str) -> String {
    role.replace("symphony", "chaos")
}

impl Ground {
    /// The same with a pgbouncer before the server, and logins that have exactly the documented grants.
    pub async fn prepare_pooled(server_settings: &[(&str, &str)]) -> Self {
        let mut ground = Self::prepare(server_settings).await;
        let mut connection = ground.options.connect().await.unwrap();
        for role in PARTIES {
            let login = login_of(role);
            let create = format!("CREATE ROLE {login} LOGIN PASSWORD 'x' IN ROLE {role}");
            crate::support::run(&mut connection, &create).await.unwrap();
        }
        connection.close().await.unwrap();
        let logins = PARTIES.map(login_of);
        // The pooler finds the server again wherever it is after its restart.
        let way = ground.relay(None, &Arc::default()).await.options;
        let logins = logins.each_ref().map(String::as_str);
        let pooler = Pooler::start(way.get_port(), &logins).await;
        let pooler_port = Arc::new(AtomicU16::new(pooler.port));
        ground.pooler = Some((pooler, pooler_port));
        ground
    }

    /// The way of somebody with this role: through the pooler with that role alone, where there is one.
    pub async fn relay_as(
        &self,
        role: &str,
        victim: Option<Arc<Process>>,
        tally: &Arc<Tally>,
    ) -> Relay {
        match &self.pooler {
            None => self.relay(victim, tally).await,
            Some((pooler, port)) => {
                let login = self.options.clone().username(&login_of(role));
                Relay::start(&pooler.before(&login), port.clone(), victim, tally.clone()).await
            }
        }
    }

    /// With a server set up so, and otherwise as any private one.
    pub async fn prepare(server_settings: &[(&str, &str)]) -> Self {
        let name = crate::support::unique(&format!("symphony-chaos-{}", std::process::id()));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        // PostgreSQL may run as another user than we do.
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        watch(&folder);
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let settings = Settings {
            extra_settings: server_settings.iter().map(own).collect(),
            ..Settings::new(folder.join("server"))
        };
        let postgres = PrivatePostgres::start(&settings).await.expect("a PostgreSQL of our own");
        let options = postgres.connect_options();
        let mut connection = options.connect().await.unwrap();
        let fsync: String =
            sqlx::query_scalar("SHOW fsync").fetch_one(&mut connection).await.unwrap();
        assert_eq!(fsync, "on", "what a kill may lose must be what a crash may lose");
        crate::support::run(&mut connection, &format!("CREATE DATABASE {DATABASE}")).await.unwrap();
        connection.close().await.unwrap();
        let options = options.database(DATABASE);
        migrate::migrate(&options, migrate::Options::default()).await.unwrap();
        let port = Arc::new(AtomicU16::new(postgres.port()));
        Self { folder, settings, postgres: Some(postgres), options, port, pooler: None }
    }

    pub fn version(&self) -> &str {
        self.postgres.as_ref().map_or("?", PrivatePostgres::server_version)
    }

    /// A way to the server that survives its restarts.
    pub async fn relay(&self, victim: Option<Arc<Process>>, tally: &Arc<Tally>) -> Relay {
        Relay::start(&self.options, self.port.clone(), victim, tally.clone()).await
    }

    /// Kill one process of the server: the first one ends the others and recovers, under its old number.
    pub fn crash_in_place(&self) {
        signal_if_there(*children_of(self.first_process()).first().unwrap(), Signal::KILL);
    }

    fn first_process(&self) -> u32 {
        let pid_file = self.settings.data_folder.join("postgres/postmaster.pid");
        let pid_file = fs::read_to_string(pid_file).unwrap();
        pid_file.lines().next().unwrap().parse().unwrap()
    }

    /// Kill every process of the server, the first one first, and start it again on what is left.
    pub async fn kill_server(&mut self) {
        drop(self.postgres.take());
        let first = self.first_process();
        // Held still, it starts no process that would be missed.
        signal_if_there(first, Signal::STOP);
        let children = children_of(first);
        signal_if_there(first, Signal::KILL);
        for child in children {
            signal_if_there(child, Signal::KILL);
        }
        let postgres = PrivatePostgres::start(&self.settings).await.expect("the killed PostgreSQL");
        assert_eq!(postgres.origin(), Origin::Recovered, "it was killed");
        self.port.store(postgres.port(), Ordering::SeqCst);
        self.postgres = Some(postgres);
    }

    /// Stop the server and remove everything.
    pub async fn clear(mut self) {
        if let Some(postgres) = self.postgres.take() {
            postgres.stop().await.unwrap();
        }
        fs::remove_dir_all(&self.folder).unwrap();
    }

    /// Leave the folder for people to look at.
    pub fn keep(&self) {
        fs::write(self.folder.join("keep"), "").unwrap();
    }
}

fn children_of(parent: u32) -> Vec<u32> {
    let parent_of = |pid: u32| -> Option<u32> {
        // pid (name) state parent …: the name may hold anything but ends with the last bracket.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .filter(|pid| parent_of(*pid) == Some(parent))
        .collect()
}

/// Clears away once this process has ended, in whatever way: every process that has the folder's path on its
/// command line, and the folder itself unless it is to be kept.
fn watch(folder: &Path) {
    let script = r#"
        while kill -0 "$1" 2>/dev/null; do sleep 0.5; done
        for _ in 1 2 3; do
            for line in /proc/[0-9]*/cmdline; do
                pid=${line#/proc/}; pid=${pid%/cmdline}
                [ "$pid" = "$$" ] || ! grep -qsF "$2/" "$line" || kill -KILL "$pid"
            done
            sleep 0.5
        done
        [ -e "$2/keep" ] || rm -rf "$2""#;
    processes::clean_up_after_us(script, folder);
}
