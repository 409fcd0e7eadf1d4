//! The writing side of the record: lines are appended, gathered, written and synced, and only then answered for.
//!
//! One thread writes. While it syncs, further lines gather, so that one sync serves all requests in flight
//! (group commit); a request waits until its own line is on the disk.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::watch;

use super::record::{Line, Record, RecordError, as_count};

/// The record's file, open for appending by this process alone.
pub(super) struct Journal {
    path: PathBuf,
    file: Arc<File>,
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// Which line, counted from the start of the process; 0 was on the disk before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position(u64);

impl Position {
    /// Of whatever was reloaded.
    pub(super) const ON_DISK: Self = Self(0);
}

/// Writing failed, so that nothing can be promised any more. The provider answers 500 from here on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JournalFailed;

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    progress: watch::Sender<Progress>,
}

struct Queue {
    bytes: Vec<u8>,
    appended: Position,
    /// Saves a system call per line while the writer is busy anyway.
    writer_waits: bool,
    closed: bool,
}

#[derive(Clone)]
struct Progress {
    written: Position,
    file_bytes: u64,
    failure: Option<Arc<str>>,
}

impl Journal {
    /// Open or make the file, cut off a torn last line, and return what it holds.
    pub(super) fn open(path: &Path, durable: bool) -> Result<(Self, Record), RecordError> {
        let error = || RecordError::io(path);
        let file = OpenOptions::new().read(true).append(true).create(true).open(path);
        let file = file.map_err(error())?;
        file.try_lock().map_err(|refused| match refused {
            TryLockError::WouldBlock => RecordError::InUse { path: path.to_owned() },
            TryLockError::Error(source) => RecordError::Io { path: path.to_owned(), source },
        })?;
        // A device may have no end.
        if !file.metadata().map_err(error())?.is_file() {
            let problem = io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
            return Err(error()(problem));
        }
        let bytes = fs::read(path).map_err(error())?;
        let record = Record::parse(path, &bytes)?;
        let file_bytes = as_count(bytes.len()) - record.torn_bytes;
        if record.torn_bytes > 0 {
            file.set_len(file_bytes).map_err(error())?;
        }
        if durable {
            file.sync_all().and_then(|()| sync_folder(path)).map_err(error())?;
        }
        let journal = Self::write_to(file, path, file_bytes, durable).map_err(error())?;
        Ok((journal, record))
    }

    /// Start the writer.
    pub(super) fn write_to(
        file: File,
        path: &Path,
        file_bytes: u64,
        durable: bool,
    ) -> io::Result<Self> {
        let start = Progress { written: Position::ON_DISK, file_bytes, failure: None };
        let queue = Queue {
            bytes: Vec::new(),
            appended: Position::ON_DISK,
            writer_waits: false,
            closed: false,
        };
        let shared = Arc::new(Shared {
            queue: Mutex::new(queue),
            work: Condvar::new(),
            progress: watch::Sender::new(start),
        });
        let file = Arc::new(file);
        let writer = std::thread::Builder::new().name("sandbox-record".to_owned()).spawn({
            let (shared, file) = (Arc::clone(&shared), Arc::clone(&file));
            move || write_until_closed(&shared, &file, durable)
        });
        Ok(Self { path: path.to_owned(), file, shared, writer: Mutex::new(Some(writer?)) })
    }

    /// Put a line behind all others. It counts once [`on_disk`](Self::on_disk) says so.
    pub(super) fn append(&self, line: &Line) -> Result<Position, JournalFailed> {
        let mut queue = self.shared.lock();
        let length = queue.bytes.len();
        if queue.closed || serde_json::to_writer(&mut queue.bytes, line).is_err() {
            queue.bytes.truncate(length);
            return Err(JournalFailed);
        }
        queue.bytes.push(b'\n');
        queue.appended.0 += 1;
        if queue.writer_waits {
            queue.writer_waits = false;
            self.shared.work.notify_one();
        }
        Ok(queue.appended)
    }

    /// Wait until a line, and so everything before it, is written and synced.
    pub(super) async fn on_disk(&self, position: Position) -> Result<(), JournalFailed> {
        if position == Position::ON_DISK {
            return Ok(());
        }
        let mut progress = self.shared.progress.subscribe();
        let reached =
            progress.wait_for(|now| now.written >= position || now.failure.is_some()).await;
        match reached {
            Ok(now) if now.written >= position => Ok(()),
            _ => Err(JournalFailed),
        }
    }

    /// The last line appended so far.
    pub(super) fn last(&self) -> Position {
        self.shared.lock().appended
    }

    /// How many bytes of the file are on the disk.
    pub(super) fn file_bytes(&self) -> u64 {
        self.shared.progress.borrow().file_bytes
    }

    /// What the disk said when writing failed.
    pub(super) fn failure(&self) -> Option<Arc<str>> {
        self.shared.progress.borrow().failure.clone()
    }

    /// Read a part of the file; blocks.
    pub(super) fn read_at(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Write what was appended, end the writer and give the file back; blocks.
    pub(super) fn close(&self) {
        self.shared.close();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            // The thread ends by itself and cannot panic; whatever failed is in the progress.
            let _ended = writer.join();
        }
        // The lock belongs to the open file, which a connection may still hold for a moment. If unlocking fails,
        // closing it does the same.
        let _unlocked = self.file.unlock();
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.lock().closed = true;
        self.work.notify_one();
    }

    /// Take all lines that have gathered; `None` when closed and empty.
    fn next_lines(&self, spare: Vec<u8>) -> Option<(Vec<u8>, Position)> {
        let mut queue = self.lock();
        while queue.bytes.is_empty() {
            if queue.closed {
                return None;
            }
            queue.writer_waits = true;
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.writer_waits = false;
        Some((std::mem::replace(&mut queue.bytes, spare), queue.appended))
    }
}

fn write_until_closed(shared: &Shared, file: &File, durable: bool) {
    let mut spare = Vec::new();
    while let Some((mut lines, position)) = shared.next_lines(spare) {
        let mut file = file;
        let mut written = file.write_all(&lines);
        if written.is_ok() && durable {
            written = file.sync_data();
        }
        match written {
            Ok(()) => shared.progress.send_modify(|progress| {
                progress.written = position;
                progress.file_bytes += as_count(lines.len());
            }),
            // What the disk now holds is uncertain, and syncing again would prove nothing: say no from now on.
            Err(error) => {
                shared.lock().closed = true;
                shared
                    .progress
                    .send_modify(|progress| progress.failure = Some(error.to_string().into()));
                return;
            }
        }
        lines.clear();
        spare = lines;
    }
}

/// A new file is only found again after a crash if its folder was synced.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder)?.sync_all()
}
