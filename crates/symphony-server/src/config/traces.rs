//! `[traces]`: where spans go.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use symphony::FieldErrors;
use symphony_connect::collector::{Collector, CollectorSettings};

use super::defects::Defects;
use crate::bounds::{SPANS_PER_POST_MAX, SPANS_WAITING_MAX};

/// `[traces]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracesSection {
    /// Where to post to, or `off`.
    pub endpoint: String,
    /// Headers, by the environment variables that hold their values.
    #[serde(default)]
    pub header_env: BTreeMap<String, String>,
    /// A PEM file with certificate authorities to trust besides the public ones.
    #[serde(default)]
    pub extra_root_certificates_file: Option<PathBuf>,
    /// Of traces that nobody outside has begun, so many in a thousand.
    pub sampled_per_thousand: u32,
    /// Spans that wait.
    pub queue_max: usize,
    /// Spans of one post.
    pub batch_max: usize,
    /// How long one post may take.
    pub timeout_ms: u64,
}

impl TracesSection {
    /// The collector; `None` if traces are off.
    pub fn collector(&self) -> Result<Option<Collector>, FieldErrors> {
        if self.endpoint == "off" {
            return Ok(None);
        }
        let settings = CollectorSettings {
            endpoint: self.endpoint.clone(),
            header_env: self.header_env.clone(),
            timeout_ms: self.timeout_ms,
            extra_root_certificates_file: self.extra_root_certificates_file.clone(),
        };
        Collector::new(&settings, |name| std::env::var(name).ok()).map(Some)
    }

    /// Note what is wrong.
    pub(super) fn check(&self, defects: &mut Defects) {
        let numbers = [
            ("traces.sampled_per_thousand", u64::from(self.sampled_per_thousand), 0, 1_000),
            ("traces.queue_max", whole(self.queue_max), 1, whole(SPANS_WAITING_MAX)),
            ("traces.batch_max", whole(self.batch_max), 1, whole(SPANS_PER_POST_MAX)),
        ];
        for (field, value, least, most) in numbers {
            if !(least..=most).contains(&value) {
                defects.add(field, format!("must be {least} to {most}"));
            }
        }
        let collector = defects.note("traces", self.collector()).flatten();
        if collector.is_some() && !cfg!(feature = "otlp") {
            let problem =
                "needs a program built with the feature otlp: this one was built without it";
            defects.add("traces.endpoint", problem);
        }
    }
}

fn whole(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::Config;
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let config = Config::from_text(text).unwrap();
        let mut defects = Defects::default();
        config.traces.check(&mut defects);
        defects.into_found().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn traces_are_off_and_everything_wrong_with_them_is_said_at_once() {
        assert_eq!(problems(""), Vec::<String>::new());
        let found = problems(
            "[traces]\nendpoint = \"http://198.51.100.7/v1/traces\"\nqueue_max = 0\n\
             sampled_per_thousand = 1001\nheader_env = { Authorization = \"NO_SUCH_VARIABLE\" }\n",
        );
        for field in ["endpoint", "queue_max", "sampled_per_thousand", "header_env"] {
            let named = format!("traces.{field}");
            assert!(found.iter().any(|line| line.starts_with(&named)), "{field}: {found:?}");
        }
    }

    #[cfg(feature = "otlp")]
    #[test]
    fn a_collector_on_this_host_is_right() {
        let text = "[traces]\nendpoint = \"http://127.0.0.1:4318/v1/traces\"\n";
        assert_eq!(problems(text), Vec::<String>::new());
    }
}
