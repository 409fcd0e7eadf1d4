//! What stands between a dispatcher and SNS: an HTTP proxy that fails publish calls before or after SNS has taken them,
//! or for one entry of a batch; now and then it lets them arrive when their sender has long given up.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::stage::Stage;
use crate::payments::chaos::dice::Dice;

/// Longer than a dispatcher waits for SNS.
const TOO_LATE: Duration = Duration::from_millis(3_500);

#[derive(Debug, Clone, Copy)]
enum Fault {
    None,
    /// An error, and SNS never saw the call.
    Refused,
    Throttled,
    /// The connection is cut before SNS has seen the call, or after it was taken.
    CutBefore,
    CutAfter,
    Delayed(Duration),
    /// One entry of the batch never arrives, and the answer says that it failed.
    OneMissing,
    /// One entry is taken, and the answer says that it failed.
    OneDenied,
}

/// Where dispatchers find SNS.
pub async fn proxy(stage: &Arc<Stage>, upstream: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let dice = Arc::new(Mutex::new(Dice::of(stage.seed, "SNS")));
    let stage = stage.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(carry(client, upstream, dice.clone(), stage.clone()));
        }
    });
    port
}

fn draw(dice: &Mutex<Dice>) -> (Fault, &'static str) {
    let mut dice = dice.lock().unwrap();
    match dice.between(1, 1000) {
        1..=30 => (Fault::Refused, "refused"),
        31..=50 => (Fault::Throttled, "throttled"),
        51..=65 => (Fault::CutBefore, "cut before"),
        66..=90 => (Fault::CutAfter, "cut after"),
        91..=150 => (Fault::Delayed(dice.duration_ms(20, 400)), "delayed"),
        151..=156 => (Fault::Delayed(TOO_LATE), "too late"),
        157..=210 => (Fault::OneMissing, "one missing"),
        211..=264 => (Fault::OneDenied, "one denied"),
        _ => (Fault::None, ""),
    }
}

async fn carry(client: TcpStream, upstream: u16, dice: Arc<Mutex<Dice>>, stage: Arc<Stage>) {
    let mut client = BufReader::new(client);
    // One call per connection. A client that goes away half way has said nothing.
    let Some((head, mut body)) = request(&mut client).await else { return };
    let is_publish = body.starts_with("Action=PublishBatch");
    let (mut fault, mut name) = if is_publish { draw(&dice) } else { (Fault::None, "") };
    let last = body.matches(".MessageDeduplicationId=").count();
    if matches!(fault, Fault::OneMissing | Fault::OneDenied) && last < 2 {
        (fault, name) = (Fault::None, "");
    }
    if !name.is_empty() {
        stage.tally.add(name);
    }
    let answer = match fault {
        Fault::Refused => error(500, "Receiver", "InternalError"),
        Fault::Throttled => error(400, "Sender", "Throttled"),
        Fault::CutBefore => return,
        Fault::None => call(upstream, &head, &body).await,
        Fault::CutAfter => {
            call(upstream, &head, &body).await;
            return;
        }
        Fault::Delayed(delay) => {
            wait(delay).await;
            call(upstream, &head, &body).await
        }
        Fault::OneMissing => {
            let of_it = format!("PublishBatchRequestEntries.member.{last}.");
            let rest: Vec<_> = body.split('&').filter(|part| !part.starts_with(&of_it)).collect();
            body = rest.join("&");
            with_failure(&call(upstream, &head, &body).await, last - 1)
        }
        Fault::OneDenied => with_failure(&call(upstream, &head, &body).await, last - 1),
    };
    // Whether the client is still there is what is tried here.
    let _gone = client.write_all(answer.as_bytes()).await;
    let _gone = client.shutdown().await;
}

/// Head and body; the head without its last, empty line.
pub async fn request(client: &mut BufReader<TcpStream>) -> Option<(Vec<String>, String)> {
    let (mut head, mut length) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        if client.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
        head.push(line);
    }
    let mut body = vec![0; length];
    client.read_exact(&mut body).await.ok()?;
    Some((head, String::from_utf8(body).ok()?))
}

/// The whole answer of the broker.
pub async fn call(upstream: u16, head: &[String], body: &str) -> String {
    let mut server = TcpStream::connect(("127.0.0.1", upstream)).await.unwrap();
    let ours = ["content-length", "connection"];
    let kept = head.iter().filter(|line| {
        let name = line.split(':').next().unwrap().to_lowercase();
        !ours.contains(&name.as_str())
    });
    let mut text = kept.fold(String::new(), |text, line| text + line + "\r\n");
    text += &format!("Connection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    server.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

/// An answer that says that this entry failed, whatever it said before.
fn with_failure(answer: &str, entry: usize) -> String {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let mut taken = String::new();
    for member in body.split("<member>").skip(1) {
        let member = member.split("</member>").next().unwrap();
        if !member.contains(&format!("<Id>{entry}</Id>")) {
            taken += &format!("<member>{member}</member>");
        }
    }
    let xml = format!(
        "<PublishBatchResponse xmlns=\"http://sns.amazonaws.com/doc/2010-03-31/\"><PublishBatchResult><Successful>{taken}</Successful>\
         <Failed><member><Id>{entry}</Id><Code>InternalError</Code><Message>told to fail</Message><SenderFault>false</SenderFault>\
         </member></Failed></PublishBatchResult><ResponseMetadata><RequestId>x</RequestId></ResponseMetadata></PublishBatchResponse>"
    );
    response(200, &xml)
}

pub fn error(status: u16, kind: &str, code: &str) -> String {
    let xml = format!(
        "<ErrorResponse xmlns=\"http://sns.amazonaws.com/doc/2010-03-31/\"><Error><Type>{kind}</Type><Code>{code}</Code>\
         <Message>told to fail</Message></Error><RequestId>x</RequestId></ErrorResponse>"
    );
    response(status, &xml)
}

fn response(status: u16, xml: &str) -> String {
    format!(
        "HTTP/1.1 {status} X\r\nContent-Type: text/xml\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{xml}",
        xml.len()
    )
}

/// A delay that is a fault, not a wait for something to have happened.
pub async fn wait(delay: Duration) {
    let _elapsed = tokio::time::timeout(delay, std::future::pending::<()>()).await;
}
