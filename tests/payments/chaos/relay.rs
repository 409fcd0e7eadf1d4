//! A relay before PostgreSQL that reads what its clients say, cuts their connections around a COMMIT, and kills
//! its worker in the middle of one. It follows the server to another port.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::dice::Tally;
use super::workers::Process;
use crate::support::proxy::{Cut, without_socket};

/// What a transaction is about, as far as the relay can read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    Claim,
    Complete,
    Enqueue,
    Other,
}

impl About {
    fn of(statement: &str) -> Self {
        let calls = |function: &str| statement.contains(&format!("symphony.{function}("));
        if calls("complete_outbox_attempts") {
            Self::Complete
        } else if calls("claim_outbox_batch") {
            Self::Claim
        } else if calls("enqueue_payment_outbox") || calls("enqueue_payment_outbox_batch") {
            Self::Enqueue
        } else {
            Self::Other
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Complete => "complete",
            Self::Enqueue => "enqueue",
            Self::Other => "other",
        }
    }
}

/// Kill the worker at one of its commits of outcomes.
#[derive(Debug, Clone, Copy)]
pub struct MidCommit {
    /// At which, counted from 1.
    pub nth: u64,
    /// Whether the server gets to see the COMMIT.
    pub forwarded: bool,
}

/// A COMMIT on its way: it has left the client, and goes nowhere.
pub struct Held {
    reached: oneshot::Receiver<()>,
    lose: oneshot::Sender<()>,
}

impl Held {
    /// Once the client has sent it.
    pub async fn reached(&mut self) {
        (&mut self.reached).await.unwrap();
    }

    /// Cut the connection; nobody will ever see the COMMIT.
    pub fn lose(self) {
        self.lose.send(()).unwrap();
    }
}

#[derive(Default)]
struct Armed {
    cuts: Vec<(Cut, Option<About>)>,
    mid_commit: Option<MidCommit>,
    pause: Option<About>,
    hold: Option<(oneshot::Sender<()>, oneshot::Receiver<()>)>,
}

struct Control {
    upstream: Arc<AtomicU16>,
    armed: Mutex<Armed>,
    victim: Option<Arc<Process>>,
    tally: Arc<Tally>,
}

/// One client's way to the server.
#[derive(Clone)]
pub struct Relay {
    pub options: PgConnectOptions,
    control: Arc<Control>,
}

impl Relay {
    /// To the server on `upstream`, for this worker, or for nobody who could be killed.
    pub async fn start(
        server: &PgConnectOptions,
        upstream: Arc<AtomicU16>,
        victim: Option<Arc<Process>>,
        tally: Arc<Tally>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = without_socket(server, listener.local_addr().unwrap().port());
        let control = Arc::new(Control { upstream, armed: Mutex::default(), victim, tally });
        let shared = control.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, shared.clone()));
            }
        });
        Self { options, control }
    }

    /// Cut the next connection that commits something of this kind, or anything.
    pub fn cut(&self, cut: Cut, about: Option<About>) {
        self.control.armed.lock().unwrap().cuts.push((cut, about));
    }

    /// Kill the worker so, or not at all.
    pub fn arm(&self, mid_commit: Option<MidCommit>) {
        self.control.armed.lock().unwrap().mid_commit = mid_commit;
    }

    /// Pause the worker when it has just committed a claim, or when it is about to write an outcome down.
    pub fn pause_at(&self, about: About) {
        self.control.armed.lock().unwrap().pause = Some(about);
    }

    /// Hold the next COMMIT.
    pub fn hold(&self) -> Held {
        let (say_reached, reached) = oneshot::channel();
        let (lose, until_lost) = oneshot::channel();
        self.control.armed.lock().unwrap().hold = Some((say_reached, until_lost));
        Held { reached, lose }
    }

    /// Cut nothing any more.
    pub fn disarm(&self) {
        *self.control.armed.lock().unwrap() = Armed::default();
    }
}

/// What to do with a message of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Pass,
    Cut(Cut, About),
    Kill { forwarded: bool },
}

impl Control {
    /// Pause the worker, if it is time for that.
    fn pause(&self, about: About) -> bool {
        let mut armed = self.armed.lock().unwrap();
        let due = armed.pause == Some(about);
        if due {
            armed.pause = None;
        }
        due && self.victim.as_ref().is_some_and(|victim| victim.pause())
    }

    async fn until_resumed(&self) {
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        while self.victim.as_ref().is_some_and(|victim| victim.is_paused()) {
            tick.tick().await;
        }
    }

    fn at_commit(&self, about: About) -> Step {
        let mut armed = self.armed.lock().unwrap();
        if about == About::Complete
            && let Some(kill) = &mut armed.mid_commit
        {
            kill.nth -= 1;
            if kill.nth == 0 {
                let forwarded = kill.forwarded;
                armed.mid_commit = None;
                return Step::Kill { forwarded };
            }
        }
        let wanted = |(_, wanted): &(Cut, Option<About>)| wanted.is_none_or(|kind| kind == about);
        match armed.cuts.iter().position(wanted) {
            Some(index) => Step::Cut(armed.cuts.remove(index).0, about),
            None => Step::Pass,
        }
    }
}

/// What one connection has said so far.
#[derive(Default)]
struct Conversation {
    pending: Vec<u8>,
    started: bool,
    statements: HashMap<Vec<u8>, About>,
    about: Option<About>,
}

