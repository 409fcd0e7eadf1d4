//! An app's folder: `app.json` and the scripts it names, read and checked before a database is asked.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use serde_json::value::RawValue;
use symphony::json::{self, Members};
use symphony_connect::executors::script::ReadFile;

use crate::apps::sources::{self, Object, owned, raw};
use crate::bounds::APP_FILE_BYTES_MAX;
use crate::output::{self, Failure};

/// `$schema` is for editors.
const FIELDS: &[&str] =
    &["$schema", "name", "scripts", "routes", "triggers", "topics", "queues", "cors", "retention"];
const SCRIPT_FIELDS: &[&str] = &["name", "file", "url", "timeoutMs"];

const MISSING: &str = "is missing";

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
    let manifest = json::check(text.trim_start_matches('\u{feff}'), json::Rules::default())
        .map_err(|error| {
            let (path, told) = (manifest_path.display(), error.to_string());
            Failure::new(format!("{path} is not valid JSON: {}", output::plain(&told)))
        })?;
    let members = Members::of(manifest).ok_or_else(|| at("it must be a JSON object".to_owned()))?;
    only_known(&members, "", FIELDS, "it has").map_err(at)?;
    let mut manifest: Object = owned(&members);
    manifest.remove("$schema");
    let written = match manifest.remove("name") {
        None => None,
        Some(written) => match json::text(&written) {
            Some(written) => Some(written.into_owned()),
            None => return Err(at("name must be a string".to_owned())),
        },
    };
    // A list that is none is the database's to refuse.
    if let Some(scripts) = manifest.get_mut("scripts")
        && let Ok(all) = json::list("scripts", scripts)
    {
        let all: Vec<Box<RawValue>> = all
            .into_iter()
            .enumerate()
            .map(|(place, script)| with_source(&root, script, &format!("scripts[{place}]")))
            .collect::<Result<_, _>>()
            .map_err(at)?;
        *scripts = raw(&all).map_err(at)?;
    }
    let manifest = raw(&manifest).map_err(at)?;
    if let Some(defect) = crate::apps::manifest::defect(&manifest) {
        return Err(at(defect));
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
    Ok(AppFolder { name, manifest, manifest_path })
}

fn only_known(object: &Members<'_>, at: &str, known: &[&str], it_has: &str) -> Result<(), String> {
    let Some(field) = object.names().find(|field| !known.contains(field)) else {
        return Ok(());
    };
    let field: String = output::plain(field).chars().take(100).collect();
    Err(format!("{at}{field} is not known: {it_has} {}", known.join(", ")))
}

/// A script with its source in the place of its file. What is no object is the database's to refuse.
fn with_source(root: &Path, script: &RawValue, at: &str) -> Result<Box<RawValue>, String> {
    let Some(members) = Members::of(script) else { return Ok(script.to_owned()) };
    if members.get("source").is_some() {
        return Err(format!("{at}.source is not known: put it into a file, and name that in file"));
    }
    only_known(&members, &format!("{at}."), SCRIPT_FIELDS, "a script has")?;
    let mut script = owned(&members);
    if script.contains_key("file") == script.contains_key("url") {
        return Err(format!("{at} must have either file or url"));
    }
    if let Some(file) = script.remove("file") {
        let Some(file) = json::text(&file) else {
            return Err(format!("{at}.file must be a string"));
        };
        let source =
            read_inside(root, &file).map_err(|why| format!("{at}.file: {file:?} {why}"))?;
        if source.contains('\0') {
            return Err(format!("{at}.file: {file:?} has a NUL character"));
        }
        let file = file.trim_start_matches("./");
        script.insert("source".to_owned(), raw(&source)?);
        script.insert("file".to_owned(), raw(&file)?);
        let root = root.to_owned();
        let read: ReadFile = Box::new(move |path| match read_inside(&root, path) {
            Ok(text) => Ok(Some(text)),
            Err(why) if why == MISSING => Ok(None),
            Err(why) => Err(format!("it {why}")),
        });
        sources::compiled(&mut script, at, read)?;
    }
    raw(&script)
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
        std::io::ErrorKind::NotFound => MISSING.to_owned(),
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
        .and_then(|file| file.take(APP_FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot be read: {error}"))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > APP_FILE_BYTES_MAX) {
        return Err("is larger than 1 MiB".to_owned());
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".to_owned())
}
