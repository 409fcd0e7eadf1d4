//! Clients of AWS, built from settings.
//!
//! Credentials come from the usual places: the environment, the profile in `~/.aws`, a web identity (EKS), the
//! container's endpoint (ECS, EKS pod identity), the instance's metadata. They are looked for at the first call, so
//! building a client asks nobody anything.
//!
//! The SDK's own retries are off: whoever calls has a schedule, a ledger of attempts and a circuit breaker, and must
//! hear of every failure. Retries beneath it would multiply its attempts and hold its lease longer than it knows.

use std::time::Duration;
use symphony::FieldError;

use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::provider_config::ProviderConfig;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use serde::Deserialize;
use tokio::sync::OnceCell;
use url::Url;

/// Where AWS is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AwsSettings {
    /// Such as `eu-central-1`. Without it, `AWS_REGION` or `AWS_DEFAULT_REGION` of the environment.
    pub region: Option<String>,
    /// Instead of AWS's own: a VPC endpoint, or a server on this machine.
    pub endpoint_url: Option<String>,
    /// Let `endpoint_url` be `http://` where it is not this machine.
    pub allow_plain_http: bool,
}

/// Makes clients that share their credentials.
#[derive(Debug, Clone)]
pub struct Aws {
    config: SdkConfig,
    region: String,
}

impl Aws {
    /// Of these settings and this environment: its region and keys, if it has them, else the usual places.
    pub fn new(
        settings: &AwsSettings,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, FieldError> {
        let region = settings
            .region
            .clone()
            .or_else(|| environment("AWS_REGION"))
            .or_else(|| environment("AWS_DEFAULT_REGION"))
            .filter(|region| !region.is_empty())
            .ok_or_else(|| {
                FieldError::new("region", "is missing: set it, or AWS_REGION in the environment")
            })?;
        let well_formed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !region.chars().all(well_formed) {
            let problem = "must be a name such as \"eu-central-1\"";
            return Err(FieldError::new("region", problem));
        }
        let http = aws_smithy_http_client::Builder::new()
            .tls_provider(Provider::Rustls(CryptoMode::Ring))
            .build_https();
        let credentials = match keys(&environment) {
            Some(keys) => SharedCredentialsProvider::new(keys),
            None => SharedCredentialsProvider::new(LazyCredentials {
                config: ProviderConfig::without_region()
                    .with_region(Some(Region::new(region.clone())))
                    .with_http_client(http.clone()),
                chain: OnceCell::new(),
            }),
        };
        let mut config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(region.clone()))
            .http_client(http)
            .credentials_provider(credentials)
            .retry_config(RetryConfig::disabled());
        if let Some(url) = &settings.endpoint_url {
            check_endpoint(url, settings.allow_plain_http)?;
            config = config.endpoint_url(url);
        }
        Ok(Self { config: config.build(), region })
    }

    /// The region all clients are for.
    pub fn region(&self) -> &str {
        &self.region
    }

    /// `aws`, or the partition of its own that the region belongs to.
    pub fn partition(&self) -> &'static str {
        if self.region.starts_with("cn-") {
            "aws-cn"
        } else if self.region.starts_with("us-gov-") {
            "aws-us-gov"
        } else {
            "aws"
        }
    }

    /// For SNS, with these limits on connecting and on a whole call.
    pub fn sns(&self, connect: Duration, call: Duration) -> aws_sdk_sns::Client {
        let config = aws_sdk_sns::config::Builder::from(&self.config);
        aws_sdk_sns::Client::from_conf(config.timeout_config(timeouts(connect, call)).build())
    }

    /// For SQS, with these limits; a call that waits for messages must be allowed that wait.
    pub fn sqs(&self, connect: Duration, call: Duration) -> aws_sdk_sqs::Client {
        let config = aws_sdk_sqs::config::Builder::from(&self.config);
        aws_sdk_sqs::Client::from_conf(config.timeout_config(timeouts(connect, call)).build())
    }
}

fn timeouts(connect: Duration, call: Duration) -> TimeoutConfig {
    TimeoutConfig::builder().connect_timeout(connect).operation_timeout(call).build()
}

fn keys(environment: impl Fn(&str) -> Option<String>) -> Option<Credentials> {
    let given = |name: &str| environment(name).filter(|value| !value.is_empty());
    let mut keys = Credentials::builder()
        .access_key_id(given("AWS_ACCESS_KEY_ID")?)
        .secret_access_key(given("AWS_SECRET_ACCESS_KEY")?)
        .provider_name("environment");
    if let Some(token) = given("AWS_SESSION_TOKEN") {
        keys = keys.session_token(token);
    }
    Some(keys.build())
}

fn check_endpoint(text: &str, allow_plain_http: bool) -> Result<(), FieldError> {
    let refuse = |problem: &str| Err(FieldError::new("endpoint_url", problem));
    let Ok(url) = Url::parse(text) else {
        return refuse("must be a URL such as \"https://sns.eu-central-1.amazonaws.com\"");
    };
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("must not hold credentials: they come from the environment or a profile");
    }
    let this_machine = match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => return refuse("names no host"),
    };
    match url.scheme() {
        "https" => Ok(()),
        "http" if this_machine || allow_plain_http => Ok(()),
        "http" => refuse("must be https: or set allow_plain_http = true"),
        _ => refuse("must be https"),
    }
}

/// The usual chain, made when it is first asked: making it needs a runtime.
#[derive(Debug)]
struct LazyCredentials {
    config: ProviderConfig,
    chain: OnceCell<DefaultCredentialsChain>,
}

impl ProvideCredentials for LazyCredentials {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            let make = || DefaultCredentialsChain::builder().configure(self.config.clone()).build();
            self.chain.get_or_init(make).await.provide_credentials().await
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn build(region: Option<&str>, url: Option<&str>) -> Result<Aws, String> {
        let settings = AwsSettings {
            region: region.map(str::to_owned),
            endpoint_url: url.map(str::to_owned),
            allow_plain_http: false,
        };
        let environment = |name: &str| (name == "AWS_REGION").then(|| "cn-north-1".to_owned());
        Aws::new(&settings, environment).map_err(|error| error.to_string())
    }

    #[test]
    fn the_region_is_the_settings_or_else_the_environments() {
        assert_eq!(build(Some("us-gov-west-1"), None).unwrap().partition(), "aws-us-gov");
        let from_environment = build(None, None).unwrap();
        assert_eq!(
            (from_environment.region(), from_environment.partition()),
            ("cn-north-1", "aws-cn")
        );
        assert!(Aws::new(&AwsSettings::default(), |_| None).is_err());
        assert!(build(Some("eu central"), None).is_err());
    }

    #[test]
    fn plain_http_is_for_this_machine_only_unless_allowed() {
        for fine in [
            "https://sns.example.com",
            "http://127.0.0.1:5000",
            "http://localhost:1",
            "http://[::1]:1",
        ] {
            assert!(build(None, Some(fine)).is_ok(), "{fine}");
        }
        for wrong in
            ["http://sns.example.com", "ftp://x", "nonsense", "https://a:b@sns.example.com"]
        {
            let error = build(None, Some(wrong)).unwrap_err();
            assert!(error.starts_with("endpoint_url "), "{error}");
        }
    }
}
