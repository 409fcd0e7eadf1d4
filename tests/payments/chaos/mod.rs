//! The proof under fire: workers, server, connections and provider fail in every way at once, and every accepted
//! payment is executed exactly once all the same.
//!
//! The judge is the provider's own record, which shares nothing with what it judges (`symphony_lab::judge`). The rest, from
//! the outside in:
//! - `ground.rs`: a folder, a PostgreSQL of its own with fsync, killed with -9 and started again;
//! - `relay.rs`: every client's way to the server, cut around its COMMITs;
//! - `workers.rs`: real `symphony run` processes and their fates;
//! - `producers.rs`, `operator.rs`: those who ask for payments, and the person on duty;
//! - `pauses.rs`: workers paused past their leases;
//! - `director.rs`, `verdict.rs`: the run, from the first payment to the figures;
//! - `dice.rs`: decisions that a seed repeats.
//!
//! `SYMPHONY_CHAOS_SEED=N` repeats the decisions of an earlier run. Time stays real, so that a repeated run is alike
//! and not the same.

pub mod dice;
mod director;
pub mod ground;
mod operator;
mod pauses;
mod producers;
pub mod relay;
mod reused_numbers;
mod verdict;
mod workers;

use director::{Goals, run, run_pooled};

/// A rail of the run; all of them lead to the one provider.
#[derive(Debug, Clone, Copy)]
struct RailPlan {
    name: &'static str,
    /// What happens to the lane when its head fails, if it is strict about order.
    fifo: Option<&'static str>,
}

const RAILS: [RailPlan; 3] = [
    RailPlan { name: "sepa", fifo: None },
    RailPlan { name: "instant", fifo: Some("block") },
    RailPlan { name: "wire", fifo: Some("continue") },
];

pub fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| {
        text.parse().unwrap_or_else(|_| panic!("{variable} must be a number, not {text:?}"))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_accepted_payment_is_executed_exactly_once_under_fire() {
    run(Goals {
        kills: 45,
        each_kill: 2,
        server_kills: 3,
        cut_commits: 30,
        pauses: 4,
        payments: 300,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_accepted_payment_is_executed_exactly_once_through_a_pooler_with_the_documented_grants()
 {
    if crate::support::pooler::found().is_none() {
        return;
    }
    run_pooled(Goals {
        kills: 10,
        each_kill: 0,
        server_kills: 1,
        cut_commits: 8,
        pauses: 1,
        payments: 100,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "many minutes: scripts/chaos"]
async fn every_accepted_payment_is_executed_exactly_once_under_long_fire() {
    let kills = number("SYMPHONY_CHAOS_KILLS").unwrap_or(1_000);
    run(Goals {
        kills,
        each_kill: kills / 50,
        server_kills: number("SYMPHONY_CHAOS_SERVER_KILLS").unwrap_or(50),
        cut_commits: number("SYMPHONY_CHAOS_CUT_COMMITS").unwrap_or(500),
        pauses: kills / 20,
        payments: kills,
    })
    .await;
}
