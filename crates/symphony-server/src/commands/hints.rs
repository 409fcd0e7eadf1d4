//! Commands that are printed to be copied: they lead to the same database and the same configuration.

use std::sync::OnceLock;

use crate::cli::Global;

static PREFIX: OnceLock<String> = OnceLock::new();

/// Remember how this command was told where to look. What the environment says, the same shell will say again.
pub(super) fn remember(global: &Global) {
    let variable = std::env::var("DATABASE_URL").ok();
    drop(PREFIX.set(prefix(global, variable.as_deref())));
}

/// `symphony show 1`, with the options that lead to the same place.
pub(super) fn symphony(rest: &str) -> String {
    let prefix = PREFIX.get().map_or("", String::as_str);
    format!("symphony{prefix} {rest}")
}

fn prefix(global: &Global, variable: Option<&str>) -> String {
    let mut options = String::new();
    let mut add = |name: &str, value: &str| {
        options.push_str(&format!(" {name} {}", quoted(value)));
    };
    if let Some(url) = global.database_url.as_deref().filter(|url| Some(*url) != variable) {
        add("--database-url", &without_password(url));
    }
    if let Some(config) = &global.config {
        add("--config", &config.to_string_lossy());
    }
    if let Some(folder) = &global.data_folder
        && std::env::var_os("SYMPHONY_DATA").is_none()
    {
        add("--data-folder", &folder.to_string_lossy());
    }
    if global.private && std::env::var_os("SYMPHONY_PRIVATE").is_none() {
        options.push_str(" --private");
    }
    options
}

/// A password is never printed: whoever copies the command gives it as PGPASSWORD, or in ~/.pgpass.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
    let path = match path.split_once('?') {
        Some((path, query)) => {
            let kept: Vec<&str> =
                query.split('&').filter(|part| !part.starts_with("password=")).collect();
            if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) }
        }
        None => path.to_owned(),
    };
    let authority = match authority.rsplit_once('@') {
        Some((login, host)) => {
            let name = login.split_once(':').map_or(login, |(name, _)| name);
            format!("{name}@{host}")
        }
        None => authority.to_owned(),
    };
    format!("{scheme}://{authority}{path}")
}

/// As a shell reads it.
pub(super) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=,+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn global(url: Option<&str>, config: Option<&str>, private: bool) -> Global {
        Global {
            database_url: url.map(str::to_owned),
            private,
            config: config.map(Into::into),
            json: false,
            data_folder: None,
            private_port: None,
            postgres_binaries: None,
        }
    }

    #[test]
    fn a_hint_leads_to_the_same_place_and_never_shows_a_password() {
        let url = "postgres://dana:s3cret@db:5432/app?sslmode=require&password=x";
        for (global, variable, expected) in [
            (global(None, None, false), None, ""),
            (global(Some(url), None, false), Some(url), ""),
            (
                global(Some(url), None, false),
                None,
                " --database-url 'postgres://dana@db:5432/app?sslmode=require'",
            ),
            (
                global(Some("postgres://db/app"), None, false),
                None,
                " --database-url postgres://db/app",
            ),
            (global(None, Some("my conf.toml"), true), None, " --config 'my conf.toml' --private"),
        ] {
            assert_eq!(prefix(&global, variable), expected);
        }
    }
}
