//! What a run costs before its script does anything. Run in release, on a machine with nothing else to do:
//! `cargo test --release --package symphony-connect --lib a_trivial_run_costs -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use symphony::lanes::triggers::executor::Executor as _;

use super::{executor, handler, in_words, request};

const RUNS: u32 = 5_000;
const ROUNDS: u32 = 7;

#[tokio::test]
#[ignore = "a measurement"]
async fn a_trivial_run_costs_what_it_is_said_to() {
    let executor = executor();
    let trivial = request(&handler("return 1"));
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        for _ in 0..RUNS {
            assert_eq!(in_words(&executor.run(&trivial).await), "1");
        }
        best = best.min(started.elapsed() / RUNS);
    }
    println!("a trivial run takes {best:?}");
    assert!(best < Duration::from_millis(1), "{best:?}");
}
