//! Which code of a provider means which verdict.
//!
//! Codes are compared whole and exactly, never searched for in messages: a message is prose, and its next
//! wording would move money. What nobody mapped is unknown, which costs an inquiry or a person's minute;
//! a wrong guess costs a second payment.

mod http_statuses;
mod iso20022;

use std::collections::{BTreeMap, HashMap};

pub use crate::bounds::rails::CODE_BYTES_MAX;
use serde::{Deserialize, Serialize};
use symphony::FieldError;
use symphony::lanes::payments::rail::Verdict;

/// Codes that ship with Symphony.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Transaction statuses (`ACSC`, `RJCT`, …) and status reasons (`AC04`, …).
    Iso20022,
    /// Statuses of HTTP itself, as `http:422`, for answers that carry no code of their own.
    Http,
}

/// From code to verdict.
#[derive(Debug, Clone, Default)]
pub struct CodeTable {
    verdicts: HashMap<String, Verdict>,
}

impl CodeTable {
    /// The presets in their order, then `overrides` over them. A code overridden as unknown is unmapped again.
    pub fn new(
        presets: &[Preset],
        overrides: &BTreeMap<String, Verdict>,
    ) -> Result<Self, FieldError> {
        let mut verdicts = HashMap::new();
        for preset in presets {
            let groups = match preset {
                Preset::Iso20022 => iso20022::GROUPS,
                Preset::Http => http_statuses::GROUPS,
            };
            for (verdict, codes) in groups {
                verdicts.extend(codes.iter().map(|code| ((*code).to_owned(), *verdict)));
            }
        }
        for (code, verdict) in overrides {
            check(code)?;
            if *verdict == Verdict::Unknown {
                verdicts.remove(code);
            } else {
                verdicts.insert(code.clone(), *verdict);
            }
        }
        Ok(Self { verdicts })
    }

    /// What the code means, if anybody said so.
    pub fn mapped(&self, code: &str) -> Option<Verdict> {
        self.verdicts.get(code).copied()
    }

    /// What the code means; unknown if nobody said so.
    pub fn verdict(&self, code: &str) -> Verdict {
        self.mapped(code).unwrap_or(Verdict::Unknown)
    }
}

/// How a status of HTTP is written as a code.
pub fn status_code(status: u16) -> String {
    format!("http:{status}")
}

