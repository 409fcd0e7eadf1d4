//! Who we are, proved with a certificate: to rails, to receivers of webhooks, to NATS and to relays of mail. The servers are
//! Python's `ssl` and `nats-server`, which ask for one and let nobody in without.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::value::RawValue;
use symphony::domain::{OutboxId, RailKey};
use symphony::lanes::events::bus::{Bus as _, Publication};
use symphony::lanes::payments::rail::{Payment, Rail as _, Verdict};
use symphony::money::{DestinationRule, read_amount};
use symphony_connect::buses::http::{EndpointSettings, HttpBus, HttpBusSettings};
use symphony_connect::buses::nats::{NatsBus, NatsSettings};
use symphony_connect::email::{OutboundMail, SendOutcome, SmtpSender, SmtpSenderSettings};
use symphony_connect::rails::http::{HttpRail, HttpRailSettings};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use uuid::Uuid;

use crate::connect::buses::message;
use crate::support::brokers::{NatsServer, required_or_skip};
use crate::support::processes::python_or_skip;

/// Files of the test's own: an authority, a server's certificate, ours, and one that a stranger's authority has signed.
struct Files(PathBuf);

impl Files {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("symphony-mtls-{}", Uuid::new_v4()));
        std::fs::create_dir(&folder).unwrap();
        let files = Self(folder);
        let authority = |name: &str| {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.distinguished_name.push(DnType::CommonName, name);
            CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
        };
        let (ours, strangers) = (authority("our authority"), authority("another authority"));
        std::fs::write(files.path("authority.pem"), ours.pem()).unwrap();
        for (name, issuer) in [("localhost", &ours), ("worker", &ours), ("stranger", &strangers)] {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            let certificate = params.signed_by(&key, issuer).unwrap();
            std::fs::write(files.path(&format!("{name}.pem")), certificate.pem()).unwrap();
            std::fs::write(files.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// HTTPS and SMTP with STARTTLS; both demand a certificate of the authority. Each answer names whom it saw.
const SERVER: &str = r"
import json, socket, ssl, sys, threading
folder = sys.argv[1]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder + '/localhost.pem', folder + '/localhost.key')
context.load_verify_locations(folder + '/authority.pem')
context.verify_mode = ssl.CERT_REQUIRED
def name_of(stream):
    return dict(part[0] for part in stream.getpeercert()['subject'])['commonName']
def https(plain):
    stream = context.wrap_socket(plain, server_side=True)
    file = stream.makefile('rb')
    while line := file.readline():
        length = 0
        while (header := file.readline()) not in (b'\r\n', b''):
            name, _, value = header.partition(b':')
            if name.lower() == b'content-length':
                length = int(value)
        file.read(length)
        body = json.dumps({'code': 'ACSC', 'reference': 'for ' + name_of(stream)}).encode()
        stream.sendall(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
def smtp(plain):
    plain.sendall(b'220 relay\r\n')
    file, stream, in_data = plain.makefile('rb'), plain, False
    while line := file.readline():
        word = line.strip().upper()
        if in_data:
            if line == b'.\r\n':
                in_data = False
                stream.sendall(b'250 2.0.0 queued for ' + name_of(stream).encode() + b'\r\n')
        elif word.startswith(b'EHLO'):
            stream.sendall(b'250-relay\r\n250 STARTTLS\r\n' if stream is plain else b'250 relay\r\n')
        elif word == b'STARTTLS':
            stream.sendall(b'220 go on\r\n')
            stream = context.wrap_socket(plain, server_side=True)
            file = stream.makefile('rb')
        elif word == b'DATA':
            in_data = True
            stream.sendall(b'354 go on\r\n')
        else:
            stream.sendall(b'250 2.0.0 ok\r\n')
def serve(answer):
    listener = socket.create_server(('127.0.0.1', 0))
    def one(plain):
        try:
            answer(plain)
        except (OSError, KeyError) as error:
            print(error, file=sys.stderr)
    def loop():
        while True:
            threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()
    threading.Thread(target=loop, daemon=True).start()
    return listener.getsockname()[1]
print(serve(https), serve(smtp), flush=True)
sys.stdin.read()
";

async fn server(files: &Files) -> (Child, u16, u16) {
    let mut server = Command::new("python3")
        .args(["-c", SERVER])
        .arg(&files.0)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    let mut ports = line.split(' ').map(|port| port.parse().unwrap());
    (server, ports.next().unwrap(), ports.next().unwrap())
}

/// Whose certificate is shown, and whether it lets in.
const WHO: [(Option<&str>, bool); 3] =
    [(Some("worker"), true), (None, false), (Some("stranger"), false)];

fn pair(files: &Files, who: Option<&str>) -> (Option<PathBuf>, Option<PathBuf>) {
    (
        who.map(|who| files.path(&format!("{who}.pem"))),
        who.map(|who| files.path(&format!("{who}.key"))),
    )
}

fn a_payment() -> Payment {
    let payload = RawValue::from_string(
        r#"{"amount": {"value": "10.00", "currency": "EUR"}, "destination": {"iban": "DE89370400440532013000"}}"#.to_owned(),
    )
    .unwrap();
    Payment {
        key: RailKey(Uuid::new_v4()),
        outbox_id: OutboxId(Uuid::new_v4()),
        instruction_id: "inv-1".to_owned(),
        participant_id: "acme".to_owned(),
        sequence_id: 1,
        rail_type: "sepa".to_owned(),
        amount: read_amount(&payload).unwrap(),
        payload,
        traceparent: None,
    }
}

fn rail_settings(files: &Files, port: u16, who: Option<&str>) -> HttpRailSettings {
    let (certificate, key) = pair(files, who);
    HttpRailSettings {
        url: format!("https://localhost:{port}/transfers"),
        destination: Some(DestinationRule::Any),
        allow_private_addresses: true,
        extra_root_certificates_file: Some(files.path("authority.pem")),
        client_certificate_file: certificate,
        client_key_file: key,
        ..HttpRailSettings::default()
    }
}

#[tokio::test]
async fn a_rail_that_asks_for_a_certificate_gets_ours_and_nothing_is_unknown_without() {
    python_or_skip!();
    let files = Files::new();
    let (_server, port, _) = server(&files).await;
    for (who, is_let_in) in WHO {
        let rail = HttpRail::new(&rail_settings(&files, port, who), |_| None).unwrap();
        let answer = rail.dispatch(&a_payment()).await;
        if is_let_in {
            assert_eq!(answer.verdict, Verdict::Accepted, "{who:?}: {answer:?}");
            assert_eq!(answer.reference.as_deref(), Some("for worker"));
        } else {
            // The handshake failed, so the payment was surely not taken: no inquiry, no parking.
            assert_eq!(answer.verdict, Verdict::Retryable, "{who:?}: {answer:?}");
            assert_eq!(answer.error_code.as_deref(), Some("TLS_FAILED"), "{who:?}: {answer:?}");
            let said = answer.message.unwrap_or_default();
            assert!(said.contains("client_certificate_file"), "{who:?}: {said}");
        }
    }
}

#[tokio::test]
async fn a_receiver_of_webhooks_that_asks_for_a_certificate_gets_ours() {
    python_or_skip!();
    let files = Files::new();
    let (_server, port, _) = server(&files).await;
    for (who, is_let_in) in WHO {
        let (certificate, key) = pair(&files, who);
        let endpoint = EndpointSettings {
            url: format!("https://localhost:{port}/events"),
            secret_env: "S".to_owned(),
            client_certificate_file: certificate,
            client_key_file: key,
            ..EndpointSettings::default()
        };
        let settings = HttpBusSettings {
            endpoints: [("billing".to_owned(), endpoint)].into(),
            allow_private_addresses: true,
            extra_root_certificates_file: Some(files.path("authority.pem")),
            ..HttpBusSettings::default()
        };
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let bus = HttpBus::new(&settings, |_| Some(secret.to_owned())).unwrap();
        let event = message("events.a");
        let answers = bus.publish("billing", &[&event]).await;
        let taken = matches!(answers[..], [Publication::Accepted { .. }]);
        assert_eq!(taken, is_let_in, "{who:?}: {answers:?}");
        if !is_let_in {
            assert!(format!("{answers:?}").contains("client_certificate_file"), "{answers:?}");
        }
    }
}

#[tokio::test]
async fn a_relay_that_asks_for_a_certificate_gets_ours_within_starttls() {
    python_or_skip!();
    let files = Files::new();
    let (_server, _, port) = server(&files).await;
    let mail = OutboundMail {
        from: "apps@example.com".to_owned(),
        to: vec!["ann@example.com".to_owned()],
        subject: "Hello".to_owned(),
        text: "Hello".to_owned(),
        message_id: "m-1".to_owned(),
        ..OutboundMail::default()
    };
    for (who, is_let_in) in WHO {
        let (certificate, key) = pair(&files, who);
        let settings = SmtpSenderSettings {
            host: "localhost".to_owned(),
            port,
            timeout_ms: 5_000,
            extra_root_certificates_file: Some(files.path("authority.pem")),
            client_certificate_file: certificate,
            client_key_file: key,
            ..SmtpSenderSettings::default()
        };
        let outcome = SmtpSender::new(&settings, |_| None).unwrap().send(&mail).await;
        match outcome {
            SendOutcome::Accepted { reference } if is_let_in => {
                assert!(reference.contains("queued for worker"), "{reference}");
            }
            SendOutcome::Again { unknown: false, .. } if !is_let_in => {}
            other => panic!("{who:?}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_nats_server_that_asks_for_a_certificate_gets_ours() {
    required_or_skip!();
    let files = Files::new();
    let (certificate, key, authority) =
        (files.text("localhost.pem"), files.text("localhost.key"), files.text("authority.pem"));
    let server = NatsServer::start_with(&[
        "--tls",
        "--tlscert",
        &certificate,
        "--tlskey",
        &key,
        "--tlscacert",
        &authority,
        "--tlsverify",
    ])
    .await;
    for (who, is_let_in) in WHO {
        let settings = NatsSettings {
            url: format!("tls://localhost:{}", server.port),
            ca_file: Some(authority.clone()),
            client_certificate_file: who.map(|who| files.text(&format!("{who}.pem"))),
            client_key_file: who.map(|who| files.text(&format!("{who}.key"))),
            timeout_ms: 2_000,
            connect_timeout_ms: 1_000,
            ..NatsSettings::default()
        };
        let bus = NatsBus::new(&settings, |_| None).unwrap();
        let event = message("events.a");
        let said = format!("{:?}", bus.publish("EVENTS", &[&event]).await);
        // Whoever is let in hears that there is no such stream.
        assert_eq!(said.contains("NO_SUCH_TOPIC"), is_let_in, "{who:?}: {said}");
        assert!(is_let_in || said.contains(&format!("localhost:{}", server.port)), "{said}");
        let said = consumer_says(&settings).await;
        assert_eq!(said.contains("cannot find the stream"), is_let_in, "{who:?}: {said}");
        assert!(is_let_in || said.contains(&format!("localhost:{}", server.port)), "{said}");
    }
}

/// What `symphony consume` says of a stream that is not there, or of a server that does not let it in.
async fn consumer_says(settings: &NatsSettings) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_symphony"));
    command.args(["consume", "--from", "nats:EVENTS", "--to", "http://127.0.0.1:1/"]);
    command.args(["--consumer", "c", "--dead-letter", "d", "--nats-url", &settings.url]);
    for (flag, file) in [
        ("--ca-file", &settings.ca_file),
        ("--client-certificate", &settings.client_certificate_file),
        ("--client-key", &settings.client_key_file),
    ] {
        command.args(file.iter().flat_map(|file| [flag, file]));
    }
    String::from_utf8(command.output().await.unwrap().stderr).unwrap()
}

/// A certificate that is renewed, or a key that moves, is the same endpoint: what was sent to it stays known there.
#[test]
fn a_renewed_certificate_is_the_same_endpoint() {
    let files = Files::new();
    let endpoint = |who| {
        let rail = HttpRail::new(&rail_settings(&files, 443, who), |_| None).unwrap();
        rail.terms().endpoint.clone()
    };
    assert_eq!(endpoint(Some("worker")), endpoint(Some("stranger")));
    assert_eq!(endpoint(Some("worker")), endpoint(None));
}

#[test]
fn a_file_that_does_not_fit_is_named_with_the_fix() {
    let files = Files::new();
    std::fs::write(files.path("empty.pem"), "nothing\n").unwrap();
    let refused = |certificate: Option<&Path>, key: Option<&Path>| {
        let settings = HttpRailSettings {
            client_certificate_file: certificate.map(Path::to_owned),
            client_key_file: key.map(Path::to_owned),
            ..rail_settings(&files, 443, None)
        };
        HttpRail::new(&settings, |_| None).err().unwrap().to_string()
    };
    let (ours, key, other, empty) = (
        files.path("worker.pem"),
        files.path("worker.key"),
        files.path("stranger.key"),
        files.path("empty.pem"),
    );
    for (certificate, key, expected) in [
        (Some(&ours), None, "client_key_file is missing: client_certificate_file needs".to_owned()),
        (None, Some(&key), "client_certificate_file is missing: whose key".to_owned()),
        (
            Some(&ours),
            Some(&other),
            "client_key_file does not fit client_certificate_file".to_owned(),
        ),
        (
            Some(&empty),
            Some(&key),
            format!("client_certificate_file is {}, which holds no certificate", empty.display()),
        ),
        (
            Some(&ours),
            Some(&ours),
            format!("client_key_file is {}, which holds no private key", ours.display()),
        ),
        (
            Some(&ours),
            Some(&files.path("gone")),
            format!("client_key_file is {}, which cannot be read", files.path("gone").display()),
        ),
    ] {
        let said = refused(certificate.map(PathBuf::as_path), key.map(PathBuf::as_path));
        assert!(said.starts_with(&expected), "{said}\nis not\n{expected}");
    }
}
