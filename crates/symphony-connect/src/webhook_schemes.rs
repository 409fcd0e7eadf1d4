//! Who sent a webhook that came in: the signature schemes of common providers, all HMAC-SHA-256 of the body as it came.
//!
//! | scheme | header | signed | replay |
//! |---|---|---|---|
//! | Standard Webhooks | `webhook-signature` | id, time and body | refused after five minutes |
//! | Stripe | `Stripe-Signature` | time and body | refused after five minutes |
//! | GitHub | `X-Hub-Signature-256` | body | GitHub signs no time: the script must know a delivery again |

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::bounds::webhooks::{SECRETS_MAX, TOLERANCE_SECONDS};
use crate::buses::webhook_signature::{
    self, ID_HEADER, SIGNATURE_HEADER, Secret, SignatureError, TIMESTAMP_HEADER,
};

/// How a provider signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookScheme {
    /// <https://www.standardwebhooks.com>; Svix, OpenAI and others.
    StandardWebhooks,
    /// <https://docs.stripe.com/webhooks>.
    Stripe,
    /// <https://docs.github.com/webhooks>.
    GitHub,
}

impl WebhookScheme {
    /// By its name in a manifest.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "standard-webhooks" => Some(Self::StandardWebhooks),
            "stripe" => Some(Self::Stripe),
            "github" => Some(Self::GitHub),
            _ => None,
        }
    }

    /// The headers that carry its signatures.
    pub fn signature_header(self) -> &'static str {
        match self {
            Self::StandardWebhooks => SIGNATURE_HEADER,
            Self::Stripe => "stripe-signature",
            Self::GitHub => "x-hub-signature-256",
        }
    }

    /// Believe a webhook or say why not. `secrets` has one a line, so that one can be changed; `header` answers a header's
    /// value, if there is exactly one of that name.
    pub fn verify<'h>(
        self,
        secrets: &str,
        header: impl Fn(&str) -> Option<&'h str>,
        body: &[u8],
        now_unix_seconds: i64,
    ) -> Result<(), SignatureError> {
        let secrets: Vec<&str> =
            secrets.lines().map(str::trim).filter(|secret| !secret.is_empty()).collect();
        if !(1..=SECRETS_MAX).contains(&secrets.len()) {
            return Err(SignatureError::NoSecret);
        }
        let signature = header(self.signature_header()).ok_or(SignatureError::Malformed)?;
        match self {
            Self::StandardWebhooks => {
                let secrets: Vec<Secret> =
                    secrets.into_iter().map(Secret::parse).collect::<Result<_, _>>()?;
                let id = header(ID_HEADER).ok_or(SignatureError::Malformed)?;
                let time = header(TIMESTAMP_HEADER).ok_or(SignatureError::Malformed)?;
                webhook_signature::verify(&secrets, id, time, signature, body, now_unix_seconds)
            }
            Self::Stripe => stripe(&secrets, signature, body, now_unix_seconds),
            Self::GitHub => {
                let digits = signature.strip_prefix("sha256=").ok_or(SignatureError::Malformed)?;
                let given = hex::decode(digits).map_err(|_| SignatureError::Malformed)?;
                is_signed(&secrets, &[body], &[given])
            }
        }
    }
}

/// `t=1492774577,v1=…,v1=…,v0=…`: only `v1` counts, and any of them may be the one.
fn stripe(
    secrets: &[&str],
    signature: &str,
    body: &[u8],
    now_unix_seconds: i64,
) -> Result<(), SignatureError> {
    let parts = || signature.split(',').filter_map(|part| part.trim().split_once('='));
    let mut times = parts().filter(|(name, _)| *name == "t").map(|(_, value)| value);
    let (Some(time), None) = (times.next(), times.next()) else {
        return Err(SignatureError::Malformed);
    };
    let is_number = !time.is_empty() && time.bytes().all(|byte| byte.is_ascii_digit());
    let signed_at: i64 =
        time.parse().ok().filter(|_| is_number).ok_or(SignatureError::Malformed)?;
    let given: Vec<Vec<u8>> = parts()
        .filter(|(name, _)| *name == "v1")
        .filter_map(|(_, digits)| hex::decode(digits).ok())
        .collect();
    if given.is_empty() {
        return Err(SignatureError::Malformed);
    }
    is_signed(secrets, &[time.as_bytes(), b".", body], &given)?;
    if now_unix_seconds.abs_diff(signed_at) > TOLERANCE_SECONDS {
        return Err(SignatureError::OutOfTime);
    }
    Ok(())
}

