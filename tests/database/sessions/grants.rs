//! Every command and page with every role's documented grant alone, as the table in docs/OPERATING.md has it.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use symphony::db::{ActCall, Database, EventState, PaymentOutcome, RoleSource, migrate};
use symphony::domain::{Act, Outcome};
use tokio::io::AsyncReadExt as _;

use super::{Folder, Worker, sandbox, sandbox_rail};
use crate::consumers::ground::{self, Broker};
use crate::support::brokers;
use crate::support::shell::symphony;
use crate::support::{self, TestDb, act, payment, unique};

const PAGE: &str = include_str!("../../../docs/OPERATING.md");
pub const COLUMNS: [&str; 9] = [
    "ingest",
    "executor",
    "operator",
    "approver",
    "readonly",
    "auditor",
    "consumer",
    "auth",
    "installer",
];

/// What the page says: each row's words, and who may.
fn documented() -> BTreeMap<String, Vec<bool>> {
    let (_, table) = PAGE.split_once("<!-- grants -->").expect("the table of grants");
    let (table, _) = table.split_once("<!-- /grants -->").expect("its end");
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let command = cells.next().unwrap().trim_matches('`').to_owned();
        let may: Vec<bool> = cells.map(|cell| cell == "yes").collect();
        assert_eq!(may.len(), COLUMNS.len(), "{row}");
        (command, may)
    })
    .collect()
}

/// The rows of the table, in its order.
pub fn rows() -> Vec<String> {
    let (_, table) = PAGE.split_once("<!-- grants -->").expect("the table of grants");
    let rows = table.lines().take_while(|line| !line.contains("<!-- /grants -->"));
    rows.filter_map(|row| row.strip_prefix("| `")?.split_once('`'))
        .map(|(command, _)| command.to_owned())
        .collect()
}

/// What commands are told to look for.
pub struct Staged {
    execution: uuid::Uuid,
    failed_event: uuid::Uuid,
    incident: i64,
    /// With a key for secrets of apps.
    config: std::path::PathBuf,
    _folder: Folder,
    token: uuid::Uuid,
}

