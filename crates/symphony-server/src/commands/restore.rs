//! `symphony restore`: is this the server the installation is known to run on, and if not, go on all the same.

use std::process::ExitCode;

use serde::Serialize;
use symphony::db::{AcceptAnswer, ActCall, ServerRecord};
use symphony::domain::Act;

use super::acts::{self, Verb};
use super::approval::{self, Acted};
use super::suggested_command::symphony;
use crate::cli::{AcceptServer, Global, Restore};
use crate::output::{self, Failure};

const ACCEPT: Verb = Verb { would: "accept", done: "accepted" };

pub(super) async fn run(global: &Global, what: &Restore) -> Result<ExitCode, Failure> {
    match what {
        Restore::Check => check(global).await,
        Restore::Accept(options) => accept(global, options).await,
    }
}

/// What `restore check` answers with.
#[derive(Serialize)]
struct ServerCheck {
    #[serde(flatten)]
    server: ServerRecord,
    /// Why nothing is dispatched; null if work goes on.
    finding: Option<String>,
    /// What accepting it would change.
    accepting: Option<AcceptAnswer>,
}

async fn check(global: &Global) -> Result<ExitCode, Failure> {
    acts::as_operator(global, async |operator| {
        let server = operator.reader().server().await?;
        let finding = server.trouble();
        let accepting = if finding.is_some() {
            let act = Act {
                actor: "restore check".to_owned(),
                reason: "dry run".to_owned(),
                dry_run: true,
                despite_unknown: false,
            };
            match operator.accept_server(&act, None, 86_400).await {
                Ok(answer) => Some(answer),
                // Readers see what was found; what accepting it would change is for those who may.
                Err(error) if error.code() == "42501" => None,
                Err(error) => return Err(error.into()),
            }
        } else {
            None
        };
        let checked = ServerCheck { server, finding, accepting };
        if global.json {
            output::json(&checked)?;
        } else {
            output::print(&in_words(&checked))?;
        }
        Ok(if checked.finding.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
    .await
}

fn in_words(checked: &ServerCheck) -> String {
    let server = &checked.server;
    let timeline =
        server.live_timeline.map_or("none, it is a standby".to_owned(), |live| live.to_string());
    let mut text = format!(
        "installation  {}\non record     system identifier {}, timeline {}\nthis server   system identifier {}, timeline {timeline}\n",
        server.installation_id,
        server.system_identifier,
        server.timeline,
        server.live_system_identifier,
    );
    match (&checked.finding, &checked.accepting) {
        (Some(finding), Some(answer)) => {
            text.push_str(&format!("\nNothing is dispatched here: {finding}.\n\n"));
            text.push_str(&consequences(answer));
            text.push_str(&format!(
                "\nGo on with: {}\n",
                symphony("restore accept --reason WHY --yes")
            ));
        }
        (Some(finding), None) => {
            text.push_str(&format!("\nNothing is dispatched here: {finding}.\n"));
        }
        (None, _) => text
            .push_str("\nThis is the server the installation is known to run on: work goes on.\n"),
    }
    if let (Some(since), Some(until)) = (server.lost_since, server.ask_first_until) {
        text.push_str(&format!(
            "Payments asked for before {until} are inquired after first: what was sent after {since} may be missing here.\n"
        ));
    }
    text
}

fn consequences(answer: &AcceptAnswer) -> String {
    format!(
        "What happened after {} may be missing here.\n{} pending payments: their rails will be asked before anything is sent; \
         what cannot be settled by asking is parked for a person.\n{} pending payments are on rails that can neither \
         deduplicate nor be asked: each is parked.\n\
         New payments are asked about first until {}. Events are published again under their own ids.\n",
        answer.lost_since, answer.payments_to_ask, answer.payments_to_park, answer.ask_first_until
    )
}

async fn accept(global: &Global, options: &AcceptServer) -> Result<ExitCode, Failure> {
    let act = acts::approved_act(&options.act)?;
    acts::as_operator(global, async |operator| {
        let wished = options.act.request_approval;
        let call = ActCall::accept_server(options.lost_since, options.ask_first_for);
        let doing = operator.accept_server(&act, options.lost_since, options.ask_first_for);
        let answer = match approval::act_or_ask(&operator, wished, &act, &call, doing).await {
            Ok(Acted::Done(answer)) => answer,
            Ok(Acted::Asked(request)) => {
                return approval::tell_asked(global, &ACCEPT, "this server", &[request]);
            }
            Err(error) => {
                return Err(acts::in_options(error).reworded(&[
                    ("p_lost_since", "--lost-since"),
                    ("p_ask_first_seconds", "--ask-first-for"),
                ]));
            }
        };
        let becomes = format!("{}\n{}", answer.finding, consequences(&answer).trim_end());
        let ends = approval::ending(&operator, "payments", &act, wished).await?;
        acts::tell(global, &ACCEPT, ends, &answer, "this server", &becomes)
    })
    .await
}
