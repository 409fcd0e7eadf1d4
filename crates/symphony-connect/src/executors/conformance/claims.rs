//! The claims themselves.

use std::time::Duration;

use serde_json::Value;
use symphony::lanes::triggers::executor::{Execution, Executor, RunOutcome};
use tokio::time::{Instant, timeout};

use super::{Behaviour, Probe, REQUEST_PAYLOAD, Report};
use crate::rails::conformance::{Ruling, Stop, require};

/// What an executor may take over a request's timeout before it counts as unbounded.
const GRACE: Duration = Duration::from_secs(2);
/// For runs that end.
const LONG: Duration = Duration::from_secs(20);
/// For one that does not.
const SHORT: Duration = Duration::from_secs(1);
/// Lines and characters that no log needs.
const LOG_CHARACTERS_MAX: usize = 10_000_000;
/// The longest message of a failure, in characters.
const MESSAGE_CHARACTERS_MAX: usize = 500;

pub(super) async fn all(executor: &dyn Executor, probe: &dyn Probe) -> Report {
    let trial = Trial { executor, probe };
    let mut report = Report::default();
    report.add("a value comes back as it was returned", trial.value().await);
    report.add("a script is told its request", trial.request().await);
    report.add("an error is a failure with a code and one line", trial.error().await);
    report.add("a run that never ends is stopped in time", trial.timeout().await);
    report.add("memory without end is a failure, and nobody else's", trial.memory().await);
    report.add("a value that is too large is a failure for good", trial.too_large().await);
    report.add("effects are gathered in order and none is made", trial.effects().await);
    report.add("a run that failed or was stopped has no effects", trial.no_effects().await);
    report.add("too many effects are a failure for good", trial.too_many_effects().await);
    report.add("logs come with the answer", trial.logs().await);
    report.add("logs without end are cut off", trial.too_many_logs().await);
    report.add("what cannot be run is a failure for good", trial.broken().await);
    report.add("runs share nothing", trial.apart().await);
    report.add("runs side by side are each answered for their own", trial.side_by_side().await);
    report.add("what is away is away, and no failure of the script", trial.away().await);
    report.add("no effect was made in all of it", trial.nothing_made());
    report
}

struct Trial<'a> {
    executor: &'a dyn Executor,
    probe: &'a dyn Probe,
}