/// A database with something for every command to find, installed by a login that is no superuser.
pub async fn stage() -> (TestDb, Vec<PgConnectOptions>, Staged) {
    let (installer, name) = (unique("installer"), unique("installed"));
    let mut admin = support::server().await.connect().await.unwrap();
    let version = admin.server_version_num().unwrap();
    let mut rights = format!(
        "CREATE ROLE {installer} LOGIN CREATEROLE PASSWORD 'x'; CREATE DATABASE {name} OWNER {installer};"
    );
    // What whoever made the roles has by itself from 16 on.
    if version >= 160_000 {
        rights += &format!(
            "GRANT symphony_control TO {installer} WITH ADMIN OPTION, INHERIT FALSE, SET FALSE;"
        );
    }
    for statement in rights.split_inclusive(';') {
        support::run(&mut admin, statement).await.unwrap();
    }
    admin.close().await.unwrap();
    let options = support::server().await.clone().database(&name);
    let installer = options.clone().username(&installer).password("x");
    migrate::migrate(&installer, migrate::Options::default()).await.unwrap();
    let database =
        Database::connect(options.clone(), 4, RoleSource::EachTransaction).await.unwrap();
    let db = TestDb { options, database };

    let late = db.enqueue(&payment("late", "acme", "late")).await.outbox_id;
    let lost = db.claim_one("lost").await.lease();
    db.expire(late).await;
    let lease = db.claim_one("w").await.lease();
    db.complete("w", lease, Outcome::Failed).await.unwrap();
    let yes = PaymentOutcome::new(lost, Outcome::Dispatched);
    db.database.worker().record_late_payment("lost", &yes).await.unwrap();
    let incident = db.one("SELECT incident_no FROM outbox_incidents").await;

    db.enqueue(&payment("pending", "acme", "sepa")).await;
    let parked = db.enqueue(&payment("parked", "acme", "sepa")).await.outbox_id;
    db.database.operator().park_payment(parked, &act()).await.unwrap();
    let unknown = db.enqueue(&payment("unknown", "acme", "sepa")).await.outbox_id;
    db.database.operator().park_payment(unknown, &act()).await.unwrap();
    db.sql(&format!(
        "UPDATE payment_outbox_pending SET must_inquire = true WHERE outbox_id = '{unknown}'"
    ))
    .await;
    db.sql(
        "INSERT INTO outbox_destinations (worker_id, lane, name, breaker, troubles, calls, window_ms, reported_at) \
         SELECT 'w', d.lane, d.name, 'OPEN', 3, 0, 0, clock_timestamp() + INTERVAL '1 hour' \
           FROM (VALUES ('payments', 'sepa'), ('events', 'main/orders')) d (lane, name)",
    )
    .await;
    db.make_fifo("fifo", "block").await;
    db.enqueue(&payment("failed", "brio", "fifo")).await;
    let rails = ["fifo".to_owned()];
    let request = symphony::db::PaymentClaim {
        worker_id: "w",
        batch_size: 1,
        lease_seconds: 60,
        rails: Some(&rails),
        due_from: None,
        endpoints: None,
    };
    let head = db.database.worker().claim_payments(&request).await.unwrap().items.remove(0);
    db.complete("w", head.lease(), Outcome::Failed).await.unwrap();
    // Another one before it, to be gone back to.
    db.push("shop", &json!({"topics": ["news"]})).await;
    db.push(
        "shop",
        &json!({
            "scripts": [crate::triggers::apps::script("s", "export default r => 1")],
            "triggers": [crate::triggers::apps::trigger("t", "kv", "*", "s")],
        }),
    )
    .await;
    db.kv_set("shop", "a", &json!(1)).await;
    let run = db.claim_item("w").await;
    db.done("w", &run, json!([])).await;

    let sealed = "SELECT name FROM set_app_secret('shop', 'kept', repeat('0', 16), repeat('A', 64), 'dana', 'r')";
    assert_eq!(db.one_as::<String>("symphony_operator", sealed).await, "kept");
    let granted = "SELECT filter FROM grant_app_mail('shop', '*@example.com', 'dana', 'r')";
    assert_eq!(db.one_as::<String>("symphony_operator", granted).await, "*@example.com");
    let folder = Folder::new();
    let key = folder.write("secrets.key", &"0a".repeat(32));
    let key = format!("[triggers]\nsecrets_key = {{ file = '{}' }}\n", key.display());
    let config = folder.write("secrets.toml", &key);

    let failed = db.tell(&[crate::events::event("k", 0)]).await[0];
    let leased = db.claim_events("w", 1).await;
    db.report("w", &[(&leased[0], EventState::Failed { key_continues: false })]).await;

    db.database.worker().register_topics(&["main/orders"]).await.unwrap();
    let asks = Act { actor: "omar".to_owned(), ..act() };
    let release = ActCall::release(parked, &asks);
    let asked = db.database.operator().request_approval(&release, &asks, 86_400).await.unwrap();
    assert_eq!(asked.request_no, Some(1));

    let token = symphony::db::NewToken {
        name: "shop",
        person: "shop",
        scopes: &["ingest".to_owned()],
        hash: &[7; 32],
        actor: "dana",
        expires_in_seconds: 86_400,
    };
    let token = db.database.token_admin().create(token).await.unwrap().token_id;

    let mut logins = Vec::new();
    for column in COLUMNS {
        logins.push(match column {
            "installer" => installer.clone(),
            role => db.login(&format!("symphony_{role}")).await,
        });
    }
    let staged = Staged {
        execution: run.id,
        failed_event: failed,
        incident,
        token,
        config,
        _folder: folder,
    };
    (db, logins, staged)
}

