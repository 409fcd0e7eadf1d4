//! The on-call night in headless Chromium, and pictures of every page, light and dark, wide and narrow.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use symphony::db::{EventOutcome, EventState, PaymentOutcome};
use symphony::domain::{Act, OutboxId, Outcome, Payload, PaymentRequest, Switch};
use uuid::Uuid;

use crate::api::Served;
use crate::events::event;
use crate::support::processes::python_or_skip;
use crate::support::{TestDb, act, payment};
use crate::triggers::manifest;

/// The browser and its driver, where `scripts/ensure-browser` has them; with SYMPHONY_REQUIRE_BROWSER they must be there.
fn chromium() -> Option<(PathBuf, PathBuf)> {
    let find = |variable: &str, usual: &[&str]| {
        let named = std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
        let usual = || usual.iter().map(PathBuf::from).find(|path| path.exists());
        named.or_else(usual)
    };
    let browser = find("SYMPHONY_CHROMIUM", &["/usr/bin/chromium"])?;
    Some((browser, find("SYMPHONY_CHROMEDRIVER", &["/usr/bin/chromedriver"])?))
}

/// Where pictures go: docs/console with SYMPHONY_SCREENSHOTS=docs/console, else beside the builds.
fn folder() -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    match std::env::var_os("SYMPHONY_SCREENSHOTS") {
        Some(folder) => root.join(folder),
        None => root.join("target/console"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_on_call_night_is_played_in_a_browser() {
    play(false).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the long form: four pictures of every page"]
async fn every_page_fits_a_phone_and_a_desk_in_light_and_dark() {
    play(true).await;
}

async fn play(all: bool) {
    python_or_skip!();
    let Some((browser, driver)) = chromium() else {
        assert!(
            std::env::var_os("SYMPHONY_REQUIRE_BROWSER").is_none(),
            "there is no chromium: scripts/ensure-browser"
        );
        println!(
            "passed over: no chromium with chromedriver; scripts/ensure-browser installs them"
        );
        return;
    };
    let served = Served::new().await;
    let stage = Stage::set(&served.db).await;
    let (dana, kim) =
        (served.token("dana", "operate,approve").await, served.token("kim", "approve").await);
    let mut task = json!({
        "url": format!("http://localhost:{}", served.api.address().port()),
        "dana": dana, "kim": kim, "sought": "inv-2041", "chromium": browser, "chromedriver": driver,
        "folder": folder(), "all": all,
        "paths": {
            "waiting": "/console/waiting/payments", "waiting-all": "/console/waiting", "approvals": "/console/approvals",
            "participants": "/console/participants", "participant": "/console/participants/acme",
            "destinations": "/console/destinations", "apps": "/console/apps", "app": "/console/apps/orders",
            "execution": format!("/console/executions/{}", stage.execution), "workers": "/console/workers",
            "audit": "/console/audit", "contradictions": "/console/contradictions", "event": format!("/console/events/{}", stage.event),
        },
    });
    // One path for each kind of act; resolving is the night itself.
    let (failed, pending) = ("/console/search?q=inv-2038", "/console/search?q=inv-2055");
    task["acts"] = json!([
        (failed, "Redrive"),
        (pending, "Park"),
        (pending, "Release"),
        (&task["paths"]["event"], "Skip"),
        (&task["paths"]["execution"], "Replay"),
        ("/console/destinations", "Try it at once"),
        ("/console", "Pause"),
        ("/console", "Resume"),
    ]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/console/night.py");
    let night = tokio::task::spawn_blocking(move || {
        Command::new("python3").arg(script).arg(task.to_string()).output().unwrap()
    });
    let night = tokio::select! {
        night = night => night.unwrap(),
        () = traffic(&served.db) => unreachable!("it goes on until the night is over"),
    };
    let told = String::from_utf8_lossy(&night.stdout).into_owned();
    println!("{told}");
    assert!(night.status.success(), "{told}{}", String::from_utf8_lossy(&night.stderr));
    let ledger = served.db.ledger(stage.parked).await;
    assert_eq!(ledger.last().unwrap(), "2 DISPATCHED");
    let acts = served.db.acts("payment_outbox_events").await;
    let resolved = "RESOLVED dana kim the bank's statement has it, booked at 02:14";
    assert!(acts.iter().any(|act| act == resolved), "{acts:?}");
    for (lane, told) in [
        ("payment", "DEAD_LETTER_CLOSED dana kim tonight: both are settled by mail"),
        ("payment", "REDRIVEN dana kim tonight: Redrive"),
        ("payment", "PARKED dana tonight: Park"),
        ("payment", "RELEASED dana kim tonight: Release"),
        ("event", "SKIPPED dana tonight: Skip"),
        ("trigger", "REPLAYED dana tonight: Replay"),
        ("payment", "PAUSED dana tonight: Pause"),
        ("payment", "RESUMED dana kim tonight: Resume"),
    ] {
        let acts = served.db.acts(&format!("{lane}_outbox_events")).await;
        assert!(acts.iter().any(|act| act == told), "{told} in {acts:?}");
    }
    served.db.assert_ledger_holds().await;
}

const WORKER: &str = "payments-7f3a";

/// What a person on call finds.
struct Stage {
    parked: OutboxId,
    event: Uuid,
    execution: Uuid,
}

impl Stage {
    async fn set(db: &TestDb) -> Self {
        let pay = |instruction: &str, participant: &str, rail: &str, value: &str| {
            let mut request = payment(instruction, participant, rail);
            let document = json!({
                "amount": {"value": value, "currency": "EUR"},
                "destination": {"iban": "DE89370400440532013000"}, "reference": instruction,
            });
            request.payload = Payload::parse(&document.to_string()).unwrap();
            request
        };
        for n in 0..24 {
            let participant = ["acme", "globex", "initech"][n % 3];
            let request = pay(
                &format!("inv-{}", 2001 + n),
                participant,
                "sepa",
                &format!("{}.50", 120 + 37 * n),
            );
            let item = db.enqueue(&request).await.outbox_id;
            let claimed = db.claim_one(WORKER).await;
            assert_eq!(claimed.outbox_id, item);
            db.complete(WORKER, claimed.lease(), Outcome::Dispatched).await.unwrap();
        }
        let parked = Self::ended(
            db,
            &pay("inv-2041", "acme", "sepa", "12400.00"),
            "TIMEOUT",
            Outcome::Unknown,
        )
        .await;
        for (instruction, participant, code) in [
            ("inv-2038", "globex", "ACCOUNT_CLOSED"),
            ("inv-2039", "initech", "INSUFFICIENT_FUNDS"),
            ("inv-2040", "initech", "INSUFFICIENT_FUNDS"),
        ] {
            Self::ended(db, &pay(instruction, participant, "ach", "310.00"), code, Outcome::Failed)
                .await;
        }
        db.require_approval("payment").await;
        for n in 0..6 {
            db.enqueue(&pay(&format!("inv-{}", 2050 + n), "globex", "wire", "990.00")).await;
        }
        db.claim(WORKER, 2).await;
        let why = |reason: &str| Act { actor: "omar".into(), reason: reason.into(), ..act() };
        db.database
            .operator()
            .pause(&Switch::Rail("wire".into()), &why("the bank's window is closed until 06:00"))
            .await
            .unwrap();
        let event = Self::events(db).await;
        let execution = Self::app(db).await;
        db.sql(
            "INSERT INTO event_outbox_topics (topic) VALUES ('transfers.fifo'), ('invoices.fifo'); \
             INSERT INTO outbox_destinations (worker_id, lane, name, breaker, open_since, next_probe_at, troubles, last_trouble, last_trouble_at, \
                    calls, latency_ms, window_ms, rate_per_second, reported_at, dispatched, retryable, failed) \
             VALUES ('payments-7f3a', 'payments', 'sepa', 'CLOSED', NULL, NULL, 0, NULL, NULL, 14, 182, 3000, NULL, now() + INTERVAL '1 hour', 13, 2, 0), \
                    ('payments-7f3a', 'payments', 'ach', 'OPEN', now() - INTERVAL '4 minutes', now() + INTERVAL '20 seconds', 9, 'CONNECTION_REFUSED', now(), 1, 30, 3000, NULL, now() + INTERVAL '1 hour', 13, 2, 0), \
                    ('events-21bc', 'events', 'main/transfers.fifo', 'CLOSED', NULL, NULL, 0, NULL, NULL, 40, 21, 3000, NULL, now() + INTERVAL '1 hour', 40, 0, 0), \
                    ('triggers-90de', 'triggers', 'scripts', 'CLOSED', NULL, NULL, 0, NULL, NULL, 25, 8, 3000, NULL, now() + INTERVAL '1 hour', 24, 1, 0)",
        )
        .await;
        Self { parked, event, execution }
    }

    /// As a worker with a name of its own ends it.
    async fn ended(
        db: &TestDb,
        request: &PaymentRequest,
        code: &str,
        outcome: Outcome,
    ) -> OutboxId {
        db.enqueue(request).await;
        let claimed = db.claim_one(WORKER).await;
        let message = match outcome {
            Outcome::Unknown => "no whole answer in time",
            _ => "the account refuses it",
        };
        let completion = PaymentOutcome {
            error_code: Some(code.to_owned()),
            error_message: Some(message.to_owned()),
            ..PaymentOutcome::new(claimed.lease(), outcome)
        };
        if outcome == Outcome::Unknown {
            db.database.worker().park_unknown_payment(WORKER, &completion).await.unwrap();
        } else {
            db.database.worker().complete_payment(WORKER, &completion).await.unwrap();
        }
        claimed.outbox_id
    }

    async fn events(db: &TestDb) -> Uuid {
        db.tell_of("tr_118", 5).await;
        db.publish_all("events-21bc").await;
        db.tell(&[event("tr_119", 1)]).await;
        let claimed = db.claim_events("events-21bc", 10).await;
        let outcome = EventOutcome {
            error_code: Some("NO_SUCH_TOPIC".to_owned()),
            error_message: Some("the topic transfers.fifo does not exist".to_owned()),
            destination: Some("main/transfers.fifo".into()),
            ..EventOutcome::new(
                claimed[0].lease(),
                claimed[0].log_position,
                EventState::Failed { key_continues: false },
            )
        };
        db.database.worker().complete_events("events-21bc", &[&outcome]).await.unwrap();
        db.tell(&[event("tr_119", 2)]).await;
        claimed[0].event_id
    }

    /// Orders that fire a message each; the last one fails.
    async fn app(db: &TestDb) -> Uuid {
        db.push("orders", &manifest(&[("placed", "kv", "order/*"), ("receipt", "queue", "mail")]))
            .await;
        let mut last = Uuid::nil();
        for n in 0..4 {
            db.kv_set("orders", &format!("order/{n}"), &json!({"item": "tea", "total": "12.50"}))
                .await;
            let first = db.claim_item("triggers-90de").await;
            let effects = json!([{"kind": "queue_send", "queue": "mail", "message": {"order": n}}]);
            db.done("triggers-90de", &first, effects).await;
            for receipt in db.claim_items("triggers-90de", 10).await {
                let state = if n == 3 { "FAILED" } else { "DISPATCHED" };
                db.settle("triggers-90de", &receipt, state, Value::Array(Vec::new())).await;
                last = receipt.id;
            }
        }
        last
    }
}

/// Payments that come and go, so that there is something to draw.
async fn traffic(db: &TestDb) {
    let mut ticks = tokio::time::interval(Duration::from_millis(400));
    for n in 0_usize.. {
        ticks.tick().await;
        for m in 0..(n % 7) {
            db.enqueue(&payment(&format!("live-{n}-{m}"), "hooli", "sepa")).await;
        }
        for claimed in db.claim(WORKER, 3).await {
            db.complete(WORKER, claimed.lease(), Outcome::Dispatched).await.unwrap();
        }
        db.sql(&format!(
            "UPDATE outbox_destinations SET dispatched = 9 + {}, retryable = {}",
            n % 7,
            n % 3
        ))
        .await;
    }
}
