//! What one configures about an HTTP rail, and what is refused before the first payment.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;
use symphony::FieldError;
use symphony::lanes::payments::rail::Verdict;
use symphony::money::DestinationRule;

use crate::rails::taxonomy::Preset;

use crate::settings::Defects;

use crate::bounds::rails::CONNECT_TIMEOUT_MS;
pub use crate::bounds::rails::RESPONSE_BYTES_MAX;
pub use crate::bounds::rails::TIMEOUT_MS_MAX;

/// An HTTP rail, as configuration writes it. Every field but `url` and `destination` has a default; secrets are
/// named by the environment variable that holds them and never stand here.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpRailSettings {
    /// Where payments are sent with POST. Must be https, except for private addresses that are allowed below.
    pub url: String,
    /// Where one can ask with GET what became of a payment; `{key}` stands for its key. Default: one cannot.
    pub inquiry_url: Option<String>,
    /// Which account or contract of yours at the provider pays, in words of your own. It tells two endpoints of one address
    /// apart and is written down beside every send; no secret. Default: none.
    pub account: String,
    /// The limit on one dispatch, connecting included. Default 30,000.
    pub timeout_ms: u64,
    /// The limit on one inquiry, connecting included. Default 10,000.
    pub inquiry_timeout_ms: u64,
    /// The limit on resolving, connecting and the TLS handshake. Default 5,000, or `timeout_ms` if that is shorter.
    pub connect_timeout_ms: Option<u64>,
    /// How long the provider remembers a key, and pays once for it. Default: it does not deduplicate.
    pub key_lifetime_seconds: Option<u64>,
    /// What an inquiry's 404 is worth. Default `proves_nothing`.
    pub not_found: NotFound,
    /// With `not_found = "final"`: how long after the last send a 404 becomes a proof.
    pub settle_delay_seconds: Option<u64>,
    /// Only a 404 with this code in its body is "not found"; any other is unclear. Default: every 404 is; with
    /// `not_found = "final"` it must be set.
    pub not_found_code: String,
    /// The header that carries the key. Default `Idempotency-Key`.
    pub idempotency_header: String,
    /// The environment variable that holds the secret requests are signed with. Default: not signed.
    pub signing_secret_env: Option<String>,
    /// More headers, the same for every request. Not for secrets.
    pub headers: BTreeMap<String, String>,
    /// More headers, each with the environment variable that holds its whole value: `Authorization`.
    pub header_env: BTreeMap<String, String>,
    /// The code tables to start from. Default `["iso20022", "http"]`.
    pub presets: Vec<Preset>,
    /// The provider's own codes, over the presets: `"AM05" = "accepted"`, `"http:503" = "retryable"`.
    pub codes: BTreeMap<String, Verdict>,
    /// Where an answer has its code, as a JSON pointer. Empty: nowhere. Default `/code`.
    pub code_pointer: String,
    /// Where it has the reason of a refusal, if that is a field of its own: a refusal counts only if its reason
    /// is mapped too. Default: nowhere.
    pub reason_pointer: String,
    /// Where it has the provider's reference. Default `/reference`.
    pub reference_pointer: String,
    /// Where it has a text for people. It ends in the ledger: leave it out if it can repeat account data.
    /// Default: nowhere.
    pub message_pointer: String,
    /// Where it repeats the key; an answer for another key is then not believed. Default: nowhere.
    pub key_pointer: String,
    /// What a destination must look like. No default: say `any` if only the provider can tell.
    pub destination: Option<DestinationRule>,
    /// Larger answers are not read, hence unknown. Default 65,536.
    pub response_bytes_max: usize,
    /// Also call loopback and private addresses. Default false.
    pub allow_private_addresses: bool,
    /// Networks to call besides the public ones: `10.1.0.0/16`. Default none.
    pub allowed_networks: Vec<String>,
    /// A PEM file with certificate authorities to trust besides the public ones.
    pub extra_root_certificates_file: Option<PathBuf>,
    /// A PEM file with the certificate that proves to the provider who we are, and those above it. Default: none.
    pub client_certificate_file: Option<PathBuf>,
    /// A PEM file with the key to it, without a passphrase.
    pub client_key_file: Option<PathBuf>,
}

/// What "not found" is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotFound {
    /// The payment may still be on its way.
    ProvesNothing,
    /// The money did not move, once `settle_delay_seconds` have passed.
    Final,
}

