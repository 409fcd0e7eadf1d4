//! What `email.send` takes, checked while the script can still be told.

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::host::Refusal;
use crate::bounds::mail::{
    ATTACHMENT_NAME_CHARACTERS_MAX, ATTACHMENTS_BYTES_MAX, ATTACHMENTS_MAX, RECIPIENTS_MAX,
};

/// One address or several.
#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum Addresses {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct More {
    cc: Option<Box<RawValue>>,
    bcc: Option<Box<RawValue>>,
    reply_to: Option<Box<RawValue>>,
    html: Option<Box<RawValue>>,
    #[serde(default)]
    attachments: Vec<Attachment>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Attachment {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    content_base64: String,
}

/// As it is stored: fields that were not given are left out.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Message<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attachments: Vec<Attachment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bcc: Option<Addresses>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cc: Option<Addresses>,
    #[serde(skip_serializing_if = "Option::is_none")]
    html: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<String>,
    subject: &'a str,
    text: &'a str,
    to: Addresses,
}

/// The message; `to` and `more` are JSON.
pub(super) fn message(
    to: &str,
    subject: &str,
    text: &str,
    more: &str,
) -> Result<Box<RawValue>, Refusal> {
    let problem = "message.attachments must each have a name, and a contentType that is text";
    let More { cc, bcc, reply_to, html, attachments } =
        serde_json::from_str(more).map_err(|_| refusal(problem))?;
    let to = addresses("to", to)?;
    let given = |field: &str, value: Option<Box<RawValue>>| {
        value.map(|value| addresses(field, value.get())).transpose()
    };
    let (cc, bcc) = (given("cc", cc)?, given("bcc", bcc)?);
    let count = |addresses: &Addresses| match addresses {
        Addresses::One(_) => 1,
        Addresses::Several(all) => all.len(),
    };
    let recipients = [Some(&to), cc.as_ref(), bcc.as_ref()].into_iter().flatten().map(count);
    if recipients.sum::<usize>() > RECIPIENTS_MAX {
        return Err(refusal("message.to, cc and bcc must have at most 50 addresses together"));
    }
    let reply_to = match reply_to.map(|value| addresses("replyTo", value.get())).transpose()? {
        None => None,
        Some(Addresses::One(address)) => Some(address),
        Some(Addresses::Several(_)) => {
            return Err(refusal("message.replyTo must be one email address"));
        }
    };
    if subject.chars().any(char::is_control) {
        return Err(refusal("message.subject must be one line of text"));
    }
    if text.contains('\0') {
        return Err(refusal("message.text must not contain NUL"));
    }
    let html: Option<String> = html
        .map(|html| serde_json::from_str(html.get()))
        .transpose()
        .ok()
        .filter(|html: &Option<String>| !html.as_ref().is_some_and(|html| html.contains('\0')))
        .ok_or_else(|| refusal("message.html must be text without NUL"))?;
    check(&attachments)?;
    let message = Message { attachments, bcc, cc, html, reply_to, subject, text, to };
    to_raw_value(&message).map_err(|_| Refusal::Failure("email.send failed".to_owned()))
}

fn addresses(field: &str, json: &str) -> Result<Addresses, Refusal> {
    let is_address = |address: &String| {
        address.contains('@') && !address.chars().any(|c| c.is_control() || c.is_whitespace())
    };
    let found: Option<Addresses> = serde_json::from_str(json).ok();
    let found = found.filter(|found| match found {
        Addresses::One(address) => is_address(address),
        Addresses::Several(all) => {
            (1..=RECIPIENTS_MAX).contains(&all.len()) && all.iter().all(is_address)
        }
    });
    let problem = || format!("message.{field} must be an email address, or 1 to 50 of them");
    found.ok_or_else(|| refusal(&problem()))
}

fn check(attachments: &[Attachment]) -> Result<(), Refusal> {
    if attachments.len() > ATTACHMENTS_MAX {
        let problem = format!("message.attachments must be at most {ATTACHMENTS_MAX}");
        return Err(refusal(&problem));
    }
    let bytes = attachments.iter().map(|one| one.content_base64.len() / 4 * 3).sum::<usize>();
    if bytes > ATTACHMENTS_BYTES_MAX {
        let most = ATTACHMENTS_BYTES_MAX;
        return Err(refusal(&format!("message.attachments must be at most {most} bytes together")));
    }
    for (place, Attachment { name, content_type, .. }) in attachments.iter().enumerate() {
        let characters = name.trim().chars().count();
        if !(1..=ATTACHMENT_NAME_CHARACTERS_MAX).contains(&characters)
            || name.chars().any(char::is_control)
        {
            let most = ATTACHMENT_NAME_CHARACTERS_MAX;
            return Err(refusal(&format!(
                "message.attachments[{place}].name must be one line of 1 to {most} characters"
            )));
        }
        if content_type.as_ref().is_some_and(|kind| !is_content_type(kind)) {
            return Err(refusal(&format!(
                "message.attachments[{place}].contentType must be a type such as application/pdf"
            )));
        }
    }
    Ok(())
}

/// Without parameters, and nothing that is read as more of the message.
fn is_content_type(kind: &str) -> bool {
    let is_token = |text: &str| {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte);
        !text.is_empty() && text.bytes().all(is_good)
    };
    kind.len() <= 100
        && kind.split_once('/').is_some_and(|(kind, rest)| {
            let kind = kind.to_ascii_lowercase();
            is_token(&kind) && is_token(rest) && kind != "multipart" && kind != "message"
        })
}

fn refusal(problem: &str) -> Refusal {
    Refusal::Argument(problem.to_owned())
}
