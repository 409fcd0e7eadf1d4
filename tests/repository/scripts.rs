//! The README's two commands on a machine that lacks what it lists; `scripts/bare-machine` tries one that lacks all else.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::unique;

/// Programs that are found before all others.
struct Programs(PathBuf);

impl Programs {
    fn new() -> Self {
        let name = format!("{}-{}", unique("symphony-programs"), std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn add(&self, name: &str, script: &str) {
        let path = self.0.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }

    fn run(&self, script: &str) -> Output {
        Command::new(root().join(script))
            .env("PATH", format!("{}:/usr/bin:/bin", self.0.display()))
            .env("HOME", "/nonexistent")
            .env_remove("CARGO_HOME")
            .output()
            .unwrap()
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn one_line(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn an_older_rust_is_told_so_in_one_line() {
    let programs = Programs::new();
    programs.add("cargo", "echo 'cargo 1.63.0'");
    programs.add("rustc", "echo 'rustc 1.63.0 (4b91a6ea7 2022-08-08)'");
    for script in ["scripts/tour", "scripts/test"] {
        let said = one_line(&programs.run(script));
        let needed = format!("Rust 1.63.0 is too old, Symphony needs {} or later", needed_rust());
        assert!(said.contains(&needed) && said.contains("rustup"), "{said}");
    }
}

#[test]
fn a_rustup_without_a_toolchain_is_told_so_in_one_line() {
    let programs = Programs::new();
    programs.add("cargo", "exit 1");
    programs.add("rustc", "echo 'error: no default is configured' >&2; exit 1");
    for script in ["scripts/tour", "scripts/test"] {
        let said = one_line(&programs.run(script));
        assert!(said.contains("rustc does not run here"), "{said}");
    }
}

#[test]
fn a_missing_c_compiler_is_told_so_in_one_line() {
    let programs = Programs::new();
    programs.add("cargo", "echo 'cargo 9.0.0'");
    programs.add("rustc", "echo 'rustc 9.0.0'");
    programs.add("cc", "exit 127");
    for script in ["scripts/tour", "scripts/test"] {
        let said = one_line(&programs.run(script));
        assert!(said.contains("gcc and libc6-dev"), "{said}");
    }
}

#[test]
fn the_readme_names_the_rust_that_cargo_wants() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.contains(&format!("Rust {} or later", needed_rust())));
}

fn needed_rust() -> &'static str {
    env!("CARGO_PKG_RUST_VERSION")
}

/// The tests that are left out of a usual run, by name.
fn ignored() -> Vec<String> {
    fn collect(folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let mut lines = text.lines();
                while lines.any(|line| line.trim_start().starts_with("#[ignore = ")) {
                    let name = lines.clone().find_map(|line| line.split_once("fn "));
                    let name = name.and_then(|(_, name)| name.split_once('('));
                    found.push(name.unwrap().0.to_owned());
                }
            }
        }
    }
    let mut found = Vec::new();
    collect(&root().join("tests"), &mut found);
    found
}

#[test]
fn the_long_form_runs_every_test_that_a_usual_run_leaves_out() {
    // Processes behind other tests, two measurements, a cluster that nobody has here, and what scripts/chaos runs.
    const ELSEWHERE: [&str; 6] = [
        "helper_uses_a_server_until_told",
        "helper_runs_a_server_once",
        "the_mock_cluster",
        "what_a_pooler_costs",
        "on_a_real_cluster_setup_publishing_and_a_changing_group_keep_their_word",
        "every_accepted_payment_is_executed_exactly_once_under_long_fire",
    ];
    let script = fs::read_to_string(root().join("scripts/test")).unwrap();
    let line = script.lines().find_map(|line| line.split_once(" -- --ignored ")).unwrap().1;
    let filters: Vec<&str> = line.trim_end_matches('\\').split_whitespace().collect();
    let ignored = ignored();
    assert!(ignored.len() > 12, "{ignored:?}");
    let idle: Vec<_> = filters
        .iter()
        .filter(|filter| !ignored.iter().any(|name| name.contains(**filter)))
        .collect();
    assert!(idle.is_empty(), "scripts/test --long asks for {idle:?}, and no such test is ignored");
    let never: Vec<_> = ignored
        .iter()
        .filter(|name| !ELSEWHERE.contains(&name.as_str()))
        .filter(|name| !filters.iter().any(|filter| name.contains(filter)))
        .collect();
    assert!(never.is_empty(), "neither scripts/test nor scripts/test --long runs {never:?}");
}
