//! From outside: a crate that is not of this repository depends on `symphony` as it would be published.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sqlx::ConnectOptions as _;

use crate::support::TestDb;
use crate::support::folder::Folder;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const MAIN: &str = include_str!("empty_crate/main.rs");

/// Where this test was built: what both need is compiled once.
fn target() -> PathBuf {
    let binary = Path::new(env!("CARGO_BIN_EXE_symphony"));
    binary.ancestors().nth(2).unwrap().to_owned()
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{said}");
    String::from_utf8(output.stdout).unwrap()
}

fn cargo(folder: &Path) -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    command.current_dir(folder).args(["--offline", "--quiet"]);
    command
}

/// What is published: everything else of the workspace says `publish = false`.
const PUBLISHED: [&str; 2] = ["symphony", "symphony-connect"];

/// These crates as they would be published, each an archive in the folder it answers.
fn package(crates: &[&str], into: &Path) -> PathBuf {
    let packages = into.join("packages");
    let mut package = cargo(Path::new(ROOT));
    package.args(["package", "--no-verify", "--allow-dirty"]).arg("--target-dir").arg(&packages);
    for name in crates {
        package.args(["--package", name]);
    }
    succeed(&mut package);
    packages.join("package")
}

fn archive(name: &str) -> String {
    format!("{name}-{}.crate", env!("CARGO_PKG_VERSION"))
}

/// The crate as it would be published, unpacked into a folder of its own.
fn unpack(into: &Path) {
    let archive = package(&["symphony"], into).join(archive("symphony"));
    succeed(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(into));
    fs::rename(into.join(format!("symphony-{}", env!("CARGO_PKG_VERSION"))), into.join("symphony"))
        .unwrap();
}

#[tokio::test]
async fn an_empty_crate_enqueues_a_payment_and_an_event_in_its_own_transaction() {
    let db = TestDb::new().await;
    db.sql("CREATE SCHEMA outside").await;
    db.sql("CREATE TABLE outside.orders (id INT)").await;
    db.sql("GRANT USAGE ON SCHEMA outside TO symphony_ingest").await;
    db.sql("GRANT INSERT ON outside.orders TO symphony_ingest").await;
    let login = db.login("symphony_ingest").await;

    let folder = Folder::new();
    unpack(&folder.0);
    let empty = folder.0.join("empty");
    fs::create_dir_all(empty.join("src")).unwrap();
    fs::write(empty.join("src/main.rs"), MAIN).unwrap();
    // Bare: what a producer does not need is not compiled.
    let manifest = format!(
        "[package]\nname = \"empty\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n{}\n",
        documented_dependencies()
    );
    fs::write(empty.join("Cargo.toml"), manifest).unwrap();
    fs::copy(Path::new(ROOT).join("Cargo.lock"), empty.join("Cargo.lock")).unwrap();

    let mut run = cargo(&empty);
    run.arg("run").arg("--target-dir").arg(target());
    run.env("DATABASE_URL", login.to_url_lossy().as_str()).env("SYMPHONY_SCHEMA", "symphony");
    let told = succeed(&mut run);
    assert_eq!(told, "PENDING false PENDING false\n".repeat(2));
    for table in ["outside.orders", "payment_outbox_pending", "event_outbox_log"] {
        assert_eq!(db.count(table).await, 1, "{table}");
    }
}

/// The packages of a tree, by `cargo tree`: each `name version`.
fn tree(arguments: &[&str]) -> BTreeSet<String> {
    let mut command = cargo(Path::new(ROOT));
    command.args(["tree", "--locked", "--edges", "normal", "--prefix", "none"]).args(arguments);
    let lines = succeed(&mut command);
    let package = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    lines.lines().filter(|line| !line.is_empty()).map(package).collect()
}

#[test]
fn a_bare_producer_compiles_no_engine_no_cron_and_no_hashing_but_what_sqlx_brings() {
    let names = |packages: &BTreeSet<String>| -> BTreeSet<String> {
        packages.iter().map(|package| package.split(' ').next().unwrap().to_owned()).collect()
    };
    let own = names(&tree(&["--package", "symphony", "--depth", "1"]));
    let expected = [
        "chrono",
        "futures-util",
        "regex-lite",
        "serde",
        "serde_json",
        "sqlx",
        "sqlx-core",
        "symphony",
        "thiserror",
        "tokio",
        "tracing",
        "uuid",
    ];
    assert_eq!(own, BTreeSet::from(expected.map(str::to_owned)));
    let all = names(&tree(&["--package", "symphony"]));
    for needless in
        ["async-trait", "chrono-tz", "croner", "iban_validate", "ring", "rustix", "rustls", "sha3"]
    {
        assert!(!all.contains(needless), "a bare producer compiles {needless}");
    }
}

