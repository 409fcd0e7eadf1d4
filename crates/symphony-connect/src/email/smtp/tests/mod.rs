//! The server with clients that mean well (Python's `smtplib`) and with clients that do not (raw TCP).

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod abuse;
mod commands;
mod manners;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::{DeliveryError, InboundMail, Mailbox, SmtpListener, SmtpListenerSettings};

/// Knows everybody at `app.example` but `nobody`, keeps what it gets, and fails as recipients' names ask for.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) mails: Mutex<Vec<InboundMail>>,
    /// Told when a delivery to `slow@…` has begun, and waits for the other before it ends.
    pub(crate) has_begun: Notify,
    pub(crate) may_end: Notify,
}

#[async_trait]
impl Mailbox for Kept {
    async fn knows(&self, recipient: &str) -> Result<bool, String> {
        match recipient.rsplit_once('@') {
            Some(("unsure", _)) => Err("the database is down".to_owned()),
            Some((local, "app.example" | "bücher.example")) => Ok(local != "nobody"),
            _ => Ok(recipient == "postmaster"),
        }
    }

    async fn deliver(&self, mail: InboundMail) -> Result<(), DeliveryError> {
        match mail.recipients[0].split('@').next().unwrap() {
            "later" => return Err(DeliveryError::Temporary("secret reason".to_owned())),
            "never" => return Err(DeliveryError::Recipient("secret reason".to_owned())),
            "bad" => return Err(DeliveryError::Message("secret reason".to_owned())),
            "slow" => {
                self.has_begun.notify_one();
                self.may_end.notified().await;
            }
            _ => {}
        }
        self.mails.lock().unwrap().push(mail);
        Ok(())
    }
}

impl Kept {
    pub(crate) fn count(&self) -> usize {
        self.mails.lock().unwrap().len()
    }
}

pub(crate) async fn listen(settings: SmtpListenerSettings) -> (SmtpListener, Arc<Kept>) {
    let kept = Arc::new(Kept::default());
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = SmtpListener::bind(address, settings, Arc::clone(&kept) as _).await.unwrap();
    (listener, kept)
}

/// Run Python with the server's port, and give back what it printed; nothing where there is no Python.
async fn python(script: &str, port: u16) -> Option<String> {
    let output = tokio::process::Command::new("python3")
        .args(["-c", script, &port.to_string()])
        .output()
        .await;
    if output.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        println!("passed over: no python3");
        return None;
    }
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// A client that sends what it is told.
struct Raw {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Raw {
    /// Connected and greeted.
    async fn to(listener: &SmtpListener) -> Self {
        let stream = TcpStream::connect(listener.local_addr()).await.unwrap();
        let mut raw = Self { stream, buffer: Vec::new() };
        assert!(raw.answer().await.starts_with("220 "));
        raw
    }

    /// With an envelope, up to 354.
    async fn in_data(listener: &SmtpListener) -> Self {
        let mut raw = Self::to(listener).await;
        for line in ["EHLO me", "MAIL FROM:<a@b.example>", "RCPT TO:<x@app.example>"] {
            assert!(raw.ask(line).await.starts_with("250"), "{line}");
        }
        assert!(raw.ask("DATA").await.starts_with("354"));
        raw
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    async fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n").as_bytes()).await;
        self.answer().await
    }

    /// The last line of the next answer; empty if the server hung up.
    async fn answer(&mut self) -> String {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
                if line[3] == b' ' {
                    return String::from_utf8(line).unwrap().trim_end().to_owned();
                }
            } else if self.stream.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
                return String::new();
            }
        }
    }

    /// Everything until the server hangs up.
    async fn rest(mut self) -> String {
        let mut rest = std::mem::take(&mut self.buffer);
        let _reset_is_an_end_too = self.stream.read_to_end(&mut rest).await;
        String::from_utf8(rest).unwrap()
    }
}
