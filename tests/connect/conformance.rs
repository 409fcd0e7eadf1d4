//! The http rail against the sandbox provider, by the suite that every rail must pass.

use std::path::PathBuf;

use async_trait::async_trait;
use serde_json::value::RawValue;
use symphony::domain::{OutboxId, RailKey};
use symphony::lanes::payments::rail::Payment;
use symphony::money::read_amount;
use symphony_connect::rails::conformance::{ClaimOutcome, Misbehaviour, Provider, Sample, check};
use symphony_connect::rails::http::{HttpRail, HttpRailSettings};
use symphony_lab::sandbox::{Fault, Matches, Plan, Sandbox, ScriptItem, Secret, Settings};
use uuid::Uuid;

struct SandboxProvider(Sandbox);

#[async_trait]
impl Provider for SandboxProvider {
    async fn misbehave(&self, key: RailKey, misbehaviour: Misbehaviour) -> bool {
        let fault = match misbehaviour {
            Misbehaviour::Refuse => Fault::Refuse { code: "AC04".to_owned() },
            Misbehaviour::Busy => Fault::ErrorBefore { status: 429 },
            Misbehaviour::ErrorBefore => Fault::ErrorBefore { status: 503 },
            Misbehaviour::ErrorAfter => Fault::ErrorAfter { status: 503 },
            Misbehaviour::ResetBefore => Fault::ResetBefore,
            Misbehaviour::ResetAfter => Fault::ResetAfter,
            Misbehaviour::Hang => Fault::Hang { executes: true },
            Misbehaviour::AnswerTwice => Fault::AnswerTwice,
            Misbehaviour::Garbage => Fault::Garbage { executes: true },
            Misbehaviour::SlowDrip => Fault::SlowDrip { executes: true },
        };
        let script = vec![ScriptItem::new(Matches::Key(key.to_string()), [fault])];
        self.0.set_faults(Plan { script, ..Plan::default() }).unwrap();
        true
    }

    async fn executions(&self, key: RailKey) -> u64 {
        let record = self.0.record().unwrap();
        record.executions_by_key().get(key.to_string().as_str()).copied().unwrap_or(0)
    }

    async fn forget(&self, _: RailKey) -> bool {
        false
    }
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

#[tokio::test]
async fn the_http_rail_keeps_every_claim_against_the_sandbox() {
    let record: PathBuf =
        std::env::temp_dir().join(format!("symphony-conformance-{}", Uuid::new_v4()));
    let secret = "a secret of this test";
    let sandbox = Sandbox::start(Settings {
        secret: Secret::new(secret.as_bytes()),
        ..Settings::new(&record)
    })
    .await
    .unwrap();
    let url = format!("http://{}/transfers", sandbox.address());
    let rail = HttpRail::new(
        &HttpRailSettings {
            inquiry_url: Some(format!("{url}/{{key}}")),
            url,
            timeout_ms: 500,
            inquiry_timeout_ms: 500,
            key_lifetime_seconds: Some(3_600),
            not_found_code: "NOT_FOUND".to_owned(),
            destination: Some(symphony::money::DestinationRule::Iban),
            signing_secret_env: Some("SECRET".to_owned()),
            allow_private_addresses: true,
            ..HttpRailSettings::default()
        },
        |name| (name == "SECRET").then(|| secret.to_owned()),
    )
    .unwrap();
    let payload = raw(
        r#"{"amount": {"value": "10.00", "currency": "EUR"}, "destination": {"iban": "DE89370400440532013000"}}"#,
    );
    let sample = Sample {
        payment: Payment {
            key: RailKey(Uuid::new_v4()),
            outbox_id: OutboxId(Uuid::new_v4()),
            instruction_id: "conformance".to_owned(),
            participant_id: "acme".to_owned(),
            sequence_id: 1,
            rail_type: "sandbox".to_owned(),
            amount: read_amount(&payload).unwrap(),
            payload,
            traceparent: None,
        },
        wrong_destination: Some(raw(
            r#"{"amount": {"value": "10.00", "currency": "EUR"}, "destination": {"iban": "DE00370400440532013000"}}"#,
        )),
    };
    let provider = SandboxProvider(sandbox);
    let report = check(&rail, &provider, &sample).await;
    println!("{report}");
    assert!(report.passed(), "{report}");
    let passed = report.claims.iter().filter(|claim| claim.outcome == ClaimOutcome::Passed).count();
    assert!(passed >= 18, "most of the suite must apply: {report}");
    provider.0.stop().await.unwrap();
    std::fs::remove_file(&record).unwrap();
}
