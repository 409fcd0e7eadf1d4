//! `symphony app versions` and `symphony app rollback`: what pushes have made of an app, and back to it.

use std::process::ExitCode;

use symphony::db::{ActCall, AppVersion};

use super::super::acts::{self, Verb, approved_act, as_operator};
use super::super::approval::{self, Acted};
use super::in_words;
use crate::cli::{ApprovedAct, Global};
use crate::output::{self, Failure};

const ROLLBACK: Verb = Verb { would: "roll back", done: "rolled back" };

pub(super) async fn list(global: &Global, app: &str) -> Result<ExitCode, Failure> {
    as_operator(global, async |operator| {
        let versions = operator.reader().app_versions(app).await?;
        if versions.is_empty() {
            return Err(Failure::new(format!("there is no app {app:?}")).with_code("P7007"));
        }
        if global.json {
            output::json(&versions)?;
            return Ok(ExitCode::SUCCESS);
        }
        let newest = versions.first().map(|version| version.version);
        output::print(&output::table(
            [
                output::number("version"),
                output::whole("pushed at"),
                "pushed by".into(),
                "what it is".into(),
            ],
            versions.iter().map(|AppVersion { version, same_as, pushed_by, pushed_at, .. }| {
                let is_now = if Some(*version) == newest { "so it is now" } else { "" };
                let same = if same_as == version { String::new() } else { format!("as {same_as}") };
                let parts = [same.as_str(), is_now].into_iter().filter(|part| !part.is_empty());
                let at = pushed_at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
                [version.to_string(), at, pushed_by.clone(), parts.collect::<Vec<_>>().join(", ")]
            }),
        ))?;
        Ok(ExitCode::SUCCESS)
    })
    .await
}

pub(super) async fn rollback(
    global: &Global,
    app: &str,
    to: Option<i32>,
    options: &ApprovedAct,
) -> Result<ExitCode, Failure> {
    let act = approved_act(options)?;
    as_operator(global, async |operator| {
        let target = format!("app {}", output::plain(app));
        let wished = options.request_approval;
        let call = ActCall::rollback_app(app, to);
        let doing = operator.rollback_app(app, to, &act);
        let answer = match approval::act_or_ask(&operator, wished, &act, &call, doing).await {
            Ok(Acted::Done(answer)) => answer,
            Ok(Acted::Asked(request)) => {
                return approval::tell_asked(global, &ROLLBACK, &target, &[request]);
            }
            Err(error) => return Err(in_words(error)),
        };
        let becomes = format!(
            "version {} becomes again what version {} was; what is in flight keeps its version",
            answer.version_before, answer.restored_version
        );
        let ends = approval::ending(&operator, "triggers", &act, wished).await?;
        acts::tell(global, &ROLLBACK, ends, &answer, &target, &becomes)
    })
    .await
}
