//! One connection to the server, within a time limit: a server that accepts and then says nothing must not be waited for
//! without a word, nor for ever. And only to a server that is new enough.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, PgConnection};

use super::DbError;

/// The oldest release that has what the schema is written with: `security_invoker` views, `NULLS NOT DISTINCT`, privileges
/// of settings.
pub const SERVER_VERSION_MIN: u32 = 15;

/// Under which target waiting is logged.
pub const CONNECTION_LOG_TARGET: &str = "symphony::waiting";
/// How long the server may take, from resolving its name to the end of the login.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// After this long, a person is told whom we wait for.
const SAY_AFTER: Duration = Duration::from_secs(2);

/// Connect, or say why not within ten seconds; after two, a log line says whom we wait for.
pub async fn connect(options: &PgConnectOptions) -> Result<PgConnection, DbError> {
    connect_within(options, SAY_AFTER, CONNECT_LIMIT).await
}

async fn connect_within(
    options: &PgConnectOptions,
    say_after: Duration,
    limit: Duration,
) -> Result<PgConnection, DbError> {
    let place = place(options);
    let mut connecting = Box::pin(options.connect());
    let first = tokio::time::timeout(say_after, connecting.as_mut()).await;
    let answer = match first {
        Ok(answer) => answer,
        Err(_still_waiting) => {
            tracing::warn!(
                target: CONNECTION_LOG_TARGET,
                address = place,
                "waiting for PostgreSQL, which has not answered yet; giving up after {} s",
                limit.as_secs()
            );
            let left = limit.saturating_sub(say_after);
            tokio::time::timeout(left, connecting).await.map_err(|_elapsed| {
                DbError::Unreachable {
                    message: format!(
                        "{place}: no answer within {} s; is that its address, and does a firewall let its answers through?",
                        limit.as_secs()
                    ),
                }
            })?
        }
    };
    let connection = answer.map_err(|error| at(&place, error.into()))?;
    match connection.server_version_num() {
        Some(version) => require_version(version).map(|()| connection),
        // A pooler that does not say stands between; what cannot be installed is noticed then.
        None => Ok(connection),
    }
}

/// Refuse a server that is too old, by its `server_version_num`.
pub fn require_version(version_num: u32) -> Result<(), DbError> {
    let (major, minor) = (version_num / 10_000, version_num % 10_000);
    if major >= SERVER_VERSION_MIN {
        return Ok(());
    }
    // Before 10 the second number was part of the major version.
    let version = if major >= 10 {
        format!("{major}.{minor}")
    } else {
        format!("{major}.{}.{}", minor / 100, minor % 100)
    };
    Err(DbError::ServerTooOld { version })
}

/// Host and port, or the folder of the socket.
fn place(options: &PgConnectOptions) -> String {
    match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    }
}

/// What the driver says of a connection does not name the server.
fn at(place: &str, error: DbError) -> DbError {
    match error {
        DbError::Unreachable { message } => {
            DbError::Unreachable { message: format!("{place}: {message}") }
        }
        other => other,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_server_before_15_is_refused_by_its_version() {
        for (version_num, refused) in [
            (180_001, None),
            (150_000, None),
            (140_018, Some("14.18")),
            (100_004, Some("10.4")),
            (90_624, Some("9.6.24")),
        ] {
            let answer = require_version(version_num).map_err(|error| {
                assert_eq!(error.code(), "SYM07");
                error.to_string()
            });
            match (answer, refused) {
                (Ok(()), None) => {}
                (Err(line), Some(version)) => {
                    assert!(line.contains(&format!("PostgreSQL {version} ")), "{line}");
                }
                (answer, _) => assert_eq!(answer, Ok(()), "{version_num}"),
            }
        }
    }

    #[tokio::test]
    async fn a_server_that_accepts_and_says_nothing_is_given_up_by_name() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let options = PgConnectOptions::new().host("127.0.0.1").port(port).username("me");
        let (soon, later) = (Duration::from_millis(20), Duration::from_millis(60));
        let error = connect_within(&options, soon, later).await.map(|_| ()).unwrap_err();
        let line = error.to_string();
        assert!(line.contains(&format!("127.0.0.1:{port}: no answer within")), "{line}");
        assert_eq!(error.code(), "SYM04");
    }
}
