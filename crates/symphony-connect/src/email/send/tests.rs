#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use chrono::{TimeZone as _, Utc};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto::ring};

use super::compose::compose;
use super::*;
use crate::email::smtp::tests::listen;
use crate::email::{SmtpListenerSettings, parse_mail};

fn mail() -> OutboundMail {
    OutboundMail {
        from: "Jürgen <j@b.example>".to_owned(),
        to: vec!["x@app.example".to_owned(), "\"Ann \\ B\" <y@app.example>".to_owned()],
        subject: "Grüße an alle, die das hier lesen, und noch viele weitere Wörter 🎼".to_owned(),
        text: "one\n.\n..two\nÄ= trailing \nlast".to_owned(),
        message_id: "0190-abc".to_owned(),
        ..OutboundMail::default()
    }
}

fn plain(port: u16) -> SmtpSenderSettings {
    SmtpSenderSettings {
        host: "127.0.0.1".to_owned(),
        port,
        security: Security::Plain,
        timeout_ms: 5_000,
        ..Default::default()
    }
}

fn sender(settings: &SmtpSenderSettings) -> SmtpSender {
    SmtpSender::new(settings, |name| (name == "PASSWORD").then(|| "s3cret".to_owned())).unwrap()
}

fn refused(code: u16, message: &str) -> SendOutcome {
    SendOutcome::Refused { code, message: message.to_owned() }
}

#[tokio::test]
async fn our_own_server_gets_what_was_sent() {
    let (listener, kept) = listen(SmtpListenerSettings::default()).await;
    let sender = sender(&plain(listener.local_addr().port()));
    let mut mail = mail();
    let accepted = SendOutcome::Accepted { reference: "2.0.0 kept".to_owned() };
    assert_eq!(sender.send(&mail).await, accepted);
    mail.html = Some("<p>ü</p>\r\n<p>.</p>".to_owned());
    assert_eq!(sender.send(&mail).await, accepted);
    let mails = kept.mails.lock().unwrap();
    assert_eq!(mails[0].recipients, ["x@app.example", "y@app.example"]);
    assert!(mails[0].raw.is_ascii() && mails[0].raw.split(|b| *b == b'\n').all(|l| l.len() <= 77));
    let [first, second] = [0, 1].map(|at| parse_mail(&mails[at].raw).unwrap());
    assert_eq!(first.text.unwrap().trim_end().replace("\r\n", "\n"), mail.text);
    assert_eq!(first.subject.as_deref(), Some(mail.subject.as_str()));
    assert_eq!(first.from.unwrap().name.as_deref(), Some("Jürgen"));
    assert_eq!(first.to[1].name.as_deref(), Some("Ann \\ B"));
    assert_eq!(first.message_id.as_deref(), Some("0190-abc@b.example"));
    assert_eq!(second.message_id.as_deref(), Some("0190-abc@b.example"));
    assert_eq!(second.html.unwrap().trim_end(), "<p>ü</p>\r\n<p>.</p>");
    assert!(second.text.is_some() && second.attachments.is_empty());
}

#[tokio::test]
async fn what_the_server_says_becomes_the_outcome() {
    let (listener, _kept) = listen(SmtpListenerSettings::default()).await;
    let sender = sender(&plain(listener.local_addr().port()));
    for (to, expected) in [
        ("nobody@app.example", refused(550, "5.1.1 no such recipient here")),
        ("never@app.example", refused(550, "5.7.1 the recipient does not take it")),
        (
            "later@app.example",
            SendOutcome::Again {
                message: "the relay answered 451 4.3.0 not possible now, come again later".into(),
                unknown: false,
            },
        ),
    ] {
        assert_eq!(sender.send(&OutboundMail { to: vec![to.into()], ..mail() }).await, expected);
    }
    // One recipient refused: nobody gets it.
    let to = vec!["x@app.example".to_owned(), "nobody@app.example".to_owned()];
    let outcome = sender.send(&OutboundMail { to, ..mail() }).await;
    assert_eq!(outcome, refused(550, "5.1.1 no such recipient here"));
}

