//! URLs and forms, as the URL Standard has them.

use serde_json::Value;
use url::{Url, form_urlencoded, quirks};

use super::{Answer, no_such_function};
use crate::executors::script::host::Refusal;

/// Its parts, as JSON, in the order in which `url.js` names them.
pub(super) fn parse(text: &str, base: Option<&String>) -> Answer {
    let invalid = |what: &str| Refusal::Argument(format!("{what} must be a valid URL"));
    let base = base.map(|base| Url::parse(base).map_err(|_| invalid("base"))).transpose()?;
    let parsed = Url::options().base_url(base.as_ref()).parse(text);
    Ok(parts(&parsed.map_err(|_| invalid("url"))?))
}

/// The parts after one was set; what cannot be set changes nothing, but for `href`.
pub(super) fn set(href: &str, name: &str, value: &str) -> Answer {
    let mut url = Url::parse(href).map_err(|_| no_such_function())?;
    // The standard's setters say nothing about what they refuse.
    let _refused_or_not = match name {
        "href" => return parse(value, None),
        "protocol" => quirks::set_protocol(&mut url, value),
        "username" => quirks::set_username(&mut url, value),
        "password" => quirks::set_password(&mut url, value),
        "host" => quirks::set_host(&mut url, value),
        "hostname" => quirks::set_hostname(&mut url, value),
        "port" => quirks::set_port(&mut url, value),
        "pathname" => {
            quirks::set_pathname(&mut url, value);
            Ok(())
        }
        "search" => {
            quirks::set_search(&mut url, value);
            Ok(())
        }
        "hash" => {
            quirks::set_hash(&mut url, value);
            Ok(())
        }
        _ => return Err(no_such_function()),
    };
    Ok(parts(&url))
}

fn parts(url: &Url) -> String {
    let all = [
        quirks::href(url),
        quirks::protocol(url),
        quirks::username(url),
        quirks::password(url),
        quirks::host(url),
        quirks::hostname(url),
        quirks::port(url),
        quirks::pathname(url),
        quirks::search(url),
        quirks::hash(url),
        &origin(url),
    ];
    Value::from(all.as_slice()).to_string()
}

/// That of what a `blob:` names counts only if it is of the web.
fn origin(url: &Url) -> String {
    let is_of_the_web = |url: &Url| ["http", "https"].contains(&url.scheme());
    if url.scheme() == "blob" && !Url::parse(url.path()).is_ok_and(|named| is_of_the_web(&named)) {
        return "null".to_owned();
    }
    quirks::origin(url)
}

pub(super) fn form_pairs(text: &str) -> String {
    let pairs = form_urlencoded::parse(text.as_bytes());
    let pairs: Value = pairs.map(|(name, value)| Value::from(vec![name, value])).collect();
    pairs.to_string()
}

pub(super) fn form_text(pairs: &str) -> Answer {
    let pairs: Vec<(String, String)> =
        serde_json::from_str(pairs).map_err(|_| no_such_function())?;
    Ok(form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish())
}
