//! TLS as a client: whom we trust, and who we are to a server that asks. Files are read once, when this is built: whoever
//! renews a certificate restarts the process.

use std::path::Path;
use std::sync::Arc;
use symphony::FieldError;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

const ROOTS: &str = "extra_root_certificates_file";
const CERTIFICATE: &str = "client_certificate_file";
const KEY: &str = "client_key_file";

/// The PEM files that settings name.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TlsFiles<'a> {
    /// Authorities to trust besides the public ones.
    pub(crate) extra_roots: Option<&'a Path>,
    /// Our certificate, and those that lead from it to its authority.
    pub(crate) client_certificate: Option<&'a Path>,
    /// The key to it.
    pub(crate) client_key: Option<&'a Path>,
}

/// As the files say. The provider of cryptography is named, so that no other crate's choice can change it.
pub(crate) fn tls(files: TlsFiles<'_>) -> Result<TlsConnector, FieldError> {
    let mut roots: RootCertStore = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
    if let Some(file) = files.extra_roots {
        for certificate in certificates(ROOTS, file)? {
            roots.add(certificate).map_err(|error| {
                FieldError::new(
                    ROOTS,
                    format!("is {}: it cannot be trusted: {error}", file.display()),
                )
            })?;
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| FieldError::new("url", format!("cannot be called with TLS: {error}")))?
        .with_root_certificates(roots);
    let config = match identity(files)? {
        None => config.with_no_client_auth(),
        Some((chain, key)) => config.with_client_auth_cert(chain, key).map_err(|error| {
            let problem = format!(
                "does not fit {CERTIFICATE}: {error}; name the key this certificate was made for"
            );
            FieldError::new(KEY, problem)
        })?,
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Who we are, if the files say so.
pub(crate) fn identity(files: TlsFiles<'_>) -> Result<Option<Identity>, FieldError> {
    match (files.client_certificate, files.client_key) {
        (None, None) => Ok(None),
        (Some(_), None) => {
            Err(FieldError::new(KEY, format!("is missing: {CERTIFICATE} needs the key to it")))
        }
        (None, Some(_)) => {
            Err(FieldError::new(CERTIFICATE, format!("is missing: whose key is {KEY}?")))
        }
        (Some(certificate), Some(key)) => {
            Ok(Some((certificates(CERTIFICATE, certificate)?, private_key(key)?)))
        }
    }
}

/// All certificates of a PEM file, at least one.
pub(crate) fn certificates(
    field: &'static str,
    file: &Path,
) -> Result<Vec<CertificateDer<'static>>, FieldError> {
    let unreadable = |error| unreadable(field, file, "certificate", &error);
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(file).map_err(unreadable)?.collect();
    let found = found.map_err(unreadable)?;
    if found.is_empty() {
        return Err(unreadable(pem::Error::NoItemsFound));
    }
    Ok(found)
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, FieldError> {
    PrivateKeyDer::from_pem_file(file)
        .map_err(|error| unreadable(KEY, file, "private key without a passphrase", &error))
}

fn unreadable(field: &'static str, file: &Path, what: &str, error: &pem::Error) -> FieldError {
    let file = file.display();
    let problem = match error {
        pem::Error::Io(error) => {
            format!(
                "is {file}, which cannot be read: {error}; name a PEM file this process may read"
            )
        }
        pem::Error::NoItemsFound => format!("is {file}, which holds no {what}: it must be PEM"),
        other => format!("is {file}, which is no PEM file: {other}"),
    };
    FieldError::new(field, problem)
}