/// How to try a row of the table from a shell, if it is a command.
pub fn command_line(row: &str, staged: &Staged) -> Option<String> {
    let Staged { execution, failed_event, incident, token, config, .. } = staged;
    let config = config.display();
    let app = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/apps/orders");
    Some(match row {
        "enqueue payment" => {
            "enqueue payment --instruction i --participant p --key k --rail r --payload \
             {\"amount\":{\"value\":\"1.00\",\"currency\":\"EUR\"}}".to_owned()
        }
        "enqueue event" => {
            "enqueue event --event {\"envelope\":{\"v\":1,\"eventId\":\"6f1f7e0c-4d8e-4b8f-9d59-0d3d2f0a1b11\",\
             \"occurredAt\":\"2026-01-01T00:00:00Z\",\"tenantId\":\"acme\",\"type\":\"events.a.b\"},\
             \"key\":{\"a\":\"1\"},\"payload\":{}}".to_owned()
        }
        "show" => "show pending".to_owned(),
        "park" => "park pending --reason x".to_owned(),
        "release" => "release parked --reason x".to_owned(),
        "resolve" => "resolve parked --as failed --reason x".to_owned(),
        "inquire" => "inquire unknown --reason x".to_owned(),
        "dlq close" => "dlq close late --reason x".to_owned(),
        "rail show" => "rail show sepa".to_owned(),
        "bus show" => "bus show main/orders".to_owned(),
        "bus reset" => "bus reset main/orders --reason x".to_owned(),
        "token create" => "token create --name shop --person shop --scope ingest".to_owned(),
        "token revoke" => format!("token revoke {token} --reason x"),
        "rail reset" => "rail reset sepa --reason x".to_owned(),
        "redrive" => "redrive failed --reason x".to_owned(),
        "redrive --event-id" => format!("redrive --event-id {failed_event} --reason x"),
        "skip --event-id" => format!("skip --event-id {failed_event} --reason x"),
        "incident close" => format!("incident close {incident} --reason x"),
        "skip" => "skip --participant brio --rail fifo --reason x".to_owned(),
        "pause payments" => "pause payments --reason x".to_owned(),
        "resume payments" => "resume payments --reason x".to_owned(),
        "pause events" => "pause events --reason x".to_owned(),
        "resume events" => "resume events --reason x".to_owned(),
        "pause topic" => "pause topic main/orders --reason x".to_owned(),
        "resume topic" => "resume topic main/orders --reason x".to_owned(),
        "pause triggers" => "pause triggers --reason x".to_owned(),
        "resume triggers" => "resume triggers --reason x".to_owned(),
        "pause rail" => "pause rail sepa --reason x".to_owned(),
        "resume rail" => "resume rail sepa --reason x".to_owned(),
        "pause participant" => "pause participant acme --reason x".to_owned(),
        "resume participant" => "resume participant acme --reason x".to_owned(),
        "rail NAME --fifo" => "rail sepa --fifo false --reason x".to_owned(),
        "approval show" => "approval show 1".to_owned(),
        "approval approve" => "approval approve 1 --reason x".to_owned(),
        "approval reject" => "approval reject 1 --reason x".to_owned(),
        "approval withdraw" => "approval withdraw 1 --reason x".to_owned(),
        "approval require" => "approval require payments --reason x".to_owned(),
        "restore accept" => "restore accept --reason x".to_owned(),
        "app push" => format!("app push {app}"),
        "app logs" | "app tree" => format!("{row} {execution}"),
        "app mail grant" => "app mail grant shop *@example.org --reason x".to_owned(),
        "app mail revoke" => "app mail revoke shop *@example.com --reason x".to_owned(),
        "app kv get" => "app kv get shop a".to_owned(),
        "app kv list" => "app kv list shop".to_owned(),
        "app kv set" => "app kv set shop b 1 --reason x".to_owned(),
        "app kv delete" => "app kv delete shop a --reason x".to_owned(),
        "app secret list" => "app secret list shop".to_owned(),
        "app secret set" => {
            format!("app secret set shop new --from-file {config} --reason x --config {config}")
        }
        "app secret delete" => "app secret delete shop kept --reason x".to_owned(),
        "app versions" => "app versions shop".to_owned(),
        "app rollback" => "app rollback shop --reason x".to_owned(),
        "app replay" => format!("app replay {execution} --reason x"),
        "pause app" => "pause app shop --reason x".to_owned(),
        "resume app" => "resume app shop --reason x".to_owned(),
        "app delete" => "app delete shop --reason x".to_owned(),
        "app mail list" | "approval list" | "incident list" | "restore check" | "status" | "dlq list" | "dlq count" | "pause list" | "rail" | "bus" | "app list" | "app executions" | "token list" | "migrate" | "migrate --check"
        | "doctor" => row.to_owned(),
        _ => return None,
    })
}

