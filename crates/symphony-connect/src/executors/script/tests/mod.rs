//! Scripts on the real engine, with entries in a map.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod compiles;
mod cost;
mod fetches;
mod handlers;
mod host_api;
mod limits;
mod prototypes;
#[cfg(feature = "typescript")]
mod typescript;
mod values;
mod web;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::RawValue;
use symphony::lanes::triggers::executor::{
    Departure, Entry, Execution, Executor as _, Listed, Request, RunOutcome, ScriptStore, Slot,
    UnstoredHeaders,
};
use uuid::Uuid;

use super::{ScriptExecutor, ScriptSettings};
use crate::executors::{FetchSettings, Fetcher};

/// Entries of apps, in memory.
#[derive(Default)]
pub(super) struct MapStore {
    pub(super) entries: Mutex<HashMap<(Uuid, String), String>>,
}

#[async_trait]
impl ScriptStore for MapStore {
    async fn kv_get(&self, app_id: Uuid, key: &str) -> Result<Option<Entry>, String> {
        if key == "broken" {
            return Err("the store is away".to_owned());
        }
        if key == "slow" {
            std::future::pending::<()>().await;
        }
        let entries = self.entries.lock().unwrap();
        let found = entries.get(&(app_id, key.to_owned()));
        Ok(found.map(|value| Entry {
            value: RawValue::from_string(value.clone()).unwrap(),
            version: format!("v{}", value.len()),
        }))
    }

    async fn kv_list(
        &self,
        app_id: Uuid,
        prefix: &str,
        after: Option<&str>,
        keys_max: u32,
    ) -> Result<Listed, String> {
        let entries = self.entries.lock().unwrap();
        let mut keys: Vec<String> = entries
            .keys()
            .filter(|(app, key)| {
                *app == app_id && key.starts_with(prefix) && Some(key.as_str()) > after
            })
            .map(|(_, key)| key.clone())
            .collect();
        keys.sort();
        keys.truncate(keys_max as usize);
        let digest = keys.join(" ");
        Ok(Listed { keys, digest })
    }
}

pub(super) const APP: Uuid = Uuid::from_u128(1);
pub(super) const NEIGHBOUR: Uuid = Uuid::from_u128(2);

pub(super) fn executor_with(settings: ScriptSettings, network: &FetchSettings) -> ScriptExecutor {
    let store = MapStore::default();
    for (app, key, value) in [
        (APP, "user:1", r#"{"name":"Ada","balance":1.10}"#),
        (APP, "user:2", "null"),
        (APP, "user:3", "\"three\""),
        (NEIGHBOUR, "user:9", "\"not yours\""),
    ] {
        store.entries.lock().unwrap().insert((app, key.to_owned()), value.to_owned());
    }
    let fetcher = Arc::new(Fetcher::new(network).unwrap());
    ScriptExecutor::new(settings, Arc::new(store), fetcher).unwrap()
}

pub(super) fn executor() -> ScriptExecutor {
    executor_with(ScriptSettings::default(), &FetchSettings::default())
}

pub(super) fn request(source: &str) -> Request {
    Request {
        execution_id: Uuid::from_u128(3),
        app_id: APP,
        app: "shop".to_owned(),
        script: "order".to_owned(),
        source: source.into(),
        file: "script.js".into(),
        modules: std::sync::Arc::default(),
        url: None,
        source_kind: "queue".to_owned(),
        payload: RawValue::from_string(r#"{"message":{"n":7}}"#.to_owned()).unwrap().into(),
        unstored_headers: UnstoredHeaders::default(),
        origin_principal: Some(Uuid::from_u128(4)),
        principal: None,
        depth: 2,
        root_execution_id: Uuid::from_u128(5),
        attempt: 1,
        timeout: Duration::from_secs(20),
        slot: Slot::default(),
        departure: Departure::default(),
        traceparent: None,
    }
}

/// How a run ended, in words: its value, or its code and message.
pub(super) fn in_words(execution: &Execution) -> String {
    match &execution.outcome {
        RunOutcome::Value(value) => value.get().to_owned(),
        RunOutcome::Failed { code, message, retryable } => {
            assert!(execution.effects.is_empty() && message.chars().count() <= 500);
            format!("{code}{} {message}", if *retryable { "" } else { "!" })
        }
        RunOutcome::Away { code, .. } => panic!("a script is never away: {code}"),
        RunOutcome::TimedOut => {
            assert!(execution.effects.is_empty());
            "TimedOut".to_owned()
        }
    }
}

/// Run a handler whose body this is.
pub(super) async fn run(body: &str) -> String {
    in_words(&executor().run(&request(&handler(body))).await)
}

pub(super) fn handler(body: &str) -> String {
    format!("export default function (request) {{ {body} }}")
}
