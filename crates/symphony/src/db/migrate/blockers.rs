//! Who keeps a migration waiting. Only while it waits can the server tell, so a second connection asks meanwhile.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Row as _};

use crate::db::connect;

const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// Pid, user and application are visible to everybody, state and query to members of `pg_read_all_stats` only.
const BLOCKERS: &str = "SELECT format('process %s of %s (application %s, %s)', a.pid, a.usename, \
            coalesce(nullif(quote_literal(a.application_name), ''''''), 'unnamed'), \
            coalesce(a.state || ' for ' || round(extract(epoch FROM clock_timestamp() - a.state_change)) || ' s: ' \
                     || left(regexp_replace(a.query, '\\s+', ' ', 'g'), 120), 'its state is visible to its own user only')) \
       FROM pg_stat_activity a WHERE a.pid = ANY (pg_blocking_pids($1))";

/// Watches one backend until dropped.
pub(super) struct Watcher {
    seen: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Watcher {
    pub(super) fn start(server: &PgConnectOptions, pid: i32) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let server = server.clone();
        let shared = Arc::clone(&seen);
        // A look that fails costs only the name in a message.
        let task = tokio::spawn(async move {
            let Ok(mut connection) = connect(&server).await else { return };
            let mut tick = tokio::time::interval(LOOK_PAUSE);
            loop {
                tick.tick().await;
                // The simple protocol: behind a pooler no statement may have a name.
                let sql = AssertSqlSafe(BLOCKERS.replace("$1", &pid.to_string()));
                let Ok(rows) = sqlx::raw_sql(sql).fetch_all(&mut connection).await else { return };
                let found: Vec<String> =
                    rows.iter().filter_map(|row| row.try_get(0).ok()).collect();
                if !found.is_empty() {
                    *shared.lock().unwrap_or_else(PoisonError::into_inner) = found;
                }
            }
        });
        Self { seen, task }
    }

    /// Whoever was last seen to block.
    pub(super) fn last_seen(&self) -> String {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.is_empty() { "somebody who has gone since".to_owned() } else { seen.join("; ") }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}
