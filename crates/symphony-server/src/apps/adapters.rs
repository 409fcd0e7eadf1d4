//! Connects the trigger lane to the database and to mail: entries and secrets that scripts read, mail in, mail out.

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use symphony::db::{Database, DbError, Producer, StoredEntry, StoredKeys, Worker};
use symphony::lanes::triggers::executor::{Entry, Listed, Mailer, RunOutcome, ScriptStore};
use symphony::triggers::ReceivedEmail;
use symphony_connect::email::{
    DeliveryError, InboundMail, MailAttachment, Mailbox, OutboundMail, SendOutcome, SmtpSender,
    is_automatic, parse_mail, referenced_ids, verified_sender,
};
use uuid::Uuid;

use super::principals::{PrincipalKind, Principals};
use super::secrets::SecretKeys;

/// Entries and secrets as scripts read them, from the database.
#[derive(Debug)]
pub struct EntryStore {
    worker: Worker,
    keys: SecretKeys,
}

impl EntryStore {
    /// On a database, with what opens secrets.
    pub fn new(worker: Worker, keys: SecretKeys) -> Self {
        Self { worker, keys }
    }
}

#[async_trait]
impl ScriptStore for EntryStore {
    async fn kv_get(&self, app_id: Uuid, key: &str) -> Result<Option<Entry>, String> {
        let found =
            self.worker.kv_get(app_id, key).await.map_err(|error| error.code().to_owned())?;
        Ok(found.map(|StoredEntry { value, version }| Entry { value, version }))
    }

    async fn kv_list(
        &self,
        app_id: Uuid,
        prefix: &str,
        after: Option<&str>,
        keys_max: u32,
    ) -> Result<Listed, String> {
        let found = self.worker.kv_list(app_id, prefix, after, i64::from(keys_max)).await;
        let StoredKeys { keys, digest } = found.map_err(|error| error.code().to_owned())?;
        Ok(Listed { keys, digest })
    }

    async fn secret(&self, app: &str, name: &str) -> Result<Option<String>, String> {
        self.keys.current()?;
        let found = self.worker.sealed_secret(app, name).await;
        let found = found.map_err(|error| error.code().to_owned())?;
        found.map(|sealed| self.keys.open(app, name, &sealed)).transpose()
    }

    fn command(&self, words: &str) -> String {
        self.worker.command(words)
    }
}

/// Mail that comes in fires email triggers; it is committed before the client hears of it.
pub struct MailInbox {
    producer: Producer,
    principals: Principals,
    /// Whose word about a sender is taken.
    authserv_id: Option<String>,
    rates: MailRates,
}

/// How much may be sent to one address in an hour.
#[derive(Debug, Clone, Copy)]
pub struct MailRates {
    /// By one sender, of mail that calls itself automatic.
    pub automatic_per_hour_max: u32,
    /// By one sender, of any.
    pub per_hour_max: u32,
    /// By all senders together.
    pub address_per_hour_max: u32,
}

impl MailRates {
    fn of(self, automatic: bool) -> i32 {
        let most = if automatic { self.automatic_per_hour_max } else { self.per_hour_max };
        bound(most)
    }
}

fn bound(most: u32) -> i32 {
    i32::try_from(most).unwrap_or(i32::MAX)
}

#[async_trait]
impl Mailbox for MailInbox {
    async fn knows(&self, recipient: &str) -> Result<bool, String> {
        let known = self.producer.knows_recipient(recipient).await;
        known.map_err(|error| error.code().to_owned())
    }

    async fn deliver(&self, mail: InboundMail) -> Result<(), DeliveryError> {
        self.keep(&mail.raw, mail.from.as_deref(), &mail.recipients, None, true).await
    }
}

impl MailInbox {
    /// An inbox on a database; senders are verified by this server in front, if any is.
    pub fn new(database: &Database, authserv_id: Option<String>, rates: MailRates) -> Self {
        let principals = Principals::new(database.worker());
        Self { producer: database.producer(), principals, authserv_id, rates }
    }

    /// Commit a message that came over HTTP. Only a known producer's word about its sender is taken.
    pub async fn hand_in(
        &self,
        raw: &[u8],
        recipient: &str,
        by: Option<Uuid>,
    ) -> Result<(), DeliveryError> {
        self.keep(raw, None, &[recipient.to_owned()], by, by.is_some()).await
    }

