//! Email: what comes in, and what goes out.
//!
//! - `smtp`: a server that takes mail for known recipients, and answers 250 only for what is kept.
//! - `mime`: from a raw message to what scripts read, bounded whatever it contains.
//! - `verified`: whether the mail server in front has verified a message's sender.
//! - `automatic`: whether a program sent it, and what it answers.
//! - `send`: one message to a relay, with a clear line between "surely not taken" and "may have been".

mod automatic;
mod mime;
mod send;
mod smtp;
mod verified;

use sha2::{Digest as _, Sha256};

pub use self::automatic::{is_automatic, referenced_ids};
pub use self::mime::{
    ATTACHMENTS_BYTES_MAX, Attachment, MailAddress, ParseError, ParsedMail, parse_mail,
};
pub use self::send::{
    MailAttachment, OutboundMail, RECIPIENTS_MAX, Security, SendOutcome, SmtpSender,
    SmtpSenderSettings,
};
pub use self::smtp::{
    DeliveryError, InboundMail, ListenError, Mailbox, SmtpListener, SmtpListenerSettings,
};
pub use self::verified::verified_sender;

fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}
