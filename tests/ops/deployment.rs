//! The unit and the manifests say what the real program and the real configuration understand.

use std::process::Command;

use clap::Parser as _;
use serde_json::Value;
use symphony_server::cli::Cli;

use super::{file, path};
use crate::support::brokers::{python, required_or_skip};
use crate::support::folder::Folder;

/// A file with several documents, as a YAML parser reads it.
async fn documents(name: &str) -> Vec<Value> {
    let script =
        "import json, sys, yaml\nprint(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    let read = python(script, &[path(name).to_str().unwrap()]).await;
    serde_json::from_str(&read).unwrap()
}

/// The real parser understands these arguments, and `symphony` would refuse nothing of this configuration.
fn check(arguments: &[&str], config: &str) {
    let cli = Cli::try_parse_from([&["symphony"], arguments].concat()).unwrap();
    assert!(matches!(cli.command, symphony_server::cli::Command::Run(_)), "{arguments:?}");
    assert_eq!(cli.global.config, Some("/etc/symphony/symphony.toml".into()));
    let folder = Folder::new();
    let told = Command::new(env!("CARGO_BIN_EXE_symphony"))
        .args(["config", "--check", "--config"])
        .arg(folder.write("symphony.toml", config))
        .env_remove("DATABASE_URL")
        .env("SEPA_SIGNING_SECRET", "x".repeat(32))
        .output()
        .unwrap();
    assert!(told.status.success(), "{told:?}");
}

#[tokio::test]
async fn the_kubernetes_example_is_yaml_with_arguments_and_a_configuration_that_run() {
    required_or_skip!();
    let documents = documents("ops/kubernetes/symphony.yaml").await;
    let of_kind = |kind: &str| {
        documents
            .iter()
            .find(|document| document["kind"] == kind)
            .unwrap_or_else(|| panic!("{kind}"))
    };
    let pod = &of_kind("Deployment")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let arguments: Vec<&str> =
        container["args"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    let config = of_kind("ConfigMap")["data"]["symphony.toml"].as_str().unwrap();
    check(&arguments, config);
    for (probe, page) in
        [("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")]
    {
        assert_eq!(container[probe]["httpGet"]["path"], page, "{probe}");
    }
    let port = container["ports"][0]["containerPort"].as_u64().unwrap();
    assert!(config.contains(&format!(":{port}\"")), "api.listen is the container's port {port}");
    // A session lives in one process, and there are several: whoever has signed in comes back to it.
    let service = &of_kind("Service")["spec"];
    assert_eq!(service["selector"], of_kind("Deployment")["spec"]["selector"]["matchLabels"]);
    assert_eq!(service["ports"][0]["targetPort"], container["ports"][0]["name"]);
    assert_eq!(service["sessionAffinity"], "ClientIP");
    assert_eq!(service["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"], 12 * 3_600);
    // Secrets come by reference, and nothing of one is written down.
    for variable in container["env"].as_array().unwrap() {
        assert!(variable["valueFrom"]["secretKeyRef"]["key"].is_string(), "{variable}");
        assert!(variable.get("value").is_none(), "{variable}");
    }
    let security = &container["securityContext"];
    assert_eq!(security["readOnlyRootFilesystem"], true);
    assert_eq!(security["allowPrivilegeEscalation"], false);
    assert_eq!(security["capabilities"]["drop"][0], "ALL");
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert!(container["resources"]["limits"]["memory"].is_string());
    let uid = pod["securityContext"]["runAsUser"].as_u64().unwrap();
    assert!(file("Containerfile").contains(&format!("USER {uid}:{uid}")));
}

#[tokio::test]
async fn the_rules_and_their_tests_are_yaml() {
    required_or_skip!();
    for name in [
        "ops/prometheus/symphony.rules.yml",
        "ops/prometheus/symphony.rules.test.yml",
        "ops/prometheus/prometheus.example.yml",
    ] {
        assert_eq!(documents(name).await.len(), 1, "{name}");
    }
}

#[test]
fn the_unit_is_right_and_starts_what_is_understood() {
    let unit = file("ops/systemd/symphony.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let mut words = start.split(' ');
    assert_eq!(words.next(), Some("/usr/local/bin/symphony"));
    check(
        &words.collect::<Vec<_>>(),
        "[rails.bank]\nkind = \"sandbox\"\nurl = \"http://127.0.0.1:1\"\n",
    );
    let analyze = |arguments: &[&str]| Command::new("systemd-analyze").args(arguments).output();
    if analyze(&["--version"]).is_err() {
        println!("passed over: no systemd-analyze");
        return;
    }
    // With a program that is there.
    let folder = Folder::new();
    let here = unit.replace("/usr/local/bin/symphony", env!("CARGO_BIN_EXE_symphony"));
    let verified = folder.write("symphony.service", &here);
    let told = analyze(&["verify", "--man=no", verified.to_str().unwrap()]).unwrap();
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.status.success() && !said.contains("symphony.service"), "{said}");
}
