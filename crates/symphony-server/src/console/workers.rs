//! Workers and what they hold.

use axum::response::Response;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use symphony::db::{LeaseRow, LeasesQuery, WorkerRow, WorkersQuery};

use super::page::{badge, figure, in_address, moment, moment_or, nothing, pager, plain};
use super::visit::{Asked, Refused, Visit};
use super::waiting::cut_rows;
use crate::api::Problem;
use crate::bounds::CONSOLE_ROWS;

pub(super) async fn page(visit: Visit, asked: Asked) -> Result<Response, Refused> {
    let reader = visit.caller.database.auditor();
    let worker_id = asked.get("worker");
    let (after, leased_after) = (asked.get("after"), asked.get("leased_after"));
    let after_worker = after.map(worker_place).transpose()?;
    let after_lease = leased_after.map(lease_place).transpose()?;
    let limit = CONSOLE_ROWS + 1;
    let workers = WorkersQuery {
        worker_id,
        after: after_worker.as_ref().map(|(live, worker, lane)| (*live, &**worker, &**lane)),
        limit,
    };
    let leases = LeasesQuery {
        worker_id,
        after: after_lease.as_ref().map(|(at, lane, key)| (*at, &**lane, &**key)),
        limit,
    };
    let (mut workers, mut leases) = (reader.workers(workers).await?, reader.leases(leases).await?);
    let more_workers = cut_rows(&mut workers).then(|| workers.last().map(place_of_worker));
    let more_leases = cut_rows(&mut leases).then(|| leases.last().map(place_of_lease));
    // Each list is paged by itself, and leaves the other where it is.
    let here = |workers: Option<&str>, leases: Option<&str>| {
        let parts = [("worker", worker_id), ("after", workers), ("leased_after", leases)];
        let parts: Vec<String> = parts
            .into_iter()
            .filter_map(|(name, value)| Some(format!("{name}={}", in_address(value?))))
            .collect();
        format!("/console/workers?{}", parts.join("&"))
    };
    let next_workers = more_workers.flatten().map(|place| here(Some(&place), leased_after));
    let next_leases = more_leases.flatten().map(|place| here(after, Some(&place)));
    let first_workers = after.map(|_| here(None, leased_after));
    let first_leases = leased_after.map(|_| here(after, None));
    let body = html! {
        @match worker_id {
            Some(worker) => {
                h1 { "Worker " span.name { (plain(worker)) } }
                p { a href="/console/workers" { "All workers" } }
            },
            None => h1 { "Workers" },
        }
        section.card {
            @if workers.is_empty() { (nothing("No worker has reported. Start one: symphony run")) }
            @else { (table(&workers)) }
            (pager(first_workers.as_deref(), next_workers.as_deref()))
        }
        section.card aria-labelledby="leases" {
            h2 #leases { "Leases, those that expire first" }
            @if leases.is_empty() { (nothing("Nothing is in flight.")) }
            @else { (held(&leases)) }
            (pager(first_leases.as_deref(), next_leases.as_deref()))
        }
    };
    Ok(visit.page("Workers", &body))
}

fn place_of_worker(worker: &WorkerRow) -> String {
    format!("{}~{}~{}", u8::from(worker.live), worker.lane, worker.worker_id)
}

fn worker_place(text: &str) -> Result<(bool, String, String), Problem> {
    let mut parts = text.splitn(3, '~');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(live @ ("0" | "1")), Some(lane), Some(worker)) => {
            Ok((live == "1", worker.to_owned(), lane.to_owned()))
        }
        _ => Err(Problem::invalid("after must be as the page before says")),
    }
}

fn place_of_lease(lease: &LeaseRow) -> String {
    let at = lease.lease_expires_at.timestamp_micros();
    format!("{at}~{}~{}", lease.lane, lease.key())
}

fn lease_place(text: &str) -> Result<(DateTime<Utc>, String, String), Problem> {
    let mut parts = text.splitn(3, '~');
    let at = parts.next().and_then(|at| DateTime::from_timestamp_micros(at.parse().ok()?));
    match (at, parts.next(), parts.next()) {
        (Some(at), Some(lane), Some(key)) => Ok((at, lane.to_owned(), key.to_owned())),
        _ => Err(Problem::invalid("leased_after must be as the page before says")),
    }
}

fn table(workers: &[WorkerRow]) -> Markup {
    html! {
        div.scroll tabindex="0" {
            table {
                thead { tr { th { "Worker" } th { "" } th { "Lane" } th.number { "Serves" } th.number { "Left alone" } th.number { "Calls/min" } th { "Last heard of" } } }
                tbody {
                    @for worker in workers {
                        tr {
                            td { a href={ "/console/workers?worker=" (in_address(&worker.worker_id)) } { code { (plain(&worker.worker_id)) } } }
                            td { (badge(if worker.live { "LIVE" } else { "GONE" })) }
                            td { (worker.lane) }
                            td.number { (figure(worker.destinations)) }
                            td.number { (figure(worker.left_alone)) }
                            td.number { (figure(worker.calls_per_minute)) }
                            td { (moment(worker.reported_at)) }
                        }
                    }
                }
            }
        }
    }
}

fn held(leases: &[LeaseRow]) -> Markup {
    html! {
        div.scroll tabindex="0" {
            table {
                thead { tr { th { "Worker" } th { "Lane" } th { "Holds" } th { "Of" } th { "Since" } th { "Until" } th { "" } } }
                tbody {
                    @for lease in leases {
                        tr {
                            td { code { (plain(&lease.worker_id)) } }
                            td { (lease.lane) }
                            td {
                                @match (&lease.item_id, lease.lane.as_str()) {
                                    (Some(id), "payments") => a.id href={ "/console/payments/" (id) } { (id) },
                                    (Some(id), _) => a.id href={ "/console/executions/" (id) } { (id) },
                                    (None, _) => { (figure(lease.items)) " events" },
                                }
                            }
                            td { (plain(&lease.name)) }
                            td { (moment_or(lease.claimed_at, "–")) }
                            td { (moment(lease.lease_expires_at)) }
                            td { @if lease.expired { (badge("EXPIRED")) } }
                        }
                    }
                }
            }
        }
    }
}
