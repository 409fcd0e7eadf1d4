//! Where this process listens: `api.listen`, `triggers.http_listen`, `triggers.email.listen`.

use std::net::SocketAddr;

use super::Config;
use super::defects::Defects;
use crate::bounds::CONNECTIONS_MAX;

impl Config {
    /// The addresses of this process, `None` for those that are off; notes what cannot be one.
    pub(super) fn check_listeners(&self, defects: &mut Defects) {
        let listeners = [
            ("api.listen", &self.api.listen, "127.0.0.1:9464"),
            ("triggers.http_listen", &self.triggers.http_listen, "127.0.0.1:8080"),
            ("triggers.email.listen", &self.triggers.email.listen, "127.0.0.1:2525"),
        ];
        if self.api.tls_certificate_file.is_some() != self.api.tls_key_file.is_some() {
            defects
                .add("api.tls_key_file", "goes with api.tls_certificate_file: name both, or none");
        }
        if !(1..=100_000).contains(&self.api.rate_per_second) {
            defects.add("api.rate_per_second", "must be 1 to 100000");
        }
        if !(1..=CONNECTIONS_MAX).contains(&self.api.database_connections_max) {
            let problem = format!(
                "is {}: it must be 1 to {CONNECTIONS_MAX}",
                self.api.database_connections_max
            );
            defects.add("api.database_connections_max", problem);
        }
        let mut taken: Vec<(&str, SocketAddr)> = Vec::new();
        for (field, text, example) in listeners {
            let address = match listen_address(text, example) {
                Ok(None) => continue,
                Ok(Some(address)) => address,
                Err(problem) => {
                    defects.add(field, problem);
                    continue;
                }
            };
            let protected = self.api.tls_certificate_file.is_some() || self.api.behind_proxy;
            if field == "api.listen" && !address.ip().is_loopback() && !protected {
                let problem = format!(
                    "is {text}: beyond loopback tokens would travel in the clear; name api.tls_certificate_file and \
                     api.tls_key_file, say api.behind_proxy = true, or use {example}"
                );
                defects.add(field, problem);
            }
            let by_token = self.triggers.token_fields();
            if field == "triggers.http_listen"
                && !address.ip().is_loopback()
                && !self.triggers.behind_proxy
                && !by_token.is_empty()
            {
                let fields = by_token.join(" and ");
                let problem = format!(
                    "is {text}: beyond loopback tokens would travel in the clear; say triggers.behind_proxy = true where a \
                     proxy in front speaks TLS, set {fields} to \"none\", or use {example}"
                );
                defects.add(field, problem);
            }
            let clash = taken.iter().find(|(_, other)| overlap(*other, address));
            if let Some((other, _)) = clash {
                defects.add(field, format!("is {text}, and so is {other}: choose another port"));
            }
            taken.push((field, address));
        }
    }
}

/// An address to listen on; `None` for "off".
pub fn listen_address(text: &str, example: &str) -> Result<Option<SocketAddr>, String> {
    if text == "off" {
        return Ok(None);
    }
    text.parse()
        .map(Some)
        .map_err(|_| format!("is {text}: it must look like {example}, or be \"off\""))
}

/// Whether one port cannot serve both.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let everywhere = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && (everywhere || one.ip() == other.ip())
}
