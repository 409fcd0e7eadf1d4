//! Asking a rail, and answers that no rail gave.

use super::decide::{self, Then};
use super::rail::{Answer, Inquiry, InquiryTerms, Payment, Rail, Verdict};
use crate::domain::{AttemptState, Outcome};
use crate::engine::Tally;
use crate::money::Defect;

/// What may have been sent to an endpoint that the rail's name no longer stands for is asked about there, and never sent
/// to another one by itself.
pub(super) async fn settle_elsewhere(
    earlier: Option<&dyn Rail>,
    payment: &Payment,
) -> (Answer, Then) {
    let reason = match earlier {
        None => {
            "it may have been sent to an endpoint that is no longer configured: add it as a `previous` section of its \
             rail, or find out there"
        }
        Some(earlier) if earlier.terms().inquiry == InquiryTerms::Impossible => {
            "it may have been sent to an earlier endpoint, which cannot be asked"
        }
        Some(earlier) => match decide::known_elsewhere(inquire(earlier, payment).await) {
            Some(answer) => return (answer, Then::Settle),
            None => {
                "the earlier endpoint it may have been sent to does not know it; resolve it as retry to send it to the \
                 present one"
            }
        },
    };
    (cannot_tell(reason), Then::Park)
}

pub(super) async fn inquire(rail: &dyn Rail, payment: &Payment) -> Inquiry {
    let terms = rail.terms();
    match tokio::time::timeout(terms.inquiry_timeout, rail.inquire(payment)).await {
        Ok(inquiry) => inquiry,
        Err(_) => Inquiry::Unclear(Answer::trouble(
            Verdict::Unknown,
            "INQUIRY_TIMEOUT",
            format!("no answer within {} ms", terms.inquiry_timeout.as_millis()),
        )),
    }
}

/// What cannot be sent as it is. FAILED means that the money did not move: only what was never sent may be.
pub(super) fn invalid(defect: &Defect, maybe_sent: bool) -> (Answer, Then) {
    let (verdict, then) =
        if maybe_sent { (Verdict::Unknown, Then::Park) } else { (Verdict::Refused, Then::Settle) };
    let answer = Answer {
        error_code: Some(defect.code.to_owned()),
        message: Some(defect.to_string()),
        ..Answer::new(verdict)
    };
    (answer, then)
}

pub(super) fn cannot_tell(reason: &str) -> Answer {
    Answer {
        error_code: Some("CANNOT_BE_SETTLED".to_owned()),
        message: Some(reason.to_owned()),
        ..Answer::new(Verdict::Unknown)
    }
}

pub(super) fn tally(outcome: Outcome, state: AttemptState, parked: bool) -> Tally {
    match state {
        _ if parked => Tally::Parked,
        AttemptState::Dispatched => Tally::Dispatched,
        AttemptState::Failed => Tally::Failed,
        AttemptState::Retryable | AttemptState::ZombieRequeue | AttemptState::Dispatching => {
            if outcome == Outcome::Unknown {
                Tally::Unknown
            } else {
                Tally::Retryable
            }
        }
    }
}
