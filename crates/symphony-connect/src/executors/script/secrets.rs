//! The secrets a run has read, and the headers that are never stored: left out of what it logs and throws, and refused in
//! what it answers and wants.
//!
//! Found as they are, as JSON and URLs write them, in base64 wherever they begin and end in it, and in hexadecimal. A
//! script that cuts a secret into pieces or calculates with it can still say those: this keeps a mistake from becoming a
//! leak, and no trick.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_encode};
use url::form_urlencoded;

/// Shorter texts are found everywhere; `app secret set` takes none.
const FORM_BYTES_MIN: usize = 8;
/// How deep JSON may stand in JSON: a body that is JSON, in an answer that is.
const JSON_DEPTH_MAX: usize = 3;

const QUERY: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>').add(b'\'');
const PATH: &AsciiSet = &QUERY.remove(b'\'').add(b'?').add(b'^').add(b'`').add(b'{').add(b'}');
/// How texts are written in URLs.
const URL_SETS: [&AsciiSet; 7] = [
    NON_ALPHANUMERIC,
    // encodeURIComponent
    &KEPT_BY_COMPONENT,
    // encodeURI
    &KEPT_BY_COMPONENT
        .remove(b';')
        .remove(b'/')
        .remove(b'?')
        .remove(b':')
        .remove(b'@')
        .remove(b'&')
        .remove(b'=')
        .remove(b'+')
        .remove(b'$')
        .remove(b',')
        .remove(b'#'),
    // The parts of a `URL`: its query, also of a scheme that is not the web's, its path and its user.
    QUERY,
    &QUERY.remove(b'\''),
    PATH,
    &PATH
        .add(b'/')
        .add(b':')
        .add(b';')
        .add(b'=')
        .add(b'@')
        .add(b'[')
        .add(b'\\')
        .add(b']')
        .add(b'|'),
];
const KEPT_BY_COMPONENT: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'!')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');

#[derive(Default)]
pub(super) struct Secrets(BTreeMap<String, Secret>);

struct Secret {
    value: String,
    /// How it may be written, the longest first.
    forms: Vec<String>,
    /// It may be answered and kept: a cookie can be anything, and is set again by what it was.
    is_only_left_out: bool,
}

impl Secrets {
    pub(super) fn keep(&mut self, name: &str, value: &str) {
        let (value, forms) = (value.to_owned(), forms(value));
        self.0.insert(name.to_owned(), Secret { value, forms, is_only_left_out: false });
    }

    /// The header as a whole, and what follows the scheme in `Authorization`. A script may ask for them often.
    pub(super) fn keep_header(&mut self, header: &str, value: &str) {
        let name = format!("header {header}");
        if self.0.get(&name).is_some_and(|known| known.value == value) {
            return;
        }
        self.keep(&name, value);
        if header == "cookie"
            && let Some(cookies) = self.0.get_mut(&name)
        {
            cookies.is_only_left_out = true;
        }
        if let Some((_, credentials)) = value.split_once(' ').filter(|_| header == "authorization")
        {
            self.keep("header authorization's credentials", credentials);
        }
    }

    pub(super) fn keep_cookie(&mut self, name: &str, value: &str) {
        let forms = if value.len() < FORM_BYTES_MIN { Vec::new() } else { vec![value.to_owned()] };
        let cookie = Secret { value: value.to_owned(), forms, is_only_left_out: true };
        self.0.insert(format!("cookie {name}"), cookie);
    }

    pub(super) fn named(&self, name: &str) -> Option<String> {
        self.0.get(name).map(|secret| secret.value.clone())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn redacted(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, Secret { forms, .. }) in &self.0 {
            for form in forms.iter().filter(|form| !form.is_empty()) {
                if text.contains(form.as_str()) {
                    text = text.replace(form.as_str(), &format!("[secret {name}]"));
                }
            }
        }
        text
    }

    pub(super) fn found_in(&self, text: &str) -> Option<String> {
        let has = |secret: &Secret| {
            !secret.is_only_left_out && secret.forms.iter().any(|form| text.contains(form.as_str()))
        };
        self.0.iter().find(|(_, secret)| has(secret)).map(|(name, _)| name.clone())
    }
}

fn forms(value: &str) -> Vec<String> {
    let mut forms = Vec::new();
    for value in [value, value.trim()] {
        let mut json = value.to_owned();
        for _ in 0..=JSON_DEPTH_MAX {
            let quoted = serde_json::to_string(&json).unwrap_or_default();
            let inner = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
            forms.push(std::mem::replace(&mut json, inner.unwrap_or_default().to_owned()));
        }
        let urls = URL_SETS.iter().map(|set| percent_encode(value.as_bytes(), set).to_string());
        // URLSearchParams
        let form = form_urlencoded::byte_serialize(value.as_bytes()).collect();
        for url in urls.chain([form]) {
            forms.push(with_small_hex(&url));
            forms.push(url);
        }
        in_bases(value.as_bytes(), &mut forms);
        // btoa writes a character as one byte, and refuses those that are more.
        let latin: Option<Vec<u8>> = value.chars().map(|c| u8::try_from(c).ok()).collect();
        in_bases(&latin.unwrap_or_default(), &mut forms);
    }
    forms.retain(|form| form.len() >= FORM_BYTES_MIN);
    forms.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    forms.dedup();
    forms
}

