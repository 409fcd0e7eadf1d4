//! From Kafka's error codes to what is known of a message.
//!
//! The producer tries again by itself. So a broker's refusal says that nothing was taken only if no connection broke
//! meanwhile: an earlier try may have been taken, and its answer lost.

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use symphony::lanes::events::bus::Publication;

use super::super::{FailureKind, again, short_line};

/// The producer did not take it: nothing was sent.
pub(super) fn not_handed_over(error: &KafkaError, topic: &str) -> Publication {
    match error.rdkafka_error_code() {
        Some(Code::Fatal) => again(
            "BUS_ERROR",
            "the producer has given up for good: a new one is made",
            FailureKind::NotTakenUnwell,
        ),
        Some(code) => failure(code, topic, false),
        None => again("UNSENT", short_line(&error.to_string()), FailureKind::NotTaken),
    }
}

/// The producer gave it back.
pub(super) fn not_delivered(error: &KafkaError, topic: &str, in_doubt: bool) -> Publication {
    match error.rdkafka_error_code() {
        Some(code) => failure(code, topic, in_doubt),
        None => again("BUS_ERROR", short_line(&error.to_string()), FailureKind::Unknown),
    }
}

/// The producer went before it answered.
pub(super) fn unanswered() -> Publication {
    again("NO_ANSWER", "the producer was given up before its answer", FailureKind::Unknown)
}

pub(super) fn too_slow() -> Publication {
    again("TIMEOUT", "Kafka did not answer in time", FailureKind::Unknown)
}

/// What a code says. `in_doubt`: an earlier try may have been taken all the same.
pub(super) fn failure(code: Code, topic: &str, in_doubt: bool) -> Publication {
    let (own_code, words, kind) = read(code, topic);
    again(own_code, words, if in_doubt { FailureKind::Unknown } else { kind })
}

fn read(code: Code, topic: &str) -> (&'static str, String, FailureKind) {
    use FailureKind::{NotTaken, NotTakenUntilMended, NotTakenUnwell, Unknown};
    let says = format!("Kafka says {code}");
    match code {
        Code::MessageTimedOut | Code::RequestTimedOut | Code::OperationTimedOut => {
            ("TIMEOUT", "Kafka did not take it in time".to_owned(), Unknown)
        }
        Code::BrokerTransportFailure | Code::NetworkException => (
            "CONNECTION_LOST",
            "the connection to Kafka broke before the answer".to_owned(),
            Unknown,
        ),
        Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition => (
            "NO_SUCH_TOPIC",
            format!("there is no topic {topic}: create it with `symphony bus setup`"),
            NotTakenUntilMended,
        ),
        Code::InvalidTopic => {
            ("NO_SUCH_TOPIC", format!("{says}: correct the route's topic"), NotTakenUntilMended)
        }
        // The topic's limit, and an operator's to raise.
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge => (
            "OVERSIZE",
            format!(
                "{says}: raise max.message.bytes of topic {topic}, or publish a reference to the data instead"
            ),
            NotTaken,
        ),
        Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed
        | Code::Authentication
        | Code::SaslAuthenticationFailed => (
            "NOT_AUTHORIZED",
            format!("{says}; see docs/BUSES.md for what a producer must be allowed"),
            NotTakenUntilMended,
        ),
        Code::NotEnoughReplicas => (
            "NOT_ENOUGH_REPLICAS",
            format!(
                "{says}: fewer replicas of topic {topic} are in sync than its min.insync.replicas"
            ),
            NotTakenUnwell,
        ),
        // It was appended, and may yet be lost or kept.
        Code::NotEnoughReplicasAfterAppend => ("NOT_ENOUGH_REPLICAS", says, Unknown),
        Code::NotLeaderForPartition
        | Code::LeaderNotAvailable
        | Code::ReplicaNotAvailable
        | Code::BrokerNotAvailable
        | Code::KafkaStorageError
        | Code::FencedLeaderEpoch
        | Code::UnknownLeaderEpoch => ("BUS_ERROR", says, NotTakenUnwell),
        Code::QueueFull | Code::ThrottlingQuotaExceeded => ("THROTTLED", says, NotTakenUnwell),
        Code::AllBrokersDown | Code::Resolve | Code::SSL => ("UNREACHABLE", says, NotTakenUnwell),
        // They speak of the record, or of the topic's rules for it.
        Code::InvalidRecord
        | Code::InvalidTimestamp
        | Code::InvalidMessageSize
        | Code::InvalidRequiredAcks
        | Code::PolicyViolation
        | Code::UnsupportedForMessageFormat
        | Code::UnsupportedCompressionType
        | Code::InvalidArgument => ("REFUSED_BY_BUS", says, NotTaken),
        _ => ("BUS_ERROR", says, Unknown),
    }
}

#[cfg(test)]
mod tests {
    use symphony::lanes::events::bus::Cause;

    use super::*;

    fn flags(code: Code, in_doubt: bool) -> (String, Option<(bool, Cause)>) {
        match failure(code, "transfers", in_doubt) {
            Publication::Again { trouble, unknown, cause, .. } => {
                (trouble.code, Some((unknown, cause)))
            }
            other => (format!("{other:?}"), None),
        }
    }

    #[test]
    fn what_an_operator_can_mend_is_never_a_refusal_and_what_may_have_left_is_unknown() {
        use Cause::{Destination, Message, Setup};
        //  the code | ours, may have been taken, whose fault
        for (code, ours, unknown, cause) in [
            (Code::UnknownTopicOrPartition, "NO_SUCH_TOPIC", false, Setup),
            (Code::TopicAuthorizationFailed, "NOT_AUTHORIZED", false, Setup),
            (Code::ClusterAuthorizationFailed, "NOT_AUTHORIZED", false, Setup),
            (Code::MessageSizeTooLarge, "OVERSIZE", false, Message),
            (Code::NotEnoughReplicas, "NOT_ENOUGH_REPLICAS", false, Destination),
            (Code::NotEnoughReplicasAfterAppend, "NOT_ENOUGH_REPLICAS", true, Destination),
            (Code::NotLeaderForPartition, "BUS_ERROR", false, Destination),
            (Code::MessageTimedOut, "TIMEOUT", true, Destination),
            (Code::BrokerTransportFailure, "CONNECTION_LOST", true, Destination),
            (Code::QueueFull, "THROTTLED", false, Destination),
            (Code::InvalidRecord, "REFUSED_BY_BUS", false, Message),
            (Code::PurgeInflight, "BUS_ERROR", true, Destination),
            (Code::OutOfOrderSequenceNumber, "BUS_ERROR", true, Destination),
            (Code::Unknown, "BUS_ERROR", true, Destination),
        ] {
            assert_eq!(flags(code, false), (ours.to_owned(), Some((unknown, cause))), "{code:?}");
            // A connection broke meanwhile: an earlier try may have been taken.
            assert_eq!(flags(code, true), (ours.to_owned(), Some((true, Destination))), "{code:?}");
        }
    }
}
