//! An app's folder: `app.json` and the scripts it names, read and checked before a database is asked.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use symphony::lanes::triggers::Schedule;

use super::strict_json::Strict;
use crate::output::{self, Failure};

/// The largest file of an app.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
const FIELDS: &[&str] = &["name", "scripts", "routes", "triggers", "topics", "queues"];
const SCRIPT_FIELDS: &[&str] = &["name", "file", "url", "timeoutMs"];

/// What a folder says.
#[derive(Debug)]
pub(super) struct AppFolder {
    /// The app's name.
    pub(super) name: String,
    /// What `push_app` takes: the scripts' sources in the place of their files.
    pub(super) manifest: Box<RawValue>,
    /// Where it stands, for what the database has to say about it.
    pub(super) manifest_path: PathBuf,
}

/// Read a folder; a name that is given counts more than the one in the file, and that more than the folder's.
pub(super) fn read(folder: &Path, name: Option<&str>) -> Result<AppFolder, Failure> {
    let cannot = |why: &dyn std::fmt::Display| {
        Failure::new(format!("cannot read {}: {why}", folder.display()))
    };
    let root = fs::canonicalize(folder).map_err(|error| cannot(&error))?;
    if !root.is_dir() {
        return Err(cannot(&"it is not a folder"));
    }
    let manifest_path = folder.join("app.json");
    let text = read_inside(&root, "app.json")
        .map_err(|why| Failure::new(format!("{} {why}", manifest_path.display())))?;
    let at = |why: String| {
        Failure::new(format!("{}: {why}", manifest_path.display())).with_code("P7005")
    };
    let Strict(value) =
        serde_json::from_str(text.trim_start_matches('\u{feff}')).map_err(|error| {
            let told = error.to_string();
            let what = told.split(" at line ").next().unwrap_or_default();
            Failure::new(format!(
                "{} is not valid JSON: line {}, column {}: {}",
                manifest_path.display(),
                error.line(),
                error.column(),
                output::plain(what)
            ))
        })?;
    let Value::Object(mut manifest) = value else {
        return Err(at("it must be a JSON object".to_owned()));
    };
    only_known(&manifest, "", FIELDS, "it has").map_err(at)?;
    let written = match manifest.remove("name") {
        None => None,
        Some(Value::String(written)) => Some(written),
        Some(_) => return Err(at("name must be a string".to_owned())),
    };
    // A list that is none is the database's to refuse.
    if let Some(Value::Array(scripts)) = manifest.get_mut("scripts") {
        for (place, script) in scripts.iter_mut().enumerate() {
            if let Value::Object(script) = script {
                put_source(&root, script, &format!("scripts[{place}]")).map_err(at)?;
            }
        }
    }
    if let Some(Value::Array(triggers)) = manifest.get("triggers") {
        for (place, trigger) in triggers.iter().enumerate() {
            check_schedule(trigger, &format!("triggers[{place}]")).map_err(at)?;
        }
    }
    let name = match (name, written) {
        (Some(given), _) => given.to_owned(),
        (None, Some(written)) => written,
        (None, None) => root
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(|| Failure::new("the folder's name is no name for an app: add --name"))?
            .to_owned(),
    };
    let manifest =
        to_raw_value(&manifest).map_err(|error| Failure::new(format!("app.json: {error}")))?;
    Ok(AppFolder { name, manifest, manifest_path })
}

fn only_known(
    object: &Map<String, Value>,
    at: &str,
    known: &[&str],
    it_has: &str,
) -> Result<(), String> {
    let Some(field) = object.keys().find(|field| !known.contains(&field.as_str())) else {
        return Ok(());
    };
    let field: String = output::plain(field).chars().take(100).collect();
    Err(format!("{at}{field} is not known: {it_has} {}", known.join(", ")))
}

/// A script's file becomes its source.
fn put_source(root: &Path, script: &mut Map<String, Value>, at: &str) -> Result<(), String> {
    if script.contains_key("source") {
        return Err(format!("{at}.source is not known: put it into a file, and name that in file"));
    }
    only_known(script, &format!("{at}."), SCRIPT_FIELDS, "a script has")?;
    if script.contains_key("file") == script.contains_key("url") {
        return Err(format!("{at} must have either file or url"));
    }
    let Some(file) = script.remove("file") else { return Ok(()) };
    let Value::String(file) = file else { return Err(format!("{at}.file must be a string")) };
    let source = read_inside(root, &file).map_err(|why| format!("{at}.file: {file:?} {why}"))?;
    if source.contains('\0') {
        return Err(format!("{at}.file: {file:?} has a NUL character"));
    }
    script.insert("source".to_owned(), source.into());
    Ok(())
}

/// The database cannot read cron expressions; what ticks reads them like this.
fn check_schedule(trigger: &Value, at: &str) -> Result<(), String> {
    let text = |field: &str| trigger.get(field).and_then(Value::as_str);
    if let (Some("cron"), Some(expression)) = (text("kind"), text("filter")) {
        let schedule = Schedule::parse(expression, text("timeZone").unwrap_or("UTC"));
        schedule.map_err(|error| output::plain(&format!("{at}.{error}")))?;
    }
    Ok(())
}

/// A file of the folder, and never one outside: neither by its path nor by a link.
fn read_inside(root: &Path, relative: &str) -> Result<String, String> {
    let path = Path::new(relative);
    let inside =
        path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if relative.is_empty() || !inside {
        return Err("must be a path inside the folder, such as scripts/order.js".to_owned());
    }
    let path = fs::canonicalize(root.join(path)).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "is missing".to_owned(),
        _ => format!("cannot be read: {error}"),
    })?;
    if !path.starts_with(root) {
        return Err("is a link that leads out of the folder".to_owned());
    }
    // Before it is opened: opening a pipe would wait for whoever writes to it.
    if !path.is_file() {
        return Err("is not a file".to_owned());
    }
    let mut bytes = Vec::new();
    File::open(&path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot be read: {error}"))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > FILE_BYTES_MAX) {
        return Err("is larger than 1 MiB".to_owned());
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".to_owned())
}
