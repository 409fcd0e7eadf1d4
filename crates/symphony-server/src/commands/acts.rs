//! What people do to items, rails and participants. Each act is a dry run until `--yes`.

use std::fmt::Write as _;
use std::process::ExitCode;

use chrono::SecondsFormat;
use serde::Serialize;
use symphony::db::{
    ActAnswer, ActCall, Auditor, DbError, FoundPayment, Known, Operator, Role, SwitchAnswer,
};
use symphony::domain::{Act, OutboxId, Resolution, Switch};

use super::approval::{self, Acted};
use super::{attention, bulk, event_acts, names, statement};
use crate::cli::{
    ActOptions, ApprovedAct, Global, ItemAct, PauseTarget, Redrive, Resolve, ResolveAs, SendingAct,
    Skip, SwitchTarget,
};
use crate::output::{self, Failure};
use crate::server::Server;

/// An act in words: what would be done, and what was done.
pub(super) struct Verb {
    pub(super) would: &'static str,
    pub(super) done: &'static str,
}

const PARK: Verb = Verb { would: "park", done: "parked" };
const RELEASE: Verb = Verb { would: "release", done: "released" };
const RESOLVE: Verb = Verb { would: "resolve", done: "resolved" };
pub(super) const REDRIVE: Verb = Verb { would: "redrive", done: "redriven" };
pub(super) const SKIP: Verb = Verb { would: "skip", done: "skipped" };
const PAUSE: Verb = Verb { would: "pause", done: "paused" };
const RESUME: Verb = Verb { would: "resume", done: "resumed" };

pub(super) async fn park(global: &Global, options: &ItemAct) -> Result<ExitCode, Failure> {
    let act = approved_act(&options.act)?;
    as_operator(global, async |operator| {
        let item = one_item(&operator.reader(), &options.id).await?;
        let answer = operator.park_payment(item.outbox_id, &act).await.map_err(in_options)?;
        let ends = if act.dry_run { REPEAT } else { "" };
        tell(global, &PARK, ends, &answer, &in_words(&item), &becomes(&answer))
    })
    .await
}

pub(super) async fn release(global: &Global, options: &SendingAct) -> Result<ExitCode, Failure> {
    let act = sending_act(options)?;
    as_operator(global, async |operator| {
        let item = one_item(&operator.reader(), &options.item.id).await?;
        let call = ActCall::release(item.outbox_id, &act);
        let wished = options.item.act.request_approval;
        let doing = operator.release_payment(item.outbox_id, &act);
        match approval::act_or_ask(&operator, wished, &act, &call, doing)
            .await
            .map_err(in_options)?
        {
            Acted::Asked(request) => {
                approval::tell_asked(global, &RELEASE, &in_words(&item), &[request])
            }
            Acted::Done(told) => {
                let becomes = becomes(&told.answer) + &known(&told.known, act.dry_run);
                let ends = approval::ending(&operator, "payments", &act, wished).await?;
                tell(global, &RELEASE, ends, &told, &in_words(&item), &becomes)
            }
        }
    })
    .await
}

