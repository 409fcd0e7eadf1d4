//! What every lane's worker does alike.

pub mod gate;
