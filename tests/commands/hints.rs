//! Commands that are printed to be copied: each is one that the command line has, and stored text in it stays one word,
//! whatever whoever asked for the payment put into its names.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use sqlx::ConnectOptions as _;
use symphony::domain::{Outcome, Switch};
use symphony_server::cli::Cli;

use crate::support::folder::Folder;
use crate::support::shell::{dana, symphony};
use crate::support::{TestDb, act, bare_database, payment, run, unique};

/// What an identifier of the kind may be written as, where a message has `{id}` or `ID`.
const SAMPLES: [&str; 6] = [
    "5f0c6f3e-8d1b-4c63-9a0e-2f1d7c3b5a91",
    "1",
    "payments",
    "approve",
    "operate",
    "events.transfers.*",
];
/// A command ends here, outside quotes.
const ENDS: [&str; 15] =
    ["`", "\n", ";", "\"", " | ", " > ", " (", ")", "  ", ": ", ", ", "? ", ". ", " and ", " or "];
/// Sentences about the program, no commands to copy.
const PROSE: [&str; 3] = ["symphony up has", "symphony up is", "symphony database of"];

fn accepted(words: &[String]) -> bool {
    let arguments = std::iter::once("symphony".to_owned()).chain(words.iter().cloned());
    match Cli::definition().try_get_matches_from(arguments) {
        Ok(_) => true,
        Err(error) => !error.use_stderr(),
    }
}

/// Whether the command line takes it, with something in the place of each placeholder.
fn is_a_command(words: &[String]) -> bool {
    let placeholder = |word: &str| {
        let capitals = word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase() || c == '-');
        word.contains('{') && !word.contains('"') || capitals && !word.starts_with('-')
    };
    let at = words.iter().position(|word| placeholder(word));
    let Some(at) = at else { return accepted(words) };
    SAMPLES.iter().any(|sample| {
        let mut words = words.to_vec();
        (*sample).clone_into(&mut words[at]);
        is_a_command(&words)
    })
}

/// Whether these words are the way to a command, whatever it needs besides.
fn is_named(definition: &clap::Command, command: &str) -> bool {
    let mut words = command.split_whitespace();
    words.try_fold(definition, |command, word| command.find_subcommand(word)).is_some()
}

/// The words as a shell reads them; `None` if a quote is left open.
fn words_of(command: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    for c in command.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            c if c.is_whitespace() && !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    (!quoted).then_some(words)
}

/// What of a text is the command it begins with.
fn cut(text: &str) -> &str {
    let mut quoted = false;
    for (at, c) in text.char_indices() {
        if c == '\'' {
            quoted = !quoted;
        } else if !quoted && ENDS.iter().any(|end| text[at..].starts_with(end)) {
            return &text[..at];
        }
    }
    text.trim_end_matches('.')
}

