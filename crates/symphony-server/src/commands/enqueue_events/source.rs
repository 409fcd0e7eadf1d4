//! Where events are read from: one, a JSON list, one a line, or one after the other.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::cli::EnqueueEvent;
use crate::output::Failure;

/// Texts of events, each with where it stood.
pub(super) enum Source {
    /// Given on the command line.
    One(Option<String>),
    /// Read whole: a list, or documents over several lines.
    Items { items: std::vec::IntoIter<Box<RawValue>>, number: usize },
    /// Read as it comes. The first line that is not blank has been read already.
    Lines { reader: Box<dyn BufRead>, number: usize, first: Option<String> },
}

impl Source {
    pub(super) fn open(options: &EnqueueEvent) -> Result<Self, Failure> {
        match (&options.event, &options.file) {
            (Some(event), _) => Ok(Self::One(Some(event.clone()))),
            (None, Some(path)) if path.as_os_str() == "-" => {
                Self::read("standard input", Box::new(BufReader::new(io::stdin())))
            }
            (None, Some(path)) => {
                let name = path.display().to_string();
                let file = open(path)
                    .map_err(|error| Failure::new(format!("cannot read {name}: {error}")))?;
                Self::read(&name, Box::new(BufReader::new(file)))
            }
            (None, None) => Err(Failure::new("give a FILE of events, - or --event")),
        }
    }

    /// What kind of input it is, by its first line that is not blank.
    fn read(name: &str, mut reader: Box<dyn BufRead>) -> Result<Self, Failure> {
        let unreadable = |error: io::Error| Failure::new(format!("cannot read {name}: {error}"));
        let (mut text, mut number) = (String::new(), 0);
        while text.trim_start_matches('\u{feff}').trim().is_empty() {
            text.clear();
            number += 1;
            if reader.read_line(&mut text).map_err(unreadable)? == 0 {
                return Err(Failure::new(format!("{name} is empty: there is no event in it")));
            }
        }
        let first = text.trim_start_matches('\u{feff}').trim_start();
        let is_list = first.starts_with('[');
        let is_begun = first.starts_with('{') && serde_json::from_str::<IgnoredAny>(first).is_err();
        if !is_list && !is_begun {
            return Ok(Self::Lines { reader, number, first: Some(first.to_owned()) });
        }
        let mut whole = first.to_owned();
        reader.read_to_string(&mut whole).map_err(unreadable)?;
        let items: Result<Vec<Box<RawValue>>, serde_json::Error> = if is_list {
            serde_json::from_str(&whole)
        } else {
            serde_json::Deserializer::from_str(&whole).into_iter().collect()
        };
        let items = items.map_err(|error| {
            let line = error.line() + number - 1;
            Failure::new(format!(
                "{name} is not valid JSON: line {line}, column {}",
                error.column()
            ))
        })?;
        Ok(Self::Items { items: items.into_iter(), number: 0 })
    }

    /// The next one, and where it stood.
    pub(super) fn next(&mut self) -> Result<Option<(String, String)>, Failure> {
        match self {
            Self::One(text) => Ok(text.take().map(|text| ("--event".to_owned(), text))),
            Self::Items { items, number } => {
                *number += 1;
                Ok(items.next().map(|item| (format!("item {number}"), item.get().to_owned())))
            }
            Self::Lines { reader, number, first } => {
                if let Some(text) = first.take() {
                    return Ok(Some((format!("line {number}"), text)));
                }
                loop {
                    let mut text = String::new();
                    *number += 1;
                    let bytes = reader
                        .read_line(&mut text)
                        .map_err(|error| Failure::new(format!("line {number}: {error}")))?;
                    if bytes == 0 {
                        return Ok(None);
                    }
                    if !text.trim().is_empty() {
                        return Ok(Some((format!("line {number}"), text)));
                    }
                }
            }
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    // Opening a folder works, and reading it fails with words nobody understands.
    if file.metadata()?.is_dir() {
        return Err(io::Error::other("it is a folder"));
    }
    Ok(file)
}
