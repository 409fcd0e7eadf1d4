//! What the documentation promises about itself: lines that fit, links that lead somewhere, a map of what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const LINE_COLUMNS_MAX: usize = 120;
const README_LINES_MAX: usize = 150;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every page, with its path from the root.
fn pages() -> BTreeMap<String, String> {
    fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, paths);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                paths.push(path);
            }
        }
    }
    let mut paths = vec![
        root().join("README.md"),
        root().join("CHANGELOG.md"),
        root().join("examples/README.md"),
    ];
    collect(&root().join("docs"), &mut paths);
    assert!(paths.len() > 30, "only {} pages were found", paths.len());
    paths
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect()
}

#[test]
fn no_line_of_the_documentation_is_wider_than_120_columns() {
    let mut wide = Vec::new();
    for (page, text) in pages() {
        for (index, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > LINE_COLUMNS_MAX {
                wide.push(format!("{page}:{} has {columns} columns", index + 1));
            }
        }
    }
    assert!(
        wide.is_empty(),
        "reflow these; a table that does not fit becomes a list:\n{}",
        wide.join("\n")
    );
}

#[test]
fn the_readme_is_short_enough_to_be_read() {
    let lines = pages()["README.md"].lines().count();
    assert!(
        lines < README_LINES_MAX,
        "README.md has {lines} lines: move what a newcomer does not need to docs/"
    );
}

