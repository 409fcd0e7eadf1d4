//! The script's side of the host API, compiled once per process and not once per run.

use std::collections::HashMap;
use std::sync::OnceLock;

use rquickjs::loader::Loader as _;
use rquickjs::loader::bundle::Bundle;
use rquickjs::module::WriteOptions;
use rquickjs::{Context, Ctx, Error, Function, Module, Runtime};

use super::web;

pub(super) const PRELUDE: &str = "prelude.js";
const SOURCE: &str = include_str!("prelude.js");
/// The host API itself, for scripts that use it.
const HOST: (&str, &str) = ("host.js", include_str!("host.js"));

type Compiled = [(&'static str, &'static [u8]); 1];
static COMPILED: OnceLock<HashMap<&'static str, Compiled>> = OnceLock::new();

/// What one of the files exports, in this context. The engine's bytecode is only ever read by the process that wrote it.
pub(super) fn made_by<'js>(ctx: &Ctx<'js>, name: &str) -> Result<Function<'js>, Error> {
    let all = if let Some(all) = COMPILED.get() {
        all
    } else {
        let made = compile()?;
        COMPILED.get_or_init(|| made)
    };
    let compiled = all.get(name).ok_or_else(|| Error::new_loading(name))?;
    let (module, loaded) = Bundle(compiled.as_slice()).load(ctx, name, None)?.eval()?;
    loaded.finish::<()>()?;
    module.get("default")
}

/// In a runtime of its own: a script's could be short of memory.
fn compile() -> Result<HashMap<&'static str, Compiled>, Error> {
    let context = Context::full(&Runtime::new()?)?;
    let files = [(PRELUDE, SOURCE), HOST].into_iter().chain(web::MODULES);
    files
        .map(|(name, source)| {
            // Nobody asks where in the prelude an error was thrown.
            let options =
                WriteOptions { strip_source: true, strip_debug: true, ..WriteOptions::default() };
            let bytecode =
                context.with(|ctx| Module::declare(ctx, name, source)?.write(options))?;
            let bytecode: &'static [u8] = bytecode.leak();
            Ok((name, [(name, bytecode)]))
        })
        .collect()
}
