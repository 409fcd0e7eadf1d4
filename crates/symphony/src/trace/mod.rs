//! Traces: what a lane tells of an item's way, without knowing who collects it.
//!
//! - `context.rs`: the ids, and the `traceparent` that carries them (W3C Trace Context).
//! - `item.rs`: one item's place in its trace, and the spans it has there.
//!
//! An item's trace is the one its row names, else one of its own. Every id is derived from the row and from the lease, so
//! that workers that never speak to each other tell of one trace, and no state has to be kept. Nothing is computed and
//! nothing allocated where nobody collects.

mod context;
#[cfg(feature = "worker")]
mod item;

pub use context::{SpanId, TraceId, TraceParent};
#[cfg(feature = "worker")]
pub(crate) use item::is_due_since_written;
#[cfg(feature = "worker")]
pub use item::{Item, ItemTrace, Span, SpanSink, Step, Traces};
