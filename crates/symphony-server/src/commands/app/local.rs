//! A script of a folder, run here without a database: entries are a map, effects are told and not made.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use symphony::lanes::triggers::ScriptAnswer;
use symphony::lanes::triggers::executor::{
    Departure, Effect, Entry, Execution, Executor as _, Listed, LogLine, Request, RunOutcome,
    ScriptStore, Slot, UNNAMED_FILE, UnstoredHeaders,
};
use symphony_connect::executors::{FetchSettings, Fetcher, ScriptExecutor, ScriptSettings};
use uuid::Uuid;

use super::effects::{Committed, Declared, TimesToLive, WrittenQueue};
use super::folder;
use super::served::as_served;
use crate::apps::secrets::value_defect;
use crate::bounds::SCRIPT_TIMEOUT_MS_DEFAULT;
use crate::output::Failure;

/// Entries, each as JSON.
pub(super) type Entries = BTreeMap<String, Box<RawValue>>;

/// Secrets by their names.
pub(super) type Secrets = BTreeMap<String, String>;

/// The same in every run, so that what a script makes of it can be expected.
const EXECUTION_ID: Uuid = Uuid::from_u128(0x0198_a5c0_6f3e_7d1b_8c63_2f1d_7c3b_5a91);

/// The scripts of a folder.
pub(super) struct LocalApp {
    name: String,
    scripts: Vec<LocalScript>,
    routes: Vec<LocalRoute>,
    declared: Declared,
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    scripts: Vec<LocalScript>,
    #[serde(default)]
    routes: Vec<LocalRoute>,
    #[serde(default)]
    queues: Vec<WrittenQueue>,
    #[serde(default)]
    topics: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LocalRoute {
    pub(super) method: String,
    pub(super) path: String,
    script: String,
    mode: Option<String>,
    #[serde(default)]
    pub(super) raw_body: bool,
    pub(super) auth: Option<String>,
}

impl LocalRoute {
    fn is_async(&self) -> bool {
        self.mode.as_deref() == Some("async")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LocalScript {
    name: String,
    source: Option<String>,
    file: Option<String>,
    #[serde(default)]
    modules: BTreeMap<String, String>,
    timeout_ms: Option<u64>,
}

/// A request as somebody writes it down: what is left out is as usual.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WrittenRequest {
    source_kind: Option<String>,
    payload: Option<Box<RawValue>>,
    execution_id: Option<Uuid>,
    attempt: Option<i32>,
}

/// How a run ended.
#[derive(Debug, Serialize)]
pub(super) struct LocalRun {
    /// What the handler returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) answer: Option<Box<RawValue>>,
    /// Its code and message, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<LocalError>,
    /// The entries as they would be after the commit.
    pub(super) kv: Entries,
    /// Those of them that this run gave a time to live.
    #[serde(rename = "ttlSeconds")]
    pub(super) ttl_seconds: TimesToLive,
    /// What else would be done, in order, as SCRIPTS.md has it.
    pub(super) effects: Vec<Effect>,
    /// What it logged.
    pub(super) logs: Vec<LogLine>,
}

#[derive(Debug, Serialize)]
pub(super) struct LocalError {
    pub(super) code: String,
    pub(super) message: String,
}

impl LocalApp {
    /// The scripts of a folder, compiled.
    pub(super) fn read(folder: &Path) -> Result<Self, Failure> {
        let read = folder::read(folder, None)?;
        let manifest: Manifest = serde_json::from_str(read.manifest.get()).map_err(|error| {
            Failure::new(format!("{}: {error}", read.manifest_path.display())).with_code("P7005")
        })?;
        let Manifest { scripts, routes, queues, topics } = manifest;
        Ok(Self { name: read.name, scripts, routes, declared: Declared::new(queues, topics) })
    }

