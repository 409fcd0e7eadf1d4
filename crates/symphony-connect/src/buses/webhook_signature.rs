//! How a webhook proves where it comes from: the signature of Standard Webhooks.
//!
//! What is signed is `{webhook-id}.{webhook-timestamp}.{body}`, with HMAC-SHA-256; the header is
//! `webhook-signature: v1,<base64>`, one for each secret, separated by spaces. While a secret is being changed both are
//! in use, and a receiver needs to know only one of them.

use std::fmt;

use crate::bounds::webhooks::SECRET_BYTES;
pub use crate::bounds::webhooks::SECRETS_MAX;
pub use crate::bounds::webhooks::TOLERANCE_SECONDS;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// The header that carries the event's id, the same on every try.
pub const ID_HEADER: &str = "webhook-id";
/// The header that carries when this try was signed, in unix seconds.
pub const TIMESTAMP_HEADER: &str = "webhook-timestamp";
/// The header that carries the signatures.
pub const SIGNATURE_HEADER: &str = "webhook-signature";

const SECRET_PREFIX: &str = "whsec_";
const VERSION: &str = "v1";

/// A secret shared with one receiver. Never printed.
#[derive(Clone)]
pub struct Secret(Hmac<Sha256>);

/// Why a text is no secret, or a signature is not believed. Says nothing about what would have been right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// Not `whsec_` and base64 of 24 to 64 bytes.
    #[error(
        "must be whsec_ and the base64 of 24 to 64 random bytes; several are separated by spaces, at most 4"
    )]
    NoSecret,
    /// A header is missing, or is not what the standard says.
    #[error("the webhook headers are missing or malformed")]
    Malformed,
    /// Its time is too far from now.
    #[error("the webhook's time is too far from now: check both clocks")]
    OutOfTime,
    /// Another secret, id, time or body.
    #[error(
        "the signature does not match: check the secret, and that the body is read byte for byte"
    )]
    Mismatch,
}

impl Secret {
    /// From `whsec_` and base64.
    pub fn parse(text: &str) -> Result<Self, SignatureError> {
        let encoded = text.strip_prefix(SECRET_PREFIX).ok_or(SignatureError::NoSecret)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| SignatureError::NoSecret)?;
        if !SECRET_BYTES.contains(&bytes.len()) {
            return Err(SignatureError::NoSecret);
        }
        Hmac::new_from_slice(&bytes).map(Self).map_err(|_| SignatureError::NoSecret)
    }

    /// One or several, separated by white space: the first is the newest.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, SignatureError> {
        let secrets: Vec<Self> =
            text.split_ascii_whitespace().map(Self::parse).collect::<Result<_, _>>()?;
        if (1..=SECRETS_MAX).contains(&secrets.len()) {
            Ok(secrets)
        } else {
            Err(SignatureError::NoSecret)
        }
    }

    fn authenticator(&self, id: &str, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            mac.update(part);
        }
        mac
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A new random secret, as it is written: `whsec_` and base64.
pub fn new_secret() -> String {
    let random = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()].map(uuid::Uuid::into_bytes).concat();
    format!("whsec_{}", STANDARD.encode(random))
}

/// The value of `webhook-signature`: one signature for each secret.
pub fn sign(secrets: &[Secret], id: &str, unix_seconds: i64, body: &[u8]) -> String {
    let timestamp = unix_seconds.to_string();
    let signatures: Vec<String> = secrets
        .iter()
        .map(|secret| {
            let mac = secret.authenticator(id, &timestamp, body).finalize().into_bytes();
            format!("{VERSION},{}", STANDARD.encode(mac))
        })
        .collect();
    signatures.join(" ")
}