#[test]
fn every_link_of_the_documentation_leads_somewhere() {
    let mut broken = Vec::new();
    let mut seen = 0;
    for (page, text) in pages() {
        let folder = Path::new(&page).parent().unwrap().to_owned();
        for target in links(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            seen += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = match file {
                "" => root().join(&page),
                file => root().join(&folder).join(file),
            };
            let found = path.exists()
                && (anchor.is_empty()
                    || anchors(&fs::read_to_string(&path).unwrap_or_default()).contains(anchor));
            if !found {
                broken.push(format!("{page}: {target}"));
            }
        }
    }
    assert!(seen > 150, "only {seen} links were found: is this test still reading the pages?");
    assert!(broken.is_empty(), "these links lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn every_test_that_the_documentation_names_exists() {
    let mut missing = Vec::new();
    let mut seen = 0;
    for (page, text) in pages() {
        for name in text.split('`').filter(|name| name.starts_with("tests/")) {
            seen += 1;
            if !root().join(name).exists() {
                missing.push(format!("{page}: {name}"));
            }
        }
    }
    assert!(seen > 10, "only {seen} were found: is this test still reading the pages?");
    assert!(missing.is_empty(), "these are named and not there:\n{}", missing.join("\n"));
}

#[test]
fn everything_on_the_map_exists() {
    let missing: Vec<_> = map()
        .into_iter()
        .filter(|(base, name)| !candidates(base, name).iter().any(|path| path.exists()))
        .map(|(base, name)| format!("{base}{name}"))
        .collect();
    assert!(
        missing.is_empty(),
        "the map in docs/ARCHITECTURE.md names what is not there: remove or rename {missing:?}"
    );
}

#[test]
fn every_module_is_on_the_map() {
    let map = map();
    let mut missing = Vec::new();
    for krate in folders(&root().join("crates")) {
        let base = format!("crates/{krate}/");
        for module in modules(&root().join(&base).join("src")) {
            let named = map.iter().any(|(of, name)| {
                *of == base && name.trim_end_matches('/').split('/').next() == Some(&module)
            });
            if !named {
                missing.push(format!("under {base}: {module}"));
            }
        }
        // Modules that have modules of their own, however deep.
        for folder in nested(&root().join(&base).join("src"), "") {
            if !map.contains(&(base.clone(), folder.clone())) {
                missing.push(format!("under {base}: {folder}"));
            }
        }
    }
    for folder in folders(&root().join("sql")).into_iter().chain(
        folders(&root().join("sql/functions")).into_iter().map(|name| format!("functions/{name}")),
    ) {
        let named = map.iter().any(|(of, name)| of == "sql/" && name.starts_with(&folder));
        if !named {
            missing.push(format!("under sql/: {folder}/"));
        }
    }
    for folder in folders(&root().join("tests")) {
        if !map.contains(&("tests/".to_owned(), format!("{folder}/"))) {
            missing.push(format!("under tests/: {folder}/"));
        }
    }
    assert!(
        missing.is_empty(),
        "add one line each to the map in docs/ARCHITECTURE.md, two spaces, the name (a folder ends \
         in a slash), two spaces or more, and what it is for:\n{}",
        missing.join("\n")
    );
}

#[test]
fn every_metric_is_documented_with_its_type() {
    let pages = [
        symphony_server::metrics::render(&[], &symphony_server::metrics::Known::default()),
        symphony_server::metrics::render_consumer("c", &Arc::default()),
    ];
    let served: BTreeSet<(String, String)> = pages
        .iter()
        .flat_map(|page| page.lines())
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect();
    assert!(served.len() > 40, "only {} families are served", served.len());
    // `- counter `a`, `b`, label …: what they are`
    let mut documented = BTreeSet::new();
    for line in page_of("docs/METRICS.md").lines() {
        let Some((kind, rest)) = line.strip_prefix("- ").and_then(|line| line.split_once(" `"))
        else {
            continue;
        };
        let names = rest.split(": ").next().unwrap().split(", label").next().unwrap();
        for name in names.split(", ") {
            documented.insert((name.trim_matches('`').to_owned(), kind.to_owned()));
        }
    }
    assert_eq!(served, documented, "as served, and as docs/METRICS.md says");
}

/// Every field that a section of this type takes: what it says when it meets another one.
fn fields<S: serde::de::DeserializeOwned>() -> Vec<String> {
    let said = toml::from_str::<S>("no-such-field = 1").err().expect("it takes known fields only");
    let said = said.to_string();
    let (_, expected) = said.split_once("expected one of ").expect(&said);
    let quoted = expected.split('`').enumerate().filter(|(at, _)| at % 2 == 1);
    quoted.map(|(_, field)| field.to_owned()).collect()
}

#[test]
fn every_field_of_every_kind_of_bus_is_documented() {
    use symphony_connect::buses::http::{EndpointSettings, HttpBusSettings};
    use symphony_connect::buses::nats::NatsSettings;
    use symphony_connect::buses::setup::{ConsumerSettings, SetupSettings, TopicSettings};
    use symphony_connect::buses::sns::SnsSettings;
    let page = page_of("docs/BUSES.md");
    let section = |title: &str| {
        let rest = page.split_once(&format!("\n## {title}\n")).expect(title).1;
        rest.split_once("\n## ").map_or(rest, |(section, _)| section).to_owned()
    };
    let named = |list: &str, fields: Vec<String>| {
        fields.iter().map(|field| format!("{list}{field}")).collect::<Vec<_>>()
    };
    let kinds = section("Of any bus");
    for kind in ["sns", "nats", "kafka", "http"] {
        assert!(page.contains(&format!("\n## {kind}\n")), "{kind} has no section");
        let row = kinds.lines().find(|line| line.starts_with("| `kind` |")).unwrap();
        assert!(row.contains(&format!("`{kind}`")), "{row}");
    }
    let of_any = ["envelope", "cloudevents_source", "concurrency_max", "breaker_failures"];
    let of_any = of_any.iter().chain(&["breaker_open_ms", "breaker_open_max_ms"]);
    let mut missing = Vec::new();
    for (title, fields) in [
        ("Of any bus", of_any.map(|field| (*field).to_owned()).collect()),
        ("sns", fields::<SnsSettings>()),
        ("nats", fields::<NatsSettings>()),
        ("http", fields::<HttpBusSettings>()),
        ("http", fields::<EndpointSettings>()),
        #[cfg(feature = "kafka")]
        ("kafka", fields::<symphony_connect::buses::kafka::KafkaSettings>()),
        ("symphony bus setup", fields::<SetupSettings>()),
        ("symphony bus setup", named("topics[].", fields::<TopicSettings>())),
        ("symphony bus setup", named("consumers[].", fields::<ConsumerSettings>())),
    ] {
        let text = section(title);
        assert!(fields.len() > 2, "{title}: {fields:?}");
        // Of a list, the list itself is in the example.
        let is_there = |field: &String| {
            text.contains(&format!("`{field}`")) || text.contains(&format!("`{field}[]."))
        };
        let absent = fields.into_iter().filter(|field| !is_there(field));
        missing.extend(absent.map(|field| format!("{title}: {field}")));
    }
    assert!(missing.is_empty(), "docs/BUSES.md lacks {missing:?}");
}

fn page_of(page: &str) -> String {
    pages().remove(page).unwrap()
}

/// The map's entries: the line at the margin above them, and the name.
fn map() -> BTreeSet<(String, String)> {
    let page = page_of("docs/ARCHITECTURE.md");
    let block = page.split("\n## The map\n").nth(1).expect("the map's heading");
    let block = block.split("```").nth(1).expect("the map's block");
    let mut base = String::new();
    let mut entries = BTreeSet::new();
    for line in block.lines().filter(|line| !line.trim().is_empty()) {
        let names = line.trim_start().split("  ").next().unwrap();
        if !line.starts_with(' ') {
            // A path that fills its column has one space after it.
            names.split(' ').next().unwrap().clone_into(&mut base);
            entries.insert((String::new(), base.clone()));
        } else if line.starts_with("  ") && !line.starts_with("   ") {
            for name in names.split(", ") {
                let name = name.split(' ').next().unwrap();
                entries.insert((base.clone(), name.to_owned()));
            }
        }
    }
    assert!(entries.len() > 30, "only {} entries: is this test still reading it?", entries.len());
    entries
}

/// Where an entry of the map may be: as it stands, in a crate's `src`, or as a module's file.
fn candidates(base: &str, name: &str) -> Vec<PathBuf> {
    let base = root().join(base);
    let module = format!("{}.rs", name.trim_end_matches('/'));
    vec![base.join(name), base.join("src").join(name), base.join("src").join(module)]
}

fn folders(of: &Path) -> Vec<String> {
    let entries = fs::read_dir(of).unwrap().map(Result::unwrap);
    let mut names: Vec<_> = entries
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The folders under a crate's folders, from its `src` on; tests explain themselves.
fn nested(folder: &Path, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    for name in folders(folder).into_iter().filter(|name| name != "tests") {
        let inner = format!("{path}{name}/");
        if !path.is_empty() {
            found.push(inner.clone());
        }
        found.extend(nested(&folder.join(&name), &inner));
    }
    found
}

#[test]
fn every_source_says_in_its_first_line_what_it_is() {
    fn collect(folder: &Path, silent: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_test = path.file_stem().unwrap().to_str().unwrap().ends_with("tests");
            if path.is_dir() && !is_test {
                collect(&path, silent);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !is_test
                && !fs::read_to_string(&path).unwrap().starts_with("//! ")
            {
                silent.push(path);
            }
        }
    }
    let mut silent = Vec::new();
    for krate in folders(&root().join("crates")) {
        collect(&root().join("crates").join(krate).join("src"), &mut silent);
    }
    assert!(silent.is_empty(), "begin these with `//! ` and what they are: {silent:?}");
}

/// The modules right under a crate's root, be they a file, a folder or both.
fn modules(source: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(source).unwrap().map(|entry| entry.unwrap().path());
    entries
        .filter(|path| path.is_dir() || path.extension().is_some_and(|e| e == "rs"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .filter(|name| !["lib", "main"].contains(&name.as_str()))
        .collect()
}

fn links(text: &str) -> Vec<String> {
    let prose: String = text.split("```").step_by(2).collect();
    prose
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.to_owned())
        .collect()
}

/// As GitHub makes them of headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter_map(|line| line.strip_prefix('#'));
    headings
        .map(|heading| {
            let heading = heading.trim_start_matches('#').trim().to_lowercase();
            heading
                .chars()
                .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}
