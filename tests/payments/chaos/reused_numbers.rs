//! What the first run under fire found: after a crash the number of a lost transaction goes to another one.

use std::sync::Arc;

use symphony::db::{Database, DbError, RoleSource};

use super::dice::Tally;
use super::ground::Ground;
use super::relay::Relay;
use crate::support::payment;

/// How often a crash may come too late before the test gives up.
const CRASHES_MAX: usize = 20;

#[tokio::test]
async fn a_commit_lost_in_a_crash_is_not_confirmed_by_whoever_got_its_number() {
    // Nothing but a commit writes the log, so that what is open at the crash leaves no trace.
    let mut ground = Ground::prepare(&[("wal_writer_delay", "10s"), ("autovacuum", "off")]).await;
    let relay = ground.relay(None, &Arc::new(Tally::default())).await;
    let database =
        Database::connect(relay.options.clone(), 2, RoleSource::EachTransaction).await.unwrap();
    for in_place in [false, true] {
        let mut crashes = 0;
        while !number_given_away(&mut ground, &relay, &database, in_place, crashes).await {
            crashes += 1;
            assert!(crashes < CRASHES_MAX, "no crash comes before the log is written");
        }
    }
    database.pool().close().await;
    ground.clear().await;
}

/// Lose a COMMIT in a crash. `false` if its log had reached the disk, so that its number was kept.
async fn number_given_away(
    ground: &mut Ground,
    relay: &Relay,
    database: &Database,
    in_place: bool,
    attempt: usize,
) -> bool {
    let request = payment(&format!("{in_place} {attempt}"), "acme", "sepa");
    let mut held = relay.hold();
    let (ingest, asked) = (database.producer(), request.clone());
    let asking = tokio::spawn(async move { ingest.enqueue_payment(&asked).await });
    held.reached().await;
    let lost = "SELECT max(backend_xid::text::bigint) FROM pg_stat_activity";
    let lost: i64 = sqlx::query_scalar(lost).fetch_one(database.pool()).await.unwrap();
    if in_place {
        ground.crash_in_place();
    } else {
        ground.kill_server().await;
    }
    let mut others: Vec<i64> = Vec::new();
    while others.last().is_none_or(|number| *number < lost) {
        let take = "SELECT pg_current_xact_id()::text::bigint";
        match sqlx::query_scalar(take).fetch_one(database.pool()).await {
            Ok(number) => others.push(number),
            Err(error) => assert!(DbError::from(error).is_transient()),
        }
    }
    held.lose();

    let answer = asking.await.unwrap();
    let given_away = others.contains(&lost);
    // Given away or not: a server that has crashed since is not believed.
    assert!(matches!(answer, Err(DbError::CommitUnknown { .. })), "{answer:?}");
    // It never happened, and asking again under the same key is all it takes.
    // The pool may still hold a connection from before the crash: what could not be begun is begun again.
    let again = loop {
        match database.producer().enqueue_payment(&request).await {
            Err(DbError::Unreachable { .. }) => {}
            answer => break answer.unwrap(),
        }
    };
    assert!(!again.duplicate);
    given_away
}
