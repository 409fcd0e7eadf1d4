//! What is said to the relay.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};

use super::compose::ComposedMail;
use crate::bounds::mail::{MESSAGE_CHARACTERS_MAX, QUIT_TIMEOUT, REPLY_BYTES_MAX};

/// How far it came, whatever happened then.
#[derive(Default)]
pub(super) struct Progress {
    /// The end of the message is on its way.
    pub(super) is_dot_sent: bool,
}

/// Why a message was not taken, or is not known to be.
pub(super) enum Trouble {
    /// The relay said so, for good.
    Refused { code: u16, message: String },
    /// The relay said so, for now; or it is our settings' fault, which somebody will mend.
    NotNow(String),
    /// Nothing was said: what it means depends on how far it came.
    Broken(String),
}

/// A conversation with a relay.
pub(super) struct Dialogue<S> {
    stream: S,
    buffer: Vec<u8>,
    extensions: Vec<String>,
}

struct Reply {
    code: u16,
    lines: Vec<String>,
}

impl Reply {
    /// One line, bounded and clean.
    fn text(&self) -> String {
        let text = self.lines.join(" ");
        text.chars().filter(|c| !c.is_control()).take(MESSAGE_CHARACTERS_MAX).collect()
    }
}

fn broken(problem: &str) -> Trouble {
    Trouble::Broken(problem.to_owned())
}