    /// Commit a message for its recipients. Its sender caused it if verified, else whoever handed it in.
    async fn keep(
        &self,
        raw: &[u8],
        from: Option<&str>,
        recipients: &[String],
        handed_in_by: Option<Uuid>,
        may_be_verified: bool,
    ) -> Result<(), DeliveryError> {
        let parsed = parse_mail(raw).map_err(|error| DeliveryError::Message(error.to_string()))?;
        let authserv_id = self.authserv_id.as_deref().filter(|_| may_be_verified);
        let sender = authserv_id.and_then(|id| verified_sender(&parsed, id));
        let principal = match &sender {
            Some(sender) => match self.principals.id(PrincipalKind::Mail, sender).await {
                Ok(id) => Some(id),
                Err(error) => return Err(DeliveryError::Temporary(error.code().to_owned())),
            },
            None => handed_in_by,
        };
        let automatic = is_automatic(&parsed);
        let message = json!({
            "envelopeFrom": from,
            "verifiedSender": sender,
            "automatic": automatic,
            "message": parsed,
        });
        let message =
            to_raw_value(&message).map_err(|error| DeliveryError::Message(error.to_string()))?;
        // A robot need not say that it is one: what answers our mail stands deeper, whoever sent it.
        let answers_to = referenced_ids(&parsed);
        let named = parsed.from.as_ref().map(|from| from.address.as_str());
        let received = ReceivedEmail {
            mail: &message,
            principal,
            answers_to: &answers_to,
            sender: from.or(named).unwrap_or_default(),
            per_hour_max: self.rates.of(automatic),
            address_per_hour_max: bound(self.rates.address_per_hour_max),
        };
        match self.producer.receive_email(recipients, &received).await {
            Ok(()) => Ok(()),
            Err(error @ DbError::TooMuchMail { .. }) => {
                tracing::warn!(
                    lane = "triggers",
                    "a sender, or an address, has more mail than it may: it is put off"
                );
                Err(DeliveryError::Temporary(error.code().to_owned()))
            }
            Err(error) => {
                tracing::warn!(lane = "triggers", code = error.code(), %error, "mail was not kept");
                Err(DeliveryError::Temporary(error.code().to_owned()))
            }
        }
    }
}

/// Mail that goes out through a relay.
pub struct MailRelay {
    /// The connection to the relay.
    pub sender: SmtpSender,
    /// The sender's address.
    pub from: String,
}

#[derive(Deserialize)]
struct MailRequest {
    to: Vec<String>,
    #[serde(default)]
    cc: Vec<String>,
    #[serde(default)]
    bcc: Vec<String>,
    #[serde(rename = "replyTo")]
    reply_to: Option<String>,
    subject: String,
    text: String,
    html: Option<String>,
    #[serde(default)]
    attachments: Vec<MailAttachment>,
    /// The Message-ID's part that stays the same when it is sent again, also by another item after a loss of data.
    #[serde(rename = "messageKey")]
    message_key: Option<Uuid>,
}

#[async_trait]
impl Mailer for MailRelay {
    async fn send(&self, id: Uuid, message: &RawValue) -> RunOutcome {
        let Ok(request) = serde_json::from_str::<MailRequest>(message.get()) else {
            return failed("EMAIL_REFUSED", "it has no to, subject and text", false);
        };
        let mail = OutboundMail {
            from: self.from.clone(),
            to: request.to,
            cc: request.cc,
            bcc: request.bcc,
            reply_to: request.reply_to,
            subject: request.subject,
            text: request.text,
            html: request.html,
            attachments: request.attachments,
            message_id: request.message_key.unwrap_or(id).to_string(),
        };
        match self.sender.send(&mail).await {
            SendOutcome::Accepted { reference } => to_raw_value(&json!({ "reference": reference }))
                .map_or_else(|_| failed("EMAIL_REFUSED", "unreadable", false), RunOutcome::Value),
            SendOutcome::Refused { message, .. } => failed("EMAIL_REFUSED", &message, false),
            // Sent again under the same Message-ID: a reader that knows it shows it once.
            // The relay is busy or away, and surely has not taken it.
            SendOutcome::Again { message, unknown: false } => {
                RunOutcome::Away { code: "EMAIL_NOT_SENT", message }
            }
            SendOutcome::Again { message, unknown: true } => {
                failed("EMAIL_NOT_SENT", &message, true)
            }
        }
    }
}

fn failed(code: &'static str, message: &str, retryable: bool) -> RunOutcome {
    RunOutcome::Failed { code, message: message.to_owned(), retryable }
}
