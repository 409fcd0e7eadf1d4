use super::*;

#[tokio::test]
async fn no_variant_of_the_final_dot_smuggles_a_second_message() {
    let (listener, kept) = listen(SmtpListenerSettings::default()).await;
    for end in [
        &b"\n.\n"[..],
        b"\n.\r\n",
        b"\r\n.\n",
        b"\r.\r",
        b"\r.\r\n",
        b"\r\n.\r",
        b"\n.\r",
        b"\r.\n",
        b"\r\r\n.\r\r\n",
        b"\r\n.\r\r\n",
        b"\n\n.\r\n",
        b"\r\n\n.\r\n",
    ] {
        let mut raw = Raw::in_data(&listener).await;
        let second =
            b"MAIL FROM:<evil@b.example>\r\nRCPT TO:<x@app.example>\r\nDATA\r\nB: c\r\n\r\n.\r\n";
        raw.send(&[b"A: b\r\n\r\ntext", end, second].concat()).await;
        let rest = raw.rest().await;
        assert_eq!(rest, "521 5.5.2 lines end with CRLF, and nothing else does\r\n", "{end:?}");
    }
    // What looks like an end and is not one: a byte more on the line.
    for line in [&b"\r\n. \r\n"[..], b"\r\n.\0\r\n", b"\r\n .\r\n", b"\r\n..\r\n"] {
        let mut raw = Raw::in_data(&listener).await;
        raw.send(&[b"A: b\r\n\r\ntext", line, b"MAIL FROM:<>\r\n.\r\nQUIT\r\n"].concat()).await;
        assert_eq!(raw.rest().await.lines().count(), 2, "{line:?}");
    }
    listener.stop().await;
    let mails = kept.mails.lock().unwrap();
    assert_eq!(mails.len(), 4);
    assert!(mails.iter().all(|mail| mail.raw.ends_with(b"MAIL FROM:<>\r\n")));
}

