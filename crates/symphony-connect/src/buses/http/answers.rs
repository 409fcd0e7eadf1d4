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

use std::time::Duration;

use chrono::{DateTime, Utc};
use symphony::lanes::events::bus::Publication;

use crate::buses::{Fate, again, refused};
use crate::http_client::{Failure, Reply, retry_after};

pub(super) fn read(reply: &Reply, now: DateTime<Utc>) -> Publication {
    let status = reply.status;
    let says = |meaning: &str| format!("the receiver answered HTTP {status}: {meaning}");
    let later = |code: &str, meaning: &str, fate| {
        not_before(again(code, says(meaning), fate), retry_after(&reply.headers, now))
    };
    let not_taken = |code: &str, meaning: &str| again(code, says(meaning), Fate::NotTaken);
    match status {
        200..=299 => Publication::Accepted { reference: format!("http:{status}") },
        410 => refused(
            "GONE",
            says("it wants no more events; remove the route or change the endpoint's url"),
        ),
        413 => refused("OVERSIZE", says("the event is too large for it")),
        429 => later("THROTTLED", "too many at once", Fate::NotTakenBusUnwell),
        500.. => later("RECEIVER_FAILED", "it may have taken the event", Fate::Unknown),
        300..=399 => not_taken("REDIRECTED", "redirects are not followed; put the final url there"),
        401 | 403 => {
            not_taken("REJECTED", "it does not believe us; compare the secret on both sides")
        }
        _ => not_taken("REJECTED", "check the endpoint's url and the receiver"),
    }
}

pub(super) fn failed(failure: Failure) -> Publication {
    match failure {
        // That an address may not be called is for our settings to change, not for the bus.
        Failure::NotSent { error_code: code @ "ADDRESS_REFUSED", message } => {
            again(code, message, Fate::NotTaken)
        }
        Failure::NotSent { error_code, message } => {
            again(error_code, message, Fate::NotTakenBusUnwell)
        }
        Failure::Lost { error_code, message } => again(error_code, message, Fate::Unknown),
    }
}

fn not_before(publication: Publication, asked_for: Option<Duration>) -> Publication {
    match publication {
        Publication::Again { trouble, unknown, bus_unwell, retry_after: _ } => {
            Publication::Again { trouble, unknown, bus_unwell, retry_after: asked_for }
        }
        settled => settled,
    }
}
