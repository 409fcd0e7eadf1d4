//! `symphony top`: the lanes in full screen, until q.

mod view;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use symphony::db::{Auditor, DbError, Role, WorkersQuery};
use tokio::sync::mpsc;

use super::database::StopSignals;
use super::suggested_command::symphony;
use crate::bounds::{STATUS_REFRESH, TOP_KEY_POLL, TOP_WORKERS_MAX};
use crate::cli::Global;
use crate::output::{self, Failure};
use crate::server::Server;
use view::{Screen, Snapshot};

pub(super) async fn run(global: &Global) -> Result<ExitCode, Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::new(format!(
            "top needs a terminal; in a pipe: {}",
            symphony("status --watch")
        )));
    }
    let server = Server::open(global).await?;
    let result = match server.database_as(Role::Auditor).await {
        Ok(database) => full_screen(&database.auditor()).await,
        Err(failure) => Err(failure),
    };
    server.close().await?;
    result
}

/// The terminal is given back however this ends: `init` does it for a panic.
async fn full_screen(auditor: &Auditor) -> Result<ExitCode, Failure> {
    let mut signals = StopSignals::new()?;
    let keys = Keys::listen();
    let mut terminal = ratatui::try_init()?;
    let shown = show(auditor, &mut terminal, keys, &mut signals).await;
    ratatui::restore();
    shown
}

async fn show(
    auditor: &Auditor,
    terminal: &mut DefaultTerminal,
    mut keys: Keys,
    signals: &mut StopSignals,
) -> Result<ExitCode, Failure> {
    let whose = output::asked().map(output::AskedDatabase::text).unwrap_or_default();
    let mut screen = Screen::new(whose, output::has_colours());
    let mut refresh = tokio::time::interval(STATUS_REFRESH);
    refresh.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = signals.received() => return Ok(ExitCode::SUCCESS),
            _ = refresh.tick() => match look(auditor).await {
                Ok(snapshot) => screen.see(snapshot),
                // What was seen last stays, and is said to be old.
                Err(error) if error.is_transient() => screen.lose(&error.to_string()),
                Err(error) => return Err(error.into()),
            },
            key = keys.pressed.recv() => match key {
                None => return Ok(ExitCode::SUCCESS),
                Some(key) if ends(key) => return Ok(ExitCode::SUCCESS),
                Some(key) => screen.press(key.code),
            },
        }
        terminal.draw(|frame| screen.draw(frame))?;
    }
}

fn ends(key: KeyEvent) -> bool {
    let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

async fn look(auditor: &Auditor) -> Result<Snapshot, DbError> {
    let served = WorkersQuery { limit: TOP_WORKERS_MAX, ..WorkersQuery::default() };
    let mut workers = auditor.workers(served).await?;
    workers.retain(|worker| worker.live);
    Ok(Snapshot {
        lanes: auditor.status().await?,
        destinations: auditor.destinations(None).await?,
        workers,
    })
}

/// Keys, read by a thread of their own: reading them blocks.
struct Keys {
    pressed: mpsc::UnboundedReceiver<KeyEvent>,
    ended: Arc<AtomicBool>,
}

impl Keys {
    fn listen() -> Self {
        let (sender, pressed) = mpsc::unbounded_channel();
        let ended = Arc::new(AtomicBool::new(false));
        let until = ended.clone();
        std::thread::spawn(move || {
            while !until.load(Ordering::Acquire) {
                // An error is a terminal that is gone: the channel closes, and so does the screen.
                let Ok(is_there) = event::poll(TOP_KEY_POLL) else { return };
                if !is_there {
                    continue;
                }
                let key = match event::read() {
                    Ok(Event::Key(key)) if key.kind == KeyEventKind::Press => key,
                    // Drawn anew at once, in its new size.
                    Ok(Event::Resize(..)) => KeyEvent::new(KeyCode::Null, KeyModifiers::NONE),
                    Ok(_) => continue,
                    Err(_) => return,
                };
                if sender.send(key).is_err() {
                    return;
                }
            }
        });
        Self { pressed, ended }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
    }
}

const _: () = assert!(TOP_KEY_POLL.as_millis() < Duration::from_secs(1).as_millis());