pub(super) async fn resolve(global: &Global, options: &Resolve) -> Result<ExitCode, Failure> {
    if let Some(file) = &options.statement {
        return statement::run(global, options, file).await;
    }
    let Some(id) = &options.id else { return bulk::resolve(global, options).await };
    let act = Act { despite_unknown: options.despite_unknown, ..approved_act(&options.act)? };
    let resolution = match (options.outcome, &options.reference) {
        (Some(ResolveAs::Dispatched), Some(reference)) => {
            Resolution::Dispatched { rail_reference: reference.clone() }
        }
        (Some(ResolveAs::Failed), None) => Resolution::Failed,
        (Some(ResolveAs::Retry), None) => Resolution::Retry,
        (Some(ResolveAs::Dispatched), None) => {
            return Err(Failure::new("--as dispatched needs --reference: it is the proof"));
        }
        // Somebody who has a reference and says "failed" has mixed something up.
        (Some(ResolveAs::Failed | ResolveAs::Retry), Some(_)) => {
            return Err(Failure::new(
                "--reference is the proof that the money moved: it goes with --as dispatched only",
            ));
        }
        (None, _) => return Err(Failure::new("say what became of it, with --as")),
    };
    as_operator(global, async |operator| {
        let item = one_item(&operator.reader(), id).await?;
        let call = ActCall::resolve(item.outbox_id, &resolution, &act);
        let wished = options.act.request_approval;
        let doing = operator.resolve_payment(item.outbox_id, &resolution, &act);
        match approval::act_or_ask(&operator, wished, &act, &call, doing)
            .await
            .map_err(in_options)?
        {
            Acted::Asked(request) => {
                approval::tell_asked(global, &RESOLVE, &in_words(&item), &[request])
            }
            Acted::Done(told) => {
                let becomes = becomes(&told.answer) + &known(&told.known, act.dry_run);
                let asks = wished || told.known.needs_approver;
                let ends = approval::ending(&operator, "payments", &act, asks).await?;
                tell(global, &RESOLVE, ends, &told, &in_words(&item), &becomes)
            }
        }
    })
    .await
}

pub(super) async fn redrive(global: &Global, options: &Redrive) -> Result<ExitCode, Failure> {
    let payments = options.rail.is_some() || options.participant.is_some();
    let events = event_acts::names_events(options);
    if usize::from(options.id.is_some())
        + usize::from(payments)
        + usize::from(options.app.is_some())
        + usize::from(events)
        > 1
    {
        return Err(Failure::new(
            "name a payment by its id, or choose payments by --rail or --participant, executions by --app, or events by \
             --event-id or a filter: not both at once",
        ));
    }
    let Some(id) = &options.id else {
        return if payments {
            bulk::redrive(global, options).await
        } else if options.app.is_some() {
            bulk::replay(global, options).await
        } else {
            event_acts::redrive(global, options).await
        };
    };
    if event_acts::has_filter(options) {
        return Err(Failure::new(
            "name a payment by its id, or choose some by a filter: not both at once",
        ));
    }
    let act = Act { despite_unknown: options.despite_unknown, ..approved_act(&options.act)? };
    as_operator(global, async |operator| {
        let item = match one_item(&operator.reader(), id).await {
            Err(failure) => {
                return Err(event_acts::is_it_an_event(&operator, id).await?.unwrap_or(failure));
            }
            Ok(item) => item,
        };
        let call = ActCall::redrive(item.outbox_id, &act);
        let wished = options.act.request_approval;
        let doing = operator.redrive_payment(item.outbox_id, &act);
        let answer = match approval::act_or_ask(&operator, wished, &act, &call, doing).await {
            Ok(Acted::Done(answer)) => answer,
            Ok(Acted::Asked(request)) => {
                return approval::tell_asked(global, &REDRIVE, &in_words(&item), &[request]);
            }
            Err(error) => return Err(in_options(error)),
        };
        let becomes: String = match (answer.redriven_as, answer.sequence_id) {
            (Some(new), Some(number)) => {
                let participant = output::plain(&item.participant_id);
                format!("it stays FAILED and goes on as {new}, number {number} of {participant}")
            }
            _ => "it stays FAILED, and a new item with a new key to the rail is made".to_owned(),
        } + &known(&answer.known, act.dry_run);
        let asks = wished || answer.known.needs_approver;
        let ends = approval::ending(&operator, "payments", &act, asks).await?;
        tell(global, &REDRIVE, ends, &answer, &in_words(&item), &becomes)
    })
    .await
}

