//! The executors that there are, by the suite; and that the suite finds what is wrong.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::RawValue;
use symphony::lanes::triggers::executor::{
    Departure, Effect, Entry, Execution, Executor, Listed, Request, RunOutcome, ScriptStore, Slot,
    UnstoredHeaders,
};
use uuid::Uuid;

use super::{Behaviour, ClaimOutcome, Probe, REQUEST_PAYLOAD, check};
use crate::executors::test_server::{TestServer, whole_answer};
use crate::executors::{
    FetchSettings, Fetcher, HttpExecutor, OutputLimits, ScriptExecutor, ScriptSettings,
};

fn request(source: &str, url: Option<String>, timeout: Duration) -> Request {
    Request {
        execution_id: Uuid::new_v4(),
        app_id: Uuid::from_u128(1),
        app: "checked".to_owned(),
        script: "checked".to_owned(),
        source: source.into(),
        file: "script.js".into(),
        modules: std::sync::Arc::default(),
        url,
        source_kind: "queue".to_owned(),
        payload: RawValue::from_string(REQUEST_PAYLOAD.to_owned()).unwrap().into(),
        unstored_headers: UnstoredHeaders::default(),
        origin_principal: None,
        principal: None,
        depth: 0,
        root_execution_id: Uuid::new_v4(),
        attempt: 3,
        timeout,
        slot: Slot::default(),
        departure: Departure::default(),
        traceparent: None,
    }
}

/// Nothing can be written through it, so no effect can be made.
struct EmptyStore;

#[async_trait]
impl ScriptStore for EmptyStore {
    async fn kv_get(&self, _: Uuid, _: &str) -> Result<Option<Entry>, String> {
        Ok(None)
    }

    async fn kv_list(&self, _: Uuid, _: &str, _: Option<&str>, _: u32) -> Result<Listed, String> {
        Ok(Listed { keys: Vec::new(), digest: String::new() })
    }
}

struct Scripts;

impl Probe for Scripts {
    fn request(&self, behaviour: &Behaviour, timeout: Duration) -> Option<Request> {
        const EFFECTS: &str = "kv.set('k', 1); queue.send('q', 2); pubsub.publish('t', 3);";
        let body = match behaviour {
            Behaviour::Returns(json) => format!("return JSON.parse({json:?})"),
            Behaviour::TellsRequest => {
                "return { payload: request.payload, attempt: request.attempt, app: request.app }"
                    .to_owned()
            }
            Behaviour::Fails => format!("{EFFECTS} throw new Error('two\\nlines'.repeat(1000))"),
            Behaviour::Hangs => format!("{EFFECTS} for (;;) {{}}"),
            Behaviour::TakesMemory => {
                "const all = []; for (;;) all.push(new Array(1000).fill('x'))".to_owned()
            }
            Behaviour::ReturnsTooMuch => "return 'x'.repeat(1 << 20)".to_owned(),
            Behaviour::MakesEffects => format!("{EFFECTS} return 'done'"),
            Behaviour::MakesTooManyEffects => {
                "for (let n = 0; n < 2000; n++) kv.set('k' + n, n)".to_owned()
            }
            Behaviour::Logs => "console.warn('one'); console.error('two')".to_owned(),
            Behaviour::LogsTooMuch => {
                "for (let n = 0; n < 20000; n++) log('x'.repeat(1000))".to_owned()
            }
            Behaviour::IsBroken => return Some(request("export default {{{", None, timeout)),
            Behaviour::CountsRuns => {
                "globalThis.runs = (globalThis.runs ?? 0) + 1; return globalThis.runs".to_owned()
            }
            Behaviour::IsAway => return None,
        };
        let source = format!("export default function (request) {{ {body} }}");
        Some(request(&source, None, timeout))
    }

    fn effects_made(&self) -> usize {
        0
    }
}

#[tokio::test]
async fn scripts_keep_every_claim_of_the_suite() {
    let fetcher = Arc::new(Fetcher::new(&FetchSettings::default()).unwrap());
    let executor =
        ScriptExecutor::new(ScriptSettings::default(), Arc::new(EmptyStore), fetcher).unwrap();
    let report = check(&executor, &Scripts).await;
    assert!(report.passed(), "{report}");
    let skipped = report.outcome("what is away is away, and no failure of the script");
    assert!(matches!(skipped, Some(ClaimOutcome::NotApplicable(_))), "{report}");
}

/// A server that behaves as the path says, which is a number of this list.
struct Urls {
    base: String,
    behaviours: Arc<Mutex<HashMap<String, Behaviour>>>,
}

