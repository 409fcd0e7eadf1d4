//! Email: what comes in, and what goes out.
//!
//! - `smtp`: a server that takes mail for known recipients, and answers 250 only for what is kept.
//! - `mime`: from a raw message to what scripts read, bounded whatever it contains.
//! - `send`: one message to a relay, with a clear line between "surely not taken" and "may have been".

mod mime;
mod send;
mod smtp;

use sha2::{Digest as _, Sha256};

pub use self::mime::{
    ATTACHMENTS_BYTES_MAX, Attachment, MailAddress, ParseError, ParsedMail, parse_mail,
};
pub use self::send::{
    OutboundMail, RECIPIENTS_MAX, Security, SendOutcome, SmtpSender, SmtpSenderSettings,
};
pub use self::smtp::{
    DeliveryError, InboundMail, ListenError, Mailbox, SmtpListener, SmtpListenerSettings,
};
pub use crate::http_client::SettingsError;

fn sha256_hex(bytes: &[u8]) -> String {
    let digits = |byte: &u8| [byte >> 4, byte & 15].map(|d| char::from_digit(d.into(), 16));
    Sha256::digest(bytes).iter().flat_map(digits).flatten().collect()
}
