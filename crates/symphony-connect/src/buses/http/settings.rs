//! What one configures about webhooks, and what is refused before the first event.
//!
//! ```toml
//! [buses.hooks]
//! kind = "http"
//! [buses.hooks.endpoints.billing]
//! url = "https://billing.example.com/events"
//! secret_env = "BILLING_WEBHOOK_SECRET"    # whsec_…; while it is being changed: "whsec_new whsec_old"
//! timeout_ms = 15000
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;

pub use crate::bounds::webhooks::BATCH_MAX;
pub use crate::bounds::webhooks::RESPONSE_BYTES_MAX;
pub use crate::bounds::webhooks::TIMEOUT_MS_MAX;
use crate::bounds::webhooks::{CONNECT_TIMEOUT_MS, NAME_BYTES_MAX};
use crate::settings::Defects;

/// A bus of webhooks, as configuration writes it. An event's topic is the name of an endpoint.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpBusSettings {
    /// Who is told, by name.
    pub endpoints: BTreeMap<String, EndpointSettings>,
    /// How many events go out at once in one call. Default 10.
    pub batch_max: usize,
    /// Larger answers are not read on; their status counts all the same. Default 16,384.
    pub response_bytes_max: usize,
    /// Also call loopback and private addresses. Default false.
    pub allow_private_addresses: bool,
    /// Networks to call besides the public ones: `10.1.0.0/16`. Default none.
    pub allowed_networks: Vec<String>,
    /// A PEM file with certificate authorities to trust besides the public ones.
    pub extra_root_certificates_file: Option<PathBuf>,
}

/// One receiver.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EndpointSettings {
    /// Where events are sent with POST. Must be https, except for private addresses that are allowed.
    pub url: String,
    /// The environment variable with the secret (`whsec_…`), or several while one is being changed, newest first.
    pub secret_env: String,
    /// The limit on one event, connecting included. Default 15,000.
    pub timeout_ms: u64,
    /// The limit on resolving, connecting and the TLS handshake. Default 5,000, or `timeout_ms` if that is shorter.
    pub connect_timeout_ms: Option<u64>,
    /// A PEM file with the certificate that proves to the receiver who we are, and those above it. Default: none.
    pub client_certificate_file: Option<PathBuf>,
    /// A PEM file with the key to it, without a passphrase.
    pub client_key_file: Option<PathBuf>,
}

impl Default for HttpBusSettings {
    fn default() -> Self {
        Self {
            endpoints: BTreeMap::new(),
            batch_max: 10,
            response_bytes_max: 16 << 10,
            allow_private_addresses: false,
            allowed_networks: Vec::new(),
            extra_root_certificates_file: None,
        }
    }
}

impl Default for EndpointSettings {
    fn default() -> Self {
        Self {
            url: String::new(),
            secret_env: String::new(),
            timeout_ms: 15_000,
            connect_timeout_ms: None,
            client_certificate_file: None,
            client_key_file: None,
        }
    }
}

/// Without what follows the `?` of the URL, which may be a token.
impl fmt::Debug for EndpointSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointSettings")
            .field("url", &self.url.split('?').next())
            .field("secret_env", &self.secret_env)
            .field("timeout_ms", &self.timeout_ms)
            .finish_non_exhaustive()
    }
}

impl HttpBusSettings {
    /// What can be seen wrong without resolving, reading files or asking the environment.
    pub(super) fn check_consistency(&self, defects: &mut Defects) {
        if self.endpoints.is_empty() {
            let problem =
                "is empty: add a section such as endpoints.billing with url and secret_env";
            defects.add("endpoints", problem);
        }
        defects.within("batch_max", self.batch_max, 1, BATCH_MAX);
        defects.within("response_bytes_max", self.response_bytes_max, 1, RESPONSE_BYTES_MAX);
        for (name, endpoint) in &self.endpoints {
            let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
            if !is_name {
                let problem =
                    "has a name that is no topic: letters, digits, - _ and ., at most 64 of them";
                defects.add("endpoints", problem);
            }
            endpoint.check(name, defects);
        }
    }
}

impl EndpointSettings {
    fn check(&self, name: &str, defects: &mut Defects) {
        let field = |field: &str| format!("endpoints.{name}.{field}");
        defects.within(field("timeout_ms"), self.timeout_ms, 1, TIMEOUT_MS_MAX);
        if let Some(value) = self.connect_timeout_ms {
            defects.within(field("connect_timeout_ms"), value, 1, TIMEOUT_MS_MAX);
        }
        if self.connect_timeout() > self.timeout_ms {
            let problem = "must not be longer than timeout_ms, of which it is a part";
            defects.add(field("connect_timeout_ms"), problem);
        }
    }

    /// `connect_timeout_ms`, or its default.
    pub(super) fn connect_timeout(&self) -> u64 {
        self.connect_timeout_ms.unwrap_or_else(|| self.timeout_ms.min(CONNECT_TIMEOUT_MS))
    }
}
