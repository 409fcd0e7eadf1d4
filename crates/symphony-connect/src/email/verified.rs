//! Whether somebody we trust has verified a message's sender: `Authentication-Results` (RFC 8601) of the mail server in
//! front. Without it `From` is what anybody wrote.

use super::mime::ParsedMail;
use crate::bounds::mime::HEADER_BYTES_MAX;

/// The sender's address, if the topmost `Authentication-Results` is of this server and says that DMARC passed for the
/// domain of `From`, or that a signature of exactly this domain is good (DKIM). SPF alone says nothing about `From`.
pub fn verified_sender(mail: &ParsedMail, authserv_id: &str) -> Option<String> {
    let has_one_from =
        mail.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("from")).count() == 1;
    if !has_one_from || !mail.has_one_sender {
        return None;
    }
    let address = mail.from.as_ref()?.address.to_lowercase();
    let (_, domain) = address.rsplit_once('@')?;
    // A server writes its own above all others; those below are what the message came with.
    let (_, results) = mail
        .headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("authentication-results"))
        .filter(|(_, value)| value.len() < HEADER_BYTES_MAX)?;
    let results = without_comments(results)?;
    let mut parts = results.split(';');
    let server = parts.next()?.split_whitespace().next()?;
    if !server.eq_ignore_ascii_case(authserv_id) {
        return None;
    }
    parts.any(|part| vouches(part, domain)).then_some(address)
}

/// One method's result, such as `dmarc=pass header.from=example.com`.
fn vouches(part: &str, domain: &str) -> bool {
    let mut words = part.split_whitespace();
    let property = match words.next().map(str::to_ascii_lowercase).as_deref() {
        Some("dmarc=pass" | "dmarc/1=pass") => "header.from",
        Some("dkim=pass" | "dkim/1=pass") => "header.d",
        _ => return false,
    };
    words.any(|word| {
        let (name, value) = word.split_once('=').unwrap_or_default();
        let value = value.trim_matches('"');
        name.eq_ignore_ascii_case(property) && value.eq_ignore_ascii_case(domain)
    })
}

/// `None` where a comment or a string has no end, or a string holds what could be mistaken for the end of a part.
fn without_comments(text: &str) -> Option<String> {
    let (mut kept, mut depth, mut is_quoted) = (String::with_capacity(text.len()), 0_u32, false);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' if is_quoted || depth > 0 => {
                characters.next()?;
            }
            '"' if depth == 0 => {
                is_quoted = !is_quoted;
                kept.push(character);
            }
            ';' | ' ' | '\t' if is_quoted => return None,
            '(' if !is_quoted => depth += 1,
            ')' if !is_quoted => {
                depth = depth.checked_sub(1)?;
                kept.push(' ');
            }
            _ if depth == 0 => kept.push(character),
            _ => {}
        }
    }
    (depth == 0 && !is_quoted).then_some(kept)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::parse_mail;
    use super::*;

    fn verified(head: &str) -> Option<String> {
        let mail = parse_mail(format!("{head}\r\nSubject: hello\r\n\r\nworld\r\n").as_bytes());
        verified_sender(&mail.unwrap(), "mx.example.com")
    }

    #[test]
    fn a_sender_is_verified_by_the_server_in_front_and_by_nobody_else() {
        let kim = "From: Kim <Kim@client.example>";
        for (results, is_verified) in [
            // RFC 8601, appendix B.
            ("mx.example.com; dkim=pass (good signature) header.d=client.example", true),
            (
                "MX.example.com 1; spf=pass smtp.mailfrom=client.example; dmarc=pass header.from=Client.example",
                true,
            ),
            ("mx.example.com; dmarc=pass policy.dmarc=none header.from=\"client.example\"", true),
            ("mx.example.com; spf=pass smtp.mailfrom=client.example", false),
            ("mx.example.com; dkim=fail header.d=client.example", false),
            ("mx.example.com; dkim=pass header.d=evil.example", false),
            ("mx.example.com; dkim=pass header.d=client.example.evil.example", false),
            ("mx.example.com; none", false),
            ("mx.evil.example; dkim=pass header.d=client.example", false),
            ("mx.example.com (; dkim=pass header.d=client.example)", false),
            ("mx.example.com; dkim=fail reason=\"; dkim=pass header.d=client.example\"", false),
            (
                "mx.example.com; dkim=fail reason=\"a\\\"\" (dkim=pass header.d=client.example",
                false,
            ),
        ] {
            let head = format!("Authentication-Results: {results}\r\n{kim}");
            let expected = is_verified.then(|| "kim@client.example".to_owned());
            assert_eq!(verified(&head), expected, "{results}");
        }
        let pass = "Authentication-Results: mx.example.com; dmarc=pass header.from=client.example";
        assert_eq!(verified(kim), None);
        let under_another =
            format!("Authentication-Results: other.example; none\r\n{pass}\r\n{kim}");
        assert_eq!(verified(&under_another), None, "the message may have come with it");
        for two in [
            format!("{pass}\r\n{kim}\r\nFrom: ann@client.example"),
            format!("{pass}\r\nFrom: kim@client.example, ann@client.example"),
        ] {
            assert_eq!(verified(&two), None, "{two}");
        }
    }
}
