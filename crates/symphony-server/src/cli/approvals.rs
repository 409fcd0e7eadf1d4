//! The options of approvals: what waits for a second person, and deciding it.

use clap::{Args, Subcommand, ValueEnum};

use super::{ActOptions, LaneName};

/// What `approval --help` teaches.
pub(super) const HELP: &str = "Where a lane wants approval, an act with --yes becomes a request: nothing is \
     done yet. A member of symphony_approver approves it from a login of their own, and the act is done then and there, under the \
     same checks. The login that asked cannot approve, whatever names are given. A request that nobody decides expires.\n\n\
     Examples:\n  \
     symphony approval list\n  \
     symphony approval show 17\n  \
     symphony approval approve 17 --reason 'the bank has confirmed it' --yes\n  \
     symphony approval reject 17 --reason 'wrong reference' --yes\n  \
     symphony approval require payments --reason 'four eyes from today' --yes";

/// What to do with requests for approval.
#[derive(Debug, Clone, Subcommand)]
pub enum Approvals {
    /// What waits for a second person, or any other requests
    List(ApprovalList),
    /// One request: what it would do, who asked, and what became of it
    Show {
        /// Its number, as `approval list` prints it
        number: i64,
    },
    /// Agree: the act is done
    Approve(Decide),
    /// Do not agree: nothing is done
    Reject(Decide),
    /// Take your own request back
    Withdraw(Decide),
    /// Say that the acts of a lane need a second person, or do not; that itself needs one
    Require(RequireApproval),
}

/// Options of `approval list`.
#[derive(Debug, Clone, Args)]
pub struct ApprovalList {
    /// Only of this state
    #[arg(long, value_enum, default_value = "waiting")]
    pub state: ApprovalState,
    /// Only of this lane
    #[arg(long, value_enum)]
    pub lane: Option<LaneName>,
    /// Only older ones than this number
    #[arg(long, value_name = "NUMBER")]
    pub before: Option<i64>,
    /// At most so many, the newest first
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub limit: u32,
}

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ApprovalState {
    /// Nobody has decided it yet
    Waiting,
    /// It was approved and done
    Approved,
    /// Somebody did not agree
    Rejected,
    /// Whoever asked took it back
    Withdrawn,
    /// Nobody decided it in time
    Expired,
    /// Any of them
    All,
}

/// Options of a decision.
#[derive(Debug, Clone, Args)]
pub struct Decide {
    /// The request's number, as `approval list` prints it
    pub number: i64,
    /// Who and why.
    #[command(flatten)]
    pub act: ActOptions,
}

/// Options of `approval require`.
#[derive(Debug, Clone, Args)]
pub struct RequireApproval {
    /// The lane
    #[arg(value_enum)]
    pub lane: LaneName,
    /// Its acts shall not need a second person any more
    #[arg(long)]
    pub off: bool,
    /// Who and why.
    #[command(flatten)]
    pub act: ActOptions,
}
