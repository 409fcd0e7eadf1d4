//! What can go wrong in the laboratory.

use symphony::db::DbError;
use symphony::db::migrate::MigrateError;

use crate::private_postgres::PrivatePostgresError;

/// Why it could not be tried: one line, and the code whose page explains more.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct LabError {
    message: String,
    code: Option<String>,
}

impl LabError {
    /// Without a code.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: None }
    }

    /// The same, with the code whose page explains more.
    #[must_use]
    pub fn with_code(mut self, code: &str) -> Self {
        self.code = Some(code.to_owned());
        self
    }

    /// The code whose page explains more.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }
}

impl From<DbError> for LabError {
    fn from(error: DbError) -> Self {
        Self { message: error.to_string(), code: Some(error.code().to_owned()) }
    }
}

impl From<sqlx::Error> for LabError {
    fn from(error: sqlx::Error) -> Self {
        DbError::from(error).into()
    }
}

impl From<MigrateError> for LabError {
    fn from(error: MigrateError) -> Self {
        Self { message: error.to_string(), code: error.code().map(str::to_owned) }
    }
}

impl From<std::io::Error> for LabError {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<PrivatePostgresError> for LabError {
    fn from(error: PrivatePostgresError) -> Self {
        Self::new(error.to_string())
    }
}