fn is_signed(secrets: &[&str], signed: &[&[u8]], given: &[Vec<u8>]) -> Result<(), SignatureError> {
    for secret in secrets {
        let mut mac: Hmac<Sha256> =
            Hmac::new_from_slice(secret.as_bytes()).map_err(|_| SignatureError::NoSecret)?;
        for part in signed {
            mac.update(part);
        }
        // `verify_slice` takes the same time however much of it is right.
        if given.iter().any(|signature| mac.clone().verify_slice(signature).is_ok()) {
            return Ok(());
        }
    }
    Err(SignatureError::Mismatch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(
        scheme: WebhookScheme,
        secrets: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        now: i64,
    ) -> Result<(), SignatureError> {
        let header = |name: &str| headers.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
        scheme.verify(secrets, header, body, now)
    }

    #[test]
    fn githubs_own_example_is_believed_and_nothing_near_it() {
        // https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
        const SECRET: &str = "It's a Secret to Everybody";
        const SIGNED: &str =
            "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let upper = SIGNED.replace("757107ea", "757107eb");
        for (secrets, signature, body, expected) in [
            (SECRET, SIGNED, "Hello, World!", Ok(())),
            ("the next one\nIt's a Secret to Everybody", SIGNED, "Hello, World!", Ok(())),
            ("another", SIGNED, "Hello, World!", Err(SignatureError::Mismatch)),
            (SECRET, SIGNED, "Hello, World?", Err(SignatureError::Mismatch)),
            (SECRET, upper.as_str(), "Hello, World!", Err(SignatureError::Mismatch)),
            (SECRET, "sha256=75", "Hello, World!", Err(SignatureError::Mismatch)),
            (SECRET, "sha256=", "Hello, World!", Err(SignatureError::Mismatch)),
            (SECRET, "sha1=757107ea", "Hello, World!", Err(SignatureError::Malformed)),
            ("", SIGNED, "Hello, World!", Err(SignatureError::NoSecret)),
        ] {
            let headers = [("x-hub-signature-256", signature)];
            let said = verdict(WebhookScheme::GitHub, secrets, &headers, body.as_bytes(), 0);
            assert_eq!(said, expected, "{secrets} {signature} {body}");
        }
        let none = verdict(WebhookScheme::GitHub, SECRET, &[], b"Hello, World!", 0);
        assert_eq!(none, Err(SignatureError::Malformed));
    }

    #[test]
    fn stripes_scheme_is_believed_for_its_own_time_and_body() {
        // python3 -c "import hmac; print(hmac.new(b'whsec_test_secret', b'1492774577.{}', 'sha256').hexdigest())"
        const V1: &str = "53140ab8fa70c511cc40d5c9198af7dde7bbaee877038c056d8250c3bd3b2e11";
        const AT: i64 = 1_492_774_577;
        let good = format!("t=1492774577,v1={V1},v0=6ffbb59b2300aae63f272406069a9788598b792a");
        let rotated = format!("t=1492774577,v1=00ff,v1={V1}");
        let later = format!("t=1492774578,v1={V1}");
        let old_version = format!("t=1492774577,v0={V1}");
        let two_times = format!("t=1492774577,t=1492774578,v1={V1}");
        for (signature, body, now, expected) in [
            (&good, "{}", AT, Ok(())),
            (&rotated, "{}", AT + 300, Ok(())),
            (&good, "{}", AT + 301, Err(SignatureError::OutOfTime)),
            (&good, "{}", AT - 301, Err(SignatureError::OutOfTime)),
            (&good, "{ }", AT, Err(SignatureError::Mismatch)),
            (&later, "{}", AT, Err(SignatureError::Mismatch)),
            (&old_version, "{}", AT, Err(SignatureError::Malformed)),
            (&two_times, "{}", AT, Err(SignatureError::Malformed)),
            (&V1.to_owned(), "{}", AT, Err(SignatureError::Malformed)),
        ] {
            let headers = [("stripe-signature", signature.as_str())];
            let secret = "whsec_test_secret";
            let said = verdict(WebhookScheme::Stripe, secret, &headers, body.as_bytes(), now);
            assert_eq!(said, expected, "{signature} {body} {now}");
        }
    }

    #[test]
    fn the_standards_own_example_is_believed() {
        let headers = [
            ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            ("webhook-timestamp", "1614265330"),
            ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        ];
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let body = br#"{"test": 2432232314}"#;
        let scheme = WebhookScheme::StandardWebhooks;
        assert_eq!(verdict(scheme, secret, &headers, body, 1_614_265_330), Ok(()));
        let late = verdict(scheme, secret, &headers, body, 1_614_265_631);
        assert_eq!(late, Err(SignatureError::OutOfTime));
    }
}
