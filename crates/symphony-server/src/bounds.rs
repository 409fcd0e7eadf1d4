//! Every bound of this crate, in one place. The database's own are in `sql/`, the engine's in the library.

use std::time::Duration;

// Serving

/// The body of a request to an app.
pub(crate) const APP_BODY_BYTES_MAX: usize = 1024 * 1024;
/// How long after its deadline a waiting client is told so by this process, should a busy database not do it.
pub(crate) const REPLY_DEADLINE_GRACE: Duration = Duration::from_millis(250);
/// How long after that the commit of a completion is waited for, before nobody knows what became of it.
pub(crate) const COMMIT_WAIT_MAX: Duration = Duration::from_secs(3);
/// Requests to apps that are written in one transaction.
pub(crate) const REQUESTS_PER_COMMIT_MAX: usize = 128;
/// How long a request waits for a slot in this process while none of its app comes free.
pub(crate) const LEASED_REQUEST_STALL_MAX: Duration = Duration::from_millis(50);
/// How long it waits for one at most. Then whoever claims it may run it.
pub(crate) const LEASED_REQUEST_WAIT_MAX: Duration = Duration::from_secs(1);
/// How old an app's routes may be: a push is seen within that time, and a busy app is read once in it.
pub(crate) const ROUTES_CACHED_FOR: Duration = Duration::from_secs(1);
/// Apps whose routes are kept.
pub(crate) const APPS_CACHED_MAX: usize = 1_000;
/// A body of a request to an app that needs no room of its own.
pub(crate) const SMALL_BODY_BYTES_MAX: usize = 16 * 1024;
/// How long a larger one waits for room.
pub(crate) const BODY_ROOM_WAIT_MAX: Duration = Duration::from_secs(10);
/// Callers whose ids are remembered.
pub(crate) const PRINCIPALS_CACHED_MAX: usize = 10_000;
/// A manifest with its sources.
pub(crate) const MANIFEST_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Rows of one page of the API.
pub(crate) const PAGE_ROWS_MAX: u32 = 1_000;
/// A payment or an event: the database takes payloads of 1 MiB, and JSON may be written at length.
pub(crate) const ITEM_BYTES_MAX: usize = 2 * 1024 * 1024;
/// How long one statement of a caller of the API or the console may take.
pub(crate) const CALLER_STATEMENT_MAX: Duration = Duration::from_secs(30);
/// How long one question may look at everything there is; only one at a time does.
pub(crate) const EVERYTHING_TIME_MAX: Duration = Duration::from_secs(10);
/// Acts of one request of the API: each is a transaction of its own, as for the command line.
pub(crate) const ACTS_AT_ONCE_MAX: usize = 100;
/// Executions of one tree that are shown.
pub(crate) const TREE_ROWS_MAX: i64 = 500;
/// An act with its arguments.
pub(crate) const ACT_BYTES_MAX: usize = 1024 * 1024;
/// Unknown tokens from one address that the database is asked about.
pub(crate) const FAILED_TOKENS_PER_SECOND: u32 = 20;
/// And from all of them: more than one address can use up, and no more than the database answers on the side.
pub(crate) const FAILED_TOKENS_OF_ALL_PER_SECOND: u32 = 200;
/// Addresses whose unknown tokens are counted apart.
pub(crate) const PEERS_REMEMBERED_MAX: usize = 10_000;
/// Tokens whose rates are kept apart.
pub(crate) const TOKENS_REMEMBERED_MAX: usize = 10_000;
/// How old the lanes' figures may be before a process counts them anew, for all processes.
pub(crate) const FIGURES_COUNTED_EVERY: Duration = Duration::from_secs(5);
/// How often a process reads what was counted: scrapes within that time share one answer.
pub(crate) const FIGURES_READ_EVERY: Duration = Duration::from_secs(1);
/// How long a scrape waits for them.
pub(crate) const FIGURES_WAIT_MAX: Duration = Duration::from_millis(500);
/// When they are asked for again, if there are none yet because somebody else counts the first ones.
pub(crate) const FIGURES_ASKED_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// A database that has not answered for so long is away.
pub(crate) const FIGURES_ANSWER_MAX: Duration = Duration::from_secs(5);
/// For how long they are served while the database is away.
pub(crate) const FIGURES_KEPT_FOR: Duration = Duration::from_mins(1);
/// How long somebody is signed in to the console.
pub(crate) const SESSION_LASTS: Duration = Duration::from_hours(12);
/// And without looking at a page.
pub(crate) const SESSION_IDLE_MAX: Duration = Duration::from_hours(1);
/// People signed in at one process.
pub(crate) const SESSIONS_MAX: usize = 1_000;
/// And of them with one token.
pub(crate) const SESSIONS_OF_A_TOKEN_MAX: usize = 20;
/// How long a printed sign-in is good, and how many are kept.
pub(crate) const SIGN_IN_LINK_LASTS: Duration = Duration::from_hours(1);
pub(crate) const SIGN_IN_LINKS_MAX: usize = 100;
/// Rows of one page of the console.
pub(crate) const CONSOLE_ROWS: i64 = 50;
/// Items of one act from a list.
pub(crate) const BULK_ITEMS_MAX: usize = 100;
/// Requests, contradictions, unserved and paused things that the overview names, of each.
pub(crate) const ATTENTION_SHOWN_MAX: i64 = 20;
/// Paused things that it counts.
pub(crate) const PAUSED_COUNTED_MAX: i64 = 1_000;
/// How often the overview is drawn anew: all who look, at any process, share one question to the database.
pub(crate) const LIVE_INTERVAL: Duration = Duration::from_secs(2);
/// How often the lanes are looked at while nobody watches.
pub(crate) const LIVE_SAMPLE_EVERY: Duration = Duration::from_secs(5);
/// How long that is remembered, in how many samples at most: while somebody watches they come every four seconds.
pub(crate) const LIVE_REMEMBERED: Duration = Duration::from_mins(30);
pub(crate) const LIVE_SAMPLES_MAX: usize = 500;
/// An id that is searched for.
pub(crate) const SEARCH_BYTES_MAX: usize = 256;
/// Numbers of a participant that are proved whenever its page is shown.
pub(crate) const PROVED_NUMBERS_MAX: i64 = 10_000;
/// The pause after a failed accept, most likely for want of file descriptors.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// How long a refused client is given to read why.
pub(crate) const REFUSAL_READ_TIME: Duration = Duration::from_millis(500);

