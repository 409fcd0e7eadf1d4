//! Whether a program sent a message, and which messages it answers: what a brake for mail loops goes by.

use uuid::Uuid;

use super::mime::ParsedMail;
use crate::bounds::mime::ADDRESSES_MAX;

/// A program sent it, or a list: `Auto-Submitted` (RFC 3834), `Precedence`, `List-Id`.
pub fn is_automatic(mail: &ParsedMail) -> bool {
    mail.headers.iter().any(|(name, value)| {
        let value = value.trim().to_ascii_lowercase();
        match name.to_ascii_lowercase().as_str() {
            "auto-submitted" => value.split(';').next().is_some_and(|word| word.trim() != "no"),
            "precedence" => ["bulk", "junk", "list"].contains(&value.as_str()),
            "list-id" => true,
            _ => false,
        }
    })
}

/// The ids in its `Message-ID`, `In-Reply-To` and `References` that are of the form of ours: `<uuid@…>`.
pub fn referenced_ids(mail: &ParsedMail) -> Vec<Uuid> {
    let named = ["message-id", "in-reply-to", "references"];
    mail.headers
        .iter()
        .filter(|(name, _)| named.contains(&name.to_ascii_lowercase().as_str()))
        .flat_map(|(_, value)| value.split('<').skip(1))
        .filter_map(|id| id.split_once('@')?.0.parse().ok())
        .take(ADDRESSES_MAX)
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::parse_mail;
    use super::*;

    #[test]
    fn what_programs_and_lists_send_is_known_by_its_headers() {
        for (head, expected) in [
            ("Subject: hello", false),
            ("Auto-Submitted: no", false),
            ("Auto-Submitted: NO; by=hand", false),
            ("Auto-Submitted: auto-replied", true),
            ("auto-submitted: auto-generated; owner-email=\"a@b\"", true),
            ("Precedence: Bulk", true),
            ("Precedence: first-class", false),
            ("List-Id: <news.example.com>", true),
        ] {
            let mail = parse_mail(format!("{head}\r\n\r\nhello\r\n").as_bytes()).unwrap();
            assert_eq!(is_automatic(&mail), expected, "{head}");
        }
    }

    #[test]
    fn ids_of_ours_are_found_wherever_a_message_names_them() {
        let ours = ["0190a8b1-0c51-8d0a-8f0e-5d3c2b7a9e10", "0190a8b1-0c51-8d0a-8f0e-5d3c2b7a9e11"];
        let head = format!(
            "Message-ID: <x@y>\r\nIn-Reply-To: <{}@app.example>\r\nReferences: <a@b>\r\n <{}@app.example>",
            ours[0], ours[1]
        );
        let mail = parse_mail(format!("{head}\r\n\r\nhello\r\n").as_bytes()).unwrap();
        let found: Vec<String> = referenced_ids(&mail).iter().map(Uuid::to_string).collect();
        assert_eq!(found, ours);
    }
}
