//! Who runs the server: this user, or, as root, a lesser one, because PostgreSQL refuses root.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::error::PrivatePostgresError;

/// What the server inherits of our environment. Not all of it: the server outlives us, and other
/// processes of its user may read it, so the keys of payment providers have no place in there.
const ENVIRONMENT_KEPT: [&str; 3] = ["PATH", "LD_LIBRARY_PATH", "TZ"];

/// The user who runs the server's programs and owns its files.
#[derive(Debug, Clone)]
pub(super) struct Account {
    /// For messages.
    pub(super) name: String,
    /// The ids to become; `None` where we stay who we are.
    become_ids: Option<(u32, u32)>,
}

impl Account {
    /// Whoever owns the cluster, if there is one: a cluster made as `nobody` stays nobody's when a
    /// user `postgres` comes along later.
    pub(super) fn of_cluster(cluster: &Path) -> Result<Self, PrivatePostgresError> {
        if !is_root() {
            return Ok(Self { name: "this user".to_owned(), become_ids: None });
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let owner = fs::metadata(cluster).ok().filter(|owner| owner.uid() != 0);
        if let Some(owner) = owner {
            let name = name_of(&users, owner.uid()).unwrap_or_else(|| owner.uid().to_string());
            return Ok(Self { name, become_ids: Some((owner.uid(), owner.gid())) });
        }
        ["postgres", "nobody"]
            .into_iter()
            .find_map(|name| {
                let become_ids = Some(ids_of(&users, name)?);
                Some(Self { name: name.to_owned(), become_ids })
            })
            .ok_or(PrivatePostgresError::NoAccount)
    }

    /// A program to be run as this account, in a folder that everyone can enter.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir("/");
        for name in ENVIRONMENT_KEPT {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        // We read what the programs say, so they have to say it in English.
        command.env("LC_ALL", "C");
        if let Some((user_id, group_id)) = self.become_ids {
            command.uid(user_id).gid(group_id);
        }
        command
    }

    /// Gives the account a file or folder that we made for it.
    pub(super) fn give(&self, path: &Path) -> Result<(), PrivatePostgresError> {
        let Some((user_id, group_id)) = self.become_ids else { return Ok(()) };
        std::os::unix::fs::chown(path, Some(user_id), Some(group_id))
            .map_err(PrivatePostgresError::io("hand over", path))
    }

    /// Makes sure that the account can get to the folder. Asked of the system and not computed from
    /// the mode bits, because of access control lists; the bits only name the culprit.
    pub(super) async fn must_reach(&self, folder: &Path) -> Result<(), PrivatePostgresError> {
        let Some(ids) = self.become_ids else { return Ok(()) };
        let Err(source) =
            self.command("/bin/sh").args(["-c", ":"]).current_dir(folder).status().await
        else {
            return Ok(());
        };
        let account = self.name.clone();
        Err(match closed_folder(folder, ids) {
            Some(blocked_at) => PrivatePostgresError::FolderClosed { account, blocked_at },
            None => PrivatePostgresError::CannotSwitchAccount { account, source },
        })
    }
}

/// Whether we run as root, by the effective user id.
pub(super) fn is_root() -> bool {
    let effective = |status: &str| {
        let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        ids.split_whitespace().nth(1).map(|id| id == "0")
    };
    fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| effective(&status))
        .unwrap_or_else(
            // No /proc: not Linux.
            || {
                let answer = std::process::Command::new("id").arg("-u").output();
                answer.is_ok_and(|answer| answer.stdout.trim_ascii() == b"0")
            },
        )
}

fn ids_of(users: &str, name: &str) -> Option<(u32, u32)> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        Some((fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?))
    })
}

fn name_of(users: &str, user_id: u32) -> Option<String> {
    users
        .lines()
        .filter_map(|line| line.split(':').next())
        .find(|name| ids_of(users, name).is_some_and(|(id, _)| id == user_id))
        .map(str::to_owned)
}

fn closed_folder(folder: &Path, (user_id, group_id): (u32, u32)) -> Option<PathBuf> {
    let may_enter = |found: &Metadata| match found {
        found if found.uid() == user_id => found.mode() & 0o100 != 0,
        found if found.gid() == group_id => found.mode() & 0o010 != 0,
        found => found.mode() & 0o001 != 0,
    };
    let mut from_the_top: Vec<&Path> = folder.ancestors().collect();
    from_the_top.reverse();
    let closed = |folder: &Path| -> io::Result<bool> { Ok(!may_enter(&fs::metadata(folder)?)) };
    from_the_top.into_iter().find(|folder| closed(folder).unwrap_or(false)).map(Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0:root:/root:/bin/bash\n\
                         postgres:x:101:104:PostgreSQL,,,:/var/lib/postgresql:/bin/bash\n";

    #[test]
    fn users_are_found_by_name_and_by_id() {
        assert_eq!(ids_of(USERS, "postgres"), Some((101, 104)));
        assert_eq!(ids_of(USERS, "post"), None);
        assert_eq!(name_of(USERS, 101).as_deref(), Some("postgres"));
        assert_eq!(name_of(USERS, 7), None);
    }
}
