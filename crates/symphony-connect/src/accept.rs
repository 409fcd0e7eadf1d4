//! One accept loop, with a bound on connections: for the SMTP listener, the sandbox and the receiver of webhooks.
//!
//! The listeners of a worker have their own (`http_server` of symphony-server), because they close the connection that is
//! idle for the longest to make room for another, and so must know which are idle.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long a failed accept is waited after: out of file descriptors, most likely.
const PAUSE: Duration = Duration::from_millis(10);

/// Serve each connection, at most `connections_max` at once, until `stop` is true; then wait for those that are open.
/// More are refused, up to twice the bound; beyond that they are closed without an answer. Dropping the future aborts
/// all connections.
pub async fn accept<S, R>(
    listener: TcpListener,
    connections_max: usize,
    mut stop: watch::Receiver<bool>,
    serve: impl Fn(TcpStream, SocketAddr) -> S,
    refuse: impl Fn(TcpStream) -> R,
) where
    S: Future<Output = ()> + Send + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            // Those that ended first, so that their places are free for who comes next.
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            Some(_ended) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(_) if connections.len() >= connections_max.saturating_mul(2) => {}
            Ok((stream, _)) if connections.len() >= connections_max => {
                connections.spawn(refuse(stream));
            }
            Ok((stream, peer)) => {
                connections.spawn(serve(stream, peer));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}
