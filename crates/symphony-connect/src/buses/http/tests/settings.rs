//! What is refused before the first event.

use super::{SECRET, environment, settings};
use crate::buses::http::{EndpointSettings, HttpBus, HttpBusSettings};

fn refusal(change: impl FnOnce(&mut HttpBusSettings)) -> String {
    let mut settings = settings("https://example.com/hooks");
    settings.allow_private_addresses = false;
    change(&mut settings);
    HttpBus::new(&settings, environment).expect_err("refused").to_string()
}

fn endpoint(change: impl FnOnce(&mut EndpointSettings)) -> String {
    refusal(|settings| change(settings.endpoints.get_mut("billing").unwrap()))
}

#[test]
fn what_cannot_work_is_refused_with_its_field_and_the_fix() {
    for (refused, expected) in [
        (refusal(|bus| bus.endpoints.clear()), "endpoints is empty: add a section"),
        (refusal(|bus| bus.batch_max = 0), "batch_max must be 1 to 100"),
        (refusal(|bus| bus.response_bytes_max = 0), "response_bytes_max must be"),
        (refusal(|bus| bus.allowed_networks = vec!["x".to_owned()]), "allowed_networks must be"),
        (
            refusal(|bus| {
                bus.endpoints.insert("a b".to_owned(), EndpointSettings::default());
            }),
            "endpoints has a name that is no topic",
        ),
        (endpoint(|one| one.url.clear()), "endpoints.billing.url is missing"),
        (endpoint(|one| one.url = "example.com".to_owned()), "endpoints.billing.url is not a URL"),
        (
            endpoint(|one| one.url = "http://example.com/".to_owned()),
            "endpoints.billing.url must begin with https://",
        ),
        (
            endpoint(|one| one.url = "https://user:pass@example.com/".to_owned()),
            "endpoints.billing.url must not contain a user or password",
        ),
        (endpoint(|one| one.timeout_ms = 0), "endpoints.billing.timeout_ms must be 1 to 60000"),
        (
            endpoint(|one| one.connect_timeout_ms = Some(501)),
            "endpoints.billing.connect_timeout_ms must not be longer",
        ),
        (endpoint(|one| one.secret_env.clear()), "endpoints.billing.secret_env is missing"),
        (
            endpoint(|one| one.secret_env = "UNSET".to_owned()),
            "endpoints.billing.secret_env needs an environment variable: UNSET is not set",
        ),
        (
            endpoint(|one| one.secret_env = "PLAIN".to_owned()),
            "endpoints.billing.secret_env names a variable whose value must be whsec_",
        ),
    ] {
        assert!(refused.starts_with(expected), "{refused}");
    }
}

#[test]
fn a_secret_that_stands_where_its_variable_should_is_not_repeated() {
    let refused = endpoint(|one| one.secret_env = SECRET.to_owned());
    assert!(!refused.contains("MfKQ"), "{refused}");
    let printed =
        format!("{:?}", HttpBus::new(&settings("http://127.0.0.1/?token=t"), environment));
    assert!(!printed.contains("MfKQ") && !printed.contains("token"), "{printed}");
    let printed = format!("{:?}", settings("http://127.0.0.1/?token=t"));
    assert!(!printed.contains("token"), "{printed}");
}

#[test]
fn settings_are_read_as_they_are_documented_and_nothing_else_is() {
    let read = |text: &str| serde_json::from_str::<HttpBusSettings>(text);
    let given = read(
        r#"{"endpoints": {"billing": {"url": "https://example.com", "secret_env": "SECRET"}}}"#,
    )
    .unwrap();
    assert_eq!(given.endpoints["billing"].timeout_ms, 15_000);
    assert_eq!((given.batch_max, given.allow_private_addresses), (10, false));
    assert!(HttpBus::new(&given, environment).is_ok());
    for text in [r#"{"endpoint": {}}"#, r#"{"endpoints": {"billing": {"secret": "whsec_"}}}"#] {
        assert!(read(text).unwrap_err().to_string().contains("unknown field"), "{text}");
    }
}
