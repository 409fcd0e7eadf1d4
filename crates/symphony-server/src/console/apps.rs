//! Apps: their parts, their executions as trees, logs and replay.

use std::collections::{HashMap, HashSet};

use axum::response::Response;
use maud::{Markup, html};
use symphony::db::{AppPart, ExecutionRow, ExecutionTree, PENDING_COUNTED_MAX, TREE_COUNTED_MAX};
use uuid::Uuid;

use super::item::{actions, in_the_way, timeline, unknown};
use super::page::{
    act_link, badge, document, facts, figure, hidden, in_address, moment, moment_or, nothing,
    pager, plain,
};
use super::visit::{Asked, Named, Refused, Visit};
use super::waiting::{cut, cut_rows};
use crate::api::{Problem, cursor};
use crate::bounds::{CONSOLE_ROWS, TREE_ROWS_MAX};
use crate::commands::show::execution as shown;

pub(super) async fn list(visit: Visit, asked: Asked) -> Result<Response, Refused> {
    let apps = visit.caller.database.auditor().apps(asked.get("after"), CONSOLE_ROWS).await?;
    let full = i64::try_from(apps.len()).unwrap_or_default() == CONSOLE_ROWS;
    let next = apps.last().filter(|_| full);
    let next = next.map(|last| format!("/console/apps?after={}", in_address(&last.name)));
    let first = asked.get("after").map(|_| "/console/apps");
    let body = html! {
        h1 { "Apps" }
        @if apps.is_empty() { (nothing("There is no app. Push one: symphony app push FOLDER")) }
        @else {
            div.scroll tabindex="0" {
                table {
                    thead { tr { th { "App" } th { "" } th.number { "Scripts" } th.number { "Routes" } th.number { "Triggers" } th.number { "Pending" } th { "Made" } } }
                    tbody {
                        @for app in &apps {
                            tr {
                                td { a href={ "/console/apps/" (in_address(&app.name)) } { (plain(&app.name)) } }
                                td { (badge(if app.paused { "PAUSED" } else { "RUNNING" })) }
                                td.number { (figure(app.scripts)) }
                                td.number { (figure(app.routes)) }
                                td.number { (figure(app.triggers)) }
                                td.number { (figure(app.pending)) @if app.pending == PENDING_COUNTED_MAX { "+" } }
                                td { (moment(app.created_at)) }
                            }
                        }
                    }
                }
            }
        }
        (pager(first, next.as_deref()))
    };
    Ok(visit.page("Apps", &body))
}

