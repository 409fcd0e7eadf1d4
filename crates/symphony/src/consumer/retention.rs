//! Forgetting what no bus can repeat any more.

use std::time::Duration;

use crate::db::Consumer;

/// The shortest retention of the inbox: SQS keeps a message for 14 days at most. The database refuses less as well.
pub const INBOX_RETENTION_DAYS_MIN: u32 = 15;

const SECONDS_PER_DAY: i64 = 86_400;
/// How often to look.
const PAUSE: Duration = Duration::from_mins(10);
/// At most this many rows in one transaction.
const BATCH: i32 = 1_000;

/// Retire old rows of this consumer's inbox, again and again, until it is dropped. Any number of processes may: the
/// database lets one at a time work, and the others find nothing to do.
pub async fn keep_retention(consumer: Consumer, name: String, retention_days: u32) {
    let days = i64::from(retention_days.max(INBOX_RETENTION_DAYS_MIN));
    loop {
        match consumer.retire(&name, days * SECONDS_PER_DAY, BATCH).await {
            // A full batch: there may be more.
            Ok(retired) if retired >= i64::from(BATCH) => {}
            Ok(_) => tokio::time::sleep(PAUSE).await,
            Err(error) => {
                tracing::warn!(code = error.code(), %error, "old inbox rows were not retired: tried again later");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
