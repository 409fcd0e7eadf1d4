//! What a rail is: the contract between the payment lane and whatever moves the money.
//!
//! A rail answers with what it *knows*. Accepted, refused and retryable are claims about the world; whatever is
//! not certain is unknown, and the lane inquires, waits or parks (see [`super::decide`]).

use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::domain::{OutboxId, RailKey};
use crate::money::{Amount, Defect};

/// Moves money, or says that it did not.
///
/// The lane checks the amount before it calls [`validate`](Self::validate), calls that before every dispatch,
/// puts a hard time limit on every call, and treats a panic as an unknown outcome.
///
/// ```
/// # use symphony::lanes::payments::rail::{Answer, Inquiry, Payment, Rail, Terms};
/// # use symphony::money::Defect;
/// /// Takes every payment, and forgets it.
/// struct Printer(Terms);
///
/// #[async_trait::async_trait]
/// impl Rail for Printer {
///     fn terms(&self) -> &Terms {
///         &self.0
///     }
///
///     fn validate(&self, _payment: &Payment) -> Result<(), Defect> {
///         Ok(())
///     }
///
///     async fn dispatch(&self, payment: &Payment) -> Answer {
///         println!("{:?} under the key {}", payment.amount, payment.key);
///         Answer::accepted(payment.key.to_string())
///     }
///
///     async fn inquire(&self, _payment: &Payment) -> Inquiry {
///         Inquiry::NotFound
///     }
/// }
/// ```
#[async_trait]
pub trait Rail: Send + Sync + 'static {
    /// What the lane must know to treat this rail safely.
    fn terms(&self) -> &Terms;

    /// Check what only the rail can: the destination and its own fields. No I/O; never repeats the payload.
    fn validate(&self, payment: &Payment) -> Result<(), Defect>;

    /// Send it, under [`Payment::key`]. Once the request may have left, anything but a clear answer is unknown.
    async fn dispatch(&self, payment: &Payment) -> Answer;

    /// The same, asking `check` when everything is ready and the first byte is about to leave: connecting may have taken
    /// its time, or the host was suspended meanwhile. Refused, nothing is sent, and whatever is answered is not read.
    async fn dispatch_when(&self, payment: &Payment, check: &dyn SendCheck) -> Answer {
        if check.may_send().await {
            self.dispatch(payment).await
        } else {
            Answer::new(Verdict::Retryable)
        }
    }

    /// Ask what became of [`Payment::key`]. Only called if [`Terms::inquiry`] says that one can ask.
    async fn inquire(&self, payment: &Payment) -> Inquiry;
}

/// Who is paid through and asked: kind, address, inquiry address and account.
///
/// A rail's name may come to stand for another endpoint. What may have been sent to one is asked about there, and
/// never sent to another by itself: two banks do not know each other's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    fingerprint: String,
    description: String,
}

impl Endpoint {
    /// Two endpoints are the same if all four are. None of them may hold a secret.
    pub fn new(kind: &str, address: &str, inquiry_address: &str, account: &str) -> Self {
        let mut hasher = Sha256::new();
        for part in [kind, address, inquiry_address, account] {
            hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hasher.update(part.as_bytes());
        }
        let digest = hasher.finalize();
        let mut fingerprint = String::new();
        for byte in digest.iter().take(8) {
            fingerprint.push_str(&format!("{byte:02x}"));
        }
        let mut description = format!("{kind} {address}");
        for (name, part) in [("inquiry", inquiry_address), ("account", account)] {
            if !part.is_empty() {
                description.push_str(&format!(", {name} {part}"));
            }
        }
        description = description.chars().take(Self::DESCRIPTION_CHARACTERS_MAX).collect();
        Self { fingerprint, description }
    }

    /// The database takes no longer one.
    const DESCRIPTION_CHARACTERS_MAX: usize = 2_000;

    /// Its short name in the ledger.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// In words.
    pub fn description(&self) -> &str {
        &self.description
    }
}

