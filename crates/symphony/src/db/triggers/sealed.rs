//! A secret of an app, as the database keeps it.

/// Sealed by whoever set it; only a process that has the key opens it.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct SealedSecret {
    /// Of the key it is sealed with.
    pub key_id: String,
    /// Base64.
    pub sealed: String,
}
