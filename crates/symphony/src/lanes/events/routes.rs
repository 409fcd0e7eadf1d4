//! Where an event goes, by its type.

/// Which types a route is for: `events.transfers.submitted`, `events.transfers.*` for all below, or `*` for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypePattern {
    /// Without the star, with the dot before it.
    stem: String,
    /// Whether anything may follow.
    open: bool,
}

impl TypePattern {
    /// Read one; the error says what a pattern looks like.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (stem, open) = match text.strip_suffix('*') {
            Some(stem) => (stem, true),
            None => (text, false),
        };
        let named = stem.strip_suffix('.').unwrap_or(stem);
        let is_name = |segment: &str| {
            !segment.is_empty()
                && segment
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b))
        };
        let whole = open && stem.is_empty();
        let ends_well = !open || stem.is_empty() || stem.ends_with('.');
        if whole || (ends_well && named.split('.').all(is_name) && (open || named == stem)) {
            Ok(Self { stem: stem.to_owned(), open })
        } else {
            Err("must be a type such as \"events.transfers.submitted\", all below one such as \
                 \"events.transfers.*\", or \"*\""
                .to_owned())
        }
    }

    /// Whether it is for every type that the other is for.
    pub fn covers(&self, other: &Self) -> bool {
        let within = other.stem.starts_with(&self.stem);
        let more = other.open || other.stem.len() > self.stem.len();
        if self.open { within && more } else { self == other }
    }

    /// Whether it is for this type.
    pub fn matches(&self, event_type: &str) -> bool {
        match event_type.strip_prefix(self.stem.as_str()) {
            Some(rest) if self.open => !rest.is_empty(),
            Some(rest) => rest.is_empty(),
            None => false,
        }
    }
}

/// What happens to later events of a key when one has FAILED.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFailed {
    /// They wait until an operator redrives or skips it.
    #[default]
    Block,
    /// They go on without it.
    Continue,
}

/// From types to a topic of a bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// For which types.
    pub pattern: TypePattern,
    /// The bus, by its name.
    pub bus: String,
    /// The topic there.
    pub topic: String,
    /// What a failure means for the key.
    pub on_failed: OnFailed,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_for_its_type_or_for_all_below() {
        for (pattern, event_type, matches) in [
            ("events.transfers.submitted", "events.transfers.submitted", true),
            ("events.transfers.submitted", "events.transfers.submitted.usdc", false),
            ("events.transfers.*", "events.transfers.submitted.usdc", true),
            ("events.transfers.*", "events.transfers", false),
            ("events.transfers.*", "events.transfersx.a", false),
            ("*", "events.transfers.submitted", true),
            ("events.*", "other.transfers", false),
        ] {
            assert_eq!(
                TypePattern::parse(pattern).unwrap().matches(event_type),
                matches,
                "{pattern} for {event_type}"
            );
        }
    }

    #[test]
    fn a_pattern_covers_what_is_below_it() {
        for (one, other, covers) in [
            ("*", "*", true),
            ("*", "events.a", true),
            ("events.*", "events.a.*", true),
            ("events.*", "events.a", true),
            ("events.a", "events.a", true),
            ("events.a", "events.a.*", false),
            ("events.a.*", "events.a", false),
            ("events.a.*", "events.*", false),
        ] {
            let parse = |text| TypePattern::parse(text).unwrap();
            assert_eq!(parse(one).covers(&parse(other)), covers, "{one} {other}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in [
            "",
            "**",
            "events.trans*",
            "events..a",
            "Events.a",
            "events.a.",
            ".*",
            "a.*.b",
            "events *",
        ] {
            assert!(TypePattern::parse(text).is_err(), "{text:?}");
        }
    }
}
