//! Where this process listens: `api.listen`, `triggers.http_listen`, `triggers.email.listen`.

use std::net::SocketAddr;

use super::Config;
use super::defects::Defects;

impl Config {
    /// The addresses of this process, `None` for those that are off; notes what cannot be one.
    pub(super) fn check_listeners(&self, defects: &mut Defects) {
        let listeners = [
            ("api.listen", &self.api.listen, "127.0.0.1:9464"),
            ("triggers.http_listen", &self.triggers.http_listen, "127.0.0.1:8080"),
            ("triggers.email.listen", &self.triggers.email.listen, "127.0.0.1:2525"),
        ];
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
            if field == "api.listen" && !address.ip().is_loopback() {
                let problem = format!(
                    "is {text}: only loopback addresses are served, because there are no access tokens yet; use {example}"
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
