//! What the suite found, for people and for tests.

use std::fmt;

/// How one claim came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// It holds.
    Passed,
    /// It does not, and this is what happened.
    Failed(String),
    /// Nobody promised it, or the provider cannot put it to the test.
    NotApplicable(String),
}

/// One claim and how it came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The claim, as a sentence.
    pub name: &'static str,
    /// How it came out.
    pub outcome: ClaimOutcome,
}

/// Every claim, in the order it was checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The claims.
    pub claims: Vec<Claim>,
}

/// Why a claim did not pass.
pub(crate) enum Stop {
    Failed(String),
    NotApplicable(String),
}

pub(crate) type Ruling = Result<(), Stop>;

pub(crate) fn require(holds: bool, otherwise: impl Into<String>) -> Ruling {
    if holds { Ok(()) } else { Err(Stop::Failed(otherwise.into())) }
}

impl Report {
    pub(crate) fn add(&mut self, name: &'static str, ruling: Ruling) {
        let outcome = match ruling {
            Ok(()) => ClaimOutcome::Passed,
            Err(Stop::Failed(why)) => ClaimOutcome::Failed(why),
            Err(Stop::NotApplicable(why)) => ClaimOutcome::NotApplicable(why),
        };
        self.claims.push(Claim { name, outcome });
    }

    /// No claim failed. What does not apply does not count against a rail.
    pub fn passed(&self) -> bool {
        !self.claims.iter().any(|claim| matches!(claim.outcome, ClaimOutcome::Failed(_)))
    }

    /// The outcome of a claim, by its name.
    pub fn outcome(&self, name: &str) -> Option<&ClaimOutcome> {
        self.claims.iter().find(|claim| claim.name == name).map(|claim| &claim.outcome)
    }

    fn count(&self, which: impl Fn(&ClaimOutcome) -> bool) -> usize {
        self.claims.iter().filter(|claim| which(&claim.outcome)).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for claim in &self.claims {
            let (word, why) = match &claim.outcome {
                ClaimOutcome::Passed => ("passed", None),
                ClaimOutcome::Failed(why) => ("FAILED", Some(why)),
                ClaimOutcome::NotApplicable(why) => ("not applicable", Some(why)),
            };
            writeln!(f, "{word:<14}  {}", claim.name)?;
            if let Some(why) = why {
                writeln!(f, "{:<14}    {why}", "")?;
            }
        }
        let passed = self.count(|outcome| *outcome == ClaimOutcome::Passed);
        let failed = self.count(|outcome| matches!(outcome, ClaimOutcome::Failed(_)));
        let rest = self.claims.len().saturating_sub(passed).saturating_sub(failed);
        write!(f, "{passed} passed, {failed} failed, {rest} not applicable")
    }
}
