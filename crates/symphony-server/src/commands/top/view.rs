//! What `top` draws: pure, so that a test can look at it.

use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table, Wrap};
use symphony::db::{DestinationStatus, LaneStatus, WorkerRow};

use crate::commands::suggested_command::symphony;
use crate::output;

/// What was read at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Snapshot {
    /// The lanes.
    pub(super) lanes: Vec<LaneStatus>,
    /// Rails, topics and runners of scripts.
    pub(super) destinations: Vec<DestinationStatus>,
    /// Who works.
    pub(super) workers: Vec<WorkerRow>,
}

/// The lists that can be scrolled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pane {
    Destinations,
    Workers,
}

/// The screen and where one looks.
#[derive(Debug)]
pub(super) struct Screen {
    whose: String,
    has_colours: bool,
    snapshot: Snapshot,
    /// Why what is shown is old.
    lost: Option<String>,
    pane: Pane,
    scrolled: [usize; 2],
    helps: bool,
}

impl Screen {
    /// Nothing seen yet.
    pub(super) fn new(whose: String, has_colours: bool) -> Self {
        Self {
            whose,
            has_colours,
            snapshot: Snapshot::default(),
            lost: None,
            pane: Pane::Destinations,
            scrolled: [0, 0],
            helps: false,
        }
    }

    /// The newest figures.
    pub(super) fn see(&mut self, snapshot: Snapshot) {
        self.snapshot = snapshot;
        self.lost = None;
    }

    /// There are none at present.
    pub(super) fn lose(&mut self, why: &str) {
        self.lost = Some(output::plain(why));
    }

    /// A key that does not end it.
    pub(super) fn press(&mut self, key: KeyCode) {
        let rows = match self.pane {
            Pane::Destinations => self.snapshot.destinations.len(),
            Pane::Workers => self.snapshot.workers.len(),
        };
        let [destinations, workers] = &mut self.scrolled;
        let scrolled = if self.pane == Pane::Destinations { destinations } else { workers };
        match key {
            KeyCode::Up => *scrolled = scrolled.saturating_sub(1),
            KeyCode::Down => *scrolled = (*scrolled + 1).min(rows.saturating_sub(1)),
            KeyCode::Left => self.pane = Pane::Destinations,
            KeyCode::Right => self.pane = Pane::Workers,
            KeyCode::Char('?') => self.helps = !self.helps,
            _ => {}
        }
    }

    /// All of it.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let lanes_height = u16::try_from(self.snapshot.lanes.len()).unwrap_or(u16::MAX);
        let [head, lanes, below, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(lanes_height.saturating_add(3)),
            Constraint::Min(3),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let [destinations, workers] =
            Layout::vertical([Constraint::Percentage(60), Constraint::Percentage(40)]).areas(below);
        let (text, style) = match &self.lost {
            None => (self.whose.clone(), self.style(Color::Reset, Modifier::BOLD)),
            Some(why) => (format!("as last seen: {why}"), self.style(Color::Red, Modifier::BOLD)),
        };
        frame.render_widget(Line::styled(text, style), head);
        self.draw_lanes(frame, lanes);
        self.draw_destinations(frame, destinations);
        self.draw_workers(frame, workers);
        let keys = "q quit   left right choose a list   up down scroll   ? help";
        frame.render_widget(Line::styled(keys, self.style(Color::Reset, Modifier::DIM)), foot);
        if self.helps {
            Self::draw_help(frame);
        }
    }

    fn style(&self, colour: Color, modifier: Modifier) -> Style {
        if self.has_colours { Style::new().fg(colour).add_modifier(modifier) } else { Style::new() }
    }

    fn tone(&self, wrong: bool) -> Style {
        if wrong { self.style(Color::Red, Modifier::BOLD) } else { Style::new() }
    }