    /// Run one script. `fetches_max`: how often it may call others.
    pub(super) async fn run(
        &self,
        script: &str,
        written: &WrittenRequest,
        kv: Entries,
        secrets: &Secrets,
        fetches_max: u32,
    ) -> Result<LocalRun, Failure> {
        let Some(found) = self.scripts.iter().find(|known| known.name == script) else {
            let known: Vec<&str> = self.scripts.iter().map(|known| known.name.as_str()).collect();
            let problem = format!("there is no script {script:?}: there are {}", known.join(", "));
            return Err(Failure::new(problem));
        };
        let Some(source) = &found.source else {
            return Err(Failure::new(format!("script {script} runs elsewhere: it has a url")));
        };
        let execution_id = written.execution_id.unwrap_or(EXECUTION_ID);
        let source_kind = written.source_kind.clone().unwrap_or_else(|| "http".to_owned());
        let given = written.payload.clone().map_or_else(empty, Ok)?;
        let (payload, unstored_headers) = if source_kind == "http" {
            let routes: Vec<&LocalRoute> =
                self.routes.iter().filter(|route| route.script == script).collect();
            let served = as_served(&given, &routes)?;
            let is_async = !routes.is_empty() && routes.iter().all(|route| route.is_async());
            (
                served.payload,
                if is_async { UnstoredHeaders::default() } else { served.unstored_headers },
            )
        } else {
            (given, UnstoredHeaders::default())
        };
        let request = Request {
            execution_id,
            app_id: Uuid::nil(),
            app: self.name.clone(),
            script: found.name.clone(),
            source: source.as_str().into(),
            file: found.file.as_deref().unwrap_or(UNNAMED_FILE).into(),
            modules: Arc::new(found.modules.clone()),
            url: None,
            source_kind,
            payload: Arc::from(payload),
            unstored_headers,
            origin_principal: None,
            principal: None,
            depth: 0,
            root_execution_id: execution_id,
            attempt: written.attempt.unwrap_or(1),
            timeout: Duration::from_millis(found.timeout_ms.unwrap_or(SCRIPT_TIMEOUT_MS_DEFAULT)),
            slot: Slot::default(),
            departure: Departure::default(),
            traceparent: None,
        };
        for (name, value) in secrets {
            if let Some(defect) = value_defect(value) {
                return Err(Failure::new(format!("secrets.{name} {defect}")));
            }
        }
        let store = Arc::new(MapStore { entries: Mutex::new(kv), secrets: secrets.clone() });
        let settings = ScriptSettings { fetches_max, ..ScriptSettings::default() };
        let fetcher = Fetcher::new(&FetchSettings::default());
        let fetcher = fetcher.map_err(|error| Failure::new(error.to_string()))?;
        let executor = ScriptExecutor::new(settings, Arc::clone(&store) as _, Arc::new(fetcher))
            .map_err(|error| Failure::new(error.to_string()))?;
        let Execution { outcome, logs, effects, .. } = executor.run(&request).await;
        let mut kv = store.entries.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let failed = |code: &str, message: &str| {
            Some(LocalError { code: code.to_owned(), message: message.to_owned() })
        };
        let (answer, mut error) = match &outcome {
            RunOutcome::Value(value) => {
                let read = self.answers_http(&request).then(|| ScriptAnswer::read(value));
                let defect = read.and_then(Result::err);
                (Some(value.clone()), defect.and_then(|d| failed(d.code, &d.problem)))
            }
            RunOutcome::Failed { code, message, .. } | RunOutcome::Away { code, message } => {
                (None, failed(code, message))
            }
            RunOutcome::TimedOut => (None, failed("TIMEOUT", "it took longer than its timeoutMs")),
        };
        // All or nothing: an error leaves the entries as they were.
        let mut applied = kv.clone();
        let effects = if error.is_some() { Vec::new() } else { effects };
        let (ttl_seconds, effects) = match self.declared.commit(&mut applied, effects) {
            Ok(Committed { ttl_seconds, effects }) => {
                kv = applied;
                (ttl_seconds, effects)
            }
            Err(problem) => {
                let problem = format!("nothing of it was applied: {problem}");
                error = failed("EFFECT_REFUSED", &problem);
                Default::default()
            }
        };
        let answer = answer.filter(|_| error.is_none());
        Ok(LocalRun { answer, error, kv, ttl_seconds, effects, logs })
    }

    /// Somebody waits for what it answers, unless all its routes are asynchronous.
    fn answers_http(&self, request: &Request) -> bool {
        let mut routes = self.routes.iter().filter(|route| route.script == request.script);
        let none = self.routes.iter().all(|route| route.script != request.script);
        request.source_kind == "http" && (none || routes.any(|route| !route.is_async()))
    }
}

fn empty() -> Result<Box<RawValue>, Failure> {
    RawValue::from_string("{}".to_owned()).map_err(|error| Failure::new(error.to_string()))
}

/// Entries in memory, all of one app.
struct MapStore {
    entries: Mutex<Entries>,
    secrets: Secrets,
}

#[async_trait]
impl ScriptStore for MapStore {
    async fn kv_get(&self, _app_id: Uuid, key: &str) -> Result<Option<Entry>, String> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let found = entries.get(key).cloned();
        // Nobody writes beside it: one version is enough.
        Ok(found.map(|value| Entry { value, version: "1.1".to_owned() }))
    }

    async fn secret(&self, _app: &str, name: &str) -> Result<Option<String>, String> {
        Ok(self.secrets.get(name).cloned())
    }

    async fn kv_list(
        &self,
        _app_id: Uuid,
        prefix: &str,
        after: Option<&str>,
        keys_max: u32,
    ) -> Result<Listed, String> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = entries.keys().filter(|key| {
            key.starts_with(prefix) && after.is_none_or(|after| key.as_str() > after)
        });
        let keys = keys.take(keys_max as usize).cloned().collect();
        Ok(Listed { keys, digest: String::new() })
    }
}
