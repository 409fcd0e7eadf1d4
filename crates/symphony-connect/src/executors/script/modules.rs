//! Imports among an app's files: which file a specifier names, and where its source comes from.

use std::collections::BTreeMap;
use std::sync::Arc;

use rquickjs::loader::{ImportAttributes, Loader, Resolver};
use rquickjs::module::Declared;
use rquickjs::{Ctx, Error, Module};

pub(super) const NOT_RELATIVE: &str =
    "a script imports files of its app, such as \"./lib.js\": nothing else is there";
pub(super) const NOT_THERE: &str = "there is no such file among what was pushed with the script";

/// The files that a specifier may mean, in order; none if it leads out of the app. A TypeScript file may be imported
/// by the name that its JavaScript would have, or without an ending.
pub(super) fn candidates(base: &str, specifier: &str) -> Vec<String> {
    let Some(path) = joined(base, specifier) else { return Vec::new() };
    let mut candidates = vec![path.clone()];
    match path.strip_suffix(".js") {
        Some(stem) => candidates.push(format!("{stem}.ts")),
        None if path.strip_suffix(".ts").is_none() => {
            candidates.extend([format!("{path}.ts"), format!("{path}.js")]);
        }
        None => {}
    }
    candidates
}

/// A relative specifier against the file that has it; `None` if it is not relative, or leads out of the app.
fn joined(base: &str, specifier: &str) -> Option<String> {
    if !specifier.starts_with("./") && !specifier.starts_with("../") {
        return None;
    }
    let mut parts: Vec<&str> = base.split('/').collect();
    parts.pop();
    for part in specifier.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// What a script's version was pushed with.
pub(super) struct PushedModules {
    pub(super) modules: Arc<BTreeMap<String, String>>,
    /// The script itself, which its modules may import.
    pub(super) file: Arc<str>,
}

impl Resolver for PushedModules {
    fn resolve<'js>(
        &mut self,
        _ctx: &Ctx<'js>,
        base: &str,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> Result<String, Error> {
        let candidates = candidates(base, name);
        let why = if candidates.is_empty() { NOT_RELATIVE } else { NOT_THERE };
        candidates
            .into_iter()
            .find(|path| **path == *self.file || self.modules.contains_key(path))
            .ok_or_else(|| Error::new_resolving_message(base, name, why))
    }
}

impl Loader for PushedModules {
    fn load<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> Result<Module<'js, Declared>, Error> {
        let source = self.modules.get(name);
        let source = source.ok_or_else(|| Error::new_loading_message(name, NOT_THERE))?;
        Module::declare(ctx.clone(), name, source.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::candidates;

    #[test]
    fn a_specifier_names_a_file_of_the_app_and_never_one_outside() {
        for (base, specifier, first) in [
            ("scripts/a.js", "./b.js", Some("scripts/b.js")),
            ("scripts/a.js", "../lib/b.js", Some("lib/b.js")),
            ("scripts/a.js", "./../lib/./b.js", Some("lib/b.js")),
            ("a.js", "./lib", Some("lib")),
            ("a.js", "../b.js", None),
            ("scripts/a.js", "../../b.js", None),
            ("a.js", "b.js", None),
            ("a.js", "/b.js", None),
            ("a.js", "https://example.com/b.js", None),
            ("a.js", "node:fs", None),
        ] {
            assert_eq!(
                candidates(base, specifier).first().map(String::as_str),
                first,
                "{specifier}"
            );
        }
        assert_eq!(candidates("a.ts", "./b.js"), ["b.js", "b.ts"]);
        assert_eq!(candidates("a.ts", "./b"), ["b", "b.ts", "b.js"]);
        assert_eq!(candidates("a.ts", "./b.ts"), ["b.ts"]);
    }
}
