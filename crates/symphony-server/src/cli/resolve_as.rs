//! Reads `--as` of `resolve`. Whoever writes another word for it is told the right one: by its letters `paid` is nearest to
//! `failed`, which would be said of money that has moved.

use clap::ValueEnum as _;
use clap::builder::{PossibleValue, TypedValueParser};

use super::ResolveAs;

/// The parser of [`ResolveAs`].
#[derive(Clone)]
pub(super) struct ResolveAsParser;

impl TypedValueParser for ResolveAsParser {
    type Value = ResolveAs;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<ResolveAs, clap::Error> {
        let text = value.to_string_lossy().to_ascii_lowercase();
        if let Ok(outcome) = ResolveAs::from_str(&text, false) {
            return Ok(outcome);
        }
        let meant = match text.as_str() {
            "paid" | "sent" | "settled" | "executed" | "accepted" | "succeeded" | "done" => {
                "did you mean --as dispatched?"
            }
            "unpaid" | "refused" | "rejected" | "returned" | "cancelled" => {
                "did you mean --as failed?"
            }
            "again" | "resend" => "did you mean --as retry?",
            _ => "it is one of three words.",
        };
        let problem = format!(
            "--as {}: {meant} dispatched: the money moved; failed: it did not and shall not; retry: it did not and shall be sent\n",
            value.to_string_lossy()
        );
        Err(clap::Error::raw(clap::error::ErrorKind::InvalidValue, problem).with_cmd(command))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let all = ResolveAs::value_variants().iter();
        Some(Box::new(all.filter_map(clap::ValueEnum::to_possible_value)))
    }
}
