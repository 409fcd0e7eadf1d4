//! What is wrong with settings: all of it at once, because whoever makes two mistakes wants to hear of both.

use symphony::{FieldError, FieldErrors};

/// Gathers what is wrong.
#[derive(Default)]
pub(crate) struct Defects(Vec<FieldError>);

impl Defects {
    pub(crate) fn add(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        self.0.push(FieldError::new(field, problem));
    }

    /// The value, or `None` once its error is noted.
    pub(crate) fn note<T, E: Into<FieldErrors>>(&mut self, result: Result<T, E>) -> Option<T> {
        result.map_err(|errors| self.0.extend(errors.into())).ok()
    }

    /// A number within its bounds.
    pub(crate) fn within<N: Copy + PartialOrd + std::fmt::Display>(
        &mut self,
        field: impl Into<String>,
        value: N,
        least: N,
        most: N,
    ) {
        if !(least..=most).contains(&value) {
            self.add(field, format!("must be {least} to {most}"));
        }
    }

    /// All of it, if there is any.
    pub(crate) fn into_result(self) -> Result<(), FieldErrors> {
        FieldErrors::new(self.0).map_or(Ok(()), Err)
    }

    /// The value that was built of parts, unless something is wrong with one.
    pub(crate) fn finish<T>(self, built: Option<T>) -> Result<T, FieldErrors> {
        self.into_result()?;
        built.ok_or_else(|| FieldError::new("settings", "cannot be used").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_speaks_and_the_others_are_kept_under_the_same_section() {
        let mut defects = Defects::default();
        assert_eq!(defects.note(Ok::<_, FieldError>(1)), Some(1));
        defects.within("a", 0, 1, 9);
        defects.add("b", "is missing");
        let error = defects.into_result().map_err(|error| error.within("endpoints.x")).err();
        assert_eq!(
            error.as_ref().map(ToString::to_string).as_deref(),
            Some("endpoints.x.a must be 1 to 9")
        );
        let all: Vec<FieldError> = error.into_iter().flatten().collect();
        let expected = [("endpoints.x.a", "must be 1 to 9"), ("endpoints.x.b", "is missing")];
        assert_eq!(all, expected.map(|(field, problem)| FieldError::new(field, problem)));
    }
}