/// Whether a command was let through. What it found is another matter; a refusal is one line that names a role.
async fn may(login: &PgConnectOptions, line: &str) -> bool {
    let url = login.to_url_lossy();
    let told =
        symphony(url.as_str(), &[("USER", "dana")], &format!("{line} --json"), &[], "").await;
    let last = told.error.lines().last().unwrap_or_default();
    let error: Value = serde_json::from_str(last).unwrap_or_default();
    let refused = !told.ok && error["code"] == "42501";
    if line == "doctor" && !refused {
        // It fails here in any case: the tests' server runs without fsync.
        let checks = told.json();
        let subjects = checks.as_array().unwrap().iter().map(|check| check["subject"].as_str());
        assert!(subjects.flatten().any(|subject| subject == "listener"), "{}", told.output);
        return true;
    }
    if refused {
        let words = error["error"].as_str().unwrap();
        assert!(words.contains("symphony_") || words.contains("CREATEROLE"), "{line}: {words}");
        assert_eq!(told.error.lines().count(), 1, "{line}: {}", told.error);
    }
    // There is no other server here to be accepted, and only who asked takes a request back.
    let nothing_to_do = line.starts_with("restore accept") && error["code"] == "P7006"
        || line.starts_with("approval withdraw") && error["code"] == "P7008";
    assert!(
        told.ok || refused || nothing_to_do,
        "{line} as {}: {}{}",
        login.get_username(),
        told.output,
        told.error
    );
    !refused
}

#[tokio::test]
async fn every_command_and_page_is_open_to_the_roles_that_the_table_names_and_to_nobody_else() {
    let mut documented = documented();
    let (_db, logins, staged) = stage().await;
    let mut tried: BTreeMap<String, Vec<bool>> = BTreeMap::new();
    let lines: Vec<_> = documented
        .keys()
        .filter_map(|row| Some((row.clone(), command_line(row, &staged)?)))
        .collect();
    for (row, line) in lines {
        // What writes is tried one after the other.
        let at_once = if row.starts_with("migrate") || row.starts_with("app ") { 1 } else { 4 };
        let answers = stream::iter(&logins).map(async |login| may(login, &line).await);
        let answers: Vec<bool> = answers.buffered(at_once).collect().await;
        tried.insert(row, answers);
    }
    // It needs a terminal, and reads what `status` reads.
    tried.insert("top".to_owned(), tried["status"].clone());
    if brokers::found().is_some() {
        tried.insert("consume --inbox".to_owned(), try_inbox(&logins).await);
    } else {
        documented.remove("consume --inbox");
    }
    tried.extend(try_workers(&logins).await);
    assert_eq!(tried, documented, "as tried, and as docs/OPERATING.md says");
}