/// Says whether the first byte may leave.
#[async_trait]
pub trait SendCheck: Send + Sync {
    /// Ask right before every try to send; do not wait for anything after a yes.
    async fn may_send(&self) -> bool;
}

/// What a rail promises, and how long calls may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// What the rail's name stands for at present.
    pub endpoint: Endpoint,
    /// The hard limit on one dispatch.
    pub timeout: Duration,
    /// The hard limit on one inquiry.
    pub inquiry_timeout: Duration,
    /// How long the rail remembers a key after first seeing it: sending again meanwhile pays once. `None`: it
    /// does not deduplicate.
    pub key_lifetime: Option<Duration>,
    /// Whether and how it can be asked.
    pub inquiry: InquiryTerms,
}

/// Whether a rail can be asked, and what "not found" is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InquiryTerms {
    /// It cannot be asked.
    Impossible,
    /// It can be asked, but "not found" proves nothing.
    NotFoundProvesNothing,
    /// "Not found" proves that the money did not move, once this long has passed since the last send.
    NotFoundIsFinalAfter(Duration),
}

/// One payment, as a rail sees it.
#[derive(Debug, Clone)]
pub struct Payment {
    /// The rail's idempotency key: the same on every try, and after every loss of the row.
    pub key: RailKey,
    /// The item, for logs: not a key, it is another one if the row is lost and asked for again.
    pub outbox_id: OutboxId,
    /// The business instruction.
    pub instruction_id: String,
    /// Whose stream.
    pub participant_id: String,
    /// Its number there.
    pub sequence_id: i64,
    /// The rail it is for.
    pub rail_type: String,
    /// The checked amount.
    pub amount: Amount,
    /// The whole payload, as text: a JSON object.
    pub payload: Box<RawValue>,
    /// W3C trace context, to be passed on.
    pub traceparent: Option<String>,
}

/// What is known of a payment's fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The rail has taken it: it executed or surely will.
    Accepted,
    /// The rail refused it for good: the money did not move and will not.
    Refused,
    /// Surely not executed; sending again is safe.
    Retryable,
    /// Nobody knows.
    Unknown,
}

/// A rail's answer, with its evidence. Texts never repeat the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// What is known.
    pub verdict: Verdict,
    /// The rail's reference.
    pub reference: Option<String>,
    /// The rail's own code, such as `AC04` or `503`.
    pub code: Option<String>,
    /// Our code for what went wrong, such as `TIMEOUT`.
    pub error_code: Option<String>,
    /// In words.
    pub message: Option<String>,
    /// The rail asked to be left alone for this long. It delays the next try, and never hastens it.
    pub retry_after: Option<Duration>,
    /// The rail itself is in trouble (unreachable, timing out, 5xx): counts for the circuit breaker. A refusal
    /// of one payment is not trouble. A retryable answer in trouble says nothing of the payment: it does not spend one
    /// of its tries.
    pub trouble: bool,
}

impl Answer {
    /// An answer with nothing but its verdict.
    pub fn new(verdict: Verdict) -> Self {
        Self {
            verdict,
            reference: None,
            code: None,
            error_code: None,
            message: None,
            retry_after: None,
            trouble: false,
        }
    }

    /// Accepted, with the rail's reference.
    pub fn accepted(reference: impl Into<String>) -> Self {
        Self { reference: Some(reference.into()), ..Self::new(Verdict::Accepted) }
    }

    /// Something went wrong on the way; `verdict` says whether the request may have left.
    pub fn trouble(verdict: Verdict, error_code: &str, message: impl Into<String>) -> Self {
        Self {
            error_code: Some(error_code.to_owned()),
            message: Some(message.into()),
            trouble: true,
            ..Self::new(verdict)
        }
    }
}

/// What asking brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inquiry {
    /// The rail knows the key; the answer says what became of it (unknown while it is still being worked on).
    Found(Answer),
    /// The rail does not know the key.
    NotFound,
    /// The rail could not be asked, or answered unclearly: as unknown as before.
    Unclear(Answer),
}
