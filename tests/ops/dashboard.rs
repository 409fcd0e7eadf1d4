//! Every query of the dashboard, in a real Prometheus that scrapes a real run.

use std::collections::BTreeSet;

use serde_json::Value;

use super::file;
use super::rules::{asked, rendered};
use super::stage::Stage;
use crate::consumers::program::Program;
use crate::support::brokers::required_or_skip;
use crate::support::prometheus::prometheus_or_skip;
use crate::support::until;

fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&file("ops/grafana/symphony.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_query_of_the_dashboard_asks_for_figures_that_the_product_renders() {
    let rendered = rendered();
    for query in queries() {
        let asked = asked(&query);
        assert!(!asked.is_empty(), "{query}");
        assert!(asked.is_subset(&rendered), "{query} asks for {asked:?}");
    }
}

/// Labels that may be on the page; whatever else would be a label that somebody's input can grow.
const LABELS: &[&str] =
    &["lane", "state", "rail", "bus", "topic", "answer", "kind", "le", "consumer", "reason"];

#[tokio::test]
async fn every_query_of_the_dashboard_has_an_answer_while_a_worker_and_a_consumer_run() {
    required_or_skip!();
    prometheus_or_skip!();
    let stage = Stage::new(&file("ops/prometheus/symphony.rules.yml"), Program::default()).await;
    let worker = stage.worker_of("payments,events,triggers").await;
    stage.scrape(&[&worker]);
    stage.pay(20).await;
    stage.run(20).await;
    stage.tell(0..20, 0).await;
    stage.until_paid().await;
    stage.until_applied(19).await;
    for query in queries() {
        let query = query.replace("$__rate_interval", "1m");
        until(&query, async || !stage.prometheus.query(&query).await.is_empty()).await;
    }
    let labels: BTreeSet<String> = stage
        .prometheus
        .query("{job=\"symphony\"}")
        .await
        .iter()
        .flat_map(|sample| sample["metric"].as_object().unwrap().keys().cloned())
        .filter(|label| !["__name__", "instance", "job"].contains(&label.as_str()))
        .collect();
    for label in labels {
        assert!(LABELS.contains(&label.as_str()), "{label} is no label of ours");
    }
}
