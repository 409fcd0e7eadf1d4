//! What the API answers, for the OpenAPI document: the library's types member by member, because the library knows nothing of
//! OpenAPI. A test compares real answers of every address with what stands here.
#![expect(
    dead_code,
    clippy::struct_field_names,
    reason = "described, never built: handlers answer with the library's types, whose names these are"
)]

mod apps;
mod items;
mod operate;

pub(super) use apps::{App, AppVersion, Execution, PushAnswer, TreeAnswer};
pub(super) use items::{EnqueuedEvent, EnqueuedPayment, EventLife, PaymentLife};
pub(super) use operate::{
    ActArguments, ApprovalAnswer, ApprovalRequest, AuditLine, Destination, Incident, Lane, Lease,
    Letter, NumberedPayment, Participant, Pause, Rail, RequestEnd, SequenceProof, Topic,
    WorkerLine,
};