impl Urls {
    async fn start() -> (Self, TestServer) {
        let behaviours: Arc<Mutex<HashMap<String, Behaviour>>> = Arc::default();
        let known = Arc::clone(&behaviours);
        let server = TestServer::deciding(move |text| {
            let path = text.split(' ').nth(1).unwrap();
            let behaviour = known.lock().unwrap().get(path).cloned().unwrap();
            answer(&behaviour, text)
        })
        .await;
        (Self { base: server.url.clone(), behaviours }, server)
    }
}

fn answer(behaviour: &Behaviour, text: &str) -> String {
    let effects = r#"[{"kind":"kv_set","key":"k","value":1},{"kind":"queue_send","queue":"q","message":2},{"kind":"pubsub_publish","topic":"t","message":3}]"#;
    let body = match behaviour {
        Behaviour::Returns(json) => json.clone(),
        Behaviour::TellsRequest => {
            let (_, body) = text.split_once("\r\n\r\n").unwrap();
            let told: serde_json::Value = serde_json::from_str(body).unwrap();
            serde_json::json!({ "payload": told["payload"], "attempt": told["attempt"], "app": told["app"] })
                .to_string()
        }
        Behaviour::Fails => {
            return whole_answer(500, &format!(r#"{{"value":1,"effects":{effects}}}"#));
        }
        Behaviour::Hangs => return String::new(),
        Behaviour::TakesMemory => {
            let endless = "x".repeat(32 << 20);
            return format!("HTTP/1.1 200 x\r\nConnection: close\r\n\r\n\"{endless}");
        }
        Behaviour::ReturnsTooMuch => format!("\"{}\"", "x".repeat(1 << 19)),
        Behaviour::MakesEffects => format!(r#"{{"value":"done","effects":{effects}}}"#),
        Behaviour::MakesTooManyEffects => {
            let many = vec![r#"{"kind":"kv_delete","key":"k"}"#; 2000].join(",");
            format!(r#"{{"value":1,"effects":[{many}]}}"#)
        }
        Behaviour::Logs => {
            r#"{"value":null,"logs":[{"level":"warn","at_ms":1,"message":"one"},{"level":"error","at_ms":2,"message":"two"}]}"#.to_owned()
        }
        Behaviour::LogsTooMuch => {
            let line = format!(r#"{{"level":"info","at_ms":1,"message":"{}"}}"#, "x".repeat(1000));
            format!(r#"{{"value":null,"logs":[{}]}}"#, vec![line; 500].join(","))
        }
        Behaviour::IsBroken | Behaviour::CountsRuns => "not JSON".to_owned(),
        Behaviour::IsAway => return whole_answer(503, ""),
    };
    whole_answer(200, &body)
}

impl Probe for Urls {
    fn request(&self, behaviour: &Behaviour, timeout: Duration) -> Option<Request> {
        if *behaviour == Behaviour::CountsRuns {
            return None;
        }
        let path = format!("/{}", Uuid::new_v4());
        self.behaviours.lock().unwrap().insert(path.clone(), behaviour.clone());
        Some(request("", Some(format!("{}{path}", self.base)), timeout))
    }

    fn effects_made(&self) -> usize {
        0
    }
}

#[tokio::test]
async fn scripts_behind_a_url_keep_every_claim_of_the_suite() {
    let (urls, _server) = Urls::start().await;
    let settings = FetchSettings { allow_private_addresses: true, ..FetchSettings::default() };
    let fetcher = Arc::new(Fetcher::new(&settings).unwrap());
    let executor = HttpExecutor::new(fetcher, OutputLimits::default()).unwrap();
    let report = check(&executor, &urls).await;
    assert!(report.passed(), "{report}");
    let skipped = report.outcome("runs share nothing");
    assert!(matches!(skipped, Some(ClaimOutcome::NotApplicable(_))), "{report}");
}

/// Answers everything with one value and an effect, whatever it is asked.
struct Careless;

#[async_trait]
impl Executor for Careless {
    async fn run(&self, _: &Request) -> Execution {
        let value = RawValue::from_string("7".to_owned()).unwrap();
        let effects = vec![Effect::KvDelete { key: "k".to_owned() }];
        Execution { effects, ..Execution::new(RunOutcome::Value(value)) }
    }
}

#[tokio::test]
async fn an_executor_that_does_not_look_fails_nearly_every_claim() {
    let report = check(&Careless, &Scripts).await;
    let failed = report.claims.iter().filter(|c| matches!(c.outcome, ClaimOutcome::Failed(_)));
    assert_eq!(failed.count(), 13, "{report}");
}
