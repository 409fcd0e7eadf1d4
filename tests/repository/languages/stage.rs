//! Where an example runs: a copy of its folder, with the drivers that `scripts/ensure-languages` has found.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;
use std::{env, fs};

use tokio::process::{Child, Command};
use uuid::Uuid;

use super::{AMOUNT, Run};

const PAGE: &str = include_str!("../../../examples/README.md");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// What the page runs, and what is run here: it has been built already.
const CARGO_RUN: &str = "cargo run -p symphony-connect --example producer --";
/// Where Debian has the sources of Go's packages.
const GO_SOURCES: &str = "/usr/share/gocode";

/// A busy machine takes its time; a program that has not ended by then never will.
const TIME_LIMIT: Duration = Duration::from_mins(2);

/// The page's list of producers, and the one of consumers.
pub const PRODUCERS: &str = "run";
pub const CONSUMERS: &str = "consume";

/// Each example's name and the line that runs it, as the page has them in this list.
pub fn documented(list: &str) -> Vec<(&'static str, &'static str)> {
    let (_, list_on) = PAGE.split_once(&format!("<!-- {list} -->")).expect("the list of examples");
    let (list, _) = list_on.split_once(&format!("<!-- /{list} -->")).expect("its end");
    let lines = list.lines().filter(|line| line.contains("$1") || line.contains("$@"));
    lines
        .map(|line| line.rsplit_once(" # ").unwrap())
        .map(|(line, name)| (name, line.trim()))
        .collect()
}

/// An example that can be run here.
pub struct Language {
    line: String,
    folder: String,
}

/// `None` if its language is not here.
pub fn found(list: &str, name: &str) -> Option<Language> {
    let documented = documented(list);
    let (_, line) = documented.iter().find(|(documented, _)| *documented == name).expect(name);
    let mut line = (*line).to_owned();
    let here = match name.split(',').next().unwrap() {
        "Rust" => built_example("producer").map(|program| line = line.replace(CARGO_RUN, &program)),
        "psql" => program("psql").then_some(()),
        "Python" => variable("SYMPHONY_PYTHON_BIN").map(drop),
        "Node" => variable("SYMPHONY_NODE_MODULES").map(drop),
        "Ruby" => variable("SYMPHONY_RUBY").map(drop),
        "PHP" => variable("SYMPHONY_PHP").map(drop),
        "Java" => variable("SYMPHONY_JDBC_JAR").map(drop),
        "Go" => variable("SYMPHONY_GO_CACHE").map(drop),
        other => panic!("{other}: a language that nobody looks for"),
    };
    let required = env::var_os("SYMPHONY_REQUIRE_LANGUAGES").is_some();
    let may_be_missing = ["psql", "Java, JDBC", "Go, pgx"].contains(&name);
    assert!(
        here.is_some() || !required || may_be_missing,
        "{name} is not here: run scripts/ensure-languages"
    );
    if here.is_none() {
        println!("passed over: {name} is not here; scripts/ensure-languages --all would get it");
        return None;
    }
    let folder = match name.split(',').next().unwrap() {
        "Rust" => "rust".to_owned(),
        _ => line.split("examples/").nth(1).unwrap().split([' ', '/']).next().unwrap().to_owned(),
    };
    Some(Language { line, folder })
}

/// What `scripts/ensure-languages --print` says, asked once.
fn variable(name: &str) -> Option<&'static str> {
    static FOUND: OnceLock<HashMap<String, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let script = Path::new(ROOT).join("scripts/ensure-languages");
        let mut look = std::process::Command::new(script);
        let output = look.args(["--find", "--quiet", "--print"]).stderr(Stdio::null()).output();
        let said = String::from_utf8(output.expect("bash, to look for languages").stdout).unwrap();
        let pairs = said.lines().filter_map(|line| line.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    });
    found.get(name).map(String::as_str)
}

fn program(name: &str) -> bool {
    env::split_paths(&env::var_os("PATH").unwrap()).any(|folder| folder.join(name).is_file())
}

/// `cargo test --workspace` builds it; a run of this binary alone takes what an earlier one left, unless it is too old.
pub fn built_example(name: &str) -> Option<String> {
    let examples = Path::new(env!("CARGO_BIN_EXE_symphony")).with_file_name("examples");
    let program = examples.join(name);
    let changed = |path: &Path| fs::metadata(path).and_then(|file| file.modified());
    let source =
        if name == "producer" { "examples/rust/producer.rs" } else { "examples/consumer.rs" };
    let source = changed(&Path::new(ROOT).join(source)).unwrap();
    let fresh = changed(&program).is_ok_and(|built| built >= source);
    fresh.then(|| program.to_str().unwrap().to_owned())
}

