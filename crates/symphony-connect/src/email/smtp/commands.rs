//! What a line asks for.

use crate::bounds::smtp::{LOCAL_PART_BYTES_MAX, PATH_BYTES_MAX};

/// A command of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Hello {
        name: String,
        is_extended: bool,
    },
    Mail {
        from: Option<String>,
        size: Option<u64>,
        is_utf8: bool,
    },
    Recipient {
        path: String,
    },
    Data,
    Reset,
    Nothing,
    Verify,
    Help,
    Quit,
    /// Known, and not offered.
    NotOffered,
    /// A browser, or another that was sent here to talk SMTP by accident.
    Foreign,
}

/// A line that cannot be followed, as it is answered.
pub(super) type Refusal = &'static str;

const SYNTAX: Refusal = "501 5.5.4 syntax error in parameters";
const UNKNOWN_PARAMETER: Refusal = "555 5.5.4 parameter not recognized";
const BAD_ADDRESS: Refusal = "501 5.1.3 not a mail address";
const NEEDS_UTF8: Refusal = "553 5.6.7 such an address needs SMTPUTF8";

pub(super) fn parse(line: &[u8], is_utf8: bool) -> Result<Command, Refusal> {
    let text = std::str::from_utf8(line).map_err(|_| "500 5.5.2 not UTF-8")?;
    if text.chars().any(char::is_control) {
        return Err("500 5.5.2 control characters in a command");
    }
    let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
    let rest = rest.trim_matches(' ');
    let is_bare = |command| if rest.is_empty() { Ok(command) } else { Err(SYNTAX) };
    match verb.to_ascii_uppercase().as_str() {
        "EHLO" => hello(rest, true),
        "HELO" => hello(rest, false),
        "MAIL" => mail(rest),
        "RCPT" => recipient(rest, is_utf8),
        "DATA" => is_bare(Command::Data),
        "RSET" => is_bare(Command::Reset),
        "NOOP" => Ok(Command::Nothing),
        "VRFY" if rest.is_empty() => Err(SYNTAX),
        "VRFY" => Ok(Command::Verify),
        "HELP" => Ok(Command::Help),
        "QUIT" => is_bare(Command::Quit),
        "AUTH" | "BDAT" | "ETRN" | "EXPN" | "SAML" | "SEND" | "SOML" | "STARTTLS" | "TURN" => {
            Ok(Command::NotOffered)
        }
        "CONNECT" | "DELETE" | "GET" | "HEAD" | "OPTIONS" | "PATCH" | "POST" | "PUT" | "TRACE" => {
            Ok(Command::Foreign)
        }
        // A header: the rest of somebody else's protocol, or of a message whose DATA was refused.
        verb if verb.ends_with(':') => Ok(Command::Foreign),
        _ => Err("500 5.5.1 command not recognized"),
    }
}

fn hello(name: &str, is_extended: bool) -> Result<Command, Refusal> {
    let is_name = |b: u8| b.is_ascii_graphic() || !b.is_ascii();
    if name.is_empty() || name.len() > 255 || !name.bytes().all(is_name) {
        return Err("501 5.5.4 say your name: EHLO host.example");
    }
    Ok(Command::Hello { name: name.to_owned(), is_extended })
}

