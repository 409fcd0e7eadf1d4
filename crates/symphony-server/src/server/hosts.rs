//! URLs that name several hosts, as libpq reads them: `postgres://user@one:5432,two:5432/db?target_session_attrs=read-write`.

/// One URL for each host. What is wrong is said without repeating the URL: it may hold a password.
pub(super) fn split(url: &str) -> Result<Vec<String>, String> {
    let Some((scheme, rest)) = url.split_once("://") else { return Ok(vec![url.to_owned()]) };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (format!("{login}@"), hosts),
        None => (String::new(), authority),
    };
    let tail = without_session_attributes(tail)?;
    let hosts: Vec<&str> = hosts.split(',').collect();
    if hosts.len() > 1 && hosts.iter().any(|host| host.is_empty()) {
        return Err("names an empty host between its commas".to_owned());
    }
    Ok(hosts.iter().map(|host| format!("{scheme}://{login}{host}{tail}")).collect())
}

/// The rest of the URL without `target_session_attrs`: everything here needs a host that takes writes.
fn without_session_attributes(tail: &str) -> Result<String, String> {
    let Some((path, query)) = tail.split_once('?') else { return Ok(tail.to_owned()) };
    let mut kept = Vec::new();
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("target_session_attrs", "any" | "read-write" | "primary")) => {}
            Some(("target_session_attrs", other)) => {
                return Err(format!(
                    "has target_session_attrs={other}: only read-write (or primary, or any) fits, because everything here writes"
                ));
            }
            _ => kept.push(pair),
        }
    }
    Ok(if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) })
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn every_host_gets_a_url_of_its_own() {
        for (url, expected) in [
            ("postgres://u:p@one/db", Ok(vec!["postgres://u:p@one/db"])),
            (
                "postgres://u:p@one:5432,two:5433/db?sslmode=require&target_session_attrs=read-write",
                Ok(vec![
                    "postgres://u:p@one:5432/db?sslmode=require",
                    "postgres://u:p@two:5433/db?sslmode=require",
                ]),
            ),
            (
                "postgresql://one,two?target_session_attrs=primary",
                Ok(vec!["postgresql://one", "postgresql://two"]),
            ),
            (
                "postgres://u@[::1]:5432,127.0.0.1/db",
                Ok(vec!["postgres://u@[::1]:5432/db", "postgres://u@127.0.0.1/db"]),
            ),
            ("postgres://one,,two/db", Err("empty host")),
            (
                "postgres://one,two/db?target_session_attrs=standby",
                Err("target_session_attrs=standby"),
            ),
        ] {
            match (split(url), expected) {
                (Ok(urls), Ok(expected)) => assert_eq!(urls, expected),
                (Err(problem), Err(expected)) => assert!(problem.contains(expected), "{problem}"),
                (answer, _) => panic!("{url}: {answer:?}"),
            }
        }
    }
}
