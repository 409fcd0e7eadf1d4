//! Real brokers on this machine, one per test: SNS and SQS by moto's server, NATS by `nats-server`.
//!
//! `scripts/ensure-brokers` gets them, `scripts/test` runs it. A test that needs one begins with
//! `required_or_skip!()`: without the brokers it passes over, unless `SYMPHONY_REQUIRE_BROKERS` is set.

use std::path::{Path, PathBuf};
use std::process::{Command as BlockingCommand, Stdio};
use std::sync::OnceLock;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use uuid::Uuid;

/// What there is on this machine.
pub struct Found {
    nats_server: PathBuf,
    python: PathBuf,
}

/// The brokers' programs; `None` unless both are there.
pub fn found() -> Option<&'static Found> {
    static FOUND: OnceLock<Option<Found>> = OnceLock::new();
    let found = FOUND.get_or_init(find).as_ref();
    assert!(
        found.is_some() || std::env::var_os("SYMPHONY_REQUIRE_BROKERS").is_none(),
        "SYMPHONY_REQUIRE_BROKERS is set, and the brokers are not there: run scripts/ensure-brokers"
    );
    if found.is_none() {
        println!("passed over: no brokers here; scripts/ensure-brokers would get them");
    }
    found
}

/// Return from the test unless the brokers are there; fail if they must be.
macro_rules! required_or_skip {
    () => {
        if $crate::support::brokers::found().is_none() {
            return;
        }
    };
}
#[allow(unused_imports)] // for the tests that need a broker
pub(crate) use required_or_skip;

