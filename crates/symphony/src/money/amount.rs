//! The amount of a payment: a decimal string and a currency, exact or refused.

use serde_json::value::RawValue;

use super::{Amount, Defect, currency, object};

const CODE: &str = "INVALID_AMOUNT";
const CURRENCY_CODE: &str = "INVALID_CURRENCY";
const VALUE: &str = "amount.value";
const CURRENCY: &str = "amount.currency";
const WANTED_VALUE: &str = "a decimal string such as \"10.00\"";
const WANTED_CURRENCY: &str = "an ISO 4217 code such as \"EUR\"";

/// Before the point. With at most four decimals, the smallest units always fit into 128 bits.
const INTEGER_DIGITS_MAX: usize = 30;

/// The amount a payload names in `amount.value` and `amount.currency`. Other fields are not looked at, but a
/// repeated key beside or inside `amount` is refused.
pub fn read_amount(payload: &RawValue) -> Result<Amount, Defect> {
    let amount = object(payload, "amount").map_err(Defect::with(CODE))?;
    let value = amount.need_text(VALUE, WANTED_VALUE).map_err(Defect::with(CODE))?;
    let currency =
        amount.need_text(CURRENCY, WANTED_CURRENCY).map_err(Defect::with(CURRENCY_CODE))?;
    Amount::parse(&value, &currency)
}