#[test]
fn the_figures_of_what_a_dependent_compiles_are_those_of_the_map() {
    let map = fs::read_to_string(Path::new(ROOT).join("docs/ARCHITECTURE.md")).unwrap();
    if !cfg!(target_os = "linux") {
        println!("passed over: the figures are of Linux");
        return;
    }
    for (row, arguments) in [
        ("a bare producer: `symphony`", &["--package", "symphony"][..]),
        ("a consumer: feature `consumer`", &["--package", "symphony", "--features", "consumer"]),
        (
            "a worker: feature `worker`, or all but `tls`",
            &["--package", "symphony", "--features", "worker"],
        ),
        ("all features: `tls` is rustls and ring", &["--package", "symphony", "--all-features"]),
    ] {
        let row = format!("| {row} | {} |", tree(arguments).len());
        assert!(map.contains(&row), "docs/ARCHITECTURE.md lacks: {row}");
    }
}

/// What lib.rs tells a dependent to write, without the feature that compiles TLS.
fn documented_dependencies() -> String {
    let source = fs::read_to_string(Path::new(ROOT).join("crates/symphony/src/lib.rs")).unwrap();
    let (_, block) = source.split_once("//! ```toml\n").unwrap();
    let (block, _) = block.split_once("//! ```").unwrap();
    let lines = block.lines().map(|line| line.trim_start_matches("//! "));
    let lines = lines.map(|line| {
        let Some(rest) =
            line.strip_prefix("symphony = { version = \"0.1\", features = [\"tls\"] }")
        else {
            return line.to_owned();
        };
        format!("symphony = {{ path = \"../symphony\" }}{rest}")
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    assert!(text.starts_with("[dependencies]\nsymphony = { path"), "{text}");
    text
}

#[test]
fn every_published_crate_is_packaged_with_all_that_it_includes_and_nothing_else() {
    let mut published = Vec::new();
    for entry in fs::read_dir(Path::new(ROOT).join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap();
        if !manifest.contains("\npublish = false\n") {
            published.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
    }
    published.sort();
    assert_eq!(published, PUBLISHED);

    let folder = Folder::new();
    let packages = package(&PUBLISHED, &folder.0);
    for name in PUBLISHED {
        let archive = packages.join(archive(name));
        let listed = succeed(Command::new("tar").arg("-tzf").arg(&archive));
        let root = format!("{name}-{}/", env!("CARGO_PKG_VERSION"));
        let files: Vec<&str> =
            listed.lines().map(|file| file.strip_prefix(&root).unwrap()).collect();
        for needed in ["Cargo.toml", "LICENSE", "README.md", "src/lib.rs"] {
            assert!(files.contains(&needed), "{name} lacks {needed}");
        }
        let known = ["src/", "sql/", "schemas/", "Cargo.", ".cargo_vcs_info.json", "build.rs"];
        let other = files.iter().find(|file| {
            !known.iter().any(|known| file.starts_with(known))
                && !["LICENSE", "README.md"].contains(*file)
        });
        assert_eq!(other, None, "{name}");
        let size = fs::metadata(&archive).unwrap().len();
        println!("{name}: {} files, {} KiB", files.len(), size >> 10);

        // Each file that a source includes is there, under the name it is included by.
        let source = Path::new(ROOT).join("crates").join(name);
        for file in files.iter().filter(|file| {
            Path::new(file).extension().is_some_and(|extension| extension == "rs")
                && !file.contains("_tests")
        }) {
            let text = fs::read_to_string(source.join(file)).unwrap();
            for (_, rest) in ["include_str!(\"", "include_bytes!(\""].iter().flat_map(|call| {
                text.match_indices(call).map(|(at, call)| (at, &text[at + call.len()..]))
            }) {
                let mut path = Path::new(file).parent().unwrap().to_owned();
                for part in rest.split('"').next().unwrap().split('/') {
                    if part == ".." {
                        assert!(path.pop(), "{name}: {file} reaches out of the crate");
                    } else {
                        path.push(part);
                    }
                }
                assert!(
                    files.contains(&path.to_str().unwrap()),
                    "{name}: {file} includes {path:?}"
                );
            }
        }
    }
}
