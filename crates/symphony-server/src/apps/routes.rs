//! From a request's path to a route. Where several match, literal segments win, from left to right.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use matchit::Router;
use percent_encoding::percent_decode_str;
use symphony::db::{DbError, RouteRow, Worker};

use super::cors::Cors;
use crate::bounds::{APPS_CACHED_MAX, ROUTES_CACHED_FOR};

/// The route of a request, with the path's parameters.
pub(super) type Matched = (RouteRow, BTreeMap<String, String>);

/// What a path led to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Route(Box<Matched>),
    /// The path is there, with other methods.
    OtherMethods(Vec<String>),
    Nothing,
}

/// When an app's routes were read; `None` if there is no such app.
type Cached = (Instant, Option<Arc<RouteTable>>);

/// The routes of apps, read when needed.
#[derive(Debug)]
pub(super) struct Routes {
    worker: Worker,
    cache: Mutex<HashMap<String, Cached>>,
}

impl Routes {
    pub(super) fn new(worker: Worker) -> Self {
        Self { worker, cache: Mutex::default() }
    }

    /// The routes of an app; `None` if there is no such app.
    pub(super) async fn of(&self, app: &str) -> Result<Option<Arc<RouteTable>>, DbError> {
        let cached = {
            let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            cache
                .get(app)
                .filter(|(at, _)| at.elapsed() < ROUTES_CACHED_FOR)
                .map(|(_, routes)| routes.clone())
        };
        let routes = if let Some(routes) = cached {
            routes
        } else {
            let rows = self.worker.routes(app).await?;
            let routes = rows.map(|rows| Arc::new(RouteTable::new(rows)));
            let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            if cache.len() >= APPS_CACHED_MAX {
                cache.clear();
            }
            cache.insert(app.to_owned(), (Instant::now(), routes.clone()));
            routes
        };
        Ok(routes)
    }
}

/// One app's routes, by method, and which other sites may call them.
#[derive(Debug, Default)]
pub(super) struct RouteTable {
    by_method: BTreeMap<String, Router<RouteRow>>,
    pub(super) cors: Option<Cors>,
}

impl RouteTable {
    fn new(mut rows: Vec<RouteRow>) -> Self {
        // The same of two overlapping routes is served by every process. A push refuses them; SQL does not.
        rows.sort_by(|a, b| a.path.cmp(&b.path));
        let cors = rows.first().and_then(|row| row.cors.as_deref());
        let cors = cors.and_then(|cors| serde_json::from_str(cors).ok());
        let mut table = Self { by_method: BTreeMap::new(), cors };
        for row in rows {
            let path = row.path.clone();
            if table.by_method.entry(row.method.clone()).or_default().insert(path, row).is_err() {
                tracing::warn!(
                    lane = "triggers",
                    "a route that overlaps another one is not served"
                );
            }
        }
        table
    }

    pub(super) fn find(&self, method: &str, path: &str) -> Found {
        let at = |method: &str| self.by_method.get(method).and_then(|router| router.at(path).ok());
        // The server leaves out the body of what answers HEAD.
        if let Some(matched) = at(method).or_else(|| at("GET").filter(|_| method == "HEAD")) {
            let params =
                matched.params.iter().map(|(name, value)| Some((name.to_owned(), decoded(value)?)));
            return match params.collect() {
                Some(params) => Found::Route(Box::new((matched.value.clone(), params))),
                None => Found::Nothing,
            };
        }
        let methods = self.methods(path);
        if methods.is_empty() { Found::Nothing } else { Found::OtherMethods(methods) }
    }

    /// What a path can be asked with; nothing if it is not there.
    pub(super) fn methods(&self, path: &str) -> Vec<String> {
        let others = self.by_method.iter().filter(|(_, router)| router.at(path).is_ok());
        let mut methods: Vec<String> = others.map(|(method, _)| method.clone()).collect();
        let has = |methods: &[String], method: &str| methods.iter().any(|each| each == method);
        if has(&methods, "GET") && !has(&methods, "HEAD") {
            methods.push("HEAD".to_owned());
        }
        if !methods.is_empty() && !has(&methods, "OPTIONS") {
            methods.push("OPTIONS".to_owned());
        }
        methods
    }
}

/// Percent-decoded; `None` if it is malformed or not UTF-8.
fn decoded(segment: &str) -> Option<String> {
    let is_code = |rest: &str| {
        rest.as_bytes().get(..2).is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit))
    };
    if !segment.split('%').skip(1).all(is_code) {
        return None;
    }
    percent_decode_str(segment).decode_utf8().ok().map(Into::into)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn route(method: &str, path: &str) -> RouteRow {
        RouteRow {
            auth: "none".to_owned(),
            signature: None,
            secret_name: None,
            id: uuid::Uuid::nil(),
            app_id: uuid::Uuid::nil(),
            method: method.to_owned(),
            path: path.to_owned(),
            script_name: path.to_owned(),
            script_id: None,
            principal: None,
            synchronous: true,
            wait_ms: 1,
            raw_body: false,
            cors: None,
        }
    }

    #[test]
    fn the_most_literal_route_of_the_method_wins_and_catches_what_its_pattern_names() {
        let routes = RouteTable::new(vec![
            route("GET", "/orders/{id}"),
            route("GET", "/orders/new"),
            route("POST", "/orders"),
            route("GET", "/orders/{id}/lines/{line}"),
            route("GET", "/"),
            route("GET", "/files/{*rest}"),
            route("GET", "/files/index"),
        ]);
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
            ("HEAD", "/orders/17", "/orders/{id}", vec![("id", "17")]),
            ("GET", "/files/a/b%20c", "/files/{*rest}", vec![("rest", "a/b c")]),
            ("GET", "/files/index", "/files/index", vec![]),
            ("GET", "/files/index/x", "/files/{*rest}", vec![("rest", "index/x")]),
            ("GET", "/", "/", vec![]),
        ] {
            let Found::Route(matched) = routes.find(method, path) else {
                unreachable!("{method} {path}")
            };
            let found: Vec<_> = matched.1.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            assert_eq!((matched.0.path.as_str(), found), (expected, caught), "{method} {path}");
        }
        let others = ["GET", "HEAD", "OPTIONS"].map(str::to_owned).to_vec();
        assert_eq!(routes.find("PUT", "/orders/17"), Found::OtherMethods(others));
        for path in [
            "/files/",
            "/orders/",
            "/orders/1/lines/",
            "/nothing",
            "",
            "/orders/%zz",
            "/orders/%ff",
        ] {
            assert_eq!(routes.find("GET", path), Found::Nothing, "{path}");
        }
    }
}
