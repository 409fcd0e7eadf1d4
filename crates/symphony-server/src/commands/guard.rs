//! `symphony guard`: scan sources for writes that go around the database's functions.
//!
//! A scan of text and not of behaviour: it catches the pull request, the privileges catch the rest. A line
//! that carries `symphony-guard: allow`, or follows one that does (a comment, with a reason), is let through.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use regex_lite::Regex;
use serde::Serialize;
use symphony::db::{Schema, tables};

use crate::bounds::SOURCE_FILE_BYTES_MAX;
use crate::cli::Global;
use crate::output::{self, Failure};

const ALLOW: &str = "symphony-guard: allow";
const SKIPPED_FOLDERS: &[&str] = &[".git", "target", "node_modules", ".venv", "__pycache__"];

/// (name, pattern, what to do instead). Case-insensitive, white space folded.
const RULES: &[(&str, &str, &str)] = &[
    (
        "delete-to-claim",
        r#"delete\s+from\s+(?:only\s+)?(?:"?[a-z_][a-z0-9_]*"?\s*\.\s*)?"?(?:payment|event|trigger)_outbox_pending\b"#,
        "deleting from pending loses items when the process dies: call claim_outbox_batch",
    ),
    (
        "insert-dispatching",
        r"insert\s+into\s+[^;]*?_outbox_attempts\b[^;]*'DISPATCHING'",
        "DISPATCHING is never written: a lease says that an item is in flight",
    ),
    (
        "write-around-functions",
        r#"(?:insert\s+into|update|merge\s+into|truncate(?:\s+table)?|delete\s+from|copy)\s+(?:only\s+)?(?:(?:"?[a-z_][a-z0-9_]*"?\s*\.\s*)?"?(?:@TABLES@)|"?@SCHEMA@"?\s*\.\s*"?(?:@ALL@))\b"#,
        "outbox tables are written by their functions only: call the function",
    ),
    (
        "disable-guards",
        // symphony-guard: allow, the pattern itself
        r"disable\s+trigger|session_replication_role",
        "the ledger's guards are not to be switched off",
    ),
];

#[derive(Debug, Serialize)]
struct Finding {
    file: PathBuf,
    line: usize,
    rule: &'static str,
    advice: &'static str,
}

