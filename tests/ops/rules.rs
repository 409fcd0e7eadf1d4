//! Every alarm names a runbook that is there and figures that the product renders, and `promtool` runs their tests.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;

use regex_lite::Regex;

use super::{file, path};
use crate::support::prometheus::{found, prometheus_or_skip};

const RULES: &str = "ops/prometheus/symphony.rules.yml";

/// The names of all figures, with those a histogram makes of its own.
pub fn rendered() -> BTreeSet<String> {
    let pages = [
        symphony_server::metrics::render(&[], &symphony_server::metrics::Known::default()),
        symphony_server::metrics::render_consumer("c", &Arc::default()),
    ];
    let families = pages.iter().flat_map(|page| page.lines());
    let families = families.filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    families
        .flat_map(|(name, kind)| match kind {
            "histogram" => ["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")).to_vec(),
            _ => vec![name.to_owned()],
        })
        .collect()
}

/// What a query asks for: names that are no function, keyword or label.
pub fn asked(query: &str) -> BTreeSet<String> {
    // Labels stand in braces, strings in quotes, grouping in parentheses after its word.
    let without =
        Regex::new(r#"\{[^}]*\}|"[^"]*"|\b(by|on)\s*\([^)]*\)|\[[^\]]*\]|\$\w+"#).unwrap();
    let words = Regex::new(r"[a-z_][a-z0-9_]*\b\s*\(?").unwrap();
    let query = without.replace_all(query, " ");
    let words = words.find_iter(&query).map(|word| word.as_str().trim());
    let words = words.filter(|word| !word.ends_with('('));
    let keywords = ["and", "or", "unless", "on", "by", "absent", "group"];
    words.filter(|word| !keywords.contains(word)).map(str::to_owned).collect()
}

/// The values of a field, also those that go on over indented lines.
fn values(rules: &str, field: &str) -> Vec<String> {
    let start = Regex::new(&format!(r"^( *)(?:- )?{field}: (.*)$")).unwrap();
    let mut lines = rules.lines().peekable();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let Some(captured) = start.captures(line) else { continue };
        let mut value = captured[2].to_owned();
        if value == "|" {
            value.clear();
            let indent = captured[1].len();
            let deeper = |line: &&str| line.len() - line.trim_start().len() > indent;
            while let Some(line) = lines.next_if(deeper) {
                value.push_str(line);
                value.push('\n');
            }
        }
        found.push(value);
    }
    found
}

/// As GitHub and others make it of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || [' ', '-'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_alarm_has_a_severity_a_summary_and_a_runbook_that_is_there() {
    let rules = file(RULES);
    let alarms = values(&rules, "alert");
    assert!(alarms.len() >= 15, "{alarms:?}");
    assert_eq!(values(&rules, "summary").len(), alarms.len());
    let severities = values(&rules, "labels");
    let known = ["{severity: page}", "{severity: ticket}"];
    assert!(severities.iter().all(|severity| known.contains(&severity.as_str())));
    assert_eq!(severities.len(), alarms.len());
    let page = file("docs/OPERATING.md");
    let headings: BTreeSet<String> = page
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| anchor(line.trim_start_matches('#').trim()))
        .collect();
    let runbooks = values(&rules, "runbook_url");
    assert_eq!(runbooks.len(), alarms.len());
    for runbook in runbooks {
        // Absolute where the external label says so, else as in the repository.
        let begins = r#"'{{ or $externalLabels.symphony_docs "docs" }}/OPERATING.md#"#;
        let heading = runbook.strip_prefix(begins).and_then(|rest| rest.strip_suffix('\''));
        let heading = heading.expect(&runbook);
        assert!(headings.contains(heading), "docs/OPERATING.md has no heading {heading}");
    }
    let documented = file("docs/METRICS.md");
    for alarm in alarms {
        assert!(documented.contains(&format!("`{alarm}`")), "docs/METRICS.md lacks {alarm}");
        let tests = file("ops/prometheus/symphony.rules.test.yml");
        assert!(tests.contains(&format!("alertname=\"{alarm}\"")), "no test fires {alarm}");
    }
}

#[test]
fn every_alarm_asks_for_figures_that_the_product_renders() {
    let rendered = rendered();
    let expressions = values(&file(RULES), "expr");
    assert!(expressions.len() >= 15);
    for expression in expressions {
        let asked = asked(&expression);
        assert!(!asked.is_empty(), "{expression}");
        for name in asked {
            // Prometheus's own: whether a scrape was answered.
            assert!(name == "up" || rendered.contains(&name), "{name} of {expression}");
        }
    }
}

#[test]
fn promtool_runs_the_tests_of_the_alarms() {
    prometheus_or_skip!();
    let promtool = |folder: &std::path::Path| {
        Command::new(&found().unwrap().promtool)
            .args(["test", "rules", "symphony.rules.test.yml"])
            .current_dir(folder)
            .output()
            .unwrap()
    };
    let told = promtool(&path("ops/prometheus"));
    assert!(told.status.success(), "{told:?}");
    // The tests can fail: an alarm that fires late is noticed.
    let folder = crate::support::folder::Folder::new();
    let tests = file("ops/prometheus/symphony.rules.test.yml");
    folder.write("symphony.rules.test.yml", &tests);
    folder.write("symphony.rules.yml", &file(RULES).replace("for: 1m", "for: 1h"));
    assert!(!promtool(&folder.0).status.success());
}

#[test]
fn promtool_takes_the_example_of_a_configuration() {
    prometheus_or_skip!();
    let folder = crate::support::folder::Folder::new();
    let token = folder.write("symphony.token", "symphony_x");
    let config = file("ops/prometheus/prometheus.example.yml");
    let here = config.replace("/etc/prometheus/symphony.token", token.to_str().unwrap());
    folder.write("symphony.rules.yml", &file(RULES));
    let config = folder.write("prometheus.yml", &here);
    let check = |config: &std::path::Path| {
        Command::new(&found().unwrap().promtool).args(["check", "config"]).arg(config).output()
    };
    let told = check(&config).unwrap();
    assert!(told.status.success(), "{told:?}");
    folder.write("prometheus.yml", &here.replace("credentials_file", "credential_file"));
    assert!(!check(&config).unwrap().status.success(), "it can fail");
}
