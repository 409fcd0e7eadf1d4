//! From a request's path to a route: the most literal pattern wins.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use symphony::db::{DbError, Executor, RouteRow};

/// How old an app's routes may be: a push is seen within that time, and a busy app is read once in it.
const ROUTES_FOR: Duration = Duration::from_secs(1);
/// How many apps' routes are kept.
const APPS_KEPT_MAX: usize = 1_000;

/// The route of a request, with what its pattern caught.
pub(super) type Matched = (RouteRow, BTreeMap<String, String>);

/// What a path led to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Route(Box<Matched>),
    /// The path is there, with other methods.
    OtherMethods(Vec<String>),
    Nothing,
}

type Kept = HashMap<String, (Instant, Option<Arc<Vec<RouteRow>>>)>;

/// The routes of apps, read when needed.
#[derive(Debug)]
pub(super) struct Routes {
    executor: Executor,
    kept: Mutex<Kept>,
}

impl Routes {
    pub(super) fn new(executor: Executor) -> Self {
        Self { executor, kept: Mutex::default() }
    }

    /// Find the route; `None` if there is no such app.
    pub(super) async fn find(
        &self,
        app: &str,
        method: &str,
        path: &str,
    ) -> Result<Option<Found>, DbError> {
        let known = {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.get(app)
                .filter(|(at, _)| at.elapsed() < ROUTES_FOR)
                .map(|(_, routes)| routes.clone())
        };
        let routes = if let Some(routes) = known {
            routes
        } else {
            let routes = self.executor.routes(app).await?.map(Arc::new);
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() >= APPS_KEPT_MAX {
                kept.clear();
            }
            kept.insert(app.to_owned(), (Instant::now(), routes.clone()));
            routes
        };
        Ok(routes.map(|routes| choose(&routes, method, path)))
    }
}

fn choose(routes: &[RouteRow], method: &str, path: &str) -> Found {
    let matching: Vec<Matched> = routes
        .iter()
        .filter_map(|route| Some((route.clone(), params(&route.path, path)?)))
        .collect();
    let mut methods: Vec<String> = matching.iter().map(|(route, _)| route.method.clone()).collect();
    let best = matching
        .into_iter()
        .filter(|(route, _)| route.method == method)
        // Fewer caught segments: more literal.
        .min_by_key(|(_, params)| params.len());
    match best {
        Some(matched) => Found::Route(Box::new(matched)),
        None if methods.is_empty() => Found::Nothing,
        None => {
            methods.sort();
            methods.dedup();
            Found::OtherMethods(methods)
        }
    }
}

/// What a pattern catches of a path; `None` if it is for another.
fn params(pattern: &str, path: &str) -> Option<BTreeMap<String, String>> {
    let (mut pattern, mut path) = (pattern.split('/'), path.split('/'));
    let mut caught = BTreeMap::new();
    loop {
        match (pattern.next(), path.next()) {
            (None, None) => return Some(caught),
            (Some(wanted), Some(found)) => {
                let name = wanted.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
                match name {
                    Some(name) if !found.is_empty() => {
                        caught.insert(name.to_owned(), decoded(found)?);
                    }
                    None if wanted == found => {}
                    _ => return None,
                }
            }
            _ => return None,
        }
    }
}

/// Percent-decoded; `None` if that is no text.
fn decoded(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let value = digit(rest.next())? * 16 + digit(rest.next())?;
            bytes.push(u8::try_from(value).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn route(method: &str, path: &str) -> RouteRow {
        RouteRow {
            id: uuid::Uuid::nil(),
            method: method.to_owned(),
            path: path.to_owned(),
            script_name: path.to_owned(),
            synchronous: true,
            wait_ms: 1,
        }
    }

    #[test]
    fn the_most_literal_route_of_the_method_wins_and_catches_what_its_pattern_names() {
        let routes = [
            route("GET", "/orders/{id}"),
            route("GET", "/orders/new"),
            route("POST", "/orders"),
            route("GET", "/orders/{id}/lines/{line}"),
            route("GET", "/"),
        ];
        for (method, path, expected, caught) in [
            ("GET", "/orders/new", "/orders/new", vec![]),
            ("GET", "/orders/17", "/orders/{id}", vec![("id", "17")]),
            ("GET", "/orders/a%20b%2Fc", "/orders/{id}", vec![("id", "a b/c")]),
            (
                "GET",
                "/orders/1/lines/2",
                "/orders/{id}/lines/{line}",
                vec![("id", "1"), ("line", "2")],
            ),
            ("POST", "/orders", "/orders", vec![]),
            ("GET", "/", "/", vec![]),
        ] {
            let Found::Route(matched) = choose(&routes, method, path) else {
                unreachable!("{method} {path}")
            };
            let found: Vec<_> = matched.1.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            assert_eq!((matched.0.path.as_str(), found), (expected, caught), "{method} {path}");
        }
        assert_eq!(
            choose(&routes, "PUT", "/orders/17"),
            Found::OtherMethods(vec!["GET".to_owned()])
        );
        for path in ["/orders/", "/orders/1/lines/", "/nothing", "", "/orders/%zz", "/orders/%ff"] {
            assert_eq!(choose(&routes, "GET", path), Found::Nothing, "{path}");
        }
    }
}
