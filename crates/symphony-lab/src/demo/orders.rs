//! The trigger lane's part of the demo: the example app takes orders over real HTTP, the same worker processes run its
//! scripts, and a catcher keeps its mail. At the end the clients' answers are held against mail and entries.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::mail_catcher::{CaughtMail, MailCatcher};
use futures_util::future::try_join_all;
use serde::Serialize;
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use symphony::db::Database;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::ledger::AppLedger;
use super::operator::PERSON;
use super::story::Story;
use crate::LabError;
use crate::host::{DemoHost, ServedApps, Tone};

/// How many orders are placed.
pub(super) const ORDERS: u32 = 40;
/// Every so manieth order is sent twice, as an impatient customer would.
const SENT_TWICE_OF: u32 = 4;
/// A client that got no answer asks again, this often.
const TRIES_MAX: u64 = 5;
/// Longer than the app lets a client wait.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// The example, as `examples/apps/orders` has it.
const FILES: [(&str, &str); 7] = [
    ("app.json", include_str!("../../apps/orders/app.json")),
    ("scripts/take-order.js", include_str!("../../apps/orders/scripts/take-order.js")),
    ("scripts/show-order.js", include_str!("../../apps/orders/scripts/show-order.js")),
    ("scripts/ask-for-receipt.js", include_str!("../../apps/orders/scripts/ask-for-receipt.js")),
    ("scripts/send-receipt.js", include_str!("../../apps/orders/scripts/send-receipt.js")),
    ("scripts/log-failure.js", include_str!("../../apps/orders/scripts/log-failure.js")),
    ("scripts/count-orders.js", include_str!("../../apps/orders/scripts/count-orders.js")),
];

/// Serves the app and catches its mail. It runs no script: the workers do, and the killed one takes nobody's connection.
pub(super) struct Shop {
    apps: Box<dyn ServedApps>,
    pub(super) mail: MailCatcher,
}

impl Shop {
    pub(super) async fn open(
        host: &dyn DemoHost,
        folder: &Path,
        database: &Database,
        listen: &PgConnectOptions,
    ) -> Result<Self, LabError> {
        let folder = folder.join("orders");
        write_example(&folder).map_err(|error| {
            LabError::new(format!("cannot write {}: {error}", folder.display()))
        })?;
        host.push_app(&database.operator(), &folder, PERSON).await?;
        let mail = MailCatcher::start(Box::new(|_, _| {})).await?;
        Ok(Self { apps: host.serve_apps(database, listen).await?, mail })
    }

    /// The part of the workers' configuration that runs the app and leads its mail here. A script ends within a lease.
    pub(super) fn configuration(&self) -> String {
        let relay = self.mail.address();
        format!(
            "[triggers]\nenabled = true\ntimeout_max_seconds = 1\n\
             [triggers.email]\nfrom = \"Orders <orders@shop.example>\"\n\
             relay = {{ host = \"{}\", port = {}, security = \"plain\" }}\n\n",
            relay.ip(),
            relay.port()
        )
    }

    /// Customers order, over some seconds; what they were told yes to.
    pub(super) async fn sell(
        &self,
        over_seconds: u32,
        story: &Story<'_>,
    ) -> Result<Vec<Placed>, LabError> {
        self.make_a_mistake(story).await?;
        let pause = Duration::from_secs(over_seconds.into()) / ORDERS;
        let placed = try_join_all((0..ORDERS).map(|number| async move {
            sleep(pause * number).await;
            self.place(number).await
        }))
        .await?;
        let asked_again: u64 = placed.iter().map(|order| order.tries - 1).sum();
        story.tell(
            Tone::Good,
            "ordered",
            &format!(
                "{ORDERS} orders over HTTP are taken; {asked_again} requests had to be repeated"
            ),
        )?;
        Ok(placed)
    }

    /// The app's own script refuses what is no order.
    async fn make_a_mistake(&self, story: &Story<'_>) -> Result<(), LabError> {
        match self.ask(&json!({ "id": "o-x", "item": "tea" })).await? {
            (400, _) => story.tell(
                Tone::Good,
                "refused",
                "an order without an email address: 400, by the app's own script",
            ),
            (other, _) => {
                Err(LabError::new(format!("an order without an address was answered {other}")))
            }
        }
    }

