//! Tables and sentences that fit the terminal.

use unicode_width::UnicodeWidthChar as _;

use super::terminal::{
    columns_of, error_width, has_colours, painted, prose_width, state_tone, width,
};
use super::text::plain;

const GAP: usize = 2;
/// A word of this length has room in any table: a time, a short name.
const UNBROKEN_COLUMNS_MAX: usize = 20;
/// Where a command stands that has no room beside its row.
const BELOW: &str = "    ";

/// A column: its name, and what may happen to it where the terminal is narrow.
#[derive(Debug, Clone, Copy)]
pub struct Column<'a> {
    name: &'a str,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Wrapped,
    Whole,
    Id,
    Short,
    Number,
    State,
    Command,
}

/// Text: wrapped where it has no room.
impl<'a> From<&'a str> for Column<'a> {
    fn from(name: &'a str) -> Self {
        Column { name, kind: Kind::Wrapped }
    }
}

/// Never cut or wrapped: an id that is copied from here, a time.
pub fn whole(name: &str) -> Column<'_> {
    Column { name, kind: Kind::Whole }
}

/// Never cut, and left out where the row's command, which repeats it, stands under the row.
pub fn id(name: &str) -> Column<'_> {
    Column { name, kind: Kind::Id }
}

/// Cut with `…` where it has no room: what the row's id or `--json` shows in full.
pub fn short(name: &str) -> Column<'_> {
    Column { name, kind: Kind::Short }
}

/// Figures, set to the right; a state among them is coloured.
pub fn number(name: &str) -> Column<'_> {
    Column { name, kind: Kind::Number }
}

/// A state, coloured by its first word.
pub fn states(name: &str) -> Column<'_> {
    Column { name, kind: Kind::State }
}

/// A command to copy: under its row where there is no room beside it, continued with `\` where even a line is too short.
pub fn command(name: &str) -> Column<'_> {
    Column { name, kind: Kind::Command }
}

/// A table for people, as wide as the terminal allows. Cells are stored text: they are escaped here. A column of which
/// neither the name nor a cell says anything is left out.
pub fn table<'a, const N: usize, C: Into<Column<'a>>>(
    header: [C; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    table_of(&header.map(Into::into), rows)
}

/// The same with as many columns as there are.
pub fn table_of<R: AsRef<[String]>>(
    columns: &[Column<'_>],
    rows: impl IntoIterator<Item = R>,
) -> String {
    let escaped = |row: R| row.as_ref().iter().map(|cell| plain(cell)).collect();
    let rows: Vec<Vec<String>> = rows.into_iter().map(escaped).collect();
    layout(columns, &rows, width(), has_colours())
}

/// A sentence after its lead (`OK   server       `): where it has no room it goes on under its own beginning. It may have
/// colours, so stored text in it is escaped by whoever writes it.
pub fn hanging(lead: &str, text: &str) -> String {
    hang(lead, text, prose_width())
}

/// The same, for standard error.
pub(super) fn hanging_error(lead: &str, text: &str) -> String {
    hang(lead, text, error_width())
}

/// A text whose lines fit the terminal: what is too long goes on, two columns deeper than its line begins.
pub(super) fn fitted(text: &str) -> String {
    let Some(width) = prose_width() else { return text.to_owned() };
    let mut shown = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let content = line.trim_end_matches('\n');
        if columns_of(content) <= width {
            shown.push_str(line);
            continue;
        }
        let (lead, rest) = content.split_at(content.len() - content.trim_start_matches(' ').len());
        let deeper = format!("{lead}  ");
        for (index, part) in
            wrap(rest, width.saturating_sub(columns_of(&deeper)), false).iter().enumerate()
        {
            shown.push_str(if index == 0 { lead } else { &deeper });
            shown.push_str(part);
            shown.push('\n');
        }
        if !line.ends_with('\n') {
            shown.pop();
        }
    }
    shown
}

fn hang(lead: &str, text: &str, width: Option<usize>) -> String {
    let indent = columns_of(lead);
    let lines = match width {
        Some(width) => wrap(text, width.saturating_sub(indent).max(20), false),
        None => vec![text.to_owned()],
    };
    let mut shown = String::new();
    for (index, line) in lines.iter().enumerate() {
        let before = if index == 0 { lead } else { &" ".repeat(indent) };
        shown.push_str(format!("{before}{line}").trim_end());
        shown.push('\n');
    }
    shown
}

fn layout(columns: &[Column<'_>], rows: &[Vec<String>], width: usize, colours: bool) -> String {
    let cells = |index: usize| rows.iter().filter_map(move |row| row.get(index));
    let widest_cell: Vec<usize> = (0..columns.len())
        .map(|index| cells(index).map(|cell| columns_of(cell)).max().unwrap_or(0))
        .collect();
    // A state is never broken within a word, another text only within a long one.
    let widest_word: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(index, column)| {
            let word = cells(index).map(|cell| longest_word(cell)).max().unwrap_or(0);
            match column.kind {
                Kind::Wrapped => word.min(UNBROKEN_COLUMNS_MAX),
                Kind::Short => 0,
                _ => word,
            }
        })
        .collect();
    let mut widths: Vec<usize> = columns
        .iter()
        .zip(&widest_cell)
        .map(|(column, cell)| columns_of(column.name).max(*cell))
        .collect();
    let total = |widths: &[usize]| {
        let shown = widths.iter().filter(|width| **width > 0);
        shown.map(|width| width + GAP).sum::<usize>().saturating_sub(GAP)
    };
    let below = total(&widths) > width;
    for (column, width) in columns.iter().zip(&mut widths) {
        if below && [Kind::Command, Kind::Id].contains(&column.kind) {
            *width = 0;
        }
    }
    // What costs least goes first: a heading over two lines, a wrapped text, a shortened one.
    let stages: [(&[Kind], usize); 5] = [
        (&[Kind::Wrapped, Kind::Whole, Kind::Short, Kind::Number, Kind::State], usize::MAX),
        (&[Kind::Wrapped], 20),
        (&[Kind::Short], 10),
        (&[Kind::Wrapped, Kind::State], 8),
        (&[Kind::Short], 6),
    ];
    for (kinds, floor) in stages {
        while total(&widths) > width {
            let least = |index: usize, column: &Column<'_>| {
                let cell = widest_word.get(index).copied().unwrap_or(0);
                let word = longest_word(column.name).max(cell);
                widest_cell.get(index).copied().unwrap_or(0).min(floor).max(word)
            };
            let shrinkable = columns.iter().zip(&mut widths).enumerate();
            let widest = shrinkable
                .filter(|(index, (column, width))| {
                    kinds.contains(&column.kind) && **width > least(*index, column)
                })
                .max_by_key(|(_, (_, width))| **width);
            let Some((_, (_, widest))) = widest else { break };
            *widest -= 1;
        }
    }

    let names: Vec<String> = columns.iter().map(|column| column.name.to_owned()).collect();
    let mut text = row_lines(columns, &names, &widths, None);
    for row in rows {
        text.push_str(&row_lines(columns, row, &widths, Some(colours)));
        for (column, cell) in columns.iter().zip(row) {
            if below && column.kind == Kind::Command && !cell.is_empty() {
                text.push_str(&continued(BELOW, cell, width));
            }
        }
    }
    text
}

