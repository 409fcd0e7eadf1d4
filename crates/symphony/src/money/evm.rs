//! EVM addresses: 20 bytes in hex, whose upper and lower case letters are the checksum of EIP-55.
//!
//! The checksum is required. EIP-55 lets an address in one case pass as "without a checksum"; a transfer to a
//! mistyped address cannot be called back, so we do not. Converting is one library call for the producer,
//! who can compare with the source, which we cannot.

use sha3::{Digest as _, Keccak256};

use super::Defect;

pub(super) const CODE: &str = "INVALID_EVM_ADDRESS";
pub(super) const FIELD: &str = "destination.address";

/// Check an address such as `0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed`.
pub(super) fn check(text: &str) -> Result<(), Defect> {
    let defect = |problem: &str| Err(Defect::new(CODE, FIELD, problem));
    let Some(hex) = text.strip_prefix("0x") else {
        return defect("must begin with 0x");
    };
    if hex.len() != 40 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return defect("must be 0x and 40 hexadecimal digits");
    }
    if hex.bytes().all(|byte| byte == b'0') {
        return defect("is the zero address: what is sent there is lost");
    }
    if checksummed(hex) == hex {
        return Ok(());
    }
    let has = |case: fn(&u8) -> bool| hex.as_bytes().iter().any(case);
    if has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase) {
        defect("fails its EIP-55 checksum: a digit is wrong, or the case of a letter")
    } else {
        defect(
            "has no EIP-55 checksum, its letters being all in one case: compare it with its source and write it in \
             mixed case",
        )
    }
}

/// The digits with the case of each letter as EIP-55 has it: upper where the hash's digit is 8 or more.
fn checksummed(hex: &str) -> String {
    let lower = hex.to_ascii_lowercase();
    let hash = Keccak256::digest(lower.as_bytes());
    let nibbles = hash.iter().flat_map(|byte| [byte >> 4, byte & 0x0f]);
    lower
        .chars()
        .zip(nibbles)
        .map(|(digit, nibble)| if nibble >= 8 { digit.to_ascii_uppercase() } else { digit })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    /// The first eight are EIP-55's own; then contracts everybody knows.
    const EXAMPLES: [&str; 14] = [
        "0x52908400098527886E0F7030069857D2E4169EE7",
        "0x8617E340B3D01FA5F11F306F4090FD50E238070D",
        "0xde709f2102306220921060314715629080e2fb77",
        "0x27b1fdb04752bbc536007a920d24acb045561c26",
        "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
        "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
        "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
        "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
        "0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48",
        "0xdAC17F958D2ee523a2206206994597C13D831ec7",
        "0xC02aaA39b223FE8D0A0e5C4F27eAD9083C756Cc2",
        "0x6B175474E89094C44Da98b954EedeAC495271d0F",
        "0xd8dA6BF26964aF9D7eEd9e03E53415D37aA96045",
        "0x1111111111111111111111111111111111111111",
    ];

    #[test]
    fn checksummed_addresses_pass() {
        for example in EXAMPLES {
            assert_eq!(check(example), Ok(()), "{example}");
        }
    }

    #[test]
    fn every_letter_in_the_wrong_case_is_caught() {
        for example in EXAMPLES {
            for (at, byte) in example.bytes().enumerate().skip(2) {
                if byte.is_ascii_alphabetic() {
                    let mut bytes = example.as_bytes().to_vec();
                    bytes[at] ^= 0x20;
                    assert!(
                        check(&String::from_utf8(bytes).unwrap()).is_err(),
                        "{example} at {at}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_wrong_digit_is_caught_in_an_address_with_letters() {
        // Odds of about 1 in 4,000 for one mistake; these examples have none that slips through.
        for example in
            EXAMPLES.iter().filter(|e| e.bytes().filter(u8::is_ascii_alphabetic).count() > 12)
        {
            for at in 2..example.len() {
                for wrong in "0123456789".chars().filter(|wrong| !example[at..].starts_with(*wrong))
                {
                    let text = format!("{}{wrong}{}", &example[..at], &example[at + 1..]);
                    assert!(check(&text).is_err(), "{example} became {text}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_checksummed_address_is_refused_with_the_fix() {
        for (text, expected) in [
            ("", "must begin with 0x"),
            ("5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "must begin with 0x"),
            ("0X5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "must begin with 0x"),
            ("0x", "40 hexadecimal digits"),
            ("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAe", "40 hexadecimal digits"),
            ("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed0", "40 hexadecimal digits"),
            ("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeg", "40 hexadecimal digits"),
            ("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAe\u{e9}", "40 hexadecimal digits"),
            ("vitalik.eth", "must begin with 0x"),
            ("0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed", "has no EIP-55 checksum"),
            ("0x5AAEB6053F3E94C9B9A09F33669435E7EF1BEAED", "has no EIP-55 checksum"),
            ("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD", "fails its EIP-55 checksum"),
            ("0x0000000000000000000000000000000000000000", "zero address"),
        ] {
            let defect = check(text).unwrap_err();
            assert_eq!((defect.code, defect.error.field.as_str()), (CODE, FIELD));
            assert!(defect.error.problem.contains(expected), "{text:?}: {defect}");
        }
    }
}
