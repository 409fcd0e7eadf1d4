//! A rail of your own, complete: to an imaginary bank that lives in this process.
//!
//! `cargo run -p symphony-connect --example rail_of_your_own` runs the conformance suite on it and prints the
//! report. Three things are to be written: the rail, a test provider that can misbehave, and a sample payment.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::RawValue;
use symphony::domain::{OutboxId, RailKey};
use symphony::lanes::payments::rail::{
    Answer, Endpoint, Inquiry, InquiryTerms, Payment, Rail, Terms, Verdict,
};
use symphony::money::{Amount, Defect};
use symphony_connect::rails::conformance::{Misbehaviour, Provider, Sample, check};

// ---------------------------------------------------------------------------------------------------------
// The rail: what you write for your provider.

struct BankRail {
    bank: Arc<Bank>,
    terms: Terms,
}

impl BankRail {
    fn new(bank: Arc<Bank>) -> Self {
        // Promise only what the provider's contract promises: the lane resends money on the strength of this.
        let terms = Terms {
            // Who is paid through: what may have been sent to one bank is never sent to another by itself.
            endpoint: Endpoint::new("bank", "https://bank.example", "", "main account"),
            timeout: Duration::from_millis(200),
            inquiry_timeout: Duration::from_millis(200),
            key_lifetime: Some(Duration::from_hours(24)),
            inquiry: InquiryTerms::NotFoundProvesNothing,
        };
        Self { bank, terms }
    }
}

/// What this rail needs of a payload. Amounts were checked before; unknown fields are the bank's business.
#[derive(serde::Deserialize)]
struct Instruction {
    account: String,
}

#[async_trait]
impl Rail for BankRail {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn validate(&self, payment: &Payment) -> Result<(), Defect> {
        // Name the field and the fix, and never repeat what stands in it.
        let defect = |problem: &str| Defect::new("INVALID_DESTINATION", "account", problem);
        let instruction: Instruction = serde_json::from_str(payment.payload.get())
            .map_err(|_| defect("is missing: give the account's eight digits as text"))?;
        let digits = instruction.account.bytes().all(|byte| byte.is_ascii_digit());
        if digits && instruction.account.len() == 8 {
            Ok(())
        } else {
            Err(defect("must be eight digits"))
        }
    }

    async fn dispatch(&self, payment: &Payment) -> Answer {
        // Every try under the same key: that is what lets the bank pay once.
        let call = self.bank.transfer(payment.key);
        match tokio::time::timeout(self.terms.timeout, call).await {
            Ok(Ok(reply)) => answer(&reply),
            // The connection broke. The bank may have done it: nobody knows, and saying anything else would be
            // a guess about money.
            Ok(Err(Broken)) => {
                Answer::trouble(Verdict::Unknown, "CONNECTION_LOST", "the bank hung up")
            }
            Err(_elapsed) => Answer::trouble(Verdict::Unknown, "TIMEOUT", "no answer in time"),
        }
    }

    async fn inquire(&self, payment: &Payment) -> Inquiry {
        let call = self.bank.look_up(payment.key);
        match tokio::time::timeout(self.terms.inquiry_timeout, call).await {
            Ok(Some(reply)) => Inquiry::Found(answer(&reply)),
            Ok(None) => Inquiry::NotFound,
            Err(_elapsed) => {
                let answer = Answer::trouble(Verdict::Unknown, "TIMEOUT", "no answer in time");
                Inquiry::Unclear(answer)
            }
        }
    }
}

/// From the bank's codes to verdicts: whole codes, never words of a message; what is not listed is unknown.
fn answer(reply: &Reply) -> Answer {
    let verdict = match reply.code.as_str() {
        "DONE" => Verdict::Accepted,
        "NO_SUCH_ACCOUNT" => Verdict::Refused,
        "COME_BACK_LATER" => Verdict::Retryable,
        _ => Verdict::Unknown,
    };
    Answer {
        code: Some(reply.code.clone()),
        reference: reply.reference.clone(),
        // Trouble opens the circuit breaker. One refused payment is not trouble; a bank that talks nonsense is.
        trouble: verdict == Verdict::Unknown,
        ..Answer::new(verdict)
    }
}

