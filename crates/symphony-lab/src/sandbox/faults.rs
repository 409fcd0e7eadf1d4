//! Faults: what the provider does wrong, and to whom.
//!
//! Before and after say on which side of executing the fault strikes. Only what a real provider does is possible:
//! there is no fault that loses an execution, and none that denies one to an inquiry (that is `settle_ms`, which
//! ends).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Serialize, Serializer};
use symphony::FieldError;

use super::plan::Plan;

/// What happens to one transfer. Written as `reset_after`, `delay:250`, `refuse:AC04`, `error_before:503`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// `none`: all goes well; for scripts in which only a later try fails.
    Nothing,
    /// `delay:MS`: executed and answered, but later.
    Delay {
        /// By how much.
        ms: u64,
    },
    /// `hang_before`, `hang_after`: never answered; the connection stays open.
    Hang {
        /// Whether the money moves all the same.
        executes: bool,
    },
    /// `refuse:CODE`: refused for good, and recorded so. A key that executed before is not refused any more.
    Refuse {
        /// Why, such as `AC04`.
        code: String,
    },
    /// `error_before:STATUS`: an HTTP error, nothing executed.
    ErrorBefore {
        /// 400 to 599.
        status: u16,
    },
    /// `error_after:STATUS`: an HTTP error although the money moved.
    ErrorAfter {
        /// 400 to 599.
        status: u16,
    },
    /// `reset_before`: the connection is reset, nothing executed.
    ResetBefore,
    /// `reset_after`: the connection is reset although the money moved.
    ResetAfter,
    /// `answer_twice`: executed, and the answer comes twice on the connection, which stays open.
    AnswerTwice,
    /// `garbage_before`, `garbage_after`: bytes that are no HTTP, then the end.
    Garbage {
        /// Whether the money moves all the same.
        executes: bool,
    },
    /// `slow_drip_before`, `slow_drip_after`: an answer byte by byte, slower than anybody waits. Without executing
    /// it is a 503: what never moved is never confirmed.
    SlowDrip {
        /// Whether the money moves all the same.
        executes: bool,
    },
}

/// What happens to one inquiry. Written as `error:503`, `hang`, …
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum InquiryFault {
    /// `none`.
    Nothing,
    /// `delay:MS`: answered, but later.
    Delay {
        /// By how much.
        ms: u64,
    },
    /// `error:STATUS`: an HTTP error. Never 404, which would deny an execution.
    Error {
        /// 400 to 599, not 404.
        status: u16,
    },
    /// `hang`: never answered.
    Hang,
    /// `garbage`: bytes that are no HTTP, then the end.
    Garbage,
    /// `reset`: the connection is reset.
    Reset,
}

/// The plan at work: who gets which fault next, and how many there were.
pub(super) struct Faults {
    /// Spares the usual request the lock.
    active: AtomicBool,
    state: Mutex<State>,
}

/// What `GET /faults` shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FaultReport {
    /// The plan, with what is left of its script.
    pub plan: Plan,
    /// Faults that struck transfers since the start, by kind.
    pub injected: BTreeMap<&'static str, u64>,
    /// Faults that struck inquiries since the start, by kind.
    pub inquiry_injected: BTreeMap<&'static str, u64>,
}

struct State {
    report: FaultReport,
    dice: Dice,
    inquiry_dice: Dice,
}

impl Fault {
    /// Its name without parameters, as counted.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::Delay { .. } => "delay",
            Self::Hang { executes: false } => "hang_before",
            Self::Hang { executes: true } => "hang_after",
            Self::Refuse { .. } => "refuse",
            Self::ErrorBefore { .. } => "error_before",
            Self::ErrorAfter { .. } => "error_after",
            Self::ResetBefore => "reset_before",
            Self::ResetAfter => "reset_after",
            Self::AnswerTwice => "answer_twice",
            Self::Garbage { executes: false } => "garbage_before",
            Self::Garbage { executes: true } => "garbage_after",
            Self::SlowDrip { executes: false } => "slow_drip_before",
            Self::SlowDrip { executes: true } => "slow_drip_after",
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, parameter) = split(text);
        let fault = match kind {
            "none" => Self::Nothing,
            "delay" => return Ok(Self::Delay { ms: ms(parameter)? }),
            "hang_before" => Self::Hang { executes: false },
            "hang_after" => Self::Hang { executes: true },
            "refuse" => return Ok(Self::Refuse { code: code(parameter)? }),
            "error_before" => return Ok(Self::ErrorBefore { status: status(parameter)? }),
            "error_after" => return Ok(Self::ErrorAfter { status: status(parameter)? }),
            "reset_before" => Self::ResetBefore,
            "reset_after" => Self::ResetAfter,
            "answer_twice" => Self::AnswerTwice,
            "garbage_before" => Self::Garbage { executes: false },
            "garbage_after" => Self::Garbage { executes: true },
            "slow_drip_before" => Self::SlowDrip { executes: false },
            "slow_drip_after" => Self::SlowDrip { executes: true },
            _ => {
                return Err("is no fault: use none, delay:MS, hang_before, hang_after, refuse:CODE, \
                            error_before:STATUS, error_after:STATUS, reset_before, reset_after, answer_twice, \
                            garbage_before, garbage_after, slow_drip_before or slow_drip_after"
                    .to_owned());
            }
        };
        without_parameter(fault, parameter)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match self {
            Self::Delay { ms } => write!(to, "{kind}:{ms}"),
            Self::Refuse { code } => write!(to, "{kind}:{code}"),
            Self::ErrorBefore { status } | Self::ErrorAfter { status } => {
                write!(to, "{kind}:{status}")
            }
            _ => to.write_str(kind),
        }
    }
}

