//! Embeds `sql/` into the library: one list of (path, text), in the order it is applied; and for every function that Rust
//! calls its signature, as the file that declares it has it.
//!
//! Walked at build time and not listed by hand, so that a new function file cannot be forgotten.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let crate_root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    // In the repository a link to the folder at its root; in the packaged crate the folder itself.
    let root = crate_root.join("sql");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();
    let mut entries = Vec::new();
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
        let name = file
            .strip_prefix(&root)
            .map_err(io::Error::other)?
            .to_string_lossy()
            .replace('\\', "/");
        let path = file.canonicalize()?.to_string_lossy().into_owned();
        entries.push(format!("    ({name:?}, include_str!({path:?})),\n"));
    }
    let code = format!("pub(crate) const FILES: &[(&str, &str)] = &[\n{}];\n", entries.concat());
    fs::write(out.join("sql_files.rs"), code)?;

    let list = crate_root.join("src/db/calls.txt");
    println!("cargo::rerun-if-changed={}", list.display());
    fs::write(out.join("calls.rs"), calls(&fs::read_to_string(list)?, &files)?)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            println!("cargo::rerun-if-changed={}", path.display());
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "sql") {
            files.push(path);
        }
    }
    Ok(())
}

/// What a claim has ended besides what it leased: note_ended_leases wrote it.
const ENDED_LEASES: &str = "current_setting('symphony.leases_ended', true) AS leases_ended, \
                            current_setting('symphony.leases_parked', true) AS leases_parked";

/// A constant for every line of the list.
fn calls(list: &str, files: &[PathBuf]) -> io::Result<String> {
    let mut code = String::new();
    let mut names = Vec::new();
    for line in list.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (head, statement) = line.split_once(": ").unwrap_or((line, ""));
        let wrong = |what: &str| io::Error::other(format!("calls.txt: {line:?} {what}"));
        let (name, function) = head.split_once(' ').ok_or_else(|| wrong("has no function"))?;
        let declared = files
            .iter()
            .find(|file| file.file_stem().is_some_and(|stem| stem == function))
            .ok_or_else(|| wrong("names a function that no file declares"))?;
        let text = fs::read_to_string(declared)?;
        let signature = Signature::read(function, &text)
            .ok_or_else(|| wrong("names a function whose declaration cannot be read"))?;
        let passed: Vec<String> = signature
            .parameters
            .iter()
            .enumerate()
            .map(|(n, (parameter, _))| format!("{parameter} => ${}", n + 1))
            .collect();
        let call = format!("symphony.{function}({})", passed.join(", "));
        let sql = match statement {
            "" if ["TABLE(", "SETOF "].iter().any(|many| signature.result.starts_with(many)) => {
                format!("SELECT * FROM {call}")
            }
            "" => format!("SELECT {call}"),
            statement => statement.replace("{call}", &call).replace("{ended}", ENDED_LEASES),
        };
        let declarations: Vec<&str> =
            signature.parameters.iter().map(|(_, declaration)| declaration.as_str()).collect();
        code.push_str(&format!(
            "/// Calls `{function}`.\npub const {name}: Call = Call {{ function: {function:?}, arguments: {:?}, result: {:?}, sql: {sql:?} }};\n",
            declarations.join(", "),
            signature.result,
        ));
        names.push(name);
    }
    code.push_str(&format!(
        "/// All of them.\npub const ALL: &[Call] = &[{}];\n",
        names.join(", ")
    ));
    Ok(code)
}

/// A function's declaration, in the words the server prints it with.
struct Signature {
    /// Name, and name with type and default.
    parameters: Vec<(String, String)>,
    result: String,
}

impl Signature {
    fn read(function: &str, text: &str) -> Option<Self> {
        let lines: Vec<&str> =
            text.lines().map(|line| line.split("--").next().unwrap_or_default()).collect();
        let text = lines.join(" ");
        let (_, declaration) =
            text.split_once(&format!("CREATE OR REPLACE FUNCTION symphony.{function}("))?;
        let (parameters, rest) = until_closed(declaration)?;
        let parameters =
            listed(parameters).iter().map(|one| parameter(one)).collect::<Option<_>>()?;
        let returned = rest.trim_start().strip_prefix("RETURNS ")?.trim_start();
        let result = match returned.strip_prefix("TABLE") {
            Some(table) => {
                let (columns, _) = until_closed(table.trim_start().strip_prefix('(')?)?;
                let columns: Vec<String> = listed(columns)
                    .iter()
                    .map(|one| parameter(one).map(|(_, declaration)| declaration))
                    .collect::<Option<_>>()?;
                format!("TABLE({})", columns.join(", "))
            }
            None => match returned.strip_prefix("SETOF ") {
                Some(row) => format!("SETOF {}", type_name(row.split_whitespace().next()?)),
                None => type_name(returned.split_whitespace().next()?),
            },
        };
        Some(Self { parameters, result })
    }
}

/// What stands before the closing parenthesis, and what after it.
fn until_closed(text: &str) -> Option<(&str, &str)> {
    let mut depth = 1_usize;
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((text.get(..at)?, text.get(at + 1..)?));
        }
    }
    None
}

/// The parts between commas; none of our types or defaults has one inside.
fn listed(text: &str) -> Vec<&str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// `p_limit INT DEFAULT NULL` is printed as `p_limit integer DEFAULT NULL::integer`.
fn parameter(text: &str) -> Option<(String, String)> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (name, rest) = text.split_once(' ')?;
    let (kind, default) =
        rest.split_once(" DEFAULT ").map_or((rest, None), |(kind, default)| (kind, Some(default)));
    let kind = type_name(kind);
    let default = match default {
        None => String::new(),
        Some(truth @ ("TRUE" | "FALSE")) => format!(" DEFAULT {}", truth.to_lowercase()),
        Some(value) if value == "NULL" || value.starts_with('\'') => {
            format!(" DEFAULT {value}::{kind}")
        }
        Some(value) => format!(" DEFAULT {value}"),
    };
    Some((name.to_owned(), format!("{name} {kind}{default}")))
}

/// Our spelling of a type, as the server prints it.
fn type_name(ours: &str) -> String {
    let (kind, list) = ours.strip_suffix("[]").map_or((ours, ""), |kind| (kind, "[]"));
    let printed = match kind {
        "INT" => "integer".to_owned(),
        "TIMESTAMPTZ" => "timestamp with time zone".to_owned(),
        kind => kind.to_lowercase().replace("symphony.", ""),
    };
    format!("{printed}{list}")
}
