//! A worker with a rail of one's own: pays by printing.
//!
//! ```sh
//! DATABASE_URL=postgres://worker@localhost/shop cargo run -p symphony --features worker --example worker
//! ```
//!
//! The login is a member of `symphony_executor`. A rail for a real provider: examples/rail_of_your_own.rs.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgConnectOptions;
use symphony::db::{Database, RoleSource};
use symphony::engine::{self, BreakerSettings, Engine, EngineSettings, LaneMetrics, Points, Start};
use symphony::lanes::payments::rail::{
    Answer, Endpoint, Inquiry, InquiryTerms, Payment, Rail, Terms,
};
use symphony::lanes::payments::{PaymentLane, RailSetup};
use symphony::money::Defect;

/// Takes every payment, and forgets it.
struct Printer(Terms);

impl Printer {
    fn new() -> Self {
        Self(Terms {
            endpoint: Endpoint::new("printer", "stdout", "", ""),
            timeout: Duration::from_secs(5),
            inquiry_timeout: Duration::from_secs(5),
            // Promise only what the provider promises: money is sent again on the strength of this.
            key_lifetime: Some(Duration::from_hours(24)),
            inquiry: InquiryTerms::Impossible,
        })
    }
}

#[async_trait]
impl Rail for Printer {
    fn terms(&self) -> &Terms {
        &self.0
    }

    fn validate(&self, _payment: &Payment) -> Result<(), Defect> {
        Ok(())
    }

    async fn dispatch(&self, payment: &Payment) -> Answer {
        println!("{}: {:?} under the key {}", payment.instruction_id, payment.amount, payment.key);
        Answer::accepted(payment.key.to_string())
    }

    async fn inquire(&self, _payment: &Payment) -> Inquiry {
        Inquiry::NotFound
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options: PgConnectOptions = std::env::var("DATABASE_URL")?.parse()?;
    let database = Database::connect(options.clone(), 8, RoleSource::Login).await?;
    let rail = RailSetup {
        name: "sepa".to_owned(),
        rail: Arc::new(Printer::new()),
        previous: Vec::new(),
        concurrency_max: 16,
        rate: None,
        breaker: BreakerSettings::default(),
    };
    let worker_id = engine::new_worker_id("example");
    let engine = Engine::start(Start {
        lane: PaymentLane::new(database.worker(), worker_id, vec![rail]),
        database,
        listen: options,
        settings: EngineSettings::default(),
        metrics: Arc::new(LaneMetrics::default()),
        points: Points::default(),
    })?;
    println!("{} works; Ctrl-C stops it", engine.worker_id());
    tokio::select! {
        stopped = tokio::signal::ctrl_c() => stopped?,
        why = engine.broken() => println!("ended: {}", why.unwrap_or_default()),
    }
    // What is in flight may end; what was not sent is given back.
    println!("{} still held", engine.stop().await);
    Ok(())
}