pub(super) async fn skip(global: &Global, options: &Skip) -> Result<ExitCode, Failure> {
    let act = approved_act(&options.act)?;
    if let Some(event) = options.event_id {
        return event_acts::skip(global, event, &act, options.act.request_approval).await;
    }
    let (Some(participant), Some(rail)) = (&options.participant, &options.rail) else {
        return Err(Failure::new(
            "name the lane by --participant and --rail, or an event by --event-id",
        ));
    };
    as_operator(global, async |operator| {
        let call = ActCall::skip_head(participant, rail);
        let wished = options.act.request_approval;
        let doing = operator.skip_payment_head(participant, rail, &act);
        let answer = match approval::act_or_ask(&operator, wished, &act, &call, doing).await {
            Ok(Acted::Done(answer)) => answer,
            Ok(Acted::Asked(request)) => {
                let head = format!(
                    "the head of participant {}, rail {}",
                    output::plain(participant),
                    output::plain(rail)
                );
                return approval::tell_asked(global, &SKIP, &head, &[request]);
            }
            Err(error) => return Err(in_options(error)),
        };
        let becomes = if answer.state_before == "FAILED" {
            "it stays FAILED, and its lane goes on".to_owned()
        } else {
            format!(
                "{} → {}, outside its lane for good, and the lane goes on",
                answer.state_before, answer.state_after
            )
        };
        let target = format!(
            "{} (participant {}, rail {})",
            answer.outbox_id,
            output::plain(participant),
            output::plain(rail)
        );
        let ends = approval::ending(&operator, "payments", &act, wished).await?;
        tell(global, &SKIP, ends, &answer, &target, &becomes)
    })
    .await
}

pub(super) async fn pause(global: &Global, target: &PauseTarget) -> Result<ExitCode, Failure> {
    match target {
        PauseTarget::List => list_paused(global).await,
        PauseTarget::Switch(target) => switch(global, target, true).await,
    }
}

pub(super) async fn resume(global: &Global, target: &SwitchTarget) -> Result<ExitCode, Failure> {
    switch(global, target, false).await
}

async fn switch(global: &Global, target: &SwitchTarget, pause: bool) -> Result<ExitCode, Failure> {
    let (target, act, name) = switch_of(target)?;
    as_operator(global, async |operator| {
        let acted = if pause {
            operator.pause(&target, &act).await.map(Acted::Done)
        } else {
            let call = ActCall::resume(&target);
            let doing = operator.resume(&target, &act);
            approval::act_or_ask(&operator, false, &act, &call, doing).await
        };
        match acted {
            Err(error) if error.code() == "P7007" => {
                Err(names::no_such_name(&operator.reader(), &target).await?)
            }
            Err(error) => Err(in_options(error)),
            Ok(Acted::Asked(request)) => approval::tell_asked(global, &RESUME, &name, &[request]),
            Ok(Acted::Done(answer)) if pause => {
                let ends = if act.dry_run { REPEAT } else { "" };
                tell_switch(global, &PAUSE, &name, &answer, ends)
            }
            Ok(Acted::Done(answer)) => {
                let ends = approval::ending(&operator, lane_of(&target), &act, false).await?;
                tell_switch(global, &RESUME, &name, &answer, ends)
            }
        }
    })
    .await
}

fn lane_of(switch: &Switch) -> &'static str {
    match switch {
        Switch::Payments | Switch::Rail(_) | Switch::Participant(_) => "payments",
        Switch::Events | Switch::Topic(_) => "events",
        Switch::Triggers | Switch::App(_) => "triggers",
    }
}