#[tokio::test]
async fn nobody_there_is_known_not_to_have_taken_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let outcome = sender(&plain(port)).send(&mail()).await;
    assert!(matches!(outcome, SendOutcome::Again { unknown: false, .. }), "{outcome:?}");
}

/// How a relay of the tests behaves.
#[derive(Clone, Copy, Default)]
struct Relay {
    offers: &'static str,
    cuts_at: &'static str,
    hangs_at: &'static str,
    says: (&'static str, &'static str),
}

impl Relay {
    /// One conversation, until it says STARTTLS may begin, or until the end; and what it was told.
    async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
        self,
        stream: &mut BufStream<S>,
        greets: bool,
    ) -> Vec<String> {
        let mut told = Vec::new();
        let mut answer = if greets { "220 relay" } else { "" };
        let mut in_data = false;
        loop {
            if !answer.is_empty() {
                stream.write_all(format!("{answer}\r\n").as_bytes()).await.unwrap();
                stream.flush().await.unwrap();
            }
            if answer.starts_with("220 go") {
                return told;
            }
            let mut line = String::new();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return told;
            }
            let line = line.trim_end().to_owned();
            let verb = line.split([' ', ':']).next().unwrap().to_owned();
            if !in_data || verb == "." {
                told.push(line);
            }
            answer = match verb.as_str() {
                verb if verb == self.cuts_at => return told,
                verb if verb == self.hangs_at => {
                    std::future::pending::<()>().await;
                    ""
                }
                verb if verb == self.says.0 => self.says.1,
                "." => {
                    in_data = false;
                    "250 2.0.0 queued as 42"
                }
                _ if in_data => "",
                "EHLO" => self.offers,
                "STARTTLS" => "220 go",
                "AUTH" => "235 2.7.0 welcome",
                "DATA" => {
                    in_data = true;
                    "354 go on"
                }
                "QUIT" => "221 bye",
                _ => "250 2.0.0 fine",
            };
        }
    }

    async fn start(self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                self.talk(&mut BufStream::new(stream), true).await;
            }
        });
        port
    }
}

const NOTHING: Relay = Relay { offers: "250 relay", cuts_at: "-", hangs_at: "-", says: ("-", "") };

#[tokio::test]
async fn only_what_breaks_after_the_final_dot_is_unknown() {
    for (relay, unknown) in [
        (Relay { cuts_at: "EHLO", ..NOTHING }, false),
        (Relay { cuts_at: "MAIL", ..NOTHING }, false),
        (Relay { cuts_at: "RCPT", ..NOTHING }, false),
        (Relay { cuts_at: "DATA", ..NOTHING }, false),
        (Relay { cuts_at: "Subject", ..NOTHING }, false),
        (Relay { cuts_at: ".", ..NOTHING }, true),
        (Relay { hangs_at: "DATA", ..NOTHING }, false),
        (Relay { hangs_at: ".", ..NOTHING }, true),
        (Relay { says: (".", "250-2.0.0 queued\r\n451 or not"), ..NOTHING }, true),
        (Relay { says: (".", "what?"), ..NOTHING }, true),
        (Relay { says: (".", "354 go on"), ..NOTHING }, true),
        (Relay { says: (".", "451 4.3.0 disk full"), ..NOTHING }, false),
        (Relay { says: ("DATA", "250 fine"), ..NOTHING }, false),
        (Relay { says: ("EHLO", "500 what?"), ..NOTHING }, false),
    ] {
        let mut settings = plain(relay.start().await);
        settings.timeout_ms = if relay.hangs_at == "-" { 5_000 } else { 300 };
        // More than the kernel's buffers hold: only then a relay that leaves in the middle is noticed there.
        let lines = if relay.cuts_at == "Subject" { 1_000_000 } else { 1 };
        settings.message_bytes_max = 64 << 20;
        let text = "a line of text\n".repeat(lines);
        let mail = OutboundMail { text, ..mail() };
        match sender(&settings).send(&mail).await {
            SendOutcome::Again { message, unknown: found } => {
                let Relay { cuts_at, hangs_at, says, .. } = relay;
                assert_eq!(found, unknown, "{cuts_at} {hangs_at} {says:?}: {message}");
            }
            other => panic!("{:?}: {other:?}", relay.says),
        }
    }
    let relay = Relay { says: (".", "554 5.7.1 spam"), ..NOTHING };
    let outcome = sender(&plain(relay.start().await)).send(&mail()).await;
    assert_eq!(outcome, refused(554, "5.7.1 spam"));
}

