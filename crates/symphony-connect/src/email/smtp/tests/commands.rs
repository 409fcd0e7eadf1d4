use super::super::commands::{Command, parse};

#[test]
fn commands_are_read_as_rfc_5321_writes_them() {
    let mail = |from: Option<&str>, size, is_utf8| {
        Ok(Command::Mail { from: from.map(str::to_owned), size, is_utf8 })
    };
    let to = |path: &str| Ok(Command::Recipient { path: path.to_owned() });
    let syntax = || Err("501 5.5.4 syntax error in parameters");
    let bad = || Err("501 5.1.3 not a mail address");
    for (line, is_utf8, expected) in [
        ("MAIL FROM:<a@b.example>", false, mail(Some("a@b.example"), None, false)),
        ("mail from: <a@b.example>", false, mail(Some("a@b.example"), None, false)),
        ("MAIL FROM:<>", false, mail(None, None, false)),
        ("MAIL FROM:<> SIZE=12 BODY=8BITMIME", false, mail(None, Some(12), false)),
        ("MAIL FROM:<> size=99999999999999999999", false, mail(None, Some(u64::MAX), false)),
        ("MAIL FROM:<é@b.example> SMTPUTF8", false, mail(Some("é@b.example"), None, true)),
        ("MAIL FROM:<é@b.example>", false, Err("553 5.6.7 such an address needs SMTPUTF8")),
        ("MAIL FROM:<> SIZE=", false, syntax()),
        ("MAIL FROM:<> SIZE=-1", false, syntax()),
        ("MAIL FROM:<> SIZE=1 SIZE=2", false, syntax()),
        ("MAIL FROM:<> BODY=BINARYMIME", false, syntax()),
        ("MAIL FROM:<> AUTH=<>", false, Err("555 5.5.4 parameter not recognized")),
        ("MAIL FROM:<a@b>x", false, syntax()),
        ("MAIL <a@b>", false, syntax()),
        ("RCPT TO:<x@y.example>", false, to("x@y.example")),
        ("RCPT TO:<@relay.example,@other:x@y.example>", false, to("x@y.example")),
        ("RCPT TO:<\"a > b\"@y.example>", false, to("\"a > b\"@y.example")),
        ("RCPT TO:<x@[127.0.0.1]>", false, to("x@[127.0.0.1]")),
        ("RCPT TO:<Postmaster>", false, to("Postmaster")),
        ("RCPT TO:<é@y.example>", true, to("é@y.example")),
        ("RCPT TO:<>", false, bad()),
        ("RCPT TO:x@y.example", false, bad()),
        ("RCPT TO:<x@y.example", false, bad()),
        ("RCPT TO:<x y@z.example>", false, bad()),
        ("RCPT TO:<x@y@z.example>", false, bad()),
        ("RCPT TO:<x@.example>", false, bad()),
        ("RCPT TO:<\"a\"b\"@y.example>", false, bad()),
        ("RCPT TO:<x@y.example> NOTIFY=NEVER", false, Err("555 5.5.4 parameter not recognized")),
        ("DATA now", false, syntax()),
        ("EHLO", false, Err("501 5.5.4 say your name: EHLO host.example")),
        ("NOOP\tx", false, Err("500 5.5.2 control characters in a command")),
        ("STARTTLS", false, Ok(Command::NotOffered)),
        ("POST / HTTP/1.1", false, Ok(Command::Foreign)),
        ("Host: localhost", false, Ok(Command::Foreign)),
        ("", false, Err("500 5.5.1 command not recognized")),
    ] {
        assert_eq!(parse(line.as_bytes(), is_utf8), expected, "{line}");
    }
    let long = format!("RCPT TO:<{}@y.example>", "x".repeat(65));
    assert_eq!(parse(long.as_bytes(), false), bad());
    assert!(parse(b"NOOP \xff", false).is_err());
}