#[tokio::test]
async fn a_line_end_split_between_two_packets_is_still_one() {
    let (listener, kept) = listen(SmtpListenerSettings::default()).await;
    let mut raw = Raw::in_data(&listener).await;
    for byte in b"A: b\r\n\r\ntext\r\n.\r\n" {
        raw.send(&[*byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(raw.answer().await, "250 2.0.0 kept");
    assert_eq!(kept.mails.lock().unwrap()[0].raw, b"A: b\r\n\r\ntext\r\n");
    let mut raw = Raw::to(&listener).await;
    raw.send(b"NOOP\r").await;
    raw.send(b"x\n").await;
    assert!(raw.rest().await.starts_with("521 5.5.2"));
}

#[tokio::test]
async fn commands_without_crlf_are_not_followed() {
    let (listener, _kept) = listen(SmtpListenerSettings::default()).await;
    for line in ["EHLO me\n", "EHLO me\r", "EHLO me\rNOOP\r\n"] {
        let mut raw = Raw::to(&listener).await;
        raw.send(line.as_bytes()).await;
        raw.send(b"NOOP\r\n").await;
        assert!(raw.rest().await.starts_with("521 5.5.2"), "{line:?}");
    }
}

#[tokio::test]
async fn lines_that_are_too_long_end_the_connection() {
    let settings = SmtpListenerSettings { message_line_bytes_max: 1_000, ..Default::default() };
    let (listener, kept) = listen(settings).await;
    let mut raw = Raw::to(&listener).await;
    raw.send(&b"x".repeat(100_000)).await;
    assert_eq!(raw.rest().await, "500 5.5.6 line too long\r\n");
    let mut raw = Raw::in_data(&listener).await;
    raw.send(&[&[b'x'; 1_000][..], b"\r\n.\r\n"].concat()).await;
    assert_eq!(raw.answer().await, "250 2.0.0 kept");
    let mut raw = Raw::in_data(&listener).await;
    raw.send(&[&[b'x'; 1_001][..], b"\r\n.\r\n"].concat()).await;
    assert_eq!(raw.rest().await, "500 5.5.6 line too long\r\n");
    assert_eq!(kept.count(), 1);
}

#[tokio::test]
async fn messages_that_are_too_large_are_refused_before_or_after_they_are_sent() {
    let settings = SmtpListenerSettings { message_bytes_max: 2_000, ..Default::default() };
    let (listener, kept) = listen(settings).await;
    let mut raw = Raw::in_data(&listener).await;
    let line = [&[b'x'; 98][..], b"\r\n"].concat();
    raw.send(&[&line.repeat(20)[..], b".\r\n"].concat()).await;
    assert_eq!(raw.answer().await, "250 2.0.0 kept");
    assert!(raw.ask("MAIL FROM:<> SIZE=2001").await.starts_with("552 5.3.4"));
    for line in ["MAIL FROM:<> SIZE=2000", "RCPT TO:<x@app.example>", "DATA"] {
        raw.ask(line).await;
    }
    raw.send(&[&line.repeat(21)[..], b".\r\n"].concat()).await;
    assert!(raw.answer().await.starts_with("552 5.3.4"));
    assert!(raw.ask("NOOP").await.starts_with("250"));
    // Whoever goes on and on is cut off.
    for line in ["MAIL FROM:<>", "RCPT TO:<x@app.example>", "DATA"] {
        raw.ask(line).await;
    }
    raw.send(&line.repeat(1_000)).await;
    assert!(raw.rest().await.starts_with("552 5.3.4"));
    assert_eq!(kept.count(), 1);
}

#[tokio::test]
async fn messages_share_one_budget_of_bytes_and_whoever_finds_none_comes_again() {
    let settings = SmtpListenerSettings {
        message_bytes_max: 32 << 10,
        bytes_in_flight_max: 32 << 10,
        room_timeout_ms: 1,
        ..Default::default()
    };
    let (listener, kept) = listen(settings).await;
    let line = [&[b'x'; 998][..], b"\r\n"].concat();
    let large = [&line.repeat(20)[..], b".\r\n"].concat();
    let mut first = Raw::to(&listener).await;
    first.ask("EHLO me").await;
    first.ask("MAIL FROM:<>").await;
    first.ask("RCPT TO:<slow@app.example>").await;
    assert!(first.ask("DATA").await.starts_with("354"));
    first.send(&large).await;
    kept.has_begun.notified().await;
    let mut second = Raw::to(&listener).await;
    second.ask("EHLO me").await;
    let mut send = async |message: &[u8]| {
        second.ask("MAIL FROM:<>").await;
        second.ask("RCPT TO:<a@app.example>").await;
        assert!(second.ask("DATA").await.starts_with("354"));
        second.send(message).await;
        second.answer().await
    };
    // Not the client's mistake: it may come again as often as it likes.
    for message in [&large[..], b"A: b\r\n.\r\n", &large] {
        assert_eq!(send(message).await, "452 4.3.1 too many messages at once, come again later");
    }
    kept.may_end.notify_one();
    assert_eq!(first.answer().await, "250 2.0.0 kept");
    assert_eq!(send(&large).await, "250 2.0.0 kept", "the first has given its room back");
    assert_eq!(kept.count(), 2);
}

#[tokio::test]
async fn more_recipients_than_allowed_are_left_for_another_message() {
    let (listener, kept) = listen(SmtpListenerSettings::default()).await;
    let mut raw = Raw::to(&listener).await;
    raw.ask("EHLO me").await;
    raw.ask("MAIL FROM:<>").await;
    for number in 0..100 {
        let answer = raw.ask(&format!("RCPT TO:<x{number}@app.example>")).await;
        assert!(answer.starts_with("250"), "{number}: {answer}");
    }
    assert!(raw.ask("RCPT TO:<x100@app.example>").await.starts_with("452 4.5.3"));
    raw.ask("DATA").await;
    assert!(raw.ask("A: b\r\n\r\n.").await.starts_with("250"));
    assert_eq!(kept.mails.lock().unwrap()[0].recipients.len(), 100);
}

#[tokio::test]
async fn errors_and_commands_have_an_end() {
    let settings = SmtpListenerSettings { commands_max: 20, errors_max: 3, ..Default::default() };
    let (listener, _kept) = listen(settings).await;
    let mut raw = Raw::to(&listener).await;
    raw.send(&b"FOO\r\n".repeat(50)).await;
    let rest = raw.rest().await;
    assert_eq!(rest.matches("500 5.5.1").count(), 3);
    assert!(rest.ends_with("421 4.7.0 too many errors\r\n"), "{rest}");
    let mut raw = Raw::to(&listener).await;
    raw.send(&b"NOOP\r\n".repeat(50)).await;
    let rest = raw.rest().await;
    assert_eq!(rest.matches("250 ").count(), 20);
    assert!(rest.ends_with("421 4.7.0 too many commands, connect again\r\n"), "{rest}");
}

#[tokio::test]
async fn guessing_recipients_ends_with_the_errors() {
    let (listener, _kept) = listen(SmtpListenerSettings::default()).await;
    let mut raw = Raw::to(&listener).await;
    raw.send(b"EHLO me\r\nMAIL FROM:<>\r\n").await;
    raw.send(&b"RCPT TO:<nobody@app.example>\r\n".repeat(30)).await;
    assert_eq!(raw.rest().await.matches("550 5.1.1").count(), 10);
}

#[tokio::test]
async fn slow_clients_are_sent_away_even_if_they_keep_dripping() {
    let (listener, _kept) =
        listen(SmtpListenerSettings { idle_timeout_ms: 50, ..Default::default() }).await;
    let raw = Raw::to(&listener).await;
    assert!(raw.rest().await.starts_with("421 4.4.2"));
    let (listener, kept) =
        listen(SmtpListenerSettings { message_timeout_ms: 50, ..Default::default() }).await;
    // Whole lines, one after the other, do not buy a message more time.
    let mut raw = Raw::in_data(&listener).await;
    let mut answer = [0_u8; 9];
    let dripped = async {
        loop {
            if raw.stream.write_all(b"x\r\n").await.is_err() {
                return;
            }
            tokio::select! {
                _ = raw.stream.read_exact(&mut answer) => return,
                () = tokio::task::yield_now() => {}
            }
        }
    };
    dripped.await;
    assert_eq!(&answer, b"421 4.4.2");
    assert_eq!(kept.count(), 0);
}

#[tokio::test]
async fn one_connection_too_many_is_told_so_and_finds_a_place_later() {
    let settings = SmtpListenerSettings { connections_max: 2, ..Default::default() };
    let (listener, _kept) = listen(settings).await;
    let mut first = Raw::to(&listener).await;
    let _second = Raw::to(&listener).await;
    let stream = TcpStream::connect(listener.local_addr()).await.unwrap();
    assert!(Raw { stream, buffer: Vec::new() }.rest().await.starts_with("421 4.7.0"));
    assert!(first.ask("QUIT").await.starts_with("221"));
    drop(first);
    loop {
        let stream = TcpStream::connect(listener.local_addr()).await.unwrap();
        let mut raw = Raw { stream, buffer: Vec::new() };
        if raw.answer().await.starts_with("220") {
            break;
        }
    }
}

#[tokio::test]
async fn a_browser_that_was_sent_here_is_shown_the_door_before_its_body() {
    let (listener, kept) = listen(SmtpListenerSettings::default()).await;
    let mut raw = Raw::to(&listener).await;
    raw.send(
        b"POST / HTTP/1.1\r\nHost: a\r\n\r\nEHLO me\r\nMAIL FROM:<>\r\nRCPT TO:<x@app.example>\r\nDATA\r\n\
          A: b\r\n\r\n.\r\n",
    )
    .await;
    assert_eq!(raw.rest().await, "521 5.5.1 this is SMTP\r\n");
    assert_eq!(kept.count(), 0);
}

#[tokio::test]
async fn a_message_that_goes_round_in_circles_is_stopped() {
    let (listener, kept) = listen(SmtpListenerSettings::default()).await;
    let mut raw = Raw::in_data(&listener).await;
    raw.send(&[&b"Received: from a\r\n".repeat(101)[..], b"\r\n.\r\n"].concat()).await;
    assert!(raw.answer().await.starts_with("554 5.4.6"));
    assert_eq!(kept.count(), 0);
}
