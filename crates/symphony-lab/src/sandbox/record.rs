//! The record: what the provider executed and refused, one JSON line each, as a judge reads it.
//!
//! The file is the truth and needs no Symphony to be read: a line is there, whole and ended, or it never happened.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

/// Everything a provider did, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// One per line of the file.
    pub lines: Vec<Line>,
    /// Bytes after the last whole line: a write that a crash cut short, and whose answer therefore never left.
    pub torn_bytes: u64,
}

/// What became of one transfer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Line {
    /// The money moved.
    Executed(Execution),
    /// It did not, and will not under this key.
    Refused(Refusal),
}

/// The money moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Execution {
    /// 1, 2, 3, … without gaps; the reference is `SBX-` and this number.
    pub number: u64,
    /// The idempotency key it came under.
    pub key: String,
    /// From the header Symphony-Instruction-Id.
    pub instruction: Option<String>,
    /// From the header Symphony-Participant-Id.
    pub participant: Option<String>,
    /// From the header Symphony-Sequence-Id.
    pub sequence: Option<i64>,
    /// What exactly was asked for.
    pub body_sha256: BodyHash,
    /// Value and currency as text, such as `10.00 EUR`.
    pub amount: String,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}

/// A transfer that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// Why, such as `AC04`.
    pub code: String,
    /// The idempotency key it came under.
    pub key: String,
    /// From the header Symphony-Instruction-Id.
    pub instruction: Option<String>,
    /// From the header Symphony-Participant-Id.
    pub participant: Option<String>,
    /// From the header Symphony-Sequence-Id.
    pub sequence: Option<i64>,
    /// What exactly was asked for.
    pub body_sha256: BodyHash,
    /// Value and currency as text, if the body said them properly.
    pub amount: Option<String>,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}

/// SHA-256 of a body; hexadecimal in the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BodyHash([u8; 32]);

/// A record in four numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Transfers executed.
    pub executed: u64,
    /// Different keys among them.
    pub keys: u64,
    /// Keys executed more than once: money that moved twice.
    pub executed_twice: u64,
    /// Transfers refused.
    pub refused: u64,
}

/// Why a record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file system said no.
    #[error("the record {path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// A whole line is not what a sandbox writes. It is never skipped: a judge may not overlook a transfer.
    #[error("the record {path}, line {line}: {problem}; repair the file or name another")]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// Two sandboxes on one file would number and deduplicate past each other.
    #[error("the record {path} is in use by another sandbox: name another file")]
    InUse {
        /// Which file.
        path: PathBuf,
    },
}

impl RecordError {
    pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        |source| Self::Io { path: path.to_owned(), source }
    }
}

impl Record {
    /// Read a record's file, also while no sandbox runs on it; the file is left as it is.
    pub fn read(path: &Path) -> Result<Self, RecordError> {
        Self::parse(path, &fs::read(path).map_err(RecordError::io(path))?)
    }

    /// The transfers that moved money, in order.
    pub fn executions(&self) -> impl Iterator<Item = &Execution> {
        self.lines.iter().filter_map(|line| match line {
            Line::Executed(execution) => Some(execution),
            Line::Refused(_) => None,
        })
    }

    /// The transfers that were refused, in order.
    pub fn refusals(&self) -> impl Iterator<Item = &Refusal> {
        self.lines.iter().filter_map(|line| match line {
            Line::Executed(_) => None,
            Line::Refused(refusal) => Some(refusal),
        })
    }

    /// How many times each key moved money.
    pub fn executions_by_key(&self) -> HashMap<&str, u64> {
        let mut times = HashMap::new();
        for execution in self.executions() {
            *times.entry(execution.key.as_str()).or_default() += 1;
        }
        times
    }

    /// The four numbers, counted anew from the lines.
    pub fn summary(&self) -> Summary {
        let times = self.executions_by_key();
        Summary {
            executed: times.values().sum(),
            keys: as_count(times.len()),
            executed_twice: as_count(times.values().filter(|times| **times > 1).count()),
            refused: as_count(self.refusals().count()),
        }
    }

    pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Self, RecordError> {
        let mut record = Self::default();
        let mut executed = 0;
        for (index, text) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            // Only a whole line was ever answered for: its end is the last byte written of it.
            let Some(text) = text.strip_suffix(b"\n") else {
                record.torn_bytes = as_count(text.len());
                break;
            };
            let malformed = |problem: String| RecordError::Malformed {
                path: path.to_owned(),
                line: as_count(index) + 1,
                problem,
            };
            let line: Line =
                serde_json::from_slice(text).map_err(|error| malformed(error.to_string()))?;
            if let Line::Executed(execution) = &line {
                executed += 1;
                if execution.number != executed {
                    let number = execution.number;
                    return Err(malformed(format!(
                        "number is {number}, but {executed} comes next"
                    )));
                }
            }
            record.lines.push(line);
        }
        Ok(record)
    }
}

impl Execution {
    /// The provider's reference.
    pub fn reference(&self) -> String {
        reference(self.number)
    }
}

impl BodyHash {
    /// The hash of a body's bytes.
    pub fn of(body: &[u8]) -> Self {
        Self(Sha256::digest(body).into())
    }
}

impl fmt::Display for BodyHash {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for BodyHash {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, to)
    }
}

impl Serialize for BodyHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(self.0))
    }
}

impl<'de> Deserialize<'de> for BodyHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut hash = [0_u8; 32];
        hex::decode_to_slice(text, &mut hash)
            .map_err(|_| de::Error::custom("body_sha256 is not 64 hexadecimal digits"))?;
        Ok(Self(hash))
    }
}

/// The provider's reference for an execution.
pub(super) fn reference(number: u64) -> String {
    format!("SBX-{number}")
}

/// A length as the number that goes into JSON.
pub(super) fn as_count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
