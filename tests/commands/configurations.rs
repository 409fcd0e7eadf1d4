//! A configuration is right or wrong, and `config --check` and `run` say the same of it, all of it, in lines that name the
//! field and the fix. Nothing is connected to before that.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::folder::Folder;

/// `symphony` with this file, this environment and no other; its working folder is the test's.
fn symphony(folder: &Folder, text: &str, variables: &[(&str, &str)], words: &[&str]) -> Output {
    folder.write("symphony.toml", text);
    Command::new(env!("CARGO_BIN_EXE_symphony"))
        .args(words)
        .current_dir(&folder.0)
        .env_clear()
        // Nobody listens there: a command that gets that far has found nothing wrong.
        .env("DATABASE_URL", "postgres://nobody@127.0.0.1:1/none")
        .env("SYMPHONY_DATA", folder.0.join("data"))
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    text.lines().map(str::to_owned).collect()
}

const RAIL: &str = "[rails.sepa]\nkind = 'http'\nurl = 'https://bank.example/pay'\ndestination = 'iban'\nkey_lifetime_seconds = 86400\n";
const BUS: &str = "[buses.main]\nkind = 'nats'\nurl = 'nats://127.0.0.1:4222'\n";
const HOOKS: &str = "[buses.hooks]\nkind = 'http'\nendpoints.billing = { url = 'https://billing.example/e', secret_env = 'HOOK' }\n";
const SECRET: (&str, &str) = ("HOOK", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");

fn rail(more: &str) -> String {
    format!("{RAIL}{more}\n")
}

fn bus(more: &str) -> String {
    format!("{BUS}{more}\n[[events.routes]]\ntype = '*'\nbus = 'main'\ntopic = 'T'\n")
}

fn routes(bus: &str, routes: &[(&str, &str, &str)]) -> String {
    let route = |(kind, bus, topic): &(&str, &str, &str)| {
        format!("[[events.routes]]\ntype = '{kind}'\nbus = '{bus}'\ntopic = '{topic}'\n")
    };
    bus.to_owned() + &routes.iter().map(route).collect::<String>()
}

/// Each with the beginning of the line it must get.
fn bad_configurations() -> Vec<(String, &'static str)> {
    vec![
        // Zero where there must be some.
        (rail("[database]\nconnections_max = 0"), "database.connections_max is 0: it must be 1 to"),
        (rail("concurrency_max = 0"), "rails.sepa.concurrency_max must be at least 1"),
        (
            rail("rate_per_second = 0"),
            "rails.sepa.rate_per_second is 0, and nothing would ever be sent",
        ),
        (rail("rate_per_second = 5\nrate_burst = 0"), "rails.sepa.rate_burst must be at least 1"),
        (rail("rate_burst = 5"), "rails.sepa.rate_burst is only used with rate_per_second"),
        (rail("timeout_ms = 0"), "rails.sepa.timeout_ms must be 1 to 600000"),
        (rail("breaker_failures = 0"), "rails.sepa.breaker_failures must be at least 1"),
        (rail("breaker_open_ms = 0"), "rails.sepa.breaker_open_ms must be at least 1"),
        (
            rail("breaker_open_ms = 9\nbreaker_open_max_ms = 8"),
            "rails.sepa.breaker_open_max_ms must not be shorter",
        ),
        (bus("concurrency_max = 0"), "buses.main.concurrency_max must be at least 1"),
        (bus("breaker_failures = 0"), "buses.main.breaker_failures must be at least 1"),
        (rail("[worker]\nlease_seconds = 0"), "worker.lease_seconds must be 1 to"),
        (rail("[worker]\nbatch_items_max = 0"), "worker.batch_items_max must be 1 to"),
        (rail("[worker]\nheld_items_max = 0"), "worker.held_items_max must be at least 1"),
        (rail("[worker]\npoll_ms = [0, 0]"), "worker.poll_ms must be two lengths of time above 0"),
        (
            rail("[worker]\nrefused_seconds_max = 0"),
            "worker.refused_seconds_max must be at least 1",
        ),
        (rail("[events]\nwindow_max = 0"), "events.window_max must be 1 to"),
        (rail("[triggers]\nconcurrency_max = 0"), "triggers.concurrency_max must be 1 to"),
        (
            rail("[triggers.scripts]\nmemory_max_bytes = 0"),
            "triggers.scripts.memory_max_bytes must be",
        ),
        (
            rail("[triggers.email.listener]\nconnections_max = 0"),
            "triggers.email.listener.connections_max must be 1 to",
        ),
        (rail("[consumer]\nconcurrency = 0"), "consumer.concurrency is 0"),
        (rail("[consumer]\nvisibility_seconds = 0"), "consumer.visibility_seconds must be 1 to"),
        (rail("[http_server]\nconnections_max = 0"), "http_server.connections_max must be 8 to"),
        (rail("[http_server]\nhead_timeout_ms = 0"), "http_server.head_timeout_ms must be 10 to"),
        // Addresses.
        (
            rail("[api]\nlisten = 'nonsense'"),
            "api.listen is nonsense: it must look like 127.0.0.1:9464",
        ),
        (rail("[api]\nlisten = '0.0.0.0:9464'"), "api.listen is 0.0.0.0:9464: beyond loopback"),
        (
            rail("[triggers]\nhttp_listen = '8080'"),
            "triggers.http_listen is 8080: it must look like",
        ),
        (
            rail("[triggers.email]\nlisten = 'localhost:25'"),
            "triggers.email.listen is localhost:25: it must look like",
        ),
        (
            rail("[triggers]\nhttp_listen = '0.0.0.0:8080'"),
            "triggers.http_listen is 0.0.0.0:8080: beyond loopback tokens would travel in the clear",
        ),
        (
            rail("[triggers]\nbehind_proxy = true\nhttp_listen = '0.0.0.0:9464'"),
            "triggers.http_listen is 0.0.0.0:9464, and so is api.listen",
        ),
        (
            rail("[database]\nlisten_url = 'db.internal'"),
            "database.listen_url must look like postgres://",
        ),
        (
            rail("").replace("https://bank.example/pay", "bank.example"),
            "rails.sepa.url is not a URL",
        ),
        (rail("").replace("https", "http"), "rails.sepa.url must begin with https://"),
        (
            rail("inquiry_url = 'https://bank.example/pay'"),
            "rails.sepa.inquiry_url must contain {key}",
        ),
        (bus("").replace("nats://127.0.0.1:4222", "http://x"), "buses.main.url must be such as"),
        // Routes that lead nowhere.
        (String::new(), "rails is empty, so no rail is configured"),
        (
            routes("", &[("*", "main", "T")]),
            "events.routes[0].bus is main, but there is no section [buses.main]",
        ),
        (
            routes(HOOKS, &[("*", "hooks", "biling")]),
            "events.routes[0].topic is biling, which is no endpoint of the bus: it has billing",
        ),
        (
            routes(BUS, &[("*", "main", "a b")]),
            "events.routes[0].topic is a b, which cannot be a stream's name",
        ),
        (
            routes(
                "[buses.main]\nkind = 'sns'\nregion = 'eu-central-1'\n",
                &[("*", "main", "plain")],
            ),
            "events.routes[0].topic is plain, which is no FIFO topic",
        ),
        (
            routes(BUS, &[("*", "main", "T"), ("a.b", "main", "T")]),
            "events.routes[1].type is a.b, which route [0] takes already",
        ),
        (routes(BUS, &[("A*", "main", "T")]), "events.routes[0].type must be a type such as"),
        // Retention.
        (
            rail("[consumer]\ninbox_retention_days = 14"),
            "consumer.inbox_retention_days is 14: it must be at least 15",
        ),
        (
            bus("setup.consumers = [{ name = 'ledger', topic = 'U' }]"),
            "buses.main.setup.consumers ledger: reads U, which is not in setup.topics",
        ),
        // Keys that nobody reads.
        (rail("[wrker]\nlease_seconds = 1"), "wrker is no section: did you mean worker?"),
        (
            rail("[worker]\nlease_second = 1"),
            "worker.lease_second is no setting: did you mean lease_seconds?",
        ),
        (
            rail("[worker]\nconnections_max = 8"),
            "worker.connections_max is no setting here: it belongs into [database]",
        ),
        (
            rail("rate_per_secnd = 5"),
            "rails.sepa.rate_per_secnd is no setting: did you mean rate_per_second?",
        ),
        (
            rail("inqury_url = 'x'"),
            "rails.sepa.inqury_url is no setting: did you mean inquiry_url?",
        ),
        (bus("tokn_env = 'X'"), "buses.main.tokn_env is no setting: did you mean token_env?"),
        (bus("setup.topcs = []"), "buses.main.setup.topcs is no setting: did you mean topics?"),
        (
            routes(BUS, &[("*", "main", "T")]) + "tpoic = 'x'\n",
            "events.routes[0].tpoic is no setting: did you mean topic?",
        ),
        (
            rail("[triggers.fetch]\nallow_private_adresses = true"),
            "triggers.fetch.allow_private_adresses is no setting: did you mean allow_private_addresses?",
        ),
        // Values of another kind.
        (
            rail("[worker]\nlease_seconds = 'long'"),
            "worker.lease_seconds must be a whole number, not the string \"long\"",
        ),
        (
            rail("[worker]\nlease_seconds = -1"),
            "worker.lease_seconds must be a whole number that is not negative",
        ),
        (
            rail("[log]\nlevel = 'loud'"),
            "log.level is \"loud\": it must be one of \"error\", \"warn\"",
        ),
        (
            rail("").replace("'http'", "'smoke'"),
            "rails.sepa.kind is \"smoke\": it must be one of \"http\", \"sandbox\"",
        ),
        (rail("").replace("kind = 'http'\n", ""), "rails.sepa.kind is missing"),
        (
            rail("").replace("'iban'", "'mars'"),
            "rails.sepa.destination is \"mars\": it must be one of",
        ),
        (
            rail("timeout_ms = true"),
            "rails.sepa.timeout_ms must be a whole number, not the boolean true",
        ),
        // Files.
        (
            rail("extra_root_certificates_file = '/nowhere/ca.pem'"),
            "rails.sepa.extra_root_certificates_file is /nowhere/ca.pem, which cannot be read",
        ),
        (
            rail("extra_root_certificates_file = 'symphony.toml'"),
            "rails.sepa.extra_root_certificates_file is symphony.toml, which holds no certificate",
        ),
        (
            bus("ca_file = '/nowhere/ca.pem'"),
            "buses.main.ca_file is /nowhere/ca.pem, which cannot be read",
        ),
        (
            bus("credentials_file = '/nowhere/x.creds'"),
            "buses.main.credentials_file is /nowhere/x.creds, which cannot be read",
        ),
        (
            rail("[database]\nwitness = 'symphony.toml'"),
            "database.witness is symphony.toml, but symphony.toml is no folder",
        ),
        // Secrets that are not there.
        (
            rail("signing_secret_env = 'NOBODY_SET_IT'"),
            "rails.sepa.signing_secret_env needs an environment variable: NOBODY_SET_IT is not set",
        ),
        // Contradictions.
        (
            rail("[worker]\nlease_seconds = 20"),
            "worker.lease_seconds is 20, but a call of sepa may take 30000 ms",
        ),
        (
            rail("timeout_ms = 4000\nconnect_timeout_ms = 5000"),
            "rails.sepa.connect_timeout_ms must not be longer than timeout_ms",
        ),
        (
            rail("[consumer]\nretry_delay_ms = 9\nretry_delay_max_ms = 8"),
            "consumer.retry_delay_max_ms must not be shorter",
        ),
        (
            rail("[triggers.email]\nrelay = { host = 'mail.example' }"),
            "triggers.email.from is missing",
        ),
        (rail("not_found = 'final'"), "rails.sepa.not_found is final, but without inquiry_url"),
    ]
}

#[test]
fn check_and_run_refuse_the_same_configurations_with_the_same_line() {
    let folder = Folder::new();
    let mut wrong = Vec::new();
    for (text, expected) in bad_configurations() {
        let checked = symphony(&folder, &text, &[SECRET], &["config", "--check"]);
        let ran = symphony(&folder, &text, &[SECRET], &["run"]);
        let (said, codes) = (lines(&checked), [checked.status.code(), ran.status.code()]);
        // A defect of what the file sets names the file.
        let words = said.first().and_then(|line| line.strip_prefix("symphony: "));
        let words = words.map(|line| line.strip_prefix("symphony.toml: ").unwrap_or(line));
        let as_expected = said.len() == 1 && words.is_some_and(|line| line.starts_with(expected));
        if !as_expected || lines(&ran) != said || codes != [Some(1), Some(1)] {
            wrong.push(format!("{expected}\n  check {said:#?}\n  run {:#?}", lines(&ran)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The right ones get as far as the database, which is not there.
    for text in [rail(""), bus(""), routes(HOOKS, &[("*", "hooks", "billing")])] {
        let checked = symphony(&folder, &text, &[SECRET], &["config", "--check"]);
        assert!(checked.status.success(), "{text}: {:?}", lines(&checked));
        let ran = lines(&symphony(&folder, &text, &[SECRET], &["run"]));
        assert!(
            ran.iter().any(|line| line.contains("cannot reach PostgreSQL: 127.0.0.1:1")),
            "{ran:?}"
        );
    }
}

#[test]
fn whoever_makes_five_mistakes_reads_five_lines_each_with_where_it_was_made() {
    let folder = Folder::new();
    let text = rail("timeout_ms = 0\nrate_per_secnd = 5\nallowed_networks = ['x']")
        + "[database]\nconnections_max = 0\n[worker]\nlease_second = 1\n";
    let variables =
        [("SYMPHONY__WORKER__HELD_ITEMS_MAX", "many"), ("SYMPHONY__API__LISTEN", "here")];
    for words in [&["config", "--check"][..], &["run"]] {
        let mut said = lines(&symphony(&folder, &text, &variables, words));
        said.sort();
        let expected = [
            "symphony: SYMPHONY__API__LISTEN: api.listen is here: it must look like 127.0.0.1:9464, or be \"off\"",
            "symphony: SYMPHONY__WORKER__HELD_ITEMS_MAX: worker.held_items_max must be a whole number, not the string \"many\"",
            "symphony: symphony.toml: database.connections_max is 0: it must be 1 to 10000",
            "symphony: symphony.toml: rails.sepa.allowed_networks must be",
            "symphony: symphony.toml: rails.sepa.rate_per_secnd is no setting: did you mean rate_per_second?",
            "symphony: symphony.toml: rails.sepa.timeout_ms must be 1 to 600000",
            "symphony: symphony.toml: worker.lease_second is no setting: did you mean lease_seconds?",
        ];
        assert_eq!(said.len(), expected.len(), "{said:#?}");
        for (line, expected) in said.iter().zip(expected) {
            assert!(line.starts_with(expected), "{line}");
        }
    }
    let output = symphony(&folder, &text, &variables, &["config", "--check", "--json"]);
    let document: Value = serde_json::from_slice(&output.stderr).unwrap();
    let defects = document["defects"].as_array().unwrap();
    assert_eq!(defects.len(), 7, "{document:#}");
    let first = defects.iter().find(|one| one["field"] == "worker.lease_second").unwrap();
    assert_eq!(first["source"], "symphony.toml");
    assert_eq!(first["problem"], "is no setting: did you mean lease_seconds?");
}

#[test]
fn a_flag_and_a_variable_are_named_where_they_are_wrong() {
    let folder = Folder::new();
    let flags =
        symphony(&folder, RAIL, &[], &["run", "--api", "0.0.0.0:9", "--rails", "sepa,fedwire"]);
    assert_eq!(
        lines(&flags),
        [
            "symphony: --api: api.listen is 0.0.0.0:9: beyond loopback tokens would travel in the clear; name \
             api.tls_certificate_file and api.tls_key_file, say api.behind_proxy = true, or use 127.0.0.1:9464",
            "symphony: --rails names fedwire, but no rail fedwire is configured: add a section [rails.fedwire] to symphony.toml",
        ]
    );
    let url = [("DATABASE_URL", "mysql://me:geheim@db/app")];
    for words in [&["config", "--check"][..], &["run"]] {
        let said = lines(&symphony(&folder, RAIL, &url, words));
        assert_eq!(
            said,
            [
                "symphony: --database-url or DATABASE_URL: database.url must look like postgres://user@host:5432/database"
            ]
        );
    }
    // A file that is no TOML at all says in which line.
    let said = lines(&symphony(&folder, "[worker\n", &[], &["config", "--check"]));
    assert!(said.len() == 1 && said[0].contains("symphony.toml, line 1"), "{said:?}");
}

/// The witness' folder is demanded by name: a worker that could not write it would go without its protection unnoticed.
#[test]
fn a_witness_folder_that_cannot_be_written_is_refused_by_both() {
    // The superuser may write everywhere.
    if rustix_is_root() {
        eprintln!("skipped: root may write everywhere");
        return;
    }
    let folder = Folder::new();
    let text = rail("[database]\nwitness = '/proc/symphony'");
    let checked = lines(&symphony(&folder, &text, &[], &["config", "--check"]));
    assert_eq!(checked, lines(&symphony(&folder, &text, &[], &["run"])));
    assert!(
        checked[0]
            .contains("database.witness is /proc/symphony, but this process cannot write in /proc"),
        "{checked:?}"
    );
}

fn rustix_is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Accepts, and says nothing.
#[test]
fn a_silent_server_is_named_after_two_seconds_and_given_up_after_ten() {
    let folder = Folder::new();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = silent.local_addr().unwrap().to_string();
    let url = format!("postgres://nobody@{place}/none");
    std::thread::scope(|scope| {
        for words in [&["status"][..], &["migrate"], &["doctor"], &["run"]] {
            let (folder, url, place) = (&folder, &url, &place);
            scope.spawn(move || {
                let started = std::time::Instant::now();
                let output = Command::new(env!("CARGO_BIN_EXE_symphony"))
                    .args(words)
                    .current_dir(&folder.0)
                    .env("DATABASE_URL", url)
                    .envs([
                        ("SYMPHONY__RAILS__X__KIND", "sandbox"),
                        ("SYMPHONY__RAILS__X__URL", "http://127.0.0.1:1"),
                    ])
                    .env("SYMPHONY__API__LISTEN", "off")
                    .stdin(Stdio::null())
                    .output()
                    .unwrap();
                let said = lines(&output);
                assert!(started.elapsed().as_secs() < 20, "{words:?}: {:?}", started.elapsed());
                assert_eq!(output.status.code(), Some(1), "{words:?}: {said:?}");
                assert!(
                    said[0].contains("waiting for PostgreSQL") && said[0].contains(place.as_str()),
                    "{words:?}: {said:?}"
                );
                let last = said.last().unwrap();
                assert!(
                    last.contains(&format!(
                        "cannot reach PostgreSQL: {place}: no answer within 10 s"
                    )),
                    "{words:?}: {last}"
                );
            });
        }
    });
}
