//! The fault plan, as people write it in JSON.
//!
//! ```json
//! {"seed": 7,
//!  "per_mille": {"delay:50": 20, "reset_after": 10, "refuse:AC04": 5},
//!  "inquiry_per_mille": {"error:503": 50, "hang": 5},
//!  "script": [{"instruction": "inv-7", "faults": ["hang_after", "none", "reset_before"]},
//!             {"any": true, "inquiry_faults": ["garbage"]}]}
//! ```
//!
//! The script comes first: the first item that matches and has a fault left gives it, in order. Whatever the script
//! leaves alone meets the dice.

use std::collections::{BTreeMap, VecDeque};
use std::str::FromStr;

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

use super::faults::{Fault, InquiryFault};

/// Which faults strike, how often and whom.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Where the dice start.
    pub seed: u64,
    /// How many of a thousand transfers meet each fault; together at most 1000.
    pub per_mille: BTreeMap<Fault, u16>,
    /// How many of a thousand inquiries meet each fault; together at most 1000.
    pub inquiry_per_mille: BTreeMap<InquiryFault, u16>,
    /// Faults for certain requests, used up one by one.
    pub script: Vec<ScriptItem>,
}

/// Faults for the next requests of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptItem {
    /// Whose requests.
    pub matches: Matches,
    /// For transfers, the next one first.
    pub faults: VecDeque<Fault>,
    /// For inquiries, the next one first.
    pub inquiry_faults: VecDeque<InquiryFault>,
}

/// Whose requests a script item is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Matches {
    /// Those under this idempotency key.
    Key(String),
    /// Those whose header Symphony-Instruction-Id says this.
    Instruction(String),
    /// All.
    Any,
}

/// What is wrong with a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct PlanError {
    /// Where, such as `script[0].faults[2]`.
    pub field: String,
    /// What would be right.
    pub problem: String,
}

/// Requests look through the script one by one.
const SCRIPT_ITEMS_MAX: usize = 10_000;

impl Plan {
    /// Read a plan from JSON.
    pub fn from_json(text: &[u8]) -> Result<Self, PlanError> {
        let value = serde_json::from_slice(text)
            .map_err(|error| PlanError::new("the plan", format!("is no JSON: {error}")))?;
        let plan = Self::from_value(value)?;
        plan.check()?;
        Ok(plan)
    }

    /// Whether it does nothing at all.
    pub fn is_empty(&self) -> bool {
        self.per_mille.is_empty() && self.inquiry_per_mille.is_empty() && self.script.is_empty()
    }

    pub(super) fn check(&self) -> Result<(), PlanError> {
        let shares = [
            ("per_mille", self.per_mille.values().copied().map(u32::from).sum::<u32>()),
            ("inquiry_per_mille", self.inquiry_per_mille.values().copied().map(u32::from).sum()),
        ];
        for (field, sum) in shares {
            if sum > 1000 {
                return Err(PlanError::new(field, format!("adds up to {sum}: 1000 at most")));
            }
        }
        if self.script.len() > SCRIPT_ITEMS_MAX {
            return Err(PlanError::new("script", format!("has over {SCRIPT_ITEMS_MAX} items")));
        }
        Ok(())
    }

    /// Take the next scripted fault for a request, if there is one.
    pub(super) fn scripted<F>(
        &mut self,
        key: &str,
        instruction: Option<&str>,
        mut next: impl FnMut(&mut ScriptItem) -> Option<F>,
    ) -> Option<F> {
        let mut found = None;
        for (index, item) in self.script.iter_mut().enumerate() {
            let matches = match &item.matches {
                Matches::Key(wanted) => wanted == key,
                Matches::Instruction(wanted) => instruction == Some(wanted),
                Matches::Any => true,
            };
            if matches && let Some(fault) = next(item) {
                found =
                    Some((index, fault, item.faults.is_empty() && item.inquiry_faults.is_empty()));
                break;
            }
        }
        let (index, fault, used_up) = found?;
        if used_up {
            self.script.remove(index);
        }
        Some(fault)
    }