// Traces

/// How long spans wait for company before they are posted.
#[cfg(feature = "otlp")]
pub(crate) const SPANS_FILL_TIME: Duration = Duration::from_millis(200);
/// How often a post is tried before its spans are dropped; the queue takes up what comes meanwhile.
#[cfg(feature = "otlp")]
pub(crate) const SPANS_TRIES_MAX: u32 = 3;
/// The pause between two tries.
#[cfg(feature = "otlp")]
pub(crate) const SPANS_PAUSE: Duration = Duration::from_millis(500);
/// How long a process that stops goes on posting what waits.
#[cfg(feature = "otlp")]
pub(crate) const SPANS_FLUSH_TIME: Duration = Duration::from_secs(2);
/// Spans that may wait, about 300 bytes each.
pub(crate) const SPANS_WAITING_MAX: usize = 1_000_000;
/// Spans of one post: collectors take 4 MiB.
pub(crate) const SPANS_PER_POST_MAX: usize = 8_192;

// Configuration

/// Twelve hours, as SQS has it.
pub(crate) const VISIBILITY_SECONDS_MAX: u64 = 43_200;
/// Connections to a database.
pub(crate) const CONNECTIONS_MAX: u32 = 10_000;
/// Events of one bucket under one lease.
pub(crate) const WINDOW_EVENTS_MAX: usize = 1_000;
/// A week: the database waits no longer.
pub(crate) const RETRY_SECONDS_MAX: u32 = 604_800;

// Commands

/// The token behind the sign-in that `up` prints: a day, should it not be revoked at the end.
pub(crate) const UP_TOKEN_SECONDS: i32 = 86_400;
/// Tokens that `token list` shows.
pub(crate) const TOKENS_LISTED_MAX: i64 = 1_000;

/// How long a second person has to approve what a command asks for.
pub(crate) const APPROVAL_EXPIRES_SECONDS: i32 = 86_400;
/// Acts of one request that a person is told one by one.
pub(crate) const ACTS_TOLD_MAX: usize = 20;
/// The exit code of an act that waits for a second person.
pub(crate) const EXIT_ASKED: u8 = 3;

