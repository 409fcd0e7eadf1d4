//! What is wrong with a field: of an event, a payload, a plan, or of somebody's settings.

/// A field that is not as it must be. Never repeats what stands in it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, thiserror::Error)]
#[error("{field} {problem}")]
pub struct FieldError {
    /// The field's path, such as `envelope.eventId` or `worker.lease_seconds`; `event` for the whole.
    pub field: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl FieldError {
    /// This field, for this reason.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }

    /// The same, with the field inside a section of this name.
    #[must_use]
    pub fn within(self, section: &str) -> Self {
        Self { field: format!("{section}.{}", self.field), ..self }
    }
}

/// All that is wrong, because whoever makes two mistakes wants to hear of both. At least one; as text it is the first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{first}")]
pub struct FieldErrors {
    first: FieldError,
    others: Vec<FieldError>,
}

impl FieldErrors {
    /// All of these, or nothing if there are none.
    pub fn new(errors: impl IntoIterator<Item = FieldError>) -> Option<Self> {
        let mut errors = errors.into_iter();
        Some(Self { first: errors.next()?, others: errors.collect() })
    }

    /// The first of them.
    pub fn first(&self) -> &FieldError {
        &self.first
    }

    /// Each, in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &FieldError> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// The same, with the fields inside a section of this name.
    #[must_use]
    pub fn within(self, section: &str) -> Self {
        let others = self.others.into_iter().map(|error| error.within(section)).collect();
        Self { first: self.first.within(section), others }
    }
}

impl From<FieldError> for FieldErrors {
    fn from(first: FieldError) -> Self {
        Self { first, others: Vec::new() }
    }
}

impl IntoIterator for FieldErrors {
    type Item = FieldError;
    type IntoIter = std::iter::Chain<std::iter::Once<FieldError>, std::vec::IntoIter<FieldError>>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::once(self.first).chain(self.others)
    }
}
