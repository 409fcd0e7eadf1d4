//! From settings to a rail: everything that can be refused before the first payment is refused here.

use std::sync::Arc;
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{ACCEPT, HeaderName, HeaderValue, USER_AGENT};
use symphony::json::Pointer;
use symphony::lanes::payments::rail::{self, InquiryTerms, Terms};
use symphony::money::DestinationRule;
use symphony::{FieldError, FieldErrors};

use super::reading::Reader;
use super::settings::{HttpRailSettings, NotFound};
use super::{HttpRail, milliseconds};
use crate::bounds::rails::SECRET_BYTES_MIN;
use crate::http_client::{
    self, Conditions, Endpoint, Environment, TlsFiles, header_name, variable,
};
use crate::rails::taxonomy::CodeTable;
use crate::settings::Defects;

/// Stands for the key in an inquiry's URL while that is parsed: nothing in it needs encoding.
pub(super) const KEY_PLACEHOLDER: &str = "symphony-key-placeholder";

pub(super) fn rail(
    settings: &HttpRailSettings,
    environment: Environment<'_>,
) -> Result<HttpRail, FieldErrors> {
    let mut defects = Defects::default();
    settings.check_consistency(&mut defects);
    let guard = http_client::guard(settings.allow_private_addresses, &settings.allowed_networks);
    let tls = http_client::tls(TlsFiles {
        extra_roots: settings.extra_root_certificates_file.as_deref(),
        client_certificate: settings.client_certificate_file.as_deref(),
        client_key: settings.client_key_file.as_deref(),
    });
    let endpoints = defects.note(guard).zip(defects.note(tls)).map(|(guard, tls)| {
        let conditions = Conditions {
            guard,
            tls,
            connect_timeout: milliseconds(settings.connect_timeout()),
            response_bytes_max: settings.response_bytes_max,
            needs_body: true,
        };
        let payments = defects.note(Endpoint::new("url", &settings.url, &conditions));
        (payments, defects.note(inquiries(settings, &conditions)))
    });
    let key_header = defects.note(header_name("idempotency_header", &settings.idempotency_header));
    let headers = key_header
        .as_ref()
        .and_then(|key_header| defects.note(headers(settings, key_header, environment)));
    let signing_secret = defects.note(signing_secret(settings, environment));
    let table = defects.note(CodeTable::new(&settings.presets, &settings.codes));
    let parts = (|| {
        let (payments, inquiries) = endpoints?;
        Some((payments?, inquiries?, key_header?, headers?, signing_secret?, table?))
    })();
    let (payments, mut inquiries, key_header, headers, signing_secret, table) =
        defects.finish(parts)?;
    if let Some(endpoint) = &mut inquiries
        && payments.origin.is_same_server(&endpoint.origin)
    {
        endpoint.origin = Arc::clone(&payments.origin);
    }
    Ok(HttpRail {
        terms: terms(settings),
        destination: settings.destination.unwrap_or(DestinationRule::Any),
        payments,
        inquiries,
        headers,
        signing_secret,
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

/// Where one can ask, if one can.
fn inquiries(
    settings: &HttpRailSettings,
    conditions: &Conditions,
) -> Result<Option<Endpoint>, FieldError> {
    let Some(template) = &settings.inquiry_url else { return Ok(None) };
    // That it has {key} was checked before.
    let url = template.replace("{key}", KEY_PLACEHOLDER);
    let endpoint = Endpoint::new("inquiry_url", &url, conditions)?;
    if template.contains("{key}") && !endpoint.target.contains(KEY_PLACEHOLDER) {
        let problem = "must have {key} in its path or query";
        return Err(FieldError::new("inquiry_url", problem));
    }
    Ok(Some(endpoint))
}

fn terms(settings: &HttpRailSettings) -> Terms {
    Terms {
        endpoint: endpoint(settings),
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

/// What follows the `?` of a URL may hold a secret, and secrets change while the endpoint stays.
fn endpoint(settings: &HttpRailSettings) -> rail::Endpoint {
    let place = |url: &str| url.split('?').next().unwrap_or_default().to_owned();
    let inquiry = settings.inquiry_url.as_deref().map(place).unwrap_or_default();
    rail::Endpoint::new("http", &place(&settings.url), &inquiry, &settings.account)
}

fn headers(
    settings: &HttpRailSettings,
    key_header: &HeaderName,
    environment: Environment<'_>,
) -> Result<HeaderMap, FieldError> {
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
                return Err(FieldError::new(field, problem));
            }
            if given.contains(&header) {
                let problem =
                    format!("sets {header} a second time: headers and header_env are one list");
                return Err(FieldError::new(field, problem));
            }
            let is_secret = matches!(
                header.as_str(),
                "authorization" | "proxy-authorization" | "cookie" | "x-api-key"
            );
            if field == "headers" && is_secret {
                let problem =
                    format!("must not hold {header}: name an environment variable in header_env");
                return Err(FieldError::new(field, problem));
            }
            let text = match field {
                "headers" => text.clone(),
                _ => variable(field, text, environment)?,
            };
            let mut value = HeaderValue::from_str(&text).map_err(|_| {
                FieldError::new(
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

fn signing_secret(
    settings: &HttpRailSettings,
    environment: Environment<'_>,
) -> Result<Option<Vec<u8>>, FieldError> {
    const FIELD: &str = "signing_secret_env";
    let Some(name) = &settings.signing_secret_env else { return Ok(None) };
    let secret = variable(FIELD, name, environment)?;
    if secret.len() < SECRET_BYTES_MIN {
        let problem =
            format!("names a secret shorter than {SECRET_BYTES_MIN} bytes, which can be guessed");
        return Err(FieldError::new(FIELD, problem));
    }
    Ok(Some(secret.into_bytes()))
}
