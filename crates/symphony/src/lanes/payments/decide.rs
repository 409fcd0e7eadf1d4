//! What to do with a payment: pure decisions, tested as tables. Money first: whenever these are in doubt, the
//! item waits or is left to a person.

use std::time::Duration;

use super::rail::{Answer, Inquiry, InquiryTerms, Terms, Verdict};
use crate::domain::Outcome;
use crate::engine::Answered;

/// The next thing to do with a claimed item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send it: it was never executed.
    Send,
    /// Send it again under its key: it may have been executed, but the rail pays once for a key.
    Resend,
    /// Ask the rail first.
    Inquire,
    /// Write this down.
    Settle(Answer),
    /// Ask again after this long.
    Wait(Duration, &'static str),
    /// Leave it to a person.
    Park(&'static str),
}

/// What comes after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// What its verdict says.
    Settle,
    /// The rail is asked again after this long.
    Wait(Duration),
    /// Leave it to a person.
    Park,
}

/// How long the rail has known the item's key at most, and for how long at least nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ages {
    pub(crate) key_at_most: Duration,
    pub(crate) quiet_at_least: Duration,
    /// The ledger has outcomes of it.
    pub(crate) outcomes: bool,
}

/// The first step with a claimed item. `asked_again`: it was asked for after a loss of data, so that all that may have
/// been sent before went out under the same key: a rail that surely remembers it need not be asked.
pub(crate) fn first_step(must_inquire: bool, asked_again: bool, terms: &Terms, ages: Ages) -> Step {
    if !must_inquire {
        Step::Send
    } else if asked_again && !ages.outcomes && is_remembered(terms, ages) {
        Step::Resend
    } else if terms.inquiry == InquiryTerms::Impossible {
        send_again(terms, ages, false)
    } else {
        Step::Inquire
    }
}

/// The step after the rail was asked.
pub(crate) fn after_inquiry(inquiry: Inquiry, terms: &Terms, ages: Ages) -> Step {
    match inquiry {
        Inquiry::Found(answer) => match answer.verdict {
            Verdict::Accepted | Verdict::Refused | Verdict::Unknown => Step::Settle(answer),
            // The rail itself says that it was not executed and may be sent again.
            Verdict::Retryable => Step::Send,
        },
        Inquiry::NotFound => send_again(terms, ages, true),
        Inquiry::Unclear(answer) => Step::Settle(Answer { verdict: Verdict::Unknown, ..answer }),
    }
}

/// May an item be sent again that may have been sent before?
fn send_again(terms: &Terms, ages: Ages, not_found: bool) -> Step {
    let settled = matches!(terms.inquiry, InquiryTerms::NotFoundIsFinalAfter(settle)
        if not_found && ages.quiet_at_least >= settle);
    if !settled && is_remembered(terms, ages) {
        return Step::Resend;
    }
    match terms.inquiry {
        InquiryTerms::NotFoundIsFinalAfter(settle) if not_found => {
            match settle.checked_sub(ages.quiet_at_least) {
                None | Some(Duration::ZERO) => Step::Send,
                Some(left) => {
                    Step::Wait(left, "the rail does not know it yet, and may still come to")
                }
            }
        }
        InquiryTerms::NotFoundIsFinalAfter(_) | InquiryTerms::NotFoundProvesNothing => Step::Park(
            "the rail does not know it, and that proves nothing: sending again might pay twice",
        ),
        InquiryTerms::Impossible if terms.key_lifetime.is_some() => Step::Park(
            "it may have been sent, the rail may have forgotten its key by now, and it cannot be asked: sending again might \
             pay twice",
        ),
        InquiryTerms::Impossible => {
            Step::Park("it may have been sent, and the rail can neither deduplicate nor be asked")
        }
    }
}

/// The key must still be remembered when the request arrives, at the end of its time at the latest.
fn is_remembered(terms: &Terms, ages: Ages) -> bool {
    terms.key_lifetime.is_some_and(|lifetime| ages.key_at_most + terms.timeout < lifetime)
}

/// What an endpoint that is only asked, and never sent to, knows of a payment; `None` if it does not know it.
pub(crate) fn known_elsewhere(inquiry: Inquiry) -> Option<Answer> {
    match inquiry {
        Inquiry::Found(answer) => match answer.verdict {
            Verdict::Accepted | Verdict::Refused | Verdict::Unknown => Some(answer),
            // It may be sent again there, but it will not be.
            Verdict::Retryable => None,
        },
        Inquiry::NotFound => None,
        Inquiry::Unclear(answer) => Some(Answer { verdict: Verdict::Unknown, ..answer }),
    }
}

