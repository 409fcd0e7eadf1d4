//! The provider's own check of a request's signature, written apart from the code that signs: two readings of one
//! specification.
//!
//! `Symphony-Signature: t=<unix seconds>,v1=<hexadecimal HMAC-SHA-256 of "{t}.{key}.{body}">`

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// The secret shared with whoever signs. Never printed.
#[derive(Clone)]
pub struct Secret(Hmac<Sha256>);

/// An older signature might be a recording.
const AGE_SECONDS_MAX: u64 = 300;

impl Secret {
    /// From its bytes. `None` if there are none: an empty secret is a forgotten one.
    pub fn new(secret: &[u8]) -> Option<Self> {
        if secret.is_empty() {
            return None;
        }
        Hmac::new_from_slice(secret).ok().map(Self)
    }

    /// Whether a header signs this request, and did so just now.
    pub(super) fn signed(&self, header: &str, key: &str, body: &[u8], now_seconds: u64) -> bool {
        let (mut time, mut signature) = (None, None);
        for part in header.split(',') {
            match part.split_once('=') {
                Some(("t", text)) => time = Some(text),
                Some(("v1", text)) => signature = hex::decode(text).ok(),
                _ => {}
            }
        }
        let (Some(time), Some(signature)) = (time, signature) else {
            return false;
        };
        let fresh = time
            .parse()
            .is_ok_and(|signed_at: u64| signed_at.abs_diff(now_seconds) <= AGE_SECONDS_MAX);
        let mut mac = self.0.clone();
        for part in [time.as_bytes(), b".", key.as_bytes(), b".", body] {
            mac.update(part);
        }
        fresh && mac.verify_slice(&signature).is_ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Secret(…)")
    }
}