impl<S: AsyncRead + AsyncWrite + Unpin> Dialogue<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, buffer: Vec::new(), extensions: Vec::new() }
    }

    /// From the greeting to what the relay offers.
    pub(super) async fn greet(&mut self, hello: &str) -> Result<(), Trouble> {
        let reply = self.reply().await?;
        if reply.code != 220 {
            return Err(not_now("the relay does not greet", &reply));
        }
        self.hello(hello).await
    }

    pub(super) async fn hello(&mut self, hello: &str) -> Result<(), Trouble> {
        let reply = self.ask(&format!("EHLO {hello}")).await?;
        if reply.code != 250 {
            return Err(not_now("the relay does not take EHLO", &reply));
        }
        self.extensions = reply.lines.iter().skip(1).map(|l| l.to_ascii_uppercase()).collect();
        Ok(())
    }

    pub(super) async fn start_tls(mut self) -> Result<S, Trouble> {
        if !self.offers("STARTTLS") {
            let problem = "the relay does not offer STARTTLS: set security to tls, or another port";
            return Err(Trouble::NotNow(problem.to_owned()));
        }
        let reply = self.ask("STARTTLS").await?;
        if reply.code != 220 {
            return Err(not_now("the relay refuses STARTTLS", &reply));
        }
        // Said in plain text, to be believed as if it were encrypted (CVE-2011-0411).
        if !self.buffer.is_empty() {
            return Err(broken("somebody answers in the relay's place before TLS begins"));
        }
        Ok(self.stream)
    }

    /// Only ever called on TLS.
    pub(super) async fn log_in(&mut self, user: &str, password: &str) -> Result<(), Trouble> {
        let offers_plain = self.extensions.iter().any(|line| {
            line.strip_prefix("AUTH ").is_some_and(|l| l.split(' ').any(|word| word == "PLAIN"))
        });
        if !offers_plain {
            return Err(Trouble::NotNow("the relay does not offer AUTH PLAIN".to_owned()));
        }
        let secret = BASE64_STANDARD.encode(format!("\0{user}\0{password}"));
        let reply = self.ask(&format!("AUTH PLAIN {secret}")).await?;
        match reply.code {
            235 => Ok(()),
            // A password that expired must not cost messages. The text is left out: it may repeat the login.
            code => Err(Trouble::NotNow(format!("the relay refuses the login with {code}"))),
        }
    }

    /// The message, for all its recipients or for none.
    pub(super) async fn give(
        &mut self,
        composed: &ComposedMail,
        deadline: Instant,
        progress: &mut Progress,
    ) -> Result<String, Trouble> {
        let mut mail = format!("MAIL FROM:<{}>", composed.from);
        if composed.needs_utf8 {
            if !self.offers("SMTPUTF8") {
                let message = "an address is not ASCII, and the relay does not offer SMTPUTF8";
                return Err(Trouble::Refused { code: 0, message: message.to_owned() });
            }
            mail.push_str(" SMTPUTF8");
        }
        if self.offers("SIZE") {
            mail.push_str(&format!(" SIZE={}", composed.body.len()));
        }
        self.expect(&mail, 250).await?;
        for recipient in &composed.recipients {
            let reply = self.ask(&format!("RCPT TO:<{recipient}>")).await?;
            if !matches!(reply.code, 250 | 251) {
                return Err(refused(&reply));
            }
        }
        self.expect("DATA", 354).await?;
        self.write(&dot_stuffed(&composed.body)).await?;
        // A process that was stopped meanwhile must not finish after its time: its lease may be another's.
        if Instant::now() >= deadline {
            return Err(broken("the time was up before the message was sent"));
        }
        progress.is_dot_sent = true;
        let reply = self.ask(".").await?;
        match reply.code {
            250 => {
                let reference = reply.text();
                let _said_or_not = timeout(QUIT_TIMEOUT, self.ask("QUIT")).await;
                Ok(reference)
            }
            400..=599 => Err(refused(&reply)),
            _ => Err(broken("the relay's last answer makes no sense")),
        }
    }

    fn offers(&self, extension: &str) -> bool {
        self.extensions.iter().any(|line| line.split(' ').next() == Some(extension))
    }

    async fn expect(&mut self, line: &str, code: u16) -> Result<(), Trouble> {
        let reply = self.ask(line).await?;
        if reply.code == code { Ok(()) } else { Err(refused(&reply)) }
    }

    async fn ask(&mut self, line: &str) -> Result<Reply, Trouble> {
        self.write(format!("{line}\r\n").as_bytes()).await?;
        self.reply().await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        let lost = |_| broken("the connection broke");
        self.stream.write_all(bytes).await.map_err(lost)?;
        self.stream.flush().await.map_err(lost)
    }

    /// `250-one`, `250-two`, `250 three`.
    async fn reply(&mut self) -> Result<Reply, Trouble> {
        let mut lines = Vec::new();
        let mut bytes_left = REPLY_BYTES_MAX;
        let mut first_code = None;
        loop {
            let line = self.line(&mut bytes_left).await?;
            let (code, rest) = line.split_at_checked(3).unwrap_or((line.as_str(), ""));
            let is_code = code.len() == 3 && code.bytes().all(|b| b.is_ascii_digit());
            let code = code.parse::<u16>().ok().filter(|_| is_code);
            let (Some(code), true) = (code, rest.is_empty() || rest.starts_with(['-', ' '])) else {
                return Err(broken("the answer is not SMTP"));
            };
            if *first_code.get_or_insert(code) != code {
                return Err(broken("the answer has two codes"));
            }
            lines.push(rest.get(1..).unwrap_or_default().to_owned());
            if !rest.starts_with('-') {
                return Ok(Reply { code, lines });
            }
        }
    }

    async fn line(&mut self, bytes_left: &mut usize) -> Result<String, Trouble> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                *bytes_left = bytes_left
                    .checked_sub(line.len())
                    .ok_or_else(|| broken("the answer is too long"))?;
                return Ok(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
            }
            if self.buffer.len() > *bytes_left {
                return Err(broken("the answer is too long"));
            }
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) => return Err(broken("the relay hung up")),
                Ok(_) => {}
                Err(_) => return Err(broken("the connection broke")),
            }
        }
    }
}

/// A line that begins with a dot gets another one.
fn dot_stuffed(body: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.len().saturating_add(64));
    for line in body.split_inclusive("\r\n") {
        if line.starts_with('.') {
            bytes.push(b'.');
        }
        bytes.extend_from_slice(line.as_bytes());
    }
    bytes
}

fn not_now(problem: &str, reply: &Reply) -> Trouble {
    Trouble::NotNow(format!("{problem}: {} {}", reply.code, reply.text()))
}

/// What a refusal of the message means.
fn refused(reply: &Reply) -> Trouble {
    match reply.code {
        500..=599 => Trouble::Refused { code: reply.code, message: reply.text() },
        code => Trouble::NotNow(format!("the relay answered {code} {}", reply.text())),
    }
}
