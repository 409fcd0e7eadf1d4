use chrono::DateTime;
use symphony::FieldError;
use symphony::event::envelope::{Envelope, Format, SOURCE_BYTES_MAX};
use symphony::event::rules::EVENT_BYTES_MAX;
use uuid::Uuid;

use super::*;

fn message(bytes: usize) -> Message {
    let body = "x".repeat(bytes);
    let headers = [("type", "events.t"), ("tenantId", "acme"), ("position", "1")];
    Message {
        event_id: Uuid::nil(),
        position: 1,
        key: "k".to_owned(),
        event_type: "events.t".to_owned(),
        created_at: DateTime::UNIX_EPOCH,
        body,
        content_type: "application/json",
        headers: headers.map(|(name, value)| (name, value.to_owned())).into(),
    }
}

fn arns(account: Option<&str>) -> Result<Arns, FieldError> {
    let settings = AwsSettings { region: Some("cn-north-1".to_owned()), ..AwsSettings::default() };
    Arns::new(&Aws::new(&settings, |_| None).unwrap(), account)
}

#[test]
fn a_call_holds_ten_entries_and_256_kib_at_most() {
    let sizes = [100_000, 100_000, 100_000, 262_060, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10];
    let messages: Vec<_> = sizes.map(message).into();
    let entries: Vec<_> = messages.iter().map(Entry::new).collect();
    let calls = in_calls(&entries);
    assert_eq!(calls.iter().map(|call| call.len()).collect::<Vec<_>>(), [2, 1, 1, 10, 1]);
    assert!(
        calls
            .iter()
            .all(|call| call.iter().map(|entry| entry.size).sum::<usize>() <= MESSAGE_BYTES_MAX)
    );
}

#[test]
fn the_size_of_an_entry_counts_its_attributes() {
    let of_attributes =
        "typeString".len() + "events.t".len() + "tenantIdString".len() + "acme".len();
    let of_position = "positionNumber".len() + "1".len();
    assert_eq!(Entry::new(&message(100)).size, 100 + of_attributes + of_position);
}

#[test]
fn each_entry_goes_out_in_the_group_of_its_key_and_under_the_id_of_its_event() {
    for key in ["tr_1", "tr_2", "two words"] {
        let event_id = Uuid::new_v4();
        let message = Message { key: key.to_owned(), event_id, ..message(10) };
        let entry = Entry::new(&message).build(3).unwrap();
        assert_eq!(entry.message_group_id(), Some(group_id(key).as_str()));
        assert_eq!(entry.message_deduplication_id(), Some(event_id.to_string().as_str()));
    }
    assert_ne!(group_id("tr_1"), group_id("tr_2"));
}

#[test]
fn a_key_that_is_no_group_id_is_hashed_and_always_to_the_same() {
    assert_eq!(group_id("tr_123"), "tr_123");
    assert_eq!(group_id(&"x".repeat(128)), "x".repeat(128));
    for key in ["", "two words", "ключ", "tab\t", &"x".repeat(129)] {
        let group = group_id(key);
        assert!(group.starts_with("sha256-") && group.len() == 71, "{group}");
        assert_eq!(group, group_id(key));
    }
}

#[test]
fn a_topic_is_an_arn_or_a_name_in_the_account() {
    let arn = "arn:aws:sns:eu-central-1:210987654321:x.fifo";
    assert_eq!(arns(None).unwrap().topic(arn).unwrap(), arn);
    let named = arns(Some("123456789012")).unwrap().topic("transfers.fifo").unwrap();
    assert_eq!(named, "arn:aws-cn:sns:cn-north-1:123456789012:transfers.fifo");
    assert!(arns(None).unwrap().topic("transfers.fifo").is_err());
    assert!(arns(Some("123456789012")).unwrap().topic("transfers").unwrap_err().contains(".fifo"));
    assert!(arns(Some("12345")).is_err());
}

/// The largest event the outbox accepts, with the longest of everything beside the payload.
#[test]
fn whatever_the_outbox_accepts_fits_into_sns_in_every_envelope() {
    for name in ["%".repeat(255), "😀".repeat(255), "é".repeat(255), "\u{1}".repeat(255)] {
        let text = |filling: usize| {
            let quoted = serde_json::Value::from(name.as_str());
            format!(
                r#"{{"key": {{{quoted}: {quoted}}}, "payload": {{"x": "{}"}}, "envelope": {{"v": 1, "type": "{}.t",
                "eventId": "01890a5d-ac96-774b-bcce-b302099a8057", "tenantId": {quoted},
                "occurredAt": "2026-11-02T09:30:00.123456789+02:00",
                "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}}}"#,
                "x".repeat(filling),
                "t".repeat(253)
            )
        };
        let event = text(EVENT_BYTES_MAX - text(0).len());
        assert_eq!(event.len(), EVENT_BYTES_MAX);
        for envelope in Envelope::ALL {
            let source = "s".repeat(SOURCE_BYTES_MAX);
            let format = Format { envelope, binding: Binding::Sns, source };
            let message = Message::new(&format, &event, i64::MAX, DateTime::UNIX_EPOCH).unwrap();
            let size = Entry::new(&message).size;
            assert!(size <= MESSAGE_BYTES_MAX, "{envelope:?}: {size} bytes");
        }
    }
}
