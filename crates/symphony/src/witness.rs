//! The witness: what the database told this process last, kept outside the database, so that a restored backup does not
//! contain it.
//!
//! Every second, and when a claim was refused because of the server, a process tells the database the number it was given
//! last. A database that does not know it has lost something. In memory this notices a failover; kept in a file it also
//! notices a backup that was restored while nobody worked.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::db::{Beat, DbError, ServerState, Worker};

/// How often the database is told.
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// How soon again, while something is being decided or the database is away.
const BEAT_SOON: Duration = Duration::from_millis(100);
/// How often a person is told again that nothing is dispatched.
const REMIND_EVERY: u32 = 60;

/// Keeps what the database said.
#[derive(Debug)]
pub struct Witness {
    worker: Worker,
    worker_id: String,
    kept: Kept,
    file: Option<Place>,
    /// What is known comes from a file: others may have worked since it was written.
    at_start: bool,
    /// How often in a row the answer was the same refusal.
    repeated: (String, u32),
}

/// What is kept, in memory and in the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Kept {
    witness_id: Uuid,
    beat: Option<Beat>,
}

impl Witness {
    /// A witness for the worker of this name, with a file in this folder if one is given.
    pub async fn open(
        worker: Worker,
        worker_id: String,
        folder: Option<&Path>,
    ) -> Result<Self, WitnessError> {
        let mut kept = Kept { witness_id: Uuid::new_v4(), beat: None };
        let mut file: Option<Place> = None;
        if let Some(folder) = folder {
            let installation = worker.installation_id().await?;
            match Place::take(folder, installation) {
                Ok((place, None)) => file = Some(place),
                Ok((place, Some(text))) => {
                    kept =
                        serde_json::from_str(&text).map_err(|error| WitnessError::Unreadable {
                            path: place.path.display().to_string(),
                            message: error.to_string(),
                        })?;
                    file = Some(place);
                }
                Err(error) => tracing::warn!(
                    path = %folder.display(), %error,
                    "no witness file can be kept here: a backup restored while no worker runs would go unnoticed (database.witness)"
                ),
            }
        }
        let at_start = true;
        Ok(Self { worker, worker_id, kept, file, at_start, repeated: (String::new(), 0) })
    }

    /// Tell the database once.
    pub async fn beat(&mut self) -> Result<ServerState, DbError> {
        let (state, beat) = self
            .worker
            .beat_witness(
                self.kept.witness_id,
                &self.worker_id,
                self.file.is_some(),
                self.kept.beat,
                self.at_start,
            )
            .await?;
        if beat.is_some() {
            self.kept.beat = beat;
            self.at_start = false;
            if let Some(place) = &self.file
                && let Err(error) = write(&place.path, &self.kept)
            {
                tracing::warn!(path = %place.path.display(), %error, "the witness file could not be written");
            }
        }
        Ok(state)
    }

    /// Tell it again and again, for as long as the process works.
    pub async fn run(mut self) {
        let signals = self.worker.server_signals();
        loop {
            let pause = match self.beat().await {
                Ok(state) => self.report(&state),
                // Claims log the same.
                Err(_) => BEAT_SOON,
            };
            tokio::time::sleep(BEAT_SOON).await;
            tokio::select! {
                () = tokio::time::sleep(pause.saturating_sub(BEAT_SOON)) => {}
                () = signals.refused.notified() => {}
            }
        }
    }

    /// Say what changed; answers when to ask again.
    pub fn report(&mut self, state: &ServerState) -> Duration {
        let (word, found, pause) = match state {
            ServerState::Known { news: None } => ("known", "", BEAT_EVERY),
            ServerState::Known { news: Some(news) } => ("known", news.as_str(), BEAT_EVERY),
            ServerState::AskFirst { found } => ("ask first", found.as_str(), BEAT_EVERY),
            ServerState::Waiting { found } => ("waiting", found.as_str(), BEAT_SOON),
            ServerState::Held { found } => ("held", found.as_str(), BEAT_EVERY),
        };
        let said = format!("{word} {found}");
        let first = self.repeated.0 != said;
        let was_stopped =
            ["waiting", "held"].iter().any(|stopped| self.repeated.0.starts_with(stopped));
        self.repeated = if first { (said, 0) } else { (said, self.repeated.1.saturating_add(1)) };
        match state {
            ServerState::Held { .. } if self.repeated.1.is_multiple_of(REMIND_EVERY) => {
                tracing::error!(
                    worker_id = self.worker_id,
                    found,
                    event = "OTHER_SERVER",
                    "nothing is dispatched on this server until a person accepts it: {}",
                    self.worker.command("restore check")
                );
            }
            ServerState::Waiting { .. } if first => tracing::warn!(found, "the server is another"),
            ServerState::AskFirst { .. } => tracing::warn!(
                found,
                event = "OTHER_SERVER",
                "another server goes on: rails are asked first about what may have been sent"
            ),
            ServerState::Known { news: Some(_) } => {
                tracing::warn!(found, event = "OTHER_SERVER", "another server goes on");
            }
            ServerState::Known { news: None } if was_stopped => tracing::info!("work goes on"),
            _ => {}
        }
        let goes_on = matches!(state, ServerState::AskFirst { .. } | ServerState::Known { .. });
        if goes_on && (was_stopped || !found.is_empty()) {
            self.worker.server_signals().decided.send_modify(|count| *count += 1);
        }
        pause
    }
}

/// Why a witness could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum WitnessError {
    /// The database did not answer.
    #[error(transparent)]
    Database(#[from] DbError),
    /// The file is not a witness's.
    #[error(
        "{path} is not a witness file ({message}): restore it; or, if no backup was restored since it was written, remove it"
    )]
    Unreadable {
        /// Which.
        path: String,
        /// Why.
        message: String,
    },
}

/// More processes on one host than this share no folder.
const PLACES_MAX: u32 = 64;

/// A witness's own file: each process of a host has one, and finds it again after a restart.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    /// Locked for as long as the process lives.
    _lock: File,
}

impl Place {
    /// The first place that no other process has, and the text in it.
    fn take(folder: &Path, installation: Uuid) -> io::Result<(Self, Option<String>)> {
        std::fs::create_dir_all(folder)?;
        for number in 0..PLACES_MAX {
            let lock = File::create(folder.join(format!("{installation}.{number}.lock")))?;
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(error)) => return Err(error),
            }
            let place =
                Self { path: folder.join(format!("{installation}.{number}.json")), _lock: lock };
            return match std::fs::read_to_string(&place.path) {
                Ok(text) => Ok((place, Some(text))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((place, None)),
                Err(error) => Err(error),
            };
        }
        Err(io::Error::other(format!("{PLACES_MAX} processes have their witnesses here already")))
    }
}

/// Whole or not at all: a process may die at any byte.
fn write(path: &Path, kept: &Kept) -> io::Result<()> {
    let text = serde_json::to_string(kept).map_err(io::Error::other)?;
    let next = path.with_extension(format!("{}.tmp", std::process::id()));
    {
        let mut file = std::fs::File::create(&next)?;
        io::Write::write_all(&mut file, text.as_bytes())?;
        file.sync_all()?;
    }
    std::fs::rename(&next, path)
}
