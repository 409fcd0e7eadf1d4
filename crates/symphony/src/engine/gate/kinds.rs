//! The closed lists metrics are labelled with: what a destination is, how a call was answered, what was wrong with it.

/// What a destination is called in logs and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DestinationKind {
    /// Moves money.
    Rail,
    /// Carries events.
    Bus,
    /// Runs scripts.
    Executor,
}

impl DestinationKind {
    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rail => "rail",
            Self::Bus => "bus",
            Self::Executor => "executor",
        }
    }
}

/// Why a destination itself was in trouble, in few words: a label of a metric, so there are no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TroubleKind {
    /// No connection, and nothing was sent.
    Unreachable,
    /// No answer in time.
    Timeout,
    /// The connection was lost after sending.
    ConnectionLost,
    /// An answer nobody can read.
    BadResponse,
    /// It says that it is busy, or that it fails.
    Busy,
    /// Anything else.
    Other,
}

impl TroubleKind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Unreachable,
        Self::Timeout,
        Self::ConnectionLost,
        Self::BadResponse,
        Self::Busy,
        Self::Other,
    ];

    /// As metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::ConnectionLost => "connection_lost",
            Self::BadResponse => "bad_response",
            Self::Busy => "busy",
            Self::Other => "other",
        }
    }

    /// What an error code stands for.
    pub fn of(error_code: &str) -> Self {
        match error_code {
            "DNS_FAILED" | "CONNECT_FAILED" | "CONNECT_TIMEOUT" | "TLS_FAILED" | "NOT_SENT"
            | "ADDRESS_REFUSED" | "UNREACHABLE" | "UNSENT" => Self::Unreachable,
            "TIMEOUT" | "INQUIRY_TIMEOUT" => Self::Timeout,
            "CONNECTION_LOST" => Self::ConnectionLost,
            "BAD_RESPONSE" | "UNCLEAR_CODE" | "BAD_ANSWER" | "NO_ANSWER" => Self::BadResponse,
            "RAIL_RETRYABLE" | "THROTTLED" | "BUS_ERROR" => Self::Busy,
            _ => Self::Other,
        }
    }
}

/// How a call was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answered {
    /// Taken.
    Accepted,
    /// Refused for good.
    Refused,
    /// Surely not taken; again later.
    Retryable,
    /// Nobody knows.
    Unknown,
}

impl Answered {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Accepted, Self::Refused, Self::Retryable, Self::Unknown];

    /// As metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Refused => "refused",
            Self::Retryable => "retryable",
            Self::Unknown => "unknown",
        }
    }
}
