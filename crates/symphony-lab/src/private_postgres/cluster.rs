//! The data folder: what lies where in it, and how a cluster comes into being all at once.
//!
//! ```text
//! start.lock    held alone by whoever starts or stops the server
//! users.lock    held together by everyone who uses the server
//! password      of the superuser; for us and the server's user only
//! server.log    what the server says
//! run/          its unix socket
//! postgres/     the cluster; there only if initdb came to its end
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use uuid::Uuid;

use super::Settings;
use super::account::{Account, is_root};
use super::binaries::Binaries;
use super::error::{PrivatePostgresError, fatal_line, says_no_space};

use crate::bounds::{SERVER_LOG_BYTES_MAX, SOCKET_PATH_BYTES_MAX};

/// A cluster in the making; the name goes on with something unique.
const UNFINISHED_PREFIX: &str = "postgres.new-";

/// The paths in the data folder, absolute and without symbolic links.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) folder: PathBuf,
    pub(super) cluster: PathBuf,
    pub(super) password: PathBuf,
    pub(super) log: PathBuf,
    run: PathBuf,
}

impl Layout {
    /// Makes the data folder if it is missing.
    pub(super) fn prepare(folder: &Path) -> Result<Self, PrivatePostgresError> {
        let io = |doing| PrivatePostgresError::io(doing, folder);
        let folder = std::path::absolute(folder).map_err(io("find"))?;
        if !folder.is_dir() {
            fs::create_dir_all(&folder).map_err(io("make"))?;
            // As root the server's user has to pass through; nobody has to look around.
            let mode = if is_root() { 0o711 } else { 0o700 };
            fs::set_permissions(&folder, Permissions::from_mode(mode)).map_err(io("open up"))?;
        }
        let folder = folder.canonicalize().map_err(io("find"))?;

        let unusable = |c: char| c.is_control() || "\"'\\,$`".contains(c);
        if folder.to_str().is_none_or(|path| path.contains(unusable)) {
            return Err(PrivatePostgresError::FolderName { folder });
        }
        Ok(Self {
            cluster: folder.join("postgres"),
            password: folder.join("password"),
            log: folder.join("server.log"),
            run: folder.join("run"),
            folder,
        })
    }

    /// Opens one of the two lock files. They are never removed: a lock is on the file, not its
    /// name.
    pub(super) fn open_lock(&self, name: &str) -> Result<File, PrivatePostgresError> {
        let path = self.folder.join(name);
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(PrivatePostgresError::io("open", &path))
    }

    /// The major version that made the cluster; `None` if there is no cluster.
    pub(super) fn made_by(&self) -> Result<Option<u16>, PrivatePostgresError> {
        if !self.cluster.exists() {
            return Ok(None);
        }
        fs::read_to_string(self.cluster.join("PG_VERSION"))
            .ok()
            .and_then(|version| version.trim().parse().ok())
            .map(Some)
            .ok_or_else(|| PrivatePostgresError::NotACluster { folder: self.cluster.clone() })
    }

    pub(super) fn read_password(&self) -> Result<String, PrivatePostgresError> {
        let missing =
            |source| PrivatePostgresError::PasswordMissing { path: self.password.clone(), source };
        let password = fs::read_to_string(&self.password).map_err(missing)?;
        let password = password.trim();
        if password.is_empty() {
            return Err(missing(io::Error::new(io::ErrorKind::InvalidData, "it is empty")));
        }
        Ok(password.to_owned())
    }

    /// Makes the cluster. Call it under the start lock, and only if there is none.
    ///
    /// initdb works on a sibling that is renamed at the end, so that being killed leaves either no
    /// cluster or a whole one. It is given the start lock as its standard input: if we are killed,
    /// the lock is held until it has ended too, and nobody sweeps its folder away under it.
    pub(super) async fn create(
        &self,
        account: &Account,
        binaries: &Binaries,
        start_lock: &File,
    ) -> Result<(), PrivatePostgresError> {
        let io = |doing| PrivatePostgresError::io(doing, &self.folder);
        for leftover in self.unfinished().map_err(io("read"))? {
            fs::remove_dir_all(&leftover).map_err(io("clean up"))?;
        }
        self.write_password(account)?;

        // C.UTF-8 sorts by byte like C and knows letters beyond ASCII; not every system has it.
        let mut refusal = String::new();
        for locale in ["C.UTF-8", "C"] {
            let id = Uuid::new_v4().simple();
            let unfinished = self.folder.join(format!("{UNFINISHED_PREFIX}{id}"));
            DirBuilder::new().mode(0o700).create(&unfinished).map_err(io("write to"))?;
            account.give(&unfinished)?;
            let output = account
                .command(binaries.program("initdb"))
                .arg("--pgdata")
                .arg(&unfinished)
                .arg("--pwfile")
                .arg(&self.password)
                .arg(format!("--locale={locale}"))
                .args(["--username=postgres", "--auth=scram-sha-256", "--encoding=UTF8"])
                .args(["--data-checksums", "--no-instructions"])
                .stdin(Stdio::from(start_lock.try_clone().map_err(io("share the lock of"))?))
                .output()
                .await
                .map_err(PrivatePostgresError::cannot_run(&binaries.program("initdb")))?;
            if output.status.success() {
                return finish(&unfinished, &self.cluster).map_err(io("finish the cluster in"));
            }
            fs::remove_dir_all(&unfinished).map_err(io("clean up"))?;
            refusal = String::from_utf8_lossy(&output.stdout).into_owned();
            refusal.push_str(&String::from_utf8_lossy(&output.stderr));
            if !refusal.contains("invalid locale") {
                break;
            }
        }

        let folder = self.folder.clone();
        if says_no_space(&refusal) {
            return Err(PrivatePostgresError::NoSpace { folder });
        }
        let reason = fatal_line(&refusal);
        Err(PrivatePostgresError::CreateFailed { folder, reason })
    }

