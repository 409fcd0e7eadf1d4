//! What must not work against the console, an attack a test.

mod forms;
mod requests;
mod sessions;
mod stored_script;

use super::{Browser, Scene};
