//! The lease calls that every lane has: claim, complete, renew, give back, repair. Lanes differ in what a lease holds, in
//! what they say of it and in the function that is called, and in nothing else.

use std::hash::Hash;

use sqlx::postgres::PgRow;
use sqlx::{Encode, FromRow, Postgres, Row as _, Type};

use super::calls::Call;
use super::session::{Query, Row};
use super::{DbError, Worker};
use crate::domain::{LeaseToken, limits};

/// The proof that a worker holds something of a lane: an item, or a bucket of events.
pub trait LaneLease: Copy + Eq + Hash + Send + Sync + 'static {
    /// What is held, as the functions take it.
    type Ids: for<'q> Encode<'q, Postgres> + Type<Postgres> + 'static;
    /// An item whose expired lease was ended.
    type Repaired: for<'r> FromRow<'r, PgRow> + Send + Unpin;
    /// Renews leases.
    const RENEW: Call;
    /// Gives back what was never sent.
    const RETURN_UNSENT: Call;
    /// Ends expired leases.
    const REPAIR: Call;
    /// At most this many leases in one call.
    const CALL_MAX: usize = limits::BATCH_ITEMS_MAX;

    /// What all these leases hold.
    fn ids(leases: &[Self]) -> Self::Ids;
    /// Its token.
    fn token(&self) -> LeaseToken;
    /// The id of a repaired item.
    fn repaired_id(repaired: &Self::Repaired) -> String;
    /// What its repair wrote.
    fn ended(repaired: &Self::Repaired) -> EndedLeases;
}

/// What ending expired leases of lost workers wrote down, by a repair or by a claim that took them over. In items.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndedLeases {
    /// Held under leases that were ended.
    pub ended: usize,
    /// Of these, written into the ledger as ZOMBIE_REQUEUE.
    pub zombies: usize,
    /// Left to a person.
    pub parked: usize,
    /// Ended as FAILED.
    pub failed: usize,
}

impl std::ops::AddAssign for EndedLeases {
    fn add_assign(&mut self, more: Self) {
        self.ended += more.ended;
        self.zombies += more.zombies;
        self.parked += more.parked;
        self.failed += more.failed;
    }
}

/// A row of a claim. The first is there even if nothing was leased: it says what was ended.
pub(super) struct ClaimRow<T> {
    pub(super) leased: Option<T>,
    pub(super) ended: EndedLeases,
}

impl<'r, T: FromRow<'r, PgRow>> FromRow<'r, PgRow> for ClaimRow<T> {
    fn from_row(row: &'r PgRow) -> Result<Self, sqlx::Error> {
        let count = |name: &str| -> Result<usize, sqlx::Error> {
            let noted: Option<String> = row.try_get(name)?;
            // Empty in a session in which an earlier transaction noted something.
            Ok(noted.and_then(|noted| noted.parse().ok()).unwrap_or(0))
        };
        let (ended, parked) = (count("leases_ended")?, count("leases_parked")?);
        let token: Option<LeaseToken> = row.try_get("lease_token")?;
        Ok(Self {
            leased: token.map(|_| T::from_row(row)).transpose()?,
            ended: EndedLeases { ended, zombies: ended, parked, failed: 0 },
        })
    }
}

/// What a claim leased, in order, and what it ended.
pub(super) fn leased_and_ended<T>(rows: Vec<ClaimRow<T>>) -> (Vec<T>, EndedLeases) {
    let ended = rows.first().map(|row| row.ended).unwrap_or_default();
    (rows.into_iter().filter_map(|row| row.leased).collect(), ended)
}

pub(super) fn tokens<L: LaneLease>(leases: &[L]) -> Vec<LeaseToken> {
    leases.iter().map(L::token).collect()
}

/// A claim: at most so many items, by this worker, for so long. What else is said differs by lane.
pub(super) fn claim<R: Row>(
    call: Call,
    items_max: i32,
    worker_id: &str,
    lease_seconds: i32,
) -> Query<'_, R> {
    sqlx::query_as(call.sql).bind(items_max).bind(worker_id).bind(lease_seconds)
}

/// One field of each, for a completion of many.
pub(super) fn each<'a, C, T>(completions: &'a [C], field: impl Fn(&'a C) -> T) -> Vec<T> {
    completions.iter().map(field).collect()
}

/// The same, or nothing at all if none has it: five hundred nulls are not free to send.
pub(super) fn each_or_none<'a, C, T>(
    completions: &'a [C],
    field: impl Fn(&'a C) -> Option<T>,
) -> Option<Vec<Option<T>>> {
    let column = each(completions, field);
    column.iter().any(Option::is_some).then_some(column)
}

/// A completion's result that its lane does not have.
pub(super) fn unexpected_result(result: &str) -> DbError {
    DbError::Unexpected { message: format!("completion result {result}") }
}

/// A call about leases: one row each, in the order given.
pub(super) fn about_leases<'q, L: LaneLease, R: Row>(
    call: Call,
    worker_id: &'q str,
    leases: &[L],
) -> Query<'q, R> {
    sqlx::query_as(call.sql).bind(worker_id).bind(L::ids(leases)).bind(tokens(leases))
}

#[derive(sqlx::FromRow)]
struct Renewed {
    renewed: bool,
}

#[derive(sqlx::FromRow)]
struct Returned {
    returned: bool,
}

impl Worker {
    /// Extend leases; answers which are still held, in the order given.
    pub async fn renew<L: LaneLease>(
        &self,
        worker_id: &str,
        leases: &[L],
        lease_seconds: i32,
    ) -> Result<Vec<bool>, DbError> {
        let mut held = Vec::with_capacity(leases.len());
        for leases in leases.chunks(L::CALL_MAX) {
            let query = about_leases(L::RENEW, worker_id, leases).bind(lease_seconds);
            // A renewal may be repeated, whatever became of the first.
            let rows = self.call_repeatable(async |session| query.fetch_all(session).await).await?;
            held.extend(rows.into_iter().map(|row: Renewed| row.renewed));
        }
        Ok(held)
    }

    /// Give back what was never sent; answers what was, in the order given.
    pub async fn return_unsent<L: LaneLease>(
        &self,
        worker_id: &str,
        leases: &[L],
    ) -> Result<Vec<bool>, DbError> {
        let mut returned = Vec::with_capacity(leases.len());
        for leases in leases.chunks(L::CALL_MAX) {
            let query = about_leases(L::RETURN_UNSENT, worker_id, leases);
            let rows = self.call(async |session| query.fetch_all(session).await).await?;
            returned.extend(rows.into_iter().map(|row: Returned| row.returned));
        }
        Ok(returned)
    }

    /// End expired leases of lost workers, at most so many.
    pub async fn repair<L: LaneLease>(
        &self,
        worker_id: &str,
        leases_max: i32,
    ) -> Result<Vec<L::Repaired>, DbError> {
        let call_max = i32::try_from(L::CALL_MAX).unwrap_or(i32::MAX);
        let query = sqlx::query_as(L::REPAIR.sql).bind(leases_max.min(call_max)).bind(worker_id);
        self.call(async |session| query.fetch_all(session).await).await
    }
}
