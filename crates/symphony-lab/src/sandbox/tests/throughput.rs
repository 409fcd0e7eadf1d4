use std::time::Instant;

use super::*;

/// By hand: `cargo test --release -p symphony-connect throughput -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn throughput_with_64_connections() {
    const REQUESTS: usize = 200_000;
    const CONNECTIONS: usize = 64;
    for durable in [true, false] {
        let fixture = Fixture::with(|settings| settings.durable = durable).await;
        let mut clients = tokio::task::JoinSet::new();
        let start = Instant::now();
        for connection in 0..CONNECTIONS {
            let mut client = fixture.client().await;
            clients.spawn(async move {
                for number in 0..REQUESTS / CONNECTIONS {
                    let key = format!("019a0000-0000-7000-8000-{connection:04}{number:08}");
                    assert_eq!(client.transfer(&key, BODY).await.unwrap().status, 201);
                }
            });
        }
        clients.join_all().await;
        let elapsed = start.elapsed();
        let rate = (REQUESTS as u128) * 1000 / elapsed.as_millis();
        println!("durable {durable}: {rate} transfers/s over {CONNECTIONS} connections");
        assert_eq!(fixture.sandbox().summary().await.unwrap().executed, REQUESTS as u64);
    }
}
