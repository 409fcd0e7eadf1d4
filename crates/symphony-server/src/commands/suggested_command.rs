//! Commands that are printed to be copied: they lead to the same database and the same configuration.

use std::sync::OnceLock;

use crate::cli::Global;
use crate::output;

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

/// A command that names one thing: a name such as `-x` stands last, after `--`, and is no option.
pub(super) fn symphony_of(command: &str, name: &str, options: &str) -> String {
    let (name, space) = (quoted(name), if options.is_empty() { "" } else { " " });
    if is_like_an_option(&name) {
        return symphony(&format!("{command}{space}{options} -- {name}"));
    }
    symphony(&format!("{command} {name}{space}{options}"))
}

/// `--rail sepa`; `--rail=-x`, where the value would be read as an option.
pub(super) fn option(name: &str, value: &str) -> String {
    let value = quoted(value);
    let separator = if is_like_an_option(&value) { '=' } else { ' ' };
    format!("{name}{separator}{value}")
}

fn is_like_an_option(quoted: &str) -> bool {
    quoted.trim_start_matches(['$', '\'']).starts_with('-')
}

fn prefix(global: &Global, variable: Option<&str>) -> String {
    let mut options = String::new();
    let mut add = |name: &str, value: &str| {
        options.push_str(&format!(" {}", option(name, value)));
    };
    if let Some(url) = global.database_url.as_deref().filter(|url| Some(*url) != variable) {
        add("--database-url", &without_password(url));
    }
    if let Some(config) = &global.config {
        add("--config", &config.to_string_lossy());
    }
    if let Some(schema) = &global.schema
        && std::env::var_os("SYMPHONY_SCHEMA").is_none()
    {
        add("--schema", schema.name());
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

/// One word to every shell, whatever is in it. What cannot be seen is written as `$'\012'`, which bash, zsh and ksh read;
/// a shell that does not takes it for another name, and still for one word: within these quotes stands no other quote.
pub(super) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=,+".contains(c);
    // zsh puts a program's path in the place of =ls.
    if !text.is_empty() && !text.starts_with('=') && text.chars().all(plain) {
        return text.to_owned();
    }
    if output::plain(text) == text {
        return format!("'{}'", text.replace('\'', "'\\''"));
    }
    let mut escaped = String::new();
    for c in text.chars() {
        if c == '\\' || c == '\'' || output::is_hidden(c) {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                escaped.push_str(&format!("\\{byte:03o}"));
            }
        } else {
            escaped.push(c);
        }
    }
    format!("$'{escaped}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn global(url: Option<&str>, config: Option<&str>, private: bool) -> Global {
        Global {
            database_url: url.map(str::to_owned),
            private,
            config: config.map(Into::into),
            schema: None,
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

    #[test]
    fn stored_text_is_one_word_of_a_command_and_never_an_option() {
        for (name, expected) in [
            ("sepa", "symphony rail show sepa"),
            ("", "symphony rail show ''"),
            ("a b", "symphony rail show 'a b'"),
            ("=ls", "symphony rail show '=ls'"),
            ("$(id);`id`", "symphony rail show '$(id);`id`'"),
            ("o'neil", "symphony rail show 'o'\\''neil'"),
            ("o'n\n\\", "symphony rail show $'o\\047n\\012\\134'"),
            ("a\u{202e}b", "symphony rail show $'a\\342\\200\\256b'"),
            ("-x", "symphony rail show -- -x"),
            ("-x y", "symphony rail show -- '-x y'"),
        ] {
            assert_eq!(symphony_of("rail show", name, ""), expected);
        }
        let resume = symphony_of("resume rail", "--yes", "--reason WHY");
        assert_eq!(resume, "symphony resume rail --reason WHY -- --yes");
        assert_eq!(option("--rail", "-x\n"), "--rail=$'-x\\012'");
        assert_eq!(option("--rail", "sepa"), "--rail sepa");
    }
}
