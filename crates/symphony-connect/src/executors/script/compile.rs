//! Scripts compiled and linked without being run: what is wrong with one is found when it is pushed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use rquickjs::loader::{ImportAttributes, Loader, Resolver};
use rquickjs::module::Declared;
use rquickjs::{Context, Ctx, Error, Module, Runtime};

use super::modules::{NOT_RELATIVE, candidates};
use crate::bounds::scripts::{
    COMPILE_MEMORY_BYTES_MAX, COMPILE_STACK_BYTES, DEFECT_LINE_CHARACTERS_MAX, MODULES_MAX,
    STACK_BESIDES_BYTES,
};
use crate::executors::one_line;

/// Modules of our own: a path inside an app has no slash at its beginning, so no script can import them.
const ROOT: &str = "/root";
const EMPTY: &str = "/empty";
/// Everything it imports is linked before it is, and linking it fails: so nothing is ever run.
const ROOT_SOURCE: &str =
    "import '/script'; import { missing } from '/empty'; export { default } from '/script';";
const SCRIPT: &str = "/script";

/// A script that can be run, as it is stored: JavaScript, with every file it imports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// The script.
    pub source: String,
    /// The files that it imports, and those that these import, by their paths in the app.
    pub modules: BTreeMap<String, String>,
}

/// Why a script cannot be run, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptDefect {
    /// Which file of the app.
    pub file: String,
    /// Where in it, from 1; `None` if nowhere in particular.
    pub place: Option<(u32, u32)>,
    /// What is wrong.
    pub message: String,
    /// The line it is in, without what is around it.
    pub source_line: Option<String>,
}

impl fmt::Display for ScriptDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.message)?;
        match &self.source_line {
            Some(line) => write!(f, ", in `{line}`"),
            None => Ok(()),
        }
    }
}

impl ScriptDefect {
    /// One without a place.
    pub(super) fn new(file: &str, message: impl Into<String>) -> Self {
        let message = one_line(&message.into());
        Self { file: file.to_owned(), place: None, message, source_line: None }
    }

    /// The same at a place in this source.
    pub(super) fn at(mut self, source: &str, line: u32, column: u32) -> Self {
        let found = source.lines().nth((line as usize).saturating_sub(1)).map(str::trim);
        let found = found
            .filter(|found| !found.is_empty())
            .map(|found| found.chars().take(DEFECT_LINE_CHARACTERS_MAX).collect::<String>());
        self.source_line = found.map(|found| one_line(&found));
        self.place = Some((line, column));
        self
    }

    /// The same where a text stands in this source, if it does.
    fn where_it_says(self, source: &str, text: &str) -> Self {
        let Some(at) = source.find(text) else { return self };
        let (line, column) = place_of(source, at);
        self.at(source, line, column)
    }
}

/// The line and column of an offset, from 1; columns count characters.
pub(super) fn place_of(source: &str, offset: usize) -> (u32, u32) {
    let before = source.get(..source.floor_char_boundary(offset)).unwrap_or(source);
    let line = before.matches('\n').count();
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
    let from_one = |n: usize| u32::try_from(n.saturating_add(1)).unwrap_or(u32::MAX);
    (from_one(line), from_one(column))
}

/// The app's files, to be imported by their paths in it: `None` where there is none, or why one cannot be used.
pub type ReadFile = Box<dyn Fn(&str) -> Result<Option<String>, String> + Send>;

/// Compile and link a script with all that it imports, without running any of it.
pub fn compile(file: &str, source: &str, read: ReadFile) -> Result<Compiled, ScriptDefect> {
    if !is_inside(file) {
        return Err(ScriptDefect::new(
            file,
            "must be a path inside the app, such as scripts/order.js",
        ));
    }
    // On a thread whose stack is known: whoever calls may have less than the engine thinks.
    let stack_bytes = COMPILE_STACK_BYTES.saturating_add(STACK_BESIDES_BYTES);
    let (path, text) = (file.to_owned(), source.to_owned());
    let thread = std::thread::Builder::new()
        .stack_size(stack_bytes)
        .spawn(move || compile_here(&path, &text, read));
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(compiled)) => compiled,
        Ok(Err(_)) | Err(_) => {
            Err(ScriptDefect::new(file, "no engine could be made to compile it"))
        }
    }
}

