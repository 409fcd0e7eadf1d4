//! No command works with a schema it does not know.

use sqlx::ConnectOptions as _;

use super::{Victim, on, server};
use crate::support::{run, unique};

const ENQUEUE: &str =
    "enqueue payment --instruction i --participant p --key k --rail r --payload {}";

/// Commands of every kind; none of them needs a configuration to get as far as the schema.
const COMMANDS: &[&str] = &[
    ENQUEUE,
    "run --api off --lanes triggers",
    "up --sandbox off --api off",
    "status",
    "show inv-1",
    "dlq list",
    "pause payments --reason r --yes",
];

/// `up` wants the data folder to itself, and these tests share one.
static FOLDER: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn assert_refused(victim: &Victim, commands: &[&str], words: &str) {
    let _alone = FOLDER.lock().await;
    for command in commands {
        let told = victim.symphony(command).await;
        assert!(
            !told.ok && told.error.contains(words) && told.error.lines().count() == 1,
            "{command}: {}{}",
            told.output,
            told.error
        );
    }
    assert_eq!(victim.db.count("payment_outbox_instructions").await, 6, "nothing was enqueued");
}

#[tokio::test]
async fn a_newer_schema_is_refused_by_every_command() {
    let victim = Victim::new().await;
    victim.db.sql("UPDATE symphony_schema SET schema_version = 9999").await;
    assert_refused(&victim, COMMANDS, "schema version 9999, newer than this build's").await;
}

#[tokio::test]
async fn tables_of_another_version_are_refused_by_every_command() {
    let victim = Victim::new().await;
    victim.db.sql("UPDATE symphony_schema SET tables_hash = 'another'").await;
    assert_refused(&victim, COMMANDS, "other tables than this build").await;
}

#[tokio::test]
async fn functions_of_another_version_are_refused_by_every_command() {
    let victim = Victim::new().await;
    victim.db.sql("UPDATE symphony_schema SET code_hash = 'another'").await;
    assert_refused(&victim, COMMANDS, "of another version than this build: run `symphony migrate`")
        .await;
}

#[tokio::test]
async fn a_database_without_symphony_is_refused_by_every_command() {
    let name = unique("empty");
    let server = server().await;
    run(&mut server.connect().await.unwrap(), &format!("CREATE DATABASE {name}")).await.unwrap();
    let options = server.clone().database(&name);
    for command in COMMANDS {
        let told = on(&options, command).await;
        assert!(
            !told.ok
                && told.error.contains(
                    "not installed in schema symphony of this database: run `symphony migrate`"
                ),
            "{command}: {}{}",
            told.output,
            told.error
        );
    }
}

/// Who sends money wants more than a stamp: the guards must be there.
#[tokio::test]
async fn a_schema_without_its_guards_is_refused_by_whoever_sends() {
    let victim = Victim::new().await;
    victim.db.sql("DROP INDEX payment_outbox_attempts_one_terminal_per_outbox").await;
    assert_refused(
        &victim,
        &["up --sandbox off --api off", "run --api off --lanes triggers"],
        "the schema is not as declared: index symphony.payment_outbox_attempts_one_terminal_per_outbox is missing",
    )
    .await;
}