/// Debian has one major of pgx a release; the example imports the newest.
fn pgx_major() -> u8 {
    let newest = Path::new(GO_SOURCES).join("src/github.com/jackc/pgx/v5");
    if newest.is_dir() { 5 } else { 4 }
}

/// A folder with the example in it, removed with this.
pub struct Stage {
    root: PathBuf,
    language: Language,
}

impl Stage {
    pub fn new(language: Language) -> Self {
        let root = env::temp_dir().join(format!("symphony-languages-{}", Uuid::new_v4()));
        let folder = root.join("examples").join(&language.folder);
        fs::create_dir_all(&folder).unwrap();
        let stage = Self { root, language };
        for file in fs::read_dir(format!("{ROOT}/examples/{}", stage.language.folder)).unwrap() {
            let file = file.unwrap();
            if file.file_type().unwrap().is_file() {
                fs::copy(file.path(), folder.join(file.file_name())).unwrap();
            }
        }
        match stage.language.folder.as_str() {
            "node" => {
                let modules = variable("SYMPHONY_NODE_MODULES").unwrap();
                std::os::unix::fs::symlink(modules, folder.join("node_modules")).unwrap();
            }
            "go" => {
                for file in ["producer.go", "consumer.go"] {
                    stage.replace(file, "pgx/v5", &format!("pgx/v{}", pgx_major()));
                }
            }
            _ => {}
        }
        stage
    }

    /// Change the copy.
    pub fn replace(&self, file: &str, from: &str, to: &str) {
        let path = self.root.join("examples").join(&self.language.folder).join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches(from).count(), 1, "{file}: {from}");
        fs::write(path, text.replace(from, to)).unwrap();
    }

    /// Its line in a shell, with these arguments.
    fn command(&self, database_url: &str, arguments: &[&str]) -> Command {
        // The environment of Python first: the others' folders may have a python3 too.
        let tools = ["SYMPHONY_PYTHON_BIN", "SYMPHONY_RUBY", "SYMPHONY_PHP"];
        let tools = tools.map(variable).into_iter().flatten().map(PathBuf::from);
        let folders =
            tools.map(|path| if path.is_dir() { path } else { path.parent().unwrap().to_owned() });
        let path = env::var_os("PATH").unwrap();
        let mut command = Command::new("sh");
        command
            .args(["-c", &self.language.line, "sh"])
            .args(arguments)
            .current_dir(&self.root)
            .env("PATH", env::join_paths(folders.chain(env::split_paths(&path))).unwrap())
            .env("DATABASE_URL", database_url)
            // Debian's sources, and no modules from elsewhere.
            .env("GO111MODULE", "off")
            .env("GOFLAGS", "")
            .env("GOPATH", GO_SOURCES)
            .env("GOCACHE", variable("SYMPHONY_GO_CACHE").unwrap_or_default())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Start it and leave it running, in a process group of its own.
    pub fn start(&self, database_url: &str, arguments: &[&str]) -> Child {
        let mut command = self.command(database_url, arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::inherit()).process_group(0).spawn().unwrap()
    }

    /// Run it, as somebody in a shell would; what it printed.
    pub async fn run(&self, database_url: &str, run: &Run) -> String {
        let run_it = self.command(database_url, &[&run.invoice, AMOUNT, &run.iban]).output();
        let output = tokio::time::timeout(TIME_LIMIT, run_it).await.expect("it hangs").unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let complaints = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{}: {said}{complaints}", self.language.line);
        for secret in [&run.iban, AMOUNT] {
            assert!(!said.contains(secret) && !complaints.contains(secret), "{said}{complaints}");
        }
        said
    }

    /// What examples/README.md wants in the URL behind a transaction pooler.
    pub fn pooled_url_options(&self) -> &'static str {
        match (self.language.folder.as_str(), pgx_major()) {
            ("go", 4) => "?statement_cache_mode=describe",
            ("go", _) => "?default_query_exec_mode=exec",
            _ => "",
        }
    }

    /// And what it wants of the pooler.
    pub fn pooler_settings(&self) -> &'static str {
        let java = self.language.folder == "java";
        if java { "ignore_startup_parameters = extra_float_digits\n" } else { "" }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.root).ok();
    }
}
