//! The witness: what the database told this process last, kept where a restored backup cannot reach it.
//!
//! Every second, and when a claim was refused because of the server, a process tells the database the number it was given
//! last. A database that does not know it has lost something. In memory this notices a failover; kept in a file it also
//! notices a backup that was restored while nobody worked.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::db::{Beat, DbError, Executor, ServerState};

/// How often the database is told.
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// How soon again, while something is being decided or the database is away.
const BEAT_SOON: Duration = Duration::from_millis(100);
/// How often a person is told again that nothing is dispatched.
const REMIND_EVERY: u32 = 60;

/// Keeps what the database said.
#[derive(Debug)]
pub struct Witness {
    executor: Executor,
    worker_id: String,
    kept: Kept,
    file: Option<PathBuf>,
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
        executor: Executor,
        worker_id: String,
        folder: Option<&Path>,
    ) -> Result<Self, WitnessError> {
        let mut kept = Kept { witness_id: Uuid::new_v4(), beat: None };
        let mut file = None;
        if let Some(folder) = folder {
            let installation = executor.installation_id().await?;
            let path = folder.join(format!("{installation}.json"));
            match prepare(folder, &path) {
                Ok(Some(text)) => {
                    kept =
                        serde_json::from_str(&text).map_err(|error| WitnessError::Unreadable {
                            path: path.display().to_string(),
                            message: error.to_string(),
                        })?;
                    file = Some(path);
                }
                Ok(None) => file = Some(path),
                Err(error) => tracing::warn!(
                    path = %path.display(), %error,
                    "no witness file can be kept here: a backup restored while no worker runs would go unnoticed (database.witness)"
                ),
            }
        }
        Ok(Self { executor, worker_id, kept, file, repeated: (String::new(), 0) })
    }

    /// Tell the database once.
    pub async fn beat(&mut self) -> Result<ServerState, DbError> {
        let (state, beat) = self
            .executor
            .beat_witness(
                self.kept.witness_id,
                &self.worker_id,
                self.file.is_some(),
                self.kept.beat,
            )
            .await?;
        if beat.is_some() {
            self.kept.beat = beat;
            if let Some(path) = &self.file
                && let Err(error) = write(path, &self.kept)
            {
                tracing::warn!(path = %path.display(), %error, "the witness file could not be written");
            }
        }
        Ok(state)
    }

    /// Tell it again and again, for as long as the process works.
    pub async fn run(mut self) {
        let news = self.executor.server_news();
        loop {
            let pause = match self.beat().await {
                Ok(state) => self.report(&state),
                // Whoever claims says so too.
                Err(_) => BEAT_SOON,
            };
            tokio::time::sleep(BEAT_SOON).await;
            tokio::select! {
                () = tokio::time::sleep(pause.saturating_sub(BEAT_SOON)) => {}
                () = news.refused.notified() => {}
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
                    "nothing is dispatched on this server until a person accepts it: symphony restore check"
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
            self.executor.server_news().decided.send_modify(|count| *count += 1);
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

/// The file's text, if there is one; makes the folder.
fn prepare(folder: &Path, path: &Path) -> io::Result<Option<String>> {
    std::fs::create_dir_all(folder)?;
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Now, and not in a second: whoever starts a worker is there to read why it cannot.
            let probe = path.with_extension(format!("{}.tmp", std::process::id()));
            std::fs::write(&probe, "")?;
            std::fs::remove_file(&probe)?;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Whole or not at all: a process may die at any byte, and two may share the file.
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
