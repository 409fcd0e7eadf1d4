//! Through Debian's pgbouncer in transaction mode, whose sessions go from client to client.

use serde_json::json;
use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;
use symphony::db::{Database, Role, RoleSource, Session};
use symphony_lab::receiver::{Receiver, ReceiverSettings};

use super::{Folder, Worker, sandbox, sandbox_rail};
use crate::support::pooler::{self, Pooler};
use crate::support::shell::symphony;
use crate::support::{TestDb, payment, until};

const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

/// A pooler before a test's database, and the logins that go through it.
async fn pooled<const N: usize>(db: &TestDb, roles: [&str; N]) -> (Pooler, [PgConnectOptions; N]) {
    let mut logins = Vec::new();
    for role in roles {
        logins.push(db.login(role).await);
    }
    let names: Vec<&str> = logins.iter().map(PgConnectOptions::get_username).collect();
    let pooler = Pooler::start(db.options.get_port(), &names).await;
    let logins: Vec<_> = logins.iter().map(|login| pooler.before(login)).collect();
    (pooler, logins.try_into().unwrap())
}

#[tokio::test]
async fn every_command_works_through_a_transaction_pooler_however_often() {
    if pooler::found().is_none() {
        return;
    }
    let db = TestDb::new().await;
    let roles = ["symphony_ingest", "symphony_operator", "symphony_auditor", "symphony_readonly"];
    let (pooler, [ingest, operator, auditor, readonly]) = pooled(&db, roles).await;
    let installer = installer(&db).await;
    let (_own, installer) = {
        let own = Pooler::start(db.options.get_port(), &[installer.get_username()]).await;
        let options = own.before(&installer);
        (own, options)
    };
    let parked = db.enqueue(&payment("parked", "acme", "sepa")).await.outbox_id;
    db.database.operator().park_payment(parked, &crate::support::act()).await.unwrap();
    let app = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/apps/orders");
    let push = format!("app push {app}");
    for round in 0..3 {
        let pay = format!(
            "enqueue payment --instruction i{round} --participant p --key k --rail r --payload \
             {{\"amount\":{{\"value\":\"1.00\",\"currency\":\"EUR\"}}}}"
        );
        let event = format!(
            "enqueue event --event {{\"envelope\":{{\"v\":1,\"eventId\":\"{}\",\"occurredAt\":\"2026-01-01T00:00:00Z\",\
             \"tenantId\":\"acme\",\"type\":\"events.a.b\"}},\"key\":{{\"a\":\"1\"}},\"payload\":{{}}}}",
            uuid::Uuid::new_v4()
        );
        let commands: [(&PgConnectOptions, &str); 17] = [
            (&ingest, &pay),
            (&ingest, &event),
            (&operator, "status"),
            (&auditor, "show i0"),
            (&readonly, "dlq list"),
            (&operator, "park i0 --reason x"),
            (&operator, "resolve parked --as failed --reason x"),
            (&operator, "release parked --reason x"),
            (&operator, "pause rail r --reason x --yes"),
            (&operator, "resume rail r --reason x --yes"),
            (&operator, "rail sepa --fifo false --reason x --yes"),
            (&operator, &push),
            (&readonly, "app list"),
            (&auditor, "app executions"),
            (&installer, "migrate --check"),
            (&installer, "migrate"),
            (&installer, "doctor"),
        ];
        for (login, command) in commands {
            let told =
                symphony(login.to_url_lossy().as_str(), &[("USER", "dana")], command, &[], "")
                    .await;
            // The tests' server runs without fsync, and has logins of other tests that may become the owner: that is all
            // that may be wrong with it.
            let wrong = told.output.lines().filter(|line| {
                line.starts_with("FAIL")
                    && !line.starts_with("FAIL owner")
                    && !line.contains("fsync")
            });
            let only_fsync =
                command == "doctor" && told.output.contains("OK   data") && wrong.count() == 0;
            assert!(
                told.ok || only_fsync,
                "{command}, round {round}: {}{}",
                told.output,
                told.error
            );
        }
    }
    drop(pooler);
}

/// A login that may migrate, and owns the database as it must.
async fn installer(db: &TestDb) -> PgConnectOptions {
    let login = crate::support::unique("pooled_installer");
    let name = db.options.get_database().unwrap();
    db.sql(&format!("CREATE ROLE {login} LOGIN CREATEROLE PASSWORD 'x'")).await;
    db.sql(&format!("GRANT symphony_control TO {login} WITH ADMIN OPTION")).await;
    db.sql(&format!("ALTER DATABASE {name} OWNER TO {login}")).await;
    db.options.clone().username(&login).password("x")
}