    fn from_value(value: Value) -> Result<Self, PlanError> {
        let mut plan = Self::default();
        for (field, value) in object("the plan", value)? {
            match field.as_str() {
                "seed" => {
                    plan.seed = value
                        .as_u64()
                        .ok_or_else(|| PlanError::new("seed", "must be a whole number from 0"))?;
                }
                "per_mille" => plan.per_mille = shares(&field, value)?,
                "inquiry_per_mille" => plan.inquiry_per_mille = shares(&field, value)?,
                "script" => {
                    plan.script = list("script", value)?
                        .into_iter()
                        .enumerate()
                        .map(|(index, item)| script_item(&format!("script[{index}]"), item))
                        .collect::<Result<_, _>>()?;
                }
                _ => {
                    let known = "is unknown: use seed, per_mille, inquiry_per_mille or script";
                    return Err(PlanError::new(field, known));
                }
            }
        }
        Ok(plan)
    }
}

impl ScriptItem {
    /// Transfers of a kind meet these faults, one after the other.
    pub fn new(matches: Matches, faults: impl IntoIterator<Item = Fault>) -> Self {
        Self { matches, faults: faults.into_iter().collect(), inquiry_faults: VecDeque::new() }
    }
}

impl PlanError {
    fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_value(Value::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl Serialize for ScriptItem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        match &self.matches {
            Matches::Key(key) => map.serialize_entry("key", key)?,
            Matches::Instruction(id) => map.serialize_entry("instruction", id)?,
            Matches::Any => map.serialize_entry("any", &true)?,
        }
        map.serialize_entry("faults", &self.faults)?;
        map.serialize_entry("inquiry_faults", &self.inquiry_faults)?;
        map.end()
    }
}

fn script_item(at: &str, value: Value) -> Result<ScriptItem, PlanError> {
    let mut matches = Vec::new();
    let (mut faults, mut inquiry_faults) = (VecDeque::new(), VecDeque::new());
    for (field, value) in object(at, value)? {
        let at = format!("{at}.{field}");
        match (field.as_str(), value) {
            ("key", Value::String(key)) => matches.push(Matches::Key(key)),
            ("instruction", Value::String(id)) => matches.push(Matches::Instruction(id)),
            ("any", Value::Bool(true)) => matches.push(Matches::Any),
            ("key" | "instruction", _) => return Err(PlanError::new(at, "must be text")),
            ("any", _) => return Err(PlanError::new(at, "can only be true")),
            ("faults", value) => faults = fault_list(&at, value)?,
            ("inquiry_faults", value) => inquiry_faults = fault_list(&at, value)?,
            _ => {
                let known = "is unknown: use key, instruction or any, faults and inquiry_faults";
                return Err(PlanError::new(at, known));
            }
        }
    }
    match (matches.pop(), matches.is_empty()) {
        (Some(matches), true) => Ok(ScriptItem { matches, faults, inquiry_faults }),
        _ => Err(PlanError::new(at, "must have exactly one of key, instruction and any")),
    }
}

fn shares<F: FromStr<Err = String> + Ord>(
    at: &str,
    value: Value,
) -> Result<BTreeMap<F, u16>, PlanError> {
    let share = |(name, value): (String, Value)| {
        let at = format!("{at}.{name}");
        let fault = name.parse().map_err(|problem| PlanError::new(&at, problem))?;
        let share = value.as_u64().filter(|share| *share <= 1000);
        match share.and_then(|share| u16::try_from(share).ok()) {
            Some(share) => Ok((fault, share)),
            None => Err(PlanError::new(at, "must be a whole number from 0 to 1000")),
        }
    };
    object(at, value)?.into_iter().map(share).collect()
}

fn fault_list<F: FromStr<Err = String>>(at: &str, value: Value) -> Result<VecDeque<F>, PlanError> {
    let fault = |(index, value): (usize, Value)| {
        let text = value.as_str().ok_or_else(|| "must be text".to_owned());
        text.and_then(str::parse)
            .map_err(|problem| PlanError::new(format!("{at}[{index}]"), problem))
    };
    list(at, value)?.into_iter().enumerate().map(fault).collect()
}

fn object(at: &str, value: Value) -> Result<Map<String, Value>, PlanError> {
    match value {
        Value::Object(map) => Ok(map),
        _ => Err(PlanError::new(at, "must be an object")),
    }
}

fn list(at: &str, value: Value) -> Result<Vec<Value>, PlanError> {
    match value {
        Value::Array(items) => Ok(items),
        _ => Err(PlanError::new(at, "must be a list")),
    }
}
