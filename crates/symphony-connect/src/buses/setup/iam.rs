//! The least that each party needs at AWS. No action and no resource is a wildcard.

use serde_json::{Value, json};

use super::Policy;

const VERSION: &str = "2012-10-17";

/// For IAM: may publish to these topics, and use their key if it is not AWS's own.
pub(super) fn sns_producer(topic_arns: &[String], own_key_arn: Option<&str>) -> Policy {
    let mut statements = vec![json!({
        "Sid": "PublishEvents",
        "Effect": "Allow",
        // Also allows PublishBatch, which has no action of its own.
        "Action": ["sns:Publish"],
        "Resource": topic_arns,
    })];
    if let Some(key) = own_key_arn {
        statements.push(json!({
            "Sid": "EncryptEvents",
            "Effect": "Allow",
            "Action": ["kms:GenerateDataKey", "kms:Decrypt"],
            "Resource": [key],
        }));
    }
    policy("producer".to_owned(), &statements)
}

/// For IAM: may read its own queue, and no other; may put dead letters beside it and count them, and not read them.
pub(super) fn sqs_consumer(name: &str, queue_arn: &str, dead_arn: &str) -> Policy {
    let read = json!({
        "Sid": "ReadOwnQueue",
        "Effect": "Allow",
        "Action": [
            "sqs:ReceiveMessage",
            "sqs:DeleteMessage",
            "sqs:ChangeMessageVisibility",
            "sqs:GetQueueAttributes",
        ],
        "Resource": [queue_arn],
    });
    let dead_letter = json!({
        "Sid": "DeadLetter",
        "Effect": "Allow",
        "Action": ["sqs:SendMessage", "sqs:GetQueueAttributes"],
        "Resource": [dead_arn],
    });
    policy(format!("consumer {name}"), &[read, dead_letter])
}

fn policy(party: String, statements: &[Value]) -> Policy {
    Policy { party, document: json!({ "Version": VERSION, "Statement": statements }) }
}

/// For the queue itself: this topic may send to it, and nobody else.
pub(super) fn queue(queue_arn: &str, topic_arn: &str) -> Value {
    json!({
        "Version": VERSION,
        "Statement": [{
            "Sid": "TopicSends",
            "Effect": "Allow",
            "Principal": { "Service": "sns.amazonaws.com" },
            "Action": "sqs:SendMessage",
            "Resource": queue_arn,
            "Condition": { "ArnEquals": { "aws:SourceArn": topic_arn } },
        }],
    })
}
