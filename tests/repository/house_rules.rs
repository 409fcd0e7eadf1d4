//! The house rules that a machine can check.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(folder: &str, extension: &str) -> Vec<(PathBuf, String)> {
    fn collect(folder: &Path, extension: &str, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                collect(&path, extension, found);
            } else if path.extension().is_some_and(|e| e == extension) {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    let mut found = Vec::new();
    collect(&root().join(folder), extension, &mut found);
    assert!(!found.is_empty(), "{folder} has no .{extension} files");
    found
}

#[test]
fn every_function_file_defines_one_function_of_its_own_name_under_the_header() {
    for (path, text) in files("sql/functions", "sql") {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let defined: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("CREATE OR REPLACE FUNCTION "))
            .filter_map(|rest| rest.strip_prefix("symphony."))
            .collect();
        assert!(
            matches!(defined[..], [one] if one.starts_with(&format!("{name}("))),
            "{}",
            path.display()
        );
        assert!(
            text.starts_with(&format!("-- {name}: ")),
            "{}: the first line says what it does",
            path.display()
        );
        let mut rest = text.as_str();
        for heading in [
            "\n-- Moves    ",
            "\n-- Caller   ",
            "\n-- Locks    ",
            "\n-- Refuses  ",
            "\n-- Why      ",
        ] {
            let at = rest
                .find(heading)
                .unwrap_or_else(|| panic!("{}: no {heading:?} in its place", path.display()));
            rest = &rest[at + heading.len()..];
        }
    }
}

#[test]
fn every_write_path_is_a_definer_with_a_fixed_search_path() {
    for (path, text) in files("sql/functions", "sql") {
        if text.contains("LANGUAGE plpgsql") {
            assert!(text.contains("SET search_path = pg_catalog, pg_temp"), "{}", path.display());
        }
    }
}

