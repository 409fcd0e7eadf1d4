//! One run, on a thread of its own: a fresh runtime and context, the host API, the script, its handler, its answer.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use rquickjs::loader::{ImportAttributes, Loader, Resolver};
use rquickjs::module::Declared;
use rquickjs::promise::PromiseState;
use rquickjs::{Context, Ctx, Error, Function, Module, Promise, Runtime, Value};
use symphony::lanes::triggers::executor::{Effect, Outcome, Request, ScriptStore};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::ScriptSettings;
use super::host::{Host, Refusal, Stop, Thrown};
use super::patience::{Calculation, Patience, Turns};
use super::prelude;
use super::shared::Shared;
use crate::executors::output::{Effects, storable};
use crate::executors::{Fetcher, failed, request_text};

/// What stack traces call the script.
const SCRIPT_FILE: &str = "script.js";
const NO_IMPORTS: &str = "scripts cannot import: everything must be in one file";
const NO_HANDLER: &str = "the script has no handler: write export default function (request) { … }";
const NO_MEMORY: &str = "the script needs more memory than it may have";
const NEVER_SETTLED: &str = "the handler's promise never settled";
const THROWN_NULL: &str = "the script ran out of memory, or threw null";

/// Everything a run needs, to be sent to its thread.
pub(super) struct Job {
    pub(super) request: Request,
    pub(super) settings: ScriptSettings,
    pub(super) store: Arc<dyn ScriptStore>,
    pub(super) fetcher: Arc<Fetcher>,
    pub(super) runtime: Handle,
    pub(super) deadline: Instant,
    pub(super) shared: Arc<Shared>,
    pub(super) patience: Arc<Patience>,
    pub(super) turns: Arc<Turns>,
}

/// The answer, and what is to be done with it: nothing, unless it is a value.
pub(super) type Ending = (Outcome, Vec<Effect>);

/// Run, tell how it ended, and only then clean up, which takes a while for a large heap.
pub(super) fn run(job: &Job, tell: impl FnOnce(Ending)) {
    let (patience, turns) = (Arc::clone(&job.patience), Arc::clone(&job.turns));
    let deadline = job.deadline.into_std();
    let started = Calculation::start(patience, turns, deadline, Arc::clone(&job.shared));
    let Some(calculation) = started else { return tell((Outcome::TimedOut, Vec::new())) };
    // Over when the memory is free.
    let calculation = Rc::new(calculation);
    run_in(job, &calculation, |ending| {
        tell(ending);
        calculation.clean_up();
    });
}

fn run_in(job: &Job, calculation: &Rc<Calculation>, tell: impl FnOnce(Ending)) {
    let stop = Rc::new(Cell::new(None));
    let unavailable =
        |_: Error| (failed("EXECUTOR_ERROR", "no engine could be made", true), Vec::new());
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return tell(unavailable(error)),
    };
    runtime.set_memory_limit(job.settings.memory_max_bytes);
    runtime.set_max_stack_size(job.settings.stack_max_bytes);
    runtime.set_loader(NoImports, NoImports);
    let (deadline, shared, over) =
        (job.deadline.into_std(), Arc::clone(&job.shared), Rc::clone(&stop));
    let going = Rc::clone(calculation);
    runtime.set_interrupt_handler(Some(Box::new(move || {
        going.go_on();
        let now = std::time::Instant::now();
        let stop = over
            .take()
            .or_else(|| (now >= deadline || shared.is_given_up()).then_some(Stop::TimedOut));
        let is_over = stop.is_some();
        over.set(stop);
        is_over
    })));
    match Context::full(&runtime) {
        Ok(context) => {
            let (outcome, effects) =
                context.with(|ctx| Run::new(job, ctx, stop, calculation).ending());
            tell((with_hindsight(outcome, &runtime, job), effects));
        }
        Err(error) => tell(unavailable(error)),
    }
}

/// An engine without any memory left may drop the promise that is waited for. What it still holds then tells.
fn with_hindsight(outcome: Outcome, runtime: &Runtime, job: &Job) -> Outcome {
    let is_odd = matches!(&outcome, Outcome::Failed { code: "SCRIPT_ERROR", message, .. }
        if message == NEVER_SETTLED);
    if is_odd {
        let held = usize::try_from(runtime.memory_usage().malloc_size).unwrap_or(0);
        if held > job.settings.memory_max_bytes / 4 * 3 {
            return failed("MEMORY_LIMIT", NO_MEMORY, false);
        }
    }
    outcome
}