fn is_inside(file: &str) -> bool {
    file.split('/').all(|part| !part.is_empty() && part != "..")
}

fn compile_here(file: &str, source: &str, read: ReadFile) -> Result<Compiled, ScriptDefect> {
    let script = File { javascript: javascript(file, source)?, written: source.to_owned() };
    let files = BTreeMap::from([(file.to_owned(), script)]);
    let imports = Vec::new();
    let graph = Graph { script: file.to_owned(), read, files, imports, defect: None };
    let graph = Rc::new(RefCell::new(graph));
    let no_engine = |_: Error| ScriptDefect::new(file, "no engine could be made to compile it");
    let runtime = Runtime::new().map_err(no_engine)?;
    runtime.set_memory_limit(COMPILE_MEMORY_BYTES_MAX);
    runtime.set_max_stack_size(COMPILE_STACK_BYTES);
    runtime.set_loader(Files(Rc::clone(&graph)), Files(Rc::clone(&graph)));
    let context = Context::full(&runtime).map_err(no_engine)?;
    let defect = context.with(|ctx| {
        let linked = Module::declare(ctx.clone(), ROOT, ROOT_SOURCE).and_then(Module::eval);
        let graph = graph.borrow();
        match linked {
            Ok(_) => Some(ScriptDefect::new(file, "it cannot be compiled")),
            Err(error) => graph.defect.clone().or_else(|| graph.defect_of(&ctx, &error)),
        }
    });
    if let Some(defect) = defect {
        return Err(defect);
    }
    let mut files = std::mem::take(&mut graph.borrow_mut().files);
    let source = files.remove(file).map(|script| script.javascript).unwrap_or_default();
    let modules = files.into_iter().map(|(path, file)| (path, file.javascript)).collect();
    Ok(Compiled { source, modules })
}

/// What the engine runs: of JavaScript the text itself, of TypeScript what is left of it without types.
fn javascript(file: &str, source: &str) -> Result<String, ScriptDefect> {
    if source.contains('\0') {
        return Err(ScriptDefect::new(file, "has a NUL character"));
    }
    if file.strip_suffix(".ts").is_none() {
        return Ok(source.to_owned());
    }
    #[cfg(feature = "typescript")]
    return super::typescript::without_types(file, source);
    #[cfg(not(feature = "typescript"))]
    Err(ScriptDefect::new(file, "this symphony was built without TypeScript: write JavaScript"))
}

struct File {
    /// As its author sees it.
    written: String,
    /// The same lines and columns, for the engine.
    javascript: String,
}

/// A script and what it imports, as far as the engine has asked for it.
struct Graph {
    script: String,
    read: ReadFile,
    files: BTreeMap<String, File>,
    /// Which file was imported by which.
    imports: Vec<(String, String)>,
    /// What we found wrong ourselves, which the engine only passes on.
    defect: Option<ScriptDefect>,
}

impl Graph {
    fn resolve(&mut self, base: &str, specifier: &str) -> Result<String, ScriptDefect> {
        if base == ROOT {
            return Ok(specifier.to_owned());
        }
        let base = if base == SCRIPT { self.script.clone() } else { base.to_owned() };
        let importer = self.files.get(&base).map_or("", |file| &file.written).to_owned();
        let quoted = |quote: char| format!("{quote}{specifier}{quote}");
        let wrong = |why: String| {
            let defect =
                ScriptDefect::new(&base, format!("{specifier:?} cannot be imported: {why}"));
            let written = quoted(if importer.contains(&quoted('"')) { '"' } else { '\'' });
            defect.where_it_says(&importer, &written)
        };
        let candidates = candidates(&base, specifier);
        if candidates.is_empty() {
            return Err(wrong(NOT_RELATIVE.to_owned()));
        }
        for path in candidates {
            if !self.files.contains_key(&path) {
                let Some(written) = (self.read)(&path).map_err(wrong)? else { continue };
                if self.files.len() > MODULES_MAX {
                    return Err(wrong(format!("a script may import at most {MODULES_MAX} files")));
                }
                let file = File { javascript: javascript(&path, &written)?, written };
                self.files.insert(path.clone(), file);
            }
            self.imports.push((base, path.clone()));
            // The engine knows the script by another name.
            return Ok(if path == self.script { SCRIPT.to_owned() } else { path });
        }
        Err(wrong("there is no such file in the app".to_owned()))
    }

