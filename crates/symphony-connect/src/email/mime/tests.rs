#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use super::{ATTACHMENTS_BYTES_MAX, ParseError, parse_mail};

const WHOLE: &str = "Message-ID: <id-1@b.example>\r
From: =?UTF-8?Q?J=C3=BCrgen?= <j@b.example>\r
To: A <a@x.example>, b@x.example\r
Cc: \"C, D\" <c@x.example>\r
Subject: =?ISO-8859-1?Q?Gr=FC=DFe?=\r
Date: Tue, 1 Jul 2025 10:52:37 +0200\r
X-Long: one\r
  two\r
MIME-Version: 1.0\r
Content-Type: multipart/mixed; boundary=\"outer\"\r
\r
preamble\r
--outer\r
Content-Type: multipart/alternative; boundary=inner\r
\r
--inner\r
Content-Type: text/plain; charset=iso-8859-1\r
Content-Transfer-Encoding: quoted-printable\r
\r
caf=E9\r
--inner\r
Content-Type: text/html; charset=utf-8\r
Content-Transfer-Encoding: base64\r
\r
PGI+aMOpPC9iPg==\r
--inner--\r
\r
--outer\r
Content-Type: text/plain; name=\"notes.txt\"\r
Content-Disposition: attachment; filename=\"notes.txt\"\r
\r
attached\r
--outer\r
Content-Type: message/rfc822\r
\r
Subject: inside\r
\r
inner text\r
--outer--\r
";

#[test]
fn a_message_becomes_what_scripts_read() {
    let parsed = serde_json::to_value(parse_mail(WHOLE.as_bytes()).unwrap()).unwrap();
    let mut expected = json!({
        "messageId": "id-1@b.example",
        "from": {"name": "Jürgen", "address": "j@b.example"},
        "to": [{"name": "A", "address": "a@x.example"}, {"name": null, "address": "b@x.example"}],
        "cc": [{"name": "C, D", "address": "c@x.example"}],
        "subject": "Grüße",
        "date": "2025-07-01T10:52:37+02:00",
        "text": "café",
        "html": "<b>hé</b>",
        "attachments": [
            {"name": "notes.txt", "contentType": "text/plain", "bytes": 8,
             "contentBase64": "YXR0YWNoZWQ="},
            {"name": null, "contentType": "message/rfc822", "bytes": 29,
             "contentBase64": BASE64_STANDARD.encode("Subject: inside\r\n\r\ninner text")},
        ],
        "truncated": false,
    });
    for (at, content) in ["attached", "Subject: inside\r\n\r\ninner text"].iter().enumerate() {
        expected["attachments"][at]["sha256"] = crate::email::sha256_hex(content.as_bytes()).into();
    }
    let headers = parsed["headers"].clone();
    expected["headers"] = headers.clone();
    assert_eq!(parsed, expected);
    assert_eq!(headers.as_array().unwrap().len(), 9);
    assert_eq!(headers[4], json!(["Subject", "=?ISO-8859-1?Q?Gr=FC=DFe?="]));
    assert_eq!(headers[6], json!(["X-Long", "one  two"]));
}

#[test]
fn checksums_are_those_of_sha_256() {
    let of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(crate::email::sha256_hex(b"abc"), of_abc);
}

#[test]
fn lines_may_end_with_lf_when_a_message_comes_over_http() {
    let parsed = parse_mail(WHOLE.replace('\r', "").as_bytes()).unwrap();
    assert_eq!(parsed.text.as_deref(), Some("café"));
    assert_eq!(parsed.attachments.len(), 2);
}

#[test]
fn dates_that_do_not_exist_are_none() {
    for (date, expected) in [
        ("Mon, 30 Feb 2026 10:00:00 +0000", None),
        ("yesterday", None),
        ("1 Jan 2026 25:00:00 +0000", None),
        ("1 Jan 2026 05:06:07 -0130", Some("2026-01-01T05:06:07-01:30")),
    ] {
        let parsed = parse_mail(format!("Date: {date}\r\n\r\n").as_bytes()).unwrap();
        assert_eq!(parsed.date.as_deref(), expected, "{date}");
    }
}

#[test]
fn nothing_postgresql_cannot_store_as_json_comes_out() {
    let raw = "Subject: a\0b =?utf-8?Q?c=00d?=\r\nFrom: x\0 <y\0@z>\r\nX\0: \0\r\n\
               Content-Type: text/plain; charset=utf-16\r\n\r\n\0\0\u{1}a\0\r\n";
    let json = serde_json::to_string(&parse_mail(raw.as_bytes()).unwrap()).unwrap();
    assert!(!json.contains("\\u00"), "{json}");
}

#[test]
fn large_attachments_are_told_of_but_not_contained() {
    for (bytes, has_content) in [(ATTACHMENTS_BYTES_MAX, true), (ATTACHMENTS_BYTES_MAX + 1, false)]
    {
        let head = "Content-Type: application/pdf\r\nContent-Transfer-Encoding: base64\r\n\r\n";
        let raw = format!("{head}{}", BASE64_STANDARD.encode(vec![7_u8; bytes]));
        let parsed = parse_mail(raw.as_bytes()).unwrap();
        assert_eq!(parsed.attachments[0].bytes, bytes);
        assert_eq!(parsed.attachments[0].content_base64.is_some(), has_content);
    }
}

#[test]
fn what_is_no_message_is_refused() {
    assert_eq!(parse_mail(b""), Err(ParseError::NoHeaders));
    assert_eq!(parse_mail(b"\r\n\r\nhello"), Err(ParseError::NoHeaders));
    let long = "X: y\r\n".repeat(50_000);
    assert_eq!(parse_mail(long.as_bytes()), Err(ParseError::HeadTooLarge));
}

