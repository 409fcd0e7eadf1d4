//! A TCP proxy before PostgreSQL that cuts a connection in the middle of a COMMIT.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Where to cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The server never sees the COMMIT.
    BeforeCommit,
    /// The server commits; the client never hears of it.
    AfterCommit,
    /// The same of a statement that is a transaction of its own: the first one with the mark.
    AfterStatement,
}

/// Connections through it are cut at their first COMMIT, until `cuts` are used up.
pub struct Proxy {
    pub options: PgConnectOptions,
    pub cuts: Arc<AtomicUsize>,
}

pub async fn start(server: &PgConnectOptions, cut: Cut, cuts: usize) -> Proxy {
    start_marked(server, cut, cuts, b"").await
}

/// The same, where only a COMMIT is cut in whose transaction this was sent.
pub async fn start_marked(
    server: &PgConnectOptions,
    cut: Cut,
    cuts: usize,
    mark: &'static [u8],
) -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let upstream = server.get_port();
    let left = Arc::new(AtomicUsize::new(cuts));
    let counter = left.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", upstream)).await.unwrap();
            tokio::spawn(carry(client, server, cut, counter.clone(), mark));
        }
    });
    let options = server.clone().host("127.0.0.1").port(port).ssl_mode(PgSslMode::Disable);
    // A socket folder would win over the host.
    let options = without_socket(&options, port);
    Proxy { options, cuts: left }
}

pub fn without_socket(options: &PgConnectOptions, port: u16) -> PgConnectOptions {
    use sqlx::ConnectOptions as _;
    let mut url = options.to_url_lossy();
    url.set_host(Some("127.0.0.1")).unwrap();
    url.set_port(Some(port)).unwrap();
    let pairs: Vec<(String, String)> = url
        .query_pairs()
        .filter(|(key, _)| key != "host" && key != "port")
        .map(|(k, v)| (k.into_owned(), v.into_owned()))
        .collect();
    url.query_pairs_mut().clear().extend_pairs(pairs);
    url.as_str().parse().unwrap()
}

async fn carry(
    client: TcpStream,
    server: TcpStream,
    cut: Cut,
    cuts: Arc<AtomicUsize>,
    mark: &'static [u8],
) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (stop_answers, mut stopped) = tokio::sync::watch::channel(false);
    let answers = tokio::spawn(async move {
        let mut buffer = vec![0; 65536];
        loop {
            tokio::select! {
                read = from_server.read(&mut buffer) => match read {
                    Ok(0) | Err(_) => return,
                    Ok(n) => if to_client.write_all(&buffer[..n]).await.is_err() { return },
                },
                _ = stopped.changed() => {
                    // The server's answer is read to its end, so that it did its work, and dropped.
                    while matches!(from_server.read(&mut buffer).await, Ok(n) if n > 0 && !buffer[..n].contains(&b'Z')) {}
                    return;
                }
            }
        }
    });
    let mut buffer = vec![0; 65536];
    let mut is_marked = mark.is_empty();
    while let Ok(n) = from_client.read(&mut buffer).await {
        if n == 0 {
            break;
        }
        let has = |what: &[u8]| buffer[..n].windows(what.len()).any(|window| window == what);
        is_marked |= !mark.is_empty() && has(mark);
        let commits = match cut {
            Cut::AfterStatement => has(mark),
            Cut::BeforeCommit | Cut::AfterCommit => has(b"COMMIT"),
        };
        if commits
            && is_marked
            && cuts
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                .is_ok()
        {
            stop_answers.send(true).unwrap();
            if cut != Cut::BeforeCommit {
                to_server.write_all(&buffer[..n]).await.unwrap();
                answers.await.unwrap();
            }
            return;
        }
        is_marked &= mark.is_empty() || !commits;
        if to_server.write_all(&buffer[..n]).await.is_err() {
            break;
        }
    }
}

/// A proxy whose connections can be made to swallow everything without closing, as a lost network does. Those made
/// afterwards work.
pub struct Swallowing {
    pub options: PgConnectOptions,
    frozen: tokio::sync::watch::Sender<u64>,
}

impl Swallowing {
    pub async fn start(server: &PgConnectOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let upstream = server.get_port();
        let (frozen, seen) = tokio::sync::watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut server = TcpStream::connect(("127.0.0.1", upstream)).await.unwrap();
                let mut seen = seen.clone();
                seen.mark_unchanged();
                tokio::spawn(async move {
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        _ = seen.changed() => {
                            // Both stay open, and nothing is read any more.
                            let _open = (client, server);
                            std::future::pending::<()>().await;
                        }
                    }
                });
            }
        });
        let options = server.clone().ssl_mode(PgSslMode::Disable);
        Self { options: without_socket(&options, port), frozen }
    }

    /// From now on the present connections swallow everything.
    pub fn swallow(&self) {
        self.frozen.send_modify(|times| *times += 1);
    }
}