/// The string literals of a source, each with what stands before it.
fn literals(source: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = source;
    let mut before = String::new();
    while let Some(at) = rest.find(['"', '/', '\'']) {
        before.push_str(&rest[..at]);
        let tail = &rest[at..];
        let raw = before.ends_with("r#") || before.ends_with('r') && tail.starts_with('"');
        if tail.starts_with("//") {
            rest = tail.find('\n').map_or("", |end| &tail[end..]);
        } else if tail.starts_with("'\"'") || tail.starts_with("'\\") {
            let end = tail[2..].find('\'').unwrap() + 3;
            rest = &tail[end..];
        } else if tail.starts_with('"') {
            let close = if before.ends_with("r#") { "\"#" } else { "\"" };
            let mut end = 1;
            while !tail[end..].starts_with(close) {
                let c = tail[end..].chars().next().unwrap();
                end += if c == '\\' && !raw { 2 } else { c.len_utf8() };
            }
            let mut text = tail[1..end].to_owned();
            if !raw {
                // A line that goes on, in the source and then in the text.
                let mut lines = text.split("\\\n");
                let first = lines.next().unwrap().to_owned();
                text = lines.fold(first, |text, line| text + line.trim_start());
                text = text.replace("\\n", "\n").replace("\\\"", "\"").replace("\\\\", "\\");
                // And in the shell.
                let mut lines = text.split("\\\n");
                let first = lines.next().unwrap().to_owned();
                text = lines.fold(first, |text, line| text + line.trim_start());
            }
            found.push((before.clone(), text));
            before.push_str("\"\"");
            rest = &tail[end + close.len()..];
        } else {
            before.push_str(&tail[..1]);
            rest = &tail[1..];
        }
        if before.len() > 400 {
            let mut from = before.len() - 200;
            while !before.is_char_boundary(from) {
                from += 1;
            }
            before = before[from..].to_owned();
        }
    }
    found
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_command_that_a_message_names_is_one_that_the_command_line_has() {
    let definition = Cli::definition();
    let commands: BTreeSet<&str> =
        definition.get_subcommands().map(clap::Command::get_name).collect();
    let mut paths = Vec::new();
    for krate in ["symphony", "symphony-connect", "symphony-server"] {
        let folder = format!("{}/../{krate}/src", env!("CARGO_MANIFEST_DIR"));
        sources(Path::new(&folder), &mut paths);
    }
    let (mut seen, mut wrong) = (0, Vec::new());
    for path in paths.iter().filter(|path| !path.ends_with("suggested_command.rs")) {
        let source = fs::read_to_string(path).unwrap();
        let source = source.split("#[cfg(test)]\n").next().unwrap();
        for (before, text) in literals(source) {
            let call = before.trim_end();
            let call =
                call.strip_suffix("format!(").map_or(call, |call| call.trim_end_matches('&'));
            let mut named: Vec<String> = Vec::new();
            if call.trim_end().ends_with("symphony(") {
                named.push(text.clone());
            } else if call.trim_end().ends_with(".command(") {
                // Of the library, which knows the schema and no more.
                named.push(text.clone());
            } else if call.trim_end().ends_with("symphony_of(") {
                // Its options are a literal of their own.
                let name = if text == "resume {kind}" { "rail" } else { "NAME" };
                let options = if text.starts_with("resume") { "--reason WHY" } else { "" };
                named.push(format!("{text} {name} {options}"));
            }
            named.retain(|command| !command.is_empty());
            for (at, _) in text.match_indices("symphony ") {
                let tail = &text[at..];
                let first = tail.split_whitespace().nth(1).unwrap_or_default();
                let first = first.trim_end_matches(['`', ';', ',', ':', '.', ')']);
                if commands.contains(first) && !PROSE.iter().any(|prose| tail.starts_with(prose)) {
                    let command = cut(&tail["symphony ".len()..]);
                    // In a sentence a command may only be named.
                    if !(text[..at].ends_with('`') && is_named(&definition, command)) {
                        named.push(command.to_owned());
                    }
                }
            }
            for command in named {
                seen += 1;
                let command = command.replace("{{", "{").replace("}}", "}");
                let command = command.replace("{of_lane}", "--participant acme --rail sepa");
                if !words_of(&command).is_some_and(|words| is_a_command(&words)) {
                    wrong.push(format!("{}: symphony {command}", path.display()));
                }
            }
        }
    }
    assert!(seen > 100, "only {seen} were found: is this test still reading the messages?");
    assert!(wrong.is_empty(), "the command line refuses these:\n{}", wrong.join("\n"));
}

/// Commands that lead to no database, or to one of their own.
const ANYWHERE: [&str; 9] =
    ["config", "up", "demo", "guard", "bench", "sandbox", "database", "bus setup", "completions"];

/// The commands of a text that were written without the options that lead to the same place.
fn without_options(commands: &BTreeSet<&str>, text: &str) -> Vec<String> {
    let tails = text.match_indices("symphony ").map(|(at, _)| &text[at..]);
    tails
        .filter(|tail| {
            let words = &tail["symphony ".len()..];
            let first = words.split(|c: char| !c.is_ascii_lowercase()).next().unwrap_or_default();
            commands.contains(first)
                && !ANYWHERE.iter().any(|anywhere| words.starts_with(anywhere))
                && !PROSE.iter().any(|prose| tail.starts_with(prose))
        })
        .map(|tail| tail.lines().next().unwrap().to_owned())
        .collect()
}

#[test]
fn no_message_of_the_program_spells_a_command_without_the_options_that_lead_to_the_same_place() {
    let definition = Cli::definition();
    let commands: BTreeSet<&str> =
        definition.get_subcommands().map(clap::Command::get_name).collect();
    let (mut paths, mut wrong) = (Vec::new(), Vec::new());
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    sources(Path::new(source), &mut paths);
    // Help names commands and not places, a page has no options, and `status` puts them in where it prints.
    let elsewhere = ["cli", "api", "console", "suggested_command.rs", "status.rs"];
    for path in paths {
        let below = path.strip_prefix(source).unwrap();
        if below.iter().any(|part| elsewhere.iter().any(|name| part == *name))
            || below == Path::new("cli.rs")
        {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]\n").next().unwrap();
        for (_, literal) in literals(text) {
            for command in without_options(&commands, &literal) {
                wrong.push(format!("{}: {command}", below.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "write these by suggested_command::symphony:\n{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_that_is_printed_leads_to_the_schema_that_was_named() {
    let definition = Cli::definition();
    let commands: BTreeSet<&str> =
        definition.get_subcommands().map(clap::Command::get_name).collect();
    let options = bare_database().await;
    let url = options.to_url_lossy().to_string();
    let folder = Folder::new();
    let config = folder.write(
        "symphony.toml",
        "[rails.blind]\nkind = \"http\"\nurl = \"https://bank.example/pay\"\ndestination = \"iban\"\n",
    );
    let config = format!("--config {}", config.display());
    let seen = std::cell::Cell::new(0);
    let ask = async |line: &str, expected: &str| {
        let line = format!("--schema billing {line}");
        let told = symphony(&url, &[("USER", "dana")], &line, &[], "").await;
        let all = told.output + &told.error;
        assert_eq!(without_options(&commands, &all), Vec::<String>::new(), "{line}: {all}");
        let printed = all.matches("symphony --").count();
        assert_eq!(printed, all.matches("--schema billing").count(), "{line}: {all}");
        let here = format!("symphony --schema billing {expected}");
        let with_file = format!("symphony {config} --schema billing {expected}");
        assert!(
            expected.is_empty() || all.contains(&here) || all.contains(&with_file),
            "{expected}: {line}: {all}"
        );
        seen.set(seen.get() + printed);
    };
    let mut admin = options.connect().await.unwrap();
    for line in ["status", "doctor", "migrate --check", "dlq list", "token list"] {
        ask(line, "migrate").await;
    }
    ask("migrate", "").await;
    ask("dlq list", "").await;
    ask("token list", "token create").await;
    ask("app list", "app push DIR").await;
    ask("rail show spea", "rail").await;
    ask(&format!("run --api off {config}"), "rail blind --marks-sending true").await;
    ask(&format!("doctor {config}"), "rail blind --marks-sending true").await;
    let payload = r#"{"amount":{"value":"10.00","currency":"EUR"}}"#;
    ask(
        &format!("enqueue payment --instruction i --participant p --key k --rail sepa --payload {payload}"),
        "",
    )
    .await;
    ask("park i --reason r --yes", "").await;
    ask("dlq list", "release").await;
    ask("show i", "release").await;
    ask("token create --name x --person x --scope ingest", "").await;
    ask("token list", "token revoke").await;
    for (tampered, expected) in [
        ("UPDATE billing.symphony_schema SET code_hash = 'another'", "migrate"),
        (
            "UPDATE billing.symphony_schema SET tables_hash = 'another'; \
             ALTER TABLE billing.payment_outbox_rails ADD COLUMN older INT",
            "migrate --fresh --yes",
        ),
    ] {
        run(&mut admin, tampered).await.unwrap();
        for line in ["status", "doctor", "migrate --check"] {
            ask(line, expected).await;
        }
    }
    ask("migrate", "migrate --fresh --yes").await;
    ask("migrate --fresh --yes", "").await;
    run(&mut admin, "CREATE TYPE public.outbox_status AS ENUM ('PENDING', 'SENT')").await.unwrap();
    ask("migrate", "migrate --replace-legacy --yes").await;
    assert!(seen.get() > 20, "{} commands were printed: is this test still looking?", seen.get());
}

/// A folder with a `symphony` that says what it was called with, and in which nothing else must appear.
struct Desk(PathBuf);

impl Desk {
    fn new() -> Self {
        let name = format!("{}-{}", unique("symphony-desk"), std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        let program = folder.join("symphony");
        fs::write(&program, "#!/bin/sh\nprintf '%s\\0' \"$@\"\n").unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        Self(folder)
    }

    /// What a program gets that is started with this command.
    fn arguments(&self, shell: &str, command: &str) -> Vec<String> {
        let output = Command::new(shell)
            .args(["-c", command])
            .env("PATH", format!("{}:/usr/bin:/bin", self.0.display()))
            .current_dir(&self.0)
            .output()
            .unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{command}: {output:?}");
        assert_eq!(fs::read_dir(&self.0).unwrap().count(), 1, "{shell} did more: {command}");
        let told = String::from_utf8(output.stdout).unwrap();
        told.split_terminator('\0').map(str::to_owned).collect()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// The commands of a page that may be copied: what follows a colon, or an "or".
fn printed(page: &str) -> Vec<String> {
    let lines = page.lines().filter_map(|line| line.split_once(": symphony "));
    lines
        .flat_map(|(_, commands)| commands.split(" or symphony "))
        .map(|command| command.trim_end().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_a_shell_would_obey_is_one_literal_word_of_every_command_that_is_printed() {
    let db = TestDb::new().await;
    let desk = Desk::new();
    let operator = db.database.operator();
    operator.pause(&Switch::Payments, &act()).await.unwrap();
    let names = [
        "$(touch pwned)",
        "`touch pwned`; touch pwned & touch pwned > pwned",
        "o'neil \"q\" \\ $HOME *",
        "acme'; touch pwned; '",
        "\nacme'; touch pwned\n",
        "a\u{202e}b\\",
        "-x",
        "--yes",
        "=ls",
        "~ !! #",
    ];
    for (number, name) in names.iter().enumerate() {
        // Each has a rail of its own name, on which a FAILED payment blocks another.
        db.make_fifo(name, "block").await;
        let head = format!("head-{number}");
        let head = db.enqueue(&payment(&head, name, name)).await.outbox_id;
        let behind = db.enqueue(&payment(&format!("behind-{number}"), name, name)).await;
        operator.resume(&Switch::Payments, &act()).await.unwrap();
        let lease = db.claim_one("w").await.lease();
        db.complete("w", lease, Outcome::Failed).await.unwrap();
        operator.pause(&Switch::Payments, &act()).await.unwrap();
        for target in [Switch::Rail((*name).to_owned()), Switch::Participant((*name).to_owned())] {
            operator.pause(&target, &act()).await.unwrap();
        }
        let page = dana(&db, &format!("show {}", behind.outbox_id)).await.output;
        let commands = printed(&page);
        let whole = |what: &str| commands.iter().filter(|one| one.starts_with(what)).count();
        for expected in ["resume payments", "resume rail", "resume participant", "skip", "redrive"]
        {
            assert_eq!(whole(expected), 1, "{name:?}: {expected}: {page}");
        }
        for rest in &commands {
            let command = format!("symphony {rest}");
            // What cannot be seen is written as bash, zsh and ksh read it; to any shell it is one word.
            let portable = !rest.contains("$'");
            for shell in ["bash", "sh"] {
                let words = desk.arguments(shell, &command);
                let is_literal = words.iter().any(|word| {
                    word == name || word.strip_prefix("--rail=").is_some_and(|rail| rail == *name)
                });
                let names_it = ["resume rail", "resume participant", "skip"]
                    .iter()
                    .any(|one| rest.starts_with(one));
                if shell == "bash" || portable {
                    assert_eq!(is_literal, names_it, "{shell}: {command}: {words:?}");
                    assert!(is_a_command(&words), "{command}: {words:?}");
                }
            }
        }
        assert!(page.contains(&format!("redrive {head} --reason WHY")), "{page}");
    }
    let paused = dana(&db, "pause list").await.output;
    assert!(paused.contains("symphony resume participant --reason WHY -- --yes"), "{paused}");
    assert!(paused.contains("symphony resume rail '$(touch pwned)' --reason WHY"), "{paused}");
}
