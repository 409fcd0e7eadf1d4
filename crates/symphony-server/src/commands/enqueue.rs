//! `symphony enqueue payment`: produce from a shell.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::process::ExitCode;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use symphony::db::{Database, Producer, Role};
use symphony::domain::{Payload, PaymentRequest};

use crate::bounds::{BATCH_BYTES, BATCH_ITEMS};
use crate::cli::{EnqueuePayment, Global};
use crate::output::{self, Failure};
use crate::server::Server;

pub(super) async fn run(global: &Global, options: &EnqueuePayment) -> Result<ExitCode, Failure> {
    // Bad input is refused before a server is started for it.
    let single = if options.lines.is_none() { Some(single_request(options)?) } else { None };
    let server = Server::open(global).await?;
    let result = match server.database_as(Role::Producer).await {
        Ok(database) => enqueue(global, options, single, &database).await,
        Err(failure) => Err(failure),
    };
    server.close().await?;
    result
}

async fn enqueue(
    global: &Global,
    options: &EnqueuePayment,
    single: Option<PaymentRequest>,
    database: &Database,
) -> Result<ExitCode, Failure> {
    let producer = database.producer();
    match (single, &options.lines) {
        (Some(request), _) => {
            let enqueued = producer.enqueue_payment(&request).await?;
            if global.json {
                output::json(&enqueued)?;
            } else {
                output::print(&format!(
                    "{}  number {} of {}, {}{}\n",
                    enqueued.outbox_id,
                    enqueued.sequence_id,
                    output::plain(&request.participant_id),
                    enqueued.state,
                    if enqueued.duplicate { " (known already; nothing was written)" } else { "" }
                ))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        (None, Some(path)) if path.as_os_str() == "-" => {
            enqueue_lines(global, io::stdin().lock(), &producer).await
        }
        (None, Some(path)) => {
            let file = File::open(path).map_err(|error| {
                Failure::new(format!("--lines: cannot read {}: {error}", path.display()))
            })?;
            enqueue_lines(global, BufReader::new(file), &producer).await
        }
        (None, None) => Err(Failure::new("give one payment, or --lines")),
    }
}

fn single_request(options: &EnqueuePayment) -> Result<PaymentRequest, Failure> {
    let mut payload = options.payload.clone().unwrap_or_default();
    if payload == "-" {
        payload.clear();
        io::stdin().read_to_string(&mut payload).map_err(|error| {
            Failure::new(format!("--payload: cannot read standard input: {error}"))
        })?;
    }
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    Ok(PaymentRequest {
        instruction_id: text(&options.instruction),
        participant_id: text(&options.participant),
        idempotency_key: text(&options.key),
        rail_type: text(&options.rail),
        payload: Payload::parse(&payload)
            .map_err(|error| Failure::new(format!("--payload: {error}")))?,
        traceparent: options.traceparent.clone(),
    })
}

/// One request, as a line of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    instruction_id: String,
    participant_id: String,
    idempotency_key: String,
    rail_type: String,
    payload: Box<RawValue>,
    traceparent: Option<String>,
}

fn parse_line(number: usize, text: &str) -> Result<PaymentRequest, Failure> {
    let line: Line = serde_json::from_str(text)
        .map_err(|error| Failure::new(format!("line {number}: {error}")))?;
    Ok(PaymentRequest {
        instruction_id: line.instruction_id,
        participant_id: line.participant_id,
        idempotency_key: line.idempotency_key,
        rail_type: line.rail_type,
        payload: Payload::parse(line.payload.get())
            .map_err(|error| Failure::new(format!("line {number}: {error}")))?,
        traceparent: line.traceparent,
    })
}

/// Batch by batch, each in a transaction of its own; a refused item is reported with its line and the rest goes
/// on. Running the same file again is safe: what is known is not written twice.
async fn enqueue_lines(
    global: &Global,
    mut reader: impl BufRead,
    producer: &Producer,
) -> Result<ExitCode, Failure> {
    let (mut number, mut new, mut known, mut refused) = (0_usize, 0_usize, 0_usize, 0_usize);
    let mut batch: Vec<(usize, PaymentRequest)> = Vec::new();
    let mut bytes = 0;
    loop {
        let mut text = String::new();
        number += 1;
        let ended = reader
            .read_line(&mut text)
            .map_err(|error| Failure::new(format!("line {number}: {error}")))?
            == 0;
        if !text.trim().is_empty() {
            match parse_line(number, &text) {
                Ok(request) => {
                    bytes += text.len();
                    batch.push((number, request));
                }
                Err(failure) => {
                    refused += 1;
                    failure.report(global.json);
                }
            }
        }
        let full = batch.len() == BATCH_ITEMS || bytes >= BATCH_BYTES;
        if full || (ended && !batch.is_empty()) {
            bytes = 0;
            let requests: Vec<PaymentRequest> =
                batch.iter().map(|(_, request)| request.clone()).collect();
            let answers = producer.enqueue_payments(&requests).await?;
            for ((line, _), answer) in batch.drain(..).zip(answers) {
                match answer {
                    Err(refusal) => {
                        refused += 1;
                        Failure::new(format!("line {line}: {refusal}")).report(global.json);
                    }
                    Ok(item) if item.duplicate => known += 1,
                    Ok(_) => new += 1,
                }
            }
            if !global.json && (new + known) % 50_000 < BATCH_ITEMS && !ended {
                eprintln!("{number} lines read");
            }
        }
        if ended {
            break;
        }
    }
    if global.json {
        output::json(&json!({ "new": new, "known": known, "refused": refused }))?;
    } else {
        output::print(&format!("{new} new, {known} known already, {refused} refused\n"))?;
    }
    Ok(if refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
