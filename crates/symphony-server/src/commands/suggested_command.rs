//! Commands that are printed to be copied: they lead to the same database and the same configuration.

use std::sync::OnceLock;

use crate::cli::{Cli, Global};
use crate::output;

/// Every command begins so.
const PROGRAM: &str = "symphony ";
static PREFIX: OnceLock<String> = OnceLock::new();

/// Remember how this command was told where to look. What the environment says, the same shell will say again.
pub(super) fn remember(global: &Global) {
    let variable = std::env::var("DATABASE_URL").ok();
    drop(PREFIX.set(prefix(global, variable.as_deref())));
}

/// `symphony show 1`, with the options that lead to the same place.
pub(crate) fn symphony(rest: &str) -> String {
    format!("symphony{} {rest}", options())
}

/// The options that lead to the same place, each after a space.
pub(super) fn options() -> &'static str {
    PREFIX.get().map_or("", String::as_str)
}

/// A text of the library, which knows the schema and no more, with its commands as [`symphony`] writes them.
pub(crate) fn completed(text: &str) -> String {
    match PREFIX.get() {
        None => text.to_owned(),
        Some(prefix) => with_prefix(text, prefix),
    }
}

fn with_prefix(text: &str, prefix: &str) -> String {
    let definition = Cli::definition();
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(PROGRAM) {
        let words = after.strip_prefix("--schema ").and_then(|after| after.split_once(' '));
        let words = words.map_or(after, |(_, words)| words);
        let first = words.split(|c: char| !c.is_ascii_lowercase()).next().unwrap_or_default();
        let begins = before.is_empty() || before.ends_with(['`', ' ']);
        told.push_str(before);
        if begins && definition.find_subcommand(first).is_some() {
            told.push_str(&format!("symphony{prefix} "));
            rest = words;
        } else {
            told.push_str(PROGRAM);
            rest = after;
        }
    }
    told + rest
}

/// A command that names one thing: a name such as `-x` stands last, after `--`, and is no option.
pub(crate) fn symphony_of(command: &str, name: &str, options: &str) -> String {
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
    // Where the environment names two databases, only what is typed says which.
    let private_variable = std::env::var_os("SYMPHONY_PRIVATE").is_some();
    let unclear = private_variable && variable.is_some();
    let url = global.database_url.as_deref();
    if let Some(url) = url.filter(|url| unclear || Some(*url) != variable) {
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
    if global.private && (unclear || !private_variable) {
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
    fn a_command_of_the_library_gets_the_options_of_the_one_that_failed() {
        let here = " --schema billing --private";
        for (text, expected) in [
            ("run `symphony migrate`", "run `symphony --schema billing --private migrate`"),
            (
                "symphony --schema billing restore check",
                "symphony --schema billing --private restore check",
            ),
            ("the database symphony on db", "the database symphony on db"),
            ("role symphony_control", "role symphony_control"),
        ] {
            assert_eq!(with_prefix(text, here), expected);
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
