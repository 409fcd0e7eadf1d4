//! What a person reads who got something wrong: each of these once cost somebody an hour.

use std::process::{Command, Stdio};

use crate::support::TestDb;
use crate::support::shell::symphony;

/// With nothing in the environment, as in a container.
fn told(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_symphony"))
        .args(words)
        .current_dir(std::env::temp_dir())
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(!output.status.success(), "{words:?} was accepted");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_wrong_word_is_answered_with_the_right_one() {
    let id = "resolve x --reason r --as";
    for (words, expected) in [
        // By its letters it is nearest to failed, which would be said of money that has moved.
        (format!("{id} paid"), "did you mean --as dispatched?"),
        (format!("{id} refused"), "did you mean --as failed?"),
        (format!("{id} paidd"), "dispatched: the money moved; failed: it did not and shall not"),
        ("app replay x --reason r".to_owned(), "an execution's id looks like 5f0c"),
        ("redrive --event-id x --reason r".to_owned(), "an event's id looks like 5f0c"),
        ("sandbox --listen nonsense".to_owned(), "it must look like 127.0.0.1:8089"),
        (
            "consume --from nats:S --nats-url nats://127.0.0.1:1 --to http://127.0.0.1:1/ --consumer c --dead-letter d"
                .to_owned(),
            "no connection to NATS at 127.0.0.1:1: ",
        ),
        (
            "consume --from nats:S --to http://127.0.0.1:1/ --consumer c --dead-letter d --client-certificate /no.pem --client-key /no.key"
                .to_owned(),
            "--client-certificate is /no.pem, which cannot be read: ",
        ),
        ("status --database-url nonsense".to_owned(), "database.url must look like postgres://user@host:5432/database"),
    ] {
        let said = told(&words.split(' ').collect::<Vec<_>>());
        assert!(said.contains(expected), "{words}: {said}");
        assert!(!said.contains("similar value exists: 'failed'"), "{words}: {said}");
    }
}

#[cfg(feature = "sns")]
#[test]
fn a_setting_that_is_a_flag_here_is_named_as_one() {
    let said = told(&[
        "consume",
        "--from",
        "sqs:https://sqs.example/q",
        "--to",
        "http://127.0.0.1:1/",
        "--consumer",
        "c",
    ]);
    assert!(said.contains("--region is missing: set it, or AWS_REGION"), "{said}");
}

#[tokio::test]
async fn an_app_is_pushed_where_no_variable_says_who_one_is() {
    use sqlx::ConnectOptions as _;
    let db = TestDb::new().await;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/apps/orders");
    let url = db.options.to_url_lossy();
    let told = symphony(url.as_str(), &[], "app push", &[folder], "").await;
    assert!(told.ok, "{}", told.error);
    // What changes money still wants a name.
    let told = symphony(url.as_str(), &[], "park x --reason r", &[], "").await;
    assert!(told.error.contains("nobody is named as acting: add --actor NAME"), "{}", told.error);
}