#[tokio::test]
async fn every_lane_works_through_a_transaction_pooler_with_and_without_a_direct_connection_for_hints()
 {
    if pooler::found().is_none() {
        return;
    }
    let db = TestDb::new().await;
    db.push("shop", &json!({
        "scripts": [crate::triggers::apps::script("s", "export default r => { kv.set('seen/' + r.payload.key, 1) }")],
        "triggers": [crate::triggers::apps::trigger("t", "kv", "a/*", "s")],
    }))
    .await;
    let (_pooler, [worker, producer]) = pooled(&db, ["symphony_executor", "symphony_ingest"]).await;
    let folder = Folder::new();
    let sandbox = sandbox(&folder).await;
    let receiver = Receiver::start(ReceiverSettings::new(SECRET)).await.unwrap();
    let direct = db.options.clone().username(worker.get_username()).password("x");
    let rest = format!(
        "{}[[events.routes]]\ntype = \"*\"\nbus = \"hooks\"\ntopic = \"hook\"\n[buses.hooks]\nkind = \"http\"\nallow_private_addresses = true\n\
         [buses.hooks.endpoints.hook]\nurl = \"{}\"\nsecret_env = \"HOOK_SECRET\"\n",
        sandbox_rail(&sandbox),
        receiver.url()
    );
    let hinted = format!("{rest}[database]\nlisten_url = \"{}\"\n", direct.to_url_lossy());
    let lanes = "payments,events,triggers";
    let deaf = Worker::start(&worker, &folder, &rest, lanes).await.unwrap();
    let hearing = Worker::start(&worker, &folder, &hinted, lanes).await.unwrap();
    let database = Database::connect(producer, 6, RoleSource::EachTransaction).await.unwrap();
    assert!(database.sessions_are_lent());
    // Many at a time, so that sessions change hands.
    let told = futures_util::future::join_all((0..40).map(|n| {
        let database = database.clone();
        async move { everything(&database, n).await }
    }));
    told.await;
    until("all three lanes have done everything", async || {
        db.count("payment_outbox_attempts WHERE state = 'DISPATCHED'").await == 40
            && db.count("event_outbox_attempts WHERE state = 'DISPATCHED'").await == 40
            && db.count("kv_entries WHERE key LIKE 'seen/%'").await == 40
    })
    .await;
    for lane in lanes.split(',') {
        let up = |value: u8| format!("listener_up{{lane=\"{lane}\"}} {value}\n");
        until("hints arrive over the direct connection", async || {
            hearing.page("GET", "/metrics", "").await.1.contains(&up(1))
        })
        .await;
        assert!(deaf.page("GET", "/metrics", "").await.1.contains(&up(0)));
        let said = deaf.said();
        let words = said.lines().filter(|line| {
            line.contains("polling finds the work") && line.contains(&format!("lane={lane}"))
                || line.contains("polling finds the work")
                    && line.contains(&format!("lane=\"{lane}\""))
        });
        assert_eq!(words.count(), 1, "it says so once: {said}");
    }
    for worker in [deaf, hearing] {
        let (status, said) = worker.terminate().await;
        assert!(status.success() && !said.contains("prepared statement"), "{status} {said}");
    }
    assert_eq!(sandbox.summary().await.unwrap().executed, 40);
    db.assert_ledger_holds().await;
}

/// A payment, an event and an entry that fires, each in a transaction of its own.
async fn everything(database: &Database, n: usize) {
    let request = payment(&format!("i{n}"), &format!("p{n}"), "sandbox");
    database.producer().enqueue_payment(&request).await.unwrap();
    let event = json!({
        "envelope": {"v": 1, "eventId": uuid::Uuid::new_v4(), "occurredAt": "2026-01-01T00:00:00Z",
                     "tenantId": "acme", "type": "events.a.b"},
        "key": {"a": n.to_string()}, "payload": {},
    });
    let event = symphony::event::Event::parse(&event.to_string()).unwrap();
    let value = serde_json::value::to_raw_value(&1).unwrap();
    let mut transaction = database.begin(Role::Producer).await.unwrap();
    symphony::events::enqueue(&mut transaction, &event).await.unwrap();
    // As a service of one's own does it, with a connection of its own.
    let session = Session::lent(transaction.connection());
    symphony::triggers::kv_set(session, "shop", &format!("a/{n}"), &value, None).await.unwrap();
    transaction.commit().await.unwrap();
}

/// What it costs: the same calls in a session of our own, by statements without names, and through the pooler.
#[tokio::test]
#[ignore = "a measurement: docs/PERFORMANCE.md"]
async fn what_a_pooler_costs() {
    use symphony::db::Pooler as Between;
    let db = TestDb::new().await;
    let (_pooler, [worker, producer]) = pooled(&db, ["symphony_executor", "symphony_ingest"]).await;
    let direct = |login: &PgConnectOptions| {
        let direct = db.options.clone().username(login.get_username()).password("x");
        crate::support::proxy::without_socket(&direct, db.options.get_port())
    };
    let mut ways = Vec::new();
    for (name, between, worker, producer) in [
        ("direct", Between::Detect, direct(&worker), direct(&producer)),
        ("direct, unnamed", Between::Transaction, direct(&worker), direct(&producer)),
        ("pgbouncer", Between::Detect, worker, producer),
    ] {
        let roles = RoleSource::EachTransaction;
        let worker = Database::connect_through(between, worker, 1, roles).await.unwrap();
        let producer = Database::connect_through(between, producer, 1, roles).await.unwrap();
        ways.push((name, worker, producer, [Vec::new(), Vec::new(), Vec::new()]));
    }
    for round in 0..300 {
        for (name, worker, producer, times) in &mut ways {
            let request = payment(&format!("{name}-{round}"), name, "sepa");
            let many: Vec<_> =
                (0..100).map(|n| payment(&format!("{name}-{round}-{n}"), name, "sepa")).collect();
            let claim = symphony::db::PaymentClaim {
                worker_id: "w",
                batch_size: 1,
                lease_seconds: 60,
                rails: None,
                due_from: None,
                endpoints: None,
            };
            let started = std::time::Instant::now();
            producer.producer().enqueue_payment(&request).await.unwrap();
            times[0].push(started.elapsed());
            let started = std::time::Instant::now();
            producer.producer().enqueue_payments(&many).await.unwrap();
            times[1].push(started.elapsed());
            let started = std::time::Instant::now();
            worker.worker().claim_payments(&claim).await.unwrap();
            times[2].push(started.elapsed());
        }
    }
    for (name, _, _, times) in &mut ways {
        for (what, times) in ["enqueue 1", "enqueue 100", "claim 1"].iter().zip(times) {
            times.sort();
            println!("{name:<16} {what:<12} median {:?}", times[times.len() / 2]);
        }
    }
}
