//! `[database]`: where it is, and how to connect.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use symphony::FieldError;
use symphony::db::{Pooler, Schema};

use super::defects::Defects;
use crate::bounds::CONNECTIONS_MAX;
use crate::server::Server;
use symphony_lab::private_postgres::Settings;

/// `[database]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseSection {
    /// The database.
    pub url: Option<String>,
    /// The schema everything is installed in.
    schema: String,
    /// A direct connection for LISTEN.
    pub listen_url: Option<String>,
    /// The most connections one process opens, without LISTEN and those of `api.database_connections_max`.
    pub connections_max: u32,
    /// What stands between here and the server.
    pub pooler: PoolerSetting,
    /// No SET LOCAL ROLE is needed.
    pub login_has_role: bool,
    /// Where the witness file is kept.
    witness: String,
}

impl DatabaseSection {
    /// Note what is wrong.
    pub(super) fn check(&self, defects: &mut Defects) {
        if !(1..=CONNECTIONS_MAX).contains(&self.connections_max) {
            let problem = format!("is {}: it must be 1 to {CONNECTIONS_MAX}", self.connections_max);
            defects.add("database.connections_max", problem);
        }
        defects.note("database", self.schema());
        if let Some(Err(problem)) = self.url.as_deref().map(Server::parse_hosts) {
            defects.add("database.url", problem);
        }
        if let Some(Err(problem)) = self.listen_url.as_deref().map(Server::parse_url) {
            defects.add("database.listen_url", problem);
        }
        // In the default place, a worker without the right to it works all the same and says so.
        let named = self.witness_folder().filter(|_| self.witness != "auto");
        if let Some(Err(problem)) = named.as_deref().map(can_be_written) {
            defects.add("database.witness", problem);
        }
    }

    /// The schema everything is installed in.
    pub fn schema(&self) -> Result<Schema, FieldError> {
        Schema::new(&self.schema)
    }

    /// The folder of the witness file; `None` if it is kept in memory only.
    pub fn witness_folder(&self) -> Option<PathBuf> {
        match self.witness.as_str() {
            "off" => None,
            "auto" => Some(Settings::default_data_folder().join("witness")),
            folder => Some(PathBuf::from(folder)),
        }
    }
}

/// `database.pooler`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolerSetting {
    /// Detected at each connection.
    Detect,
    /// None.
    None,
    /// A transaction pooler.
    Transaction,
}

impl From<PoolerSetting> for Pooler {
    fn from(setting: PoolerSetting) -> Self {
        match setting {
            PoolerSetting::Detect => Self::Detect,
            PoolerSetting::None => Self::None,
            PoolerSetting::Transaction => Self::Transaction,
        }
    }
}

// URLs hold passwords.
impl std::fmt::Debug for DatabaseSection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatabaseSection")
            .field("connections_max", &self.connections_max)
            .field("login_has_role", &self.login_has_role)
            .finish_non_exhaustive()
    }
}

/// Whether a folder is there, or can be made, and written to.
fn can_be_written(folder: &Path) -> Result<(), String> {
    use rustix::fs::{Access, access};
    if folder.as_os_str().is_empty() {
        return Err("is empty: name a folder, or say \"auto\" or \"off\"".to_owned());
    }
    // The nearest folder that exists: the rest is created in it.
    let present = folder.ancestors().find(|above| above.exists() || above.as_os_str().is_empty());
    let present = match present {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    if !present.is_dir() {
        let problem = format!("is {}, but {} is no folder", folder.display(), present.display());
        return Err(problem);
    }
    access(present, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
        format!(
            "is {}, but this process cannot write in {}: {error}; name another folder, or say \"off\"",
            folder.display(),
            present.display()
        )
    })
}
