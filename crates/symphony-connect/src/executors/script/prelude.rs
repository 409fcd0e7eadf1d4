//! The script's side of the host API, compiled once per process and not once per run.

use std::sync::OnceLock;

use rquickjs::loader::Loader as _;
use rquickjs::loader::bundle::Bundle;
use rquickjs::module::{Declared, WriteOptions};
use rquickjs::{Context, Ctx, Error, Module, Runtime};

const NAME: &str = "prelude.js";
const SOURCE: &str = include_str!("prelude.js");

type Compiled = [(&'static str, &'static [u8]); 1];
static COMPILED: OnceLock<Compiled> = OnceLock::new();

/// The prelude, in this context. The engine's bytecode is only ever read by the process that wrote it.
pub(super) fn module<'js>(ctx: &Ctx<'js>) -> Result<Module<'js, Declared>, Error> {
    let compiled = if let Some(compiled) = COMPILED.get() {
        compiled
    } else {
        let made = compile()?;
        COMPILED.get_or_init(|| [(NAME, made.leak())])
    };
    Bundle(compiled.as_slice()).load(ctx, NAME, None)
}

/// In a runtime of its own: a script's could be short of memory.
fn compile() -> Result<Vec<u8>, Error> {
    let context = Context::full(&Runtime::new()?)?;
    // Nobody asks where in the prelude an error was thrown.
    let options = WriteOptions { strip_source: true, strip_debug: true, ..WriteOptions::default() };
    context.with(|ctx| Module::declare(ctx, NAME, SOURCE)?.write(options))
}
