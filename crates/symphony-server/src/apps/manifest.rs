//! What a manifest must also satisfy before it is pushed: what the database does not check.

use std::borrow::Cow;
use std::collections::HashMap;

use matchit::{InsertError, Router};
use serde_json::value::RawValue;
use symphony::json::{self, Members};
use symphony::lanes::triggers::Schedule;

use crate::output;

/// What a manifest is as a JSON Schema (2020-12), for editors.
pub const SCHEMA: &str = include_str!("../../schemas/app.schema.json");

/// The first thing that is wrong, with its field; `None` if nothing is. What has not the right shape is left to the
/// database, which checks all of it.
pub fn defect(manifest: &RawValue) -> Option<String> {
    let manifest = Members::of(manifest)?;
    let each = |name: &str| -> Vec<Option<Members<'_>>> {
        let list = manifest.get(name).and_then(|list| json::list(name, list).ok());
        list.unwrap_or_default().into_iter().map(Members::of).collect()
    };
    schedule_defect(&each("triggers")).or_else(|| route_defect(&each("routes")))
}

fn text<'a>(members: &Members<'a>, name: &str) -> Option<Cow<'a, str>> {
    members.get(name).and_then(json::text)
}

/// A cron expression or a time zone that cannot be read.
fn schedule_defect(triggers: &[Option<Members<'_>>]) -> Option<String> {
    triggers.iter().enumerate().find_map(|(index, trigger)| {
        let text = |name: &str| text(trigger.as_ref()?, name);
        if text("kind")? != "cron" {
            return None;
        }
        let zone = text("timeZone").unwrap_or(Cow::Borrowed("UTC"));
        let error = Schedule::parse(&text("filter")?, &zone).err()?;
        Some(output::plain(&format!("triggers[{index}].{error}")))
    })
}

/// Two routes of one method that match the same requests.
fn route_defect(routes: &[Option<Members<'_>>]) -> Option<String> {
    let mut by_method: HashMap<String, Router<()>> = HashMap::new();
    routes.iter().enumerate().find_map(|(index, route)| {
        let text = |name: &str| text(route.as_ref()?, name);
        let (method, path) = (text("method")?, text("path")?);
        // A path that is no path is the database's to refuse.
        if !path.starts_with('/') {
            return None;
        }
        let error = by_method.entry(method.to_string()).or_default().insert(&*path, ()).err()?;
        let problem = match error {
            // The same route twice is the database's to refuse.
            InsertError::Conflict { with } if with == path => return None,
            InsertError::Conflict { with } => format!(
                "{method} {path} overlaps {method} {with}: both match the same requests, keep one"
            ),
            _ => format!("{path} has a parameter that is not a whole segment such as {{id}}"),
        };
        Some(output::plain(&format!("routes[{index}].path: {problem}")))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    fn defect(manifest: &serde_json::Value) -> Option<String> {
        serde_json::from_str(&manifest.to_string()).ok().and_then(super::defect)
    }

    #[test]
    fn routes_that_match_the_same_requests_are_named_both() {
        let routes = |paths: &[(&str, &str)]| {
            let routes: Vec<_> = paths
                .iter()
                .map(|(method, path)| json!({"method": method, "path": path}))
                .collect();
            defect(&json!({ "routes": routes }))
        };
        for paths in [
            &[("GET", "/orders/{id}"), ("GET", "/orders/new"), ("GET", "/orders/{id}/lines")][..],
            &[("GET", "/orders/{id}"), ("PUT", "/orders/{order}")],
            &[("GET", "/orders/{id}/lines"), ("GET", "/orders/{order}/notes")],
            &[("GET", "/orders"), ("GET", "/orders/")],
            &[("GET", "/files/{*rest}"), ("GET", "/files/index"), ("PUT", "/files/{id}")],
            // The database refuses these.
            &[("GET", "/orders"), ("GET", "/orders")],
            &[("GET", "orders")],
        ] {
            assert_eq!(routes(paths), None, "{paths:?}");
        }
        assert_eq!(
            routes(&[("PUT", "/orders"), ("GET", "/orders/{id}"), ("GET", "/orders/{order}")]),
            Some(
                "routes[2].path: GET /orders/{order} overlaps GET /orders/{id}: both match the same \
                 requests, keep one"
                    .to_owned()
            )
        );
    }

    #[test]
    fn a_wildcard_and_what_it_matches_are_named_both() {
        let two = |first: &str, second: &str| {
            let route = |path: &str| json!({"method": "GET", "path": path});
            defect(&json!({ "routes": [route(first), route(second)] }))
        };
        for (first, second) in
            [("/files/{id}", "/files/{*rest}"), ("/files/{*all}", "/files/{*rest}")]
        {
            let said = two(first, second).unwrap_or_default();
            let overlap = format!("routes[1].path: GET {second} overlaps GET {first}: ");
            assert!(said.starts_with(&overlap), "{said}");
        }
        let said = two("/files/{*rest}/more", "/").unwrap_or_default();
        assert!(said.starts_with("routes[0].path: /files/{*rest}/more has a parameter"), "{said}");
    }

    #[test]
    fn a_schedule_that_cannot_be_read_is_named() {
        let trigger = |kind: &str, filter: &str| {
            defect(&json!({"triggers": [{"kind": kind, "filter": filter}]}))
        };
        assert_eq!(trigger("cron", "0 3 * * *"), None);
        assert_eq!(trigger("kv", "not cron"), None);
        assert!(trigger("cron", "not cron").is_some_and(|why| why.starts_with("triggers[0].")));
    }
}