    async fn place(&self, number: u32) -> Result<Placed, LabError> {
        let mut order = Placed::new(number);
        let (status, tries) = self.ask(&order.body()).await?;
        order.tries = tries;
        match status {
            201 => {}
            // An answer that was lost: the order is there, and so is its receipt.
            200 if tries > 1 => {}
            other => return Err(LabError::new(format!("order {} was answered {other}", order.id))),
        }
        if number.is_multiple_of(SENT_TWICE_OF) {
            // Known already: it must not make a second receipt.
            let (status, _) = self.ask(&order.body()).await?;
            if status != 200 {
                let id = order.id;
                return Err(LabError::new(format!("order {id}, repeated, was answered {status}")));
            }
        }
        Ok(order)
    }

    /// As a client does it: what was lost with its worker, or came too late, has left nothing behind and is asked again.
    /// Answers the last status, and at which try it came.
    async fn ask(&self, body: &Value) -> Result<(u16, u64), LabError> {
        let mut tries = 1;
        loop {
            match post(self.apps.address(), body).await? {
                502..=504 if tries < TRIES_MAX => tries += 1,
                status => return Ok((status, tries)),
            }
        }
    }

    /// Serve no more; what was caught.
    pub(super) async fn close(self) -> Vec<CaughtMail> {
        self.apps.stop().await;
        self.mail.stop().await
    }
}

fn write_example(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder.join("scripts"))?;
    FILES.iter().try_for_each(|(name, text)| fs::write(folder.join(name), text))
}

/// One request on a connection of its own; the answer's status.
async fn post(address: SocketAddr, body: &Value) -> Result<u16, LabError> {
    let body = body.to_string();
    let request = format!(
        "POST /apps/orders/orders HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = timeout(ANSWER_WITHIN, exchange)
        .await
        .map_err(|_| LabError::new("the app's server does not answer"))??;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.ok_or_else(|| LabError::new("the app's server answered something that is not HTTP"))
}

/// An order a client was told yes to.
#[derive(Debug, Clone)]
pub(super) struct Placed {
    id: String,
    email: String,
    item: String,
    tries: u64,
}

impl Placed {
    fn new(number: u32) -> Self {
        Self {
            id: format!("o-{number:03}"),
            email: format!("customer-{number:03}@shop.example"),
            item: format!("parcel {number:03}"),
            tries: 0,
        }
    }

    /// What is sent, and what the entry must be.
    fn body(&self) -> Value {
        json!({ "id": self.id, "email": self.email, "item": self.item })
    }

    fn is_receipt(&self, mail: &CaughtMail) -> bool {
        mail.subject == format!("Your order {}", self.id)
            && mail.recipients == [self.email.as_str()]
            && mail.text.contains(&self.item)
    }
}

/// What clients, mail and the ledger say, and where they disagree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct OrderProof {
    /// Clients were told yes.
    pub(super) accepted: u64,
    /// Requests that were repeated because their worker was lost or late.
    pub(super) asked_again: u64,
    /// Runs that ended, of all scripts and all mail.
    pub(super) runs: u64,
    /// Of those: FAILED with the worker that was killed.
    pub(super) worker_lost: u64,
    /// Orders with exactly one receipt: must be all.
    pub(super) receipts: u64,
    /// Receipts delivered again under the same Message-ID: mail is at-least-once.
    pub(super) delivered_again: u64,
    /// Orders whose entry is as it was ordered: must be all.
    pub(super) entries: u64,
    /// Mail or entries nobody ordered: must be 0.
    pub(super) strange: u64,
    /// Items that have not ended: must be 0.
    pub(super) pending: u64,
}