// ---------------------------------------------------------------------------------------------------------
// The test provider: an imaginary bank with books of its own, which can misbehave. Yours may be a mock server,
// or the provider's own test environment, as far as that can misbehave.

#[derive(Default)]
struct Bank {
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    armed: HashMap<RailKey, Misbehaviour>,
    known: HashMap<RailKey, Reply>,
    executions: HashMap<RailKey, u64>,
    requests: u64,
}

#[derive(Clone)]
struct Reply {
    code: String,
    reference: Option<String>,
}

/// The line to the bank broke.
struct Broken;

impl Bank {
    async fn transfer(&self, key: RailKey) -> Result<Reply, Broken> {
        let armed = {
            let mut books = self.books();
            books.requests += 1;
            books.armed.remove(&key)
        };
        match armed {
            None | Some(Misbehaviour::AnswerTwice) => Ok(self.books().execute(key)),
            Some(Misbehaviour::Refuse) => Ok(reply("NO_SUCH_ACCOUNT")),
            Some(Misbehaviour::Busy) => Ok(reply("COME_BACK_LATER")),
            Some(Misbehaviour::ErrorBefore) => Ok(reply("INTERNAL_ERROR")),
            Some(Misbehaviour::Garbage) => Ok(reply("%&$!")),
            Some(Misbehaviour::ErrorAfter) => {
                self.books().execute(key);
                Ok(reply("INTERNAL_ERROR"))
            }
            Some(Misbehaviour::ResetBefore) => Err(Broken),
            Some(Misbehaviour::ResetAfter) => {
                self.books().execute(key);
                Err(Broken)
            }
            Some(Misbehaviour::Hang | Misbehaviour::SlowDrip) => std::future::pending().await,
        }
    }

    async fn look_up(&self, key: RailKey) -> Option<Reply> {
        // Where a real bank would be waited for.
        tokio::task::yield_now().await;
        let mut books = self.books();
        books.requests += 1;
        books.known.get(&key).cloned()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    /// Pay once per key.
    fn execute(&mut self, key: RailKey) -> Reply {
        if let Some(first) = self.known.get(&key) {
            return first.clone();
        }
        *self.executions.entry(key).or_default() += 1;
        let done = Reply { reference: Some(format!("BANK-{key}")), ..reply("DONE") };
        self.known.insert(key, done.clone());
        done
    }
}

fn reply(code: &str) -> Reply {
    Reply { code: code.to_owned(), reference: None }
}

#[async_trait]
impl Provider for Bank {
    async fn misbehave(&self, key: RailKey, misbehaviour: Misbehaviour) -> bool {
        self.books().armed.insert(key, misbehaviour);
        true
    }

    async fn executions(&self, key: RailKey) -> u64 {
        self.books().executions.get(&key).copied().unwrap_or(0)
    }

    async fn forget(&self, key: RailKey) -> bool {
        self.books().known.remove(&key);
        true
    }

    async fn requests(&self) -> Option<u64> {
        Some(self.books().requests)
    }
}

// ---------------------------------------------------------------------------------------------------------
// The sample, and the run.

fn sample() -> Result<Sample, serde_json::Error> {
    let payload = |account: &str| {
        RawValue::from_string(format!(
            r#"{{"amount": {{"value": "10.00", "currency": "EUR"}}, "account": "{account}"}}"#
        ))
    };
    Ok(Sample {
        payment: Payment {
            key: RailKey(uuid::Uuid::nil()),
            outbox_id: OutboxId(uuid::Uuid::nil()),
            instruction_id: "invoice-1".to_owned(),
            participant_id: "customer-1".to_owned(),
            sequence_id: 1,
            rail_type: "imaginary_bank".to_owned(),
            amount: Amount {
                value: "10.00".to_owned(),
                currency: "EUR".to_owned(),
                minor_units: 1_000,
            },
            payload: payload("12345678")?,
            traceparent: None,
        },
        wrong_destination: Some(payload("not-an-account")?),
    })
}

#[tokio::main]
async fn main() -> Result<ExitCode, serde_json::Error> {
    let bank = Arc::new(Bank::default());
    let rail = BankRail::new(Arc::clone(&bank));
    let report = check(&rail, bank.as_ref(), &sample()?).await;
    println!("{report}");
    Ok(if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
