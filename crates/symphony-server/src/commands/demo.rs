//! `symphony demo`: the tour. Payments through the real functions of a real PostgreSQL, with the accidents that
//! outboxes are judged by. Exits 0 only if the ledger accounts for every payment exactly once.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use sqlx::{ConnectOptions as _, Connection as _};
use symphony::db::migrate;
use symphony::db::{
    ClaimRequest, ClaimedItem, Completion, CompletionResult, Database, DbError, Executor, Ingest,
    Role, RoleSource,
};
use symphony::domain::{Act, OutboxId, Outcome, Payload, PaymentRequest, Resolution};

use crate::cli::Global;
use crate::output::{self, Failure};
use crate::server::Server;

const DATABASE: &str = "symphony_demo";
const PARTICIPANTS: usize = 10;
const PAYMENTS: usize = 1_000;
const FIFO_PAYMENTS: usize = 5;
/// The lost worker's lease: short, because the tour waits for its end.
const LOST_LEASE_SECONDS: i32 = 1;
const LEASE_SECONDS: i32 = 60;

pub(super) async fn run(global: &Global) -> Result<ExitCode, Failure> {
    if global.database_url.is_some() {
        return Err(Failure::new(
            "the demo uses the private PostgreSQL, not yours: unset DATABASE_URL and --database-url",
        ));
    }
    let started = Instant::now();
    let server = Server::open(global).await?;
    let result = tour(&server, started).await;
    server.close().await?;
    result
}

fn say(text: &str) -> Result<(), Failure> {
    output::print(&format!("{text}\n"))
}

