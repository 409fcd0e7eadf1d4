//! Who works: one call, one transaction, one limit on the whole. What is called is filed by lane.

use super::producer::confirmed;
use super::{Database, DbError, Role, RoleTransaction, Session};

/// Works items on behalf of one worker. The engine calls it; whoever has an engine needs only a lane.
///
/// ```no_run
/// # async fn pay(_item: &symphony::db::ClaimedPayment) -> String { String::new() }
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use symphony::db::{Database, PaymentClaim, PaymentOutcome, RoleSource};
/// use symphony::domain::Outcome;
///
/// let options = "postgres://worker@localhost/shop".parse()?;
/// let worker = Database::connect(options, 4, RoleSource::EachTransaction).await?.worker();
/// let rails = ["sepa".to_owned()];
/// let request = PaymentClaim {
///     worker_id: "host-1:4711:a",
///     batch_size: 10,
///     lease_seconds: 60,
///     rails: Some(&rails),
///     due_from: None,
///     endpoints: None,
/// };
/// // One with `must_inquire` may have been paid: the rail is asked about it, and nothing is sent.
/// for item in worker.claim_payments(&request).await?.items.iter().filter(|item| !item.must_inquire) {
///     // Under `item.rail_key`, which is the same on every try.
///     let reference = pay(item).await;
///     let outcome = PaymentOutcome::new(item.lease(), Outcome::Dispatched);
///     let outcome = PaymentOutcome { rail_reference: Some(reference), ..outcome };
///     worker.complete_payment(request.worker_id, &outcome).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Worker {
    pub(super) database: Database,
}

impl Worker {
    pub(super) fn new(database: Database) -> Self {
        Self { database }
    }

    /// How long one call may take.
    pub(crate) fn call_limit(&self) -> std::time::Duration {
        self.database.call_limit
    }

    /// A command of the program that leads to this installation, to be named in a message.
    pub fn command(&self, words: &str) -> String {
        self.database.schema().command(words)
    }

    /// One call of a worker: a transaction of its own, with a limit on the whole. If no answer comes in time, nobody
    /// knows what became of it.
    pub(super) async fn call<T>(
        &self,
        query: impl AsyncFnOnce(Session<'_>) -> Result<T, sqlx::Error>,
    ) -> Result<T, DbError> {
        self.call_until(RoleTransaction::commit, query).await
    }

    /// The same for reads, and for calls that may be repeated whatever became of the first: a claim (its leases
    /// expire), a completion (it finds its own rows), a renewal.
    pub(super) async fn call_repeatable<T>(
        &self,
        query: impl AsyncFnOnce(Session<'_>) -> Result<T, sqlx::Error>,
    ) -> Result<T, DbError> {
        self.call_until(RoleTransaction::commit_repeatable, query).await
    }

    /// The same where what was answered counts even if the COMMIT then gets no answer; says whether it got one.
    pub(super) async fn call_unconfirmed<T>(
        &self,
        query: impl AsyncFnOnce(Session<'_>) -> Result<T, sqlx::Error>,
    ) -> Result<(T, bool), DbError> {
        let mut answered = None;
        let called = self
            .call_until(RoleTransaction::commit_repeatable, async |session| {
                answered = Some(query(session).await?);
                Ok(())
            })
            .await;
        confirmed(answered, called)
    }

    /// The same for one call of one function: the statement is a transaction of its own, so that BEGIN and COMMIT cost no
    /// round trips. It runs with the rights that the login has by itself, and the function acts as its owner either way.
    /// A login that has the role's rights only by SET ROLE, or a lent session, gets a transaction.
    pub(super) async fn call_alone<T>(
        &self,
        query: impl AsyncFnOnce(Session<'_>) -> Result<T, sqlx::Error>,
    ) -> Result<T, DbError> {
        let Database { pool, schema, .. } = &self.database;
        if !self.database.login_works_by_itself().await? {
            return self.call_repeatable(query).await;
        }
        let answer = self
            .database
            .in_time(async {
                let mut connection = pool.acquire().await?;
                Ok(query(Session::new(&mut connection, false, schema)).await?)
            })
            .await;
        if matches!(answer, Err(DbError::MissingPrivilege { .. })) {
            self.database.ask_again_how_the_login_works();
        }
        self.notice_another_server(answer)
    }

    async fn call_until<T>(
        &self,
        commit: impl AsyncFnOnce(RoleTransaction) -> Result<(), DbError>,
        query: impl AsyncFnOnce(Session<'_>) -> Result<T, sqlx::Error>,
    ) -> Result<T, DbError> {
        let answer = self
            .database
            .in_time(async {
                let mut transaction = self.database.begin(Role::Worker).await?;
                let answer = query(transaction.session()).await?;
                commit(transaction).await?;
                Ok(answer)
            })
            .await;
        self.notice_another_server(answer)
    }

    fn notice_another_server<T>(&self, answer: Result<T, DbError>) -> Result<T, DbError> {
        if matches!(answer, Err(DbError::OtherServer { .. })) {
            self.database.signals().refused.notify_one();
        }
        answer
    }
}
