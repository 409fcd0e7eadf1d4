//! Questions that look at everything there is: one at a time in a process, each for a bounded time.

use std::sync::Arc;

use axum::http::StatusCode;
use symphony::db::DbError;
use tokio::sync::Semaphore;

use super::problem::Problem;
use crate::bounds::EVERYTHING_TIME_MAX;

/// The one permit of a process.
#[derive(Debug, Clone)]
pub(crate) struct Everything(Arc<Semaphore>);

impl Default for Everything {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Everything {
    /// Its answer. Whoever asked may go away meanwhile: the server goes on until the end, and the permit with it.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        question: impl Future<Output = Result<T, DbError>> + Send + 'static,
    ) -> Result<T, Problem> {
        let Ok(permit) = self.0.clone().try_acquire_owned() else {
            let detail =
                "somebody else looks through everything now: repeat it after Retry-After seconds";
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED", detail));
        };
        let looking = tokio::spawn(async move {
            let answer = question.await;
            drop(permit);
            answer
        });
        match looking.await {
            Ok(Err(error)) if error.is_time_out() => {
                let seconds = EVERYTHING_TIME_MAX.as_secs();
                let detail = format!("there is too much to look through in {seconds} seconds");
                Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "TOO_MUCH", detail))
            }
            Ok(answer) => Ok(answer?),
            Err(_) => {
                Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "SYM05", "the server stops"))
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn only_one_looks_through_everything_even_if_the_first_one_has_gone_away() {
        let everything = Everything::default();
        let (end, ended) = oneshot::channel::<()>();
        let first = everything.look(async move { Ok(ended.await.is_ok()) });
        // It has begun, and its asker goes away.
        assert!(tokio::time::timeout(Duration::from_millis(10), first).await.is_err());
        let refused = everything.look(async { Ok(()) }).await.unwrap_err();
        assert_eq!(
            (refused.status(), refused.code()),
            (StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED")
        );
        end.send(()).unwrap();
        let permit = tokio::time::timeout(Duration::from_secs(10), everything.0.acquire()).await;
        drop(permit.unwrap().unwrap());
        assert_eq!(everything.look(async { Ok(7) }).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_question_that_takes_too_long_is_told_so() {
        let late = DbError::Refused { sqlstate: "57014".to_owned(), message: String::new() };
        let refused = Everything::default().look(async { Err::<(), _>(late) }).await.unwrap_err();
        assert_eq!(
            (refused.status(), refused.code()),
            (StatusCode::SERVICE_UNAVAILABLE, "TOO_MUCH")
        );
    }
}
