//! A lock on a data folder. The system releases it however the process ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use crate::output::Failure;

/// Released when it is dropped.
pub(super) struct ExclusiveLock(#[allow(dead_code)] File); // kept open: closing it releases the lock

impl ExclusiveLock {
    /// `what` is what only one may do: "symphony is up".
    pub(super) fn acquire(folder: &Path, lock: &str, what: &str) -> Result<Self, Failure> {
        let path = folder.join(lock);
        let cannot =
            |error: io::Error| Failure::new(format!("cannot lock {}: {error}", path.display()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(cannot)?;
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0).map_err(cannot)?;
                writeln!(file, "{}", std::process::id()).map_err(cannot)?;
                Ok(Self(file))
            }
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                // Only to name it: an unreadable one is left out.
                drop(file.read_to_string(&mut pid));
                Err(Failure::new(format!(
                    "{what} already on {} (process {}): use that one, stop it, or name another --data-folder",
                    folder.display(),
                    pid.trim()
                )))
            }
            Err(TryLockError::Error(error)) => Err(cannot(error)),
        }
    }
}