fn mail(rest: &str) -> Result<Command, Refusal> {
    let (path, parameters) = path(after(rest, "FROM:")?)?;
    let (mut size, mut is_utf8, mut has_body) = (None, false, false);
    for parameter in parameters.split(' ').filter(|parameter| !parameter.is_empty()) {
        let (key, value) = match parameter.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (parameter, None),
        };
        match (key.to_ascii_uppercase().as_str(), value) {
            ("SIZE", Some(digits)) if size.is_none() => {
                let is_number = digits.len() <= 20 && digits.bytes().all(|b| b.is_ascii_digit());
                if digits.is_empty() || !is_number {
                    return Err(SYNTAX);
                }
                // What does not fit is larger than any limit.
                size = Some(digits.parse().unwrap_or(u64::MAX));
            }
            ("BODY", Some(body)) if !has_body => {
                if !["7BIT", "8BITMIME"].iter().any(|known| known.eq_ignore_ascii_case(body)) {
                    return Err(SYNTAX);
                }
                has_body = true;
            }
            ("SMTPUTF8", None) => is_utf8 = true,
            ("SIZE" | "BODY" | "SMTPUTF8", _) => return Err(SYNTAX),
            _ => return Err(UNKNOWN_PARAMETER),
        }
    }
    let from = if path.is_empty() { None } else { Some(address(path, is_utf8)?) };
    Ok(Command::Mail { from, size, is_utf8 })
}

fn recipient(rest: &str, is_utf8: bool) -> Result<Command, Refusal> {
    let (path, parameters) = path(after(rest, "TO:")?)?;
    if !parameters.trim().is_empty() {
        return Err(UNKNOWN_PARAMETER);
    }
    // The one address without a domain that RFC 5321 knows.
    if path.eq_ignore_ascii_case("postmaster") {
        return Ok(Command::Recipient { path: path.to_owned() });
    }
    Ok(Command::Recipient { path: address(path, is_utf8)? })
}

fn after<'a>(rest: &'a str, word: &str) -> Result<&'a str, Refusal> {
    match rest.split_at_checked(word.len()) {
        Some((begin, after)) if begin.eq_ignore_ascii_case(word) => Ok(after.trim_start()),
        _ => Err(SYNTAX),
    }
}

/// What stands between the angle brackets, without a source route, and what follows them.
fn path(text: &str) -> Result<(&str, &str), Refusal> {
    let inner = text.strip_prefix('<').ok_or(BAD_ADDRESS)?;
    let (mut is_quoted, mut is_escaped, mut end) = (false, false, None);
    for (at, character) in inner.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '>' if !is_quoted => {
                end = Some(at);
                break;
            }
            _ => {}
        }
    }
    let (path, rest) = end.and_then(|end| inner.split_at_checked(end)).ok_or(BAD_ADDRESS)?;
    let rest = rest.strip_prefix('>').unwrap_or(rest);
    if !rest.is_empty() && !rest.starts_with(' ') {
        return Err(SYNTAX);
    }
    // `<@relay,@other:who@where>`: the way is ours to choose, so it is left out (RFC 5321, appendix C).
    let path = if path.starts_with('@') {
        path.split_once(':').map(|(_route, path)| path).ok_or(BAD_ADDRESS)?
    } else {
        path
    };
    Ok((path, rest))
}

fn address(path: &str, is_utf8: bool) -> Result<String, Refusal> {
    let (local, domain) = path.rsplit_once('@').ok_or(BAD_ADDRESS)?;
    if !path.is_ascii() && !is_utf8 {
        return Err(NEEDS_UTF8);
    }
    let is_good = path.len() <= PATH_BYTES_MAX
        && is_local_part(local)
        && is_domain(domain)
        && local.len() <= LOCAL_PART_BYTES_MAX;
    if is_good { Ok(path.to_owned()) } else { Err(BAD_ADDRESS) }
}

fn is_local_part(local: &str) -> bool {
    if let Some(inner) = local.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        let mut is_escaped = false;
        for character in inner.chars() {
            match character {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '"' => return false,
                _ => {}
            }
        }
        return !is_escaped && !inner.is_empty();
    }
    let is_atom =
        |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&b) || !b.is_ascii();
    local.split('.').all(|atom| !atom.is_empty() && atom.bytes().all(is_atom))
}

fn is_domain(domain: &str) -> bool {
    if let Some(literal) = domain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return !literal.is_empty()
            && literal.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.:".contains(&b));
    }
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_' || !b.is_ascii();
    domain.split('.').all(|label| !label.is_empty() && label.bytes().all(is_letter))
}