fn find() -> Option<Found> {
    let from_environment =
        |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    if let (Some(nats_server), Some(python)) =
        (from_environment("SYMPHONY_NATS_SERVER"), from_environment("SYMPHONY_BROKER_PYTHON"))
    {
        return Some(Found { nats_server, python });
    }
    // A plain `cargo test`: use what an earlier run of the script left.
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/ensure-brokers");
    let output = BlockingCommand::new("bash")
        .args(["-c", r#"set -e; found=$("$0" --find --quiet --print); eval "$found"; printf '%s\n' "$SYMPHONY_NATS_SERVER" "$SYMPHONY_BROKER_PYTHON""#])
        .arg(script)
        .stderr(Stdio::null())
        .output()
        .expect("bash, to look for the brokers");
    let paths = String::from_utf8(output.stdout).unwrap();
    let mut lines = paths.lines().map(PathBuf::from);
    let both = (lines.next()?, lines.next()?);
    output.status.success().then_some(Found { nats_server: both.0, python: both.1 })
}

fn required() -> &'static Found {
    found().expect("the test begins with required_or_skip!()")
}

/// A process that is killed with this handle, and with this test run however that ends: it lives as long as its
/// standard input.
pub struct Leashed(Child);

impl Leashed {
    pub fn start(program: &Path, arguments: &[&str]) -> Self {
        let script = r#"
            exec 3<&0
            "$@" </dev/null 3<&- &
            server=$!
            { read -r _ <&3; kill -KILL $server; } 2>/dev/null &
            wait $server"#;
        let child = Command::new("bash")
            .args(["-c", script, "leash"])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("bash, to run a broker");
        Self(child)
    }

    /// As if the power had failed.
    async fn kill(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().await.expect("the leash");
    }
}

/// SNS and SQS on this machine: moto's server mode. Its state lives as long as it does.
pub struct Moto {
    /// Where it listens, on loopback.
    pub port: u16,
    /// Who may do what, for those it names.
    policies: PathBuf,
    _server: Child,
}

impl Moto {
    pub const REGION: &str = "eu-central-1";
    /// The account all its resources are in.
    pub const ACCOUNT: &str = "123456789012";

    pub async fn start() -> Self {
        // Ends with its standard input, which is this process's to hold.
        // One thing at a time: otherwise a message that comes in while another is deleted is lost by moto, and a call
        // that waits for messages takes one of a group that is in another's hand meanwhile.
        let script = "\
import functools, os, sys, threading, time
from moto.server import ThreadedMotoServer
from moto.sqs.models import Queue, SQSBackend
import moto.sqs.models as sqs
# It asks for the time, and for each attribute's name, for every message of a queue at every call.
stopped_at = None
sqs.unix_time_millis = lambda: stopped_at or time.time() * 1000
sqs.camelcase_to_underscores = functools.cache(sqs.camelcase_to_underscores)
lock = threading.RLock()
def alone(of, name):
    inner = getattr(of, name)
    @functools.wraps(inner)
    def outer(*arguments, **named):
        with lock:
            return inner(*arguments, **named)
    setattr(of, name, outer)
    return outer
for name in ('add_message', 'delete_message'):
    alone(Queue, name)
alone(SQSBackend, 'change_message_visibility')
look = alone(SQSBackend, 'receive_message')
def receive(self, queue_name, count, wait_seconds_timeout, visibility_timeout, message_attribute_names=None):
    global stopped_at
    until = time.monotonic() + wait_seconds_timeout
    while True:
        with lock:
            # Otherwise of two of a group whose time is over, the later one comes back first.
            stopped_at = time.time() * 1000
            pending = self.get_queue(queue_name).pending_messages
            pending -= {message for message in pending if message.visible}
            try:
                found = look(self, queue_name, count, 0, visibility_timeout, message_attribute_names)
            finally:
                stopped_at = None
        if found or time.monotonic() >= until:
            return found
        time.sleep(0.02)
SQSBackend.receive_message = receive
# It knows no policies of its own for queues: whoever is named in the file may do what stands there, and nothing else.
import io, json
from moto.moto_server.werkzeug_app import DomainDispatcherApplication as Application
serve = Application.__call__
def guarded(self, environ, start_response):
    key = environ.get('HTTP_AUTHORIZATION', '').partition('Credential=')[2].partition('/')[0]
    policies = json.load(open(sys.argv[1])) if os.path.exists(sys.argv[1]) else {}
    if key in policies:
        body = environ['wsgi.input'].read(int(environ.get('CONTENT_LENGTH') or 0))
        environ['wsgi.input'] = io.BytesIO(body)
        # A batch needs the right to its single form, says AWS.
        action = 'sqs:' + environ.get('HTTP_X_AMZ_TARGET', '').partition('.')[2].removesuffix('Batch')
        queue = json.loads(body or '{}').get('QueueUrl', '').rsplit('/', 1)[-1]
        arn = 'arn:aws:sqs:eu-central-1:123456789012:' + queue
        if not any(action in s['Action'] and arn in s['Resource'] for s in policies[key]['Statement']):
            start_response('403 Forbidden', [('Content-Type', 'application/x-amz-json-1.0')])
            return [json.dumps({'__type': 'AccessDenied', 'message': action + ' ' + arn}).encode()]
    return serve(self, environ, start_response)
Application.__call__ = guarded
server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
os._exit(0)
";
        let policies = std::env::temp_dir().join(format!("symphony-moto-{}.json", Uuid::new_v4()));
        let mut server = Command::new(&required().python)
            .args(["-c", script])
            .arg(&policies)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("moto");
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let port = lines.next_line().await.unwrap().expect("moto's port").parse().unwrap();
        Self { port, policies, _server: server }
    }

    /// From now on this access key may do what the policy says, and nothing else.
    pub fn enforce(&self, access_key: &str, policy: &serde_json::Value) {
        let text = serde_json::json!({ access_key: policy }).to_string();
        std::fs::write(&self.policies, text).unwrap();
    }

    /// For `endpoint_url`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Calls it through boto3 as `sns` and `sqs`, and prints: what another implementation sees.
    pub async fn boto(&self, script: &str, arguments: &[&str]) -> String {
        let head = format!(
            "import boto3, json, sys\n\
             common = dict(endpoint_url='{}', region_name='{}', aws_access_key_id='test', aws_secret_access_key='test')\n\
             sns, sqs = boto3.client('sns', **common), boto3.client('sqs', **common)\n",
            self.url(),
            Self::REGION
        );
        python(&(head + script), arguments).await
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        // Mostly there is none.
        let _none = std::fs::remove_file(&self.policies);
    }
}

/// The Python of [`python`], for a server written in it.
#[cfg(feature = "kafka")]
pub fn python_program() -> &'static Path {
    &required().python
}