async fn list_paused(global: &Global) -> Result<ExitCode, Failure> {
    as_operator(global, async |operator| {
        let paused = operator.reader().paused().await?;
        if global.json {
            output::json(&paused)?;
        } else if paused.is_empty() {
            output::print("nothing is paused\n")?;
        } else {
            output::print(&attention::paused_table(&paused))?;
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

/// Do something as an operator; whatever comes of it, the server is left again.
pub(super) async fn as_operator(
    global: &Global,
    work: impl AsyncFnOnce(Operator) -> Result<ExitCode, Failure>,
) -> Result<ExitCode, Failure> {
    let server = Server::open(global).await?;
    let result = match server.database_as(Role::Auditor).await {
        Ok(database) => work(database.operator()).await,
        Err(failure) => Err(failure),
    };
    server.close().await?;
    result
}

/// Who acts: the name given, or the login behind `sudo`, or the login.
pub(super) fn actor(given: Option<&String>) -> Result<String, Failure> {
    given
        .cloned()
        .or_else(|| {
            ["SUDO_USER", "USER"]
                .into_iter()
                .filter_map(|name| std::env::var(name).ok())
                .find(|value| !value.trim().is_empty())
        })
        .ok_or_else(|| Failure::new("nobody is named as acting: add --actor NAME"))
}

/// The same for what needs no reason, and so no person: in a container, where no variable says who one is, the account.
pub(super) fn actor_or_account(given: Option<&String>) -> String {
    actor(given).unwrap_or_else(|_nobody_named| {
        let uid = rustix::process::geteuid().as_raw().to_string();
        let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let own = accounts.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)? == uid).then(|| name.to_owned())
        });
        own.unwrap_or_else(|| format!("uid {uid}"))
    })
}

pub(super) fn approved_act(options: &ApprovedAct) -> Result<Act, Failure> {
    act_of(&options.act)
}

pub(super) fn act_of(options: &ActOptions) -> Result<Act, Failure> {
    Ok(Act {
        actor: actor(options.actor.as_ref())?,
        reason: options.reason.clone(),
        dry_run: !options.yes,
        despite_unknown: false,
    })
}

fn sending_act(options: &SendingAct) -> Result<Act, Failure> {
    Ok(Act { despite_unknown: options.despite_unknown, ..approved_act(&options.item.act)? })
}

/// What is paused or resumed, by whom, and what it is called.
fn switch_of(target: &SwitchTarget) -> Result<(Switch, Act, String), Failure> {
    let (switch, act, name) = match target {
        SwitchTarget::Payments { act } => (Switch::Payments, act, "the payment lane".to_owned()),
        SwitchTarget::Events { act } => (Switch::Events, act, "the event lane".to_owned()),
        SwitchTarget::Topic { name, act } => {
            (Switch::Topic(name.clone()), act, format!("topic {}", output::plain(name)))
        }
        SwitchTarget::Triggers { act } => (Switch::Triggers, act, "the trigger lane".to_owned()),
        SwitchTarget::Rail { name, act } => {
            (Switch::Rail(name.clone()), act, format!("rail {}", output::plain(name)))
        }
        SwitchTarget::Participant { id, act } => {
            (Switch::Participant(id.clone()), act, format!("participant {}", output::plain(id)))
        }
        SwitchTarget::App { name, act } => {
            (Switch::App(name.clone()), act, format!("app {}", output::plain(name)))
        }
    };
    Ok((switch, act_of(act)?, name))
}

/// A refusal in the words of the command line.
pub(super) fn in_options(error: DbError) -> Failure {
    Failure::from(error).reworded(&[
        ("p_rail_reference", "--reference"),
        ("p_participant_id", "the participant"),
        ("p_rail_type", "the rail"),
        ("p_request_no", "the number"),
        ("p_actor", "--actor"),
        ("p_reason", "--reason"),
        ("p_fifo", "--fifo"),
        ("p_on_failed", "--on-failed"),
        ("p_marks_sending", "--marks-sending"),
        ("p_dedup_window_seconds", "--dedup-window"),
        ("p_resend_sent", "--sent"),
        ("p_despite_unknown", "--despite-unknown"),
        ("p_incident_no", "the number"),
        ("p_name", "the name"),
    ])
}

