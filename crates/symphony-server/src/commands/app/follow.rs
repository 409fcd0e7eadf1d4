//! `symphony app logs --follow`: what scripts log, as their executions end.

use std::collections::HashMap;
use std::process::ExitCode;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde_json::json;
use symphony::db::{Auditor, DbError, EndedExecution};
use symphony::lanes::triggers::executor::LogLine;
use uuid::Uuid;

use super::super::acts::as_operator;
use super::super::database::{Away, StopSignals};
use super::super::suggested_command::symphony;
use crate::bounds::{FOLLOW_OVERLAP, FOLLOW_PAGE_ROWS, FOLLOW_POLL};
use crate::cli::Global;
use crate::output::{self, Failure};

/// Until Ctrl-C, however long the database is away meanwhile.
pub(super) async fn run(global: &Global, app: Option<&str>) -> Result<ExitCode, Failure> {
    as_operator(global, async |operator| {
        let reader = operator.reader();
        if let Some(app) = app
            && reader.app(app).await?.is_none()
        {
            return Err(Failure::new(format!("there is no app {app:?}")).with_code("P7007"));
        }
        let mut signals = StopSignals::new()?;
        let mut follower = Follower::new(&reader).await?;
        loop {
            if follower.print_next(global, &reader, app).await? {
                continue;
            }
            tokio::select! {
                () = signals.received() => return Ok(ExitCode::SUCCESS),
                () = tokio::time::sleep(FOLLOW_POLL) => {}
            }
        }
    })
    .await
}

/// Prints what has ended since it was made.
pub(super) struct Follower {
    place: Place,
    away: Away,
}

impl Follower {
    pub(super) async fn new(reader: &Auditor) -> Result<Self, DbError> {
        Ok(Self { place: Place::now(reader).await?, away: Away::default() })
    }

    /// Answers whether there is more at once.
    pub(super) async fn print_next(
        &mut self,
        global: &Global,
        reader: &Auditor,
        app: Option<&str>,
    ) -> Result<bool, Failure> {
        let looked = self.away.unless(self.place.next(reader, app).await)?;
        let is_full = looked.as_ref().is_some_and(|(_, is_full)| *is_full);
        let ended = looked.map(|(ended, _)| ended).unwrap_or_default();
        for execution in &ended {
            print(global, execution)?;
        }
        Ok(is_full)
    }
}

/// How far it was read. An execution gets its time before it commits, so what ended a moment ago is looked at again, and what
/// was shown is remembered for as long.
struct Place {
    /// When somebody began to follow.
    since: DateTime<Utc>,
    through: DateTime<Utc>,
    after: (DateTime<Utc>, Uuid),
    shown: HashMap<Uuid, DateTime<Utc>>,
}

impl Place {
    async fn now(reader: &Auditor) -> Result<Self, DbError> {
        let now = reader.now().await?;
        Ok(Self { since: now, through: now, after: (now, Uuid::nil()), shown: HashMap::new() })
    }

    /// What has ended and was not shown, and whether there is more at once.
    async fn next(
        &mut self,
        reader: &Auditor,
        app: Option<&str>,
    ) -> Result<(Vec<EndedExecution>, bool), DbError> {
        let (at, id) = self.after;
        let found = reader.executions_ended_after(app, at, id, FOLLOW_PAGE_ROWS).await?;
        if let Some(last) = found.last() {
            self.through = self.through.max(last.completed_at);
        }
        let is_full = found.len() >= usize::try_from(FOLLOW_PAGE_ROWS).unwrap_or(usize::MAX);
        self.after = match found.last() {
            Some(last) if is_full => (last.completed_at, last.id),
            _ => (self.since.max(self.through - overlap()), Uuid::nil()),
        };
        let fresh = found.into_iter().filter(|one| !self.shown.contains_key(&one.id));
        let fresh: Vec<EndedExecution> = fresh.collect();
        self.shown.extend(fresh.iter().map(|one| (one.id, one.completed_at)));
        // A full page goes on from its end, and the look after it goes back again.
        let oldest = self.through - overlap();
        self.shown.retain(|_, ended| *ended >= oldest);
        Ok((fresh, is_full))
    }
}

fn overlap() -> TimeDelta {
    TimeDelta::from_std(FOLLOW_OVERLAP).unwrap_or(TimeDelta::zero())
}

fn print(global: &Global, execution: &EndedExecution) -> Result<(), Failure> {
    let lines = execution.logs.as_ref().map(|logs| {
        // Whatever is in the row is shown, also if it is not as our own executors write it.
        serde_json::from_str::<Vec<LogLine>>(logs.0.get()).unwrap_or_else(|_| {
            let message = logs.0.get().to_owned();
            vec![LogLine { level: "info".to_owned(), at_ms: 0, message }]
        })
    });
    if global.json {
        return output::json_line(&json!({
            "id": execution.id, "app": execution.app_name, "script": execution.script_name, "state": execution.state,
            "error_code": execution.error_code, "completed_at": execution.completed_at, "logs": lines,
        }));
    }
    let at = execution.completed_at.to_rfc3339_opts(SecondsFormat::Millis, true);
    let head = format!(
        "{at} {} {}",
        output::plain(&execution.app_name),
        output::plain(execution.script_name.as_deref().unwrap_or("(email to be sent)"))
    );
    let mut text = String::new();
    for line in lines.iter().flatten() {
        for part in line.message.lines() {
            text.push_str(&format!("{head} {}: {}\n", line.level, output::plain(part)));
        }
    }
    if lines.is_none() {
        text.push_str(&format!(
            "{head} {}: logs are hidden from symphony_readonly\n",
            execution.state
        ));
    }
    if let Some(code) = &execution.error_code {
        let code = output::plain(code);
        text.push_str(&format!(
            "{head} {} {code}: {}\n",
            execution.state,
            symphony(&format!("app logs {}", execution.id))
        ));
    }
    output::print_verbatim(&text)
}
