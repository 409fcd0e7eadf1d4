//! A real Prometheus on this machine. `scripts/ensure-prometheus` gets it, `scripts/test` runs that. A test that needs it begins
//! with `required_or_skip!()`: without it the test passes over, unless `SYMPHONY_REQUIRE_PROMETHEUS` is set.

use std::path::{Path, PathBuf};
use std::process::{Command as BlockingCommand, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::brokers::Leashed;
use super::folder::Folder;
use super::until;

pub struct Found {
    prometheus: PathBuf,
    pub promtool: PathBuf,
}

pub fn found() -> Option<&'static Found> {
    static FOUND: OnceLock<Option<Found>> = OnceLock::new();
    let found = FOUND.get_or_init(find).as_ref();
    assert!(
        found.is_some() || std::env::var_os("SYMPHONY_REQUIRE_PROMETHEUS").is_none(),
        "SYMPHONY_REQUIRE_PROMETHEUS is set, and there is none: run scripts/ensure-prometheus"
    );
    if found.is_none() {
        println!("passed over: no Prometheus here; scripts/ensure-prometheus would get it");
    }
    found
}

/// Return from the test unless there is a Prometheus; fail if there must be.
macro_rules! prometheus_or_skip {
    () => {
        if $crate::support::prometheus::found().is_none() {
            return;
        }
    };
}
pub(crate) use prometheus_or_skip;

fn find() -> Option<Found> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/ensure-prometheus");
    let output = BlockingCommand::new("bash")
        .args(["-c", r#"set -e; found=$("$0" --find --quiet --print); eval "$found"; printf '%s\n' "$SYMPHONY_PROMETHEUS" "$SYMPHONY_PROMTOOL""#])
        .arg(script)
        .stderr(Stdio::null())
        .output()
        .expect("bash, to look for Prometheus");
    let paths = String::from_utf8(output.stdout).unwrap();
    let mut lines = paths.lines().map(PathBuf::from);
    let (prometheus, promtool) = (lines.next()?, lines.next()?);
    output.status.success().then_some(Found { prometheus, promtool })
}

/// Scrapes every second: a page may wait half of that for a database that is away.
pub struct Prometheus {
    address: String,
    folder: Folder,
    _server: Leashed,
}

impl Prometheus {
    /// With these rules.
    pub async fn start(rules: &str) -> Self {
        let folder = Folder::new();
        folder.write("rules.yml", rules);
        folder.write("targets.json", "[]");
        let config = folder.write(
            "prometheus.yml",
            "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 500ms}\n\
             rule_files: [rules.yml]\n\
             scrape_configs: [{job_name: symphony, file_sd_configs: [{files: [targets.json]}]}]\n",
        );
        // Free a moment ago; Prometheus cannot be asked which port it took.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let address = free.to_string();
        let server = Leashed::start(
            &found().expect("the test begins with prometheus_or_skip!()").prometheus,
            &[
                &format!("--config.file={}", config.display()),
                &format!("--storage.tsdb.path={}", folder.0.join("data").display()),
                &format!("--web.listen-address={address}"),
                "--log.level=error",
            ],
        );
        let prometheus = Self { address, folder, _server: server };
        until("Prometheus is ready", async || {
            prometheus.get("/-/ready").await.is_some_and(|answer| answer.contains(" 200 "))
        })
        .await;
        prometheus
    }

    /// Scrape these from now on, and nothing else.
    pub fn scrape(&self, addresses: &[&str]) {
        let targets = serde_json::json!([{ "targets": addresses }]).to_string();
        self.folder.write("targets.new", &targets);
        // Read by a process that looks at any moment.
        let path = |name: &str| self.folder.0.join(name);
        std::fs::rename(path("targets.new"), path("targets.json")).unwrap();
    }

    /// What a query answers, which must be without an error.
    pub async fn query(&self, query: &str) -> Vec<Value> {
        let encoded: String =
            query.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
        let answer = self.json(&format!("/api/v1/query?query={encoded}")).await;
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().unwrap().clone()
    }

    /// The names of the alarms that fire.
    pub async fn firing(&self) -> Vec<String> {
        let answer = self.json("/api/v1/alerts").await;
        let alerts = answer["data"]["alerts"].as_array().unwrap().iter();
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        let mut names: Vec<String> =
            firing.map(|alert| alert["labels"]["alertname"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names.dedup();
        names
    }

    async fn json(&self, path: &str) -> Value {
        let answer = self.get(path).await.expect("Prometheus answers");
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    async fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(&self.address).await.ok()?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    }
}