/// What comes of an item that a person only wants asked about: what the rail knows is written down, and whatever else it
/// would be is left to that person. Nothing is sent.
pub(crate) fn told_only(step: Step) -> (Answer, Then) {
    let unsettled = |message: &str| Answer {
        error_code: Some("ASKED_ONLY".to_owned()),
        message: Some(message.to_owned()),
        ..Answer::new(Verdict::Unknown)
    };
    match step {
        Step::Settle(answer) if answer.verdict == Verdict::Unknown => (answer, Then::Park),
        Step::Settle(answer) => (answer, Then::Settle),
        Step::Wait(_, reason) | Step::Park(reason) => (unsettled(reason), Then::Park),
        Step::Send => {
            let answer = unsettled("the rail says that it was not executed; nothing was sent now");
            (answer, Then::Park)
        }
        Step::Resend => (unsettled("the rail does not know it; nothing was sent now"), Then::Park),
        Step::Inquire => (unsettled("the rail was asked and must be asked again"), Then::Park),
    }
}

/// How an answer is counted.
pub(crate) fn answered(verdict: Verdict) -> Answered {
    match verdict {
        Verdict::Accepted => Answered::Accepted,
        Verdict::Refused => Answered::Refused,
        Verdict::Retryable => Answered::Retryable,
        Verdict::Unknown => Answered::Unknown,
    }
}

/// How long a [`Step::Resend`] may still begin: after that the key may be forgotten before the request arrives.
pub(crate) fn resend_within(terms: &Terms, ages: Ages) -> Option<Duration> {
    Some(terms.key_lifetime?.saturating_sub(ages.key_at_most).saturating_sub(terms.timeout))
}

/// What the answer to a [`Step::Resend`] is worth. A refusal may be of the second copy only (the balance is gone,
/// because the first was paid): where the rail can be asked, it is asked what became of the key.
pub(crate) fn after_resend(answer: Answer, terms: &Terms) -> Answer {
    if answer.verdict == Verdict::Refused && terms.inquiry != InquiryTerms::Impossible {
        Answer { verdict: Verdict::Unknown, ..answer }
    } else {
        answer
    }
}

/// What the ledger is told.
pub(crate) fn outcome(verdict: Verdict) -> Outcome {
    match verdict {
        Verdict::Accepted => Outcome::Dispatched,
        Verdict::Refused => Outcome::Failed,
        Verdict::Retryable => Outcome::Retryable,
        Verdict::Unknown => Outcome::Unknown,
    }
}

/// Whether an outcome counts towards the ceiling of tries. One that says nothing of the payment does not: the rail was
/// busy or away and surely did not take it, it could not be asked, or it was asked (`waits`) before it has settled.
pub(crate) fn spends_attempt(
    verdict: Verdict,
    trouble: bool,
    asked_only: bool,
    waits: bool,
) -> bool {
    let surely_not_taken = verdict == Verdict::Retryable || asked_only;
    !(surely_not_taken && trouble || asked_only && waits)
}

/// Whether an answer must be left to a person at once: nobody can ever find out, and sending again might pay twice.
pub(crate) fn parks_at_once(verdict: Verdict, terms: &Terms) -> bool {
    verdict == Verdict::Unknown && needs_marks(terms)
}

