//! The claims themselves. Each makes its own payment and asks the provider, not the rail, what was executed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use symphony::domain::RailKey;
use symphony::lanes::payments::rail::Verdict::{self, Accepted, Refused, Retryable, Unknown};
use symphony::lanes::payments::rail::{Answer, Inquiry, InquiryTerms, Payment, Rail};
use tokio::time::timeout;
use uuid::Uuid;

use super::report::{Ruling, Stop, require};
use super::{Misbehaviour, Provider, Report, Sample};

/// What a rail may take over its own limit before it counts as unbounded.
const GRACE: Duration = Duration::from_secs(1);
/// Shorter texts of a payload, such as a currency, may turn up anywhere.
const TELLING_CHARACTERS_MIN: usize = 6;

pub(super) async fn all(rail: &dyn Rail, provider: &dyn Provider, sample: &Sample) -> Report {
    let trial = Trial { rail, provider, sample, leaks: Mutex::new(0) };
    let mut report = Report::default();
    let mut add = |name, ruling| report.add(name, ruling);
    add("its terms have limits that can be kept", trial.terms());
    add("a valid payment passes validation", trial.valid_passes());
    add("a wrong destination is refused without any request", trial.wrong_destination().await);
    add("an accepted payment is executed once", trial.executes_once().await);
    add("the same key twice executes once", trial.same_key_twice().await);
    add("the same key three times at once executes once", trial.same_key_at_once().await);
    add("a refusal is refused and nothing is executed", trial.refusal().await);
    add("a busy provider is retryable and nothing is executed", trial.busy().await);
    add("what was retryable can be sent again and is executed once", trial.retry().await);
    add("an error before executing is never accepted", trial.error_before().await);
    add("an error after executing is never failed or retried", trial.error_after().await);
    add("a reset before executing is never accepted", trial.reset_before().await);
    add("a reset after executing is unknown", trial.reset_after().await);
    add("after a reset the inquiry finds what was executed", trial.found_after_reset().await);
    add("after a reset sending again executes once", trial.resent_after_reset().await);
    add("a provider that hangs is unknown within the timeout", trial.hang().await);
    add("an answer that drips is bounded by the timeout", trial.slow_drip().await);
    add("nonsense is unknown", trial.garbage().await);
    add("a second answer is not taken for the next payment's", trial.answer_twice().await);
    add("a key never sent is not found", trial.never_sent().await);
    add("an inquiry finds an accepted payment", trial.found_accepted().await);
    add("an inquiry never finds a refused payment accepted", trial.refused_not_accepted().await);
    add("an inquiry asks the provider and not its own memory", trial.asks_the_provider().await);
    add("no answer repeats the payload", trial.no_leaks());
    report
}

struct Trial<'a> {
    rail: &'a dyn Rail,
    provider: &'a dyn Provider,
    sample: &'a Sample,
    /// How many answers repeated something of the payload.
    leaks: Mutex<u64>,
}