async fn tour(server: &Server, started: Instant) -> Result<ExitCode, Failure> {
    if let Some(private) = server.private() {
        say(&format!(
            "PostgreSQL {} of our own, data in {}",
            private.server_version(),
            private.data_folder().display()
        ))?;
    }
    let database = fresh_database(server).await?;
    say(
        "schema installed: every move below is a SQL function, and nobody can write the tables directly\n",
    )?;

    enqueue(&database).await?;
    let executor = database.executor();
    let lost = lose_a_worker(&executor).await?;
    let (retried, parked) = work(&executor).await?;
    take_over(&executor, &lost).await?;
    resolve(&database, parked).await?;
    keep_order(&database).await?;
    refuse_rewriting(server).await?;
    drain(&executor, "worker-c").await?;

    say("\nThe life of one payment, from the ledger alone:\n")?;
    for item in [retried, parked] {
        if let Some(life) = database.auditor().life(item).await? {
            output::print(&super::show::render(&life))?;
        }
    }
    let figures = database.auditor().figures().await?;
    say("\nThe proof:")?;
    output::print(&output::table(
        [
            "payments",
            "dispatched",
            "failed",
            "pending",
            "outcomes written",
            "ended twice",
            "lost",
            "gaps",
        ],
        [[
            figures.instructions.to_string(),
            figures.dispatched.to_string(),
            figures.failed.to_string(),
            figures.pending.to_string(),
            figures.outcomes.to_string(),
            figures.ended_twice.to_string(),
            figures.lost.to_string(),
            figures.gaps.to_string(),
        ]],
    ))?;
    let holds = figures.holds() && figures.pending == 0;
    say(&format!(
        "\n{} ({} ms)",
        if holds {
            "Every payment is accounted for exactly once."
        } else {
            "THE LEDGER DOES NOT ADD UP."
        },
        started.elapsed().as_millis()
    ))?;
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn fresh_database(server: &Server) -> Result<Database, Failure> {
    let mut connection = server.connect().await?;
    sqlx::raw_sql("DROP DATABASE IF EXISTS symphony_demo WITH (FORCE)")
        .execute(&mut connection)
        .await?;
    connection.close().await?;
    server.ensure_database(DATABASE).await?;
    let options = server.options().clone().database(DATABASE);
    migrate::migrate(&options, migrate::Options::default()).await?;
    Ok(Database::connect(options, 4, RoleSource::EachTransaction).await?)
}

fn payment(number: usize, rail: &str, participant: usize) -> Result<PaymentRequest, Failure> {
    let payload = format!(
        r#"{{"amount": {{"value": "{}.{:02}", "currency": "EUR"}}, "destination": {{"iban": "DE89370400440532013000"}}}}"#,
        1 + number % 500,
        number % 100
    );
    Ok(PaymentRequest {
        instruction_id: format!("{rail}-invoice-{number:04}"),
        participant_id: format!("merchant-{participant:02}"),
        idempotency_key: "pay".to_owned(),
        rail_type: rail.to_owned(),
        payload: Payload::parse(&payload).map_err(|error| Failure::new(error.to_string()))?,
        traceparent: None,
    })
}

async fn enqueue(database: &Database) -> Result<(), Failure> {
    let ingest = database.ingest();
    let requests: Vec<_> =
        (0..PAYMENTS).map(|n| payment(n, "sepa", n % PARTICIPANTS)).collect::<Result<_, _>>()?;
    for batch in requests.chunks(500) {
        ingest.enqueue_batch_alone(batch).await?;
    }
    say(&format!(
        "enqueued    {PAYMENTS} payments of {PARTICIPANTS} merchants, numbered without gaps"
    ))?;

    // A producer whose connection broke repeats everything; nothing is written twice.
    let mut known = 0;
    for batch in requests.chunks(500) {
        known += ingest
            .enqueue_batch_alone(batch)
            .await?
            .iter()
            .filter(|a| a.duplicate == Some(true))
            .count();
    }
    say(&format!(
        "repeated    all of them: {known} answered with the item they already are, 0 written"
    ))?;

    let mut other = payment(1, "sepa", 1)?;
    other.payload = Payload::parse(r#"{"amount": {"value": "999999.00", "currency": "EUR"}}"#)
        .map_err(|error| Failure::new(error.to_string()))?;
    match ingest.enqueue_alone(&other).await {
        Err(DbError::KeyReused { .. }) => {
            say("refused     the same key with another amount (P7004)")?;
        }
        other => return Err(Failure::new(format!("a reused key was not refused: {other:?}"))),
    }

    // State and intent commit together: a service that rolls back has asked for nothing.
    let mut transaction = database.begin(Role::Ingest).await?;
    Ingest::enqueue(transaction.connection(), &payment(5_000, "sepa", 0)?).await?;
    drop(transaction);
    say(
        "rolled back one producer's transaction: its payment never existed, its number was given back",
    )
}

fn claim(worker_id: &str, batch_size: i32, lease_seconds: i32) -> ClaimRequest<'_> {
    ClaimRequest { worker_id, batch_size, lease_seconds, rails: None, due_from: None }
}

async fn lose_a_worker(executor: &Executor) -> Result<Vec<ClaimedItem>, Failure> {
    let items = executor.claim(&claim("worker-a", 100, LOST_LEASE_SECONDS)).await?;
    say(&format!(
        "claimed     {} payments by worker-a, which is never heard of again",
        items.len()
    ))?;
    Ok(items)
}

fn accepted(item: &ClaimedItem) -> Completion {
    Completion {
        rail_reference: Some(format!("REF-{}", item.sequence_id)),
        rail_code: Some("ACSC".to_owned()),
        latency_ms: Some(3),
        ..Completion::new(item.lease(), Outcome::Dispatched)
    }
}

/// Complete everything worker-b can get; one item is retried, one is unknown and parked.
async fn work(executor: &Executor) -> Result<(OutboxId, OutboxId), Failure> {
    let worker = "worker-b";
    let mut special: Vec<ClaimedItem> = executor.claim(&claim(worker, 2, LEASE_SECONDS)).await?;
    let (Some(unknown), Some(retried)) = (special.pop(), special.pop()) else {
        return Err(Failure::new("nothing to claim"));
    };
    executor
        .complete(
            worker,
            &Completion {
                error_code: Some("HTTP_503".to_owned()),
                retry_delay_seconds: Some(0),
                ..Completion::new(retried.lease(), Outcome::Retryable)
            },
        )
        .await?;
    say("retryable   one payment: the rail was surely not reached, it is due again")?;
    executor
        .park_unknown(
            worker,
            &Completion {
                error_code: Some("TIMEOUT_AFTER_SEND".to_owned()),
                error_message: Some(
                    "the rail took the request and did not answer in 30 s".to_owned(),
                ),
                ..Completion::new(unknown.lease(), Outcome::Unknown)
            },
        )
        .await?;
    say(
        "unknown     one payment: sent, no answer. Neither success nor failure: parked for a person",
    )?;
    let done = drain(executor, worker).await?;
    say(&format!("completed   {done} payments by worker-b"))?;
    Ok((retried.outbox_id, unknown.outbox_id))
}

async fn drain(executor: &Executor, worker: &str) -> Result<usize, Failure> {
    let mut done = 0;
    loop {
        let items = executor.claim(&claim(worker, 500, LEASE_SECONDS)).await?;
        if items.is_empty() {
            return Ok(done);
        }
        let completions: Vec<_> = items.iter().map(accepted).collect();
        for answer in executor.complete_batch(worker, &completions).await? {
            match answer.result {
                CompletionResult::Recorded(_) => done += 1,
                other => return Err(Failure::new(format!("{}: {other:?}", answer.outbox_id))),
            }
        }
    }
}

/// worker-b repairs what worker-a left; then worker-a wakes up with its old tokens.
async fn take_over(executor: &Executor, lost: &[ClaimedItem]) -> Result<(), Failure> {
    let mut repaired = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(20);
    while repaired.len() < lost.len() && Instant::now() < deadline {
        repaired.extend(executor.repair("worker-b", 500).await?);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    say(&format!(
        "repaired    {} leases of worker-a; the ledger says so, and the rail must be asked first",
        repaired.len()
    ))?;
    let Some(item) = lost.first() else { return Ok(()) };
    match executor.complete("worker-a", &accepted(item)).await {
        Err(DbError::LeaseLost { .. }) => {
            say("refused     worker-a, which woke up and wanted to complete (P7002)")?;
        }
        other => return Err(Failure::new(format!("a stale token was not refused: {other:?}"))),
    }
    let late = executor.record_late_outcome("worker-a", &accepted(item)).await?;
    say(&format!(
        "kept        what the rail had told worker-a, as evidence (event {})",
        late.event_no
    ))?;
    // Requeued for a second later: wait until worker-b can have them.
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut done = 0;
    while done < repaired.len() && Instant::now() < deadline {
        done += drain(executor, "worker-b").await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    say(&format!("completed   {done} of them by worker-b"))
}

fn act(reason: &str) -> Act {
    Act {
        actor: "dana@bank.example".to_owned(),
        reason: reason.to_owned(),
        approver: None,
        dry_run: false,
    }
}

async fn resolve(database: &Database, parked: OutboxId) -> Result<(), Failure> {
    let found = Resolution::Dispatched { rail_reference: "SEPA-77120".to_owned() };
    database
        .operator()
        .resolve(parked, &found, &act("found in the rail's statement of today"))
        .await?;
    say("resolved    the unknown one by a person who found it in the rail's statement")
}

/// A FIFO lane: its head fails, nothing overtakes it, and the redrive runs in its place.
async fn keep_order(database: &Database) -> Result<(), Failure> {
    let (executor, operator) = (database.executor(), database.operator());
    operator
        .configure_rail(
            "instant",
            &act("payments of a merchant must arrive in order"),
            Some(true),
            None,
            None,
        )
        .await?;
    let requests: Vec<_> =
        (0..FIFO_PAYMENTS).map(|n| payment(n, "instant", 1)).collect::<Result<_, _>>()?;
    database.ingest().enqueue_batch_alone(&requests).await?;
    let heads = executor.claim(&claim("worker-b", 500, LEASE_SECONDS)).await?;
    let [head] = heads.as_slice() else {
        return Err(Failure::new(format!(
            "{} items of a FIFO lane were leased at once",
            heads.len()
        )));
    };
    executor
        .complete(
            "worker-b",
            &Completion {
                rail_code: Some("AC04".to_owned()),
                error_code: Some("ACCOUNT_CLOSED".to_owned()),
                ..Completion::new(head.lease(), Outcome::Failed)
            },
        )
        .await?;
    let behind = executor.claim(&claim("worker-b", 500, LEASE_SECONDS)).await?;
    if !behind.is_empty() {
        return Err(Failure::new("a payment overtook the failed one before it"));
    }
    say(&format!(
        "blocked     a FIFO lane of {FIFO_PAYMENTS}: its first payment failed, the others wait"
    ))?;
    operator.redrive(head.outbox_id, &act("account was reopened")).await?;
    drain(&executor, "worker-b").await?;
    say("redriven    the failed one, in its place; then the others, in order")
}

async fn refuse_rewriting(server: &Server) -> Result<(), Failure> {
    let mut connection = server.options().clone().database(DATABASE).connect().await?;
    // symphony-guard: allow, this must be refused
    let attempt = sqlx::raw_sql("UPDATE public.payment_outbox_attempts SET state = 'FAILED'")
        .execute(&mut connection)
        .await;
    connection.close().await?;
    match attempt.map_err(DbError::from) {
        Err(DbError::AppendOnly { .. }) => {
            say("refused     a superuser who wanted to rewrite the ledger (P0001)")
        }
        other => Err(Failure::new(format!("the ledger could be rewritten: {other:?}"))),
    }
}