    fn heading<const N: usize>(&self, names: [&'static str; N]) -> Row<'static> {
        Row::new(names).style(self.style(Color::Reset, Modifier::BOLD))
    }

    fn draw_lanes(&self, frame: &mut Frame<'_>, area: Rect) {
        let rows = self.snapshot.lanes.iter().map(|lane| {
            let calls = self.calls_per_minute(&lane.lane);
            let state = if lane.paused { "PAUSED" } else { "running" };
            Row::new([
                Cell::from(lane.lane.clone()),
                Cell::from(state).style(self.tone(lane.paused)),
                Cell::from(lane.pending.to_string()),
                Cell::from(lane.due_unleased_count.to_string()),
                Cell::from(lane.leased_count.to_string()),
                Cell::from(output::length(lane.oldest_pending_age_seconds)),
                Cell::from(calls.to_string()),
                Cell::from(lane.parked_count.to_string()).style(self.tone(lane.parked_count > 0)),
                Cell::from(lane.dlq_count.to_string()).style(self.tone(lane.dlq_count > 0)),
                Cell::from(lane.live_worker_count.to_string())
                    .style(self.tone(lane.pending > 0 && lane.live_worker_count == 0)),
            ])
        });
        let widths = [9, 8, 8, 8, 7, 7, 7, 7, 7, 7].map(Constraint::Length);
        let names = [
            "lane", "state", "pending", "due", "leased", "oldest", "calls/m", "parked", "failed",
            "workers",
        ];
        let table = Table::new(rows, widths).header(self.heading(names));
        frame.render_widget(table.column_spacing(0).block(Block::bordered().title("lanes")), area);
    }

    fn calls_per_minute(&self, lane: &str) -> i64 {
        let own = self.snapshot.destinations.iter().filter(|one| one.lane == lane);
        own.map(|one| one.calls_per_minute).sum()
    }

    fn draw_destinations(&self, frame: &mut Frame<'_>, area: Rect) {
        let [scrolled, _] = self.scrolled;
        let rows = self.snapshot.destinations.iter().skip(scrolled).map(|one| {
            let latency = one.latency_ms.map(|ms| format!("{ms} ms")).unwrap_or_default();
            Row::new([
                Cell::from(one.lane.clone()),
                Cell::from(output::plain(&one.name)),
                Cell::from(one.breaker.clone()).style(self.tone(one.breaker != "CLOSED")),
                Cell::from(one.calls_per_minute.to_string()),
                Cell::from(latency),
                Cell::from(one.workers.to_string()),
                Cell::from(output::plain(one.last_trouble.as_deref().unwrap_or_default())),
            ])
        });
        let widths = [
            Constraint::Length(9),
            Constraint::Fill(2),
            Constraint::Length(9),
            Constraint::Length(7),
            Constraint::Length(8),
            Constraint::Length(7),
            Constraint::Fill(1),
        ];
        let names =
            ["lane", "rail or topic", "breaker", "calls/m", "took", "workers", "last trouble"];
        let table = Table::new(rows, widths).header(self.heading(names));
        frame.render_widget(table.block(self.block("rails and buses", Pane::Destinations)), area);
    }

    fn draw_workers(&self, frame: &mut Frame<'_>, area: Rect) {
        let [_, scrolled] = self.scrolled;
        let rows = self.snapshot.workers.iter().skip(scrolled).map(|worker| {
            Row::new([
                Cell::from(worker.lane.clone()),
                Cell::from(output::plain(&worker.worker_id)),
                Cell::from(worker.destinations.to_string()),
                Cell::from(worker.left_alone.to_string()).style(self.tone(worker.left_alone > 0)),
                Cell::from(output::length(worker.silent_seconds)),
            ])
        });
        let widths = [
            Constraint::Length(9),
            Constraint::Fill(1),
            Constraint::Length(7),
            Constraint::Length(10),
            Constraint::Length(8),
        ];
        let names = ["lane", "worker", "serves", "in trouble", "spoke"];
        let table = Table::new(rows, widths).header(self.heading(names));
        frame.render_widget(table.block(self.block("workers", Pane::Workers)), area);
    }

    fn block(&self, title: &'static str, pane: Pane) -> Block<'static> {
        let chosen = self.pane == pane;
        let title = if chosen { format!("[{title}]") } else { title.to_owned() };
        Block::bordered().title(title)
    }

    fn draw_help(frame: &mut Frame<'_>) {
        let area = frame.area();
        let (width, height) = (76.min(area.width), 14.min(area.height));
        let middle = Rect {
            x: area.x + (area.width - width) / 2,
            y: area.y + (area.height - height) / 2,
            width,
            height,
        };
        let text = format!(
            "due      could go out now\n\
             leased   held by a worker\n\
             oldest   since it was asked for; parked ones left out\n\
             parked   wait for a person: {}\n\
             failed   for good: {}\n\
             breaker  OPEN: in trouble and left alone\n\
             spoke    how long ago; gone after 20 s\n\n\
             ? closes this",
            symphony("dlq list --parked"),
            symphony("dlq list --failed")
        );
        frame.render_widget(Clear, middle);
        let block = Block::bordered().title("help");
        let text = Paragraph::new(text).wrap(Wrap { trim: true });
        frame.render_widget(text.block(block), middle);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn drawn(screen: &Screen, columns: u16, rows: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    fn lane(name: &str) -> LaneStatus {
        LaneStatus {
            lane: name.to_owned(),
            pending: 12,
            due_unleased_count: 3,
            leased_count: 4,
            expired_lease_count: 0,
            parked_count: 1,
            scheduled_count: 5,
            waiting_count: 0,
            oldest_pending_age_seconds: 90,
            dlq_count: 2,
            paused: name == "events",
            incident_count: 0,
            approval_waiting_count: 0,
            oldest_approval_age_seconds: 0,
            oldest_parked_age_seconds: 4_000,
            live_worker_count: 2,
            oldest_stopped_age_seconds: 0,
        }
    }

    fn rail(name: &str, breaker: &str) -> DestinationStatus {
        DestinationStatus {
            lane: "payments".to_owned(),
            name: name.to_owned(),
            workers: 2,
            workers_away: 0,
            breaker: breaker.to_owned(),
            open_since: None,
            next_probe_at: None,
            troubles: 0,
            last_trouble: (breaker == "OPEN").then(|| "CONNECT_FAILED".to_owned()),
            last_trouble_at: None,
            calls_per_minute: 600,
            latency_ms: Some(41),
            rate_per_second: None,
        }
    }

    fn seen() -> Screen {
        let mut screen = Screen::new("database pay on db1:5432 as dana".to_owned(), false);
        let worker = |n: u32| WorkerRow {
            worker_id: format!("host:{n}:0123456789ab"),
            lane: "payments".to_owned(),
            live: true,
            destinations: 2,
            left_alone: 1,
            calls_per_minute: 600,
            reported_at: chrono::DateTime::UNIX_EPOCH,
            silent_seconds: 2,
        };
        screen.see(Snapshot {
            lanes: ["payments", "events", "triggers"].map(lane).to_vec(),
            destinations: vec![rail("sepa", "OPEN"), rail("swift\x1b[2J", "CLOSED")],
            workers: vec![worker(1), worker(2)],
        });
        screen
    }

    #[test]
    fn it_shows_lanes_rails_and_workers_in_eighty_columns() {
        let page = drawn(&seen(), 80, 24);
        for part in [
            "database pay on db1:5432 as dana",
            &format!(
                "payments running 12      3       4      {:7}1200   1      2      2",
                output::length(90)
            ),
            "events   PAUSED",
            "sepa",
            "OPEN",
            "CONNECT_FAI",
            "host:1:0123456789ab",
            "q quit",
        ] {
            assert!(page.contains(part), "no {part:?} in\n{page}");
        }
        assert!(!page.contains('\x1b'), "stored text moves no cursor:\n{page}");
    }

    #[test]
    fn arrows_scroll_the_chosen_list_and_no_further_than_its_end() {
        let mut screen = seen();
        for _ in 0..5 {
            screen.press(KeyCode::Down);
        }
        let page = drawn(&screen, 80, 24);
        assert!(!page.contains("sepa") && page.contains("swift"), "{page}");
        screen.press(KeyCode::Right);
        screen.press(KeyCode::Down);
        let page = drawn(&screen, 80, 24);
        assert!(!page.contains("host:1:") && page.contains("host:2:"), "{page}");
        screen.press(KeyCode::Up);
        assert!(drawn(&screen, 80, 24).contains("host:1:"));
    }

    #[test]
    fn help_comes_and_goes_and_a_database_that_is_away_is_said() {
        let mut screen = seen();
        screen.press(KeyCode::Char('?'));
        assert!(drawn(&screen, 80, 24).contains("wait for a person"));
        screen.press(KeyCode::Char('?'));
        assert!(!drawn(&screen, 80, 24).contains("wait for a person"));
        screen.lose("the database is not reachable");
        let page = drawn(&screen, 80, 24);
        assert!(page.contains("as last seen: the database is not reachable"), "{page}");
    }

    #[test]
    fn the_smallest_terminal_does_not_end_it() {
        let mut screen = seen();
        screen.press(KeyCode::Char('?'));
        for (columns, rows) in [(1, 1), (10, 3), (40, 8)] {
            drawn(&screen, columns, rows);
        }
    }
}
