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

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::str::FromStr;

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;
use symphony::FieldError;
use symphony::json::{self, Members};

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

/// Requests look through the script one by one.
const SCRIPT_ITEMS_MAX: usize = 10_000;

impl Plan {
    /// Read a plan from JSON.
    pub fn from_json(text: &[u8]) -> Result<Self, FieldError> {
        let value = serde_json::from_slice(text)
            .map_err(|error| FieldError::new("the plan", format!("is no JSON: {error}")))?;
        let plan = Self::read(value)?;
        plan.check()?;
        Ok(plan)
    }

    /// Whether it does nothing at all.
    pub fn is_empty(&self) -> bool {
        self.per_mille.is_empty() && self.inquiry_per_mille.is_empty() && self.script.is_empty()
    }

    pub(super) fn check(&self) -> Result<(), FieldError> {
        let shares = [
            ("per_mille", self.per_mille.values().copied().map(u32::from).sum::<u32>()),
            ("inquiry_per_mille", self.inquiry_per_mille.values().copied().map(u32::from).sum()),
        ];
        for (field, sum) in shares {
            if sum > 1000 {
                return Err(FieldError::new(field, format!("adds up to {sum}: 1000 at most")));
            }
        }
        if self.script.len() > SCRIPT_ITEMS_MAX {
            return Err(FieldError::new("script", format!("has over {SCRIPT_ITEMS_MAX} items")));
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

    fn read(value: &RawValue) -> Result<Self, FieldError> {
        let mut plan = Self::default();
        for (field, value) in Members::read("the plan", value)?.iter() {
            match field {
                "seed" => {
                    plan.seed = (value.get().parse())
                        .map_err(|_| FieldError::new("seed", "must be a whole number from 0"))?;
                }
                "per_mille" => plan.per_mille = shares(field, value)?,
                "inquiry_per_mille" => plan.inquiry_per_mille = shares(field, value)?,
                "script" => {
                    plan.script = json::list("script", value)?
                        .into_iter()
                        .enumerate()
                        .map(|(index, item)| script_item(&format!("script[{index}]"), item))
                        .collect::<Result<_, _>>()?;
                }
                _ => {
                    let known = "is unknown: use seed, per_mille, inquiry_per_mille or script";
                    return Err(FieldError::new(field, known));
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

impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(&Box::<RawValue>::deserialize(deserializer)?).map_err(de::Error::custom)
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

fn script_item(at: &str, value: &RawValue) -> Result<ScriptItem, FieldError> {
    let mut matches = Vec::new();
    let (mut faults, mut inquiry_faults) = (VecDeque::new(), VecDeque::new());
    for (field, value) in Members::read(at, value)?.iter() {
        let at = format!("{at}.{field}");
        match field {
            "key" => matches.push(Matches::Key(text(&at, value)?)),
            "instruction" => matches.push(Matches::Instruction(text(&at, value)?)),
            "any" if value.get() == "true" => matches.push(Matches::Any),
            "any" => return Err(FieldError::new(at, "can only be true")),
            "faults" => faults = fault_list(&at, value)?,
            "inquiry_faults" => inquiry_faults = fault_list(&at, value)?,
            _ => {
                let known = "is unknown: use key, instruction or any, faults and inquiry_faults";
                return Err(FieldError::new(at, known));
            }
        }
    }
    match (matches.pop(), matches.is_empty()) {
        (Some(matches), true) => Ok(ScriptItem { matches, faults, inquiry_faults }),
        _ => Err(FieldError::new(at, "must have exactly one of key, instruction and any")),
    }
}

fn text(at: &str, value: &RawValue) -> Result<String, FieldError> {
    json::text_of(at, value, "text").map(Cow::into_owned)
}

fn shares<F: FromStr<Err = String> + Ord>(
    at: &str,
    value: &RawValue,
) -> Result<BTreeMap<F, u16>, FieldError> {
    let share = |(name, value): (&str, &RawValue)| {
        let at = format!("{at}.{name}");
        let fault = name.parse().map_err(|problem| FieldError::new(&at, problem))?;
        match value.get().parse() {
            Ok(share @ 0..=1000) => Ok((fault, share)),
            _ => Err(FieldError::new(at, "must be a whole number from 0 to 1000")),
        }
    };
    Members::read(at, value)?.iter().map(share).collect()
}

fn fault_list<F: FromStr<Err = String>>(
    at: &str,
    value: &RawValue,
) -> Result<VecDeque<F>, FieldError> {
    let fault = |(index, value): (usize, &RawValue)| {
        let at = format!("{at}[{index}]");
        text(&at, value)?.parse().map_err(|problem: String| FieldError::new(at, problem))
    };
    json::list(at, value)?.into_iter().enumerate().map(fault).collect()
}