pub(super) async fn page(
    visit: Visit,
    Named(name): Named<String>,
    asked: Asked,
) -> Result<Response, Refused> {
    let reader = visit.caller.database.auditor();
    let app = reader.app(&name).await?.ok_or_else(|| unknown("app"))?;
    let parts = reader.app_parts(&name).await?;
    let before = asked.get("after").map(cursor).transpose()?;
    let pending_after = asked.get("pending_after").map(str::parse::<Uuid>).transpose();
    let pending_after =
        pending_after.map_err(|_| Problem::invalid("pending_after must be an execution's id"))?;
    let mut pending = match before {
        None => reader.pending_executions(app.id, pending_after, CONSOLE_ROWS + 1).await?,
        Some(_) => Vec::new(),
    };
    let more_pending = cut_rows(&mut pending);
    let mut ended = reader.ended_executions(app.id, before, CONSOLE_ROWS + 1).await?;
    let next = cut(&mut ended, |row| (row.completed_at.unwrap_or(row.created_at), row.id));
    let here = format!("/console/apps/{}", in_address(&name));
    let next = next.map(|next| format!("{here}?after={}", in_address(&next)));
    let last_pending = pending.last().filter(|_| more_pending);
    let next_pending = last_pending.map(|last| format!("{here}?pending_after={}", last.id));
    let body = html! {
        div.title {
            h1 { "App " span.name { (plain(&app.name)) } }
            (badge(if app.paused { "PAUSED" } else { "RUNNING" }))
            @if app.paused { (act_link(&visit, "resume_app", &[("p_app", &name)], "Resume")) }
            @else { (act_link(&visit, "pause_app", &[("p_app", &name)], "Pause")) }
        }
        @if before.is_none() {
            section.card aria-labelledby="parts" { h2 #parts { "Its parts" } (part_list(&parts)) }
            @if !pending.is_empty() || pending_after.is_some() {
                section.card aria-labelledby="pending" {
                    h2 #pending { "Pending, the oldest first" }
                    @if pending.is_empty() { (nothing("None of those is pending any more.")) }
                    @else { (table(&pending)) }
                    (pager(pending_after.map(|_| here.as_str()), next_pending.as_deref()))
                }
            }
        }
        section.card aria-labelledby="ended" {
            h2 #ended { "Ended, the newest first" }
            @if ended.is_empty() { (nothing("No execution has ended yet.")) }
            @else { (table(&ended)) }
        }
        (pager(before.map(|_| here.as_str()), next.as_deref()))
    };
    Ok(visit.page("App", &body))
}

fn part_list(parts: &[AppPart]) -> Markup {
    html! {
        ul.parts {
            @for part in parts {
                li {
                    span.badge.dull { (part.kind) } " " (plain(&part.name))
                    @if let Some(version) = part.version { span.hint { " version " (version) } }
                }
            }
        }
    }
}

fn table(rows: &[ExecutionRow]) -> Markup {
    html! {
        div.scroll tabindex="0" {
            table {
                thead { tr { th { "Execution" } th { "State" } th { "Script" } th { "Fired by" } th.number { "Attempts" } th { "Code" } th { "Written" } th.number { "Took" } } }
                tbody {
                    @for row in rows {
                        tr {
                            td { a.id href={ "/console/executions/" (row.id) } { (row.id) } }
                            td { (badge(&row.state)) }
                            td { (script_of(row)) }
                            td { (plain(&row.source_kind)) }
                            td.number { (row.attempts) }
                            td { (plain(row.error_code.as_deref().unwrap_or("–"))) }
                            td { (moment(row.created_at)) }
                            td.number { (took(row)) }
                        }
                    }
                }
            }
        }
    }
}

fn script_of(row: &ExecutionRow) -> String {
    let version = row.script_version.map(|version| format!(" v{version}")).unwrap_or_default();
    let name = row.script_name.as_deref().map(|name| format!("{}{version}", plain(name)));
    name.unwrap_or_else(|| "mail to be sent".to_owned())
}

fn took(row: &ExecutionRow) -> String {
    let length = row.completed_at.map(|ended| (ended - row.created_at).num_milliseconds());
    length.map_or_else(|| "–".to_owned(), |length| format!("{} ms", figure(length)))
}

/// One execution: its life, its tree, payload, result and logs.
pub(super) async fn execution(visit: Visit, Named(id): Named<Uuid>) -> Result<Response, Refused> {
    let reader = visit.caller.database.auditor();
    let life = shown::read(&reader, id).await?.ok_or_else(|| unknown("execution"))?;
    let tree = reader.execution_tree(life.execution.root_execution_id, TREE_ROWS_MAX).await?;
    let row = &life.execution;
    let known: Vec<(&str, Markup)> = vec![
        ("execution", html! { code.id { (row.id) } }),
        (
            "app",
            html! { a href={ "/console/apps/" (in_address(&row.app_name)) } { (plain(&row.app_name)) } },
        ),
        ("script", html! { (script_of(row)) }),
        ("fired by", html! { (plain(&row.source_kind)) ", depth " (row.trigger_depth) }),
        ("caused by", html! { (plain(row.caused_by.as_deref().unwrap_or("nobody known"))) }),
        ("runs as", html! { (plain(row.runs_as.as_deref().unwrap_or("nobody known"))) }),
        ("attempts", html! { (row.attempts) }),
        ("written", moment(row.created_at)),
        ("ended", moment_or(row.completed_at, "not yet")),
    ];
    let on = |act: &str, words: &str| act_link(&visit, act, &[("p_id", &id.to_string())], words);
    let acts = match row.state.as_str() {
        "FAILED" => {
            vec![on("replay_trigger_execution", "Replay"), on("close_trigger_dead_letter", "Close")]
        }
        "DISPATCHED" => vec![on("replay_trigger_execution", "Replay")],
        _ => Vec::new(),
    };
    let body = html! {
        div.title { h1 { "Execution of " span.name { (plain(&row.app_name)) } } (badge(&row.state)) }
        @if let Some(message) = &row.error_message {
            p.told { code { (plain(row.error_code.as_deref().unwrap_or("–"))) } " " (plain(message)) }
        }
        (in_the_way(&waits(&life)))
        (actions(&acts))
        div.columns {
            div {
                section.card aria-labelledby="life" { h2 #life { "Its life" } (timeline(&shown::timeline(&life))) }
                section.card aria-labelledby="tree" { h2 #tree { "What fired what" } (drawn(tree, id)) }
                section.card aria-labelledby="logs" { h2 #logs { "Logs" } (logs(&visit, row)) }
            }
            div {
                section.card aria-labelledby="known" { h2 #known { "What ran" } (facts(&known)) }
                section.card aria-labelledby="payload" {
                    h2 #payload { "Payload" }
                    @match &row.payload { Some(payload) => (document(&payload.0)), None => (hidden("The payload")) }
                }
                @if let Some(result) = &row.result {
                    section.card aria-labelledby="result" { h2 #result { "Result" } (document(&result.0)) }
                }
            }
        }
    };
    Ok(visit.page("Execution", &body))
}

fn waits(life: &shown::ExecutionLife) -> Vec<Markup> {
    let Some(waits) = &life.waits else { return Vec::new() };
    let mut lines = vec![html! {
        "Due " (moment(waits.next_attempt_at))
        @if let Some(worker) = &waits.claimed_by { ", held by " (plain(worker)) }
        "."
    }];
    for (applies, line) in [
        (waits.lane_paused, "The trigger lane is paused."),
        (waits.app_paused, "Its app is paused."),
        (waits.workers == 0, "No live worker serves triggers."),
    ] {
        if applies {
            lines.push(html! { (line) });
        }
    }
    lines
}

/// A line each, as the script wrote them.
fn logs(visit: &Visit, row: &ExecutionRow) -> Markup {
    let Some(logs) = row.logs.as_ref().filter(|_| visit.sees_payloads()) else {
        return hidden("What it logged");
    };
    html! {
        @if logs.0.get() == "[]" { (nothing("It logged nothing.")) }
        @else { (document(&logs.0)) }
    }
}

/// The tree; what lost its parent stands beside the root.
fn drawn(tree: ExecutionTree, here: Uuid) -> Markup {
    let known: HashSet<Uuid> = tree.executions.iter().map(|row| row.id).collect();
    let mut children: HashMap<Option<Uuid>, Vec<ExecutionRow>> = HashMap::new();
    for row in tree.executions {
        let parent = row.parent_execution_id.filter(|parent| known.contains(parent));
        children.entry(parent).or_default().push(row);
    }
    html! {
        (branch(None, &mut children, here))
        @if tree.left_out > 0 {
            p.hint {
                (figure(tree.left_out)) @if tree.left_out == TREE_COUNTED_MAX { " or more" }
                " executions of this tree, the latest, are left out."
            }
        }
    }
}

/// Taken out of the map on the way down, so that it ends whatever the rows say.
fn branch(
    parent: Option<Uuid>,
    children: &mut HashMap<Option<Uuid>, Vec<ExecutionRow>>,
    here: Uuid,
) -> Markup {
    let rows = children.remove(&parent).unwrap_or_default();
    html! {
        @if !rows.is_empty() {
            ul.tree {
                @for row in &rows {
                    li {
                        (badge(&row.state)) " "
                        a href={ "/console/executions/" (row.id) } aria-current=[(row.id == here).then_some("true")] {
                            (plain(&row.source_kind)) " → " (script_of(row))
                        }
                        span.hint { " " (took(row)) @if let Some(code) = &row.error_code { ", " (plain(code)) } }
                        (branch(Some(row.id), children, here))
                    }
                }
            }
        }
    }
}