fn check(code: &str) -> Result<(), FieldError> {
    let refuse = |problem: String| Err(FieldError::new("codes", problem));
    let printable = code.chars().all(|c| !c.is_control() && !c.is_whitespace());
    if code.is_empty() || code.len() > CODE_BYTES_MAX || !printable {
        return refuse(format!(
            "has a code that is empty, longer than {CODE_BYTES_MAX} bytes, or contains blanks or control characters"
        ));
    }
    if let Some(status) = code.strip_prefix("http:") {
        let three_digits = status.len() == 3 && status.bytes().all(|b| b.is_ascii_digit());
        if !three_digits || !status.parse::<u16>().is_ok_and(|s| (100..600).contains(&s)) {
            return refuse(format!(
                "{code:?} is no HTTP status: write it as http:422, from http:100 to http:599"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::{BTreeMap, HashSet};

    use symphony::lanes::payments::rail::Verdict::{self, Accepted, Refused, Retryable, Unknown};

    use super::{CodeTable, Preset, http_statuses, iso20022};

    fn both() -> CodeTable {
        CodeTable::new(&[Preset::Iso20022, Preset::Http], &BTreeMap::new()).unwrap()
    }

    #[test]
    fn every_code_means_what_its_standard_says_and_doubt_is_unknown() {
        let table = both();
        for (verdict, codes) in [
            (Accepted, "ACSC ACCC http:200 http:201"),
            (Refused, "RJCT CANC AC01 AC03 AC04 AC06 AC13 AC14 AG01 AG02 AG03 AM01 AM02 AM04 AM14"),
            (Refused, "BE01 BE04 BE06 BE22 CNOR CURR DNOR DT01 FF01 MS02 MS03 RC01 RC07 RR04 TM01"),
            (Refused, "http:400 http:413 http:422"),
            (Retryable, "http:401 http:403 http:405 http:415 http:421 http:425 http:429"),
            // Still on their way.
            (Unknown, "ACSP ACTC ACCP ACFC ACFW ACPD ACWC ACWP PATC PDNG PRES RCVD ACIS BLCK"),
            // The first of two may have been paid.
            (Unknown, "AM05 DUPL DU01 DU03 DU05 AB12 DS15 TKSG"),
            // Nobody is sure.
            (Unknown, "AB01 AB03 AB05 AB06 AB09 AB10 AB11 ED06 FF10 NOAS AM07 TA01 NARR"),
            // Money that came back was away.
            (Unknown, "FOCR MD06 FR01 RUTA AM09 AC15 CUST G000 G004 DT06 DS01"),
            (Unknown, "http:100 http:203 http:204 http:206 http:207 http:301 http:303 http:307"),
            (Unknown, "http:402 http:404 http:406 http:408 http:409 http:410 http:412 http:423"),
            (Unknown, "http:499 http:500 http:501 http:502 http:503 http:504 http:520 http:529"),
            // Exactly, or not at all.
            (Unknown, "ac04 AC4 AC044 XAC04 RJCT/AC04 200 422 HTTP:422 http:0422 OK"),
        ] {
            for code in codes.split(' ') {
                assert_eq!(table.verdict(code), verdict, "{code}");
            }
        }
        for code in ["", " ", "AC04 ", "rejected: AC04"] {
            assert_eq!(table.verdict(code), Unknown, "{code:?}");
        }
    }

    #[test]
    fn no_server_error_of_http_is_mapped_by_default() {
        let table = both();
        for status in (100..200).chain(300..400).chain(500..600) {
            assert_eq!(table.mapped(&super::status_code(status)), None, "{status}");
        }
    }

    #[test]
    fn no_preset_maps_a_code_twice() {
        for groups in [iso20022::GROUPS, http_statuses::GROUPS] {
            let mut seen = HashSet::new();
            for code in groups.iter().flat_map(|(_, codes)| codes.iter()) {
                assert!(seen.insert(code), "{code} is mapped twice");
                super::check(code).unwrap();
            }
        }
    }

    #[test]
    fn configuration_overrides_presets_and_can_unmap() {
        let overrides = BTreeMap::from([
            ("http:503".to_owned(), Retryable),
            ("AC04".to_owned(), Unknown),
            ("AM05".to_owned(), Accepted),
            ("insufficient_funds".to_owned(), Refused),
        ]);
        let table = CodeTable::new(&[Preset::Iso20022, Preset::Http], &overrides).unwrap();
        for (code, verdict) in [
            ("http:503", Some(Retryable)),
            ("AC04", None),
            ("AM05", Some(Accepted)),
            ("insufficient_funds", Some(Refused)),
            ("http:504", None),
        ] {
            assert_eq!(table.mapped(code), verdict, "{code}");
        }
    }

    #[test]
    fn without_presets_everything_is_unknown() {
        let table = CodeTable::new(&[], &BTreeMap::new()).unwrap();
        assert_eq!(table.verdict("ACSC"), Unknown);
        assert_eq!(table.verdict("http:200"), Unknown);
    }

    #[test]
    fn what_is_no_code_cannot_be_mapped() {
        let long = "x".repeat(65);
        for (code, is_status) in [
            ("", false),
            ("A C", false),
            ("A\n", false),
            (long.as_str(), false),
            ("http:", true),
            ("http:5xx", true),
            ("http:99", true),
            ("http:600", true),
            ("http:+42", true),
        ] {
            let error =
                CodeTable::new(&[], &BTreeMap::from([(code.to_owned(), Refused)])).unwrap_err();
            assert_eq!(error.problem.contains("is no HTTP status"), is_status, "{code}");
            assert_eq!(error.field, "codes");
        }
    }

    #[test]
    fn verdicts_and_presets_are_written_in_configuration_as_small_words() {
        let verdicts: Vec<Verdict> =
            serde_json::from_str(r#"["accepted", "refused", "retryable", "unknown"]"#).unwrap();
        assert_eq!(verdicts, [Accepted, Refused, Retryable, Unknown]);
        let presets: Vec<Preset> = serde_json::from_str(r#"["iso20022", "http"]"#).unwrap();
        assert_eq!(presets, [Preset::Iso20022, Preset::Http]);
    }
}
