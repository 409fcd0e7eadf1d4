use super::*;

#[tokio::test]
async fn a_message_of_pythons_smtplib_arrives_as_it_was_sent() {
    let (listener, kept) = listen(SmtpListenerSettings::default()).await;
    let script = r#"
import smtplib, sys
from email.message import EmailMessage
message = EmailMessage()
message["From"], message["To"], message["Subject"] = "Ann <ann@b.example>", "x@app.example", "Grüße"
message.set_content("first\n.\n..two dots\n.one\nlast ü\n")
message.add_attachment(b"\x00\x01\xff" * 100, maintype="application", subtype="x-test", filename="ü.bin")
with smtplib.SMTP("127.0.0.1", int(sys.argv[1])) as client:
    code, offered = client.ehlo("client.example")
    assert code == 250, code
    features = set(client.esmtp_features)
    assert {"pipelining", "8bitmime", "size", "smtputf8", "enhancedstatuscodes"} <= features, features
    assert client.verify("x@app.example")[0] == 252
    refused = client.send_message(message, to_addrs=["x@app.example", "nobody@app.example", "y@app.example"])
    print(sorted(refused), refused["nobody@app.example"][0])
    assert client.noop()[0] == 250 and client.rset()[0] == 250
"#;
    let Some(printed) = python(script, listener.local_addr().port()).await else { return };
    assert_eq!(printed.trim(), "['nobody@app.example'] 550");
    listener.stop().await;
    let mails = kept.mails.lock().unwrap();
    let mail = &mails[0];
    assert_eq!(mails.len(), 1);
    assert_eq!(mail.from.as_deref(), Some("ann@b.example"));
    assert_eq!(mail.recipients, ["x@app.example", "y@app.example"]);
    assert_eq!((mail.helo.as_str(), mail.peer.ip().is_loopback()), ("client.example", true));
    let parsed = crate::email::parse_mail(&mail.raw).unwrap();
    assert_eq!(parsed.subject.as_deref(), Some("Grüße"));
    let text = parsed.text.unwrap().replace("\r\n", "\n");
    assert_eq!(text.trim_end(), "first\n.\n..two dots\n.one\nlast ü");
    let attachment = &parsed.attachments[0];
    assert_eq!((attachment.name.as_deref(), attachment.bytes), (Some("ü.bin"), 300));
    assert_eq!(attachment.content_type, "application/x-test");
}

#[tokio::test]
async fn eight_bit_bodies_and_utf8_addresses_arrive_unchanged() {
    let (listener, kept) = listen(SmtpListenerSettings::default()).await;
    let script = r#"
import smtplib, sys
raw = b"Subject: x\r\n\r\n" + bytes(b for b in range(1, 256) if b not in (10, 13)) + b"\r\n"
with smtplib.SMTP("127.0.0.1", int(sys.argv[1])) as client:
    client.sendmail("é@b.example", ["ü@bücher.example"], raw, mail_options=["SMTPUTF8", "BODY=8BITMIME"])
"#;
    let Some(_) = python(script, listener.local_addr().port()).await else { return };
    listener.stop().await;
    let mails = kept.mails.lock().unwrap();
    assert_eq!(mails[0].recipients, ["ü@bücher.example"]);
    let bytes: Vec<u8> = (1..=255).filter(|b| ![10, 13].contains(b)).collect();
    assert_eq!(mails[0].raw, [b"Subject: x\r\n\r\n", bytes.as_slice(), b"\r\n"].concat());
}

