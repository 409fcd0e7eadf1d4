//! Where a payment goes: the form a rail's destinations must have.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Defect, evm, iban, object};

/// The form of a rail's destinations, as its configuration names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DestinationRule {
    /// `destination.iban`: in electronic form, of its country's length, with a right checksum.
    Iban,
    /// `destination.address`: an EVM address with its EIP-55 checksum, which is required.
    Evm,
    /// `destination.routing_number`, an ABA number with a right checksum, and `destination.account_number`.
    Aba,
    /// `destination.phone`: a number such as +254712345678.
    E164,
    /// `destination.id`: 1 to 128 characters.
    PlainId,
    /// Not checked here; the rail refuses what it must.
    Any,
}

impl DestinationRule {
    /// Check a payload's destination. Fields the rule does not name are not looked at, but a repeated key is
    /// refused.
    pub fn check(self, payload: &RawValue) -> Result<(), Defect> {
        let text = |code, field, wanted| {
            object(payload, "destination")
                .and_then(|destination| destination.need_text(field, wanted))
                .map_err(Defect::with(code))
        };
        match self {
            Self::Iban => iban::check(&text(iban::CODE, iban::FIELD, "an IBAN")?),
            Self::Evm => {
                evm::check(&text(evm::CODE, evm::FIELD, "an address such as \"0x5aAe…\"")?)
            }
            Self::Aba => {
                check_routing_number(&text(ROUTING_CODE, ROUTING, "9 digits as a string")?)?;
                check_account_number(&text(ACCOUNT_CODE, ACCOUNT, "a string")?)
            }
            Self::E164 => {
                check_phone(&text(PHONE_CODE, PHONE, "a string such as \"+254712345678\"")?)
            }
            Self::PlainId => check_plain_id(&text(ID_CODE, ID, "a string")?),
            Self::Any => Ok(()),
        }
    }
}

const ROUTING_CODE: &str = "INVALID_ROUTING_NUMBER";
const ROUTING: &str = "destination.routing_number";
/// What a routing number begins with: the twelve Federal Reserve districts, those of thrifts, and of electronic
/// transactions. Not 00 (the government's own cheques) and 80 (traveller's cheques): neither is an account.
const ROUTING_PREFIXES: [std::ops::RangeInclusive<u8>; 3] = [1..=12, 21..=32, 61..=72];

fn check_routing_number(text: &str) -> Result<(), Defect> {
    let defect = |problem: &str| Err(Defect::new(ROUTING_CODE, ROUTING, problem));
    if text.len() != 9 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return defect("must be 9 digits, leading zeros included");
    }
    let prefix = text.get(..2).and_then(|digits| digits.parse::<u8>().ok());
    if !prefix.is_some_and(|prefix| ROUTING_PREFIXES.iter().any(|range| range.contains(&prefix))) {
        return defect("begins with two digits that no bank has (01 to 12, 21 to 32 or 61 to 72)");
    }
    let weighted = text.bytes().zip([3_u32, 7, 1].into_iter().cycle());
    let sum: u32 = weighted.map(|(byte, weight)| u32::from(byte - b'0') * weight).sum();
    if !sum.is_multiple_of(10) {
        return defect("fails its checksum: a digit is wrong");
    }
    Ok(())
}

const ACCOUNT_CODE: &str = "INVALID_ACCOUNT_NUMBER";
const ACCOUNT: &str = "destination.account_number";
/// What a wire can carry; ACH carries 17.
const ACCOUNT_CHARACTERS_MAX: usize = 34;

fn check_account_number(text: &str) -> Result<(), Defect> {
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !plain || text.is_empty() || text.len() > ACCOUNT_CHARACTERS_MAX {
        return Err(Defect::new(
            ACCOUNT_CODE,
            ACCOUNT,
            format!("must be 1 to {ACCOUNT_CHARACTERS_MAX} digits, letters or hyphens"),
        ));
    }
    Ok(())
}

const PHONE_CODE: &str = "INVALID_PHONE";
const PHONE: &str = "destination.phone";

fn check_phone(text: &str) -> Result<(), Defect> {
    let defect = |problem: &str| Err(Defect::new(PHONE_CODE, PHONE, problem));
    let Some(digits) = text.strip_prefix('+') else {
        return defect("must begin with + and the country's code, as in +254712345678");
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return defect("must be + and digits only: no spaces, brackets or hyphens");
    }
    if digits.starts_with('0') {
        return defect("has a 0 after the +: no country's code begins with it");
    }
    if !(8..=15).contains(&digits.len()) {
        return defect("must have 8 to 15 digits");
    }
    Ok(())
}

