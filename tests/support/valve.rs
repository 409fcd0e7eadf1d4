//! A TCP proxy before a broker, through which the way to it can be broken and mended.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use symphony_connect::buses::conformance::Condition;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Connections to `port` go to the broker as the condition says.
pub struct Valve {
    pub port: u16,
    upstream: u16,
    ports: Ports,
    condition: watch::Sender<Condition>,
    /// `None` while connections are refused.
    listening: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

/// A broker's own port, and that of its valve. Kafka's brokers tell their clients where to find them.
type Ports = Arc<OnceLock<Vec<(u16, u16)>>>;

impl Valve {
    pub async fn before(upstream: u16) -> Self {
        Self::with_ports(upstream, Ports::default()).await
    }

    /// One before each broker of a cluster of Kafka, whose answers name the valves and not the brokers.
    #[cfg(feature = "kafka")]
    pub async fn before_kafka(upstreams: &[u16]) -> Vec<Self> {
        let ports = Ports::default();
        let mut valves = Vec::new();
        for upstream in upstreams {
            valves.push(Self::with_ports(*upstream, ports.clone()).await);
        }
        ports.set(valves.iter().map(|valve| (valve.upstream, valve.port)).collect()).unwrap();
        valves
    }

    async fn with_ports(upstream: u16, ports: Ports) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let condition = watch::Sender::new(Condition::Well);
        let task = tokio::spawn(accept(listener, upstream, ports.clone(), condition.subscribe()));
        Self { port, upstream, ports, condition, listening: tokio::sync::Mutex::new(Some(task)) }
    }

    /// For present connections and new ones.
    pub async fn make(&self, condition: Condition) {
        self.condition.send_replace(condition);
        let mut listening = self.listening.lock().await;
        if condition == Condition::Down {
            if let Some(task) = listening.take() {
                task.abort();
                // Its listener is closed when it has ended.
                let _aborted = task.await;
            }
        } else if listening.is_none() {
            let listener = TcpListener::bind(("127.0.0.1", self.port)).await.unwrap();
            let condition = self.condition.subscribe();
            let ports = self.ports.clone();
            *listening = Some(tokio::spawn(accept(listener, self.upstream, ports, condition)));
        }
    }
}

async fn accept(
    listener: TcpListener,
    upstream: u16,
    ports: Ports,
    condition: watch::Receiver<Condition>,
) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(carry(client, upstream, ports.clone(), condition.clone()));
    }
}

async fn carry(
    client: TcpStream,
    upstream: u16,
    ports: Ports,
    mut condition: watch::Receiver<Condition>,
) {
    // A broker that was killed refuses, and so do we.
    let Ok(server) = TcpStream::connect(("127.0.0.1", upstream)).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let requests = pass(from_client, to_server, condition.clone(), None);
    let answers = pass(from_server, to_client, condition.clone(), Some(ports));
    tokio::select! {
        () = requests => {}
        () = answers => {}
        _ = condition.wait_for(|condition| *condition == Condition::Down) => {}
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    condition: watch::Receiver<Condition>,
    answers: Option<Ports>,
) {
    let mut buffer = vec![0; 65536];
    loop {
        let read = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => read,
        };
        let present = *condition.borrow();
        match present {
            // What was swallowed once is gone, so this connection can never work again.
            Condition::Hanging => std::future::pending::<()>().await,
            Condition::AnswersLost if answers.is_some() => return,
            Condition::Slow(delay) if answers.is_some() => wait(delay).await,
            _ => {}
        }
        if let Some(ports) = answers.as_ref().and_then(|ports| ports.get()) {
            name_valves(&mut buffer[..read], ports);
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// An address in Kafka's answers is the host's name and then the port in four bytes, so nothing moves.
fn name_valves(answer: &mut [u8], ports: &[(u16, u16)]) {
    const HOST: &[u8] = b"127.0.0.1";
    for at in 0..answer.len().saturating_sub(HOST.len() + 3) {
        if !answer[at..].starts_with(HOST) {
            continue;
        }
        let port = &mut answer[at + HOST.len()..at + HOST.len() + 4];
        for (upstream, valve) in ports {
            if port == u32::from(*upstream).to_be_bytes() {
                port.copy_from_slice(&u32::from(*valve).to_be_bytes());
                break;
            }
        }
    }
}

/// A delay that is the behaviour under test, not a wait for something to have happened.
async fn wait(delay: Duration) {
    let _elapsed = tokio::time::timeout(delay, std::future::pending::<()>()).await;
}
