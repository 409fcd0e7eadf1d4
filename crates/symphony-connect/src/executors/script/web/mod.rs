//! Globals of the web that the engine does not have: `crypto`, `TextEncoder`, `TextDecoder`, `URL`, `URLSearchParams`,
//! `Headers` and `structuredClone`.
//!
//! Each file here in JavaScript makes some of them. It is read when a script first asks for one, so that a script that
//! asks for none pays nothing. The host's side takes and gives strings as the rest of the host API does, and decides
//! nothing: it calculates, parses and decodes. Bytes are in base64, because the engine's memory cannot be looked at safely.

mod crypto;
mod encoding;
mod url;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use self::encoding::Decoders;
use super::host::Refusal;

/// Files that make globals, by the name under which the prelude asks for them.
pub(super) const MODULES: [(&str, &str); 6] = [
    ("clone.js", include_str!("clone.js")),
    ("crypto.js", include_str!("crypto.js")),
    ("encoding.js", include_str!("encoding.js")),
    ("headers.js", include_str!("headers.js")),
    ("request.js", include_str!("request.js")),
    ("url.js", include_str!("url.js")),
];

/// What the host keeps of a run for these globals.
#[derive(Default)]
pub(super) struct WebState {
    decoders: Decoders,
}

type Answer = Result<String, Refusal>;

impl WebState {
    /// One call; its operation begins with `web_`.
    pub(super) fn call(&mut self, operation: &str, arguments: &[String; 4]) -> Answer {
        let [a, b, c, d] = arguments;
        match operation {
            "web_digest" => crypto::digest(a, &bytes(b)?),
            "web_hmac_sign" => crypto::sign(a, &bytes(b)?, &bytes(c)?),
            "web_hmac_verify" => crypto::verify(a, &bytes(b)?, &bytes(c)?, &bytes(d)?),
            "web_random" => crypto::random(a),
            "web_random_uuid" => Ok(uuid::Uuid::new_v4().to_string()),
            "web_encode" => Ok(BASE64_STANDARD.encode(a)),
            "web_encoding" => Ok(encoding::name(a)),
            "web_decode" => self.decoders.decode(a, &bytes(b)?, c, d),
            "web_url_parse" => url::parse(a, (!c.is_empty()).then_some(b)),
            "web_url_set" => url::set(a, b, c),
            "web_form_parse" => Ok(url::form_pairs(a)),
            "web_form_write" => url::form_text(a),
            _ => Err(no_such_function()),
        }
    }
}

fn bytes(text: &str) -> Result<Vec<u8>, Refusal> {
    BASE64_STANDARD.decode(text).map_err(|_| no_such_function())
}

/// Only a script that got hold of the host's own function comes here.
fn no_such_function() -> Refusal {
    Refusal::Failure("there is no such host function".to_owned())
}