impl Trial<'_> {
    fn terms(&self) -> Ruling {
        let terms = self.rail.terms();
        require(!terms.timeout.is_zero(), "the timeout is zero")?;
        require(
            terms.inquiry == InquiryTerms::Impossible || !terms.inquiry_timeout.is_zero(),
            "the inquiry's timeout is zero",
        )?;
        require(
            terms.key_lifetime.is_none_or(|lifetime| lifetime > terms.timeout),
            "a key is forgotten before a dispatch can end: it never protects",
        )
    }

    fn valid_passes(&self) -> Ruling {
        self.rail
            .validate(&self.fresh())
            .map_err(|defect| Stop::Failed(format!("the sample was refused: {defect}")))
    }

    async fn wrong_destination(&self) -> Ruling {
        let Some(payload) = &self.sample.wrong_destination else {
            return not_applicable("the sample has no wrong destination");
        };
        let payment = Payment { payload: payload.clone(), ..self.fresh() };
        let before = self.provider.requests().await;
        let Err(defect) = self.rail.validate(&payment) else {
            return failed("it passed validation");
        };
        require(!repeats(&payment, &defect.to_string()), "the refusal repeats the payload")?;
        require(self.provider.requests().await == before, "the provider was asked")
    }

    async fn executes_once(&self) -> Ruling {
        let payment = self.fresh();
        expect(&self.send(&payment).await?, &[Accepted])?;
        self.executed(&payment, 1).await
    }

    async fn same_key_twice(&self) -> Ruling {
        self.needs_deduplication()?;
        let payment = self.fresh();
        expect(&self.send(&payment).await?, &[Accepted])?;
        // A refusal of the second copy would be recorded as "the money did not move".
        expect(&self.send(&payment).await?, &[Accepted, Unknown])?;
        self.executed(&payment, 1).await
    }

    async fn same_key_at_once(&self) -> Ruling {
        self.needs_deduplication()?;
        let payment = self.fresh();
        let (one, two, three) =
            tokio::join!(self.send(&payment), self.send(&payment), self.send(&payment));
        for answer in [one?, two?, three?] {
            expect(&answer, &[Accepted, Unknown, Retryable])?;
        }
        self.executed(&payment, 1).await
    }

    async fn refusal(&self) -> Ruling {
        let (payment, answer) = self.send_with(Misbehaviour::Refuse).await?;
        expect(&answer, &[Refused])?;
        require(!answer.trouble, "a refusal of one payment is not trouble of the rail")?;
        self.executed(&payment, 0).await
    }

    async fn busy(&self) -> Ruling {
        let (payment, answer) = self.send_with(Misbehaviour::Busy).await?;
        expect(&answer, &[Retryable])?;
        self.executed(&payment, 0).await
    }

    async fn retry(&self) -> Ruling {
        let (payment, answer) = self.send_with(Misbehaviour::Busy).await?;
        if answer.verdict != Retryable {
            return not_applicable("nothing was retryable");
        }
        expect(&self.send(&payment).await?, &[Accepted])?;
        self.executed(&payment, 1).await
    }

    async fn error_before(&self) -> Ruling {
        let (payment, answer) = self.send_with(Misbehaviour::ErrorBefore).await?;
        expect(&answer, &[Refused, Retryable, Unknown])?;
        self.executed(&payment, 0).await
    }

    async fn error_after(&self) -> Ruling {
        let (payment, answer) = self.send_with(Misbehaviour::ErrorAfter).await?;
        expect(&answer, &[Accepted, Unknown])?;
        self.executed(&payment, 1).await
    }

    async fn reset_before(&self) -> Ruling {
        let (payment, answer) = self.send_with(Misbehaviour::ResetBefore).await?;
        expect(&answer, &[Retryable, Unknown])?;
        self.executed(&payment, 0).await?;
        if self.needs_inquiry().is_ok() {
            self.not_found_accepted(&payment).await?;
        }
        Ok(())
    }

    async fn reset_after(&self) -> Ruling {
        let (payment, answer) = self.send_with(Misbehaviour::ResetAfter).await?;
        expect(&answer, &[Accepted, Unknown])?;
        self.executed(&payment, 1).await
    }

    async fn found_after_reset(&self) -> Ruling {
        self.needs_inquiry()?;
        let (payment, _) = self.send_with(Misbehaviour::ResetAfter).await?;
        self.finds_accepted(&payment).await?;
        self.executed(&payment, 1).await
    }

    async fn resent_after_reset(&self) -> Ruling {
        self.needs_deduplication()?;
        let (payment, _) = self.send_with(Misbehaviour::ResetAfter).await?;
        expect(&self.send(&payment).await?, &[Accepted, Unknown])?;
        self.executed(&payment, 1).await
    }

    async fn hang(&self) -> Ruling {
        let (_, answer) = self.send_with(Misbehaviour::Hang).await?;
        expect(&answer, &[Unknown])?;
        require(answer.trouble, "a timeout is trouble of the rail and must be marked so")
    }

    async fn slow_drip(&self) -> Ruling {
        let (_, answer) = self.send_with(Misbehaviour::SlowDrip).await?;
        expect(&answer, &[Accepted, Unknown])
    }

    async fn garbage(&self) -> Ruling {
        let (_, answer) = self.send_with(Misbehaviour::Garbage).await?;
        expect(&answer, &[Unknown])
    }

    async fn answer_twice(&self) -> Ruling {
        let (first, answer) = self.send_with(Misbehaviour::AnswerTwice).await?;
        expect(&answer, &[Accepted, Unknown])?;
        self.executed(&first, 1).await?;
        let (second, answer) = self.send_with(Misbehaviour::Refuse).await?;
        expect(&answer, &[Refused, Unknown])?;
        self.executed(&second, 0).await
    }

    async fn never_sent(&self) -> Ruling {
        self.needs_inquiry()?;
        match self.ask(&self.fresh()).await? {
            Inquiry::NotFound => Ok(()),
            other => failed(&format!("it was {}", name(&other))),
        }
    }

    async fn found_accepted(&self) -> Ruling {
        self.needs_inquiry()?;
        let payment = self.fresh();
        expect(&self.send(&payment).await?, &[Accepted])?;
        self.finds_accepted(&payment).await
    }

    async fn refused_not_accepted(&self) -> Ruling {
        self.needs_inquiry()?;
        let (payment, _) = self.send_with(Misbehaviour::Refuse).await?;
        self.not_found_accepted(&payment).await
    }

    async fn asks_the_provider(&self) -> Ruling {
        self.needs_inquiry()?;
        let payment = self.fresh();
        expect(&self.send(&payment).await?, &[Accepted])?;
        if !self.provider.forget(payment.key).await {
            return not_applicable("the provider cannot forget");
        }
        match self.ask(&payment).await? {
            Inquiry::NotFound | Inquiry::Unclear(_) => Ok(()),
            other @ Inquiry::Found(_) => {
                failed(&format!("of a key the provider has forgotten it was {}", name(&other)))
            }
        }
    }

    fn no_leaks(&self) -> Ruling {
        let leaks = *self.leaks.lock().unwrap_or_else(PoisonError::into_inner);
        require(leaks == 0, format!("{leaks} answers repeated something of the payload"))
    }
}

