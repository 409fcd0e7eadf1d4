//! What is wrong with a configuration: every defect with its field, who set it, what is wrong and the fix.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use symphony::{FieldError, FieldErrors};
use toml::{Table, Value};

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigDefect {
    /// The setting, as the file writes it: `rails.sepa.timeout_ms`; and what is wrong with it.
    #[serde(flatten)]
    pub error: FieldError,
    /// Who set it: the file, a variable of the environment, a flag. `None`: nobody, it is a default.
    pub source: Option<String>,
}

impl fmt::Display for ConfigDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = &self.source {
            write!(f, "{source}: ")?;
        }
        write!(f, "{}", self.error)
    }
}

/// Who set what.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    file: Option<(String, Table)>,
    /// From a setting's path to the variable or flag that set it.
    over: BTreeMap<String, String>,
}

impl Sources {
    pub(super) fn set_file(&mut self, shown: &str, table: Table) {
        self.file = Some((shown.to_owned(), table));
    }

    /// A variable or a flag has set this.
    pub fn set_by(&mut self, field: &str, who: &str) {
        self.over.insert(field.to_owned(), who.to_owned());
    }

    /// Who set a field, or would have: a key that is missing is missing in the file that has its section.
    fn of(&self, field: &str) -> Option<String> {
        if let Some(who) = self.over.get(field) {
            return Some(who.clone());
        }
        let (shown, table) = self.file.as_ref()?;
        let parts: Vec<&str> = field.split('.').map(without_index).collect();
        let (section, key) = parts.split_at(parts.len().saturating_sub(1));
        let mut below = table;
        for part in section {
            match below.get(*part) {
                Some(Value::Table(inner)) => below = inner,
                // Inside a list, or inside something that is no section.
                Some(_) => return Some(shown.clone()),
                None => return None,
            }
        }
        let is_named_section = section.len() > 1;
        let is_set = key.first().is_some_and(|key| below.contains_key(*key));
        (is_set || is_named_section).then(|| shown.clone())
    }
}

/// `routes[0]` is in `routes`.
fn without_index(part: &str) -> &str {
    part.split('[').next().unwrap_or(part)
}

/// Gathers what is wrong, so that a person hears of all of it at once.
#[derive(Debug, Clone, Default)]
pub struct Defects {
    sources: Sources,
    found: Vec<ConfigDefect>,
    /// Sections that could not be read: what others miss of them is no second defect.
    unread: BTreeSet<String>,
}

impl Defects {
    pub(super) fn new(sources: Sources) -> Self {
        Self { sources, ..Self::default() }
    }

    /// Note one. What was left out because it could not be read is not missing as well.
    pub fn add(&mut self, field: &str, problem: impl Into<String>) {
        if self.unread.contains(field) {
            return;
        }
        let defect =
            ConfigDefect { source: self.sources.of(field), error: FieldError::new(field, problem) };
        if !self.found.contains(&defect) {
            self.found.push(defect);
        }
    }

    /// Note all that an adapter found in this section; the value, if it found nothing.
    pub fn note<T, E: Into<FieldErrors>>(
        &mut self,
        section: &str,
        result: Result<T, E>,
    ) -> Option<T> {
        result.map_err(|errors| self.note_all(section, errors.into())).ok()
    }

    /// Note these, of settings in this section.
    pub fn note_all(&mut self, section: &str, errors: impl IntoIterator<Item = FieldError>) {
        for error in errors {
            let error = error.within(section);
            self.add(&error.field, error.problem);
        }
    }

    /// A section could not be read, and is left out.
    pub(super) fn leave_out(&mut self, section: &str) {
        self.unread.insert(section.to_owned());
    }

    /// Whether a section was left out, or one below it.
    pub fn has_left_out(&self, section: &str) -> bool {
        let below = format!("{section}.");
        self.unread.iter().any(|one| one == section || one.starts_with(&below))
    }

    /// Who set what.
    pub fn sources_mut(&mut self) -> &mut Sources {
        &mut self.sources
    }

    /// Whether something is wrong.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// What is wrong.
    pub fn into_found(self) -> Vec<ConfigDefect> {
        self.found
    }
}
