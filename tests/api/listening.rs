//! Where it listens: beyond loopback only with TLS, or behind a proxy that speaks it.

use std::net::SocketAddr;
use std::sync::Arc;

use symphony_server::api::Api;
use symphony_server::config::ApiSection;
use symphony_server::http_server::HttpServerSettings;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

use super::{Served, raw};
use crate::support::TestDb;
use crate::support::folder::Folder;

#[tokio::test]
async fn beyond_loopback_it_is_refused_without_tls_or_the_word_that_a_proxy_has_it() {
    let db = TestDb::new().await;
    let start = async |section: ApiSection| {
        Api::start(&section, db.database.clone(), Vec::new(), HttpServerSettings::default()).await
    };
    let refused = start(ApiSection::at("0.0.0.0:0")).await.unwrap_err().to_string();
    assert!(
        refused.contains("api.tls_certificate_file") && refused.contains("api.behind_proxy"),
        "{refused}"
    );
    let open =
        start(ApiSection { behind_proxy: true, ..ApiSection::at("0.0.0.0:0") }).await.unwrap();
    open.stop();
}

/// The status that a page is answered with.
async fn status(address: SocketAddr, page: &str, headers: &str) -> String {
    let text = format!("GET {page} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
    raw(address, text.as_bytes()).await.split(' ').nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn on_loopback_metrics_are_open_to_whoever_calls_this_machine_by_its_name() {
    let served = Served::new().await;
    let at = served.api.address();
    for page in ["/metrics", "/healthz", "/readyz", "/openapi.json", "/schemas/app.json"] {
        assert_eq!(status(at, page, "Host: localhost\r\n").await, "200", "{page}");
    }
    // A web page whose name was made to lead here.
    for page in ["/metrics", "/openapi.json", "/schemas/app.json", "/v1/status", "/console"] {
        assert_eq!(status(at, page, "Host: evil.example\r\n").await, "403", "{page}");
    }
    // Whoever looks whether the process lives knows it by an address.
    assert_eq!(status(at, "/healthz", "Host: 10.0.0.7\r\n").await, "200");
}

#[tokio::test]
async fn beyond_this_machine_metrics_need_a_token_also_behind_a_proxy_on_loopback() {
    for listen in ["0.0.0.0:0", "127.0.0.1:0"] {
        let section = ApiSection { behind_proxy: true, ..ApiSection::at(listen) };
        let served = Served::with(&section, HttpServerSettings::default()).await;
        let at = SocketAddr::from(([127, 0, 0, 1], served.api.address().port()));
        let page = async |headers: &str, page: &str| {
            status(at, page, &format!("Host: api.example\r\n{headers}")).await
        };
        assert_eq!(page("", "/metrics").await, "401", "{listen}");
        assert_eq!(page("", "/healthz").await, "200");
        assert_eq!(page("", "/openapi.json").await, "200");
        assert_eq!(page("", "/console/sign-in").await, "200", "by the public name: {listen}");
        for (scope, status) in [("read", "200"), ("ingest", "403")] {
            let token = served.token("eve", scope).await;
            let token = format!("Authorization: Bearer {token}\r\n");
            assert_eq!(page(&token, "/metrics").await, status, "{listen} {scope}");
            assert_eq!(page(&token, "/v1/status").await, status, "{listen} {scope}");
        }
    }
}

#[tokio::test]
async fn with_a_certificate_it_speaks_tls_and_nothing_else() {
    let folder = Folder::new();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let certificate = folder.write("api.pem", &made.cert.pem());
    let key = folder.write("api.key", &made.signing_key.serialize_pem());
    let section = ApiSection {
        tls_certificate_file: Some(certificate),
        tls_key_file: Some(key),
        ..ApiSection::at("127.0.0.1:0")
    };
    let served = Served::with(&section, HttpServerSettings::default()).await;
    assert!(served.api.url().starts_with("https://127.0.0.1:"), "as `up --json` tells it");
    let token = served.token("eve", "read").await;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(served.api.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let text = format!(
        "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer).await);
    assert!(String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 200"));
    let plain = raw(served.api.address(), text.as_bytes()).await;
    assert!(!plain.contains("200"), "{plain}");
}
