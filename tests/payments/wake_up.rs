//! Wake-ups are hints: NOTIFY makes it fast, polling makes it certain.

use std::time::Duration;

use sqlx::postgres::PgListener;

use crate::support::{TestDb, payment, run};

#[tokio::test]
async fn notify_wakes_whoever_listens() {
    let db = TestDb::new().await;
    let mut listener = PgListener::connect_with(db.database.pool()).await.unwrap();
    listener.listen("outbox_pending").await.unwrap();
    db.enqueue(&payment("i1", "p", "ach")).await;
    let told = tokio::time::timeout(Duration::from_secs(10), listener.recv())
        .await
        .expect("a wake-up")
        .unwrap();
    assert_eq!((told.channel(), told.payload()), ("outbox_pending", "new_work"));
}

#[tokio::test]
async fn an_open_producer_silences_nobody() {
    let db = TestDb::new().await;
    let mut listener = PgListener::connect_with(db.database.pool()).await.unwrap();
    listener.listen("outbox_pending").await.unwrap();
    let mut open = db.admin().await;
    run(&mut open, "BEGIN").await.unwrap();
    symphony::payments::enqueue(&mut open, &payment("open", "p", "ach")).await.unwrap();
    // Its slot of 50 ms passes; whoever commits then must be heard. The first one may share the slot.
    let heard = async {
        for n in 0.. {
            db.enqueue(&payment(&format!("i{n}"), &format!("q{n}"), "ach")).await;
            if tokio::time::timeout(Duration::from_millis(100), listener.recv()).await.is_ok() {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), heard)
        .await
        .expect("a wake-up while a producer is open");
    run(&mut open, "ROLLBACK").await.unwrap();
}
