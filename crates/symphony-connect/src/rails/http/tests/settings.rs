use std::collections::BTreeMap;

use symphony::lanes::payments::rail::{InquiryTerms, Rail as _, Verdict};
use symphony::money::DestinationRule;

use crate::rails::http::{HttpRail, HttpRailSettings, NotFound};

fn good() -> HttpRailSettings {
    HttpRailSettings {
        url: "https://bank.example/payments".to_owned(),
        destination: Some(DestinationRule::Iban),
        ..HttpRailSettings::default()
    }
}

fn environment(name: &str) -> Option<String> {
    match name {
        "LONG" => Some("0123456789abcdef-the-secret".to_owned()),
        "SHORT" => Some("short".to_owned()),
        "LINES" => Some("a\r\nb".to_owned()),
        _ => None,
    }
}

fn map(name: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), value.to_owned())])
}

#[test]
fn contradictions_are_refused_with_one_line_that_names_the_field() {
    type Change = fn(&mut HttpRailSettings);
    type Case = (&'static str, Box<dyn Fn(&mut HttpRailSettings)>);
    let url = |url: &'static str| move |s: &mut HttpRailSettings| s.url = url.to_owned();
    let mut cases: Vec<Case> = Vec::new();
    for bad in [
        "",
        "bank.example",
        "ftp://bank.example/",
        "http://bank.example/",
        "http://8.8.8.8/",
        "http://127.0.0.1/",
        "https://127.0.0.1/",
        "https://0x7f.1/",
        "https://2130706433/",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://169.254.169.254/",
        "https://10.1/",
        "https://user:password@bank.example/",
        "https://user@bank.example/",
        "https://bank.example/#part",
        "https://bank.example:0/",
        "https://",
    ] {
        cases.push(("url", Box::new(url(bad))));
    }
    let changes: &[(&str, Change)] = &[
        ("timeout_ms", |s| s.timeout_ms = 0),
        ("timeout_ms", |s| s.timeout_ms = 600_001),
        ("inquiry_timeout_ms", |s| s.inquiry_timeout_ms = 0),
        ("connect_timeout_ms", |s| s.connect_timeout_ms = Some(0)),
        ("connect_timeout_ms", |s| s.connect_timeout_ms = Some(30_001)),
        ("response_bytes_max", |s| s.response_bytes_max = 0),
        ("key_lifetime_seconds", |s| s.key_lifetime_seconds = Some(30)),
        ("destination", |s| s.destination = None),
        ("not_found", |s| s.not_found = NotFound::Final),
        ("settle_delay_seconds", |s| s.settle_delay_seconds = Some(60)),
        ("settle_delay_seconds", |s| {
            s.not_found = NotFound::Final;
            s.inquiry_url = Some("https://bank.example/{key}".to_owned());
        }),
        ("not_found_code", |s| s.not_found_code = "NONE".to_owned()),
        ("not_found_code", |s| {
            s.inquiry_url = Some("https://bank.example/payments/{key}".to_owned());
            s.not_found = NotFound::Final;
            s.settle_delay_seconds = Some(60);
        }),
        ("inquiry_url", |s| s.inquiry_url = Some("https://bank.example/".to_owned())),
        ("inquiry_url", |s| s.inquiry_url = Some("https://{key}.bank.example/".to_owned())),
        ("inquiry_url", |s| s.inquiry_url = Some("http://bank.example/{key}".to_owned())),
        ("inquiry_url", |s| s.inquiry_url = Some("https://10.0.0.1/{key}".to_owned())),
        ("code_pointer", |s| {
            s.inquiry_url = Some("https://bank.example/{key}".to_owned());
            s.code_pointer = String::new();
        }),
        ("code_pointer", |s| s.code_pointer = "code".to_owned()),
        ("reference_pointer", |s| s.reference_pointer = "$.reference".to_owned()),
        ("reason_pointer", |s| {
            s.reason_pointer = "/reason".to_owned();
            s.code_pointer = String::new();
        }),
        ("codes", |s| {
            s.codes.insert("http:5xx".to_owned(), Verdict::Retryable);
        }),
        ("idempotency_header", |s| s.idempotency_header = "not a header".to_owned()),
        ("idempotency_header", |s| s.idempotency_header = "Content-Length".to_owned()),
        ("headers", |s| s.headers = map("Host", "elsewhere")),
        ("headers", |s| s.headers = map("Symphony-Signature", "t=1")),
        ("headers", |s| s.headers = map("Idempotency-Key", "1")),
        ("headers", |s| s.headers = map("Authorization", "Bearer secret")),
        ("headers", |s| s.headers = map("X-Note", "a\r\nb")),
        ("header_env", |s| s.header_env = map("Authorization", "MISSING")),
        ("header_env", |s| s.header_env = map("Authorization", "LINES")),
        ("header_env", |s| {
            s.headers = map("X-Client", "a");
            s.header_env = map("x-client", "LONG");
        }),
        ("signing_secret_env", |s| s.signing_secret_env = Some("MISSING".to_owned())),
        ("signing_secret_env", |s| s.signing_secret_env = Some("SHORT".to_owned())),
        ("allowed_networks", |s| s.allowed_networks = vec!["10.0.0.1/8".to_owned()]),
        ("extra_root_certificates_file", |s| {
            s.extra_root_certificates_file = Some("/does/not/exist.pem".into());
        }),
    ];
    cases.extend(changes.iter().map(|(field, change)| -> Case { (*field, Box::new(*change)) }));
    for (number, (field, change)) in cases.iter().enumerate() {
        let mut settings = good();
        change(&mut settings);
        let error = HttpRail::new(&settings, environment).err();
        let error = error.unwrap_or_else(|| panic!("case {number} ({field}) was accepted"));
        assert_eq!(error.first().field, *field, "case {number}: {error}");
        let line = error.to_string();
        assert!(!line.contains('\n') && !line.contains("secret-"), "case {number}: {line}");
        assert!(!line.contains("password@") && !line.contains("Bearer"), "case {number}: {line}");
    }
}

#[test]
fn plain_http_is_for_private_addresses_that_are_allowed() {
    for (url, allowed) in [
        ("http://127.0.0.1:8080/", true),
        ("http://localhost:8080/", true),
        ("http://sandbox:8080/", true),
        ("http://8.8.8.8/", false),
        ("http://169.254.169.254/", false),
    ] {
        let settings =
            HttpRailSettings { url: url.to_owned(), allow_private_addresses: true, ..good() };
        assert_eq!(HttpRail::new(&settings, environment).is_ok(), allowed, "{url}");
    }
}

#[test]
fn terms_say_what_was_configured() {
    let rail = HttpRail::new(&good(), environment).unwrap();
    assert_eq!(rail.terms().inquiry, InquiryTerms::Impossible);
    assert_eq!(rail.terms().key_lifetime, None);
    assert_eq!(rail.terms().timeout.as_millis(), 30_000);
    let inquiry_url = Some("https://bank.example/payments?key={key}".to_owned());
    let settings = HttpRailSettings { inquiry_url, ..good() };
    let rail = HttpRail::new(&settings, environment).unwrap();
    assert_eq!(rail.terms().inquiry, InquiryTerms::NotFoundProvesNothing);
    let settings = HttpRailSettings {
        not_found: NotFound::Final,
        not_found_code: "NONE".to_owned(),
        settle_delay_seconds: Some(60),
        key_lifetime_seconds: Some(86_400),
        ..settings
    };
    let rail = HttpRail::new(&settings, environment).unwrap();
    let minute = std::time::Duration::from_mins(1);
    assert_eq!(rail.terms().inquiry, InquiryTerms::NotFoundIsFinalAfter(minute));
    assert_eq!(rail.terms().key_lifetime.unwrap().as_secs(), 86_400);
}

#[test]
fn settings_are_read_strictly_and_defaults_are_the_documented_ones() {
    let read = |text: &str| serde_json::from_str::<HttpRailSettings>(text);
    let settings = read(
        r#"{"url": "https://bank.example/", "destination": "iban", "presets": ["http"],
            "codes": {"OK": "accepted", "http:503": "retryable"}, "not_found": "proves_nothing"}"#,
    )
    .unwrap();
    assert!(HttpRail::new(&settings, environment).is_ok());
    assert_eq!(settings.timeout_ms, 30_000);
    assert_eq!(settings.inquiry_timeout_ms, 10_000);
    assert_eq!(settings.idempotency_header, "Idempotency-Key");
    assert_eq!(settings.response_bytes_max, 65_536);
    assert!(read(r#"{"url": "https://bank.example/", "timout_ms": 1}"#).is_err());
    assert!(read(r#"{"codes": {"OK": "success"}}"#).is_err());
}

#[test]
fn no_secret_is_ever_printed() {
    let settings = HttpRailSettings {
        url: "https://bank.example/payments?token=hidden-in-query".to_owned(),
        headers: map("X-Client", "hidden-in-header"),
        header_env: map("Authorization", "LONG"),
        signing_secret_env: Some("LONG".to_owned()),
        ..good()
    };
    let rail = HttpRail::new(&settings, environment).unwrap();
    let printed = format!("{settings:?} {rail:?} {rail:#?}");
    for secret in ["hidden", "0123456789abcdef"] {
        assert!(!printed.contains(secret), "{printed}");
    }
    let misplaced =
        HttpRailSettings { signing_secret_env: Some("hidden-0123456789".to_owned()), ..good() };
    let error = HttpRail::new(&misplaced, environment).unwrap_err().to_string();
    assert!(!error.contains("hidden"), "{error}");
}
