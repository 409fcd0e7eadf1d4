//! Logs: one line an event, allow-listed fields only. A field that is not on the list is not written, whatever
//! the code says: payloads, names and account numbers cannot leak by a careless line.

use std::fmt;
use std::io::Write as _;

use chrono::{SecondsFormat, Utc};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{LogFormat, LogLevel, LogSection};
use crate::output::{plain, plain_json};

/// Every field that may be logged. None of them holds anything of a payload.
pub const ALLOWED_FIELDS: [&str; 37] = [
    "message",
    "address",
    "bus",
    "database",
    "code",
    "consumer",
    "description",
    "endpoint",
    "error",
    "error_code",
    "event",
    "event_id",
    "expired_leases_detected",
    "found",
    "group",
    "held",
    "lane",
    "lanes",
    "leases_repaired",
    "lost",
    "outbox_id",
    "outbox_ids",
    "outcomes",
    "park",
    "parked",
    "path",
    "payments",
    "point",
    "rail",
    "rail_code",
    "rails",
    "result",
    "seconds",
    "trace_id",
    "tries",
    "version",
    "worker_id",
];

/// Write logs to standard error from now on.
pub fn start(settings: &LogSection) {
    let level = match settings.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let log = Log { format: settings.format };
    // A second start in one process (tests) keeps the first.
    if tracing_subscriber::registry().with(log.with_filter(level)).try_init().is_err() {
        tracing::debug!("logs were started already");
    }
}

/// For commands that keep no log: only whom they wait for, as a line for the person who waits as well.
pub fn start_for_people() {
    if tracing_subscriber::registry()
        .with(ConnectionNotices.with_filter(LevelFilter::WARN))
        .try_init()
        .is_err()
    {
        tracing::debug!("logs were started already");
    }
}

struct ConnectionNotices;

impl<S: Subscriber> Layer<S> for ConnectionNotices {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() != symphony::db::CONNECTION_LOG_TARGET {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let of = |wanted| fields.0.iter().find(|(name, _)| *name == wanted);
        let mut line = "symphony: ".to_owned();
        line.push_str(&plain(of("message").map_or("", |(_, message)| message.as_str())));
        if let Some((_, address)) = of("address") {
            line.push_str(&format!(" ({})", plain(address)));
        }
        line.push('\n');
        // The answer is what was asked for, not this line.
        drop(std::io::stderr().lock().write_all(line.as_bytes()));
    }
}

struct Log {
    format: LogFormat,
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        // Ours only: libraries log what they like, statements included.
        if !event.metadata().target().starts_with("symphony") {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let line = render(self.format, event.metadata().level().as_str(), &fields);
        // A log that cannot be written must not stop a payment.
        drop(std::io::stderr().lock().write_all(line.as_bytes()));
    }
}

#[derive(Default)]
struct Fields(Vec<(&'static str, String)>);

impl Fields {
    fn keep(&mut self, field: &Field, value: String) {
        if ALLOWED_FIELDS.contains(&field.name()) {
            self.0.push((field.name(), value));
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.keep(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.keep(field, format!("{value:?}"));
    }
}

fn render(format: LogFormat, level: &str, fields: &Fields) -> String {
    let at = Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true);
    match format {
        LogFormat::Json => {
            let mut object = serde_json::Map::new();
            object.insert("at".to_owned(), at.into());
            object.insert("level".to_owned(), level.into());
            for (name, value) in &fields.0 {
                object.insert((*name).to_owned(), value.as_str().into());
            }
            plain_json(&serde_json::Value::Object(object).to_string()) + "\n"
        }
        LogFormat::Text => {
            let mut line = format!("{at} {level:5}");
            for (_, message) in fields.0.iter().filter(|(name, _)| *name == "message") {
                line.push(' ');
                line.push_str(&plain(message));
            }
            for (name, value) in fields.0.iter().filter(|(name, _)| *name != "message") {
                line.push(' ');
                line.push_str(name);
                line.push('=');
                line.push_str(&plain(value));
            }
            line.push('\n');
            line
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_of_text_or_one_json_object() {
        let fields = Fields(vec![
            ("message", "the outcome\nis unknown".to_owned()),
            ("lane", "payments".to_owned()),
        ]);
        // One line stays one line, whatever a server said.
        let text = render(LogFormat::Text, "WARN", &fields);
        assert!(text.ends_with(" WARN  the outcome\\nis␣unknown lane=payments\n"), "{text}");
        let json = render(LogFormat::Json, "WARN", &fields);
        assert!(json.contains(r#""lane":"payments""#), "{json}");
        assert_eq!(json.matches('\n').count(), 1);
    }
}
