//! The declared list of tables is the live catalog's.

use std::collections::BTreeSet;

use symphony::db::tables::{ALL, TableKind, of_kind};

use crate::support::TestDb;

/// Whatever belongs to the owner is ours, in whichever schema it is.
const LIVE: &str = "SELECT c.relname::text FROM pg_class c \
     WHERE c.relkind IN ('r', 'p') AND c.relowner = 'symphony_control'::regrole";

#[tokio::test]
async fn every_table_is_declared_and_every_declared_table_is_there() {
    let db = TestDb::new().await;
    let live: Vec<String> =
        sqlx::query_scalar(LIVE).fetch_all(&mut db.admin().await).await.unwrap();
    let live: BTreeSet<_> = live.iter().map(String::as_str).collect();
    let declared: BTreeSet<_> = ALL.iter().map(|table| table.name).collect();
    assert_eq!(
        live, declared,
        "left the live catalog, right crates/symphony/src/db/tables.rs: declare what is new there, \
         with its lane and kind"
    );
    assert_eq!(declared.len(), ALL.len(), "a table is declared twice");
}

#[tokio::test]
async fn the_ledger_is_what_refuses_to_be_changed() {
    let db = TestDb::new().await;
    let guarded: Vec<String> = sqlx::query_scalar(
        "SELECT DISTINCT c.relname::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid \
           JOIN pg_proc p ON p.oid = t.tgfoid \
          WHERE p.proname = 'refuse_ledger_change' AND c.relowner = 'symphony_control'::regrole",
    )
    .fetch_all(&mut db.admin().await)
    .await
    .unwrap();
    let guarded: BTreeSet<_> = guarded.iter().map(String::as_str).collect();
    let declared: BTreeSet<_> = of_kind(TableKind::Ledger).into_iter().collect();
    assert_eq!(guarded, declared, "left has the trigger, right is declared as Ledger");
}