/// What the claims are made of.
impl Trial<'_> {
    fn fresh(&self) -> Payment {
        let key = Uuid::new_v4();
        let sample = &self.sample.payment;
        Payment {
            key: RailKey(key),
            instruction_id: format!("conformance-{key}"),
            sequence_id: sample.sequence_id.saturating_add(1),
            ..sample.clone()
        }
    }

    async fn send_with(&self, misbehaviour: Misbehaviour) -> Result<(Payment, Answer), Stop> {
        let payment = self.fresh();
        if !self.provider.misbehave(payment.key, misbehaviour).await {
            not_applicable(&format!("the provider cannot imitate {misbehaviour:?}"))?;
        }
        let answer = self.send(&payment).await?;
        Ok((payment, answer))
    }

    async fn send(&self, payment: &Payment) -> Result<Answer, Stop> {
        let limit = self.rail.terms().timeout.saturating_add(GRACE);
        let answer = timeout(limit, self.rail.dispatch(payment)).await.map_err(|_elapsed| {
            Stop::Failed("a dispatch took longer than the rail's own timeout".to_owned())
        })?;
        self.look_for_leaks(payment, &answer);
        Ok(answer)
    }

    async fn ask(&self, payment: &Payment) -> Result<Inquiry, Stop> {
        let limit = self.rail.terms().inquiry_timeout.saturating_add(GRACE);
        let inquiry = timeout(limit, self.rail.inquire(payment)).await.map_err(|_elapsed| {
            Stop::Failed("an inquiry took longer than the rail's own timeout".to_owned())
        })?;
        if let Inquiry::Found(answer) | Inquiry::Unclear(answer) = &inquiry {
            self.look_for_leaks(payment, answer);
        }
        Ok(inquiry)
    }

    fn look_for_leaks(&self, payment: &Payment, answer: &Answer) {
        // Not the reference: many providers return the payment's own end-to-end id as theirs.
        let texts = [&answer.message, &answer.code, &answer.error_code];
        if texts.into_iter().flatten().any(|text| repeats(payment, text)) {
            let mut leaks = self.leaks.lock().unwrap_or_else(PoisonError::into_inner);
            *leaks = leaks.saturating_add(1);
        }
    }

    async fn executed(&self, payment: &Payment, expected: u64) -> Ruling {
        let executions = self.provider.executions(payment.key).await;
        require(
            executions == expected,
            format!("the provider executed it {executions} times, expected {expected}"),
        )
    }

    async fn finds_accepted(&self, payment: &Payment) -> Ruling {
        match self.ask(payment).await? {
            Inquiry::Found(answer) => expect(&answer, &[Accepted]),
            other => failed(&format!("it was {}", name(&other))),
        }
    }

    async fn not_found_accepted(&self, payment: &Payment) -> Ruling {
        match self.ask(payment).await? {
            Inquiry::Found(answer) => expect(&answer, &[Refused, Retryable, Unknown]),
            Inquiry::NotFound | Inquiry::Unclear(_) => Ok(()),
        }
    }

    fn needs_deduplication(&self) -> Ruling {
        match self.rail.terms().key_lifetime {
            Some(_) => Ok(()),
            None => not_applicable("its terms do not promise to deduplicate"),
        }
    }

    fn needs_inquiry(&self) -> Ruling {
        match self.rail.terms().inquiry {
            InquiryTerms::Impossible => not_applicable("by its terms it cannot be asked"),
            InquiryTerms::NotFoundProvesNothing | InquiryTerms::NotFoundIsFinalAfter(_) => Ok(()),
        }
    }
}