/// Believe a webhook or say why not.
pub fn verify(
    secrets: &[Secret],
    id: &str,
    timestamp: &str,
    signatures: &str,
    body: &[u8],
    now_unix_seconds: i64,
) -> Result<(), SignatureError> {
    let is_number = !timestamp.is_empty() && timestamp.bytes().all(|byte| byte.is_ascii_digit());
    let signed_at: i64 = timestamp
        .parse()
        .ok()
        .filter(|_| is_number && !id.is_empty())
        .ok_or(SignatureError::Malformed)?;
    // Versions we do not know are for others.
    let given: Vec<Vec<u8>> = signatures
        .split(' ')
        .filter_map(|one| one.split_once(','))
        .filter(|(version, _)| *version == VERSION)
        .filter_map(|(_, encoded)| STANDARD.decode(encoded).ok())
        .collect();
    if given.is_empty() {
        return Err(SignatureError::Malformed);
    }
    let is_signed = secrets.iter().any(|secret| {
        let expected = secret.authenticator(id, timestamp, body);
        // `verify_slice` takes the same time however much of it is right.
        given.iter().any(|signature| expected.clone().verify_slice(signature).is_ok())
    });
    if !is_signed {
        return Err(SignatureError::Mismatch);
    }
    if now_unix_seconds.abs_diff(signed_at) > TOLERANCE_SECONDS {
        return Err(SignatureError::OutOfTime);
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Secret, SignatureError, sign, verify};

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const OTHER: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const AT: i64 = 1_614_265_330;

    fn secrets(text: &str) -> Vec<Secret> {
        Secret::parse_list(text).unwrap()
    }

    #[test]
    fn the_signature_is_that_of_the_standards_own_example() {
        assert_eq!(
            sign(&secrets(SECRET), ID, AT, BODY),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }

    #[test]
    fn a_webhook_is_believed_only_with_a_known_secret_and_for_its_own_id_time_and_body() {
        let signed = sign(&secrets(SECRET), ID, AT, BODY);
        let rotated = sign(&secrets(&format!("{OTHER} {SECRET}")), ID, AT, BODY);
        assert_eq!(rotated.split(' ').count(), 2);
        let time = AT.to_string();
        let later = (AT + 1).to_string();
        for (secret, id, timestamp, signatures, body, now, expected) in [
            (SECRET, ID, &time, &signed, BODY, AT, Ok(())),
            (SECRET, ID, &time, &rotated, BODY, AT, Ok(())),
            (OTHER, ID, &time, &rotated, BODY, AT, Ok(())),
            (SECRET, ID, &time, &signed, BODY, AT + 300, Ok(())),
            (SECRET, ID, &time, &signed, BODY, AT + 301, Err(SignatureError::OutOfTime)),
            (SECRET, ID, &time, &signed, BODY, AT - 301, Err(SignatureError::OutOfTime)),
            (OTHER, ID, &time, &signed, BODY, AT, Err(SignatureError::Mismatch)),
            (SECRET, "msg_2", &time, &signed, BODY, AT, Err(SignatureError::Mismatch)),
            (SECRET, ID, &later, &signed, BODY, AT, Err(SignatureError::Mismatch)),
            (SECRET, ID, &time, &signed, b"{}", AT, Err(SignatureError::Mismatch)),
        ] {
            let verdict = verify(&secrets(secret), id, timestamp, signatures, body, now);
            assert_eq!(verdict, expected, "{id} {timestamp} {now}");
        }
        for (timestamp, signatures) in [
            ("", signed.as_str()),
            ("-1", &signed),
            ("+1614265330", &signed),
            ("soon", &signed),
            ("1614265330", ""),
            ("1614265330", "v1a,AAAA"),
            ("1614265330", "v1,???"),
        ] {
            let verdict = verify(&secrets(SECRET), ID, timestamp, signatures, BODY, AT);
            assert_eq!(verdict, Err(SignatureError::Malformed), "{timestamp} {signatures}");
        }
    }

    #[test]
    fn what_is_no_secret_is_refused_and_none_is_printed() {
        let short = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFR==";
        for text in ["", " ", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_%%%%", short] {
            assert!(Secret::parse_list(text).is_err(), "{text}");
        }
        assert!(Secret::parse_list(&format!("{SECRET} nonsense")).is_err());
        assert!(Secret::parse_list(&[SECRET; 5].join(" ")).is_err());
        assert_eq!(format!("{:?}", secrets(SECRET)), "[Secret(…)]");
    }
}
