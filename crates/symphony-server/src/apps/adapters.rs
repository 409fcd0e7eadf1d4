//! The trigger lane's outside: what scripts read, mail that comes in, mail that goes out.

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use symphony::db::{Executor, Ingest};
use symphony::lanes::triggers::executor::{Mailer, Outcome, ScriptStore};
use symphony_connect::email::{
    DeliveryError, InboundMail, Mailbox, OutboundMail, SendOutcome, SmtpSender, parse_mail,
};
use uuid::Uuid;

/// Entries as scripts read them, from the database.
#[derive(Debug)]
pub struct Store(pub Executor);

#[async_trait]
impl ScriptStore for Store {
    async fn kv_get(&self, app_id: Uuid, key: &str) -> Result<Option<Box<RawValue>>, String> {
        self.0.kv_get(app_id, key).await.map_err(|error| error.code().to_owned())
    }

    async fn kv_list(
        &self,
        app_id: Uuid,
        prefix: &str,
        keys_max: u32,
    ) -> Result<Vec<String>, String> {
        self.0
            .kv_list(app_id, prefix, i64::from(keys_max))
            .await
            .map_err(|error| error.code().to_owned())
    }
}

/// Mail that comes in fires email triggers; it is committed before the client hears of it.
pub struct Inbox(pub Ingest);

#[async_trait]
impl Mailbox for Inbox {
    async fn knows(&self, recipient: &str) -> Result<bool, String> {
        let wanted = self.0.receive_email(recipient, None).await;
        wanted.map(|triggers| triggers > 0).map_err(|error| error.code().to_owned())
    }

    async fn deliver(&self, mail: InboundMail) -> Result<(), DeliveryError> {
        self.keep(&mail.raw, mail.from.as_deref(), &mail.recipients).await
    }
}

impl Inbox {
    /// Commit a message for its recipients.
    pub async fn keep(
        &self,
        raw: &[u8],
        from: Option<&str>,
        recipients: &[String],
    ) -> Result<(), DeliveryError> {
        let parsed = parse_mail(raw).map_err(|error| DeliveryError::Message(error.to_string()))?;
        let message = json!({ "envelopeFrom": from, "message": parsed });
        let message =
            to_raw_value(&message).map_err(|error| DeliveryError::Message(error.to_string()))?;
        for recipient in recipients {
            if let Err(error) = self.0.receive_email(recipient, Some(&message)).await {
                tracing::warn!(lane = "triggers", code = error.code(), %error, "mail was not kept");
                return Err(DeliveryError::Temporary(error.code().to_owned()));
            }
        }
        Ok(())
    }
}

/// Mail that goes out through a relay.
pub struct Relay {
    /// The way to it.
    pub sender: SmtpSender,
    /// Whom it is from.
    pub from: String,
}

#[derive(Deserialize)]
struct Wanted {
    to: Vec<String>,
    subject: String,
    text: String,
    /// What makes it recognizable when it is sent again, also by another item after a loss of data.
    #[serde(rename = "messageKey")]
    message_key: Option<Uuid>,
}

#[async_trait]
impl Mailer for Relay {
    async fn send(&self, id: Uuid, message: &RawValue) -> Outcome {
        let Ok(Wanted { to, subject, text, message_key }) = serde_json::from_str(message.get())
        else {
            return failed("EMAIL_REFUSED", "it has no to, subject and text", false);
        };
        let mail = OutboundMail {
            from: self.from.clone(),
            to,
            subject,
            text,
            html: None,
            message_id: message_key.unwrap_or(id).to_string(),
        };
        match self.sender.send(&mail).await {
            SendOutcome::Accepted { reference } => to_raw_value(&json!({ "reference": reference }))
                .map_or_else(|_| failed("EMAIL_REFUSED", "unreadable", false), Outcome::Value),
            SendOutcome::Refused { message, .. } => failed("EMAIL_REFUSED", &message, false),
            // Sent again under the same Message-ID: a reader that knows it shows it once.
            // The relay is busy or away, and surely has not taken it.
            SendOutcome::Again { message, unknown: false } => {
                Outcome::Away { code: "EMAIL_NOT_SENT", message }
            }
            SendOutcome::Again { message, unknown: true } => {
                failed("EMAIL_NOT_SENT", &message, true)
            }
        }
    }
}

fn failed(code: &'static str, message: &str, retryable: bool) -> Outcome {
    Outcome::Failed { code, message: message.to_owned(), retryable }
}
