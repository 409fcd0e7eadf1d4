//! The two simulated banks: real HTTP servers in this process, which fail on purpose and write down what they did.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use crate::sandbox::{Fault, InquiryFault, Matches, Plan, Record, Sandbox, ScriptItem, Settings};

use super::producers::{
    BLOCKS_ITS_LANE, CANNOT_BE_SETTLED, DOUBTED_IN_ORDER, ORDERED, STORY, ordered,
};
use crate::LabError;

/// Of a thousand transfers, how many meet which fault.
const FAULTS: [(&str, u16); 14] = [
    ("delay:120", 250),
    ("error_before:503", 25),
    ("answer_twice", 15),
    ("error_after:500", 15),
    ("reset_after", 15),
    ("error_before:500", 10),
    ("refuse:AC04", 10),
    ("reset_before", 10),
    ("garbage_after", 8),
    ("hang_after", 6),
    ("garbage_before", 4),
    ("hang_before", 4),
    ("slow_drip_after", 3),
    ("slow_drip_before", 2),
];
/// The same of a thousand inquiries.
const INQUIRY_FAULTS: [(&str, u16); 5] =
    [("delay:100", 100), ("error:503", 60), ("garbage", 20), ("reset", 20), ("hang", 15)];
/// Longer than any demo.
const NEVER_MS: u64 = 86_400_000;

/// The banks.
pub(super) struct Banks {
    /// Deduplicates by key, and can be asked.
    pub(super) main: Sandbox,
    /// Pays again whatever is sent again, and does not find what it has just paid.
    pub(super) forgetful: Sandbox,
}

impl Banks {
    pub(super) async fn open(folder: &Path) -> Result<Self, LabError> {
        let main =
            Settings { faults: random_faults()?, ..Settings::new(folder.join("bank.jsonl")) };
        let mut forgetful = Settings::new(folder.join("forgetful-bank.jsonl"));
        forgetful.settle_ms = NEVER_MS;
        forgetful.key_lifetime_seconds = Some(0);
        forgetful.faults.script = vec![ScriptItem::new(
            Matches::Instruction(CANNOT_BE_SETTLED.to_owned()),
            [Fault::Hang { executes: true }],
        )];
        Ok(Self { main: start(main).await?, forgetful: start(forgetful).await? })
    }

    /// From now on nothing goes wrong by chance; what was scripted still comes.
    pub(super) fn stop_random_faults(&self) -> Result<(), LabError> {
        let script = self.main.faults().plan.script;
        let calm = Plan { script, ..Plan::default() };
        self.main.set_faults(calm).map_err(|error| LabError::new(error.to_string()))
    }

    /// Transfers executed so far.
    pub(super) async fn executed(&self) -> Result<u64, LabError> {
        let mut executed = 0;
        for bank in [&self.main, &self.forgetful] {
            executed +=
                bank.summary().await.map_err(|error| LabError::new(error.to_string()))?.executed;
        }
        Ok(executed)
    }

    /// How many faults struck, by kind; those of inquiries as `inquiry …`.
    pub(super) fn faults(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for report in [self.main.faults(), self.forgetful.faults()] {
            for (kind, times) in report.injected {
                *all.entry(kind.to_owned()).or_default() += times;
            }
            for (kind, times) in report.inquiry_injected {
                *all.entry(format!("inquiry {kind}")).or_default() += times;
            }
        }
        all
    }

    /// Close, and read from the disk what each of them did.
    pub(super) async fn close(self) -> Result<Vec<Record>, LabError> {
        let mut records = Vec::new();
        for bank in [self.main, self.forgetful] {
            let path = bank.record_path().to_owned();
            bank.stop().await.map_err(|error| LabError::new(error.to_string()))?;
            records.push(Record::read(&path).map_err(|error| LabError::new(error.to_string()))?);
        }
        Ok(records)
    }
}

async fn start(settings: Settings) -> Result<Sandbox, LabError> {
    Sandbox::start(settings).await.map_err(|error| LabError::new(error.to_string()))
}

/// Faults by chance, and the few that the story needs.
fn random_faults() -> Result<Plan, LabError> {
    let wrong = |problem: String| LabError::new(format!("the demo's faults: {problem}"));
    let mut plan = Plan { seed: 7, ..Plan::default() };
    for (fault, share) in FAULTS {
        plan.per_mille.insert(fault.parse().map_err(wrong)?, share);
    }
    for (fault, share) in INQUIRY_FAULTS {
        plan.inquiry_per_mille.insert(fault.parse().map_err(wrong)?, share);
    }
    plan.script.push(ScriptItem {
        matches: Matches::Instruction(STORY.to_owned()),
        faults: VecDeque::from([Fault::Hang { executes: true }]),
        inquiry_faults: VecDeque::from([
            InquiryFault::Error { status: 503 },
            InquiryFault::Nothing,
        ]),
    });
    // A strict order is as slow as its slowest payment: only what the story needs goes wrong here.
    for number in 0..ORDERED {
        let faults = match number {
            BLOCKS_ITS_LANE => vec![Fault::Refuse { code: "AC04".to_owned() }, Fault::Nothing],
            DOUBTED_IN_ORDER => vec![Fault::ResetAfter],
            _ => vec![Fault::Nothing],
        };
        plan.script.push(ScriptItem::new(Matches::Instruction(ordered(number)), faults));
    }
    Ok(plan)
}