/// `%2F` as `%2f`.
fn with_small_hex(url: &str) -> String {
    let mut digits_left = 0;
    let small = url.chars().map(|c| {
        if c == '%' {
            digits_left = 2;
            return c;
        }
        let is_digit = digits_left > 0;
        digits_left -= i32::from(is_digit);
        if is_digit { c.to_ascii_lowercase() } else { c }
    });
    small.collect()
}

/// Hexadecimal, and base64 with any number of bytes before and after: without the characters that those share.
fn in_bases(value: &[u8], forms: &mut Vec<String>) {
    forms.extend([hex::encode(value), hex::encode_upper(value)]);
    for before in 0..3_usize {
        let bytes: Vec<u8> = std::iter::repeat_n(0, before).chain(value.iter().copied()).collect();
        let first = (before * 8).div_ceil(6);
        let end = bytes.len() * 8 / 6;
        for text in [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)] {
            forms.extend(text.get(first..end).map(str::to_owned));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};

    use super::*;

    #[test]
    fn a_secret_is_found_however_it_is_usually_written() {
        let mut secrets = Secrets::default();
        assert!(secrets.is_empty());
        secrets.keep("A", "canary\n\"quoted\"/value=1\n");
        for text in [
            "is canary\n\"quoted\"/value=1\n!",
            "is canary\n\"quoted\"/value=1!",
            r#"{"a":"canary\n\"quoted\"/value=1\n"}"#,
            "https://example.com/?key=canary%0A%22quoted%22%2Fvalue%3D1",
            &STANDARD_NO_PAD.encode("canary\n\"quoted\"/value=1"),
        ] {
            assert_eq!(secrets.found_in(text).as_deref(), Some("A"), "{text}");
            let told = secrets.redacted(text);
            assert!(told.contains("[secret A]"), "{told}");
            assert!(!told.contains("quoted") && secrets.found_in(&told).is_none(), "{told}");
        }
        for (about, text) in [
            ("encodeURIComponent", "?k=canary%0A%22quoted%22%2Fvalue%3D1&x"),
            ("encodeURI", "?k=canary%0A%22quoted%22/value=1"),
            ("in lower case", "?k=canary%0a%22quoted%22%2fvalue%3d1"),
            ("hex", "63616e6172790a2271756f746564222f76616c75653d31"),
            ("HEX", "63616E6172790A2271756F746564222F76616C75653D31"),
            ("JSON in JSON", r#"{"body":"{\"a\":\"canary\\n\\\"quoted\\\"/value=1\"}"}"#),
        ] {
            assert_eq!(secrets.found_in(text).as_deref(), Some("A"), "{about}");
            assert!(!secrets.redacted(text).contains("quoted"), "{about}");
        }
        assert_eq!(secrets.redacted("canary alone"), "canary alone");
        assert_eq!(secrets.found_in("canary alone"), None);
    }

    #[test]
    fn a_header_is_found_with_and_without_its_scheme_and_a_cookie_may_be_answered() {
        let mut secrets = Secrets::default();
        secrets.keep_header("authorization", "Bearer canary-token");
        secrets.keep_header("cookie", "sid=canary-session; a=b");
        secrets.keep_cookie("sid", "canary-session");
        secrets.keep_cookie("a", "b");
        assert!(secrets.found_in("it is canary-token").is_some());
        for text in ["sid=canary-session; a=b", "canary-session", "b"] {
            assert_eq!(secrets.found_in(text), None, "{text}");
        }
        for text in
            ["Bearer canary-token", "canary-token", "sid=canary-session; a=b", "canary-session"]
        {
            assert!(!secrets.redacted(text).contains("canary"), "{text}");
        }
    }

    #[test]
    fn a_secret_is_found_in_base64_wherever_it_begins_and_ends() {
        let mut secrets = Secrets::default();
        // Both alphabets differ where bytes end in ones.
        for secret in ["sk_live_7f3b-canary~~~", "??>>??>>~~~", "grüße-an-die-küche"] {
            secrets.keep("A", secret);
            for before in ["", "a", "ab", "abc", "api:"] {
                for after in ["", ":", "::", ":::"] {
                    let plain = format!("{before}{secret}{after}");
                    for text in [
                        STANDARD.encode(&plain),
                        STANDARD_NO_PAD.encode(&plain),
                        URL_SAFE_NO_PAD.encode(&plain),
                    ] {
                        assert_eq!(secrets.found_in(&text).as_deref(), Some("A"), "{plain}");
                        let told = secrets.redacted(&format!("Basic {text}"));
                        assert!(told.starts_with("Basic ") && told.len() <= 30, "{plain}: {told}");
                    }
                }
            }
            let latin: Vec<u8> = secret.chars().map(|c| u8::try_from(c).unwrap()).collect();
            assert!(secrets.found_in(&STANDARD.encode(latin)).is_some(), "as btoa writes {secret}");
        }
        assert_eq!(secrets.found_in(&STANDARD.encode("another value than that")), None);
    }
}
