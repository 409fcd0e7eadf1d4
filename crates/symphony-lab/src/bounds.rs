//! Every bound of this crate that a user may meet.

// The private PostgreSQL

/// A log larger than this is set aside at start; one is kept.
pub(crate) const SERVER_LOG_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// The longest path of a unix socket that Linux takes.
pub(crate) const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Longer than replaying `max_wal_size` of log after a crash takes. A server that cannot start says so at once.
pub(crate) const START_SECONDS_MAX: u64 = 300;
/// How long the children of a killed server may take to release its memory.
pub(crate) const SHARED_MEMORY_RELEASE_SECONDS_MAX: u64 = 30;
/// Another process may take a free port between our finding it and the server's binding it.
pub(crate) const PORT_ATTEMPTS_MAX: u32 = 5;
/// One try to connect to it.
pub(crate) const CONNECT_SECONDS_MAX: u64 = 5;
/// Longer than any start or stop takes that comes to an end.
pub(crate) const START_LOCK_SECONDS_MAX: u64 = 600;

// A start must fit into the time its lock is waited for.
const _: () = assert!(START_SECONDS_MAX < START_LOCK_SECONDS_MAX);
