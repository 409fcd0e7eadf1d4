//! From SNS's answers and errors to what is known of each message.

use std::error::Error;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_sns::error::SdkError;
use aws_sdk_sns::operation::publish_batch::{PublishBatchError, PublishBatchOutput};
use symphony::lanes::events::bus::Publication;

use super::super::{FailureKind, again, refused, short_line};

/// One per entry; entries are numbered from 0.
pub(super) fn answers(answer: &PublishBatchOutput, count: usize) -> Vec<Publication> {
    let mut read = vec![unanswered(); count];
    let mut put = |id: Option<&str>, publication: Publication| {
        let place = id.and_then(|id| id.parse::<usize>().ok()).and_then(|at| read.get_mut(at));
        if let Some(place) = place {
            *place = publication;
        }
    };
    for taken in answer.successful() {
        let reference = taken.message_id().unwrap_or_default().to_owned();
        put(taken.id(), Publication::Accepted { reference });
    }
    for failed in answer.failed() {
        let message = failed.message().unwrap_or("without a reason");
        put(Some(failed.id()), failure(failed.code(), message, failed.sender_fault()));
    }
    read
}

/// SNS's answer says nothing of this entry.
pub(super) fn unanswered() -> Publication {
    again("NO_ANSWER", "SNS's answer does not speak of this message", FailureKind::Unknown)
}

