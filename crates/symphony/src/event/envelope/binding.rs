//! How a bus carries what stands beside the body.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// Which names and which characters a bus's headers have: the protocol bindings of CloudEvents, and what SNS allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Binding {
    /// Headers of HTTP: visible ASCII, anything else percent-encoded.
    Http,
    /// Headers of NATS: the same where they are not Symphony's own.
    #[default]
    Nats,
    /// Message attributes of SNS: any text without control characters, and at most ten of them.
    Sns,
    /// Headers of a Kafka record: any bytes.
    Kafka,
}

/// What the HTTP binding of CloudEvents has encoded, besides what is not ASCII.
const NOT_VISIBLE: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');
const CONTROL: &AsciiSet = &CONTROLS.add(b'%');

impl Binding {
    /// A value as its header carries it.
    pub(super) fn encode(self, value: &str) -> String {
        match self {
            Self::Http | Self::Nats => utf8_percent_encode(value, NOT_VISIBLE).to_string(),
            // Other characters may stay: encoded they would count three times towards the largest message.
            Self::Sns => {
                let encode = |c: char| {
                    let mut bytes = [0; 4];
                    let text: &str = c.encode_utf8(&mut bytes);
                    if c.is_ascii() {
                        utf8_percent_encode(text, CONTROL).to_string()
                    } else {
                        text.to_owned()
                    }
                };
                value.chars().map(encode).collect()
            }
            Self::Kafka => value.to_owned(),
        }
    }

    /// What a header's value stands for. What is not encoded well is taken as it is.
    pub(super) fn decode(self, value: &str) -> Cow<'_, str> {
        match self {
            Self::Kafka => Cow::Borrowed(value),
            Self::Http | Self::Nats | Self::Sns => {
                percent_decode_str(value).decode_utf8().unwrap_or(Cow::Borrowed(value))
            }
        }
    }

    /// One of Symphony's own headers, which brokers have unencoded: a value that is not one line is left to the body.
    pub(super) fn own(self, value: &str) -> Option<String> {
        match self {
            Self::Http => Some(self.encode(value)),
            Self::Kafka => Some(value.to_owned()),
            Self::Nats | Self::Sns => {
                (!value.chars().any(char::is_control)).then(|| value.to_owned())
            }
        }
    }
}
