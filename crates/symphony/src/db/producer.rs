//! Who produces: every lane's `enqueue` in a transaction of its own, and what those have in common.

use std::fmt;

use serde_json::value::RawValue;
use sqlx::postgres::PgRow;
use sqlx::{FromRow, Row as _};

use super::events::producer as events;
use super::payments::producer as payments;
use super::triggers::producer as triggers;
use super::{Database, DbError, Role, RoleTransaction};
use crate::event::Event;

/// Enqueues in transactions of its own. An uncertain COMMIT is looked up, not guessed.
///
/// ```no_run
/// use symphony::db::{Database, RoleSource};
/// use symphony::payments::{Payload, PaymentRequest};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let options = "postgres://billing@localhost/billing".parse()?;
/// let producer = Database::connect(options, 4, RoleSource::EachTransaction).await?.producer();
/// let payload = Payload::parse(r#"{"amount": {"value": "10.00", "currency": "EUR"}}"#)?;
/// let request = PaymentRequest::new("invoice-17", "acme", "sepa", payload);
/// let enqueued = producer.enqueue_payment(&request).await?;
/// println!("{} is {}", enqueued.outbox_id, enqueued.state);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Producer {
    pub(super) database: Database,
}

impl Producer {
    pub(super) fn new(database: Database) -> Self {
        Self { database }
    }

    /// One call in a transaction of its own.
    async fn in_own_transaction<T>(
        &self,
        call: impl AsyncFnOnce(&mut RoleTransaction) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        let mut transaction = self.database.begin(Role::Producer).await?;
        let answer = call(&mut transaction).await?;
        transaction.commit().await?;
        Ok(answer)
    }

    /// [`payments::enqueue`] in a transaction of its own.
    pub async fn enqueue_payment(
        &self,
        request: &payments::PaymentRequest,
    ) -> Result<payments::Enqueued, DbError> {
        self.in_own_transaction(async |transaction| payments::enqueue(transaction, request).await)
            .await
    }

    /// [`payments::enqueue_batch`] in a transaction of its own.
    pub async fn enqueue_payments(
        &self,
        requests: &[payments::PaymentRequest],
    ) -> Result<Vec<Result<payments::Enqueued, DbError>>, DbError> {
        self.in_own_transaction(async |transaction| {
            payments::enqueue_batch(transaction, requests).await
        })
        .await
    }

    /// [`events::enqueue`] in a transaction of its own.
    pub async fn enqueue_event(&self, event: &Event) -> Result<events::Enqueued, DbError> {
        self.in_own_transaction(async |transaction| events::enqueue(transaction, event).await).await
    }

    /// [`events::enqueue_batch_unchecked`] in a transaction of its own.
    pub async fn enqueue_events(
        &self,
        events: &[&RawValue],
    ) -> Result<Vec<Result<events::Enqueued, DbError>>, DbError> {
        self.in_own_transaction(async |transaction| {
            events::enqueue_batch_unchecked(transaction, events).await
        })
        .await
    }

    /// [`triggers::enqueue`] in a transaction of its own. If no answer comes in time, nobody knows what became of it.
    pub async fn enqueue_trigger(
        &self,
        request: &triggers::TriggerRequest<'_>,
    ) -> Result<triggers::Enqueued, DbError> {
        let enqueue = self
            .in_own_transaction(async |transaction| triggers::enqueue(transaction, request).await);
        self.database.in_time(enqueue).await
    }