/// The whole call failed.
pub(super) fn error(error: &SdkError<PublishBatchError>, arn: &str) -> Publication {
    match error {
        SdkError::ConstructionFailure(_) => again(
            "UNSENT",
            "the request could not be made: see the bus's settings",
            FailureKind::NotTakenUntilMended,
        ),
        SdkError::TimeoutError(_) => {
            again("TIMEOUT", "SNS did not answer in time", FailureKind::Unknown)
        }
        SdkError::DispatchFailure(failure) => {
            let source = failure.as_connector_error();
            unreached(source.map(|error| error as &(dyn Error + 'static)), failure.is_timeout())
        }
        SdkError::ResponseError(_) => {
            again("BAD_ANSWER", "SNS's answer could not be read", FailureKind::Unknown)
        }
        SdkError::ServiceError(refusal) => {
            let metadata = refusal.err().meta();
            let code = metadata.code().unwrap_or("without a code");
            let message = metadata.message().unwrap_or("without a reason");
            let sender_fault = !refusal.raw().status().is_server_error();
            if matches!(code, "NotFound" | "NotFoundException") {
                return no_such_topic(arn);
            }
            failure(code, message, sender_fault)
        }
        _ => again("UNREACHABLE", "SNS could not be called", FailureKind::Unknown),
    }
}

fn no_such_topic(arn: &str) -> Publication {
    let message = format!("there is no topic {arn}: create it with `symphony bus setup`");
    again("NO_SUCH_TOPIC", message, FailureKind::NotTakenUntilMended)
}

fn unreached(error: Option<&(dyn Error + 'static)>, timeout: bool) -> Publication {
    let mut connecting = false;
    let mut next = error;
    while let Some(error) = next {
        // The second has no public type; unrecognised it would be unknown, which is only less exact.
        if error.is::<CredentialsError>()
            || error.to_string().starts_with("identity resolver timed out")
        {
            let message =
                "there are no AWS credentials: see docs/BUSES.md for where they are looked for";
            return again("NO_CREDENTIALS", message, FailureKind::NotTakenUntilMended);
        }
        let legacy = error.downcast_ref::<hyper_util::client::legacy::Error>();
        connecting |= legacy.is_some_and(hyper_util::client::legacy::Error::is_connect);
        next = error.source();
    }
    if connecting {
        return again(
            "UNREACHABLE",
            "no connection to SNS could be made",
            FailureKind::NotTakenUnwell,
        );
    }
    if timeout {
        return again("TIMEOUT", "SNS did not answer in time", FailureKind::Unknown);
    }
    again("CONNECTION_LOST", "the connection to SNS broke before the answer", FailureKind::Unknown)
}

/// A refusal, of one entry or of the whole call, by the code SNS gives.
fn failure(code: &str, message: &str, sender_fault: bool) -> Publication {
    let words = format!("SNS says {code}: {}", short_line(message));
    let has = |parts: &[&str]| parts.iter().any(|part| code.contains(part));
    if has(&["Throttl", "TooManyRequests", "RequestLimitExceeded", "SlowDown"]) {
        return again("THROTTLED", words, FailureKind::NotTakenUnwell);
    }
    let speaks_of_topic = message.contains("TopicArn") || message.contains("Topic ARN");
    if has(&["NotFound"]) && !has(&["KMS"]) || has(&["InvalidParameter"]) && speaks_of_topic {
        let words = format!("{words}; compare the route's topic with the account and the region");
        return again("NO_SUCH_TOPIC", words, FailureKind::NotTakenUntilMended);
    }
    // An operator can mend all of these: the message is not to blame.
    let access = [
        "Authoriz",
        "AccessDenied",
        "Token",
        "Signature",
        "Unrecognized",
        "OptIn",
        "KMS",
        "Forbidden",
        "InvalidSecurity",
        "MissingAuthentication",
    ];
    if has(&access) {
        let words = format!("{words}; see docs/BUSES.md for what a producer must be allowed");
        return again("NOT_AUTHORIZED", words, FailureKind::NotTakenUntilMended);
    }
    if has(&["RequestExpired", "RequestTimeTooSkewed"]) {
        let words = format!("{words}; set this machine's clock");
        return again("NOT_AUTHORIZED", words, FailureKind::NotTakenUntilMended);
    }
    // Only what speaks of the message is its fault for good. A proxy's page, a code nobody knows: again.
    let message = [
        "InvalidParameter",
        "ParameterValueInvalid",
        "Validation",
        "BatchRequestTooLong",
        "InvalidBatchEntryId",
    ];
    if sender_fault && has(&message) {
        return refused("REFUSED_BY_BUS", words);
    }
    again("BUS_ERROR", words, FailureKind::Unknown)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use aws_config::retry::RetryConfig;
    use aws_config::{BehaviorVersion, Region};
    use aws_credential_types::Credentials;
    use aws_credential_types::provider::{ProvideCredentials, future};
    use aws_sdk_sns::types::{
        BatchResultErrorEntry, PublishBatchRequestEntry, PublishBatchResultEntry,
    };
    use symphony::lanes::events::bus::Cause;

    use super::*;

    fn code_and_flags(publication: &Publication) -> (String, Option<(bool, Cause)>) {
        match publication {
            Publication::Accepted { reference } => (reference.clone(), None),
            Publication::Refused(trouble) => (trouble.code.clone(), None),
            Publication::Again { trouble, unknown, cause, .. } => {
                (trouble.code.clone(), Some((*unknown, *cause)))
            }
        }
    }

    #[test]
    fn a_batch_is_answered_entry_by_entry_in_the_order_given() {
        let failed = |id: &str, code: &str, sender_fault| {
            BatchResultErrorEntry::builder().id(id).code(code).sender_fault(sender_fault).build()
        };
        let failures = [
            failed("4", "InternalError", false),
            failed("1", "InvalidParameter", true),
            failed("3", "Throttled", true),
        ];
        let answer = PublishBatchOutput::builder()
            .successful(PublishBatchResultEntry::builder().id("2").message_id("m-2").build())
            .successful(PublishBatchResultEntry::builder().id("0").message_id("m-0").build())
            .set_failed(failures.into_iter().collect::<Result<Vec<_>, _>>().ok())
            .build();
        let read: Vec<_> = answers(&answer, 6).iter().map(code_and_flags).collect();
        let expected = [
            ("m-0", None),
            ("REFUSED_BY_BUS", None),
            ("m-2", None),
            ("THROTTLED", Some((false, Cause::Destination))),
            ("BUS_ERROR", Some((true, Cause::Destination))),
            ("NO_ANSWER", Some((true, Cause::Destination))),
        ];
        assert_eq!(read, expected.map(|(code, flags)| (code.to_owned(), flags)));
    }

    #[derive(Debug)]
    struct NoKeys;

    impl ProvideCredentials for NoKeys {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            future::ProvideCredentials::ready(Err(CredentialsError::not_loaded("none")))
        }
    }

    /// What a real client makes of a port that nobody listens on.
    async fn nobody_there(keys: impl ProvideCredentials + 'static) -> Publication {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let config = aws_sdk_sns::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-central-1"))
            .endpoint_url(format!("http://{address}"))
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .retry_config(RetryConfig::disabled())
            .credentials_provider(keys);
        let client = aws_sdk_sns::Client::from_conf(config.build());
        let message = PublishBatchRequestEntry::builder().id("0").message("{}").build().unwrap();
        let call = client.publish_batch().topic_arn("arn:t").publish_batch_request_entries(message);
        error(&call.send().await.unwrap_err(), "arn:t")
    }

    #[tokio::test]
    async fn what_surely_never_left_is_not_unknown() {
        let keys = Credentials::builder().access_key_id("a").secret_access_key("b");
        let keys = keys.provider_name("test").build();
        let unreachable = code_and_flags(&nobody_there(keys).await);
        assert_eq!(unreachable, ("UNREACHABLE".to_owned(), Some((false, Cause::Destination))));
        let without_keys = code_and_flags(&nobody_there(NoKeys).await);
        assert_eq!(without_keys, ("NO_CREDENTIALS".to_owned(), Some((false, Cause::Setup))));
    }

    #[test]
    fn what_an_operator_can_mend_is_never_a_refusal() {
        for (code, message) in [
            ("AuthorizationError", "User is not authorized to perform: SNS:Publish"),
            ("InvalidClientTokenId", ""),
            ("ExpiredToken", ""),
            ("KMSDisabled", ""),
            ("NotFound", "Topic does not exist"),
            ("NotAuthorized", ""),
            ("InvalidSecurity", ""),
            // A wrong ARN, as AWS says it.
            (
                "InvalidParameter",
                "Invalid parameter: TopicArn Reason: An ARN must have at least 6 elements",
            ),
            ("InvalidParameterValue", "Invalid parameter: Topic ARN"),
            // A wrong clock.
            ("RequestExpired", ""),
            ("RequestTimeTooSkewed", ""),
        ] {
            let (_, flags) = code_and_flags(&failure(code, message, true));
            assert_eq!(flags, Some((false, Cause::Setup)), "{code}");
        }
        let spoilt = failure("InvalidParameter", "Invalid parameter: Message too long", true);
        assert!(matches!(spoilt, Publication::Refused(_)), "{spoilt:?}");
        // A proxy's page, a code nobody knows: not the message's fault.
        for code in ["RequestAborted", "without a code"] {
            let publication = failure(code, "", true);
            assert!(matches!(publication, Publication::Again { unknown: true, .. }), "{code}");
        }
    }
}
