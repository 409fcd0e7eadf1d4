//! What may be shown of where a payment goes: enough to recognise it, too little to use it.

use serde_json::value::RawValue;

use crate::json::{self, Members};

/// The members of `destination` that name an account; whatever else stands there (names, addresses) is not shown.
const SHOWN: [&str; 6] = ["iban", "address", "routing_number", "account_number", "phone", "id"];

/// The destination with its middle left out, such as `iban DE89…3000`. `None` if the payload names none of a known form.
pub fn masked_destination(payload: &RawValue) -> Option<String> {
    let destination = Members::of(Members::of(payload)?.get("destination")?)?;
    let parts: Vec<String> = SHOWN
        .iter()
        .filter_map(|name| Some(format!("{name} {}", masked(&json::text(destination.get(name)?)?))))
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn masked(text: &str) -> String {
    let count = text.chars().count();
    let (first, last) = match count {
        0..6 => (0, 0),
        6..12 => (0, 2),
        12..16 => (0, 4),
        _ => (4, 4),
    };
    let start: String = text.chars().take(first).collect();
    let end: String = text.chars().skip(count - last).collect();
    format!("{start}…{end}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_can_be_recognised_and_not_used() {
        for (payload, shown) in [
            (r#"{"destination": {"iban": "DE89370400440532013000"}}"#, Some("iban DE89…3000")),
            (
                r#"{"destination": {"account_number": "12345678", "routing_number": "021000021", "name": "Ann Lee"}}"#,
                Some("routing_number …21, account_number …78"),
            ),
            (r#"{"destination": {"phone": "+254712345678"}}"#, Some("phone …5678")),
            (r#"{"destination": {"id": "ab"}}"#, Some("id …")),
            (r#"{"destination": {"name": "Ann Lee"}}"#, None),
            (r#"{"destination": "DE89370400440532013000"}"#, None),
            (r#"{"destination": {"iban": 7}}"#, None),
            ("{}", None),
        ] {
            let payload: Box<RawValue> = serde_json::from_str(payload).unwrap();
            assert_eq!(masked_destination(&payload).as_deref(), shown, "{payload}");
        }
    }
}
