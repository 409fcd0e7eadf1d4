//! `symphony bench` at its smallest: what it measures is done, and it cleans up. The figures themselves are nobody's proof here.

use sqlx::ConnectOptions as _;

use crate::support::shell::dana;
use crate::support::{self, TestDb};

#[tokio::test]
async fn every_bench_ends_with_figures_and_leaves_no_database_behind() {
    let db = TestDb::new().await;
    for line in [
        "bench sql --items 5000 --runs 1 --only bulk,single,drain",
        "bench run --items 1000 --runs 1 --only noop",
        "bench events --items 5000 --runs 1 --only bulk,drain",
        "bench triggers --requests 400 --clients 16 --messages 100 --runs 1 --only sync,write,queue",
    ] {
        let told = dana(&db, &format!("{line} --json")).await;
        // Not content is what it may be, on a machine with other things to do: a missed target is an answer.
        let document = told.document();
        let rows = serde_json::to_string(&document).unwrap();
        assert!(
            rows.contains("per_second") || rows.contains("p99"),
            "{line}: {rows}{}",
            told.error
        );
    }
    let mut admin = support::server().await.connect().await.unwrap();
    let left: i64 =
        sqlx::query_scalar("SELECT count(*) FROM pg_database WHERE datname LIKE 'symphony_bench%'")
            .fetch_one(&mut admin)
            .await
            .unwrap();
    assert_eq!(left, 0);
}
