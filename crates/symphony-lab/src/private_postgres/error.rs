//! What can go wrong with the private server: each message is one line that says what and the fix.

use std::io;
use std::path::{Path, PathBuf};

/// Why the private PostgreSQL could not be made, started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrivatePostgresError {
    /// Nothing to run: the search found no server at all.
    #[error(
        "no PostgreSQL server found in PATH, pg_config, /usr/lib/postgresql or {cache}: run \
         scripts/ensure-postgres, or install the Debian package `postgresql`, or set \
         DATABASE_URL"
    )]
    NoBinaries {
        /// Where `scripts/ensure-postgres` would have unpacked one.
        cache: PathBuf,
    },
    /// The folder the user pointed to is not a server's.
    #[error(
        "{folder} holds no PostgreSQL server that {account} can run ({reason}): point \
         SYMPHONY_POSTGRES_BIN to a folder with postgres, initdb and pg_ctl, or leave it \
         unset"
    )]
    BadBinaries {
        /// The folder given.
        folder: PathBuf,
        /// Who has to run it.
        account: String,
        /// What is missing.
        reason: String,
    },
    /// Servers were found, all too old or too new.
    #[error(
        "found only PostgreSQL {found}, and Symphony runs 15 to 18: run \
         `scripts/ensure-postgres --npm`, or install one of these versions"
    )]
    UnsupportedVersion {
        /// The major versions found.
        found: String,
    },
    /// The data was written by a version that is not here.
    #[error(
        "the database in {folder} was made by PostgreSQL {made_by}, and the server found is \
         {found}: install postgresql-{made_by} or point SYMPHONY_POSTGRES_BIN to its bin \
         folder, or set SYMPHONY_DATA to another folder to begin anew"
    )]
    OtherMajor {
        /// The data folder.
        folder: PathBuf,
        /// The major version in its `PG_VERSION`.
        made_by: u16,
        /// The major versions found.
        found: String,
    },
    /// The data was written by a version that Symphony does not run.
    #[error(
        "the database in {folder} was made by PostgreSQL {made_by}, and Symphony runs 15 to \
         18: upgrade it with pg_upgrade, or set SYMPHONY_DATA to another folder to begin anew"
    )]
    UnsupportedData {
        /// The data folder.
        folder: PathBuf,
        /// The major version in its `PG_VERSION`.
        made_by: u16,
    },
    /// Something is in the cluster's place that no initdb finished.
    #[error(
        "{folder} is not a PostgreSQL cluster (it has no readable PG_VERSION): move it away, \
         or set SYMPHONY_DATA to another folder"
    )]
    NotACluster {
        /// The cluster's folder.
        folder: PathBuf,
    },
    /// Root may not run PostgreSQL, and there is nobody else.
    #[error(
        "PostgreSQL refuses to run as root, and there is no user `postgres` or `nobody` to \
         run it as: run `adduser --system postgres`, or run Symphony as an ordinary user"
    )]
    NoAccount,
    /// Root without the right to become somebody else, as in a container without capabilities.
    #[error(
        "PostgreSQL refuses to run as root, and running it as user {account} is not permitted \
         ({source}): run Symphony as an ordinary user, or set DATABASE_URL"
    )]
    CannotSwitchAccount {
        /// The user to become.
        account: String,
        /// What the system answered.
        source: io::Error,
    },
    /// The server's user cannot get to the data.
    #[error(
        "user {account}, who runs PostgreSQL because it refuses to run as root, cannot enter \
         {blocked_at}: set SYMPHONY_DATA to a folder outside it such as /var/lib/symphony, or \
         run `chmod o+x {blocked_at}`"
    )]
    FolderClosed {
        /// The user who runs the server.
        account: String,
        /// The first folder on the way that is closed to it.
        blocked_at: PathBuf,
    },
    /// We cannot write where the data should go.
    #[error(
        "cannot write to {path} ({source}): give this user the folder, or set SYMPHONY_DATA \
         to one that it may write to"
    )]
    FolderNotWritable {
        /// The file or folder refused.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// A path that cannot be passed through pg_ctl's shell and postgresql.conf.
    #[error(
        "the data folder {folder:?} has a character that PostgreSQL's tools cannot take (a \
         quote, backslash, comma, dollar, backtick or control character): set SYMPHONY_DATA \
         to a plainer path"
    )]
    FolderName {
        /// The data folder.
        folder: PathBuf,
    },
    /// The disk is full.
    #[error(
        "no space left on the disk of {folder}: free some (a new database needs 100 MB), or \
         set SYMPHONY_DATA to a folder on another disk"
    )]
    NoSpace {
        /// The data folder.
        folder: PathBuf,
    },
    /// The configured port cannot be had.
    #[error(
        "port {port} of 127.0.0.1 cannot be used ({reason}): stop what holds it, or configure \
         another port or none"
    )]
    PortTaken {
        /// The port configured.
        port: u16,
        /// What the system answered.
        reason: String,
    },
    /// The running server, which others use, listens elsewhere.
    #[error(
        "the server of {folder} is in use by another Symphony process on port {running_on}, \
         and port {wanted} is configured: stop that process, or configure port {running_on} \
         or none"
    )]
    OnAnotherPort {
        /// The data folder.
        folder: PathBuf,
        /// Where the server listens.
        running_on: u16,
        /// The port configured.
        wanted: u16,
    },
    /// A name or a value that does not fit on a line of postgresql.conf.
    #[error(
        "{name:?} cannot be set in postgresql.conf: a name is letters, digits, dots and \
         underscores, and a value is one line"
    )]
    BadSetting {
        /// The name of the setting.
        name: String,
    },
    /// initdb failed for a reason not named above.
    #[error("making the database in {folder} failed: {reason}")]
    CreateFailed {
        /// The data folder.
        folder: PathBuf,
        /// initdb's own last word.
        reason: String,
    },
    /// The server failed for a reason not named above.
    #[error("PostgreSQL did not start: {reason} (more in {log})")]
    DidNotStart {
        /// The server's own last word.
        reason: String,
        /// Where it logs to.
        log: PathBuf,
    },
    /// The server would not go.
    #[error("PostgreSQL did not stop: {reason} (more in {log})")]
    DidNotStop {
        /// pg_ctl's own last word.
        reason: String,
        /// Where the server logs to.
        log: PathBuf,
    },
    /// The database is there and its password is not.
    #[error(
        "{path}, the password of the database beside it, cannot be read ({source}): put it \
         back from a copy of the folder"
    )]
    PasswordMissing {
        /// The password file.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// The password file is not this database's.
    #[error(
        "the server refused the password in {path}: put the file back from a copy of the \
         folder"
    )]
    PasswordRefused {
        /// The password file.
        path: PathBuf,
    },
    /// Another process is in the middle of starting or stopping, and does not come to an end.
    #[error(
        "another Symphony process has been starting or stopping the server of {folder} for \
         {seconds} s: end that process, then try again"
    )]
    Busy {
        /// The data folder.
        folder: PathBuf,
        /// How long we waited.
        seconds: u64,
    },
    /// The system refused something else.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What we were doing.
        doing: &'static str,
        /// What with.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
}

