//! How large the demo is, as the command line says it.

use clap::Args;

/// Options of `demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoOptions {
    /// How many payments the merchants ask for
    #[arg(long, default_value_t = 2_500, value_parser = clap::value_parser!(u32).range(100..=100_000))]
    pub payments: u32,
    /// Over how many seconds
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(4..=600))]
    pub seconds: u32,
}
