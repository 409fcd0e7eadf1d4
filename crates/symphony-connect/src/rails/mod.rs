//! Ways to move money.