impl Trial<'_> {
    async fn value(&self) -> Ruling {
        for json in ["null", "12", r#""text""#, "[]", r#"{"a":{"b":[true,false]}}"#] {
            let execution = self.run(&Behaviour::Returns(json.to_owned())).await?;
            let value = value(&execution)?;
            let (told, meant) = (parsed(value)?, parsed(json)?);
            require(told == meant, format!("{json} came back as {value}"))?;
        }
        Ok(())
    }

    async fn request(&self) -> Ruling {
        let execution = self.run(&Behaviour::TellsRequest).await?;
        let told = parsed(value(&execution)?)?;
        let request = self.probe.request(&Behaviour::TellsRequest, LONG).ok_or_else(skipped)?;
        require(told.get("attempt") == Some(&Value::from(request.attempt)), format!("{told}"))?;
        require(told.get("app") == Some(&Value::from(request.app)), format!("{told}"))?;
        let payload = parsed(REQUEST_PAYLOAD)?;
        let exact = told.get("payload") == Some(&payload);
        require(exact, "the payload is another")
    }

    async fn error(&self) -> Ruling {
        let execution = self.run(&Behaviour::Fails).await?;
        let RunOutcome::Failed { code, message, .. } = &execution.outcome else {
            return Err(unexpected(&execution));
        };
        require(!code.is_empty() && !message.is_empty(), "no code or no message")?;
        require(!message.chars().any(char::is_control), "the message is not one line")?;
        let characters = message.chars().count();
        require(characters <= MESSAGE_CHARACTERS_MAX, format!("{characters} characters"))
    }

    async fn timeout(&self) -> Ruling {
        let started = Instant::now();
        let execution = self.run_within(&Behaviour::Hangs, SHORT).await?;
        let took = started.elapsed();
        require(matches!(execution.outcome, RunOutcome::TimedOut), words(&execution))?;
        require(took >= SHORT / 2, format!("it was stopped after {took:?}"))
    }

    async fn memory(&self) -> Ruling {
        let execution = self.run(&Behaviour::TakesMemory).await?;
        require(!matches!(execution.outcome, RunOutcome::Value(_)), "it returned a value")?;
        // Another run is well.
        let execution = self.run(&Behaviour::Returns("7".to_owned())).await?;
        require(value(&execution)? == "7", words(&execution))
    }

    async fn too_large(&self) -> Ruling {
        self.fails_for_good(&Behaviour::ReturnsTooMuch).await
    }

    async fn effects(&self) -> Ruling {
        let execution = self.run(&Behaviour::MakesEffects).await?;
        require(value(&execution)? == r#""done""#, words(&execution))?;
        let told = serde_json::to_value(&execution.effects)
            .map_err(|error| Stop::Failed(error.to_string()))?;
        let expected = serde_json::json!([
            { "kind": "kv_set", "key": "k", "value": 1 },
            { "kind": "queue_send", "queue": "q", "message": 2 },
            { "kind": "pubsub_publish", "topic": "t", "message": 3 },
        ]);
        require(told == expected, format!("{told}"))?;
        self.nothing_made()
    }

    async fn no_effects(&self) -> Ruling {
        let failed = self.run(&Behaviour::Fails).await?;
        require(failed.effects.is_empty(), "a failed run has effects")?;
        let stopped = self.run_within(&Behaviour::Hangs, SHORT).await?;
        require(stopped.effects.is_empty(), "a run that was stopped has effects")
    }

    async fn too_many_effects(&self) -> Ruling {
        self.fails_for_good(&Behaviour::MakesTooManyEffects).await
    }

    async fn logs(&self) -> Ruling {
        let execution = self.run(&Behaviour::Logs).await?;
        value(&execution)?;
        let lines = execution.logs.iter().map(|line| (line.level.as_str(), line.message.as_str()));
        let lines: Vec<_> = lines.collect();
        require(lines == [("warn", "one"), ("error", "two")], format!("{lines:?}"))
    }

    async fn too_many_logs(&self) -> Ruling {
        let execution = self.run(&Behaviour::LogsTooMuch).await?;
        let characters: usize = execution.logs.iter().map(|line| line.message.len()).sum();
        require(characters < LOG_CHARACTERS_MAX, format!("{characters} characters"))
    }

    async fn broken(&self) -> Ruling {
        self.fails_for_good(&Behaviour::IsBroken).await
    }

    async fn apart(&self) -> Ruling {
        for _ in 0..2 {
            let execution = self.run(&Behaviour::CountsRuns).await?;
            require(value(&execution)? == "1", words(&execution))?;
        }
        Ok(())
    }

    async fn side_by_side(&self) -> Ruling {
        let behaviours: Vec<_> = (0..16).map(|n| Behaviour::Returns(n.to_string())).collect();
        let runs = behaviours.iter().map(|behaviour| self.run(behaviour));
        let executions = futures_util::future::join_all(runs).await;
        for (n, execution) in executions.into_iter().enumerate() {
            let execution = execution?;
            require(value(&execution)? == n.to_string(), words(&execution))?;
        }
        Ok(())
    }

    async fn away(&self) -> Ruling {
        let execution = self.run(&Behaviour::IsAway).await?;
        require(matches!(execution.outcome, RunOutcome::Away { .. }), words(&execution))
    }

    fn nothing_made(&self) -> Ruling {
        let made = self.probe.effects_made();
        require(made == 0, format!("{made} effects were made"))
    }

    // --- the words claims are written in ---

    async fn run(&self, behaviour: &Behaviour) -> Result<Execution, Stop> {
        self.run_within(behaviour, LONG).await
    }

    async fn run_within(&self, behaviour: &Behaviour, limit: Duration) -> Result<Execution, Stop> {
        let request = self.probe.request(behaviour, limit).ok_or_else(skipped)?;
        match timeout(limit + GRACE, self.executor.run(&request)).await {
            Ok(execution) => Ok(execution),
            Err(_elapsed) => Err(Stop::Failed(format!("no answer within {limit:?}"))),
        }
    }

    async fn fails_for_good(&self, behaviour: &Behaviour) -> Ruling {
        let execution = self.run(behaviour).await?;
        let for_good = matches!(execution.outcome, RunOutcome::Failed { retryable: false, .. });
        require(for_good, words(&execution))?;
        require(execution.effects.is_empty(), "it has effects")
    }
}

fn skipped() -> Stop {
    Stop::NotApplicable("no script can do that here".to_owned())
}

fn unexpected(execution: &Execution) -> Stop {
    Stop::Failed(words(execution))
}

fn words(execution: &Execution) -> String {
    format!("{:?}", execution.outcome)
}

fn value(execution: &Execution) -> Result<&str, Stop> {
    match &execution.outcome {
        RunOutcome::Value(value) => Ok(value.get()),
        _ => Err(unexpected(execution)),
    }
}

fn parsed(json: &str) -> Result<Value, Stop> {
    serde_json::from_str(json).map_err(|_| Stop::Failed(format!("not JSON: {json}")))
}