fn certificate() -> (TlsAcceptor, String) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = names.signed_by(&key, &authority).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), authority.pem())
}

#[tokio::test]
async fn a_password_is_told_only_over_tls_to_a_relay_that_is_trusted() {
    let (acceptor, authority) = certificate();
    let file = std::env::temp_dir().join(format!("symphony-relay-{}.pem", uuid::Uuid::new_v4()));
    std::fs::write(&file, authority).unwrap();
    let offers = "250-relay\r\n250-STARTTLS\r\n250 AUTH LOGIN PLAIN";
    for (security, host, offers, is_accepted) in [
        (Security::StartTls, "localhost", offers, true),
        (Security::Tls, "localhost", offers, true),
        (Security::StartTls, "127.0.0.1", offers, false),
        (Security::Tls, "127.0.0.1", offers, false),
        // Somebody between us and the relay took STARTTLS out.
        (Security::StartTls, "localhost", "250-relay\r\n250 AUTH PLAIN", false),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let settings = SmtpSenderSettings {
            host: host.to_owned(),
            port: listener.local_addr().unwrap().port(),
            security,
            user: Some("ann".to_owned()),
            password_env: Some("PASSWORD".to_owned()),
            extra_root_certificates_file: Some(file.clone()),
            timeout_ms: 5_000,
            ..Default::default()
        };
        let relay = Relay { offers, ..NOTHING };
        let acceptor = acceptor.clone();
        let serving = tokio::spawn(async move {
            let (stream, _): (TcpStream, _) = listener.accept().await.unwrap();
            let mut in_plain_text = Vec::new();
            let stream = if security == Security::StartTls {
                let mut stream = BufStream::new(stream);
                in_plain_text = relay.talk(&mut stream, true).await;
                stream.into_inner()
            } else {
                stream
            };
            let Ok(stream) = acceptor.accept(stream).await else { return (in_plain_text, vec![]) };
            let greets = security == Security::Tls;
            (in_plain_text, relay.talk(&mut BufStream::new(stream), greets).await)
        });
        let outcome = sender(&settings).send(&mail()).await;
        let (in_plain_text, over_tls) = serving.await.unwrap();
        assert!(in_plain_text.iter().all(|line| ["EHLO localhost", "STARTTLS"].contains(&&**line)));
        if is_accepted {
            let reference = "2.0.0 queued as 42".to_owned();
            assert_eq!(outcome, SendOutcome::Accepted { reference }, "{security:?}");
            assert_eq!(over_tls[1], "AUTH PLAIN AGFubgBzM2NyZXQ=");
            assert_eq!(over_tls.last().unwrap(), "QUIT");
        } else {
            assert!(matches!(outcome, SendOutcome::Again { unknown: false, .. }), "{outcome:?}");
            assert!(over_tls.is_empty(), "{over_tls:?}");
        }
    }
    std::fs::remove_file(&file).unwrap();
}

#[tokio::test]
async fn what_is_said_before_tls_begins_is_not_believed_afterwards() {
    let offers = "250-relay\r\n250 STARTTLS";
    let relay = Relay { offers, says: ("STARTTLS", "220 go\r\n250 injected"), ..NOTHING };
    let settings = SmtpSenderSettings {
        host: "localhost".to_owned(),
        security: Security::StartTls,
        ..plain(relay.start().await)
    };
    let SendOutcome::Again { message, unknown: false } = sender(&settings).send(&mail()).await
    else {
        panic!("sent")
    };
    assert_eq!(message, "somebody answers in the relay's place before TLS begins");
}