/// The item an id names. An act is on one item: of several, the person chooses.
pub(super) async fn one_item(reader: &Auditor, id: &str) -> Result<FoundPayment, Failure> {
    let mut items = reader.find_payment_items(id).await?;
    // An outbox id names its item, even if an instruction should be called the same.
    if let Some(named) = id
        .parse::<OutboxId>()
        .ok()
        .and_then(|id| items.iter().position(|item| item.outbox_id == id))
    {
        return Ok(items.swap_remove(named));
    }
    match items.len() {
        0 => Err(Failure::new(format!("no item has the outbox or instruction id {id:?}"))),
        1 => Ok(items.swap_remove(0)),
        count => {
            let choices: Vec<String> =
                items.iter().map(|item| format!("{} ({})", item.outbox_id, item.state)).collect();
            Err(Failure::new(format!(
                "instruction {id:?} has {count} items: name one by its outbox id: {}",
                choices.join(", ")
            )))
        }
    }
}

pub(super) fn in_words(item: &FoundPayment) -> String {
    format!(
        "{} (instruction {}, participant {}, rail {})",
        item.outbox_id,
        output::plain(&item.instruction_id),
        output::plain(&item.participant_id),
        output::plain(&item.rail_type)
    )
}

fn becomes(answer: &ActAnswer) -> String {
    format!("{} → {}", answer.state_before, answer.state_after)
}

/// Everything that was tried before, for whoever is about to have it sent again.
fn known(known: &Known, dry_run: bool) -> String {
    let mut text = String::new();
    if !dry_run {
        return text;
    }
    for told in &known.tries.0 {
        let mut words =
            vec![told.at.to_rfc3339_opts(SecondsFormat::Millis, true), told.what.clone()];
        words.extend(told.attempt_no.map(|number| number.to_string()));
        words.extend(told.outcome.clone());
        if told.unknown {
            words.push("OUTCOME UNKNOWN".to_owned());
        }
        for (name, value) in [
            ("reference", &told.rail_reference),
            ("rail code", &told.rail_code),
            ("error", &told.error_code),
            ("by", &told.by),
            ("because", &told.reason),
        ] {
            words.extend(value.as_ref().map(|value| format!("{name} {}", output::plain(value))));
        }
        let _infallible = write!(text, "\n  {} of {}", words.join(" "), told.outbox_id);
    }
    for (applies, advice) in [
        (known.tries.0.is_empty(), "nothing was tried before"),
        (
            known.needs_despite_unknown,
            "the rail never said what became of a try: ask it; to act all the same add --despite-unknown, and let --reason say how you know",
        ),
        (
            known.needs_approver,
            "the rail has told a lost worker that it was executed: a second person must agree that it was not",
        ),
    ] {
        if applies {
            text.push_str("\n  ");
            text.push_str(advice);
        }
    }
    text
}

fn tell_switch(
    global: &Global,
    verb: &Verb,
    name: &str,
    answer: &SwitchAnswer,
    ends: &str,
) -> Result<ExitCode, Failure> {
    if !global.json && answer.state_before == answer.state_after {
        output::print(&format!("{name} is {} already: nothing to change\n", answer.state_after))?;
        return Ok(ExitCode::SUCCESS);
    }
    let becomes = format!("{} → {}", answer.state_before, answer.state_after);
    tell(global, verb, ends, answer, name, &becomes)
}

#[derive(Serialize)]
struct Report<'a, T> {
    act: &'static str,
    #[serde(flatten)]
    answer: &'a T,
}

/// What was done; or, with what a dry run ends with, what would be.
pub(super) fn tell<T: Serialize>(
    global: &Global,
    verb: &Verb,
    ends: &str,
    answer: &T,
    target: &str,
    becomes: &str,
) -> Result<ExitCode, Failure> {
    if global.json {
        output::json(&Report { act: verb.would, answer })?;
    } else if ends.is_empty() {
        output::print(&format!("{} {target}: {becomes}\n", verb.done))?;
    } else {
        output::print(&format!("would {} {target}: {becomes}\n{ends}", verb.would))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What a dry run ends with.
pub(super) const REPEAT: &str = "Nothing was changed: repeat with --yes to do it.\n";
