//! Rails, buses and topics: how they are, as live workers see them; breakers and pauses.

use std::collections::BTreeSet;

use axum::response::Response;
use maud::{Markup, html};
use symphony::db::{DestinationStatus, RailSettings, TopicRow};

use super::page::{act_link, badge, figure, moment, moment_or, nothing, plain};
use super::visit::{Refused, Visit};

pub(super) async fn page(visit: Visit) -> Result<Response, Refused> {
    let reader = visit.caller.database.auditor();
    let served = reader.destinations(None).await?;
    let (rails, topics) = (reader.rails(None).await?, reader.topics().await?);
    let of_lane = |lane: &'static str| served.iter().filter(move |one| one.lane == lane);
    // A rail that is served may have no row yet, and one with a row may be served by nobody.
    let names: BTreeSet<&str> = of_lane("payments")
        .map(|one| one.name.as_str())
        .chain(rails.iter().map(|rail| rail.rail_type.as_str()))
        .collect();
    let body = html! {
        h1 { "Rails & buses" }
        section.card aria-labelledby="rails" {
            h2 #rails { "Rails" }
            @if names.is_empty() { (nothing("No rail is served or configured.")) }
            @else {
                div.scroll tabindex="0" {
                    table {
                        thead { tr { th { "Rail" } th { "" } (health_head()) th { "Order" } th { "" } } }
                        tbody {
                            @for name in names {
                                (rail(&visit, name, rails.iter().find(|rail| rail.rail_type == name), of_lane("payments").find(|one| one.name == name)))
                            }
                        }
                    }
                }
            }
        }
        section.card aria-labelledby="buses" {
            h2 #buses { "Buses, as workers see them" }
            @if of_lane("events").next().is_none() { (nothing("No live worker publishes events.")) }
            @else {
                div.scroll tabindex="0" {
                    table {
                        thead { tr { th { "Bus or topic" } (health_head()) th { "" } } }
                        tbody {
                            @for one in of_lane("events") {
                                tr { td { (plain(&one.name)) } (health(Some(one))) td { (reset(&visit, one)) } }
                            }
                        }
                    }
                }
            }
        }
        section.card aria-labelledby="topics" {
            h2 #topics { "Topics" }
            @if topics.is_empty() { (nothing("No worker has had a route to a topic yet.")) }
            @else { (topic_table(&visit, &topics)) }
        }
        section.card aria-labelledby="runners" {
            h2 #runners { "What runs scripts" }
            @if of_lane("triggers").next().is_none() { (nothing("No live worker runs scripts.")) }
            @else {
                div.scroll tabindex="0" {
                    table {
                        thead { tr { th { "Executor" } (health_head()) } }
                        tbody { @for one in of_lane("triggers") { tr { td { (plain(&one.name)) } (health(Some(one))) } } }
                    }
                }
            }
        }
    };
    Ok(visit.page("Rails & buses", &body))
}

fn rail(
    visit: &Visit,
    name: &str,
    settings: Option<&RailSettings>,
    served: Option<&DestinationStatus>,
) -> Markup {
    let paused = settings.is_some_and(|rail| rail.paused);
    let on = [("p_rail_type", name)];
    html! {
        tr {
            td { (plain(name)) }
            td { @if paused { (badge("PAUSED")) } }
            (health(served))
            td {
                @if settings.is_some_and(|rail| rail.fifo) { "FIFO, " (plain(settings.map_or("", |rail| rail.on_failed.as_str()))) " on failure" }
                @else { "none" }
            }
            td.acts {
                @if paused { (act_link(visit, "resume_payment_rail", &on, "Resume")) }
                @else { (act_link(visit, "pause_payment_rail", &on, "Pause")) }
                @if let Some(served) = served { (reset(visit, served)) }
            }
        }
    }
}

fn health_head() -> Markup {
    html! { th { "Breaker" } th.number { "Workers" } th.number { "Calls/min" } th.number { "Latency" } th { "Last trouble" } }
}

fn health(served: Option<&DestinationStatus>) -> Markup {
    let Some(served) = served else {
        return html! { td { span.badge.dull { "not served" } } td.number { "0" } td.number { "–" } td.number { "–" } td {} };
    };
    html! {
        td {
            (badge(&served.breaker))
            @if served.open_since.is_some() { " since " (moment_or(served.open_since, "–")) }
            @if let Some(at) = served.next_probe_at { ", probed " (moment(at)) }
        }
        td.number {
            (figure(served.workers))
            @if served.workers_away > 0 { " (" (figure(served.workers_away)) " leave it alone)" }
        }
        td.number { (figure(served.calls_per_minute)) @if let Some(rate) = served.rate_per_second { " of " (rate) "/s" } }
        td.number { @if let Some(latency) = served.latency_ms { (figure(latency)) " ms" } @else { "–" } }
        td {
            @if let Some(trouble) = &served.last_trouble { code { (plain(trouble)) } " " (moment_or(served.last_trouble_at, "")) }
        }
    }
}

/// Where it is left alone, it can be tried at once.
fn reset(visit: &Visit, served: &DestinationStatus) -> Markup {
    // A topic's breaker is its bus's.
    let bus = served.name.split('/').next().unwrap_or(&served.name);
    let name = if served.lane == "events" { bus } else { served.name.as_str() };
    html! {
        @if served.breaker != "CLOSED" {
            (act_link(visit, "reset_outbox_destination", &[("p_lane", &served.lane), ("p_name", name)], "Try it at once"))
        }
    }
}

fn topic_table(visit: &Visit, topics: &[TopicRow]) -> Markup {
    html! {
        div.scroll tabindex="0" {
            table {
                thead { tr { th { "Topic" } th { "" } th { "First seen" } th { "" } } }
                tbody {
                    @for topic in topics {
                        tr {
                            td { (plain(&topic.topic)) }
                            td { (badge(if topic.paused { "PAUSED" } else { "RUNNING" })) }
                            td { (moment(topic.first_seen_at)) }
                            td.acts {
                                @if topic.paused { (act_link(visit, "resume_event_topic", &[("p_topic", &topic.topic)], "Resume")) }
                                @else { (act_link(visit, "pause_event_topic", &[("p_topic", &topic.topic)], "Pause")) }
                            }
                        }
                    }
                }
            }
        }
    }
}