#[test]
fn html_copies_and_attachments_are_read_back_by_another_parser() {
    let attachment = |name: &str, content_type: Option<&str>, content: &[u8]| MailAttachment {
        name: name.to_owned(),
        content_type: content_type.map(str::to_owned),
        content_base64: BASE64_STANDARD.encode(content),
    };
    let all_bytes: Vec<u8> = (0..=255).collect();
    let mail = OutboundMail {
        cc: vec!["Cee <c@app.example>".to_owned(), "x@app.example".to_owned()],
        bcc: vec!["secret@app.example".to_owned()],
        reply_to: Some("Büro <office@b.example>".to_owned()),
        html: Some("<p>Grüße --=_</p>".to_owned()),
        attachments: vec![
            attachment("all \"bytes\" für dich.bin", None, &all_bytes),
            attachment("a.pdf", Some("application/pdf"), b""),
        ],
        ..mail()
    };
    let now = Utc.with_ymd_and_hms(2026, 11, 15, 8, 0, 0).unwrap();
    let composed = compose(&mail, "app.example", now, 1 << 20).unwrap();
    assert_eq!(
        composed.recipients,
        ["x@app.example", "y@app.example", "c@app.example", "secret@app.example"]
    );
    assert!(!composed.body.contains("secret@"), "{}", composed.body);
    assert!(composed.body.lines().all(|line| line.len() < 200 && line.is_ascii()));
    let parsed = serde_json::to_value(parse_mail(composed.body.as_bytes()).unwrap()).unwrap();
    assert_eq!(parsed["cc"][0]["address"], "c@app.example");
    assert!(parsed["text"].as_str().unwrap().starts_with("one\r\n.\r\n"), "{parsed}");
    assert_eq!(parsed["html"].as_str().unwrap().trim(), "<p>Grüße --=_</p>");
    let headers = parsed["headers"].to_string();
    assert!(headers.contains("Reply-To") && headers.contains("office@b.example"), "{headers}");
    let files: Vec<_> = parsed["attachments"].as_array().unwrap().iter().collect();
    assert_eq!(files.len(), 2);
    assert_eq!(files[0]["name"], "all \"bytes\" für dich.bin");
    assert_eq!(files[0]["contentType"], "application/octet-stream");
    assert_eq!(files[0]["contentBase64"], BASE64_STANDARD.encode(&all_bytes));
    assert_eq!(
        (&files[1]["name"], &files[1]["contentType"]),
        (&"a.pdf".into(), &"application/pdf".into())
    );

    let refused = |change: fn(&mut OutboundMail)| {
        let mut mail = mail.clone();
        change(&mut mail);
        compose(&mail, "app.example", now, 1 << 20).err().map(|error| error.field)
    };
    let kind = "attachments[1].contentType";
    for (field, change) in [
        ("to", (|mail| mail.bcc = vec!["a@b.example".to_owned(); 47]) as fn(&mut OutboundMail)),
        ("attachments", |mail| mail.attachments = vec![MailAttachment::default(); 11]),
        ("attachments[0].contentBase64", |mail| {
            mail.attachments[0].content_base64 = "?".to_owned();
        }),
        (kind, |mail| mail.attachments[1].content_type = Some("text/x;\r\n x=y".to_owned())),
        (kind, |mail| mail.attachments[1].content_type = Some("text".to_owned())),
    ] {
        assert_eq!(refused(change).as_deref(), Some(field));
    }
}

type Set = fn(&mut OutboundMail, String);

