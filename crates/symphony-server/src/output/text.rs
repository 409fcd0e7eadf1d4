//! Stored text, for people: what would act on a terminal or cannot be seen is shown as an escape.

/// What others wrote, as one line that shows all of it: line breaks, control characters, marks that turn the direction of
/// writing and characters nobody sees become `\n`, `\u{1b}`, `\u{202e}`. A space after one of these is shown as `␣`, where no
/// line is broken: the rest must not begin a line of its own. To escape it twice changes nothing.
pub fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut suspect = false;
    for c in text.chars() {
        if is_hidden(c) {
            suspect = true;
            shown.extend(c.escape_default());
        } else {
            shown.push(if suspect && c == ' ' { '␣' } else { c });
        }
    }
    shown
}

/// A JSON document that shows the same: such a character can stand only in a string, where `\u202e` means it.
pub fn plain_json(document: &str) -> String {
    let mut shown = String::with_capacity(document.len());
    for c in document.chars() {
        if is_hidden(c) && c != '\n' {
            for unit in c.encode_utf16(&mut [0; 2]) {
                shown.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            shown.push(c);
        }
    }
    shown
}

/// A control character, or one that is invisible.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180b}'..='\u{180f}' // soft hyphen, joiners, marks of direction
            | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}' | '\u{ffa0}' // fillers
            | '\u{200b}'..='\u{200f}' // zero width, marks of direction
            | '\u{2028}'..='\u{202e}' // line and paragraph separators, embeddings, overrides
            | '\u{2060}'..='\u{206f}' // invisible operators, isolates
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' // variation selectors, byte order mark
            | '\u{e0000}'..='\u{e0fff}') // tags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_or_hides_is_shown_and_everything_else_left_alone() {
        for (stored, shown) in [
            ("inv-1", "inv-1"),
            ("Zürich → 東京 \\ 10 €", "Zürich → 東京 \\ 10 €"),
            ("a\n  2027-01-31 DISPATCHED", "a\\n␣␣2027-01-31␣DISPATCHED"),
            ("\x1b[2Jgone\r\t\x7f\u{9b}", "\\u{1b}[2Jgone\\r\\t\\u{7f}\\u{9b}"),
            ("\u{202e}001\u{202c} \u{2066}\u{200f}", "\\u{202e}001\\u{202c}␣\\u{2066}\\u{200f}"),
            ("in\u{200b}v\u{ad}-\u{feff}1\u{e0041}", "in\\u{200b}v\\u{ad}-\\u{feff}1\\u{e0041}"),
            ("a\u{2028}b\u{85}c", "a\\u{2028}b\\u{85}c"),
        ] {
            assert_eq!(plain(stored), shown);
            assert_eq!(plain(&plain(stored)), shown, "twice");
        }
    }

    #[test]
    fn json_keeps_the_value_and_shows_the_character() {
        let stored = "a\u{202e}b\u{7f}\u{e0041}\n\x1b";
        let shown = plain_json(&serde_json::json!({ "id": stored }).to_string());
        assert_eq!(shown, r#"{"id":"a\u202eb\u007f\udb40\udc41\n\u001b"}"#);
        let read: serde_json::Value = serde_json::from_str(&shown).unwrap_or_default();
        assert_eq!(read.get("id").and_then(|id| id.as_str()), Some(stored));
    }
}