    /// [`triggers::enqueue_batch`] in a transaction of its own. If no answer comes in time, nobody knows what became of it.
    pub async fn enqueue_triggers(
        &self,
        requests: &[triggers::TriggerRequest<'_>],
    ) -> Result<Vec<Result<triggers::Enqueued, DbError>>, DbError> {
        let enqueue = self.in_own_transaction(async |transaction| {
            triggers::enqueue_batch(transaction, requests).await
        });
        self.database.in_time(enqueue).await
    }

    /// Whether any trigger is for mail to a recipient.
    pub async fn knows_recipient(&self, recipient: &str) -> Result<bool, DbError> {
        self.in_own_transaction(async |transaction| {
            triggers::knows_recipient(transaction, recipient).await
        })
        .await
    }

    /// The same, where requests count as taken even if nobody can be asked what became of their COMMIT.
    pub async fn place_triggers(
        &self,
        requests: &[triggers::TriggerRequest<'_>],
    ) -> Result<Placed<triggers::Enqueued>, DbError> {
        let mut answered = None;
        let enqueue = self.in_own_transaction(async |transaction| {
            answered = Some(triggers::enqueue_batch(transaction, requests).await?);
            Ok(())
        });
        let called = self.database.in_time(enqueue).await;
        let (answers, is_confirmed) = confirmed(answered, called)?;
        Ok(Placed { answers, is_confirmed })
    }

    /// [`triggers::receive_email`] for all its recipients in one transaction: all have it, or none.
    pub async fn receive_email(
        &self,
        recipients: &[String],
        received: &triggers::ReceivedEmail<'_>,
    ) -> Result<(), DbError> {
        // In one order, so that no two messages hold each other's counts.
        let mut recipients: Vec<&String> = recipients.iter().collect();
        recipients.sort_unstable();
        self.in_own_transaction(async |transaction| {
            for recipient in &recipients {
                triggers::receive_email(&mut *transaction, recipient, received).await?;
            }
            Ok(())
        })
        .await
    }
}

/// A state that the database has no such name for in this version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownState(String);

impl UnknownState {
    pub(in crate::db) fn new(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for UnknownState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no state that this version knows", self.0)
    }
}

impl std::error::Error for UnknownState {}

/// A state as the database names it.
macro_rules! item_states {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// As the database, the contract and every command name it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl TryFrom<String> for $name {
            type Error = $crate::db::producer::UnknownState;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                match text.as_str() {
                    $($text => Ok(Self::$variant),)+
                    _ => Err($crate::db::producer::UnknownState::new(text)),
                }
            }
        }
    };
}
pub(in crate::db) use item_states;

/// What a lane's enqueue answers about one item. A batch answers with the same columns, and with an error code and message
/// instead for an item that was refused; the others were not.
pub(in crate::db) trait Enqueue: for<'r> FromRow<'r, PgRow> {
    /// Why it was refused.
    fn refusal_message(row: &PgRow) -> Result<String, sqlx::Error> {
        row.try_get("error_message")
    }
}

/// What was placed, one answer each, in the order given.
#[derive(Debug)]
pub struct Placed<T> {
    /// What each was told, before the COMMIT.
    pub answers: Vec<Result<T, DbError>>,
    /// The COMMIT was confirmed. Otherwise it may be there, under the ids that were answered, or not.
    pub is_confirmed: bool,
}

/// What was answered before the COMMIT, and whether that was confirmed; an error if it surely was not carried out.
pub(in crate::db) fn confirmed<T>(
    answered: Option<T>,
    called: Result<(), DbError>,
) -> Result<(T, bool), DbError> {
    match (called, answered) {
        (Ok(()), Some(answer)) => Ok((answer, true)),
        (Ok(()), None) => Err(DbError::NotCommitted),
        (Err(error), Some(answer)) if error.is_transient() && !error.is_safe_to_repeat() => {
            Ok((answer, false))
        }
        (Err(error), _) => Err(error),
    }
}

/// A batch's answers, one for every item asked about, in the order given.
pub(in crate::db) fn answers<T: Enqueue>(
    rows: &[PgRow],
    asked: usize,
) -> Result<Vec<Result<T, DbError>>, DbError> {
    if rows.len() != asked {
        let message = format!("{} answers about {asked} items", rows.len());
        return Err(DbError::Unexpected { message });
    }
    let answer = |row| -> Result<Result<T, DbError>, sqlx::Error> {
        let Some(code) = PgRow::try_get::<Option<String>, _>(row, "error_code")? else {
            return T::from_row(row).map(Ok);
        };
        let message = T::refusal_message(row)?;
        Ok(Err(match code.as_str() {
            "P7004" => DbError::KeyReused { message },
            "P7007" => DbError::NoSuchItem { message },
            _ => DbError::InvalidArgument { message },
        }))
    };
    Ok(rows.iter().map(answer).collect::<Result<_, _>>()?)
}
