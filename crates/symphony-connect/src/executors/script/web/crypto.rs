//! Digests, HMAC and random bytes.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::{digest, hmac};

use super::{Answer, no_such_function};
use crate::bounds::scripts::RANDOM_BYTES_MAX;
use crate::executors::script::host::Refusal;

pub(super) fn digest(hash: &str, data: &[u8]) -> Answer {
    let algorithm = match hash {
        "SHA-1" => &digest::SHA1_FOR_LEGACY_USE_ONLY,
        "SHA-256" => &digest::SHA256,
        "SHA-384" => &digest::SHA384,
        "SHA-512" => &digest::SHA512,
        _ => return Err(no_such_function()),
    };
    Ok(BASE64_STANDARD.encode(digest::digest(algorithm, data)))
}

pub(super) fn sign(hash: &str, key: &[u8], data: &[u8]) -> Answer {
    let key = hmac::Key::new(hmac_algorithm(hash)?, key);
    Ok(BASE64_STANDARD.encode(hmac::sign(&key, data)))
}

/// Compares in constant time.
pub(super) fn verify(hash: &str, key: &[u8], data: &[u8], signature: &[u8]) -> Answer {
    let key = hmac::Key::new(hmac_algorithm(hash)?, key);
    Ok(hmac::verify(&key, data, signature).is_ok().to_string())
}

fn hmac_algorithm(hash: &str) -> Result<hmac::Algorithm, Refusal> {
    match hash {
        "SHA-1" => Ok(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
        "SHA-256" => Ok(hmac::HMAC_SHA256),
        "SHA-384" => Ok(hmac::HMAC_SHA384),
        "SHA-512" => Ok(hmac::HMAC_SHA512),
        _ => Err(no_such_function()),
    }
}

pub(super) fn random(count: &str) -> Answer {
    let count = count.parse().ok().filter(|count| *count <= RANDOM_BYTES_MAX);
    let mut bytes = vec![0; count.ok_or_else(no_such_function)?];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Refusal::Failure("crypto: the system has no random bytes".to_owned()))?;
    Ok(BASE64_STANDARD.encode(bytes))
}