#[test]
fn only_the_database_layer_names_the_outbox_in_sql() {
    for (path, text) in files("crates", "rs") {
        let in_layer = path.components().any(|c| c.as_os_str() == "db");
        // The judge of the laboratory shares no code with what it judges.
        let excused = ["guard.rs", "symphony-lab"]
            .iter()
            .any(|part| path.components().any(|c| c.as_os_str() == *part));
        if !in_layer && !excused {
            // `apps` alone may be anybody's word.
            let names = symphony::db::tables::ALL.iter().map(|table| {
                let schema = if table.has_distinctive_name() { "" } else { "symphony." };
                format!("{schema}{}", table.name)
            });
            for word in names.chain(["_outbox_status".to_owned()]) {
                // The name of a wake-up's channel stands alone in its quotes.
                let channel = format!("\"{word}\"");
                let used = text.lines().any(|line| {
                    line.contains(&word)
                        && !line.contains(&channel)
                        && !line.trim_start().starts_with("//")
                });
                assert!(
                    !used,
                    "{} names {word}…: that belongs into crates/symphony/src/db",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn every_error_code_has_a_page() {
    let source = fs::read_to_string(root().join("crates/symphony/src/db/error.rs")).unwrap();
    let code_function =
        source.split("pub fn code(&self)").nth(1).unwrap().split("pub fn").next().unwrap();
    let codes: Vec<_> = code_function.split('"').skip(1).step_by(2).collect();
    assert!(codes.len() > 15);
    for code in codes {
        let name = symphony_server::output::page_of(code);
        let page =
            fs::read_to_string(root().join(&name)).unwrap_or_else(|_| panic!("{name} is missing"));
        for heading in ["## What happened", "## What to do"] {
            assert!(page.contains(heading), "{name} lacks {heading:?}");
        }
    }
    for (path, _) in files("docs/errors", "md") {
        let code = path.file_stem().unwrap().to_str().unwrap();
        let name = symphony_server::output::page_of(code);
        assert!(code == "README" || path.ends_with(&name), "{} belongs to {name}", path.display());
    }
}

#[test]
fn the_contract_pages_name_every_public_function_with_its_arguments() {
    let names =
        ["CONTRACT.md", "CONTRACT_PAYMENTS.md", "CONTRACT_EVENTS.md", "CONTRACT_TRIGGERS.md"];
    let pages = names.map(|page| fs::read_to_string(root().join("docs").join(page)).unwrap());
    for call in symphony::db::calls::ALL {
        let (_, rest) = pages
            .iter()
            .find_map(|page| page.split_once(&format!("\n### `{}`\n", call.function)))
            .unwrap_or_else(|| panic!("no page of the contract has {}", call.function));
        let section = rest.split("\n### ").next().unwrap();
        for argument in call
            .arguments
            .split(", ")
            .filter_map(|argument| argument.split(' ').next())
            .filter(|a| a.starts_with("p_"))
        {
            assert!(
                section.contains(&format!("`{argument}`")),
                "the contract of {} lacks {argument}",
                call.function
            );
        }
        if call.function.contains("event_outbox") || call.function.contains("trigger") {
            assert!(section.contains("```\n"), "{} lacks an example", call.function);
        }
    }
    for page in names {
        assert!(pages.iter().any(|other| other.contains(&format!("]({page}"))), "link to {page}");
    }
}

#[test]
fn no_test_needs_a_program_that_a_bare_machine_lacks() {
    // Nobody installs procps, and `kill` is part of it: support::processes has the call.
    for (path, text) in files("tests", "rs").into_iter().chain(files("crates", "rs")) {
        for program in ["kill", "pkill", "killall", "ps"] {
            let call = ["Command::new(\"", program, "\")"].concat();
            assert!(!text.contains(&call), "{} runs {program}", path.display());
        }
    }
}

#[test]
fn no_file_grows_past_what_one_can_find_ones_way_in() {
    for (folder, extension) in [("crates", "rs"), ("tests", "rs"), ("sql", "sql")] {
        for (path, text) in files(folder, extension) {
            let lines = text.lines().count();
            assert!(
                lines <= 600,
                "{} has {lines} lines: would it be easier to find one's way in as two?",
                path.display()
            );
        }
    }
}

#[test]
fn no_test_sleeps_and_nothing_is_left_unfinished() {
    // Assembled, so that this file does not find itself.
    let banned =
        [["to", "do!("].concat(), ["unimpl", "emented!("].concat(), ["FIX", "ME"].concat()];
    for folder in ["crates", "tests"] {
        for (path, text) in files(folder, "rs") {
            for word in &banned {
                assert!(!text.contains(word.as_str()), "{} contains {word}", path.display());
            }
        }
    }
    for (path, text) in files("tests", "rs") {
        let sleeps = text.matches(["thread::", "sleep("].concat().as_str()).count()
            + text.matches(["time::", "sleep("].concat().as_str()).count();
        // private_postgres polls processes, which nobody can await.
        assert!(
            sleeps == 0
                || path.components().any(|c| c
                    .as_os_str()
                    .to_str()
                    .unwrap()
                    .starts_with("private_postgres")),
            "{}",
            path.display()
        );
    }
}

#[test]
fn every_field_the_code_logs_is_on_the_allow_list() {
    // A field that is not on it would silently not be written.
    let mut seen = 0;
    for (path, text) in files("crates", "rs") {
        for (at, _) in text.match_indices("tracing::") {
            let Some((level, rest)) = text[at + 9..].split_once("!(") else { continue };
            if !["error", "warn", "info", "debug", "trace"].contains(&level) {
                continue;
            }
            // Everything before the message, which is the last argument or is followed by nothing but its own.
            let arguments = rest.split(");").next().unwrap();
            for argument in arguments.split(',').map(str::trim) {
                if argument.starts_with('"') {
                    break;
                }
                let name =
                    argument.split('=').next().unwrap().trim().trim_start_matches(['%', '?']);
                let name = name.rsplit('.').next().unwrap();
                if name.is_empty() || name.contains(['(', ')', '"', '{', ' ', '}']) {
                    continue;
                }
                seen += 1;
                assert!(
                    symphony_server::telemetry::ALLOWED_FIELDS.contains(&name),
                    "{}: {name} is logged, but not on the allow-list in telemetry.rs",
                    path.display()
                );
            }
        }
    }
    assert!(seen > 30, "only {seen} fields were found: is this test still reading the code?");
}
