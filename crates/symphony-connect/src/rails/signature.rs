//! How a request proves where it comes from: `Symphony-Signature: t=<unix seconds>,v1=<hex hmac-sha256>`.
//!
//! What is signed is `{t}.{key}.{body}`: the time, so that an old request cannot be replayed for ever; the
//! idempotency key, so that a body cannot be replayed under another key, which would pay it again.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// The header that carries the signature.
pub const SIGNATURE_HEADER: &str = "symphony-signature";

/// Why a signature is not believed. Says nothing about what would have been right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// Not of the form `t=…,v1=…`.
    #[error("the signature must look like t=<unix seconds>,v1=<64 hex digits>")]
    Malformed,
    /// Its time is too far from now.
    #[error("the signature's time is too far from now: check both clocks")]
    OutOfTime,
    /// Another secret, key, body or time.
    #[error(
        "the signature does not match: check the secret, and that the body is read byte for byte"
    )]
    Mismatch,
}

/// The header's value for a request made at `unix_seconds`.
pub fn sign(secret: &[u8], unix_seconds: i64, key: &str, body: &[u8]) -> String {
    let mac = authenticator(secret, unix_seconds, key, body).finalize().into_bytes();
    format!("t={unix_seconds},v1={}", hex::encode(mac))
}

/// Believe the header or say why not. Several `v1` may be given while a secret is being changed.
pub fn verify(
    secret: &[u8],
    header: &str,
    key: &str,
    body: &[u8],
    now_unix_seconds: i64,
    tolerance_seconds: u32,
) -> Result<(), SignatureError> {
    let mut signed_at = None;
    let mut candidates = Vec::new();
    for part in header.split(',') {
        match part.trim().split_once('=') {
            // A second time would leave open which one was signed.
            Some(("t", _)) if signed_at.is_some() => return Err(SignatureError::Malformed),
            Some(("t", seconds)) => {
                signed_at = Some(seconds.parse::<i64>().map_err(|_| SignatureError::Malformed)?);
            }
            Some(("v1", digits)) => {
                let mut given = [0_u8; 32];
                hex::decode_to_slice(digits, &mut given).map_err(|_| SignatureError::Malformed)?;
                candidates.push(given);
            }
            Some(_) => {}
            None => return Err(SignatureError::Malformed),
        }
    }
    let signed_at = signed_at.ok_or(SignatureError::Malformed)?;
    if candidates.is_empty() {
        return Err(SignatureError::Malformed);
    }
    let expected = authenticator(secret, signed_at, key, body);
    // `verify_slice` takes the same time however much of it is right.
    if !candidates.iter().any(|given| expected.clone().verify_slice(given).is_ok()) {
        return Err(SignatureError::Mismatch);
    }
    if now_unix_seconds.abs_diff(signed_at) > u64::from(tolerance_seconds) {
        return Err(SignatureError::OutOfTime);
    }
    Ok(())
}

fn authenticator(secret: &[u8], unix_seconds: i64, key: &str, body: &[u8]) -> Hmac<Sha256> {
    // HMAC takes keys of every length; were that ever to change, an empty key would verify nowhere.
    let mut mac = Hmac::<Sha256>::new_from_slice(secret)
        .unwrap_or_else(|_| Hmac::<Sha256>::new(&hmac::digest::Key::<Hmac<Sha256>>::default()));
    mac.update(unix_seconds.to_string().as_bytes());
    mac.update(b".");
    mac.update(key.as_bytes());
    mac.update(b".");
    mac.update(body);
    mac
}

#[cfg(test)]
mod tests {
    use super::{SignatureError, sign, verify};

    const SECRET: &[u8] = b"secret";
    const KEY: &str = "5f0c6f3e-0000-4000-8000-000000000001";
    const BODY: &[u8] = b"{\"amount\": {\"value\": \"10.00\"}}";

    #[test]
    fn the_signature_is_the_hmac_that_any_other_program_computes() {
        // printf '%s' '1700000000.KEY.BODY' | openssl dgst -sha256 -hmac secret
        assert_eq!(
            sign(SECRET, 1_700_000_000, "KEY", b"BODY"),
            "t=1700000000,v1=65480c367bc59c196f767cdb0e6f1cfea016fa532da1597f1c2780401afe086f"
        );
    }

    #[test]
    fn a_signature_verifies_only_for_the_secret_key_body_and_time_it_was_made_for() {
        let header = sign(SECRET, 1_000, KEY, BODY);
        let other_time = header.replace("t=1000", "t=1001");
        let two = format!("t=1000,v1={},{}", "0".repeat(64), header.replace("t=1000,", ""));
        for (secret, header, key, body, now, expected) in [
            (SECRET, header.as_str(), KEY, BODY, 1_000, Ok(())),
            (SECRET, header.as_str(), KEY, BODY, 1_300, Ok(())),
            (SECRET, header.as_str(), KEY, BODY, 700, Ok(())),
            (SECRET, two.as_str(), KEY, BODY, 1_000, Ok(())),
            (SECRET, header.as_str(), KEY, BODY, 1_301, Err(SignatureError::OutOfTime)),
            (SECRET, header.as_str(), KEY, BODY, i64::MIN, Err(SignatureError::OutOfTime)),
            (b"Secret", header.as_str(), KEY, BODY, 1_000, Err(SignatureError::Mismatch)),
            (SECRET, header.as_str(), "other", BODY, 1_000, Err(SignatureError::Mismatch)),
            (SECRET, header.as_str(), KEY, b"{}", 1_000, Err(SignatureError::Mismatch)),
            (SECRET, other_time.as_str(), KEY, BODY, 1_000, Err(SignatureError::Mismatch)),
        ] {
            assert_eq!(verify(secret, header, key, body, now, 300), expected, "{header} at {now}");
        }
    }

    #[test]
    fn what_is_no_signature_is_malformed() {
        for header in [
            "",
            "t=1000",
            "v1=00",
            "t=1000,v1=",
            "t=1000,v1=zz",
            "t=x,v1=00",
            "t=1000,garbage",
            "t=1000,t=1000,v1=0000000000000000000000000000000000000000000000000000000000000000",
            "t=1000,v1=+f00000000000000000000000000000000000000000000000000000000000000",
            "t=1000,v1=é000000000000000000000000000000000000000000000000000000000000",
        ] {
            assert_eq!(
                verify(SECRET, header, KEY, BODY, 1_000, 300),
                Err(SignatureError::Malformed),
                "{header}"
            );
        }
    }
}
