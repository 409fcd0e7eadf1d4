//! What an answer means for the event. Pure: no I/O, and no clock but the one passed in.
//!
//! | answer | means |
//! |---|---|
//! | 2xx | accepted; its body does not matter |
//! | 410, 413 | refused: the receiver wants no more, or nothing this large |
//! | 429 | again, when the receiver says; it is overrun |
//! | any other 4xx, 3xx | again: the receiver may be set up wrongly; nothing is followed |
//! | 5xx, no answer | again, unknown: it may have been taken |
//! | not sent | again; it was surely not taken |

use chrono::{DateTime, Utc};
use symphony::lanes::events::bus::{Publication, Trouble};

use crate::http_client::{Failure, Reply, retry_after};

pub(super) fn read(reply: &Reply, now: DateTime<Utc>) -> Publication {
    let status = reply.status;
    let trouble = |code: &str, meaning: &str| {
        Trouble::new(code, format!("the receiver answered HTTP {status}: {meaning}"))
    };
    match status {
        200..=299 => Publication::Accepted { reference: format!("http:{status}") },
        410 => Publication::Refused(trouble(
            "GONE",
            "it wants no more events; remove the route or change the endpoint's url",
        )),
        413 => Publication::Refused(trouble("OVERSIZE", "the event is too large for it")),
        429 => Publication::Again {
            trouble: trouble("THROTTLED", "too many at once"),
            unknown: false,
            bus_unwell: true,
            retry_after: retry_after(&reply.headers, now),
        },
        500.. => Publication::Again {
            trouble: trouble("RECEIVER_FAILED", "it may have taken the event"),
            unknown: true,
            bus_unwell: true,
            retry_after: retry_after(&reply.headers, now),
        },
        300..=399 => {
            again(trouble("REDIRECTED", "redirects are not followed; put the final url there"))
        }
        401 | 403 => {
            again(trouble("REJECTED", "it does not believe us; compare the secret on both sides"))
        }
        _ => again(trouble("REJECTED", "check the endpoint's url and the receiver")),
    }
}

pub(super) fn failed(failure: Failure) -> Publication {
    match failure {
        Failure::NotSent { error_code, message } => Publication::Again {
            // An address that may not be called is our settings' fault, not the bus's.
            bus_unwell: error_code != "ADDRESS_REFUSED",
            trouble: Trouble::new(error_code, message),
            unknown: false,
            retry_after: None,
        },
        Failure::Lost { error_code, message } => Publication::Again {
            trouble: Trouble::new(error_code, message),
            unknown: true,
            bus_unwell: true,
            retry_after: None,
        },
    }
}

/// Not taken, and only this endpoint's affair.
pub(super) fn again(trouble: Trouble) -> Publication {
    Publication::Again { trouble, unknown: false, bus_unwell: false, retry_after: None }
}
