//! OAUTHBEARER tokens: whoever issues them writes a file, or is a command that prints one.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::Utc;
use rdkafka::client::OAuthToken;
use serde::Deserialize;
use symphony::FieldError;

use crate::bounds::kafka::{TOKEN_BYTES_MAX, TOKEN_COMMAND_TIMEOUT, TOKEN_LIFETIME};

/// Where tokens come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenSource {
    File(String),
    Command(Vec<String>),
}

impl TokenSource {
    pub(super) fn new(file: Option<&str>, command: &[String]) -> Result<Self, FieldError> {
        match (file, command.split_first()) {
            (Some(_), Some(_)) => {
                Err(FieldError::new("token_command", "is given with token_file: take one of them"))
            }
            (None, None) => Err(FieldError::new(
                "token_file",
                "is missing: OAUTHBEARER needs a file that holds the token, or token_command",
            )),
            (Some(file), None) => {
                std::fs::File::open(file).map(|_| Self::File(file.to_owned())).map_err(|error| {
                    FieldError::new(
                        "token_file",
                        format!("is {file}, which cannot be read: {error}"),
                    )
                })
            }
            (None, Some(_)) => Ok(Self::Command(command.to_vec())),
        }
    }

    /// A token as it is now. Never named in an error.
    pub(super) fn token(&self) -> Result<OAuthToken, String> {
        let text = match self {
            Self::File(file) => std::fs::read_to_string(file)
                .map_err(|error| format!("token_file {file} cannot be read: {error}"))?,
            Self::Command(command) => run(command)?,
        };
        let token = text.trim();
        if token.is_empty() || token.contains(char::is_whitespace) {
            return Err(match self {
                Self::File(file) => format!("token_file {file} does not hold one token"),
                Self::Command(_) => "token_command does not print one token".to_owned(),
            });
        }
        let claims = claims(token);
        let now = Utc::now().timestamp_millis();
        let unsaid = i64::try_from(TOKEN_LIFETIME.as_millis()).unwrap_or(i64::MAX);
        let lifetime_ms = match claims.exp {
            Some(seconds) => seconds.saturating_mul(1_000),
            None => now.saturating_add(unsaid),
        };
        if lifetime_ms <= now {
            return Err("the token has expired: whoever issues it must renew it".to_owned());
        }
        Ok(OAuthToken {
            token: token.to_owned(),
            principal_name: claims.sub.unwrap_or_else(|| "symphony".to_owned()),
            lifetime_ms,
        })
    }
}

/// What we read of a JWT. The broker checks it; we only want to know when to ask for the next.
#[derive(Debug, Default, Deserialize)]
struct Claims {
    sub: Option<String>,
    exp: Option<i64>,
}

fn claims(token: &str) -> Claims {
    let middle = token.split('.').nth(1).unwrap_or_default();
    let decoded = URL_SAFE_NO_PAD.decode(middle.trim_end_matches('=')).unwrap_or_default();
    serde_json::from_slice(&decoded).unwrap_or_default()
}

fn run(command: &[String]) -> Result<String, String> {
    let (program, arguments) =
        command.split_first().ok_or_else(|| "token_command is empty".to_owned())?;
    let failed = |why: &dyn std::fmt::Display| format!("token_command {program}: {why}");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(&error))?;
    let output = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        output.map_or(Ok(text.clone()), |output| {
            output.take(TOKEN_BYTES_MAX).read_to_string(&mut text).map(|_| text)
        })
    });
    let deadline = Instant::now() + TOKEN_COMMAND_TIMEOUT;
    let status = loop {
        match child.try_wait().map_err(|error| failed(&error))? {
            Some(status) => break status,
            None if Instant::now() >= deadline => {
                // It may have ended this moment, which is as good.
                let _ended = child.kill();
                let _reaped = child.wait();
                return Err(failed(&format!("no token within {TOKEN_COMMAND_TIMEOUT:?}")));
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    if !status.success() {
        return Err(failed(&status));
    }
    match reader.join() {
        Ok(Ok(text)) => Ok(text),
        _ => Err(failed(&"its output cannot be read")),
    }
}
