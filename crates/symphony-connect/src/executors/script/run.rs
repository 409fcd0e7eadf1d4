//! One run, on a thread of its own: a fresh runtime and context, the host API, the script, its handler, its answer.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use rquickjs::promise::PromiseState;
use rquickjs::{Context, Ctx, Error, Function, Module, Promise, Runtime, Value};
use symphony::lanes::triggers::executor::{Effect, Execution, Request, RunOutcome, ScriptStore};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::ScriptSettings;
use super::compile::frame_place;
use super::cpu_budget::{BudgetedRun, CpuBudget, Turns};
use super::host::{Host, Refusal, Stop, Thrown};
use super::modules::PushedModules;
use super::prelude;
use super::reads::Reads;
use super::shared::Shared;
use super::web::WebState;
use crate::bounds::scripts::{SECRETS_PER_RUN_MAX, STACK_FRAMES_MAX};
use crate::executors::output::{Effects, storable};
use crate::executors::{Fetcher, failed, request_text};

pub(super) const NO_HANDLER: &str =
    "the script has no handler: write export default function (request) { … }";
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
    pub(super) cpu_budget: Arc<CpuBudget>,
    pub(super) turns: Arc<Turns>,
}

/// Run, tell how it ended, and only then clean up, which takes a while for a large heap.
pub(super) fn run(job: &Job, tell: impl FnOnce(Execution)) {
    let (cpu_budget, turns) = (Arc::clone(&job.cpu_budget), Arc::clone(&job.turns));
    let deadline = job.deadline.into_std();
    let started = BudgetedRun::start(cpu_budget, turns, deadline, Arc::clone(&job.shared));
    let Some(budgeted_run) = started else { return tell(Execution::new(RunOutcome::TimedOut)) };
    // Over when the memory is free.
    let budgeted_run = Rc::new(budgeted_run);
    run_in(job, &budgeted_run, |ending| {
        tell(ending);
        budgeted_run.wait_to_free_memory();
    });
}