const ID_CODE: &str = "INVALID_DESTINATION_ID";
const ID: &str = "destination.id";
const ID_CHARACTERS_MAX: usize = 128;

fn check_plain_id(text: &str) -> Result<(), Defect> {
    let defect = |problem: String| Err(Defect::new(ID_CODE, ID, problem));
    if text.trim().is_empty() {
        return defect("is blank: it must name an account at the rail".to_owned());
    }
    if text.trim() != text {
        return defect("begins or ends with white space: leave it out".to_owned());
    }
    if text.chars().any(char::is_control) {
        return defect("contains a control character: leave it out".to_owned());
    }
    if text.chars().count() > ID_CHARACTERS_MAX {
        return defect(format!("has more than {ID_CHARACTERS_MAX} characters"));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn check(rule: DestinationRule, text: &str) -> Result<(), Defect> {
        rule.check(&RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn each_rule_reads_its_own_field() {
        for (rule, text) in [
            (DestinationRule::Iban, r#"{"destination": {"iban": "DE89370400440532013000"}}"#),
            (
                DestinationRule::Evm,
                r#"{"destination": {"address": "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"}}"#,
            ),
            (
                DestinationRule::Aba,
                r#"{"destination": {"routing_number": "021000021", "account_number": "000123456789"}}"#,
            ),
            (DestinationRule::E164, r#"{"destination": {"phone": "+254712345678", "name": "J"}}"#),
            (DestinationRule::PlainId, r#"{"destination": {"id": "acct_1032D82eZvKYlo2C"}}"#),
            (DestinationRule::PlainId, r#"{"destination": {"id": "Łódź 7"}}"#),
            (DestinationRule::Any, r"{}"),
            (DestinationRule::Any, r#"{"destination": 7}"#),
        ] {
            assert_eq!(check(rule, text), Ok(()), "{rule:?} {text}");
        }
    }

    #[test]
    fn a_destination_that_is_missing_or_misshapen_is_named() {
        for (rule, text, code, field, expected) in [
            (DestinationRule::Iban, r"{}", "INVALID_IBAN", "destination", "is missing"),
            (
                DestinationRule::Iban,
                r#"{"destination": "DE89370400440532013000"}"#,
                "INVALID_IBAN",
                "destination",
                "must be a JSON object, not a JSON string",
            ),
            (
                DestinationRule::Iban,
                r#"{"destination": {"address": "x"}}"#,
                "INVALID_IBAN",
                iban::FIELD,
                "is missing: it must be an IBAN",
            ),
            (
                DestinationRule::Iban,
                r#"{"destination": {"iban": "DE89370400440532013000", "iban": "GB29NWBK60161331926819"}}"#,
                "INVALID_IBAN",
                "destination",
                "repeats a key",
            ),
            (
                DestinationRule::Iban,
                r#"{"destination": {"iban": "DE89370400440532013000"}, "destination": {"iban": "x"}}"#,
                "INVALID_IBAN",
                "payload",
                "repeats a key",
            ),
            (
                DestinationRule::Evm,
                r#"{"destination": {"address": 5}}"#,
                "INVALID_EVM_ADDRESS",
                evm::FIELD,
                "not a JSON number",
            ),
            (
                DestinationRule::Aba,
                r#"{"destination": {"routing_number": 21000021, "account_number": "1"}}"#,
                ROUTING_CODE,
                ROUTING,
                "must be 9 digits as a string, not a JSON number",
            ),
            (
                DestinationRule::Aba,
                r#"{"destination": {"routing_number": "021000021"}}"#,
                ACCOUNT_CODE,
                ACCOUNT,
                "is missing",
            ),
            (
                DestinationRule::Aba,
                r#"{"destination": {"routing_number": "021000021", "account_number": ""}}"#,
                ACCOUNT_CODE,
                ACCOUNT,
                "must be 1 to 34",
            ),
            (
                DestinationRule::E164,
                r#"{"destination": {"phone": 254712345678}}"#,
                PHONE_CODE,
                PHONE,
                "not a JSON number",
            ),
            (
                DestinationRule::PlainId,
                r#"{"destination": {"id": null}}"#,
                ID_CODE,
                ID,
                "must be a string, not null",
            ),
        ] {
            let defect = check(rule, text).unwrap_err();
            assert_eq!((defect.code, defect.error.field.as_str()), (code, field), "{text}");
            assert!(defect.error.problem.contains(expected), "{text}: {defect}");
        }
    }

    /// Of banks everybody knows.
    const ROUTING_NUMBERS: [&str; 10] = [
        "021000021",
        "011401533",
        "091000019",
        "121000358",
        "026009593",
        "111000025",
        "322271627",
        "125000024",
        "271070801",
        "061000104",
    ];

    #[test]
    fn real_routing_numbers_pass_and_a_single_wrong_digit_is_caught() {
        for number in ROUTING_NUMBERS {
            assert_eq!(check_routing_number(number), Ok(()), "{number}");
            for (at, right) in number.char_indices() {
                for wrong in ('0'..='9').filter(|wrong| *wrong != right) {
                    let text: String = number
                        .char_indices()
                        .map(|(place, digit)| if place == at { wrong } else { digit })
                        .collect();
                    assert!(check_routing_number(&text).is_err(), "{number} became {text}");
                }
            }
        }
    }

    type Check = fn(&str) -> Result<(), Defect>;

    #[test]
    fn values_are_refused_with_the_fix() {
        let long_id = "x".repeat(129);
        let long_account = "1".repeat(35);
        let cases: &[(Check, &str, &str)] = &[
            (check_routing_number, "", "must be 9 digits"),
            (check_routing_number, "21000021", "must be 9 digits, leading zeros included"),
            (check_routing_number, "0210000210", "must be 9 digits"),
            (check_routing_number, "0210-0002", "must be 9 digits"),
            (check_routing_number, "02100002l", "must be 9 digits"),
            (check_routing_number, "٠٢١٠", "must be 9 digits"),
            (check_routing_number, "000000000", "no bank has"),
            (check_routing_number, "131000000", "no bank has"),
            (check_routing_number, "991000000", "no bank has"),
            (check_routing_number, "021000020", "fails its checksum"),
            (check_account_number, " ", "must be 1 to 34"),
            (check_account_number, "12 34", "must be 1 to 34"),
            (check_account_number, "12\n", "must be 1 to 34"),
            (check_account_number, &long_account, "must be 1 to 34"),
            (check_phone, "", "must begin with +"),
            (check_phone, "254712345678", "must begin with +"),
            (check_phone, "00254712345678", "must begin with +"),
            (check_phone, "+", "8 to 15 digits"),
            (check_phone, "+2547123", "8 to 15 digits"),
            (check_phone, "+2547123456789012", "8 to 15 digits"),
            (check_phone, "+0712345678", "has a 0 after the +"),
            (check_phone, "+254 712 345678", "digits only"),
            (check_phone, "+254-712-345678", "digits only"),
            (check_phone, "++254712345678", "digits only"),
            (check_phone, "+254712345678x1", "digits only"),
            (check_plain_id, "", "is blank"),
            (check_plain_id, " \t", "is blank"),
            (check_plain_id, " a", "white space"),
            (check_plain_id, "a\u{a0}", "white space"),
            (check_plain_id, "a\u{0}b", "control character"),
            (check_plain_id, "a\u{7f}b", "control character"),
            (check_plain_id, "a\u{85}b", "control character"),
            (check_plain_id, &long_id, "more than 128"),
        ];
        for (check, text, expected) in cases {
            let defect = check(text).unwrap_err();
            assert!(defect.error.problem.contains(expected), "{text:?}: {defect}");
        }
        for text in
            ["+12125552368", "+442071838750", "+254712345678", "+12345678", "+123456789012345"]
        {
            assert_eq!(check_phone(text), Ok(()), "{text}");
        }
        assert_eq!(check_plain_id(&"ü".repeat(128)), Ok(()), "characters, not bytes");
    }

    #[test]
    fn rules_are_named_in_configuration_in_snake_case() {
        for (rule, name) in [
            (DestinationRule::Iban, "iban"),
            (DestinationRule::Evm, "evm"),
            (DestinationRule::Aba, "aba"),
            (DestinationRule::E164, "e164"),
            (DestinationRule::PlainId, "plain_id"),
            (DestinationRule::Any, "any"),
        ] {
            assert_eq!(serde_json::to_value(rule).unwrap(), name);
        }
    }
}
