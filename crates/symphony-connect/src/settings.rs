//! What is wrong with settings: all of it at once, because whoever makes two mistakes wants to hear of both.

use std::borrow::Cow;

/// Why settings cannot be used: the field, and what is wrong with it. Never contains a secret. If more is wrong, this is the
/// first, and [`all`](Self::all) has the rest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct SettingsError {
    /// The field's name, as configuration writes it.
    pub field: Cow<'static, str>,
    /// What is wrong and what would be right.
    pub problem: String,
    others: Vec<SettingsError>,
}

impl SettingsError {
    pub(crate) fn new(field: impl Into<Cow<'static, str>>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into(), others: Vec::new() }
    }

    /// This one and whatever else is wrong, as field and problem.
    pub fn all(&self) -> Vec<(String, String)> {
        let own = (self.field.clone().into_owned(), self.problem.clone());
        std::iter::once(own).chain(self.others.iter().flat_map(Self::all)).collect()
    }

    /// The same, with the fields inside a section of this name.
    pub(crate) fn within(mut self, section: &str) -> Self {
        self.field = format!("{section}.{}", self.field).into();
        self.others = self.others.into_iter().map(|other| other.within(section)).collect();
        self
    }
}

/// Gathers what is wrong.
#[derive(Default)]
pub(crate) struct Defects(Vec<SettingsError>);

impl Defects {
    pub(crate) fn add(&mut self, field: impl Into<Cow<'static, str>>, problem: impl Into<String>) {
        self.0.push(SettingsError::new(field, problem));
    }

    /// The value, or `None` once its error is noted.
    pub(crate) fn note<T>(&mut self, result: Result<T, SettingsError>) -> Option<T> {
        result.map_err(|error| self.0.push(error)).ok()
    }

    /// A number within its bounds.
    pub(crate) fn within<N: Copy + PartialOrd + std::fmt::Display>(
        &mut self,
        field: impl Into<Cow<'static, str>>,
        value: N,
        least: N,
        most: N,
    ) {
        if !(least..=most).contains(&value) {
            self.add(field, format!("must be {least} to {most}"));
        }
    }

    /// All of it, if there is any.
    pub(crate) fn into_result(self) -> Result<(), SettingsError> {
        let mut found = self.0.into_iter();
        match found.next() {
            None => Ok(()),
            Some(mut first) => {
                first.others.extend(found);
                Err(first)
            }
        }
    }

    /// The value that was built of parts, unless something is wrong with one.
    pub(crate) fn finish<T>(self, built: Option<T>) -> Result<T, SettingsError> {
        self.into_result()?;
        built.ok_or_else(|| SettingsError::new("settings", "cannot be used"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_speaks_and_the_others_are_kept_under_the_same_section() {
        let mut defects = Defects::default();
        assert_eq!(defects.note(Ok(1)), Some(1));
        defects.within("a", 0, 1, 9);
        defects.add("b", "is missing");
        let error = defects.into_result().map_err(|error| error.within("endpoints.x")).err();
        let all = error.as_ref().map(SettingsError::all).unwrap_or_default();
        let expected = [("endpoints.x.a", "must be 1 to 9"), ("endpoints.x.b", "is missing")];
        assert_eq!(all, expected.map(|(field, problem)| (field.to_owned(), problem.to_owned())));
        assert_eq!(error.map(|e| e.to_string()).as_deref(), Some("endpoints.x.a must be 1 to 9"));
    }
}
