//! Listeners have bounds: slow clients are closed, and no crowd of them shuts out `/readyz`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::routing::{get, post};
use sqlx::ConnectOptions as _;
use symphony_server::http_server::{HttpServerSettings, read_body, serve};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::support::processes::python_or_skip;

const USUAL: HttpServerSettings = HttpServerSettings {
    connections_max: 1_000,
    head_timeout_ms: 60_000,
    body_timeout_ms: 60_000,
    idle_timeout_ms: 60_000,
};

/// A listener with these bounds; answers its address. `/held` is answered when the test ends.
async fn listener(settings: HttpServerSettings) -> String {
    let router = Router::new()
        .route("/readyz", get(|| async { "ready\n" }))
        .route("/held", get(std::future::pending::<&'static str>))
        .route(
            "/body",
            post(|body: Body| async move {
                match read_body(body, 1_000).await {
                    Ok(body) => (StatusCode::OK, format!("{} bytes", body.len())),
                    Err(problem) => {
                        let (status, code) = problem.answer();
                        (status, code.to_owned())
                    }
                }
            }),
        );
    serve_on(router, settings).await
}

async fn serve_on(router: Router, settings: HttpServerSettings) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(serve(listener, router, settings));
    address
}

async fn ask(address: &str, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// All that comes until the server closes; fails if it does not within a few seconds.
async fn until_closed(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    // A reset is an end as well.
    drop(tokio::time::timeout(Duration::from_secs(10), read).await.expect("it stays open"));
    String::from_utf8_lossy(&answer).into_owned()
}

async fn ready(address: &str) -> String {
    until_closed(ask(address, "GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await)
        .await
}

#[tokio::test]
async fn a_head_that_has_begun_must_be_whole_in_time_however_it_trickles() {
    let address = listener(HttpServerSettings { head_timeout_ms: 300, ..USUAL }).await;
    let started = Instant::now();
    let mut stream = ask(&address, "GET /readyz HTTP/1.1\r\n").await;
    // A line now and then does not help: the time is the whole head's.
    let mut byte = [0];
    loop {
        let read = tokio::time::timeout(Duration::from_millis(20), stream.read(&mut byte)).await;
        if read.is_ok() || stream.write_all(b"X-A: b\r\n").await.is_err() {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(10), "it stays open");
    }
}

#[tokio::test]
async fn a_connection_at_rest_is_closed_before_its_first_request_and_between_two() {
    let address = listener(HttpServerSettings { idle_timeout_ms: 300, ..USUAL }).await;
    let silent = TcpStream::connect(&address).await.unwrap();
    let between = ask(&address, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(until_closed(silent).await, "");
    assert!(until_closed(between).await.contains("ready"));
}

#[tokio::test]
async fn a_body_must_be_whole_in_time_and_is_told_so_if_it_is_not() {
    let address = listener(HttpServerSettings { body_timeout_ms: 300, ..USUAL }).await;
    let head =
        |length: usize| format!("POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n");
    let slow = until_closed(ask(&address, &format!("{}\r\nab", head(10))).await).await;
    assert!(slow.starts_with("HTTP/1.1 408") && slow.contains("BODY_TOO_SLOW"), "{slow}");
    let whole = format!("{}Connection: close\r\n\r\nabcdefghij", head(10));
    assert!(until_closed(ask(&address, &whole).await).await.contains("10 bytes"));
    let large = format!("{}Connection: close\r\n\r\n{}", head(1_001), "x".repeat(1_001));
    let large = until_closed(ask(&address, &large).await).await;
    assert!(large.starts_with("HTTP/1.1 413") && large.contains("BODY_TOO_LARGE"), "{large}");
}

#[tokio::test]
async fn a_client_that_stops_reading_its_answer_is_closed() {
    let given_up = Arc::new(Notify::new());
    let guard = given_up.clone();
    let router = Router::new().route(
        "/endless",
        get(|| async move {
            let held = DropGuard(guard.clone());
            let chunks = futures_util::stream::repeat_with(move || {
                let _held_by_the_answer = &held;
                Ok::<_, std::io::Error>(vec![0_u8; 1 << 20])
            });
            Body::from_stream(chunks)
        }),
    );
    let address = serve_on(router, HttpServerSettings { body_timeout_ms: 300, ..USUAL }).await;
    let unread = ask(&address, "GET /endless HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let dropped = tokio::time::timeout(Duration::from_secs(10), given_up.notified()).await;
    assert!(dropped.is_ok(), "it stays open");
    drop(unread);
}

/// Tells that an answer was given up.
struct DropGuard(Arc<Notify>);

impl Drop for DropGuard {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tokio::test]
async fn a_crowd_that_says_nothing_gives_way_and_whoever_is_being_answered_stays() {
    let address = listener(HttpServerSettings { connections_max: 20, ..USUAL }).await;
    let mut held = ask(&address, "GET /held HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut crowd = Vec::new();
    for number in 0..40 {
        // Some say nothing, some begin and stop.
        let begun = if number % 2 == 0 { "" } else { "GET /readyz HTT" };
        crowd.push(ask(&address, begun).await);
        if number % 10 == 0 {
            assert!(ready(&address).await.contains("ready"), "after {number}");
        }
    }
    assert!(ready(&address).await.contains("ready"));
    // The oldest are closed, the bound holds.
    let mut open = 0;
    for stream in &mut crowd {
        let mut byte = [0];
        let waited = tokio::time::timeout(Duration::from_millis(50), stream.read(&mut byte)).await;
        open += usize::from(waited.is_err());
    }
    assert!(open < 20, "{open} of 40 are still open");
    let mut byte = [0];
    let waited = tokio::time::timeout(Duration::from_millis(50), held.read(&mut byte)).await;
    assert!(waited.is_err(), "the one that is being answered was closed");
    // With nobody to give way, the next is told to come again. (One that has just come may still give way.)
    let mut busy = Vec::new();
    let told = loop {
        let mut next = ask(&address, "GET /held HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let mut said = [0; 12];
        let read = tokio::time::timeout(Duration::from_millis(100), next.read(&mut said)).await;
        if matches!(read, Ok(Ok(1..))) {
            break String::from_utf8_lossy(&said).into_owned();
        }
        busy.push(next);
        assert!(busy.len() < 100, "all places are taken, and nobody is told");
    };
    assert_eq!(told, "HTTP/1.1 503");
}

/// As it was found: nine hundred that trickle their heads, and eleven hundred that say nothing.
#[tokio::test]
async fn eleven_hundred_connections_do_not_shut_out_readyz_and_nine_hundred_slow_ones_are_closed() {
    python_or_skip!();
    let program = r"
import resource, select, socket, sys, time
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
address = (sys.argv[1].rsplit(':', 1)[0], int(sys.argv[1].rsplit(':', 1)[1]))
def ready():
    with socket.create_connection(address, timeout=10) as s:
        s.sendall(b'GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
        return s.recv(100)
slow = [socket.create_connection(address, timeout=10) for _ in range(900)]
for s in slow:
    s.sendall(b'GET /readyz HTTP/1.1\r\n')
assert b'200' in ready(), 'beside 900 slow ones'
deadline = time.monotonic() + 30
left = slow
while left and time.monotonic() < deadline:
    # Whatever is readable is closed: nothing was asked that could be answered.
    closed = []
    for at in range(0, len(left), 500):
        poll = select.poll()
        for s in left[at:at + 500]:
            poll.register(s, select.POLLIN | select.POLLHUP)
        closed += [number for number, _ in poll.poll(50)]
    left = [s for s in left if s.fileno() not in closed]
assert not left, f'{len(left)} of 900 slow ones stay open'
crowd = [socket.create_connection(address, timeout=10) for _ in range(1100)]
assert b'200' in ready(), 'beside 1,100 silent ones'
print('well')
";
    symphony_server::http_server::raise_open_files_limit();
    let address = listener(HttpServerSettings { head_timeout_ms: 1_000, ..USUAL }).await;
    let output =
        tokio::process::Command::new("python3").args(["-c", program, &address]).output().await;
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("well"), "{said}");
}

/// What the process itself serves has these bounds: they come from its configuration.
#[tokio::test]
async fn a_worker_process_closes_what_its_configuration_says() {
    let folder: PathBuf =
        std::env::temp_dir().join(format!("symphony-listen-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&folder).unwrap();
    let db = crate::support::TestDb::new().await;
    let config = folder.join("symphony.toml");
    std::fs::write(
        &config,
        "[rails.x]\nkind = 'sandbox'\nurl = 'http://127.0.0.1:1'\n[database]\nwitness = 'off'\n\
         [http_server]\nhead_timeout_ms = 200\nidle_timeout_ms = 300\nconnections_max = 8\n\
         [triggers]\nenabled = true\nhttp_listen = '127.0.0.1:0'\n",
    )
    .unwrap();
    let mut worker = tokio::process::Command::new(env!("CARGO_BIN_EXE_symphony"))
        .args(["run", "--api", "127.0.0.1:0", "--config"])
        .arg(&config)
        .env("DATABASE_URL", db.options.to_url_lossy().as_str())
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = tokio::io::BufReader::new(worker.stderr.take().unwrap()).lines();
    let mut addresses = Vec::new();
    while addresses.len() < 2 {
        let line = lines.next_line().await.unwrap().expect("it ended before it worked");
        if line.contains(" working ") || line.contains("apps are served") {
            let address = line.split("address=").nth(1).unwrap().split(' ').next().unwrap();
            addresses.push(address.to_owned());
        }
    }
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    for address in &addresses {
        let mut crowd = Vec::new();
        for _ in 0..12 {
            crowd.push(ask(address, "GET /healthz HTTP/1.1\r\n").await);
        }
        if address == &addresses[0] {
            assert!(ready(address).await.contains("ready"), "{address}");
        }
        for stream in crowd {
            assert!(!until_closed(stream).await.contains("HTTP/1.1 200"), "{address}");
        }
    }
    worker.kill().await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}
