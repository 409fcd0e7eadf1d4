//! Embeds `sql/` into the library: one list of (path, text), in the order it is applied.
//!
//! Walked at build time and not listed by hand, so that a new function file cannot be forgotten.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../../sql");
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
    fs::write(PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("sql_files.rs"), code)
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
