//! Where the server's programs are. `scripts/ensure-postgres` searches the same places in bash.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::account::{Account, is_root};
use super::error::PrivatePostgresError;

const MAJOR_MIN: u16 = 15;
const MAJOR_MAX: u16 = 18;

/// The programs that the private server needs; a client package has none of them.
const PROGRAMS: [&str; 3] = ["postgres", "initdb", "pg_ctl"];

/// A folder with the server's programs.
#[derive(Debug, Clone)]
pub(super) struct Binaries {
    pub(super) folder: PathBuf,
    pub(super) major: u16,
}

impl Binaries {
    /// The first supported server; for an existing cluster, the first of the version that made it.
    pub(super) async fn find(
        chosen: Option<&Path>,
        account: &Account,
        data_folder: &Path,
        made_by: Option<u16>,
    ) -> Result<Self, PrivatePostgresError> {
        let chosen = chosen.map(Path::to_path_buf).or_else(|| {
            std::env::var_os("SYMPHONY_POSTGRES_BIN").filter(|s| !s.is_empty()).map(PathBuf::from)
        });
        let candidates = match &chosen {
            Some(folder) => vec![folder.clone()],
            None => candidates(account).await,
        };

        let supported = |major: u16| (MAJOR_MIN..=MAJOR_MAX).contains(&major);
        if let Some(made_by) = made_by.filter(|made_by| !supported(*made_by)) {
            let folder = data_folder.to_path_buf();
            return Err(PrivatePostgresError::UnsupportedData { folder, made_by });
        }
        let mut found = BTreeSet::new();
        for folder in candidates {
            match Self::inspect(&folder, account).await {
                Ok(binaries) if made_by.unwrap_or(binaries.major) != binaries.major => {
                    found.insert(binaries.major);
                }
                Ok(binaries) if supported(binaries.major) => return Ok(binaries),
                Ok(binaries) => {
                    found.insert(binaries.major);
                }
                // What the user pointed to must be right; elsewhere an incomplete installation is
                // no reason not to look further.
                Err(reason) if chosen.is_some() => {
                    let account = account.name.clone();
                    return Err(PrivatePostgresError::BadBinaries { folder, account, reason });
                }
                Err(_) => {}
            }
        }

        if found.is_empty() {
            let cache = cache_folders().into_iter().next().unwrap_or_default();
            return Err(PrivatePostgresError::NoBinaries { cache });
        }
        let found = found.iter().map(u16::to_string).collect::<Vec<_>>().join(" and ");
        Err(match made_by {
            Some(made_by) => {
                let folder = data_folder.to_path_buf();
                PrivatePostgresError::OtherMajor { folder, made_by, found }
            }
            None => PrivatePostgresError::UnsupportedVersion { found },
        })
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Looks at one folder, as the account that has to run what is in it.
    async fn inspect(folder: &Path, account: &Account) -> Result<Self, String> {
        let folder = real_folder(folder)?;
        let mut major = 0;
        // All of them: one that lacks a library must not turn up first when there is a better one.
        for name in PROGRAMS {
            let output = account.command(folder.join(name)).arg("--version").output().await;
            let output = output.map_err(|error| format!("{name}: {error}"))?;
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).trim().replace('\n', " "));
            }
            major = parse_major(&String::from_utf8_lossy(&output.stdout))
                .ok_or_else(|| format!("`{name} --version` gives no version"))?;
        }
        Ok(Self { folder, major })
    }
}

/// Where `scripts/ensure-postgres` unpacks a server, the likeliest first.
fn cache_folders() -> Vec<PathBuf> {
    let everyones = PathBuf::from("/var/cache/symphony/postgresql");
    if is_root() {
        return vec![everyones];
    }
    let of_variable = |name: &str| {
        std::env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute())
    };
    let own = of_variable("XDG_CACHE_HOME").or_else(|| Some(of_variable("HOME")?.join(".cache")));
    own.map(|own| own.join("symphony/postgresql")).into_iter().chain([everyones]).collect()
}

async fn candidates(account: &Account) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    if let Ok(output) = account.command("pg_config").arg("--bindir").output().await {
        folders.push(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    folders.extend(bin_folders(Path::new("/usr/lib/postgresql")));
    folders.extend(cache_folders().iter().flat_map(|cache| bin_folders(cache)));

    let mut seen = BTreeSet::new();
    folders.retain(|folder| real_folder(folder).is_ok_and(|real| seen.insert(real)));
    folders
}

/// `<folder>/<major>/bin` for all majors, the highest first.
fn bin_folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut majors: Vec<u16> = entries
        .filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
        .collect();
    majors.sort_unstable_by(|a, b| b.cmp(a));
    majors.into_iter().map(|major| folder.join(major.to_string()).join("bin")).collect()
}

/// The folder that `postgres` is really in, with the other programs: a server looks for its
/// libraries and its share folder beside itself, not beside a symbolic link.
fn real_folder(folder: &Path) -> Result<PathBuf, String> {
    let server = folder.join("postgres").canonicalize();
    let real = server.ok().and_then(|server| server.parent().map(Path::to_path_buf));
    let real = real.ok_or("it has no postgres")?;
    match PROGRAMS.into_iter().find(|name| !real.join(name).is_file()) {
        Some(missing) => Err(format!("it has no {missing}")),
        None => Ok(real),
    }
}

/// `postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)` is of major 15.
fn parse_major(line: &str) -> Option<u16> {
    let version = line.split_once("(PostgreSQL)")?.1.split_whitespace().next()?;
    let major: String = version.chars().take_while(char::is_ascii_digit).collect();
    major.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_every_packager_writes_them() {
        let debian = "postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n";
        assert_eq!(parse_major(debian), Some(15));
        assert_eq!(parse_major("postgres (PostgreSQL) 19beta1"), Some(19));
        assert_eq!(parse_major("postgres: not found"), None);
    }
}