impl Default for HttpRailSettings {
    fn default() -> Self {
        Self {
            url: String::new(),
            inquiry_url: None,
            account: String::new(),
            timeout_ms: 30_000,
            inquiry_timeout_ms: 10_000,
            connect_timeout_ms: None,
            key_lifetime_seconds: None,
            not_found: NotFound::ProvesNothing,
            settle_delay_seconds: None,
            not_found_code: String::new(),
            idempotency_header: "Idempotency-Key".to_owned(),
            signing_secret_env: None,
            headers: BTreeMap::new(),
            header_env: BTreeMap::new(),
            presets: vec![Preset::Iso20022, Preset::Http],
            codes: BTreeMap::new(),
            code_pointer: "/code".to_owned(),
            reason_pointer: String::new(),
            reference_pointer: "/reference".to_owned(),
            message_pointer: String::new(),
            key_pointer: String::new(),
            destination: None,
            response_bytes_max: 64 << 10,
            allow_private_addresses: false,
            allowed_networks: Vec::new(),
            extra_root_certificates_file: None,
            client_certificate_file: None,
            client_key_file: None,
        }
    }
}

/// Only what cannot hold a secret: neither headers nor what follows the `?` of a URL.
impl fmt::Debug for HttpRailSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpRailSettings")
            .field("url", &self.url.split('?').next())
            .field("timeout_ms", &self.timeout_ms)
            .field("headers", &self.headers.keys())
            .field("header_env", &self.header_env)
            .field("signing_secret_env", &self.signing_secret_env)
            .finish_non_exhaustive()
    }
}

impl HttpRailSettings {
    /// What can be seen wrong without resolving, reading files or asking the environment.
    pub(super) fn check_consistency(&self, defects: &mut Defects) {
        for (field, value) in
            [("timeout_ms", self.timeout_ms), ("inquiry_timeout_ms", self.inquiry_timeout_ms)]
        {
            defects.within(field, value, 1, TIMEOUT_MS_MAX);
        }
        if let Some(value) = self.connect_timeout_ms {
            defects.within("connect_timeout_ms", value, 1, TIMEOUT_MS_MAX);
        }
        defects.within("response_bytes_max", self.response_bytes_max, 1, RESPONSE_BYTES_MAX);
        if self.connect_timeout() > self.timeout_ms {
            let problem = "must not be longer than timeout_ms, of which it is a part";
            defects.add("connect_timeout_ms", problem);
        }
        if let Some(seconds) = self.key_lifetime_seconds
            && seconds.saturating_mul(1_000) <= self.timeout_ms
        {
            defects.add(
                "key_lifetime_seconds",
                "must be longer than timeout_ms: a key forgotten by then never protects (leave it out \
                 if the provider does not deduplicate)",
            );
        }
        if self.destination.is_none() {
            defects.add(
                "destination",
                "is missing: say iban, evm, aba, e164, plain_id, or any if only the provider can tell",
            );
        }
        for (field, pointer) in [
            ("code_pointer", &self.code_pointer),
            ("reason_pointer", &self.reason_pointer),
            ("reference_pointer", &self.reference_pointer),
            ("message_pointer", &self.message_pointer),
            ("key_pointer", &self.key_pointer),
        ] {
            if !pointer.is_empty() && !pointer.starts_with('/') {
                defects.add(field, "must be a JSON pointer such as /data/code, or empty");
            }
        }
        if !self.reason_pointer.is_empty() && self.code_pointer.is_empty() {
            defects.add("reason_pointer", "needs code_pointer: a reason explains a code");
        }
        defects.note(self.check_inquiry());
    }

    /// `connect_timeout_ms`, or its default.
    pub(super) fn connect_timeout(&self) -> u64 {
        self.connect_timeout_ms.unwrap_or_else(|| self.timeout_ms.min(CONNECT_TIMEOUT_MS))
    }

    fn check_inquiry(&self) -> Result<(), FieldError> {
        let refuse = |field, problem: &str| Err(FieldError::new(field, problem));
        match (self.not_found, &self.inquiry_url, self.settle_delay_seconds) {
            (NotFound::Final, None, _) => {
                refuse("not_found", "is final, but without inquiry_url nothing can be asked")
            }
            (NotFound::Final, Some(_), None) => refuse(
                "settle_delay_seconds",
                "is missing: with not_found = \"final\", say how long after a send \"not found\" is a proof",
            ),
            (NotFound::Final, Some(_), Some(_)) if self.not_found_code.is_empty() => refuse(
                "not_found_code",
                "is missing: with not_found = \"final\", say which code in a 404's body means that the key is unknown; a \
                 gateway's 404 for a wrong path proves nothing",
            ),
            (NotFound::ProvesNothing, _, Some(_)) => refuse(
                "settle_delay_seconds",
                "is only used with not_found = \"final\": remove one or change the other",
            ),
            (_, None, _) if !self.not_found_code.is_empty() => {
                refuse("not_found_code", "is set, but without inquiry_url nothing can be asked")
            }
            (_, Some(url), _) if !url.contains("{key}") => {
                refuse("inquiry_url", "must contain {key}, in whose place the payment's key is put")
            }
            (_, Some(_), _) if self.code_pointer.is_empty() => refuse(
                "code_pointer",
                "is empty, but an inquiry's answer must have a code: its status only says that the key is known",
            ),
            _ => Ok(()),
        }
    }
}
