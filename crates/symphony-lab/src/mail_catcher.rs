//! A relay on loopback that sends nothing on: where `up` and `demo` see the mail of apps, without a provider of mail.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use symphony_connect::email::{
    DeliveryError, InboundMail, Mailbox, SmtpListener, SmtpListenerSettings, parse_mail,
};

/// The newest are kept; older ones are only counted.
const KEPT_MAX: usize = 1_000;

/// A running catcher of mail. Dropping it ends it.
pub struct MailCatcher {
    listener: SmtpListener,
    mailbox: Arc<CatchAll>,
}

/// A message that was caught.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CaughtMail {
    /// The same when the same message comes again.
    pub message_id: String,
    /// For whom, as the envelope says.
    pub recipients: Vec<String>,
    /// Its subject.
    pub subject: String,
    /// Its plain text.
    pub text: String,
}

/// Told of each message, with how many there are by now.
pub type OnMail = Box<dyn Fn(u64, &CaughtMail) + Send + Sync>;

struct CatchAll {
    caught: Mutex<Caught>,
    on_mail: OnMail,
}

#[derive(Default)]
struct Caught {
    count: u64,
    kept: VecDeque<CaughtMail>,
}

impl MailCatcher {
    /// On any free loopback port.
    pub async fn start(on_mail: OnMail) -> io::Result<Self> {
        let mailbox = Arc::new(CatchAll { caught: Mutex::default(), on_mail });
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let settings = SmtpListenerSettings::default();
        let listener =
            SmtpListener::bind(any_port, settings, mailbox.clone()).await.map_err(|error| {
                io::Error::other(format!("cannot start the catcher of mail: {error}"))
            })?;
        Ok(Self { listener, mailbox })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// How many have come, repeated ones included.
    pub fn count(&self) -> u64 {
        self.mailbox.caught().count
    }

    /// Take no more; what was kept, in the order it came.
    pub async fn stop(self) -> Vec<CaughtMail> {
        self.listener.stop().await;
        self.mailbox.caught().kept.drain(..).collect()
    }
}

impl CatchAll {
    fn caught(&self) -> MutexGuard<'_, Caught> {
        self.caught.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Mailbox for CatchAll {
    async fn knows(&self, _recipient: &str) -> Result<bool, String> {
        Ok(true)
    }

    async fn deliver(&self, mail: InboundMail) -> Result<(), DeliveryError> {
        let parsed =
            parse_mail(&mail.raw).map_err(|error| DeliveryError::Message(error.to_string()))?;
        let mail = CaughtMail {
            message_id: parsed.message_id.unwrap_or_default(),
            recipients: mail.recipients,
            subject: parsed.subject.unwrap_or_default(),
            text: parsed.text.unwrap_or_default(),
        };
        let count = {
            let mut caught = self.caught();
            if caught.kept.len() == KEPT_MAX {
                caught.kept.pop_front();
            }
            caught.kept.push_back(mail.clone());
            caught.count += 1;
            caught.count
        };
        (self.on_mail)(count, &mail);
        Ok(())
    }
}