/// Run a script with the Python that has boto3, nats-py, confluent-kafka and standardwebhooks; what it prints.
pub async fn python(script: &str, arguments: &[&str]) -> String {
    let output = Command::new(&required().python)
        .args(["-c", script])
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .expect("python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A `nats-server` with JetStream, whose streams survive `kill` and `restart`.
pub struct NatsServer {
    /// Where it listens, on loopback; the same after a restart.
    pub port: u16,
    folder: PathBuf,
    arguments: Vec<String>,
    server: Leashed,
}

impl NatsServer {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// With further arguments, such as `--auth TOKEN`.
    pub async fn start_with(arguments: &[&str]) -> Self {
        let folder = std::env::temp_dir().join(format!("symphony-nats-{}", Uuid::new_v4()));
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let (server, port) = listen(&folder, -1, &arguments).await;
        Self { port, folder, arguments, server }
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// As if the power had failed.
    pub async fn kill(&mut self) {
        self.server.kill().await;
    }

    /// On the same port and folder; kills it first if it runs.
    pub async fn restart(&mut self) {
        self.kill().await;
        (self.server, _) = listen(&self.folder, self.port.into(), &self.arguments).await;
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        drop(self.server.0.stdin.take());
        // What it writes in its last moment may stay behind, in the folder for such things.
        let _left_behind = std::fs::remove_dir_all(&self.folder);
    }
}

async fn listen(folder: &Path, port: i32, arguments: &[String]) -> (Leashed, u16) {
    let port = port.to_string();
    let folder = folder.to_str().unwrap();
    let mut all =
        vec!["--jetstream", "--store_dir", folder, "--addr", "127.0.0.1", "--port", &port];
    all.extend(arguments.iter().map(String::as_str));
    let mut server = Leashed::start(&required().nats_server, &all);
    let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines();
    let (mut seen, mut port) = (String::new(), None);
    while let Some(line) = lines.next_line().await.unwrap() {
        if let Some((_, address)) = line.split_once("Listening for client connections on ") {
            port = address.rsplit(':').next().and_then(|port| port.parse().ok());
        }
        if line.ends_with("Server is ready") {
            // Read on, or it would wait for a reader one day.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return (server, port.expect("nats-server says where it listens"));
        }
        seen = seen + &line + "\n";
    }
    panic!("nats-server did not start:\n{seen}");
}

#[tokio::test]
async fn moto_answers_and_ends_with_its_handle() {
    required_or_skip!();
    let moto = Moto::start().await;
    let arn = moto.boto("print(sns.create_topic(Name=sys.argv[1])['TopicArn'])", &["t"]).await;
    assert_eq!(arn.trim(), format!("arn:aws:sns:{}:{}:t", Moto::REGION, Moto::ACCOUNT));
    let port = moto.port;
    drop(moto);
    super::until("moto is gone", async || {
        tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err()
    })
    .await;
}

#[tokio::test]
async fn a_stream_of_the_nats_server_survives_its_death() {
    required_or_skip!();
    let mut server = NatsServer::start().await;
    let url = server.url();
    let script = "\
import asyncio, nats, sys
async def main():
    connection = await nats.connect(sys.argv[1])
    stream = connection.jetstream()
    if sys.argv[2] == 'write':
        await stream.add_stream(name='s', subjects=['s.>'])
        await stream.publish('s.x', b'1')
    print((await stream.stream_info('s')).state.messages)
    await connection.close()
asyncio.run(main())
";
    assert_eq!(python(script, &[&url, "write"]).await.trim(), "1");
    server.kill().await;
    assert!(tokio::net::TcpStream::connect(("127.0.0.1", server.port)).await.is_err());
    server.restart().await;
    assert_eq!(python(script, &[&url, "read"]).await.trim(), "1");
}