#[tokio::test]
async fn pipelined_commands_are_answered_one_by_one_in_order() {
    let (listener, kept) = listen(SmtpListenerSettings::default()).await;
    let mut raw = Raw::to(&listener).await;
    raw.send(
        b"EHLO me\r\nMAIL FROM:<>\r\nRCPT TO:<x@app.example>\r\nRCPT TO:<nobody@app.example>\r\n\
          RCPT TO:<x@app.example>\r\nDATA\r\nA: b\r\n\r\n..\r\n.\r\nMAIL FROM:<>\r\nRSET\r\nDATA\r\nQUIT\r\n",
    )
    .await;
    let rest = raw.rest().await;
    let codes: Vec<&str> =
        rest.lines().filter(|l| l.as_bytes()[3] == b' ').map(|l| &l[..3]).collect();
    let expected = ["250", "250", "250", "550", "250", "354", "250", "250", "250", "503", "221"];
    assert_eq!(codes, expected);
    listener.stop().await;
    let mails = kept.mails.lock().unwrap();
    assert_eq!(mails[0].from, None);
    assert_eq!(mails[0].recipients, ["x@app.example"]);
    assert_eq!(mails[0].raw, b"A: b\r\n\r\n.\r\n");
}

#[tokio::test]
async fn what_the_mailbox_says_decides_the_answer_and_its_reasons_stay_inside() {
    let (listener, kept) = listen(SmtpListenerSettings::default()).await;
    let mut raw = Raw::to(&listener).await;
    raw.ask("HELO me").await;
    for (recipient, code) in [
        ("later@app.example", "451 4.3.0"),
        ("never@app.example", "550 5.7.1"),
        ("bad@app.example", "554 5.6.0"),
        ("x@app.example", "250 2.0.0"),
    ] {
        raw.ask("MAIL FROM:<a@b.example>").await;
        assert!(raw.ask(&format!("RCPT TO:<{recipient}>")).await.starts_with("250"));
        raw.ask("DATA").await;
        let answer = raw.ask("A: b\r\n\r\nc\r\n.").await;
        assert!(answer.starts_with(code) && !answer.contains("secret"), "{recipient}: {answer}");
    }
    raw.ask("MAIL FROM:<a@b.example>").await;
    assert!(raw.ask("RCPT TO:<unsure@app.example>").await.starts_with("451 4.3.0"));
    assert!(raw.ask("RCPT TO:<x@elsewhere.example>").await.starts_with("550 5.1.1"));
    assert!(raw.ask("DATA").await.starts_with("554 5.5.1"));
    assert_eq!(kept.count(), 1);
}

#[tokio::test]
async fn the_answer_waits_for_the_commit_and_stopping_waits_for_both() {
    let (listener, kept) = listen(SmtpListenerSettings::default()).await;
    let mut idle = Raw::to(&listener).await;
    let mut raw = Raw::to(&listener).await;
    raw.send(b"HELO me\r\nMAIL FROM:<>\r\nRCPT TO:<slow@app.example>\r\nDATA\r\n").await;
    for _ in 0..4 {
        raw.answer().await;
    }
    raw.send(b"A: b\r\n\r\n.\r\n").await;
    kept.has_begun.notified().await;
    assert_eq!(raw.stream.try_read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    let address = listener.local_addr();
    let stopping = tokio::spawn(listener.stop());
    // Who only sits there is told; nobody new gets in.
    assert!(idle.answer().await.starts_with("421 4.3.2"));
    drop(idle);
    kept.may_end.notify_one();
    assert_eq!(raw.answer().await, "250 2.0.0 kept");
    assert!(raw.answer().await.starts_with("421 4.3.2"));
    drop(raw);
    stopping.await.unwrap();
    assert_eq!(kept.count(), 1);
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_client_that_leaves_before_the_dot_has_sent_nothing() {
    let (listener, kept) = listen(SmtpListenerSettings::default()).await;
    let mut raw = Raw::in_data(&listener).await;
    raw.send(b"A: b\r\n\r\ntext\r\n.").await;
    raw.stream.shutdown().await.unwrap();
    assert_eq!(raw.rest().await, "");
    listener.stop().await;
    assert_eq!(kept.count(), 0);
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused_by_name() {
    for (settings, field) in [
        (SmtpListenerSettings { hostname: "a b".into(), ..Default::default() }, "hostname"),
        (SmtpListenerSettings { message_bytes_max: 0, ..Default::default() }, "message_bytes_max"),
        (SmtpListenerSettings { connections_max: 0, ..Default::default() }, "connections_max"),
    ] {
        assert_eq!(settings.check().unwrap_err().first().field, field);
    }
}