impl Conversation {
    /// The next whole message, with its type (0 for the first, which has none).
    fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let header = usize::from(self.started);
        let length = self.pending.get(header..header + 4)?;
        let length = u32::from_be_bytes(length.try_into().unwrap()) as usize + header;
        if self.pending.len() < length {
            return None;
        }
        let rest = self.pending.split_off(length);
        let message = std::mem::replace(&mut self.pending, rest);
        let kind = if self.started { message[0] } else { 0 };
        self.started = true;
        Some((kind, message))
    }

    /// Whether this message commits, and what.
    fn commits(&mut self, kind: u8, message: &[u8]) -> Option<About> {
        let mut texts = message.get(5..).unwrap_or_default().split(|byte| *byte == 0);
        let first = texts.next().unwrap_or_default();
        match kind {
            // Parse: the statement's name, its text.
            b'P' => {
                let text = String::from_utf8_lossy(texts.next().unwrap_or_default());
                self.statements.insert(first.to_vec(), About::of(&text));
            }
            // Bind: the portal's name, the statement's name.
            b'B' => {
                let name = texts.next().unwrap_or_default();
                match self.statements.get(name) {
                    None | Some(About::Other) => {}
                    Some(known) => self.about = Some(*known),
                }
            }
            b'Q' if first.starts_with(b"COMMIT") => {
                return Some(self.about.take().unwrap_or(About::Other));
            }
            b'Q' if first.starts_with(b"BEGIN") || first.starts_with(b"ROLLBACK") => {
                self.about = None;
            }
            _ => {}
        }
        None
    }
}

/// Carry one connection until either side ends it, or its time has come. An error is an end.
async fn carry(mut client: TcpStream, control: Arc<Control>) -> std::io::Result<()> {
    let port = control.upstream.load(Ordering::SeqCst);
    let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let mut conversation = Conversation::default();
    let (mut said, mut answered) = (vec![0; 65536], vec![0; 65536]);
    loop {
        tokio::select! {
            read = client.read(&mut said) => {
                let count = read?;
                if count == 0 {
                    return Ok(());
                }
                conversation.pending.extend_from_slice(&said[..count]);
                while let Some((kind, message)) = conversation.next() {
                    let commits = conversation.commits(kind, &message);
                    let held = commits.and_then(|_| control.armed.lock().unwrap().hold.take());
                    if let Some((reached, lost)) = held {
                        reached.send(()).unwrap();
                        return lost.await.map_err(std::io::Error::other);
                    }
                    let step = commits.map_or(Step::Pass, |about| control.at_commit(about));
                    // Its outcome arrives when the lease has long passed to another.
                    if kind == b'B' && conversation.about == Some(About::Complete) && control.pause(About::Complete) {
                        control.until_resumed().await;
                    }
                    match step {
                        Step::Pass => {
                            server.write_all(&message).await?;
                            if commits == Some(About::Claim) {
                                control.pause(About::Claim);
                            }
                        }
                        Step::Cut(cut, about) => {
                            return cut_off(&mut server, &control, cut, about, &message).await;
                        }
                        Step::Kill { forwarded } => {
                            if forwarded {
                                server.write_all(&message).await?;
                            }
                            let cause = if forwarded { "in_commit_sent" } else { "in_commit_unsent" };
                            if let Some(victim) = &control.victim {
                                victim.kill(cause);
                            }
                            return Ok(());
                        }
                    }
                }
            }
            read = server.read(&mut answered) => {
                let count = read?;
                if count == 0 {
                    return Ok(());
                }
                client.write_all(&answered[..count]).await?;
            }
        }
    }
}

async fn cut_off(
    server: &mut TcpStream,
    control: &Control,
    cut: Cut,
    about: About,
    message: &[u8],
) -> std::io::Result<()> {
    let when = if cut == Cut::BeforeCommit { "before" } else { "after" };
    control.tally.add(&format!("cut {when} {}", about.name()));
    if cut == Cut::AfterCommit {
        server.write_all(message).await?;
        // Read to its end, so that the server did its work, and dropped.
        let mut answer = Vec::new();
        while !answer.ends_with(b"Z\0\0\0\x05I") && server.read_buf(&mut answer).await? > 0 {}
    }
    Ok(())
}

#[test]
fn a_commit_of_outcomes_is_told_from_any_other() {
    let message = |kind: u8, body: &[u8]| {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[kind][..], &length.to_be_bytes(), body].concat()
    };
    let mut conversation = Conversation::default();
    let complete = symphony::db::calls::COMPLETE_PAYMENTS.sql;
    let parse = message(b'P', format!("s1\0{complete}\0\0\0").as_bytes());
    let asks = message(b'P', b"s2\0SELECT pg_current_xact_id_if_assigned()::text\0\0\0");
    let bind = |name: &str| message(b'B', format!("\0{name}\0\0\0\0\0\0\0").as_bytes());
    let query = |text: &str| message(b'Q', format!("{text}\0").as_bytes());
    let start = [8u32.to_be_bytes(), 196_608u32.to_be_bytes()].concat();
    let said = [
        start,
        query("BEGIN; SET LOCAL ROLE symphony_executor"),
        [parse, asks, bind("s1"), bind("s2"), query("COMMIT")].concat(),
        [query("BEGIN"), bind("s2"), query("COMMIT")].concat(),
        [query("BEGIN"), bind("s1"), query("ROLLBACK"), query("COMMIT")].concat(),
    ]
    .concat();
    let mut commits = Vec::new();
    // Byte by byte: messages are found wherever they are torn.
    for byte in said {
        conversation.pending.push(byte);
        while let Some((kind, message)) = conversation.next() {
            commits.extend(conversation.commits(kind, &message));
        }
    }
    assert_eq!(commits, [About::Complete, About::Other, About::Other]);
}
