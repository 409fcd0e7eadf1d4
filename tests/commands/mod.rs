//! The command line as all lanes share it. A lane's own commands are tested in that lane's folder.

mod bench;
mod configurations;
mod hints;
mod messages;
mod outputs;
mod run;
mod sandbox;
mod shell;
mod tour;
mod watching;
