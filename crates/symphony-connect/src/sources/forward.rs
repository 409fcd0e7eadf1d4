//! Events handed to a program on this machine, in any language: one POST each, 2xx means applied.

use std::time::Duration;

use async_trait::async_trait;
use chrono::Utc;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use sqlx::PgConnection;
use symphony::consumer::{Applied, Apply, ApplyError, Handler, Received};
use tokio::net::TcpStream;
use url::{Host, Url};

use super::OpenError;
use crate::bounds::sources::CONNECT_TIMEOUT;
use crate::http_client::retry_after;

/// Posts each event to one URL of this machine.
///
/// As an [`Apply`] it remembers nothing: the program must be idempotent by event id. As a [`Handler`] it runs inside the
/// inbox's transaction, which commits after the 2xx, so that what was answered is not posted again; a crash between
/// the two still repeats it.
#[derive(Debug, Clone)]
pub struct Forward {
    authority: String,
    path: String,
    timeout: Duration,
}

impl Forward {
    /// To this URL, which has this long to answer.
    pub fn new(url: &str, timeout: Duration) -> Result<Self, OpenError> {
        let refuse = || {
            OpenError::new(
                "the program's URL must be http:// on this machine, such as http://127.0.0.1:8080/events",
            )
        };
        let url = Url::parse(url).map_err(|_| refuse())?;
        let here = match url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        let plain = url.username().is_empty() && url.password().is_none();
        match (url.scheme(), url.host_str(), url.port_or_known_default()) {
            ("http", Some(host), Some(port)) if here && plain => Ok(Self {
                authority: format!("{host}:{port}"),
                path: match url.query() {
                    Some(query) => format!("{}?{query}", url.path()),
                    None => url.path().to_owned(),
                },
                timeout,
            }),
            _ => Err(refuse()),
        }
    }

    async fn post(&self, received: &Received) -> Result<(), ApplyError> {
        let away = || ApplyError::unavailable("the program does not listen");
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(&self.authority))
            .await
            .map_err(|_| away())?
            .map_err(|_| away())?;
        let request = self.request(received)?;
        let exchange = async {
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
            let driver = tokio::spawn(connection);
            let answer = sender.send_request(request).await;
            driver.abort();
            answer.map(|answer| (answer.status(), retry_after(answer.headers(), Utc::now())))
        };
        match tokio::time::timeout(self.timeout, exchange).await {
            Err(_elapsed) => {
                Err(ApplyError::Again("the program did not answer in time".to_owned()))
            }
            Ok(Err(_)) => Err(ApplyError::Again("the program broke off".to_owned())),
            Ok(Ok((status, _))) if status.is_success() => Ok(()),
            Ok(Ok((status, retry_after))) if is_unavailable(status) => {
                let message = format!("the program answered {}", status.as_u16());
                Err(ApplyError::Unavailable { message, retry_after })
            }
            Ok(Ok((status, _))) => {
                Err(ApplyError::Again(format!("the program answered {}", status.as_u16())))
            }
        }
    }

    fn request(&self, received: &Received) -> Result<Request<Full<Bytes>>, ApplyError> {
        let event = &received.event;
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&self.path)
            .header(header::HOST, &self.authority)
            .header(header::CONTENT_TYPE, "application/json")
            .header("symphony-event-id", event.event_id().to_string())
            .header("symphony-delivery-count", received.receives.to_string());
        let optional = [
            ("symphony-event-type", Some(event.event_type().to_owned())),
            ("symphony-key", Some(event.key().to_owned())),
            ("symphony-position", received.position.map(|position| position.to_string())),
            ("traceparent", event.traceparent().map(str::to_owned)),
        ];
        for (name, value) in optional {
            // What cannot be a header is in the body all the same.
            if let Some(value) =
                value.and_then(|value| HeaderValue::from_bytes(value.as_bytes()).ok())
            {
                request = request.header(name, value);
            }
        }
        let body = Bytes::copy_from_slice(event.body().get().as_bytes());
        request
            .body(Full::new(body))
            .map_err(|_| ApplyError::Reject("the event cannot be put into a request".to_owned()))
    }
}

/// Nothing is wrong with the event: the program is not ready, or has too much to do.
fn is_unavailable(status: StatusCode) -> bool {
    [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS].contains(&status)
}

#[async_trait]
impl Apply for Forward {
    async fn apply(&self, received: &Received) -> Result<Applied, ApplyError> {
        self.post(received).await.map(|()| Applied::Now)
    }
}

#[async_trait]
impl Handler for Forward {
    async fn handle(&self, received: &Received, _: &mut PgConnection) -> Result<(), ApplyError> {
        self.post(received).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_program_on_this_machine_is_posted_to() {
        for fine in ["http://127.0.0.1:8080/events", "http://localhost/", "http://[::1]:9/x?y=1"] {
            assert!(Forward::new(fine, CONNECT_TIMEOUT).is_ok(), "{fine}");
        }
        for wrong in [
            "https://127.0.0.1/",
            "http://example.com/",
            "http://10.0.0.1/",
            "http://user:secret@127.0.0.1/",
            "127.0.0.1:8080",
            "",
        ] {
            assert!(Forward::new(wrong, CONNECT_TIMEOUT).is_err(), "{wrong}");
        }
    }
}