/// A file of an app's folder.
pub(crate) const APP_FILE_BYTES_MAX: u64 = 1024 * 1024;
/// How long a script runs whose manifest does not say: as `push_app` has it.
pub(crate) const SCRIPT_TIMEOUT_MS_DEFAULT: u64 = 10_000;
/// Calls of `fetch` in a run of `app run`: as a worker has it.
pub(crate) const LOCAL_FETCHES_MAX: u32 = 16;
/// A secret of an app.
pub(crate) const SECRET_BYTES_MAX: usize = 16 * 1024;
/// Shorter ones are found everywhere: as scripts' output is searched for them.
pub(crate) const SECRET_BYTES_MIN: usize = 8;
/// How often `app dev` looks whether a file has changed.
pub(crate) const DEV_POLL: Duration = Duration::from_millis(300);
/// Files that `app dev` watches; a folder with more is no app's.
pub(crate) const DEV_FILES_MAX: usize = 10_000;
/// A bank's statement, which is read whole.
pub(crate) const STATEMENT_BYTES_MAX: u64 = 64 << 20;
/// Keys of a statement looked up at once.
pub(crate) const STATEMENT_KEYS_MAX: usize = 10_000;
/// A source file that `guard` reads; larger ones are data.
pub(crate) const SOURCE_FILE_BYTES_MAX: u64 = 4 << 20;
/// Payments or events of one call when a file is read.
pub(crate) const BATCH_ITEMS: usize = 500;
/// And about this many bytes: the database takes 16 MiB in one call, and JSONB is up to six times its text.
pub(crate) const BATCH_BYTES: usize = 3 * 512 * 1024;
/// Events of a file written in one transaction. More would hold the buckets' locks for too long.
pub(crate) const TRANSACTION_EVENTS_MAX: usize = 10_000;
/// The same in bytes, so that large events fit into memory and into one transaction.
pub(crate) const TRANSACTION_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How often a transaction that met a deadlock with other producers is repeated.
pub(crate) const DEADLOCK_RETRIES_MAX: usize = 5;
/// More events than this are counted, not listed; `--json` lists all.
pub(crate) const EVENTS_LISTED_MAX: usize = 1_000;
/// Mistakes of a file named one by one.
pub(crate) const MISTAKES_LISTED_MAX: usize = 20;
/// Things of one kind that `status` names.
pub(crate) const ATTENTION_LISTED_MAX: usize = 10;
/// Names suggested for one that does not exist.
pub(crate) const SUGGESTIONS_MAX: usize = 3;
/// Incidents in one list.
pub(crate) const INCIDENTS_LISTED_MAX: i64 = 1_000;
/// A snapshot older than this keeps finished items in the queue's indexes.
pub(crate) const OLD_SNAPSHOT_SECONDS: i64 = 300;
/// Events may wait so long for a producer that is open.
pub(crate) const DELAY_SECONDS_MAX: i64 = 10;
/// A hot table with more dead rows than this, and than live ones, is bloated.
pub(crate) const DEAD_ROWS_MAX: i64 = 100_000;
/// How often `app logs --follow` looks for executions that ended.
pub(crate) const FOLLOW_POLL: Duration = Duration::from_millis(500);
/// Executions it reads at once.
pub(crate) const FOLLOW_PAGE_ROWS: i64 = 500;
/// How much later than its own time an execution may be committed and still be shown.
pub(crate) const FOLLOW_OVERLAP: Duration = Duration::from_secs(5);
/// How often `top` looks whether it shall end, while no key is pressed.
pub(crate) const TOP_KEY_POLL: Duration = Duration::from_millis(100);
/// Workers that `top` lists.
pub(crate) const TOP_WORKERS_MAX: i64 = 1_000;
/// How often `top` reads again.
pub(crate) const STATUS_REFRESH: Duration = Duration::from_secs(1);
/// How often `inquire` looks whether the rail was asked.
pub(crate) const INQUIRY_POLL: Duration = Duration::from_millis(200);

const _: () = assert!(ATTENTION_SHOWN_MAX < PAUSED_COUNTED_MAX);
const _: () = assert!(SESSIONS_OF_A_TOKEN_MAX < SESSIONS_MAX);
// One address alone must not use up what all have.
const _: () = assert!(FAILED_TOKENS_OF_ALL_PER_SECOND > FAILED_TOKENS_PER_SECOND);
// A batch must fit into its transaction.
const _: () =
    assert!(BATCH_ITEMS <= TRANSACTION_EVENTS_MAX && BATCH_BYTES <= TRANSACTION_BYTES_MAX);
