use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::Utc;

use super::*;

fn cluster(address: &KafkaAddress) -> Result<KafkaCluster, String> {
    let environment = |name: &str| (name == "PASSWORD").then(|| "open sesame".to_owned());
    KafkaCluster::new(address, environment).map_err(|error| error.to_string())
}

fn at(bootstrap_servers: &str) -> KafkaAddress {
    KafkaAddress { bootstrap_servers: bootstrap_servers.to_owned(), ..KafkaAddress::default() }
}

fn protocol(address: &KafkaAddress) -> String {
    let config = cluster(address).unwrap().config(Duration::from_secs(1), Duration::from_secs(1));
    config.get("security.protocol").unwrap().to_owned()
}

#[test]
fn plain_text_is_for_this_machine_unless_it_is_allowed() {
    assert_eq!(protocol(&at("127.0.0.1:9092, [::1]:9093,localhost:9094")), "PLAINTEXT");
    assert_eq!(protocol(&at("127.0.0.1:9092,kafka.example.com:9092")), "SSL");
    let allowed = KafkaAddress { allow_plain_text: true, ..at("kafka.example.com:9092") };
    assert_eq!(protocol(&allowed), "PLAINTEXT");
    assert_eq!(protocol(&KafkaAddress { tls: true, ..at("127.0.0.1:9092") }), "SSL");
    let named = KafkaAddress {
        sasl_mechanism: Some(SaslMechanism::ScramSha512),
        username: Some("symphony".to_owned()),
        password_env: Some("PASSWORD".to_owned()),
        ..at("kafka.example.com:9092")
    };
    assert_eq!(protocol(&named), "SASL_SSL");
}

#[test]
fn what_is_wrong_with_an_address_is_named_with_the_fix() {
    let says = |address: &KafkaAddress, text: &str| {
        let said = cluster(address).unwrap_err();
        assert!(said.contains(text), "{said}");
        assert!(!said.contains("open sesame"), "{said}");
    };
    says(&at(""), "bootstrap_servers is missing");
    for wrong in ["kafka", "kafka:port", "http://kafka:9092", "me:secret@kafka:9092", ":1", "a:1,"]
    {
        says(&at(wrong), "bootstrap_servers must be hosts with ports");
    }
    let here = at("127.0.0.1:9092");
    let named = KafkaAddress { username: Some("me".to_owned()), ..here.clone() };
    says(&named, "sasl_mechanism is missing");
    let plain = KafkaAddress { sasl_mechanism: Some(SaslMechanism::Plain), ..named };
    says(&plain, "password_env is missing");
    says(&KafkaAddress { password_env: Some("OTHER".to_owned()), ..plain }, "password_env");
    let token = KafkaAddress { sasl_mechanism: Some(SaslMechanism::OauthBearer), ..here };
    says(&token, "token_file is missing");
    says(&KafkaAddress { token_file: Some("/nowhere".to_owned()), ..token }, "/nowhere");
}

#[test]
fn a_token_comes_from_a_command_and_lives_as_long_as_it_says() {
    let later = Utc::now().timestamp() + 600;
    let payload = URL_SAFE_NO_PAD.encode(format!(r#"{{"sub": "outbox", "exp": {later}}}"#));
    let command = ["printf".to_owned(), "%s\n".to_owned(), format!("e30.{payload}.sig")];
    let token = TokenSource::new(None, &command).unwrap().token().unwrap();
    assert_eq!((token.principal_name.as_str(), token.lifetime_ms), ("outbox", later * 1_000));
    assert!(token.token.contains(&payload));

    let old = URL_SAFE_NO_PAD.encode(r#"{"exp": 1000}"#);
    let expired = ["printf".to_owned(), format!("e30.{old}.sig")];
    let said = TokenSource::new(None, &expired).unwrap().token().err().unwrap();
    assert!(said.contains("expired") && !said.contains(&old), "{said}");

    for (command, says) in [
        (vec!["false"], "exit status: 1"),
        (vec!["printf", "two words"], "does not print one token"),
        (vec!["/nowhere/at/all"], "/nowhere/at/all"),
    ] {
        let command: Vec<_> = command.into_iter().map(str::to_owned).collect();
        let said = TokenSource::new(None, &command).unwrap().token().err().unwrap();
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn a_topic_is_named_as_kafka_allows() {
    for fine in ["transfers", "a.b-c_D9", &"x".repeat(249)] {
        assert!(is_topic_name(fine), "{fine}");
    }
    for wrong in ["", ".", "..", "a b", "a/b", "ключ", &"x".repeat(250)] {
        assert!(!is_topic_name(wrong), "{wrong}");
    }
}
