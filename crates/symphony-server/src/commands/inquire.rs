//! `symphony inquire`: have the rail asked now what became of a payment, and wait for its answer.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::json;
use symphony::db::{Auditor, InquiryAnswer, PaymentLife};

use super::acts::{self, Verb};
use super::show;
use super::suggested_command::symphony;
use crate::bounds::INQUIRY_POLL;
use crate::cli::{Global, Inquire};
use crate::output::{self, Failure};

const INQUIRE: Verb = Verb { would: "ask the rail about", done: "asked the rail about" };

pub(super) async fn run(global: &Global, options: &Inquire) -> Result<ExitCode, Failure> {
    let act = acts::approved_act(&options.item.act)?;
    acts::as_operator(global, async |operator| {
        let reader = operator.reader();
        let item = acts::one_item(&reader, &options.item.id).await?;
        let answer = operator.inquire(item.outbox_id, &act).await.map_err(acts::in_options)?;
        if answer.dry_run {
            let becomes = if answer.state_before == "PARKED" {
                "what the rail knows is written down; otherwise it is parked again, and nothing is sent"
            } else {
                "its next step is taken now and not at its next try"
            };
            return acts::tell(
                global,
                &INQUIRE,
                acts::REPEAT,
                &answer,
                &acts::in_words(&item),
                becomes,
            );
        }
        let wait = Duration::from_secs(u64::from(options.wait));
        let (life, answered) = heard(&reader, &answer, wait).await?;
        if global.json {
            output::json(&json!({ "act": "inquire", "answered": answered, "life": life }))?;
        } else {
            output::print(&told(&life, answered))?;
        }
        Ok(if answered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
    .await
}

/// Its life, once the ledger has an outcome more, or when the time is up.
async fn heard(
    reader: &Auditor,
    asked: &InquiryAnswer,
    wait: Duration,
) -> Result<(PaymentLife, bool), Failure> {
    let started = Instant::now();
    loop {
        let Some(life) = reader.payment_life(asked.outbox_id).await? else {
            return Err(Failure::new("the item is gone").with_code("P7007"));
        };
        let last = life.attempts.last().map_or(0, |attempt| attempt.attempt_no);
        if last > asked.attempts_before {
            return Ok((life, true));
        }
        if started.elapsed() >= wait {
            return Ok((life, false));
        }
        tokio::time::sleep(INQUIRY_POLL).await;
    }
}

fn told(life: &PaymentLife, answered: bool) -> String {
    let id = life.instruction.outbox_id;
    if !answered {
        let mut text = format!(
            "nobody has asked yet about {id}; it is asked about when a worker comes to it\n"
        );
        if let Some(live) = &life.live {
            for line in show::waits_for(life, live) {
                text.push_str(&format!("  {line}\n"));
            }
        }
        return text;
    }
    let last = life.attempts.last();
    let field = |name: &str, value: Option<&String>| {
        value.map(|value| format!(", {name} {}", output::plain(value))).unwrap_or_default()
    };
    let said = format!(
        "{}{}{}{}",
        field("reference", last.and_then(|last| last.rail_reference.as_ref())),
        field("rail code", last.and_then(|last| last.rail_code.as_ref())),
        field("error", last.and_then(|last| last.error_code.as_ref())),
        last.and_then(|last| last.error_message.as_ref())
            .map(|message| format!(" ({})", output::plain(message)))
            .unwrap_or_default()
    );
    let mut text = format!("{id} is {}{said}\n", output::state(&life.state));
    if life.state == "PARKED" {
        let resolve =
            symphony(&format!("resolve {id} --as dispatched --reference REF --reason WHY"));
        text.push_str(&format!(
            "  the rail did not settle it; find out, then: {resolve} | --as failed | --as retry\n"
        ));
    }
    text
}
