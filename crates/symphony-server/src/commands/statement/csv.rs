//! The statement as text: CSV with a header that names the columns, in any order, beside any others.

use super::compare::Entry;

/// Its lines, in order. A file that cannot be read at all is refused whole; a line that cannot says so itself.
pub(super) fn entries(text: &str) -> Result<Vec<Entry>, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let first = text.lines().next().unwrap_or_default();
    let separator = if first.contains(';') && !first.contains(',') { ';' } else { ',' };
    let mut records = records(text, separator)?.into_iter();
    let header: Vec<String> = match records.next() {
        Some((_, header)) => header.iter().map(|name| name.trim().to_lowercase()).collect(),
        None => return Err("the statement is empty".to_owned()),
    };
    let column = |name: &str| {
        let mut found = header.iter().enumerate().filter(|(_, column)| *column == name);
        match (found.next(), found.next()) {
            (Some((index, _)), None) => Ok(index),
            (Some(_), Some(_)) => Err(format!("the statement has two columns {name}")),
            (None, _) => Err(format!(
                "the statement has no column {name}: its first line must name key, reference and result"
            )),
        }
    };
    let (key, reference, result) = (column("key")?, column("reference")?, column("result")?);
    let entries = records.filter(|(_, record)| record.iter().any(|field| !field.trim().is_empty()));
    let field = |record: &[String], index: usize| {
        record.get(index).map(|field| field.trim().to_owned()).unwrap_or_default()
    };
    Ok(entries
        .map(|(line, record)| Entry {
            line,
            key: one_spelling(field(&record, key)),
            reference: Some(field(&record, reference)).filter(|text| !text.is_empty()),
            result: field(&record, result).to_lowercase(),
        })
        .collect())
}

/// Fields by RFC 4180: quoted ones may hold separators, line breaks and doubled quotes. Each with the line it begins on.
fn records(text: &str, separator: char) -> Result<Vec<(usize, Vec<String>)>, String> {
    let mut records = Vec::new();
    let (mut record, mut field) = (Vec::new(), String::new());
    let (mut line, mut begins, mut quoted) = (1, 1, false);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        line += usize::from(character == '\n');
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                field.push('"');
                characters.next();
            }
            '"' if quoted => quoted = false,
            '"' if field.is_empty() => quoted = true,
            _ if quoted => field.push(character),
            '\r' => {}
            '\n' => {
                record.push(std::mem::take(&mut field));
                records.push((begins, std::mem::take(&mut record)));
                begins = line;
            }
            _ if character == separator => record.push(std::mem::take(&mut field)),
            _ => field.push(character),
        }
    }
    if quoted {
        return Err(format!("a quote that is opened in line {begins} is never closed"));
    }
    if !field.is_empty() || !record.is_empty() {
        record.push(field);
        records.push((begins, record));
    }
    Ok(records)
}

/// Two lines about one key must be seen as such, however the bank writes it.
fn one_spelling(key: String) -> String {
    key.parse::<uuid::Uuid>().map_or(key, |key| key.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(usize, String, Option<String>, String)> {
        let read = entries(text).unwrap().into_iter();
        read.map(|entry| (entry.line, entry.key, entry.reference, entry.result)).collect()
    }

    #[test]
    fn a_key_has_one_spelling() {
        let key = "6F1F7E0C-4D8E-4B8F-9D59-0D3D2F0A1B11";
        assert_eq!(one_spelling(key.to_owned()), key.to_lowercase());
        assert_eq!(one_spelling("TX 4711".to_owned()), "TX 4711");
    }

    #[test]
    fn columns_are_found_by_their_names_whatever_stands_around_them() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            read(
                "\u{feff}Date;Result;KEY;Reference\r\n1.1.;EXECUTED;k1;R-1\r\n\r\n;;;\n2.1.;refused;k2;\n"
            ),
            [
                (2, "k1".to_owned(), some("R-1"), "executed".to_owned()),
                (5, "k2".to_owned(), None, "refused".to_owned()),
            ]
        );
        assert_eq!(
            read(
                "key,reference,result,text\nk1,\"R,\"\"1\"\"\",executed,\"two\nlines\"\nk2,R2,executed"
            ),
            [
                (2, "k1".to_owned(), some("R,\"1\""), "executed".to_owned()),
                (4, "k2".to_owned(), some("R2"), "executed".to_owned()),
            ]
        );
    }

    #[test]
    fn what_is_no_statement_is_refused_with_what_is_missing() {
        for (text, expected) in [
            ("", "empty"),
            ("key,reference\n", "no column result"),
            ("key,key,reference,result\n", "two columns key"),
            ("key,reference,result\nk,\"R,executed\n", "line 2 is never closed"),
        ] {
            let error = entries(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
