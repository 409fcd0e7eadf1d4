//! From the committed transaction to the consumer's effect, while everything between fails: dispatchers are killed,
//! brokers restart, calls are refused, cut, delayed and half done, transactions roll back, handlers fail and a consumer
//! dies. Every committed event is applied once, in order within its key, to the last digit; nothing else is.
//!
//! - `story.rs`: the events, and the producers that commit them with their state, or roll both back.
//! - `stage.rs`: a database, a folder, how far everybody is, and the judge.
//! - `dispatchers.rs`: real `symphony run` processes, two of which are killed.
//! - `effects.rs`: the consumer whose effects are judged.
//! - `faults.rs`: what stands between a dispatcher and SNS.
//! - `sns.rs`, `nats.rs`, `kafka.rs`, `webhooks.rs`: one broker each; `*.py`: independent clients that judge by themselves.
//! - `judge_tests.rs`: the judges, judged.
//!
//! `SYMPHONY_CHAOS_SEED=N` repeats the decisions of an earlier run.

mod dispatchers;
mod effects;
pub(super) mod faults;
mod judge_tests;
#[cfg(feature = "kafka")]
mod kafka;
mod nats;
mod sns;
mod stage;
mod story;
mod webhooks;
