//! The embedded `sql/` folder: its sections, the order they are applied in, and their hashes.

use sha2::{Digest, Sha256};

include!(concat!(env!("OUT_DIR"), "/sql_files.rs"));

/// The version of the schema this build carries. A database stamped with a higher one is refused.
pub const SCHEMA_VERSION: i32 = 1;

/// The parts of the schema, by how they may be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// Cluster-wide roles.
    Roles,
    /// Types, tables, constraints, indexes. Until 1.0 edited in place: a change needs `--fresh`.
    Tables,
    /// Functions. Always applied whole, as their current text.
    Functions,
    /// Triggers. They belong to the tables' hash, and need the functions to exist.
    Triggers,
    /// Views.
    Views,
    /// Who may do what.
    Privileges,
}

/// The files of a section, in the order they are applied, as (path, text).
pub fn files(section: Section) -> impl Iterator<Item = (&'static str, &'static str)> {
    FILES.iter().copied().filter(move |(path, _)| match section {
        Section::Roles => *path == ROLES_FILE,
        Section::Tables => path.starts_with("tables/"),
        Section::Functions => path.starts_with("functions/"),
        Section::Triggers => path.starts_with("triggers/"),
        Section::Views => path.starts_with("views/"),
        Section::Privileges => path.starts_with("privileges/") && *path != ROLES_FILE,
    })
}

const ROLES_FILE: &str = "privileges/00_roles.sql";

/// A section as one script.
pub fn script(section: Section) -> String {
    let mut script = String::new();
    for (path, text) in files(section) {
        script.push_str("-- sql/");
        script.push_str(path);
        script.push('\n');
        script.push_str(text);
        script.push('\n');
    }
    script
}

/// The hash of what cannot be replaced in place: tables and their triggers.
pub fn tables_hash() -> String {
    hash(&[Section::Tables, Section::Triggers])
}

/// The hash of what is replaced whole: functions, views, privileges.
pub fn code_hash() -> String {
    hash(&[Section::Functions, Section::Views, Section::Privileges])
}

fn hash(sections: &[Section]) -> String {
    use std::fmt::Write as _;
    let mut hasher = Sha256::new();
    for section in sections {
        hasher.update(script(*section).as_bytes());
    }
    hasher.finalize().iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_embedded_file_belongs_to_exactly_one_section() {
        let sections = [
            Section::Roles,
            Section::Tables,
            Section::Functions,
            Section::Triggers,
            Section::Views,
            Section::Privileges,
        ];
        let mut listed: Vec<_> =
            sections.iter().flat_map(|s| files(*s)).map(|(path, _)| path).collect();
        listed.sort_unstable();
        let all: Vec<_> = FILES.iter().map(|(path, _)| *path).collect();
        assert_eq!(listed, all);
    }
}