/// One row, on as many lines as its fullest cell needs. Names have no colours and are wrapped, never cut.
fn row_lines(
    columns: &[Column<'_>],
    cells: &[String],
    widths: &[usize],
    colours: Option<bool>,
) -> String {
    let shown: Vec<(&Column<'_>, usize, Option<super::Tone>, Vec<String>)> = columns
        .iter()
        .zip(cells)
        .zip(widths)
        .filter(|(_, width)| **width > 0)
        .map(|((column, cell), width)| {
            let lines = match (column.kind, colours) {
                (Kind::Short, Some(_)) => vec![cut(cell, *width)],
                _ => wrap(cell, *width, true),
            };
            let tone = (matches!(column.kind, Kind::State | Kind::Number) && colours == Some(true))
                .then(|| state_tone(cell))
                .flatten();
            (column, *width, tone, lines)
        })
        .collect();
    let height = shown.iter().map(|(.., lines)| lines.len()).max().unwrap_or(0);
    let mut text = String::new();
    for index in 0..height {
        let mut line = String::new();
        for (column, width, tone, lines) in &shown {
            let cell = lines.get(index).map_or("", String::as_str);
            let room = " ".repeat(width.saturating_sub(columns_of(cell)));
            let painted = tone.map_or_else(|| cell.to_owned(), |tone| painted(tone, cell));
            line.push_str(&match column.kind {
                Kind::Number => room + &painted,
                _ => painted + &room,
            });
            line.push_str(&" ".repeat(GAP));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A command to copy, at its place in a text. It goes on with `\\` on the next line where it has no room.
pub fn copyable(lead: &str, command: &str) -> String {
    continued(lead, command, width())
}

/// A line is broken between arguments, never within quotes nor between an option and its value.
fn continued(lead: &str, command: &str, width: usize) -> String {
    let mut quoted = false;
    let mut arguments = command
        .split(|c: char| {
            quoted ^= c == '\'';
            c == ' ' && !quoted
        })
        .peekable();
    let (mut text, mut line) = (String::new(), lead.to_owned());
    let mut is_empty = true;
    while let Some(argument) = arguments.next() {
        let value = argument
            .starts_with('-')
            .then(|| arguments.next_if(|next| !next.starts_with('-')))
            .flatten();
        let unit = value.map_or_else(|| argument.to_owned(), |value| format!("{argument} {value}"));
        if !is_empty && columns_of(&line) + columns_of(&unit) + 3 > width {
            text.push_str(&line);
            text.push_str(" \\\n");
            line = format!("{}{BELOW}", " ".repeat(columns_of(lead)));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(&unit);
        is_empty = false;
    }
    text + &line + "\n"
}

fn longest_word(text: &str) -> usize {
    text.split(' ').map(columns_of).max().unwrap_or(0)
}

fn cut(text: &str, width: usize) -> String {
    if columns_of(text) <= width {
        return text.to_owned();
    }
    let (start, _) = split_at_column(text, width.saturating_sub(1));
    format!("{start}…")
}

/// Between words; a word that is longer than a line is broken only if that is asked for.
fn wrap(text: &str, width: usize, breaks_words: bool) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word = word;
        let room = lines.last().map_or(0, |line| width.saturating_sub(columns_of(line)));
        let is_first = lines.last().is_some_and(String::is_empty);
        if !is_first && columns_of(word) + 1 > room {
            lines.push(String::new());
        }
        while breaks_words && columns_of(word) > width {
            let (start, rest) = split_at_column(word, width);
            if start.is_empty() {
                break;
            }
            if let Some(line) = lines.last_mut() {
                line.push_str(start);
            }
            lines.push(String::new());
            word = rest;
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

fn split_at_column(text: &str, column: usize) -> (&str, &str) {
    let mut taken = 0;
    let end = text
        .char_indices()
        .find(|(_, c)| {
            taken += c.width().unwrap_or(0);
            taken > column
        })
        .map_or(text.len(), |(index, _)| index);
    text.split_at_checked(end).unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> [Column<'static>; 5] {
        [
            whole("id"),
            short("instruction"),
            states("state"),
            number("dead letters"),
            command("next"),
        ]
    }

    fn rows() -> Vec<Vec<String>> {
        [
            [
                "a1",
                "invoice-2027-01-31-000001",
                "FAILED",
                "1,024",
                "symphony redrive a1 --reason 'the bank is back'",
            ],
            ["b2", "inv-2", "PARKED", "7", "symphony show b2"],
        ]
        .map(|row| row.map(str::to_owned).to_vec())
        .to_vec()
    }

    #[test]
    fn a_wide_terminal_shows_every_row_on_its_line() {
        let text = layout(&columns(), &rows(), 120, false);
        assert_eq!(
            text,
            "id  instruction                state   dead letters  next\n\
             a1  invoice-2027-01-31-000001  FAILED         1,024  symphony redrive a1 --reason 'the bank is back'\n\
             b2  inv-2                      PARKED             7  symphony show b2\n"
        );
    }

    #[test]
    fn a_narrow_one_puts_commands_below_then_breaks_headings_then_shortens() {
        let text = layout(&columns(), &rows(), 40, false);
        assert_eq!(
            text,
            "id  instruction          state      dead\n\
             \x20                                letters\n\
             a1  invoice-2027-01-31…  FAILED    1,024\n    \
                 symphony redrive a1 \\\n        \
                     --reason 'the bank is back'\n\
             b2  inv-2                PARKED        7\n    \
                 symphony show b2\n"
        );
        assert!(text.lines().all(|line| columns_of(line) <= 40), "{text}");
    }

    #[test]
    fn an_id_is_whole_or_stands_in_its_command_alone() {
        let id_of = "0199a3c1-7d52-7c11-8a53-2f6f1f0a9b11";
        let rows =
            vec![vec![id_of.to_owned(), "acme".to_owned(), format!("symphony show {id_of}")]];
        let columns = [id("id"), short("participant"), command("next")];
        assert_eq!(
            layout(&columns, &rows, 120, false),
            format!(
                "id                                    participant  next\n\
                 {id_of}  acme         symphony show {id_of}\n"
            )
        );
        assert_eq!(
            layout(&columns, &rows, 80, false),
            format!("participant\nacme\n    symphony show {id_of}\n")
        );
    }

    #[test]
    fn colours_take_no_room_and_stored_text_cannot_bring_its_own() {
        let text = layout(&columns(), &rows(), 120, true);
        assert!(text.contains("\x1b[31mFAILED\x1b[0m         1,024"), "{text}");
        let text = table(["id"], [["\x1b[31ma\nb".to_owned()]]);
        assert_eq!(text, "id\n\\u{1b}[31ma\\nb\n");
    }

    #[test]
    fn a_sentence_goes_on_under_its_own_beginning() {
        let lead = painted(crate::output::Tone::Good, "OK") + "   ";
        let text = hang(&lead, "every role has exactly what is declared", Some(30));
        assert_eq!(text, format!("{lead}every role has exactly\n     what is declared\n"));
        assert_eq!(
            hang("OK   ", "in a pipe it stays on its line", None),
            "OK   in a pipe it stays on its line\n"
        );
        let long = "an-id-that-is-longer-than-the-line-and-is-copied";
        assert_eq!(hang("", &format!("see {long}"), Some(30)), format!("see\n{long}\n"));
    }

    #[test]
    fn wide_characters_are_measured_as_they_are_drawn() {
        let rows = [["東京".to_owned(), "x".to_owned()], ["ab".to_owned(), "y".to_owned()]];
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.to_vec()).collect();
        let text = layout(&[whole("at"), whole("of")], &rows, 80, false);
        assert_eq!(text, "at    of\n東京  x\nab    y\n");
        assert_eq!(cut("東京都", 4), "東…");
        assert_eq!(wrap("東京都庁", 4, true), ["東京", "都庁"]);
    }
}