#[test]
fn no_field_can_break_out_of_its_place() {
    let compose = |mail: &OutboundMail| {
        let now = Utc.with_ymd_and_hms(2026, 11, 15, 8, 0, 0).unwrap();
        compose(mail, "app.example", now, 1 << 20)
    };
    let fields: [(&str, Set); 8] = [
        ("cc", |mail, text| mail.cc = vec![text]),
        ("bcc", |mail, text| mail.bcc = vec![text]),
        ("replyTo", |mail, text| mail.reply_to = Some(text)),
        ("attachments[0].name", |mail, name| {
            mail.attachments = vec![MailAttachment { name, ..MailAttachment::default() }];
        }),
        ("from", |mail, text| mail.from = text),
        ("to", |mail, text| mail.to[0] = text),
        ("subject", |mail, text| mail.subject = text),
        ("messageId", |mail, text| mail.message_id = text),
    ];
    for (field, set) in fields {
        for evil in ["\r\nBcc: e@x.example", "\n", "\r", "\0", "\u{85}", "\u{2028}", "\r\n.\r\n"] {
            for text in [format!("a@b.example{evil}"), format!("A{evil}b <a@b.example>")] {
                let mut mail = mail();
                set(&mut mail, text);
                let problem = compose(&mail).err().map(|problem| problem.field);
                assert_eq!(problem.as_deref(), Some(field), "{evil:?}");
            }
        }
    }
    for address in [
        "",
        "a",
        "@b.example",
        "a@",
        "a@b> SIZE=1",
        "<a@b.example",
        "a b@c.example",
        "a@b..example",
        "a@b.example, c@d.example",
        "A <a@b.example> <c@d.example>x",
        "a\"@b.example",
        "a@b.example>",
    ] {
        let result = compose(&OutboundMail { to: vec![address.to_owned()], ..mail() });
        assert_eq!(result.err().unwrap().field, "to", "{address}");
    }
    for to in [vec![], vec!["a@b.example".to_owned(); 51]] {
        assert!(compose(&OutboundMail { to, ..mail() }).is_err());
    }
    let evil = "\"x\" <e@x.example>, =?UTF-8?Q?=0D=0ABcc:_e?=".to_owned();
    let composed =
        compose(&OutboundMail { from: format!("{evil} <a@b.example>"), ..mail() }).unwrap();
    assert_eq!(parse_mail(composed.body.as_bytes()).unwrap().from.unwrap().address, "a@b.example");
    assert_eq!(composed.from, "a@b.example");
    let long = compose(&OutboundMail { text: "x".repeat(1 << 20), ..mail() });
    assert_eq!(long.err().unwrap().field, "text");
}

#[test]
fn the_same_id_is_the_same_message_id_whatever_it_contains() {
    let id = |message_id: &str| {
        let mail = OutboundMail { message_id: message_id.to_owned(), ..mail() };
        let composed = compose(&mail, "app.example", Utc::now(), 1 << 20).unwrap();
        parse_mail(composed.body.as_bytes()).unwrap().message_id.unwrap()
    };
    assert_eq!(id("a-1"), "a-1@b.example");
    assert_eq!(id("<é 1@x>"), id("<é 1@x>"));
    assert_ne!(id("<é 1@x>"), id("<é 2@x>"));
    assert!(id("<é 1@x>").is_ascii());
}

#[test]
fn settings_are_refused_by_name_and_secrets_are_not_shown() {
    let good = plain(25);
    for (settings, field) in [
        (SmtpSenderSettings { host: String::new(), ..good.clone() }, "host"),
        (SmtpSenderSettings { port: 0, ..good.clone() }, "port"),
        (SmtpSenderSettings { hello: "a b".into(), ..good.clone() }, "hello"),
        (SmtpSenderSettings { timeout_ms: 0, ..good.clone() }, "timeout_ms"),
        (SmtpSenderSettings { user: Some("ann".into()), ..good.clone() }, "password_env"),
        (
            SmtpSenderSettings {
                user: Some("ann".into()),
                password_env: Some("PASSWORD".into()),
                ..good.clone()
            },
            "security",
        ),
        (
            SmtpSenderSettings {
                user: Some("ann".into()),
                password_env: Some("MISSING".into()),
                security: Security::Tls,
                ..good.clone()
            },
            "password_env",
        ),
    ] {
        let error = SmtpSender::new(&settings, |_| None).unwrap_err();
        assert_eq!(error.first().field, field, "{error}");
    }
    let settings = SmtpSenderSettings {
        user: Some("ann".into()),
        password_env: Some("PASSWORD".into()),
        security: Security::Tls,
        ..good
    };
    assert!(!format!("{:?}", sender(&settings)).contains("s3cret"));
    let one: OutboundMail = serde_json::from_str(
        r#"{"from": "a@b.example", "to": "c@d.example", "subject": "", "text": "", "messageId": "1"}"#,
    )
    .unwrap();
    assert_eq!(one.to, ["c@d.example"]);
}
