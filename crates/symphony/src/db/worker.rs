//! Who works: one call, one transaction, one limit on the whole. What is called is filed by lane.

use super::producer::confirmed;
use super::{Database, DbError, Role, RoleTransaction, Session};

/// Works items on behalf of one worker.
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
