//! The scripts of a manifest as they are stored: compiled once without being run, with the files that they import.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use symphony::json::{self, Members};
use symphony::lanes::triggers::executor::UNNAMED_FILE;
use symphony_connect::executors::script::{ReadFile, compile};

use crate::output;

/// An object to be changed. Its values stay text: a tree would turn numbers into floats.
pub type Object = BTreeMap<String, Box<RawValue>>;

/// An object with its members, to be changed.
pub fn owned(members: &Members<'_>) -> Object {
    members.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// A value as JSON.
pub fn raw<T: Serialize>(value: &T) -> Result<Box<RawValue>, String> {
    to_raw_value(value).map_err(|error| error.to_string())
}

/// Put a compiled script in the place of its source: JavaScript, and the modules that it imports.
pub fn compiled(script: &mut Object, at: &str, read: ReadFile) -> Result<(), String> {
    let text = |name: &str| script.get(name).and_then(|value| json::text(value));
    let Some(source) = text("source") else { return Ok(()) };
    let file = text("file");
    let compiled = compile(file.as_deref().unwrap_or(UNNAMED_FILE), &source, read)
        .map_err(|defect| output::plain(&format!("{at}: {defect}")))?;
    script.insert("source".to_owned(), raw(&compiled.source)?);
    script.remove("modules");
    if !compiled.modules.is_empty() {
        script.insert("modules".to_owned(), raw(&compiled.modules)?);
    }
    Ok(())
}

/// A manifest whose scripts have their sources and modules in it, with what is stored of them. What has not the right
/// shape is left to the database, which refuses it.
pub fn compiled_manifest(manifest: &RawValue) -> Result<Box<RawValue>, String> {
    let Some(members) = Members::of(manifest) else { return Ok(manifest.to_owned()) };
    let Some(Ok(scripts)) = members.get("scripts").map(|list| json::list("scripts", list)) else {
        return Ok(manifest.to_owned());
    };
    let scripts: Vec<Box<RawValue>> = scripts
        .into_iter()
        .enumerate()
        .map(|(place, script)| {
            let Some(members) = Members::of(script) else { return Ok(script.to_owned()) };
            let modules = members.get("modules").map(RawValue::get);
            let modules: BTreeMap<String, String> = match modules.map(serde_json::from_str) {
                Some(Ok(modules)) => modules,
                Some(Err(_)) => return Ok(script.to_owned()),
                None => BTreeMap::new(),
            };
            let mut script = owned(&members);
            let read: ReadFile = Box::new(move |path| Ok(modules.get(path).cloned()));
            compiled(&mut script, &format!("scripts[{place}]"), read)?;
            raw(&script)
        })
        .collect::<Result<_, String>>()?;
    let mut manifest = owned(&members);
    manifest.insert("scripts".to_owned(), raw(&scripts)?);
    raw(&manifest)
}
