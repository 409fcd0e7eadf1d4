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
            email.send({ to: message.from.address, subject: 'Re: ' + message.subject, text: 'We have: ' + message.text.trim(),
                html: '<p>We have it</p>', cc: 'c@example.com', bcc: ['b@example.com'], replyTo: 'office@example.com',
                attachments: [{ name: 'receipt.bin', content: new Uint8Array([0, 255]) }] });
        }")],
        "triggers": [trigger("in", "email", "orders@example.com", "reply")],
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
        assert_eq!(mail[0].recipients, ["ann@example.com", "c@example.com", "b@example.com"]);
        let mail = symphony_connect::email::parse_mail(&mail[0].raw).unwrap();
        let mail = serde_json::to_value(&mail).unwrap();
        assert_eq!(mail["subject"], "Re: Grüße");
        assert_eq!(mail["to"][0]["address"], "ann@example.com");
        assert!(mail["text"].as_str().unwrap().contains("We have: Hello, shop"), "{mail}");
        assert!(mail["html"].as_str().unwrap().contains("<p>We have it</p>"), "{mail}");
        assert_eq!(mail["cc"][0]["address"], "c@example.com");
        assert_eq!(mail["attachments"][0]["contentBase64"], "AP8=");
        // As a whole address: a Message-ID may end in any letter before the domain.
        let hidden = "b@example.com";
        assert!(!mail.to_string().contains(&format!("\"{hidden}\"")), "{mail}");
        assert!(!mail.to_string().contains(&format!("<{hidden}>")), "{mail}");
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

const ANSWER: &str = r"
import smtplib, sys
answer = 'From: robot@example.com\r\nTo: shop@example.com\r\nSubject: Re\r\nIn-Reply-To: <' + sys.argv[2] + '>\r\n\r\nthank you\r\n'
with smtplib.SMTP('127.0.0.1', int(sys.argv[1])) as client:
    client.sendmail('robot@example.com', ['shop@example.com'], answer)
";

/// An app that answers mail, and its office, which is given what it sends.
async fn an_app_that_answers(
    db: &TestDb,
    rates: &str,
) -> (Platform, SmtpListener, Arc<PostOffice>) {
    let office = Arc::new(PostOffice::default());
    let address = "127.0.0.1:0".parse().unwrap();
    let relay = SmtpListener::bind(address, SmtpListenerSettings::default(), office.clone());
    let relay = relay.await.unwrap();
    db.push("shop", &json!({
        "scripts": [script("reply", "export default () => { email.send({ to: 'robot@example.com', subject: 'Re', text: 'thank you' }) }")],
        "triggers": [trigger("in", "email", "shop@example.com", "reply")],
    }))
    .await;
    let port = relay.local_addr().port();
    let settings = format!(
        "[triggers.email]\nlisten = '127.0.0.1:0'\nfrom = 'Shop <shop@example.com>'\n{rates}\n\
         relay = {{ host = '127.0.0.1', port = {port}, security = 'plain' }}\n"
    );
    (Platform::start_with_mail(db, &settings).await, relay, office)
}

#[tokio::test]
async fn a_robot_that_does_not_say_that_it_is_one_ends_at_the_depth_when_it_answers() {
    python_or_skip!();
    let db = TestDb::new().await;
    let (platform, relay, office) = an_app_that_answers(&db, "").await;
    assert_eq!(send(platform.smtp().port(), "shop@example.com").await, "taken");
    let mut answered = 0;
    while answered < 20 {
        let sent = async || office.0.lock().unwrap().len() > answered;
        until("it has answered, or is done", async || sent().await || db.is_idle().await).await;
        if !sent().await {
            break;
        }
        let raw = office.0.lock().unwrap()[answered].raw.clone();
        let mail =
            serde_json::to_value(symphony_connect::email::parse_mail(&raw).unwrap()).unwrap();
        let port = platform.smtp().port().to_string();
        let args = ["-c", ANSWER, &port, mail["messageId"].as_str().unwrap()];
        let robot = tokio::process::Command::new("python3").args(args).output().await.unwrap();
        assert!(robot.status.success(), "{}", String::from_utf8_lossy(&robot.stderr));
        answered += 1;
    }
    assert_eq!(answered, 4, "mail in at 0, 2, 4, 6 and 8 is run; what that sends is too deep");
    let deep = "trigger_outbox_executions WHERE error_code = 'TRIGGER_DEPTH_EXCEEDED'";
    assert_eq!(db.count(deep).await, 1);
    platform.stop().await;
    relay.stop().await;
}

#[tokio::test]
async fn a_robot_that_names_nothing_is_put_off_after_so_many_an_hour() {
    python_or_skip!();
    let db = TestDb::new().await;
    let rates = "automatic_per_hour_max = 1\nper_hour_max = 3\naddress_per_hour_max = 4";
    let (platform, relay, _) = an_app_that_answers(&db, rates).await;
    let port = platform.smtp().port();
    for _ in 0..3 {
        assert_eq!(send(port, "shop@example.com").await, "taken");
    }
    let more = tokio::process::Command::new("python3")
        .args(["-c", SEND, &port.to_string(), "shop@example.com"])
        .output()
        .await
        .unwrap();
    let told = String::from_utf8_lossy(&more.stderr);
    assert!(told.contains("SMTPDataError: (451"), "{told}");
    let counted = "SELECT array_agg(sender || ' ' || mails ORDER BY sender) FROM mail_counts";
    assert_eq!(db.one::<Vec<String>>(counted).await, [" 3", "ann@example.com 3"]);
    until("everything has run", async || db.is_idle().await).await;
    platform.stop().await;
    relay.stop().await;
}
