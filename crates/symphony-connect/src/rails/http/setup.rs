//! From settings to a rail: everything that can be refused before the first payment is refused here.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{ACCEPT, HeaderName, HeaderValue, USER_AGENT};
use symphony::lanes::payments::rail::{InquiryTerms, Terms};
use symphony::money::DestinationRule;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};
use url::{Host, Url};

use super::client::Origin;
use super::pointer::Pointer;
use super::reading::Reader;
use super::settings::{HttpRailSettings, NotFound, SettingsError};
use super::{Endpoint, HttpRail, milliseconds};
use crate::address::{AddressGuard, Network, ResolveError, Transport};
use crate::rails::taxonomy::CodeTable;

/// Stands for the key in an inquiry's URL while that is parsed: nothing in it needs encoding.
pub(super) const KEY_PLACEHOLDER: &str = "symphony-key-placeholder";

/// Shorter secrets can be guessed.
const SECRET_BYTES_MIN: usize = 16;

type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

pub(super) fn rail(
    settings: &HttpRailSettings,
    environment: Environment<'_>,
) -> Result<HttpRail, SettingsError> {
    settings.check_consistency()?;
    let guard = guard(settings)?;
    let tls = tls(settings)?;
    let payments = endpoint("url", &settings.url, settings, &guard, &tls)?;
    let inquiries = match &settings.inquiry_url {
        None => None,
        Some(template) => {
            let url = template.replace("{key}", KEY_PLACEHOLDER);
            let mut endpoint = endpoint("inquiry_url", &url, settings, &guard, &tls)?;
            if !endpoint.target.contains(KEY_PLACEHOLDER) {
                let problem = "must have {key} in its path or query";
                return Err(SettingsError::new("inquiry_url", problem));
            }
            if same_server(&payments.origin, &endpoint.origin) {
                endpoint.origin = Arc::clone(&payments.origin);
            }
            Some(endpoint)
        }
    };
    let key_header = header_name("idempotency_header", &settings.idempotency_header)?;
    let table = CodeTable::new(&settings.presets, &settings.codes)
        .map_err(|error| SettingsError::new("codes", error.to_string()))?;
    Ok(HttpRail {
        terms: terms(settings),
        destination: settings.destination.unwrap_or(DestinationRule::Any),
        payments,
        inquiries,
        headers: headers(settings, &key_header, environment)?,
        signing_secret: signing_secret(settings, environment)?,
        reader: Reader {
            table,
            code: Pointer::new(&settings.code_pointer),
            reason: Pointer::new(&settings.reason_pointer),
            reference: Pointer::new(&settings.reference_pointer),
            message: Pointer::new(&settings.message_pointer),
            key: Pointer::new(&settings.key_pointer),
            key_header: key_header.clone(),
            not_found_code: settings.not_found_code.clone(),
        },
        key_header,
    })
}

fn terms(settings: &HttpRailSettings) -> Terms {
    Terms {
        timeout: milliseconds(settings.timeout_ms),
        inquiry_timeout: milliseconds(settings.inquiry_timeout_ms),
        key_lifetime: settings.key_lifetime_seconds.map(Duration::from_secs),
        inquiry: match (&settings.inquiry_url, settings.not_found, settings.settle_delay_seconds) {
            (None, _, _) => InquiryTerms::Impossible,
            (Some(_), NotFound::Final, Some(seconds)) => {
                InquiryTerms::NotFoundIsFinalAfter(Duration::from_secs(seconds))
            }
            (Some(_), _, _) => InquiryTerms::NotFoundProvesNothing,
        },
    }
}

fn guard(settings: &HttpRailSettings) -> Result<AddressGuard, SettingsError> {
    let networks: Result<Vec<Network>, _> =
        settings.allowed_networks.iter().map(|network| network.parse()).collect();
    let networks =
        networks.map_err(|error| SettingsError::new("allowed_networks", error.to_string()))?;
    Ok(AddressGuard::new(settings.allow_private_addresses, networks))
}

fn endpoint(
    field: &'static str,
    text: &str,
    settings: &HttpRailSettings,
    guard: &AddressGuard,
    tls: &TlsConnector,
) -> Result<Endpoint, SettingsError> {
    let refuse = |problem: String| SettingsError::new(field, problem);
    if text.is_empty() {
        return Err(refuse("is missing: where should payments go?".to_owned()));
    }
    // The parser's words do not repeat the URL, which may hold a token.
    let url = Url::parse(text).map_err(|error| refuse(format!("is not a URL: {error}")))?;
    let transport = match url.scheme() {
        "https" => Transport::Encrypted,
        "http" if guard.allows_some_private() => Transport::Plain,
        "http" => {
            let problem = "must begin with https:// (http:// only for private addresses, with \
                           allow_private_addresses or allowed_networks)";
            return Err(refuse(problem.to_owned()));
        }
        _ => return Err(refuse("must begin with https://".to_owned())),
    };
    if !url.username().is_empty() || url.password().is_some() {
        let problem = "must not contain a user or password: put them into header_env";
        return Err(refuse(problem.to_owned()));
    }
    if url.fragment().is_some() {
        return Err(refuse("must not have a # part: servers never see it".to_owned()));
    }
    let host = url.host().ok_or_else(|| refuse("has no host".to_owned()))?.to_owned();
    // A name is judged when it is resolved; an address can be refused now, in every spelling.
    let literal = match &host {
        Host::Domain(_) => None,
        Host::Ipv4(address) => Some(IpAddr::V4(*address)),
        Host::Ipv6(address) => Some(IpAddr::V6(*address)),
    };
    if let Some(address) = literal {
        guard.check(address, transport).map_err(|error| match error {
            ResolveError::PlainToPublic => {
                refuse("must begin with https://, since its address is public".to_owned())
            }
            other => refuse(format!("cannot be called: {other}")),
        })?;
    }
    let port = url.port_or_known_default().filter(|port| *port != 0);
    let port = port.ok_or_else(|| refuse("has no port that can be called".to_owned()))?;
    let authority = match url.port() {
        None => host.to_string(),
        Some(port) => format!("{host}:{port}"),
    };
    let server = match literal {
        Some(address) => ServerName::from(address),
        None => ServerName::try_from(host.to_string())
            .map_err(|_| refuse("has a host that no certificate can name".to_owned()))?,
    };
    Ok(Endpoint {
        host: HeaderValue::from_str(&authority)
            .map_err(|_| refuse("has a host that cannot be written as a header".to_owned()))?,
        target: match url.query() {
            None => url.path().to_owned(),
            Some(query) => format!("{}?{query}", url.path()),
        },
        origin: Arc::new(Origin {
            host,
            port,
            tls: (transport == Transport::Encrypted).then(|| (tls.clone(), server)),
            guard: guard.clone(),
            connect_timeout: milliseconds(settings.connect_timeout()),
            response_bytes_max: settings.response_bytes_max,
            idle: Mutex::new(Vec::new()),
        }),
    })
}

