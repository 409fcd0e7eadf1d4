//! What an answer means for the event. Pure: no I/O, and no clock but the one passed in.
//!
//! | answer | means |
//! |---|---|
//! | 2xx | accepted; its body does not matter |
//! | 413 | refused: nothing this large |
//! | 429 | again, when the receiver says; it is overrun |
//! | 3xx, 401, 403, 404, 405, 407, 410, 415 | again, for as long as it takes: secret, url or route are for a person to mend |
//! | any other 4xx | again, a bounded number of times: the receiver may have something against this event |
//! | 5xx, no answer | again, unknown: it may have been taken |
//! | not sent | again; it was surely not taken |

use std::time::Duration;

use chrono::{DateTime, Utc};
use symphony::lanes::events::bus::Publication;

use crate::buses::{FailureKind, again, refused};
use crate::http_client::{Failure, Reply, retry_after};

pub(super) fn read(reply: &Reply, now: DateTime<Utc>) -> Publication {
    let status = reply.status;
    let says = |meaning: &str| format!("the receiver answered HTTP {status}: {meaning}");
    let later = |code: &str, meaning: &str, kind| {
        not_before(again(code, says(meaning), kind), retry_after(&reply.headers, now))
    };
    let mendable =
        |code: &str, meaning: &str| again(code, says(meaning), FailureKind::NotTakenUntilMended);
    match status {
        200..=299 => Publication::Accepted { reference: format!("http:{status}") },
        410 => mendable(
            "GONE",
            "it wants no more events; remove the route or change the endpoint's url",
        ),
        413 => refused("OVERSIZE", says("the event is too large for it")),
        429 => later("THROTTLED", "too many at once", FailureKind::NotTakenUnwell),
        500.. => later("RECEIVER_FAILED", "it may have taken the event", FailureKind::Unknown),
        300..=399 => mendable("REDIRECTED", "redirects are not followed; put the final url there"),
        401 | 403 | 407 => {
            mendable("NOT_AUTHORIZED", "it does not believe us; compare the secret on both sides")
        }
        404 | 405 => {
            mendable("NO_SUCH_TOPIC", "nobody takes events there; check the endpoint's url")
        }
        415 => {
            mendable("WRONG_ENVELOPE", "it takes another content type; check the bus's envelope")
        }
        _ => again("REJECTED", says("look into the receiver's log"), FailureKind::NotTaken),
    }
}

pub(super) fn failed(failure: Failure) -> Publication {
    match failure {
        // That an address may not be called is for our settings to change, not for the bus.
        Failure::NotSent { error_code: code @ "ADDRESS_REFUSED", message } => {
            again(code, message, FailureKind::NotTakenUntilMended)
        }
        Failure::NotSent { error_code, message } => {
            again(error_code, message, FailureKind::NotTakenUnwell)
        }
        Failure::Lost { error_code, message } => again(error_code, message, FailureKind::Unknown),
    }
}

fn not_before(publication: Publication, asked_for: Option<Duration>) -> Publication {
    match publication {
        Publication::Again { trouble, unknown, cause, retry_after: _ } => {
            Publication::Again { trouble, unknown, cause, retry_after: asked_for }
        }
        settled => settled,
    }
}
