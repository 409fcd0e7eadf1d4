//! Scripts whose threads do not come back: the trigger lane ends, and no other lane does.

use serde_json::json;
use symphony::engine::Points;
use symphony_lab::sandbox::{Sandbox, Settings};
use symphony_server::api::Api;
use symphony_server::cli::LaneName;
use symphony_server::config::Config;
use symphony_server::worker::Plan;
use tokio::net::TcpStream;

use super::{request, route};
use crate::support::folder::Folder;
use crate::support::{TestDb, payment, until};

#[tokio::test]
async fn threads_that_do_not_come_back_end_the_trigger_lane_and_leave_payments_alone() {
    let db = TestDb::new().await;
    // Some seconds of work in one call of the engine's own, which asks nobody.
    let stuck = "export default () => 'a'.repeat(100000).indexOf('a'.repeat(50000) + 'b')";
    let script = json!({ "name": "stuck", "source": stuck, "timeoutMs": 100 });
    db.push("shop", &json!({ "scripts": [script], "routes": [route("GET", "/", "stuck")] })).await;
    let folder = Folder::new();
    let sandbox = Sandbox::start(Settings::new(folder.0.join("record.jsonl"))).await.unwrap();
    let file = folder.write(
        "symphony.toml",
        &format!(
            "[rails.sandbox]\nkind = 'sandbox'\nurl = 'http://{}'\n[database]\nwitness = 'off'\n\
             [triggers]\nhttp_listen = '127.0.0.1:0'\n[triggers.scripts]\nthreads_stuck_max = 1\n\
             [api]\nlisten = '127.0.0.1:0'\n",
            sandbox.address()
        ),
    );
    let config = Config::load(Some(&file)).unwrap();
    let plan = Plan::new(&config, &[LaneName::Payments, LaneName::Triggers], &[]).unwrap();
    let metrics = plan.metrics();
    let (_, triggers) = metrics.iter().find(|(lane, _)| *lane == "triggers").unwrap();
    let start = plan.start(&config, &db.database, db.options.clone(), Points::default());
    let mut workers = Box::pin(start).await.unwrap();
    let api = Api::start(&config.api, db.database.clone(), metrics.clone(), config.http_server);
    let api = api.await.unwrap();
    let ready = async || request(api.address(), "GET", "/readyz", "").await.unwrap();
    assert_eq!((ready().await.status, ready().await.body.as_str()), (200, "ready\n"));
    let address = workers.apps_address().unwrap();

    let work = async {
        let answer = request(address, "GET", "/apps/shop/", "").await.unwrap();
        assert_eq!((answer.status, answer.json()["error"].as_str()), (504, Some("TIMEOUT")));
        let scripts = triggers.scripts.get().unwrap();
        until("the lane ends", async || scripts.has_ended()).await;
        let (said, page) =
            (ready().await, request(api.address(), "GET", "/metrics", "").await.unwrap());
        assert_eq!(said.status, 503, "{}", said.body);
        assert!(said.body.starts_with("not ready: SCRIPTS_ENDED: "), "{}", said.body);
        assert!(page.body.contains("\nscripts_ended{lane=\"triggers\"} 1\n"), "{}", page.body);
        until("apps are served no more", async || TcpStream::connect(address).await.is_err()).await;
        db.database.producer().enqueue_payment(&payment("i", "p", "sandbox")).await.unwrap();
        until("a payment is sent", async || {
            db.count("payment_outbox_attempts WHERE state = 'DISPATCHED'").await == 1
        })
        .await;
    };
    tokio::select! {
        why = workers.broken() => panic!("the process ended: {why:?}"),
        () = work => {}
    }
    assert_eq!(workers.stop().await, 0);
    api.stop();
    sandbox.stop().await.unwrap();
}
