//! The ids of a trace, and `traceparent`.

use std::fmt;

use uuid::Uuid;

/// Which trace. Never all zeros, which would mean none.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// Which span of a trace. Never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

impl TraceId {
    /// The trace that an item without a `traceparent` has: whoever knows the item's id finds it.
    pub fn of_item(id: Uuid) -> Self {
        let bytes = id.into_bytes();
        Self(if bytes == [0; 16] { [1; 16] } else { bytes })
    }

    /// The trace that a row is of.
    pub fn of(traceparent: Option<&str>, id: Uuid) -> Self {
        let named = traceparent.and_then(TraceParent::parse);
        named.map_or_else(|| Self::of_item(id), |parent| parent.trace_id)
    }

    /// As bytes, the first one first.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl SpanId {
    /// Of these bytes.
    #[cfg(feature = "worker")]
    pub(super) fn new(bytes: [u8; 8]) -> Self {
        Self(if bytes == [0; 8] { [1; 8] } else { bytes })
    }

    /// As bytes, the first one first.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0
    }
}

/// Where in a trace something was caused, as the header `traceparent` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace_id: TraceId,
    /// The span that caused it.
    pub span_id: SpanId,
    /// Whoever began the trace has it collected.
    pub sampled: bool,
}

impl TraceParent {
    /// What a text says; `None` if it says nothing that can be used. Of versions to come the part that is known.
    pub fn parse(text: &str) -> Option<Self> {
        let version = text.get(..2)?;
        let known = text.get(..55)?;
        let rest = text.get(55..)?;
        let fits = match version {
            "00" => rest.is_empty(),
            "ff" => false,
            _ => rest.is_empty() || rest.starts_with('-'),
        };
        let mut parts = known.split('-');
        let (version, trace_id, span_id, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if !fits || parts.next().is_some() {
            return None;
        }
        let [_] = bytes::<1>(version)?;
        let [flags] = bytes::<1>(flags)?;
        let trace_id = bytes::<16>(trace_id).filter(|bytes| *bytes != [0; 16]).map(TraceId)?;
        let span_id = bytes::<8>(span_id).filter(|bytes| *bytes != [0; 8]).map(SpanId)?;
        Some(Self { trace_id, span_id, sampled: flags & 1 == 1 })
    }
}

/// Lowercase hexadecimal, as the standard has it.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != 2 * N || !text.bytes().all(is_hex) {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

fn hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(f, &self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(f, &self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(f, &self.0)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(f, &self.0)
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const TEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_read_and_written_the_same() {
        let parent = TraceParent::parse(TEXT).unwrap();
        assert_eq!(parent.to_string(), TEXT);
        assert_eq!(parent.trace_id.to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert!(parent.sampled);
        assert!(!TraceParent::parse(&TEXT.replace("-01", "-00")).unwrap().sampled);
        // Other flags are not ours to pass on.
        assert_eq!(TraceParent::parse(&TEXT.replace("-01", "-03")).unwrap().to_string(), TEXT);
    }

    #[test]
    fn of_a_version_to_come_the_known_part_is_used() {
        let parent = TraceParent::parse(&TEXT.replacen("00", "cc", 1)).unwrap();
        assert_eq!(parent.to_string(), TEXT);
        let longer = format!("{}-what-comes", TEXT.replacen("00", "cc", 1));
        assert_eq!(TraceParent::parse(&longer).unwrap().to_string(), TEXT);
    }

    #[test]
    fn what_is_no_traceparent_names_no_trace() {
        for text in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319cb-7ad6b7169203331-01",
            "0x-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
            "00-0af7651916cd43dd8448eb211c8031é-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceParent::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_item_without_one_has_a_trace_of_its_own() {
        let id = Uuid::parse_str("019a8b1c-0c51-7d0a-8f0e-5d3c2b7a9e10").unwrap();
        let own = "019a8b1c0c517d0a8f0e5d3c2b7a9e10";
        assert_eq!(TraceId::of(None, id).to_string(), own);
        assert_eq!(TraceId::of(Some("not one"), id).to_string(), own);
        assert_ne!(TraceId::of(Some(TEXT), id).to_string(), own);
        assert_ne!(TraceId::of_item(Uuid::nil()).to_bytes(), [0; 16]);
    }
}