pub(super) fn run(global: &Global, paths: &[PathBuf]) -> Result<ExitCode, Failure> {
    let schema = global.schema.as_ref().map_or("symphony", Schema::name);
    let rules = compile(schema)?;
    let mut findings = Vec::new();
    let mut files = 0;
    for path in paths {
        if !path.exists() {
            return Err(Failure::new(format!("{}: no such file or folder", path.display())));
        }
        scan(path, &rules, &mut findings, &mut files)?;
    }
    if global.json {
        output::json(&findings)?;
    } else {
        for finding in &findings {
            output::print(&format!(
                "{}:{}: {}: {}\n",
                output::plain(&finding.file.display().to_string()),
                finding.line,
                finding.rule,
                finding.advice
            ))?;
        }
        output::print(&format!("{files} files scanned, {} findings\n", findings.len()))?;
    }
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

type Rule = (&'static str, Regex, &'static str);

fn compile(schema: &str) -> Result<Vec<Rule>, Failure> {
    // A table such as `apps` may be anybody's: without our schema only names that are surely ours are looked for.
    let named = |distinctive: bool| {
        let tables =
            tables::ALL.iter().filter(|table| !distinctive || table.has_distinctive_name());
        tables.map(|table| table.name).collect::<Vec<_>>().join("|")
    };
    // In a schema that is shared, the name alone must say it.
    let (tables, all) = (named(true), named(schema == "public"));
    RULES
        .iter()
        .map(|(name, pattern, advice)| {
            let pattern = pattern
                .replace("@TABLES@", &tables)
                .replace("@SCHEMA@", schema)
                .replace("@ALL@", &all);
            let regex = Regex::new(&format!("(?i){pattern}"))
                .map_err(|error| Failure::new(error.to_string()))?;
            Ok((*name, regex, *advice))
        })
        .collect()
}

fn scan(
    path: &Path,
    rules: &[Rule],
    findings: &mut Vec<Finding>,
    files: &mut usize,
) -> Result<(), Failure> {
    let cannot = |error| Failure::new(format!("{}: {error}", path.display()));
    let about = fs::symlink_metadata(path).map_err(cannot)?;
    if about.is_dir() {
        if path
            .file_name()
            .is_some_and(|name| SKIPPED_FOLDERS.iter().any(|skipped| name == *skipped))
        {
            return Ok(());
        }
        let mut entries: Vec<PathBuf> = fs::read_dir(path)
            .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
            .map_err(cannot)?;
        entries.sort();
        for entry in entries {
            scan(&entry, rules, findings, files)?;
        }
    } else if about.is_file() && about.len() <= SOURCE_FILE_BYTES_MAX {
        let bytes = fs::read(path).map_err(cannot)?;
        // A NUL byte means it is no text.
        if !bytes.contains(&0) {
            *files += 1;
            findings.extend(findings_in(path, &String::from_utf8_lossy(&bytes), rules));
        }
    }
    Ok(())
}

fn findings_in(file: &Path, text: &str, rules: &[Rule]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for (rule, regex, advice) in rules {
        for found in regex.find_iter(text) {
            let before = text.get(..found.start()).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            // On one of its own lines, or on the line above.
            let own_lines = found.as_str().lines().count();
            let allowed = text
                .lines()
                .skip(line.saturating_sub(2))
                .take(own_lines + 1)
                .any(|line| line.contains(ALLOW));
            // The first rule to match names the mistake best.
            if !allowed && !findings.iter().any(|finding| finding.line == line) {
                findings.push(Finding { file: file.to_owned(), line, rule, advice });
            }
        }
    }
    findings.sort_by_key(|finding| finding.line);
    findings
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_patterns_are_found_whatever_their_layout() {
        let rules = compile("symphony").unwrap();
        // symphony-guard: allow — the examples themselves are what must be found, so they are built from parts.
        for (text, expected) in [
            (
                format!("{} FROM payment_outbox_pending WHERE x RETURNING *", "DELETE"),
                Some("delete-to-claim"),
            ),
            (
                format!("{}\n  from symphony.payment_outbox_pending", "delete"),
                Some("delete-to-claim"),
            ),
            (
                format!("{} INTO payment_outbox_attempts (state) VALUES ('DISPATCHING')", "INSERT"),
                Some("insert-dispatching"),
            ),
            (
                format!("{} payment_outbox_pending SET claimed_by = 'me'", "UPDATE"),
                Some("write-around-functions"),
            ),
            (
                format!(
                    "{} INTO \"billing\".\"participant_outbox_sequences\" VALUES (1)",
                    "insert"
                ),
                Some("write-around-functions"),
            ),
            (format!("{} TABLE payment_outbox_events", "TRUNCATE"), Some("write-around-functions")),
            (format!("{} symphony.apps SET x = 1", "UPDATE"), Some("write-around-functions")),
            (
                format!("{} INTO \"symphony\" . \"routes\" VALUES (1)", "insert"),
                Some("write-around-functions"),
            ),
            (format!("{} apps SET x = 1", "UPDATE"), None),
            (format!("{} my_symphony.apps SET x = 1", "UPDATE"), None),
            (format!("{} symphony.appsettings SET x = 1", "UPDATE"), None),
            (format!("ALTER TABLE x {} TRIGGER ALL", "DISABLE"), Some("disable-guards")),
            ("SELECT * FROM payment_outbox_pending".to_owned(), None),
            ("SELECT * FROM enqueue_payment_outbox('i', 'p', 'k', 'r', '{}')".to_owned(), None),
            (
                format!(
                    "{} payment_outbox_pending SET x = 1 -- symphony-guard: allow, a test",
                    "UPDATE"
                ),
                None,
            ),
            (format!("{} my_own_table SET payment_outbox_pending = 1", "UPDATE"), None),
        ] {
            let found = findings_in(Path::new("x"), &text, &rules);
            assert_eq!(found.first().map(|finding| finding.rule), expected, "{text}");
        }
    }

    #[test]
    fn every_table_is_guarded_in_the_schema_that_is_ours_and_only_there() {
        for (schema, found) in [("symphony", true), ("billing", false), ("public", false)] {
            let rules = compile("symphony").unwrap();
            for table in tables::ALL.iter().filter(|table| !table.has_distinctive_name()) {
                let text = format!("{} FROM {schema}.{}", "DELETE", table.name);
                assert_eq!(!findings_in(Path::new("x"), &text, &rules).is_empty(), found, "{text}");
            }
        }
        let (billing, public) = (compile("billing").unwrap(), compile("public").unwrap());
        let is_found =
            |rules: &[Rule], text: &str| !findings_in(Path::new("x"), text, rules).is_empty();
        assert!(is_found(&billing, &format!("{} billing.queues SET x = 1", "UPDATE")));
        assert!(!is_found(&public, &format!("{} public.queues SET x = 1", "UPDATE")));
    }
}
