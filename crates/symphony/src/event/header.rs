//! The few fields a dispatcher needs, read from an event that was accepted already.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use super::Defect;

/// Type, tenant and trace of an accepted event, borrowed from its text.
///
/// Reading stops behind the envelope, and what stands before it is passed over without being looked at: this is called
/// for every event that is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header<'a> {
    /// Such as `events.transfers.submitted.usdc`.
    pub event_type: Cow<'a, str>,
    /// Whose it is.
    pub tenant_id: Cow<'a, str>,
    /// W3C trace context.
    pub traceparent: Option<Cow<'a, str>>,
}

impl<'a> Header<'a> {
    /// Read it. Only that these fields are there is checked: everything else was, when the event was accepted.
    pub fn read(event: &'a str) -> Result<Self, Defect> {
        let mut header = None;
        let mut reader = serde_json::Deserializer::from_str(event);
        // An error may also be the early stop: what counts is whether the envelope was read.
        let _stopped = Top { header: &mut header }.deserialize(&mut reader);
        header.ok_or_else(|| {
            Defect::new("envelope", "must have a type and a tenantId: was this event accepted?")
        })
    }
}

struct Top<'h, 'a> {
    header: &'h mut Option<Header<'a>>,
}

impl<'de> DeserializeSeed<'de> for Top<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Top<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(name)) = map.next_key()? {
            if name == "envelope" {
                *self.header = Some(map.next_value_seed(Envelope)?);
                return Err(A::Error::custom("enough"));
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

struct Envelope;

impl<'de> DeserializeSeed<'de> for Envelope {
    type Value = Header<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Header<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Envelope {
    type Value = Header<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an envelope")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header<'de>, A::Error> {
        let (mut event_type, mut tenant_id, mut traceparent) = (None, None, None);
        while let Some(Text(name)) = map.next_key()? {
            let place = match &*name {
                "type" => &mut event_type,
                "tenantId" => &mut tenant_id,
                "traceparent" => &mut traceparent,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *place = Some(map.next_value::<Text<'de>>()?.0);
        }
        Ok(Header {
            event_type: event_type.ok_or_else(|| A::Error::missing_field("type"))?,
            tenant_id: tenant_id.ok_or_else(|| A::Error::missing_field("tenantId"))?,
            traceparent,
        })
    }
}

/// Borrowed where there is no escape. (Serde's own `Cow` always copies.)
struct Text<'a>(Cow<'a, str>);

impl<'de> serde::Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowing;
        impl<'de> Visitor<'de> for Borrowing {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Borrowing)
    }
}