fn same_server(one: &Origin, other: &Origin) -> bool {
    one.host == other.host && one.port == other.port && one.tls.is_some() == other.tls.is_some()
}

/// The public certificate authorities and the configured ones. The provider of cryptography is named, so that
/// no other crate's choice can change it.
fn tls(settings: &HttpRailSettings) -> Result<TlsConnector, SettingsError> {
    const FIELD: &str = "extra_root_certificates_file";
    let mut roots: RootCertStore = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
    if let Some(file) = &settings.extra_root_certificates_file {
        let unreadable =
            |error| SettingsError::new(FIELD, format!("cannot be read as PEM: {error}"));
        let mut added = 0_usize;
        for certificate in CertificateDer::pem_file_iter(file).map_err(unreadable)? {
            roots.add(certificate.map_err(unreadable)?).map_err(|error| {
                SettingsError::new(FIELD, format!("cannot be trusted: {error}"))
            })?;
            added = added.saturating_add(1);
        }
        if added == 0 {
            return Err(SettingsError::new(FIELD, "contains no certificate"));
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| SettingsError::new("url", format!("cannot be called with TLS: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn headers(
    settings: &HttpRailSettings,
    key_header: &HeaderName,
    environment: Environment<'_>,
) -> Result<HeaderMap, SettingsError> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(
        USER_AGENT,
        HeaderValue::from_static(concat!("symphony/", env!("CARGO_PKG_VERSION"))),
    );
    let mut given = Vec::new();
    for (field, entries) in [("headers", &settings.headers), ("header_env", &settings.header_env)] {
        for (name, text) in entries {
            let header = header_name(field, name)?;
            if header == *key_header {
                let problem = format!("must not set {header}: it carries the key");
                return Err(SettingsError::new(field, problem));
            }
            if given.contains(&header) {
                let problem =
                    format!("sets {header} a second time: headers and header_env are one list");
                return Err(SettingsError::new(field, problem));
            }
            let is_secret = matches!(
                header.as_str(),
                "authorization" | "proxy-authorization" | "cookie" | "x-api-key"
            );
            if field == "headers" && is_secret {
                let problem =
                    format!("must not hold {header}: name an environment variable in header_env");
                return Err(SettingsError::new(field, problem));
            }
            let text = match field {
                "headers" => text.clone(),
                _ => variable(field, text, environment)?,
            };
            let mut value = HeaderValue::from_str(&text).map_err(|_| {
                SettingsError::new(
                    field,
                    format!("has a value for {header} with line breaks or control characters"),
                )
            })?;
            value.set_sensitive(true);
            headers.insert(header.clone(), value);
            given.push(header);
        }
    }
    Ok(headers)
}

/// A header that configuration may name: not one that frames the message, and not one of ours.
fn header_name(field: &'static str, name: &str) -> Result<HeaderName, SettingsError> {
    const OURS: &[&str] = &[
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "traceparent",
    ];
    let header = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| SettingsError::new(field, "has a name that no header can have"))?;
    if OURS.contains(&header.as_str()) || header.as_str().starts_with("symphony-") {
        return Err(SettingsError::new(field, format!("must not be {header}: Symphony sets it")));
    }
    Ok(header)
}

fn signing_secret(
    settings: &HttpRailSettings,
    environment: Environment<'_>,
) -> Result<Option<Vec<u8>>, SettingsError> {
    const FIELD: &str = "signing_secret_env";
    let Some(name) = &settings.signing_secret_env else { return Ok(None) };
    let secret = variable(FIELD, name, environment)?;
    if secret.len() < SECRET_BYTES_MIN {
        let problem =
            format!("names a secret shorter than {SECRET_BYTES_MIN} bytes, which can be guessed");
        return Err(SettingsError::new(FIELD, problem));
    }
    Ok(Some(secret.into_bytes()))
}

fn variable(
    field: &'static str,
    name: &str,
    environment: Environment<'_>,
) -> Result<String, SettingsError> {
    // Whoever puts the secret itself here must not read it in a log: only what looks like a name is repeated.
    let is_name = name.len() <= 64
        && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    environment(name).filter(|value| !value.is_empty()).ok_or_else(|| {
        let which = if is_name { name } else { "the one it names" };
        SettingsError::new(field, format!("needs an environment variable: {which} is not set"))
    })
}
