//! The secrets a run has read: left out of what it logs and throws, and refused in what it answers and wants.
//!
//! Found as they are, as JSON and URLs write them, and in base64. A script that cuts a secret into pieces or calculates
//! with it can still say those: this keeps a mistake from becoming a leak, and no trick.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// Shorter texts are found everywhere; `app secret set` takes none.
const FORM_BYTES_MIN: usize = 8;

#[derive(Default)]
pub(super) struct Secrets(BTreeMap<String, Secret>);

struct Secret {
    value: String,
    /// How it may be written, the longest first.
    forms: Vec<String>,
}

impl Secrets {
    pub(super) fn keep(&mut self, name: &str, value: &str) {
        let secret = Secret { value: value.to_owned(), forms: forms(value) };
        self.0.insert(name.to_owned(), secret);
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
        let has = |secret: &Secret| secret.forms.iter().any(|form| text.contains(form.as_str()));
        self.0.iter().find(|(_, secret)| has(secret)).map(|(name, _)| name.clone())
    }
}

fn forms(value: &str) -> Vec<String> {
    let mut forms = Vec::new();
    for value in [value, value.trim()] {
        let quoted = serde_json::to_string(value).unwrap_or_default();
        let inner = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        forms.push(value.to_owned());
        forms.push(inner.unwrap_or_default().to_owned());
        forms.push(utf8_percent_encode(value, NON_ALPHANUMERIC).to_string());
        forms.push(STANDARD_NO_PAD.encode(value));
    }
    forms.retain(|form| form.len() >= FORM_BYTES_MIN);
    forms.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    forms.dedup();
    forms
}

#[cfg(test)]
mod tests {
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
        assert_eq!(secrets.redacted("canary alone"), "canary alone");
        assert_eq!(secrets.found_in("canary alone"), None);
    }
}
