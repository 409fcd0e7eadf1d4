use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use symphony::lanes::payments::rail::{Rail as _, Verdict};
use symphony::money::DestinationRule;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto::ring};

use super::server::{json, read};
use crate::rails::conformance::tests::sample;
use crate::rails::http::{HttpRail, HttpRailSettings};

/// A server for `localhost`, and the certificate of the authority behind it.
async fn server() -> (u16, String) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])
        .unwrap()
        .signed_by(&key, &authority)
        .unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            while read(&mut stream, 0).await.is_some() {
                let answer = json(200, r#"{"code": "ACSC", "reference": "over-tls"}"#);
                stream.write_all(&answer).await.unwrap();
            }
        }
    });
    (port, authority.pem())
}

#[tokio::test]
async fn tls_reaches_only_servers_whose_certificate_is_trusted_for_their_name() {
    let (port, authority) = server().await;
    let file =
        std::env::temp_dir().join(format!("symphony-authority-{}.pem", uuid::Uuid::new_v4()));
    std::fs::write(&file, authority).unwrap();
    for (host, trusts, error_code) in [
        ("localhost", true, None),
        // An authority nobody knows.
        ("localhost", false, Some("TLS_FAILED")),
        // Another name than the certificate's.
        ("127.0.0.1", true, Some("TLS_FAILED")),
    ] {
        let settings = HttpRailSettings {
            url: format!("https://{host}:{port}/"),
            destination: Some(DestinationRule::Any),
            allow_private_addresses: true,
            extra_root_certificates_file: trusts.then(|| file.clone()),
            ..HttpRailSettings::default()
        };
        let rail = HttpRail::new(&settings, |_| None).unwrap();
        let answer = rail.dispatch(&sample().payment).await;
        assert_eq!(answer.error_code.as_deref(), error_code, "{host} {trusts}: {answer:?}");
        let verdict = if error_code.is_none() { Verdict::Accepted } else { Verdict::Retryable };
        assert_eq!(answer.verdict, verdict, "{host} {trusts}: {answer:?}");
    }
    std::fs::remove_file(&file).unwrap();
}