impl InquiryFault {
    /// Its name without parameters, as counted.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::Delay { .. } => "delay",
            Self::Error { .. } => "error",
            Self::Hang => "hang",
            Self::Garbage => "garbage",
            Self::Reset => "reset",
        }
    }
}

impl FromStr for InquiryFault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, parameter) = split(text);
        let fault = match kind {
            "none" => Self::Nothing,
            "delay" => return Ok(Self::Delay { ms: ms(parameter)? }),
            "error" => match status(parameter)? {
                404 => {
                    return Err(
                        "may not be 404: that would deny an execution; see settle_ms".to_owned()
                    );
                }
                status => return Ok(Self::Error { status }),
            },
            "hang" => Self::Hang,
            "garbage" => Self::Garbage,
            "reset" => Self::Reset,
            _ => {
                return Err("is no fault of an inquiry: use none, delay:MS, error:STATUS, hang, garbage or reset"
                    .to_owned());
            }
        };
        without_parameter(fault, parameter)
    }
}

impl fmt::Display for InquiryFault {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match self {
            Self::Delay { ms } => write!(to, "{kind}:{ms}"),
            Self::Error { status } => write!(to, "{kind}:{status}"),
            _ => to.write_str(kind),
        }
    }
}

impl Serialize for Fault {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for InquiryFault {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Faults {
    pub(super) fn new(plan: Plan) -> Result<Self, FieldError> {
        let report = FaultReport {
            plan: Plan::default(),
            injected: BTreeMap::new(),
            inquiry_injected: BTreeMap::new(),
        };
        let state = State { report, dice: Dice(0), inquiry_dice: Dice(0) };
        let faults = Self { active: AtomicBool::new(false), state: Mutex::new(state) };
        faults.replace(plan)?;
        Ok(faults)
    }

    /// Follow another plan from now on; the counters go on.
    pub(super) fn replace(&self, plan: Plan) -> Result<(), FieldError> {
        plan.check()?;
        let mut state = self.lock();
        // Inquiries have dice of their own, so that more or fewer of them do not change what strikes transfers.
        (state.dice, state.inquiry_dice) = (Dice(plan.seed), Dice(!plan.seed));
        self.active.store(!plan.is_empty(), Ordering::Release);
        state.report.plan = plan;
        Ok(())
    }

    pub(super) fn report(&self) -> FaultReport {
        self.lock().report.clone()
    }

    /// The fault for a transfer that has just arrived: from the script, else by the dice.
    pub(super) fn for_transfer(&self, key: &str, instruction: Option<&str>) -> Fault {
        if !self.active.load(Ordering::Acquire) {
            return Fault::Nothing;
        }
        let mut state = self.lock();
        let State { report: FaultReport { plan, injected, .. }, dice, .. } = &mut *state;
        let fault = plan.scripted(key, instruction, |item| item.faults.pop_front());
        let fault = fault.unwrap_or_else(|| dice.pick(&plan.per_mille, Fault::Nothing));
        count(injected, fault.kind());
        fault
    }

    /// The same for an inquiry.
    pub(super) fn for_inquiry(&self, key: &str, instruction: Option<&str>) -> InquiryFault {
        if !self.active.load(Ordering::Acquire) {
            return InquiryFault::Nothing;
        }
        let mut state = self.lock();
        let State { report: FaultReport { plan, inquiry_injected, .. }, inquiry_dice, .. } =
            &mut *state;
        let fault = plan.scripted(key, instruction, |item| item.inquiry_faults.pop_front());
        let fault = fault
            .unwrap_or_else(|| inquiry_dice.pick(&plan.inquiry_per_mille, InquiryFault::Nothing));
        count(inquiry_injected, fault.kind());
        fault
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pseudo-random numbers (splitmix64): the same seed gives the same faults in the same order of requests.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn pick<F: Clone>(&mut self, per_mille: &BTreeMap<F, u16>, nothing: F) -> F {
        let mut roll = self.roll() % 1000;
        for (fault, share) in per_mille {
            match roll.checked_sub(u64::from(*share)) {
                Some(rest) => roll = rest,
                None => return fault.clone(),
            }
        }
        nothing
    }
}

fn count(counters: &mut BTreeMap<&'static str, u64>, kind: &'static str) {
    if kind != "none" {
        *counters.entry(kind).or_default() += 1;
    }
}

fn split(text: &str) -> (&str, Option<&str>) {
    match text.split_once(':') {
        Some((kind, parameter)) => (kind, Some(parameter)),
        None => (text, None),
    }
}

fn without_parameter<F>(fault: F, parameter: Option<&str>) -> Result<F, String> {
    match parameter {
        None => Ok(fault),
        Some(_) => Err("takes nothing after a colon".to_owned()),
    }
}

/// Ten minutes: nobody waits longer, and a plan with a typing error still ends.
const DELAY_MS_MAX: u64 = 600_000;

fn ms(parameter: Option<&str>) -> Result<u64, String> {
    parameter
        .and_then(|text| text.parse().ok())
        .filter(|ms| *ms <= DELAY_MS_MAX)
        .ok_or_else(|| format!("needs its milliseconds, 0 to {DELAY_MS_MAX}, as in delay:250"))
}

fn status(parameter: Option<&str>) -> Result<u16, String> {
    parameter
        .and_then(|text| text.parse().ok())
        .filter(|status| (400..=599).contains(status))
        .ok_or_else(|| "needs a status, 400 to 599, as in :503".to_owned())
}

fn code(parameter: Option<&str>) -> Result<String, String> {
    parameter
        .filter(|code| (1..=35).contains(&code.len()))
        .filter(|code| code.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
        .map(str::to_owned)
        .ok_or_else(|| "needs a code of letters and digits, as in refuse:AC04".to_owned())
}
