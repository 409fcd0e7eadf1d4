//! The names somebody may have meant.

use crate::bounds::SUGGESTIONS_MAX;
use crate::edit_distance::edit_distance;

/// `: did you mean sepa? symphony rail lists all`, or what to type where nothing is near.
pub(super) fn hint(given: &str, known: &[String], list: &str) -> String {
    let near = nearest(given, known);
    match near.as_slice() {
        [] if known.is_empty() => format!("; there is none yet: {list}"),
        [] => format!("; `{list}` lists all {}", known.len()),
        names => {
            let names: Vec<String> = names.iter().map(|name| crate::output::plain(name)).collect();
            format!("; did you mean {}? `{list}` lists all", names.join(" or "))
        }
    }
}

/// `; did you mean acme?`, or nothing where no name is near.
pub(super) fn near(given: &str, known: &[String]) -> String {
    match nearest(given, known).as_slice() {
        [] => String::new(),
        names => format!("; did you mean {}?", names.join(" or ")),
    }
}

/// The same for topics: no command lists them, and people leave the bus out.
pub(super) fn topics(given: &str, known: &[String]) -> String {
    let near = near(given, known);
    if !near.is_empty() {
        return near;
    }
    match known {
        [] => "; no worker has named any yet".to_owned(),
        known => {
            let some: Vec<String> =
                known.iter().take(SUGGESTIONS_MAX).map(|name| crate::output::plain(name)).collect();
            format!("; a topic is named as bus/topic, such as {}", some.join(" or "))
        }
    }
}

/// Names that differ by little, the nearest first.
fn nearest<'a>(given: &str, known: &'a [String]) -> Vec<&'a str> {
    let given = given.to_lowercase();
    let most = (given.chars().count() / 3).max(1) + 1;
    let mut near: Vec<(usize, &str)> = known
        .iter()
        .map(|name| (edit_distance(&given, &name.to_lowercase()), name.as_str()))
        .filter(|(distance, _)| *distance <= most)
        .collect();
    near.sort_unstable();
    near.into_iter().take(SUGGESTIONS_MAX).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_near_is_offered_and_another_word_is_not() {
        let known = ["sepa".to_owned(), "ach".to_owned(), "sepa-instant".to_owned()];
        assert_eq!(nearest("spea", &known), ["sepa"]);
        assert_eq!(nearest("wire", &known), Vec::<&str>::new());
        assert_eq!(
            hint("SPEA", &known, "symphony rail"),
            "; did you mean sepa? `symphony rail` lists all"
        );
    }
}