fn run_in(job: &Job, budgeted_run: &Rc<BudgetedRun>, tell: impl FnOnce(Execution)) {
    let stop = Rc::new(Cell::new(None));
    let unavailable =
        |_: Error| Execution::new(failed("EXECUTOR_ERROR", "no engine could be made", true));
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return tell(unavailable(error)),
    };
    runtime.set_memory_limit(job.settings.memory_max_bytes);
    runtime.set_max_stack_size(job.settings.stack_max_bytes);
    let Request { modules, file, .. } = &job.request;
    let modules = || PushedModules { modules: Arc::clone(modules), file: Arc::clone(file) };
    runtime.set_loader(modules(), modules());
    let (deadline, shared, over) =
        (job.deadline.into_std(), Arc::clone(&job.shared), Rc::clone(&stop));
    let going = Rc::clone(budgeted_run);
    runtime.set_interrupt_handler(Some(Box::new(move || {
        going.wait_if_over_budget();
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
            let ended = context.with(|ctx| Run::new(job, ctx, stop, budgeted_run).ending());
            let outcome = with_hindsight(ended.outcome, &runtime, job);
            tell(Execution { outcome, ..ended });
        }
        Err(error) => tell(unavailable(error)),
    }
}

/// An engine without any memory left may drop the promise that is waited for. What it still holds then tells.
fn with_hindsight(outcome: RunOutcome, runtime: &Runtime, job: &Job) -> RunOutcome {
    let is_odd = matches!(&outcome, RunOutcome::Failed { code: "SCRIPT_ERROR", message, .. }
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
        budgeted_run: &Rc<BudgetedRun>,
    ) -> Self {
        let host = Host {
            app_id: job.request.app_id,
            app: job.request.app.clone(),
            store: Arc::clone(&job.store),
            fetcher: Arc::clone(&job.fetcher),
            runtime: job.runtime.clone(),
            deadline: job.deadline,
            shared: Arc::clone(&job.shared),
            stop: Rc::clone(&stop),
            budgeted_run: Rc::clone(budgeted_run),
            effects: Effects::new(job.settings.output),
            reads: Reads::default(),
            own: BTreeMap::new(),
            has_left: false,
            fetches_left: job.settings.fetches_max,
            secrets_left: SECRETS_PER_RUN_MAX,
            departure: job.request.departure.clone(),
            traceparent: job.request.traceparent.clone(),
            thrown: None,
            web: WebState::default(),
        };
        Self { job, ctx, stop, host: Rc::new(RefCell::new(host)) }
    }

    fn ending(&self) -> Execution {
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
            Some(Stop::TimedOut) => RunOutcome::TimedOut,
            Some(Stop::OutputLimit(limit)) => failed("OUTPUT_LIMIT", &limit, false),
        };
        let mut host = self.host.borrow_mut();
        let outcome = self.without_secrets(outcome, host.effects.list());
        let effects = match outcome {
            RunOutcome::Value(_) => host.effects.take(),
            RunOutcome::Failed { .. } | RunOutcome::Away { .. } | RunOutcome::TimedOut => {
                Vec::new()
            }
        };
        // Without effects nobody asks whether they are still so.
        let reads = if effects.is_empty() { Vec::new() } else { host.reads.take() };
        Execution { effects, reads, has_left: host.has_left, ..Execution::new(outcome) }
    }

    /// An answer or an effect with a secret would stand in tables for whoever reads those: then nothing is applied.
    fn without_secrets(&self, outcome: RunOutcome, effects: &[Effect]) -> RunOutcome {
        let RunOutcome::Value(value) = &outcome else { return outcome };
        let shared = &self.job.shared;
        if !shared.has_secrets() {
            return outcome;
        }
        let found = shared.secret_in(value.get()).map(|name| (name, "the answer")).or_else(|| {
            let texts = effects.iter().filter_map(|effect| serde_json::to_string(effect).ok());
            let mut found = texts.filter_map(|text| shared.secret_in(&text));
            found.next().map(|name| (name, "what it wants written or sent"))
        });
        match found {
            None => outcome,
            Some((name, place)) => {
                let problem = format!("the value of secret {name} is in {place}: leave it out");
                failed("SECRET_IN_OUTPUT", &problem, false)
            }
        }
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
        let host = Function::new(self.ctx.clone(), call)?;
        // Other parts of it are read when the script first uses them.
        let load = Function::new(self.ctx.clone(), |ctx: Ctx<'js>, name: String| {
            prelude::made_by(&ctx, &name)
        })?;
        prelude::made_by(&self.ctx, prelude::PRELUDE)?.call((host, load))
    }

    fn value(&self, entry: &Function<'js>) -> Result<RunOutcome, Ended> {
        let Request { file, source, .. } = &self.job.request;
        let module = Module::declare(self.ctx.clone(), file.as_bytes(), source.as_bytes())
            .map_err(Ended::Invalid)?;
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
        storable(&text).map(RunOutcome::Value).map_err(Ended::NotStorable)
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

    fn failure(&self, entry: &Function<'js>, ended: Ended) -> RunOutcome {
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
            Ended::Stopped => return RunOutcome::TimedOut,
        };
        if self.is_over() {
            return RunOutcome::TimedOut;
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
            (Ok(()), Some(thrown)) => {
                let frames = self.frames(&thrown.stack);
                if !frames.is_empty() {
                    self.job.shared.log_stack(&format!(
                        "{}\n{}",
                        thrown.title(),
                        frames.join("\n")
                    ));
                }
                let place = frames.first().and_then(|frame| frame_place(frame));
                let place = place.map(|(path, line, _)| {
                    let file = &*self.job.request.file;
                    if path == file {
                        format!(" (line {line})")
                    } else {
                        format!(" ({path}, line {line})")
                    }
                });
                in_words(&thrown, &place.unwrap_or_default(), is_invalid)
            }
            // Only a script that still holds all its memory cannot be asked what happened.
            _ => failed("MEMORY_LIMIT", NO_MEMORY, false),
        }
    }

    /// The frames of a stack that are in files of the app.
    fn frames<'s>(&self, stack: &'s str) -> Vec<&'s str> {
        let Request { file, modules, .. } = &self.job.request;
        let is_own = |path: &str| path == &**file || modules.contains_key(path);
        let own =
            stack.lines().filter(|frame| frame_place(frame).is_some_and(|place| is_own(place.0)));
        own.take(STACK_FRAMES_MAX).collect()
    }
}

fn in_words(thrown: &Thrown, place: &str, is_invalid: bool) -> RunOutcome {
    let Thrown { name, message, .. } = thrown;
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
