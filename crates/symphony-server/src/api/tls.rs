//! TLS as a server. Files are read once, at the start: whoever renews a certificate restarts the process.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::ApiSection;
use crate::output::Failure;

/// As the configuration says; `None` without a certificate.
pub(super) fn acceptor(section: &ApiSection) -> Result<Option<TlsAcceptor>, Failure> {
    let (Some(certificate), Some(key)) = (&section.tls_certificate_file, &section.tls_key_file)
    else {
        return Ok(None);
    };
    let refused = |field: &str, file: &Path, error: String| {
        Failure::new(format!("api.{field} is {}: {error}", file.display()))
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|error| refused("tls_certificate_file", certificate, error.to_string()))?;
    let secret = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| refused("tls_key_file", key, error.to_string()))?;
    // The provider of cryptography is named, so that no other crate's choice can change it.
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused("tls_certificate_file", certificate, error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| refused("tls_key_file", key, format!("does not fit: {error}")))?;
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}
