//! What one configures about scripts.

use serde::Deserialize;
use symphony::FieldErrors;

use crate::executors::output::OutputLimits;
use crate::settings::Defects;

/// The limits of every run, and how many runs there are at once.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptSettings {
    /// Everything a script holds at once. Default 33,554,432.
    pub memory_max_bytes: usize,
    /// How deep it may call. Default 524,288.
    pub stack_max_bytes: usize,
    /// How much it may answer, want and log.
    pub output: OutputLimits,
    /// Runs at once; each has a thread of its own while it lasts. Default 16.
    pub concurrency_max: usize,
    /// Runs of one app at once, so that none takes every slot. Default 8.
    pub concurrency_max_per_app: usize,
    /// Threads that do not come back before this process runs no more scripts: each holds memory, and a share of a core.
    /// Default 64.
    pub threads_stuck_max: usize,
    /// Calls of `fetch` in one run. Default 16.
    pub fetches_max: u32,
}

impl Default for ScriptSettings {
    fn default() -> Self {
        Self {
            memory_max_bytes: 32 << 20,
            stack_max_bytes: 512 << 10,
            output: OutputLimits::default(),
            concurrency_max: 16,
            concurrency_max_per_app: 8,
            threads_stuck_max: 64,
            fetches_max: 16,
        }
    }
}

impl ScriptSettings {
    /// What is wrong with them, if anything.
    pub fn check(&self) -> Result<(), FieldErrors> {
        let mut defects = Defects::default();
        // Less does not hold the engine's own objects and the host API.
        defects.within("memory_max_bytes", self.memory_max_bytes, 1 << 20, 1 << 30);
        defects.within("stack_max_bytes", self.stack_max_bytes, 64 << 10, 8 << 20);
        defects.within("concurrency_max", self.concurrency_max, 1, 1_000);
        let most = self.concurrency_max.clamp(1, 1_000);
        defects.within("concurrency_max_per_app", self.concurrency_max_per_app, 1, most);
        defects.within("threads_stuck_max", self.threads_stuck_max, 1, 1_000);
        defects.note(self.output.check().map_err(|error| error.within("output")));
        defects.into_result()
    }
}
