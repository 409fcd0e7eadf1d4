//! `symphony enqueue event`: tell events from a shell.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::value::RawValue;
use symphony::db::{Database, DbError, Role};
use symphony::event::{Event, JSON_SCHEMA};
use symphony::events::{Enqueued, ItemState};
use uuid::Uuid;

use self::source::Source;
use crate::bounds::{
    BATCH_BYTES, BATCH_ITEMS, DEADLOCK_RETRIES_MAX, EVENTS_LISTED_MAX, MISTAKES_LISTED_MAX,
    TRANSACTION_BYTES_MAX, TRANSACTION_EVENTS_MAX,
};
use crate::cli::{EnqueueEvent, Global};
use crate::output::{self, Failure};
use crate::server::Server;

mod source;

pub(super) async fn run(global: &Global, options: &EnqueueEvent) -> Result<ExitCode, Failure> {
    if options.json_schema {
        output::print_verbatim(JSON_SCHEMA)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut source = Source::open(options)?;
    // Bad input is refused before a server is started for it.
    let first = Piece::read(&mut source)?;
    let mut report = Report::default();
    if !first.refused.is_empty() {
        return report.refuse(global, first);
    }
    let server = Server::open(global).await?;
    let result = match server.database_as(Role::Producer).await {
        Ok(database) => enqueue(global, first, source, &database, &mut report).await,
        Err(failure) => Err(failure),
    };
    server.close().await?;
    result
}

async fn enqueue(
    global: &Global,
    first: Piece,
    mut source: Source,
    database: &Database,
    report: &mut Report,
) -> Result<ExitCode, Failure> {
    let mut progress = Progress::new(global);
    let mut next = Some(first);
    while let Some(mut piece) = next.take() {
        if piece.refused.is_empty() && !piece.entries.is_empty() {
            let answers = match write(database, &piece, &mut progress).await {
                Ok(answers) => answers,
                Err(error) => {
                    progress.end();
                    report.say_what_is_written();
                    return Err(error.into());
                }
            };
            piece.keep_refusals(&answers);
            if piece.refused.is_empty() {
                report.add(global, &piece, answers);
            }
        }
        if !piece.refused.is_empty() {
            progress.end();
            return report.refuse(global, piece);
        }
        if !piece.ended {
            next = Some(Piece::read(&mut source)?);
        }
    }
    progress.end();
    report.tell(global)?;
    Ok(ExitCode::SUCCESS)
}

/// What the database says of one event.
type Answer = Result<Enqueued, DbError>;

/// All of a piece in one transaction; what is refused is answered, and then nothing is written.
async fn write(
    database: &Database,
    piece: &Piece,
    progress: &mut Progress,
) -> Result<Vec<Answer>, DbError> {
    let mut races = 0;
    loop {
        match try_to_write(database, piece, progress).await {
            // Calls of one transaction lock buckets each in order, but not all of them together.
            Err(DbError::Retry { .. }) if races < DEADLOCK_RETRIES_MAX => races += 1,
            other => return other,
        }
    }
}

async fn try_to_write(
    database: &Database,
    piece: &Piece,
    progress: &mut Progress,
) -> Result<Vec<Answer>, DbError> {
    let mut transaction = database.begin(Role::Producer).await?;
    let mut answers = Vec::with_capacity(piece.entries.len());
    let mut rest = piece.entries.as_slice();
    while !rest.is_empty() {
        let (batch, others) = rest.split_at(together(rest));
        rest = others;
        let events: Vec<&RawValue> = batch.iter().map(|entry| entry.event.body()).collect();
        answers.extend(symphony::events::enqueue_batch_unchecked(&mut transaction, &events).await?);
        progress.more(events.len());
    }
    if answers.iter().all(Result::is_ok) {
        transaction.commit().await?;
    }
    Ok(answers)
}

/// How many of these go into one call: at least one.
fn together(entries: &[Entry]) -> usize {
    let mut bytes = 0;
    let fitting = entries.iter().take(BATCH_ITEMS).take_while(|entry| {
        bytes += entry.event.body().get().len();
        bytes <= BATCH_BYTES
    });
    fitting.count().max(1)
}

/// An event, and where it stood in the input.
struct Entry {
    at: String,
    event: Event,
}

/// What is written together.
struct Piece {
    entries: Vec<Entry>,
    refused: Vec<Line>,
    /// Both of them.
    count: usize,
    ended: bool,
}

impl Piece {
    /// The next events of the input, each checked.
    fn read(source: &mut Source) -> Result<Self, Failure> {
        let mut piece = Self { entries: Vec::new(), refused: Vec::new(), count: 0, ended: false };
        let mut bytes = 0;
        while piece.count < TRANSACTION_EVENTS_MAX && bytes < TRANSACTION_BYTES_MAX {
            let Some((at, text)) = source.next()? else {
                piece.ended = true;
                break;
            };
            bytes += text.len();
            piece.count += 1;
            match Event::parse(&text) {
                Ok(event) => piece.entries.push(Entry { at, event }),
                Err(defect) => piece.refused.push(Line {
                    at,
                    error_code: Some("P7005".to_owned()),
                    error_message: Some(defect.to_string()),
                    ..Line::default()
                }),
            }
        }
        Ok(piece)
    }

    /// What the database refused.
    fn keep_refusals(&mut self, answers: &[Answer]) {
        self.refused = self
            .entries
            .iter()
            .zip(answers)
            .filter(|(_, answer)| answer.is_err())
            .map(|(entry, answer)| Line::new(entry, answer))
            .collect();
    }
}

/// What became of one event.
#[derive(Default, Serialize)]
struct Line {
    at: String,
    event_id: Option<Uuid>,
    event_type: Option<String>,
    event_key: Option<String>,
    log_position: Option<i64>,
    state: Option<ItemState>,
    duplicate: Option<bool>,
    error_code: Option<String>,
    error_message: Option<String>,
}

impl Line {
    fn new(entry: &Entry, answer: &Answer) -> Self {
        let (told, refusal) = (answer.as_ref().ok(), answer.as_ref().err());
        Self {
            at: entry.at.clone(),
            event_id: Some(entry.event.event_id()),
            event_type: Some(entry.event.event_type().to_owned()),
            event_key: Some(entry.event.key().to_owned()),
            log_position: told.map(|told| told.log_position),
            state: told.map(|told| told.state),
            duplicate: told.map(|told| told.duplicate),
            error_code: refusal.map(|refusal| refusal.code().to_owned()),
            error_message: refusal.map(ToString::to_string),
        }
    }

    fn failure(&self) -> Failure {
        let message = self.error_message.as_deref().unwrap_or("refused");
        Failure::new(format!("{}: {message}", self.at))
            .with_code(self.error_code.as_deref().unwrap_or("P7005"))
    }

    fn in_words(&self) -> String {
        let known =
            if self.duplicate == Some(true) { " (known already; nothing was written)" } else { "" };
        format!("{}{known}", text(self.state.as_ref()))
    }
}

/// What became of all of them.
#[derive(Default, Serialize)]
struct Report {
    new: usize,
    known: usize,
    refused: usize,
    events: Vec<Line>,
}

impl Report {
    fn add(&mut self, global: &Global, piece: &Piece, answers: Vec<Answer>) {
        let known = answers.iter().flatten().filter(|told| told.duplicate).count();
        self.known += known;
        self.new += answers.len() - known;
        if global.json || self.written() <= EVENTS_LISTED_MAX {
            let lines = piece.entries.iter().zip(answers);
            self.events.extend(lines.map(|(entry, answer)| Line::new(entry, &answer)));
        } else {
            self.events.clear();
        }
    }

    fn written(&self) -> usize {
        self.new + self.known
    }

    fn tell(&self, global: &Global) -> Result<(), Failure> {
        if global.json {
            return output::json(self);
        }
        if let [line] = &self.events[..] {
            return output::print(&format!(
                "{}  {}, key {}, position {}, {}\n",
                text(line.event_id.as_ref()),
                output::plain(&text(line.event_type.as_ref())),
                output::plain(line.event_key.as_deref().unwrap_or_default()),
                text(line.log_position.as_ref()),
                line.in_words(),
            ));
        }
        let mut told = String::new();
        if !self.events.is_empty() {
            told = output::table(
                [
                    output::short("at"),
                    output::whole("event"),
                    output::short("type"),
                    output::short("key"),
                    output::number("position"),
                    "state".into(),
                ],
                self.events.iter().map(|line| {
                    [
                        line.at.clone(),
                        text(line.event_id.as_ref()),
                        text(line.event_type.as_ref()),
                        output::plain(line.event_key.as_deref().unwrap_or_default()),
                        text(line.log_position.as_ref()),
                        line.in_words(),
                    ]
                }),
            );
        }
        output::print(&format!("{told}{} new, {} known already\n", self.new, self.known))
    }

    /// Name what is wrong; nothing of this piece is written.
    fn refuse(&mut self, global: &Global, piece: Piece) -> Result<ExitCode, Failure> {
        self.refused = piece.refused.len();
        let of = piece.count;
        // One event, one line.
        if let ([line], 1, 0, false) = (&piece.refused[..], of, self.written(), global.json) {
            return Err(line.failure());
        }
        let before = match self.written() {
            0 => "nothing was written".to_owned(),
            written => format!(
                "none of these was written, but the {written} before them: repeating the file is safe"
            ),
        };
        let failure =
            Failure::new(format!("{} of {of} events refused, and {before}", self.refused));
        if global.json {
            self.events.extend(piece.refused);
            output::json(self)?;
        } else {
            for line in piece.refused.iter().take(MISTAKES_LISTED_MAX) {
                line.failure().report(false);
            }
            if let more @ 1.. = self.refused.saturating_sub(MISTAKES_LISTED_MAX) {
                output::note(&format!("and {more} more"));
            }
        }
        Err(failure)
    }

    /// An error came between two pieces.
    fn say_what_is_written(&self) {
        if self.written() > 0 {
            output::note(&format!(
                "{} events are written, the rest is not: repeating the file is safe",
                self.written()
            ));
        }
    }
}

fn text<T: ToString>(value: Option<&T>) -> String {
    value.map(ToString::to_string).unwrap_or_default()
}

/// A line on the terminal that says how far it is, once it takes long.
struct Progress {
    on: bool,
    started: Instant,
    events: usize,
    shown: bool,
}

impl Progress {
    fn new(global: &Global) -> Self {
        let on = !global.json && io::stderr().is_terminal();
        Self { on, started: Instant::now(), events: 0, shown: false }
    }

    fn more(&mut self, events: usize) {
        self.events += events;
        if self.on && self.started.elapsed() > Duration::from_secs(1) {
            eprint!("\r{} events", self.events);
            self.shown = true;
        }
    }

    fn end(&mut self) {
        if self.shown {
            eprintln!();
            self.shown = false;
        }
    }
}