/// Messages that are meant to hurt, each about 1 MiB if it can be.
fn hostile() -> Vec<(&'static str, Vec<u8>)> {
    const BYTES: usize = 1 << 20;
    let fill = |line: &str| line.repeat(BYTES / line.len());
    let many: Vec<String> = (0..20_000)
        .map(|n| format!("Content-Type: multipart/mixed; boundary=b{n}\r\n\r\n--b{n}\r\n"))
        .collect();
    let inner = fill("Content-Type: message/rfc822\r\n\r\n");
    let hidden = "Content-Type: message/rfc822\r\nContent-Transfer-Encoding: base64\r\n\r\n";
    let mixed = "Content-Type: multipart/mixed; boundary=b\r\n\r\n";
    let latin = "Content-Type: text/plain; charset=windows-1252\r\n\r\n";
    let list = "x <y@z>, ";
    vec![
        ("messages in messages", inner.clone().into_bytes()),
        ("the same in base64", format!("{hidden}{}", BASE64_STANDARD.encode(&inner)).into_bytes()),
        ("multiparts in multiparts", many.concat().into_bytes()),
        ("parts and parts", format!("{mixed}{}", fill("--b\r\n\r\n")).into_bytes()),
        (
            "multiparts without an end",
            format!("{mixed}{}", fill("--b\r\nContent-Type: multipart/x; boundary=z\r\n\r\n"))
                .into_bytes(),
        ),
        (
            "a digest",
            format!(
                "Content-Type: multipart/digest; boundary=b\r\n\r\n{}",
                fill("--b\r\n\r\n\r\n")
            )
            .into_bytes(),
        ),
        ("controls", format!("A: b\r\n\r\n{}", fill("\u{1}")).into_bytes()),
        ("quotes", format!("A: b\r\n\r\n{}", fill("\"\\")).into_bytes()),
        ("what is long in UTF-8", [latin.as_bytes(), &vec![0x80; BYTES]].concat()),
        ("what is not UTF-8", [&b"A: b\r\n\r\n"[..], &vec![0xff; BYTES]].concat()),
        ("encoded words", format!("Subject: {}\r\n\r\n", "=?".repeat(100_000)).into_bytes()),
        ("words", format!("Subject: {}\r\n\r\n", "=?utf-8?Q?".repeat(20_000)).into_bytes()),
        ("addresses", format!("To: {}\r\n\r\n", list.repeat(20_000)).into_bytes()),
        ("comments", format!("To: {}\r\n\r\n", "(".repeat(200_000)).into_bytes()),
        ("groups", format!("To: {}\r\n\r\n", "a:<".repeat(60_000)).into_bytes()),
        ("hops", "Received: from (((\r\n".repeat(10_000).into_bytes()),
        (
            "parameters",
            format!("Content-Type: a/b{}\r\n\r\n", "; c*0*=\"d".repeat(20_000)).into_bytes(),
        ),
        ("names", format!("{}: x\r\n\r\n", "N".repeat(200_000)).into_bytes()),
        (
            "an empty boundary",
            format!("Content-Type: multipart/mixed; boundary=\"\"\r\n\r\n{}", fill("--\r\n"))
                .into_bytes(),
        ),
    ]
}

/// Twice what came in and a fixed allowance, keys and checksums of a hundred parts included.
fn bound(raw: &[u8]) -> usize {
    raw.len() * 2 + (128 << 10)
}

#[test]
fn hostile_messages_cost_neither_the_process_nor_much_time_nor_much_space() {
    for (what, raw) in hostile() {
        let started = std::time::Instant::now();
        let parsed = parse_mail(&raw);
        assert_ne!(parsed, Err(ParseError::Unreadable), "{what}");
        let took = started.elapsed();
        // Without optimization and on a busy machine; what is quadratic takes minutes.
        assert!(took.as_secs() < 10, "{what} took {took:?}");
        if let Ok(parsed) = parsed {
            let bytes = serde_json::to_vec(&parsed).unwrap().len();
            assert!(bytes <= bound(&raw), "{what}: {bytes} of {}", raw.len());
            assert!(parsed.attachments.len() <= 100, "{what}");
        }
    }
}

#[test]
fn malformed_and_mutated_messages_never_panic_and_stay_bounded() {
    let mut seed = 0x5eed_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    let tokens: [&[u8]; 16] = [
        b"\r\n",
        b"\n",
        b"\r",
        b"--outer",
        b"--inner--",
        b"=?",
        b"?=",
        b"\0",
        b"\xff\xfe",
        b"\"",
        b";",
        b"(",
        b"<",
        b"=\r\n",
        b"Content-Type: message/rfc822\r\n",
        b"base64",
    ];
    let mut corpus: Vec<Vec<u8>> = vec![WHOLE.as_bytes().to_vec()];
    corpus.extend(hostile().into_iter().map(|(_, raw)| raw[..raw.len().min(1_500)].to_vec()));
    for round in 0..20_000 {
        let mut raw = corpus[random(corpus.len())].clone();
        for _ in 0..=random(8) {
            let at = random(raw.len().max(1)).min(raw.len());
            match random(4) {
                0 if !raw.is_empty() => raw[at] = u8::try_from(random(256)).unwrap(),
                1 => raw.truncate(at),
                2 => drop(raw.splice(at..at, tokens[random(tokens.len())].iter().copied())),
                _ => {
                    let end = (at + random(40)).min(raw.len());
                    raw.drain(at..end);
                }
            }
        }
        let parsed = parse_mail(&raw);
        assert_ne!(parsed, Err(ParseError::Unreadable), "round {round}: {raw:?}");
        if let Ok(parsed) = parsed {
            assert!(serde_json::to_vec(&parsed).unwrap().len() <= bound(&raw), "round {round}");
        }
    }
}
