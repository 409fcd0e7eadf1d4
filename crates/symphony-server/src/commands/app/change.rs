//! A change to an app: a dry run until `--yes`, and asked of a second person where one is needed.

use std::process::ExitCode;

use serde::Serialize;
use symphony::db::{ActCall, DbError, Operator};
use symphony::domain::Act;

use super::super::acts::{self, Verb, approved_act, as_operator};
use super::super::approval::{self, Acted};
use super::in_words;
use crate::cli::{ApprovedAct, Global};
use crate::output::Failure;

/// What is to be changed, and how it is said.
pub(super) struct Change<'a> {
    /// What of which app, escaped.
    pub(super) target: String,
    /// The same for a second person.
    pub(super) call: ActCall,
    pub(super) options: &'a ApprovedAct,
    pub(super) verb: &'static Verb,
}

impl Change<'_> {
    /// Do it, or say what it would do, or ask for it.
    pub(super) async fn run<T: Serialize>(
        &self,
        global: &Global,
        doing: impl AsyncFn(&Operator, &Act) -> Result<T, DbError>,
        becomes: impl Fn(&T) -> String,
    ) -> Result<ExitCode, Failure> {
        let Self { target, call, options, verb } = self;
        let act = approved_act(options)?;
        as_operator(global, async |operator| {
            let wished = options.request_approval;
            let doing = doing(&operator, &act);
            let answer = match approval::act_or_ask(&operator, wished, &act, call, doing).await {
                Ok(Acted::Done(answer)) => answer,
                Ok(Acted::Asked(request)) => {
                    return approval::tell_asked(global, verb, target, &[request]);
                }
                Err(error) => return Err(in_words(error)),
            };
            let ends = approval::ending(&operator, "triggers", &act, wished).await?;
            acts::tell(global, verb, ends, &answer, target, &becomes(&answer))
        })
        .await
    }
}