fn expect(answer: &Answer, allowed: &[Verdict]) -> Ruling {
    let words = |verdicts: &[Verdict]| {
        verdicts.iter().map(|v| format!("{v:?}").to_lowercase()).collect::<Vec<_>>().join(" or ")
    };
    require(
        allowed.contains(&answer.verdict),
        format!(
            "the answer was {} (code {}, error {}), allowed: {}",
            words(&[answer.verdict]),
            answer.code.as_deref().unwrap_or("none"),
            answer.error_code.as_deref().unwrap_or("none"),
            words(allowed)
        ),
    )
}

fn failed(why: &str) -> Ruling {
    Err(Stop::Failed(why.to_owned()))
}

fn not_applicable(why: &str) -> Ruling {
    Err(Stop::NotApplicable(why.to_owned()))
}

fn name(inquiry: &Inquiry) -> String {
    match inquiry {
        Inquiry::Found(answer) => format!("found, {:?}", answer.verdict).to_lowercase(),
        Inquiry::NotFound => "not found".to_owned(),
        Inquiry::Unclear(answer) => {
            format!("unclear, {}", answer.error_code.as_deref().unwrap_or("without a code"))
        }
    }
}

/// Does the text contain one of the payload's texts? Its numbers are not looked at.
fn repeats(payment: &Payment, text: &str) -> bool {
    fn search(value: &Value, text: &str) -> bool {
        match value {
            Value::String(told) => {
                told.chars().count() >= TELLING_CHARACTERS_MIN && text.contains(told.as_str())
            }
            Value::Array(values) => values.iter().any(|value| search(value, text)),
            Value::Object(members) => members.values().any(|value| search(value, text)),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
    serde_json::from_str(payment.payload.get()).is_ok_and(|value: Value| search(&value, text))
}
