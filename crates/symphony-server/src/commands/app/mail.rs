//! `symphony app mail`: whose mail is whose. Granting and revoking are a dry run until `--yes`.

use std::process::ExitCode;

use symphony::db::{ActCall, Operator};
use symphony::domain::Act;

use super::super::acts::{self, REPEAT, Verb, approved_act, as_operator};
use super::change::Change;
use super::in_words;
use crate::cli::{AppMail, Global, MailAct};
use crate::output::{self, Failure};

const GRANT: Verb = Verb { would: "grant", done: "granted" };
const REVOKE: Verb = Verb { would: "revoke", done: "revoked" };

pub(super) async fn run(global: &Global, what: &AppMail) -> Result<ExitCode, Failure> {
    match what {
        AppMail::Grant(options) => grant(global, options).await,
        AppMail::Revoke(options) => revoke(global, options).await,
        AppMail::List { app } => list(global, app.as_deref()).await,
    }
}

async fn grant(global: &Global, options: &MailAct) -> Result<ExitCode, Failure> {
    let change = Change {
        target: target(options),
        call: ActCall::grant_mail(&options.app, &options.filter),
        options: &options.act,
        verb: &GRANT,
    };
    let doing = async |operator: &Operator, act: &Act| {
        operator.grant_mail(&options.app, &options.filter, act).await
    };
    change
        .run(global, doing, |answer| match (answer.granted_before, answer.addresses_of_others) {
            (true, _) => "it was granted before, and nothing changes".to_owned(),
            (false, 0) => "no other app has an address within it".to_owned(),
            (false, 1) => "an address within it is another app's, and both get its mail".to_owned(),
            (false, others) => {
                format!("{others} addresses within it are other apps', and both get their mail")
            }
        })
        .await
}

async fn revoke(global: &Global, options: &MailAct) -> Result<ExitCode, Failure> {
    let act = approved_act(&options.act)?;
    as_operator(global, async |operator| {
        let answer =
            operator.revoke_mail(&options.app, &options.filter, &act).await.map_err(in_words)?;
        let becomes = "from the next message on it has only its own addresses";
        let ends = if act.dry_run { REPEAT } else { "" };
        acts::tell(global, &REVOKE, ends, &answer, &target(options), becomes)
    })
    .await
}

fn target(options: &MailAct) -> String {
    format!("app {} the mail of {}", output::plain(&options.app), output::plain(&options.filter))
}

async fn list(global: &Global, app: Option<&str>) -> Result<ExitCode, Failure> {
    as_operator(global, async |operator| {
        let rows = operator.reader().app_mail(app).await?;
        if global.json {
            output::json(&rows)?;
        } else if rows.is_empty() {
            output::print("no app has an address\n")?;
        } else {
            output::print(&output::table(
                ["app", "mail to", "by"],
                rows.iter().map(|row| {
                    let by = if row.granted { "a grant" } else { "its app.json" };
                    [row.app.clone(), row.filter.clone(), by.to_owned()]
                }),
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}
