//! Mail in by a real SMTP client, mail out to a real SMTP server.

use std::sync::{Arc, Mutex};

use serde_json::json;
use symphony_connect::email::{
    DeliveryError, InboundMail, Mailbox, SmtpListener, SmtpListenerSettings,
};

use super::{Platform, request, script, trigger};
use crate::support::processes::python_or_skip;
use crate::support::{TestDb, until};

/// Takes everything.
#[derive(Default)]
struct PostOffice(Mutex<Vec<InboundMail>>);

#[async_trait::async_trait]
impl Mailbox for PostOffice {
    async fn knows(&self, _recipient: &str) -> Result<bool, String> {
        Ok(true)
    }

    async fn deliver(&self, mail: InboundMail) -> Result<(), DeliveryError> {
        self.0.lock().unwrap().push(mail);
        Ok(())
    }
}

const SEND: &str = r"
import smtplib, sys
from email.message import EmailMessage
message = EmailMessage()
message['From'], message['To'], message['Subject'] = 'ann@example.com', sys.argv[2], 'Grüße'
message.set_content('Hello, shop')
try:
    with smtplib.SMTP('127.0.0.1', int(sys.argv[1])) as client:
        client.send_message(message)
    print('taken')
except smtplib.SMTPRecipientsRefused as refused:
    print(list(refused.recipients.values())[0][0])
";

async fn send(port: u16, recipient: &str) -> String {
    let sent = tokio::process::Command::new("python3")
        .args(["-c", SEND, &port.to_string(), recipient])
        .output()
        .await
        .unwrap();
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    String::from_utf8(sent.stdout).unwrap().trim().to_owned()
}

#[tokio::test]
async fn mail_fires_its_script_which_answers_by_mail() {
    python_or_skip!();
    let db = TestDb::new().await;
    let office = Arc::new(PostOffice::default());
    let relay = SmtpListener::bind(
        "127.0.0.1:0".parse().unwrap(),
        SmtpListenerSettings::default(),
        office.clone(),
    )
    .await
    .unwrap();
    db.push("shop", &json!({
        "scripts": [script("reply", "export default r => {
            const { message } = r.payload.mail;
            email.send({ to: message.from.address, subject: 'Re: ' + message.subject, text: 'We have: ' + message.text.trim() });
        }")],
        "triggers": [trigger("in", "email", "orders@*", "reply")],
    }))
    .await;
    let port = relay.local_addr().port();
    let settings = format!(
        "[triggers.email]\nlisten = '127.0.0.1:0'\nfrom = 'Shop <shop@example.com>'\n\
         relay = {{ host = '127.0.0.1', port = {port}, security = 'plain' }}\n"
    );
    let platform = Platform::start_with_mail(&db, &settings).await;
    assert_eq!(send(platform.smtp().port(), "nobody@example.com").await, "550");
    assert_eq!(send(platform.smtp().port(), "orders@example.com").await, "taken");
    until("the answer has arrived", async || office.0.lock().unwrap().len() == 1).await;
    {
        let mail = office.0.lock().unwrap();
        let mail = symphony_connect::email::parse_mail(&mail[0].raw).unwrap();
        let mail = serde_json::to_value(&mail).unwrap();
        assert_eq!(mail["subject"], "Re: Grüße");
        assert_eq!(mail["to"][0]["address"], "ann@example.com");
        assert!(mail["text"].as_str().unwrap().contains("We have: Hello, shop"), "{mail}");
    }
    until("it is written down", async || db.is_idle().await).await;
    assert_eq!(db.count("trigger_outbox_executions WHERE state = 'DISPATCHED'").await, 2);
    platform.stop().await;
    relay.stop().await;
}

#[tokio::test]
async fn a_raw_message_over_http_fires_the_same_triggers() {
    let db = TestDb::new().await;
    db.push("shop", &json!({
        "scripts": [script("keep", "export default r => { kv.set(r.payload.recipient, r.payload.mail.message.subject) }")],
        "triggers": [trigger("in", "email", "orders@example.com", "keep")],
    }))
    .await;
    let platform = Platform::start(&db).await;
    let raw =
        "From: ann@example.com\r\nTo: orders@example.com\r\nSubject: One pair\r\n\r\nHello\r\n";
    for (recipient, status) in [("nobody@example.com", 404), ("Orders@example.com", 204)] {
        let answer =
            request(platform.http(), "POST", &format!("/mail/{recipient}"), raw).await.unwrap();
        assert_eq!(answer.status, status, "{recipient}: {}", answer.body);
    }
    until("it has run", async || db.count("kv_entries").await == 1).await;
    assert_eq!(db.one::<String>("SELECT value::text FROM kv_entries").await, "\"One pair\"");
    platform.stop().await;
}
