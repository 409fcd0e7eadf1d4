//! `ops/`: the alarms and the dashboard in a real Prometheus over real processes; unit and manifests with the real command line.

mod dashboard;
mod deployment;
mod night;
mod rules;
mod stage;

use std::path::PathBuf;

fn file(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}
