//! Secrets of apps: sealed before they reach the database, opened only where scripts run.
//!
//! AES-256-GCM under a key of the configuration, with a fresh nonce for each, bound to app and name: a row that somebody
//! copies to another app, or under another name, does not open.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};
use symphony::db::SealedSecret;

use crate::bounds::{SECRET_BYTES_MAX, SECRET_BYTES_MIN};

const KEY_BYTES: usize = 32;

/// A key of 32 bytes. Never printed.
#[derive(Clone)]
pub struct SecretKey {
    key: LessSafeKey,
    id: String,
}

impl SecretKey {
    /// From 64 hexadecimal digits, or 32 bytes in base64, as `openssl rand -hex 32` writes them.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let bytes = if text.len() == KEY_BYTES * 2 {
            hex::decode(text).ok()
        } else {
            BASE64_STANDARD.decode(text).ok()
        };
        let bytes = bytes.filter(|bytes| bytes.len() == KEY_BYTES).ok_or_else(|| {
            "must be 32 bytes as 64 hexadecimal digits or in base64: openssl rand -hex 32"
                .to_owned()
        })?;
        let digest = Sha256::new().chain_update(b"symphony secrets key\0").chain_update(&bytes);
        let id = hex::encode(digest.finalize()).chars().take(16).collect();
        let key = UnboundKey::new(&AES_256_GCM, &bytes).map_err(|_| "is no key".to_owned())?;
        Ok(Self { key: LessSafeKey::new(key), id })
    }

    /// Which key it is; says nothing about it.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({})", self.id)
    }
}

/// The key that seals, and the one before it, which only opens.
#[derive(Debug, Clone, Default)]
pub struct SecretKeys {
    current: Option<SecretKey>,
    previous: Option<SecretKey>,
}

impl SecretKeys {
    /// Of these keys.
    pub fn new(current: Option<SecretKey>, previous: Option<SecretKey>) -> Self {
        Self { current, previous }
    }

    /// The key that seals.
    pub fn current(&self) -> Result<&SecretKey, String> {
        self.current.as_ref().ok_or_else(|| {
            "there is no key for secrets here: name it in symphony.toml as triggers.secrets_key"
                .to_owned()
        })
    }

    /// A secret as the database may keep it.
    pub fn seal(&self, app: &str, name: &str, value: &str) -> Result<SealedSecret, String> {
        let SecretKey { key, id } = self.current()?;
        let mut nonce = [0; NONCE_LEN];
        let failed = |_| "the secret could not be sealed".to_owned();
        SystemRandom::new().fill(&mut nonce).map_err(failed)?;
        let mut sealed = value.as_bytes().to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(unique, Aad::from(bound_to(app, name)), &mut sealed)
            .map_err(failed)?;
        let bytes = [nonce.as_slice(), sealed.as_slice()].concat();
        Ok(SealedSecret { key_id: id.clone(), sealed: BASE64_STANDARD.encode(bytes) })
    }

    /// What was sealed.
    pub fn open(&self, app: &str, name: &str, secret: &SealedSecret) -> Result<String, String> {
        self.current()?;
        let keys = [self.current.as_ref(), self.previous.as_ref()].into_iter().flatten();
        let key = keys.into_iter().find(|key| key.id == secret.key_id).ok_or_else(|| {
            format!(
                "secret {name} is sealed with key {}, which is not here: set it again, or name that key as \
                 triggers.secrets_previous_key",
                secret.key_id
            )
        })?;
        let broken =
            || format!("secret {name} does not open: it was changed, or belongs elsewhere");
        let bytes = BASE64_STANDARD.decode(&secret.sealed).map_err(|_| broken())?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN).ok_or_else(broken)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| broken())?;
        let mut opened = sealed.to_vec();
        let value = key
            .key
            .open_in_place(nonce, Aad::from(bound_to(app, name)), &mut opened)
            .map_err(|_| broken())?;
        String::from_utf8(value.to_vec()).map_err(|_| broken())
    }
}

/// Neither name can hold a NUL, so no two pairs are the same text.
fn bound_to(app: &str, name: &str) -> Vec<u8> {
    format!("app secret\0{app}\0{name}").into_bytes()
}

/// What is wrong with a value, so that it could neither be kept nor found again in what a script says.
pub fn value_defect(value: &str) -> Option<String> {
    if value.contains('\0') {
        return Some("must be text, without NUL characters".to_owned());
    }
    let length = value.trim().len();
    (length < SECRET_BYTES_MIN || value.len() > SECRET_BYTES_MAX).then(|| {
        format!(
            "must be {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes: a shorter one could not be told from other text in logs"
        )
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn key(digit: &str) -> SecretKey {
        SecretKey::parse(&digit.repeat(64)).unwrap()
    }

    #[test]
    fn a_secret_opens_with_its_key_for_its_app_and_name_and_for_nothing_else() {
        let old = SecretKeys::new(Some(key("a")), None);
        let sealed = old.seal("shop", "stripe", "whsec_canary").unwrap();
        assert_eq!(old.open("shop", "stripe", &sealed).unwrap(), "whsec_canary");
        assert_ne!(old.seal("shop", "stripe", "whsec_canary").unwrap().sealed, sealed.sealed);
        for (app, name) in [("shop2", "stripe"), ("shop", "stripe2"), ("shops", "tripe")] {
            assert!(old.open(app, name, &sealed).unwrap_err().contains("does not open"));
        }
        let rotated = SecretKeys::new(Some(key("b")), Some(key("a")));
        assert_eq!(rotated.open("shop", "stripe", &sealed).unwrap(), "whsec_canary");
        assert_eq!(rotated.seal("shop", "x", "v").unwrap().key_id, key("b").id());
        let new = SecretKeys::new(Some(key("b")), None);
        let said = new.open("shop", "stripe", &sealed).unwrap_err();
        assert!(said.contains("which is not here") && said.contains(key("a").id()), "{said}");
        assert!(
            SecretKeys::default()
                .open("shop", "stripe", &sealed)
                .unwrap_err()
                .contains("triggers.secrets_key")
        );
        let mut bytes = BASE64_STANDARD.decode(&sealed.sealed).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        let changed = SealedSecret { sealed: BASE64_STANDARD.encode(bytes), ..sealed };
        assert!(old.open("shop", "stripe", &changed).is_err());
    }

    #[test]
    fn a_key_is_32_bytes_in_either_spelling_and_is_never_printed() {
        let hex = "0f".repeat(32);
        let base64 = BASE64_STANDARD.encode([0x0f; 32]);
        let key = SecretKey::parse(&format!("{hex}\n")).unwrap();
        assert_eq!(key.id(), SecretKey::parse(&base64).unwrap().id());
        assert!(!format!("{key:?}").contains(&hex));
        for bad in
            ["", "short", &"0f".repeat(31), &"0g".repeat(32), &BASE64_STANDARD.encode([1; 31])]
        {
            assert!(SecretKey::parse(bad).unwrap_err().contains("32 bytes"), "{bad}");
        }
    }

    #[test]
    fn a_value_that_could_not_be_redacted_is_refused() {
        assert_eq!(value_defect("12345678"), None);
        for bad in ["1234567", "  1234567  ", "12345678\0", &"x".repeat(SECRET_BYTES_MAX + 1)] {
            assert!(value_defect(bad).is_some());
        }
    }
}