/// Whether sends must be marked in the database before they leave: this rail can neither deduplicate nor be asked.
pub fn needs_marks(terms: &Terms) -> bool {
    terms.key_lifetime.is_none() && terms.inquiry == InquiryTerms::Impossible
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::payments::rail::Endpoint;
    use InquiryTerms::{Impossible, NotFoundIsFinalAfter, NotFoundProvesNothing};

    fn terms(key_lifetime_seconds: Option<u64>, inquiry: InquiryTerms) -> Terms {
        Terms {
            endpoint: Endpoint::new("test", "bank", "", ""),
            timeout: Duration::from_secs(30),
            inquiry_timeout: Duration::from_secs(10),
            key_lifetime: key_lifetime_seconds.map(Duration::from_secs),
            inquiry,
        }
    }

    fn ages(key_at_most: u64, quiet_at_least: u64) -> Ages {
        Ages {
            key_at_most: Duration::from_secs(key_at_most),
            quiet_at_least: Duration::from_secs(quiet_at_least),
            outcomes: true,
        }
    }

    fn word(step: &Step) -> String {
        match step {
            Step::Send => "send".to_owned(),
            Step::Resend => "resend".to_owned(),
            Step::Inquire => "inquire".to_owned(),
            Step::Settle(answer) => format!("settle {:?}", answer.verdict).to_lowercase(),
            Step::Wait(left, _) => format!("wait {}", left.as_secs()),
            Step::Park(_) => "park".to_owned(),
        }
    }

    const SETTLE: InquiryTerms = NotFoundIsFinalAfter(Duration::from_mins(1));

    #[test]
    fn a_payment_is_sent_only_if_it_surely_was_not_or_cannot_pay_twice() {
        //  must inquire | key lifetime | inquiry           | key age | first step
        for (must_inquire, lifetime, inquiry, key_age, step) in [
            (false, None, Impossible, 0, "send"),
            (false, None, SETTLE, 0, "send"),
            (false, Some(86_400), NotFoundProvesNothing, 99_999, "send"),
            (true, None, Impossible, 0, "park"),
            (true, Some(86_400), Impossible, 100, "resend"),
            (true, Some(86_400), Impossible, 86_369, "resend"),
            (true, Some(86_400), Impossible, 86_370, "park"),
            (true, Some(86_400), Impossible, 99_999, "park"),
            (true, None, SETTLE, 0, "inquire"),
            (true, Some(86_400), NotFoundProvesNothing, 0, "inquire"),
            (true, Some(86_400), SETTLE, 99_999, "inquire"),
        ] {
            let terms = terms(lifetime, inquiry);
            assert_eq!(
                word(&first_step(must_inquire, false, &terms, ages(key_age, 0))),
                step,
                "{terms:?} key {key_age}"
            );
        }
    }

    #[test]
    fn a_key_that_may_be_forgotten_is_named_as_the_reason_and_not_a_rail_that_has_none() {
        let why = |lifetime, key_age| match first_step(
            true,
            false,
            &terms(lifetime, Impossible),
            ages(key_age, 0),
        ) {
            Step::Park(why) => why,
            _ => "it was not parked",
        };
        assert!(why(None, 0).contains("can neither deduplicate nor be asked"));
        let forgotten = why(Some(86_400), 99_999);
        assert!(
            forgotten.contains("may have forgotten its key") && !forgotten.contains("neither"),
            "{forgotten}"
        );
    }

    #[test]
    fn after_not_found_it_is_sent_again_under_a_young_key_or_once_not_found_is_final() {
        //  key lifetime | inquiry | key age | quiet for | then
        for (lifetime, inquiry, key_age, quiet, step) in [
            (Some(3_600), NotFoundProvesNothing, 10, 10, "resend"),
            (Some(3_600), NotFoundProvesNothing, 3_570, 10, "park"),
            (Some(3_600), NotFoundProvesNothing, 9_999, 9_999, "park"),
            (None, NotFoundProvesNothing, 10, 9_999, "park"),
            (None, SETTLE, 10, 0, "wait 60"),
            (None, SETTLE, 10, 59, "wait 1"),
            (None, SETTLE, 10, 60, "send"),
            (None, SETTLE, 9_999, 9_999, "send"),
            (Some(3_600), SETTLE, 10, 0, "resend"),
            (Some(3_600), SETTLE, 10, 60, "send"),
            (Some(3_600), SETTLE, 9_999, 0, "wait 60"),
            (Some(3_600), SETTLE, 9_999, 61, "send"),
        ] {
            let terms = terms(lifetime, inquiry);
            assert_eq!(
                word(&after_inquiry(Inquiry::NotFound, &terms, ages(key_age, quiet))),
                step,
                "{terms:?} key {key_age} quiet {quiet}"
            );
        }
    }

    #[test]
    fn what_is_asked_for_again_after_a_loss_is_sent_unasked_only_under_a_key_that_is_surely_remembered()
     {
        //  key lifetime | outcomes | key age | first step
        for (lifetime, outcomes, key_age, step) in [
            (Some(3_600), false, 10, "resend"),
            (Some(3_600), true, 10, "inquire"),
            (Some(3_600), false, 3_570, "inquire"),
            (None, false, 10, "inquire"),
        ] {
            let terms = terms(lifetime, NotFoundProvesNothing);
            let ages = Ages { outcomes, ..ages(key_age, 0) };
            assert_eq!(word(&first_step(true, true, &terms, ages)), step, "{terms:?} {ages:?}");
        }
    }

    #[test]
    fn what_the_rail_knows_is_written_down_and_what_is_unclear_stays_unknown() {
        let terms = terms(None, NotFoundProvesNothing);
        for (inquiry, step) in [
            (Inquiry::Found(Answer::accepted("R1")), "settle accepted"),
            (Inquiry::Found(Answer::new(Verdict::Refused)), "settle refused"),
            (Inquiry::Found(Answer::new(Verdict::Unknown)), "settle unknown"),
            (Inquiry::Found(Answer::new(Verdict::Retryable)), "send"),
            (Inquiry::Unclear(Answer::new(Verdict::Unknown)), "settle unknown"),
            // Whatever a rail says of an inquiry that failed: it is not an answer about the money.
            (Inquiry::Unclear(Answer::new(Verdict::Refused)), "settle unknown"),
            (Inquiry::Unclear(Answer::accepted("R2")), "settle unknown"),
        ] {
            assert_eq!(
                word(&after_inquiry(inquiry.clone(), &terms, ages(0, 0))),
                step,
                "{inquiry:?}"
            );
        }
    }

    #[test]
    fn what_a_person_only_asked_about_is_never_sent() {
        let unknown = || Answer::new(Verdict::Unknown);
        for (step, verdict, then) in [
            (Step::Settle(Answer::accepted("R1")), Verdict::Accepted, Then::Settle),
            (Step::Settle(Answer::new(Verdict::Refused)), Verdict::Refused, Then::Settle),
            (Step::Settle(unknown()), Verdict::Unknown, Then::Park),
            (Step::Wait(Duration::from_secs(9), "early"), Verdict::Unknown, Then::Park),
            (Step::Park("no"), Verdict::Unknown, Then::Park),
            (Step::Send, Verdict::Unknown, Then::Park),
            (Step::Resend, Verdict::Unknown, Then::Park),
            (Step::Inquire, Verdict::Unknown, Then::Park),
        ] {
            let (answer, after) = told_only(step.clone());
            assert_eq!((answer.verdict, after), (verdict, then), "{step:?}");
        }
    }

    #[test]
    fn what_says_nothing_of_the_payment_does_not_spend_its_tries() {
        //  verdict, the rail is in trouble, only asked, waits for it to settle | counts
        for (verdict, trouble, asked_only, waits, spends) in [
            (Verdict::Retryable, true, false, false, false),
            (Verdict::Retryable, false, false, false, true),
            (Verdict::Unknown, true, false, false, true),
            (Verdict::Unknown, true, true, false, false),
            (Verdict::Unknown, false, true, false, true),
            (Verdict::Unknown, false, true, true, false),
            // Marked and not sent, because of the lease: not the rail's doing.
            (Verdict::Retryable, false, false, true, true),
            (Verdict::Accepted, true, false, false, true),
            (Verdict::Refused, true, false, false, true),
        ] {
            assert_eq!(
                spends_attempt(verdict, trouble, asked_only, waits),
                spends,
                "{verdict:?} trouble {trouble} asked {asked_only} waits {waits}"
            );
        }
    }

    #[test]
    fn a_refused_second_copy_says_nothing_of_the_first_where_one_can_ask() {
        for (inquiry, verdict, read_as) in [
            (NotFoundProvesNothing, Verdict::Refused, Verdict::Unknown),
            (SETTLE, Verdict::Refused, Verdict::Unknown),
            // Nobody can be asked: the key's own answer is all there is.
            (Impossible, Verdict::Refused, Verdict::Refused),
            (NotFoundProvesNothing, Verdict::Accepted, Verdict::Accepted),
            (NotFoundProvesNothing, Verdict::Retryable, Verdict::Retryable),
        ] {
            let terms = terms(Some(3_600), inquiry);
            assert_eq!(after_resend(Answer::new(verdict), &terms).verdict, read_as);
        }
    }

    #[test]
    fn only_rails_that_can_neither_deduplicate_nor_be_asked_mark_and_park_at_once() {
        for (lifetime, inquiry, marks) in [
            (None, Impossible, true),
            (Some(60), Impossible, false),
            (None, NotFoundProvesNothing, false),
            (None, SETTLE, false),
        ] {
            let terms = terms(lifetime, inquiry);
            assert_eq!(needs_marks(&terms), marks);
            assert_eq!(parks_at_once(Verdict::Unknown, &terms), marks);
            for verdict in [Verdict::Accepted, Verdict::Refused, Verdict::Retryable] {
                assert!(!parks_at_once(verdict, &terms));
            }
        }
    }
}