/// Compare what clients were told with what was mailed and what was kept.
pub(super) fn judge(placed: &[Placed], mails: &[CaughtMail], ledger: &AppLedger) -> OrderProof {
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let entries: BTreeMap<&str, &Value> =
        ledger.entries.iter().map(|(key, value)| (key.as_str(), value)).collect();
    let mut proof = OrderProof {
        accepted: number(placed.len()),
        asked_again: placed.iter().map(|order| order.tries.saturating_sub(1)).sum(),
        runs: u64::try_from(ledger.runs).unwrap_or(0),
        worker_lost: u64::try_from(ledger.worker_lost).unwrap_or(0),
        pending: u64::try_from(ledger.pending).unwrap_or(u64::MAX),
        ..OrderProof::default()
    };
    let mut expected_mails = 0;
    let mut expected_entries = 0;
    for order in placed {
        let receipts: Vec<&CaughtMail> =
            mails.iter().filter(|mail| order.is_receipt(mail)).collect();
        let ids: BTreeSet<&str> = receipts.iter().map(|mail| mail.message_id.as_str()).collect();
        proof.receipts += u64::from(ids.len() == 1);
        proof.delivered_again += number(receipts.len() - ids.len());
        expected_mails += receipts.len();
        if let Some(entry) = entries.get(format!("order/{}", order.id).as_str()) {
            expected_entries += 1;
            proof.entries += u64::from(**entry == order.body());
        }
    }
    proof.strange = number(mails.len().saturating_sub(expected_mails))
        + number(entries.len().saturating_sub(expected_entries));
    proof
}

impl OrderProof {
    /// What is not as it must be.
    pub(super) fn wrong(&self) -> Vec<&'static str> {
        [
            ("no order was accepted", self.accepted == 0),
            ("orders without exactly one receipt", self.receipts != self.accepted),
            ("orders without their entry", self.entries != self.accepted),
            ("mail or entries nobody ordered", self.strange != 0),
            ("items of the app are left over", self.pending != 0),
        ]
        .into_iter()
        .filter_map(|(problem, wrong)| wrong.then_some(problem))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt(order: &Placed, message_id: &str) -> CaughtMail {
        CaughtMail {
            message_id: message_id.to_owned(),
            recipients: vec![order.email.clone()],
            subject: format!("Your order {}", order.id),
            text: format!("Thank you. You ordered: {}\n", order.item),
        }
    }

    fn entry(order: &Placed) -> (String, Value) {
        (format!("order/{}", order.id), order.body())
    }

    #[test]
    fn every_kind_of_lie_about_orders_is_found() {
        let (first, second) = (Placed::new(1), Placed::new(2));
        let placed = [first.clone(), second.clone()];
        let mails = [receipt(&first, "a"), receipt(&second, "b")];
        let ledger = |entries: &[(String, Value)], pending| AppLedger {
            entries: entries.to_vec(),
            pending,
            runs: 8,
            worker_lost: 0,
        };
        let both = [entry(&first), entry(&second)];
        let wrong =
            |mails: &[CaughtMail], ledger: &AppLedger| judge(&placed, mails, ledger).wrong();
        let with = |more: CaughtMail| [mails.to_vec(), vec![more]].concat();
        assert!(wrong(&mails, &ledger(&both, 0)).is_empty());
        let again = judge(&placed, &with(receipt(&second, "b")), &ledger(&both, 0));
        assert!(again.wrong().is_empty(), "the same message again is the same receipt");
        assert_eq!(again.delivered_again, 1);

        let no_single_receipt = ["orders without exactly one receipt"];
        assert_eq!(wrong(&with(receipt(&second, "c")), &ledger(&both, 0)), no_single_receipt);
        assert_eq!(wrong(&[receipt(&first, "a")], &ledger(&both, 0)), no_single_receipt);
        let strange = ["mail or entries nobody ordered"];
        assert_eq!(wrong(&with(receipt(&Placed::new(3), "c")), &ledger(&both, 0)), strange);
        let third = [&both[..], &[entry(&Placed::new(3))]].concat();
        assert_eq!(wrong(&mails, &ledger(&third, 0)), strange);
        let other = [entry(&first), (format!("order/{}", second.id), first.body())];
        assert_eq!(wrong(&mails, &ledger(&other, 0)), ["orders without their entry"]);
        assert_eq!(wrong(&mails, &ledger(&both, 1)), ["items of the app are left over"]);
        let nothing = judge(&[], &[], &ledger(&[], 0));
        assert_eq!(nothing.wrong(), ["no order was accepted"]);
    }
}