impl Amount {
    /// Read a decimal string: digits, and a point between digits. No sign, exponent, space or leading zero;
    /// more than zero; no more decimals than the currency has, not even zeros.
    pub fn parse(value: &str, currency: &str) -> Result<Self, Defect> {
        let defect = |problem: &str| Defect::new(CODE, VALUE, problem);
        let (integer, fraction) = match value.split_once('.') {
            None => (value, ""),
            Some((_, "")) => return Err(defect("ends with a point: write 10 or 10.00")),
            Some(parts) => parts,
        };
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if integer.is_empty() || !is_digits(integer) || !is_digits(fraction) {
            return Err(defect(
                "must be digits with at most one point, such as \"10.00\": no sign, space, exponent or separator",
            ));
        }
        if integer.len() > 1 && integer.starts_with('0') {
            return Err(defect("has a leading zero: write 7 or 0.70"));
        }
        if integer.len() > INTEGER_DIGITS_MAX {
            return Err(Defect::new(
                CODE,
                VALUE,
                format!("has more than {INTEGER_DIGITS_MAX} digits before the point"),
            ));
        }
        let Some(decimals) = currency::decimals(currency) else {
            return Err(Defect::new(
                CURRENCY_CODE,
                CURRENCY,
                "is not an active ISO 4217 currency: three upper case letters such as \"EUR\"",
            ));
        };
        let Some(missing) = usize::from(decimals).checked_sub(fraction.len()) else {
            return Err(Defect::new(
                CODE,
                VALUE,
                format!("has more decimals than its currency, which has {decimals}"),
            ));
        };
        let digits = integer.bytes().chain(fraction.bytes()).map(|byte| byte - b'0');
        let minor_units = digits
            .chain(std::iter::repeat_n(0, missing))
            .try_fold(0_u128, |sum, digit| sum.checked_mul(10)?.checked_add(u128::from(digit)))
            .ok_or_else(|| defect("is too large"))?;
        if minor_units == 0 {
            return Err(defect("is zero: it must be more"));
        }
        Ok(Self { value: value.to_owned(), currency: currency.to_owned(), minor_units })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact_to_the_smallest_unit() {
        for (value, currency, minor_units) in [
            ("10.00", "EUR", 1_000),
            ("10.0", "EUR", 1_000),
            ("10", "EUR", 1_000),
            ("0.01", "USD", 1),
            ("0.1", "USD", 10),
            ("1", "JPY", 1),
            ("123456789", "JPY", 123_456_789),
            ("1.234", "KWD", 1_234),
            ("0.001", "BHD", 1),
            ("1.2345", "CLF", 12_345),
            // Doubles cannot hold these.
            ("9007199254740993", "JPY", 9_007_199_254_740_993),
            ("90071992547409.93", "EUR", 9_007_199_254_740_993),
            ("0.29", "GBP", 29),
            (
                "999999999999999999999999999999.9999",
                "UYW",
                9_999_999_999_999_999_999_999_999_999_999_999,
            ),
        ] {
            let amount = Amount::parse(value, currency).unwrap();
            assert_eq!(amount.minor_units, minor_units, "{value} {currency}");
            assert_eq!((amount.value.as_str(), amount.currency.as_str()), (value, currency));
        }
    }

    #[test]
    fn whatever_is_no_positive_decimal_of_a_real_currency_is_refused() {
        for (value, currency, expected) in [
            ("", "EUR", "amount.value must be digits"),
            (" ", "EUR", "must be digits"),
            (" 1", "EUR", "must be digits"),
            ("1 ", "EUR", "must be digits"),
            ("1\n", "EUR", "must be digits"),
            ("-1", "EUR", "must be digits"),
            ("+1", "EUR", "must be digits"),
            ("1e2", "EUR", "must be digits"),
            ("0x10", "EUR", "must be digits"),
            ("1,00", "EUR", "must be digits"),
            ("1_000", "EUR", "must be digits"),
            ("1'000", "CHF", "must be digits"),
            ("NaN", "EUR", "must be digits"),
            ("Infinity", "EUR", "must be digits"),
            (".50", "EUR", "must be digits"),
            (".", "EUR", "ends with a point"),
            ("1.", "EUR", "ends with a point"),
            ("1..0", "EUR", "must be digits"),
            ("1.0.0", "EUR", "must be digits"),
            ("1.-5", "EUR", "must be digits"),
            ("١٠", "EUR", "must be digits"),
            ("\u{ff11}\u{ff10}", "EUR", "must be digits"),
            ("007", "EUR", "leading zero"),
            ("00", "EUR", "leading zero"),
            ("00.50", "EUR", "leading zero"),
            ("0", "EUR", "is zero"),
            ("0.00", "EUR", "is zero"),
            ("10.001", "EUR", "more decimals than its currency, which has 2"),
            ("10.000", "EUR", "more decimals"),
            ("10.0", "JPY", "more decimals than its currency, which has 0"),
            ("1.23456", "CLF", "more decimals"),
            ("1000000000000000000000000000000", "JPY", "more than 30 digits"),
            ("1", "eur", "amount.currency is not an active ISO 4217"),
            ("1", "XXX", "amount.currency"),
            ("1", "XAU", "amount.currency"),
            ("1", "", "amount.currency"),
        ] {
            let defect = Amount::parse(value, currency).unwrap_err();
            assert!(defect.to_string().contains(expected), "{value:?} {currency:?}: {defect}");
            assert!(!defect.error.problem.contains("10.001"), "it repeats the payload");
        }
    }

    fn read(text: &str) -> Result<Amount, Defect> {
        read_amount(&RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn an_amount_is_read_from_the_payloads_text() {
        for text in [
            r#"{"amount": {"value": "10.00", "currency": "EUR"}}"#,
            r#" { "x": [1.5], "amount" : { "note": null, "currency" : "EUR" , "value" : "10.00" } } "#,
            r#"{"\u0061mount": {"v\u0061lue": "\u00310.00", "currency": "EUR"}}"#,
            r#"{"value": "1", "currency": "USD", "amount": {"value": "10.00", "currency": "EUR"}}"#,
            r#"{"amount": {"value": "10.00", "currency": "EUR", "in": {"value": "1", "currency": "USD"}}}"#,
        ] {
            let amount = read(text).unwrap();
            assert_eq!((amount.minor_units, amount.currency.as_str()), (1_000, "EUR"), "{text}");
        }
    }

    #[test]
    fn a_payload_without_a_clear_amount_is_refused_and_the_field_is_named() {
        const NUMBER: &str = "must be a decimal string such as \"10.00\", not a JSON number";
        for (text, code, field, expected) in [
            (r"{}", CODE, "amount", "is missing"),
            (r"[]", CODE, "payload", "must be a JSON object, not a JSON list"),
            (r#"{"Amount": {"value": "1", "currency": "EUR"}}"#, CODE, "amount", "is missing"),
            (r#"{"amount": null}"#, CODE, "amount", "must be a JSON object, not null"),
            (r#"{"amount": 10}"#, CODE, "amount", "not a JSON number"),
            (r#"{"amount": "10.00"}"#, CODE, "amount", "not a JSON string"),
            (r#"{"amount": []}"#, CODE, "amount", "not a JSON list"),
            (r#"{"amount": {"currency": "EUR"}}"#, CODE, VALUE, "is missing"),
            (r#"{"amount": {"value": 10.00, "currency": "EUR"}}"#, CODE, VALUE, NUMBER),
            (r#"{"amount": {"value": 10, "currency": "EUR"}}"#, CODE, VALUE, NUMBER),
            (r#"{"amount": {"value": -1e2, "currency": "EUR"}}"#, CODE, VALUE, NUMBER),
            (r#"{"amount": {"value": null, "currency": "EUR"}}"#, CODE, VALUE, "not null"),
            (
                r#"{"amount": {"value": true, "currency": "EUR"}}"#,
                CODE,
                VALUE,
                "not a JSON boolean",
            ),
            (r#"{"amount": {"value": ["1"], "currency": "EUR"}}"#, CODE, VALUE, "not a JSON list"),
            (r#"{"amount": {"value": "\ud800", "currency": "EUR"}}"#, CODE, VALUE, "not readable"),
            (r#"{"amount": {"value": "1"}}"#, CURRENCY_CODE, CURRENCY, "is missing"),
            (r#"{"amount": {"value": "1", "currency": 978}}"#, CURRENCY_CODE, CURRENCY, "number"),
            (r#"{"amount": {"value": "1", "currency": "EURO"}}"#, CURRENCY_CODE, CURRENCY, "ISO"),
            (
                r#"{"amount": {"value": "1", "value": "9", "currency": "EUR"}}"#,
                CODE,
                "amount",
                "repeats a key",
            ),
            (
                r#"{"amount": {"value": "1", "v\u0061lue": "9", "currency": "EUR"}}"#,
                CODE,
                "amount",
                "repeats a key",
            ),
            (
                r#"{"amount": {"value": "1", "currency": "EUR", "x": 1, "x": 2}}"#,
                CODE,
                "amount",
                "repeats a key",
            ),
            (
                r#"{"amount": {"value": "1", "currency": "EUR"}, "amount": {"value": "9", "currency": "EUR"}}"#,
                CODE,
                "payload",
                "repeats a key",
            ),
            (
                r#"{"amount": {"value": "1", "currency": "EUR"}, "\ud800": 1}"#,
                CODE,
                "payload",
                "not readable",
            ),
        ] {
            let defect = read(text).unwrap_err();
            assert_eq!((defect.code, defect.error.field.as_str()), (code, field), "{text}");
            assert!(defect.error.problem.contains(expected), "{text}: {defect}");
        }
    }
}
