//! A simulated payment provider.