    fn source(&self, name: &str) -> Option<String> {
        if name == EMPTY {
            return Some(String::new());
        }
        let path = if name == SCRIPT { &self.script } else { name };
        self.files.get(path).map(|file| file.javascript.clone())
    }

    /// What the engine says is wrong; `None` if it is what always is.
    fn defect_of(&self, ctx: &Ctx<'_>, error: &Error) -> Option<ScriptDefect> {
        let thrown = ctx.catch();
        let Some(thrown) = thrown.as_exception() else {
            return Some(ScriptDefect::new(&self.script, error.to_string()));
        };
        let message = thrown.message().unwrap_or_default();
        if let Some((export, module)) = missing_export(&message) {
            if module == EMPTY {
                return None;
            }
            return Some(self.missing(export, module));
        }
        let stack = thrown.stack().unwrap_or_default();
        let place = stack.lines().find_map(|frame| self.place(frame));
        let Some((path, line, column)) = place else {
            return Some(ScriptDefect::new(&self.script, message));
        };
        let written = self.files.get(&path).map_or("", |file| &file.written);
        Some(ScriptDefect::new(&path, message).at(written, line, column))
    }

    /// An export that some file wants and another has not.
    fn missing(&self, export: &str, module: &str) -> ScriptDefect {
        let module = if module == SCRIPT { &self.script } else { module };
        let importer = self.imports.iter().find_map(|(base, path)| {
            let written = &self.files.get(base)?.written;
            (path == module && written.contains(export)).then_some((base, written))
        });
        match importer {
            Some((base, written)) => {
                let is_typed = base.strip_suffix(".ts").is_some();
                let hint = if is_typed { ": if it is a type, write import type" } else { "" };
                ScriptDefect::new(base, format!("{module} exports no {export}{hint}"))
                    .where_it_says(written, export)
            }
            None if export == "default" && module == self.script => {
                ScriptDefect::new(module, super::run::NO_HANDLER)
            }
            None => ScriptDefect::new(module, format!("it exports no {export}")),
        }
    }

    /// Where a frame of a stack is, if it is in a file of the app.
    fn place(&self, frame: &str) -> Option<(String, u32, u32)> {
        let (path, line, column) = frame_place(frame)?;
        let path = if path == SCRIPT { &self.script } else { path };
        self.files.contains_key(path).then(|| (path.to_owned(), line, column))
    }
}

/// The file, line and column of a frame such as `    at total (lib/money.js:3:11)`.
pub(super) fn frame_place(frame: &str) -> Option<(&str, u32, u32)> {
    let frame = frame.trim().strip_prefix("at ")?;
    let place = frame
        .strip_suffix(')')
        .and_then(|frame| frame.rsplit_once('('))
        .map_or(frame, |(_, place)| place);
    let (place, column) = place.rsplit_once(':')?;
    let (path, line) = place.rsplit_once(':')?;
    Some((path, line.parse().ok()?, column.parse().ok()?))
}

/// Which export of which module the engine did not find.
fn missing_export(message: &str) -> Option<(&str, &str)> {
    let (_, rest) = message.split_once("export '")?;
    let (export, rest) = rest.split_once('\'')?;
    let (_, rest) = rest.split_once("module '")?;
    Some((export, rest.split_once('\'')?.0))
}

/// The engine's way to the graph.
#[derive(Clone)]
struct Files(Rc<RefCell<Graph>>);

impl Resolver for Files {
    fn resolve<'js>(
        &mut self,
        _ctx: &Ctx<'js>,
        base: &str,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> Result<String, Error> {
        let mut graph = self.0.borrow_mut();
        let resolved = graph.resolve(base, name);
        resolved.map_err(|defect| {
            let error = Error::new_resolving_message(base, name, defect.message.clone());
            graph.defect.get_or_insert(defect);
            error
        })
    }
}

impl Loader for Files {
    fn load<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> Result<Module<'js, Declared>, Error> {
        // Not borrowed while the engine compiles: it asks for what this one imports.
        let source = self.0.borrow().source(name);
        let source = source.ok_or_else(|| Error::new_loading(name))?;
        Module::declare(ctx.clone(), name, source)
    }
}