impl PrivatePostgresError {
    /// Sorts an I/O error into the variant that names its fix. For `map_err`.
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| {
            let path = path.to_path_buf();
            match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    Self::NoSpace { folder: path }
                }
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    Self::FolderNotWritable { path, source }
                }
                _ => Self::Io { doing, path, source },
            }
        }
    }

    /// A program that is there and does not run. For `map_err`.
    pub(super) fn cannot_run(program: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing: "run", path: program.to_path_buf(), source }
    }
}

/// What PostgreSQL says on a full disk. The last is for a page of which only a part was written.
const NO_SPACE: [&str; 3] =
    ["No space left on device", "Disk quota exceeded", "Check free disk space"];

/// Whether PostgreSQL's tools said that the disk is full. Shared memory lives on another file
/// system, so a full /dev/shm has to keep its own message.
pub(super) fn says_no_space(output: &str) -> bool {
    output.lines().any(|line| {
        NO_SPACE.iter().any(|words| line.contains(words)) && !line.contains("shared memory")
    })
}

/// The line of a tool's or server's output that tells the most, without its time stamp.
pub(super) fn fatal_line(output: &str) -> String {
    let marked = |markers: &[&str]| {
        output.lines().rev().find_map(|line| {
            markers.iter().find_map(|marker| line.find(marker).and_then(|at| line.get(at..)))
        })
    };
    marked(&["PANIC:", "FATAL:"])
        .or_else(|| marked(&["ERROR:", "error:"]))
        .or_else(|| output.lines().rev().find(|line| !line.trim().is_empty()))
        .unwrap_or("it said nothing")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fatal_line_is_the_last_one_without_its_time_stamp() {
        let log = "2026-01-01 10:00:00.000 UTC [7] LOG:  starting\n\
                   2026-01-01 10:00:00.000 UTC [7] FATAL:  could not load x\n\
                   2026-01-01 10:00:00.000 UTC [7] LOG:  database system is shut down\n";
        assert_eq!(fatal_line(log), "FATAL: could not load x");
        assert_eq!(fatal_line("first\nlast\n\n"), "last");
        assert_eq!(fatal_line(""), "it said nothing");
    }

    #[test]
    fn a_full_shared_memory_is_not_a_full_disk() {
        assert!(says_no_space("initdb: error: could not write: No space left on device"));
        assert!(!says_no_space(
            "FATAL:  could not resize shared memory segment: No space left on device"
        ));
    }
}
