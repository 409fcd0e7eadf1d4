//! Checks on what a payment says. Pure functions: no I/O, no floats, and no error repeats the payload.
//!
//! - [`Amount`], [`read_amount`]: a decimal string and a currency, exact to the smallest unit.
//! - [`DestinationRule`]: the form a rail's destinations must have, checksums included.
//! - [`masked_destination`]: what may be shown of one.

mod amount;
mod currency;
mod destination;
mod evm;
mod iban;
mod mask;

pub use amount::read_amount;
pub use destination::DestinationRule;
pub use mask::masked_destination;

use serde_json::value::RawValue;

use crate::FieldError;
use crate::json::Members;

/// Why a payment cannot be sent as it is. Never contains any of its data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct Defect {
    /// Stable, for the ledger's `error_code`, such as `INVALID_AMOUNT`.
    pub code: &'static str,
    /// The field, such as `amount.value`, and what is wrong with it.
    pub error: FieldError,
}

impl Defect {
    /// A defect of one field.
    pub fn new(code: &'static str, field: &str, problem: impl Into<String>) -> Self {
        Self { code, error: FieldError::new(field, problem) }
    }

    /// Whatever is wrong gets this code.
    fn with(code: &'static str) -> impl Fn(FieldError) -> Self {
        move |error| Self { code, error }
    }
}

/// The payload's object of this name. A repeated key beside it or in it is refused.
fn object<'a>(payload: &'a RawValue, name: &str) -> Result<Members<'a>, FieldError> {
    let payload = Members::read("payload", payload)?;
    Members::read(name, payload.need(name, "a JSON object")?)
}

/// A positive amount of a real currency, exact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amount {
    /// As it was given, such as `10.00`.
    pub value: String,
    /// ISO 4217, such as `EUR`.
    pub currency: String,
    /// In the currency's smallest unit.
    pub minor_units: u128,
}