    /// Writes the settings of the run to come, and makes the places it writes to.
    pub(super) fn write_settings(
        &self,
        account: &Account,
        settings: &Settings,
        port: u16,
    ) -> Result<(), PrivatePostgresError> {
        let io = |doing| PrivatePostgresError::io(doing, &self.folder);
        let text = settings_text(self.socket_folder(), port, &settings.extra_settings)?;
        let path = self.cluster.join("symphony.conf");
        let unfinished = self.cluster.join("symphony.conf.new");
        fs::write(&unfinished, text).map_err(io("write to"))?;
        account.give(&unfinished)?;
        fs::rename(&unfinished, &path).map_err(io("write to"))?;

        match DirBuilder::new().mode(0o700).create(&self.run) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(io("write to"))?,
        }
        account.give(&self.run)?;

        if fs::metadata(&self.log).is_ok_and(|log| log.len() > SERVER_LOG_BYTES_MAX) {
            fs::rename(&self.log, self.folder.join("server.log.old")).map_err(io("write to"))?;
        }
        let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.log);
        log.map_err(io("write to"))?;
        account.give(&self.log)
    }

    /// The folder for the unix socket, if the socket's path fits into the system's limit.
    fn socket_folder(&self) -> Option<&Path> {
        let longest = self.run.join(".s.PGSQL.65535");
        (longest.as_os_str().len() <= SOCKET_PATH_BYTES_MAX).then_some(&self.run)
    }

    fn unfinished(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(UNFINISHED_PREFIX) {
                found.push(entry.path());
            }
        }
        Ok(found)
    }

    /// A new password, on the disk before the cluster that needs it is.
    fn write_password(&self, account: &Account) -> Result<(), PrivatePostgresError> {
        let io = |doing| PrivatePostgresError::io(doing, &self.password);
        let password = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&self.password).map_err(io("write to"))?;
        writeln!(file, "{password}").map_err(io("write to"))?;
        file.sync_all().map_err(io("write to"))?;
        account.give(&self.password)
    }
}

/// Turns what initdb made into the cluster.
fn finish(unfinished: &Path, cluster: &Path) -> io::Result<()> {
    let mut conf = OpenOptions::new().append(true).open(unfinished.join("postgresql.conf"))?;
    writeln!(conf, "\n# Symphony's settings, written at every start of the server.")?;
    writeln!(conf, "include_if_exists = 'symphony.conf'")?;
    conf.sync_all()?;
    fs::rename(unfinished, cluster)?;
    cluster.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

/// The settings as a file. fsync, synchronous_commit and full_page_writes are absent: their
/// defaults are the safe ones, and what is written here is money.
fn settings_text(
    socket_folder: Option<&Path>,
    port: u16,
    extra: &[(String, String)],
) -> Result<String, PrivatePostgresError> {
    let socket_folder = socket_folder.map(|folder| folder.display().to_string());
    let own = [
        ("listen_addresses", "127.0.0.1".to_owned()),
        ("port", port.to_string()),
        ("unix_socket_directories", socket_folder.unwrap_or_default()),
        ("max_connections", "200".to_owned()),
        ("shared_buffers", "256MB".to_owned()),
        ("max_wal_size", "4GB".to_owned()),
        ("timezone", "UTC".to_owned()),
        ("log_timezone", "UTC".to_owned()),
        // We read the log to say why a start failed.
        ("logging_collector", "off".to_owned()),
        ("log_destination", "stderr".to_owned()),
        ("lc_messages", "C".to_owned()),
    ];
    let own = own.iter().map(|(name, value)| (*name, value.as_str()));
    let extra = extra.iter().map(|(name, value)| (name.as_str(), value.as_str()));

    let mut lines =
        vec!["# Written by Symphony at every start. The last of two lines wins.".to_owned()];
    for (name, value) in own.chain(extra) {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        if name.is_empty() || !name.chars().all(plain) || value.contains(char::is_control) {
            return Err(PrivatePostgresError::BadSetting { name: name.to_owned() });
        }
        let value = value.replace('\\', "\\\\").replace('\'', "''");
        lines.push(format!("{name} = '{value}'"));
    }
    Ok(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_settings_come_last_and_are_quoted() {
        let extra = [("port".to_owned(), "it's\\".to_owned())];
        let text = settings_text(None, 5432, &extra).unwrap_or_default();
        assert!(text.ends_with("port = 'it''s\\\\'\n"), "{text}");
        assert!(text.contains("unix_socket_directories = ''\n"), "{text}");
    }

    #[test]
    fn a_setting_cannot_smuggle_in_a_second_line() {
        for (name, value) in [("fsync = off\n#", "x"), ("", "x"), ("work_mem", "1\nfsync=off")] {
            assert!(settings_text(None, 5432, &[(name.to_owned(), value.to_owned())]).is_err());
        }
    }

    #[test]
    fn a_socket_is_used_only_where_its_path_fits() {
        let layout = |folder: &str| Layout {
            folder: folder.into(),
            cluster: PathBuf::new(),
            password: PathBuf::new(),
            log: PathBuf::new(),
            run: PathBuf::from(folder).join("run"),
        };
        assert!(layout("/var/lib/symphony").socket_folder().is_some());
        // "/run/.s.PGSQL.65535" is 19 bytes.
        assert!(layout(&format!("/{}", "x".repeat(87))).socket_folder().is_some());
        assert!(layout(&format!("/{}", "x".repeat(88))).socket_folder().is_none());
    }
}
