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
