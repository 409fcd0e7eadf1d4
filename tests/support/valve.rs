//! A TCP proxy before a broker, through which the way to it can be broken and mended.

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
    condition: watch::Sender<Condition>,
    /// `None` while connections are refused.
    listening: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

impl Valve {
    pub async fn before(upstream: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let condition = watch::Sender::new(Condition::Well);
        let task = tokio::spawn(accept(listener, upstream, condition.subscribe()));
        Self { port, upstream, condition, listening: tokio::sync::Mutex::new(Some(task)) }
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
            *listening = Some(tokio::spawn(accept(listener, self.upstream, condition)));
        }
    }
}

async fn accept(listener: TcpListener, upstream: u16, condition: watch::Receiver<Condition>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(carry(client, upstream, condition.clone()));
    }
}

async fn carry(client: TcpStream, upstream: u16, mut condition: watch::Receiver<Condition>) {
    // A broker that was killed refuses, and so do we.
    let Ok(server) = TcpStream::connect(("127.0.0.1", upstream)).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let requests = pass(from_client, to_server, condition.clone(), false);
    let answers = pass(from_server, to_client, condition.clone(), true);
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
    answers: bool,
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
            Condition::AnswersLost if answers => return,
            Condition::Slow(delay) if answers => wait(delay).await,
            _ => {}
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// A delay that is the behaviour under test, not a wait for something to have happened.
async fn wait(delay: Duration) {
    let _elapsed = tokio::time::timeout(delay, std::future::pending::<()>()).await;
}