#[test]
fn the_table_has_every_command_that_the_command_line_has() {
    fn below(command: &clap::Command, path: &str, leaves: &mut Vec<String>) {
        let inner: Vec<_> =
            command.get_subcommands().filter(|inner| inner.get_name() != "help").collect();
        // `rail` alone is `rail list`.
        let path_of = |inner: &clap::Command| match inner.get_name() {
            "list" if ["rail", "bus"].contains(&path) => path.to_owned(),
            name => format!("{path} {name}").trim_start().to_owned(),
        };
        if inner.is_empty() {
            leaves.push(path.to_owned());
        }
        for inner in inner {
            below(inner, &path_of(inner), leaves);
        }
    }
    let mut leaves = Vec::new();
    below(&symphony_server::cli::Cli::definition(), "", &mut leaves);
    assert!(leaves.len() > 60, "{leaves:?}");
    // What has no grant is named under the table.
    let (_, beneath) = PAGE.split_once("<!-- /grants -->").unwrap();
    let beneath = beneath.split("A refusal is").next().unwrap().replace('\n', " ");
    let rows = rows();
    let lacking = leaves.iter().filter(|leaf| {
        let row = |row: &String| row == *leaf || row.starts_with(&format!("{leaf} --"));
        let group = leaf.split(' ').next().unwrap();
        !rows.iter().any(row)
            && ![leaf.as_str(), group].iter().any(|name| beneath.contains(&format!("`{name}`")))
    });
    assert_eq!(lacking.collect::<Vec<_>>(), Vec::<&String>::new(), "docs/OPERATING.md, Roles");
    // Nor has the table what is not there any more.
    for row in rows.iter().filter(|row| !row.starts_with("GET ")) {
        let words: Vec<&str> =
            row.split(" --").next().unwrap().split(' ').filter(|word| *word != "NAME").collect();
        let known = |leaf: &String| *leaf == words.join(" ");
        assert!(words == ["rail"] || leaves.iter().any(known), "{row} is no command");
    }
}

/// `consume --inbox` hands an event to a program, or is refused in one line before it has taken one.
async fn try_inbox(logins: &[PgConnectOptions]) -> Vec<bool> {
    let mut may = Vec::new();
    for login in logins {
        let broker = Broker::nats().await;
        broker.publish(&[&ground::event("k", 1)]).await;
        let Broker::Nats { server, .. } = &broker else { unreachable!() };
        let program = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = format!("http://{}/", program.local_addr().unwrap());
        let mut consumer = tokio::process::Command::new(env!("CARGO_BIN_EXE_symphony"))
            .args(["consume", "--inbox", "--json", "--consumer", "c", "--from", "nats:EVENTS"])
            .args(["--dead-letter", "dead.c", "--nats-url", &server.url(), "--to", &to])
            .env("DATABASE_URL", login.to_url_lossy().as_str())
            .stderr(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut error = consumer.stderr.take().unwrap();
        may.push(tokio::select! {
            posted = program.accept() => posted.is_ok(),
            _ = error.read_to_string(&mut said) => {
                assert!(!consumer.wait().await.unwrap().success());
                let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
                assert!(last["error"].as_str().unwrap().contains("symphony_consumer"), "{said}");
                false
            }
        });
    }
    may
}

/// The pages of a worker are as open as its login is.
async fn try_workers(logins: &[PgConnectOptions]) -> BTreeMap<String, Vec<bool>> {
    let folder = Folder::new();
    let sandbox = sandbox(&folder).await;
    let rows = ["run", "GET /metrics", "GET /readyz"];
    let mut tried: BTreeMap<String, Vec<bool>> =
        rows.iter().map(|row| ((*row).to_owned(), Vec::new())).collect();
    for login in logins {
        let started = Worker::start(login, &folder, &sandbox_rail(&sandbox), "payments").await;
        if let Err(words) = &started {
            assert!(words.contains("lacks role symphony_executor"), "{words}");
        }
        for row in rows {
            let (method, path) = row.split_once(' ').unwrap_or(("", ""));
            let open = match &started {
                Err(_) => false,
                Ok(_) if row == "run" => true,
                Ok(worker) => {
                    let (status, body) = worker.page(method, path, "").await;
                    status == 200 && (path != "/metrics" || body.contains("dlq_depth{lane="))
                }
            };
            tried.get_mut(row).unwrap().push(open);
        }
    }
    tried
}