struct Run<'a, 'js> {
    job: &'a Job,
    ctx: Ctx<'js>,
    stop: Rc<Cell<Option<Stop>>>,
    host: Rc<RefCell<Host>>,
}

/// Why there is no value.
enum Ended {
    /// Something was thrown. It waits in the context.
    Thrown(Error),
    /// The same, before the script began: it cannot be run at all.
    Invalid(Error),
    NoHandler,
    NeverSettled(&'static str),
    TooLarge,
    NotStorable(&'static str),
    Stopped,
}

impl<'a, 'js> Run<'a, 'js> {
    fn new(
        job: &'a Job,
        ctx: Ctx<'js>,
        stop: Rc<Cell<Option<Stop>>>,
        calculation: &Rc<Calculation>,
    ) -> Self {
        let host = Host {
            app_id: job.request.app_id,
            store: Arc::clone(&job.store),
            fetcher: Arc::clone(&job.fetcher),
            runtime: job.runtime.clone(),
            deadline: job.deadline,
            shared: Arc::clone(&job.shared),
            stop: Rc::clone(&stop),
            calculation: Rc::clone(calculation),
            effects: Effects::new(job.settings.output),
            own: BTreeMap::new(),
            fetches_left: job.settings.fetches_max,
            thrown: None,
        };
        Self { job, ctx, stop, host: Rc::new(RefCell::new(host)) }
    }

    fn ending(&self) -> Ending {
        let outcome = match self.prelude() {
            Err(_) => failed("EXECUTOR_ERROR", "the host API could not be set up", true),
            Ok(entry) => match self.value(&entry) {
                Ok(value) => value,
                Err(ended) => self.failure(&entry, ended),
            },
        };
        // A limit that was met stays met, even if the script swallowed the error and went on.
        let outcome = match self.stop.take() {
            None => outcome,
            Some(Stop::TimedOut) => Outcome::TimedOut,
            Some(Stop::OutputLimit(limit)) => failed("OUTPUT_LIMIT", &limit, false),
        };
        let effects = match outcome {
            Outcome::Value(_) => self.host.borrow_mut().effects.take(),
            Outcome::Failed { .. } | Outcome::Away { .. } | Outcome::TimedOut => Vec::new(),
        };
        (outcome, effects)
    }

    /// The host API, offered to the script. What comes back is for the host alone.
    fn prelude(&self) -> Result<Function<'js>, Error> {
        let host = Rc::clone(&self.host);
        let call = move |operation: String, a: String, b: String, c: String, d: String| {
            // Nothing in a call leads back into the script, so it is never borrowed twice.
            let Ok(mut host) = host.try_borrow_mut() else { return "Ethe host is busy".to_owned() };
            match host.call(&operation, [a, b, c, d]) {
                Ok(answer) => format!("={answer}"),
                Err(Refusal::Argument(problem)) => format!("T{problem}"),
                Err(Refusal::Failure(problem)) => format!("E{problem}"),
            }
        };
        let (prelude, loaded) = prelude::module(&self.ctx)?.eval()?;
        loaded.finish::<()>()?;
        let make: Function<'js> = prelude.get("default")?;
        make.call((Function::new(self.ctx.clone(), call)?,))
    }

    fn value(&self, entry: &Function<'js>) -> Result<Outcome, Ended> {
        let source = self.job.request.source.as_bytes();
        let module =
            Module::declare(self.ctx.clone(), SCRIPT_FILE, source).map_err(Ended::Invalid)?;
        let (module, loaded) = module.eval().map_err(Ended::Invalid)?;
        self.settle(&loaded, "the script's top-level await never settled")?;
        loaded.result::<Value<'js>>().transpose().map_err(Ended::Thrown)?;
        let handler: Value<'js> = module.get("default").map_err(Ended::Invalid)?;
        if !handler.is_function() {
            return Err(Ended::NoHandler);
        }
        let request = request_text(&self.job.request);
        let answer: Promise<'js> = entry.call(("run", handler, request)).map_err(Ended::Thrown)?;
        self.settle(&answer, NEVER_SETTLED)?;
        let text: Option<String> = answer.result().transpose().map_err(Ended::Thrown)?;
        let text = text.ok_or(Ended::Stopped)?;
        if text.len() > self.job.settings.output.result_bytes_max {
            return Err(Ended::TooLarge);
        }
        storable(text).map(Outcome::Value).map_err(Ended::NotStorable)
    }

    /// Do what is to be done until the promise is settled.
    fn settle(&self, promise: &Promise<'js>, never: &'static str) -> Result<(), Ended> {
        while promise.state() == PromiseState::Pending {
            if self.is_over() {
                return Err(Ended::Stopped);
            }
            if !self.ctx.execute_pending_job() {
                return Err(Ended::NeverSettled(never));
            }
        }
        Ok(())
    }

    /// Small jobs may run for ever without the engine ever asking.
    fn is_over(&self) -> bool {
        let stop = self.stop.take().or_else(|| {
            let late = Instant::now() >= self.job.deadline || self.job.shared.is_given_up();
            late.then_some(Stop::TimedOut)
        });
        let is_over = stop.is_some();
        self.stop.set(stop);
        is_over
    }

    fn failure(&self, entry: &Function<'js>, ended: Ended) -> Outcome {
        let (error, is_invalid) = match ended {
            Ended::Thrown(error) => (error, false),
            Ended::Invalid(error) => (error, true),
            Ended::NoHandler => return failed("SCRIPT_INVALID", NO_HANDLER, false),
            Ended::NeverSettled(what) => return failed("SCRIPT_ERROR", what, true),
            Ended::TooLarge => {
                let most = self.job.settings.output.result_bytes_max;
                let problem = format!("the handler's value is larger than {most} bytes");
                return failed("OUTPUT_LIMIT", &problem, false);
            }
            Ended::NotStorable(problem) => {
                return failed("SCRIPT_ERROR", &format!("the handler's value {problem}"), true);
            }
            Ended::Stopped => return Outcome::TimedOut,
        };
        if self.is_over() {
            return Outcome::TimedOut;
        }
        if !self.ctx.has_exception() {
            return match error {
                // It failed and could not make an error of it.
                Error::Exception | Error::Allocation | Error::Unknown => {
                    failed("MEMORY_LIMIT", NO_MEMORY, false)
                }
                other if is_invalid => failed("SCRIPT_INVALID", &other.to_string(), false),
                other => failed("SCRIPT_ERROR", &other.to_string(), true),
            };
        }
        let thrown = self.ctx.catch();
        let described = entry.call::<_, ()>(("describe", thrown, ""));
        match (described, self.host.borrow_mut().thrown.take()) {
            (Ok(()), Some(thrown)) => in_words(&thrown, is_invalid),
            // Only a script that still holds all its memory cannot be asked what happened.
            _ => failed("MEMORY_LIMIT", NO_MEMORY, false),
        }
    }
}

fn in_words(thrown: &Thrown, is_invalid: bool) -> Outcome {
    let Thrown { name, message, stack } = thrown;
    let line = stack
        .split_once(&format!("{SCRIPT_FILE}:"))
        .map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect::<String>())
        .filter(|digits| !digits.is_empty());
    let place = line.map_or_else(String::new, |line| format!(" (line {line})"));
    // The place comes last and must not be cut off with the rest.
    let message: String = message.chars().take(400).collect();
    let name: String = name.chars().take(60).collect();
    let text = format!("{name}: {message}{place}");
    match (name.as_str(), message.as_str()) {
        // Without the memory to make an error, the engine throws null; hardly anybody else does.
        ("thrown", "null") => failed("MEMORY_LIMIT", THROWN_NULL, false),
        ("InternalError", message)
            if message.starts_with("out of memory")
                || message.is_empty()
                || message == "string too long" =>
        {
            failed("MEMORY_LIMIT", &text, false)
        }
        ("RangeError", "Maximum call stack size exceeded") => failed("STACK_LIMIT", &text, false),
        _ if is_invalid => failed("SCRIPT_INVALID", &text, false),
        _ => failed("SCRIPT_ERROR", &text, true),
    }
}

/// Refuses every import, static and dynamic.
struct NoImports;

impl Resolver for NoImports {
    fn resolve<'js>(
        &mut self,
        _ctx: &Ctx<'js>,
        base: &str,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> Result<String, Error> {
        Err(Error::new_resolving_message(base, name, NO_IMPORTS))
    }
}

impl Loader for NoImports {
    fn load<'js>(
        &mut self,
        _ctx: &Ctx<'js>,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> Result<Module<'js, Declared>, Error> {
        Err(Error::new_loading_message(name, NO_IMPORTS))
    }
}
