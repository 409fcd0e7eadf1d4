//! `symphony up`: everything in one process, on loopback, until Ctrl-C: the private PostgreSQL, a worker, the
//! simulated provider as rail `sandbox`, a receiver of webhooks where no route is configured, apps over HTTP with their
//! ticks, a catcher of their mail where no relay is configured, `/metrics`.

use std::fs;
use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use sha2::{Digest as _, Sha256};
use symphony::db::{CreatedToken, DbError, NewToken, Schema, TokenAdmin};
use symphony::domain::Act;
use symphony_connect::buses::webhook_signature;
use symphony_lab::mail_catcher::{CaughtMail, MailCatcher};
use symphony_lab::receiver::{Receiver, ReceiverSettings};
use symphony_lab::sandbox::{self, Sandbox};
use uuid::Uuid;

use super::acts;
use super::database::StopSignals;
use super::exclusive_lock::ExclusiveLock;
use super::run::{listen_options, start_api, stop};
use super::suggested_command::{self, quoted};
use crate::api::{Api, new_secret};
use crate::bounds::UP_TOKEN_SECONDS;
use crate::cli::{Global, Up};
use crate::config::{BusSection, Config, LogLevel, RailSection};
use crate::http_server::raise_open_files_limit;
use crate::output::{self, Failure};
use crate::server::Server;
use crate::worker::Plan;
use crate::{kill_points, telemetry};
use symphony_lab::private_postgres;

/// The rail that is served without being configured.
const SANDBOX_RAIL: &str = "sandbox";
/// The bus that is there without being configured.
const LOCAL_BUS: &str = "receiver";
/// Where apps are served without an address being configured.
const ANY_PORT: &str = "127.0.0.1:0";

pub(super) async fn run(global: &Global, options: &Up) -> Result<ExitCode, Failure> {
    let mut config = Config::load(global.config.as_deref())?;
    config.set_api_listen(options.api.as_deref());
    config.set_database_url(global.database_url.as_deref());
    // A person at a terminal wants to hear of trouble, not of routine.
    if config.log.level == LogLevel::Info && io::stderr().is_terminal() {
        config.log.level = LogLevel::Warn;
    }
    telemetry::start(&config.log);
    raise_open_files_limit();
    let points = kill_points::from_environment()?;
    let server = Server::open_or_private(global).await?;
    let result = Box::pin(async {
        let folder = data_folder(global, &server)?;
        // Held until the end.
        let _alone = ExclusiveLock::acquire(&folder, "up.lock", "symphony is up")?;
        let database = server.worker_database(&config.database).await?;
        // A rail of that name in the configuration is what its owner means by it.
        let sandbox = if config.rails.contains_key(SANDBOX_RAIL) {
            None
        } else {
            start_sandbox(&options.sandbox, &folder).await?
        };
        if let Some(sandbox) = &sandbox {
            let section = RailSection::sandbox(&format!("http://{}", sandbox.address()))?;
            config.rails.insert(SANDBOX_RAIL.to_owned(), section);
        }
        // Nor without a bus: a receiver in this process takes what no route is configured for.
        let receiver =
            if config.events.has_routes() { None } else { Some(start_receiver().await?) };
        if let Some((receiver, secret)) = &receiver {
            let section = BusSection::local_receiver(&receiver.url(), secret.clone())?;
            config.buses.insert(LOCAL_BUS.to_owned(), section);
            config.events = config.events.clone().with_route_for_all(LOCAL_BUS, "local");
        }
        let mail = serve_apps(&mut config, global.json).await?;
        let plan = Plan::new(&config, &[], &[])?;
        let names = plan.rail_names();
        let listen = listen_options(&config, &server)?;
        let api = start_api(&config, &plan, &database).await?;
        let sign_in = SignIn::ready(&server, api.as_ref()).await?;
        let mut signals = StopSignals::new()?;
        let mut workers = Box::pin(plan.start(&config, &database, listen, points)).await?;
        let scene = RunningServices {
            global,
            server: &server,
            api: api.as_ref(),
            sign_in: sign_in.as_ref().map(|sign_in| sign_in.link.as_str()),
            sandbox: sandbox.as_ref(),
            receiver: receiver.as_ref().map(|(receiver, _)| receiver),
            apps: workers.apps_address(),
            mail: mail.as_ref().map(MailCatcher::address),
            rails: &names,
            folder: &folder,
        };
        scene.announce()?;
        let broken = tokio::select! {
            () = signals.received() => None,
            why = workers.broken() => Some(super::run::broken(why)),
        };
        let stopped = stop(workers, api, &mut signals).await;
        if let Some(sign_in) = sign_in {
            sign_in.end().await;
        }
        let stopped = broken.map_or(stopped, Err);
        if let Some((receiver, _)) = receiver {
            receiver.stop().await;
        }
        if let Some(sandbox) = sandbox {
            sandbox.stop().await.map_err(|error| Failure::new(error.to_string()))?;
        }
        let caught = mail.as_ref().map_or(0, MailCatcher::count);
        if let Some(mail) = mail {
            mail.stop().await;
        }
        if !global.json && stopped.is_ok() {
            output::print(&match caught {
                0 => "stopped\n".to_owned(),
                caught => format!("stopped; mail caught: {caught}\n"),
            })?;
        }
        stopped
    })
    .await;
    server.close().await?;
    result
}

/// A sign-in to the console that is ready when everything is up: the token behind it ends with this process.
struct SignIn {
    link: String,
    token_id: Uuid,
    admin: TokenAdmin,
    person: String,
}

impl SignIn {
    /// None where the console is off, or where this login may hand out no tokens.
    async fn ready(server: &Server, api: Option<&Api>) -> Result<Option<Self>, Failure> {
        let Some(api) = api else { return Ok(None) };
        let admin = server.database(1).await?.token_admin();
        let (secret, person) = (new_secret()?, token_person(acts::actor_or_account(None)));
        let scopes = ["operate", "approve", "audit"].map(str::to_owned);
        let hash = Sha256::digest(secret.as_bytes());
        let token = NewToken {
            name: "the console of symphony up",
            person: &person,
            scopes: &scopes,
            hash: hash.as_slice(),
            actor: &person,
            expires_in_seconds: UP_TOKEN_SECONDS,
        };
        match admin.create(token).await {
            Ok(CreatedToken { token_id, .. }) => {
                let link = api.sign_in_link(&secret)?;
                Ok(Some(Self { link, token_id, admin, person }))
            }
            Err(DbError::MissingRole { .. } | DbError::MissingPrivilege { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn end(self) {
        let reason = "symphony up has stopped".to_owned();
        let act = Act { actor: self.person, reason, dry_run: false, despite_unknown: false };
        if self.admin.revoke(self.token_id, &act).await.is_err() {
            tracing::debug!("the console's token could not be revoked: it expires by itself");
        }
    }
}

/// A name that a token can have: letters that look alike would be two people, so only ASCII is taken.
fn token_person(name: String) -> String {
    let plain = name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if plain && name.bytes().any(|byte| byte.is_ascii_alphanumeric()) {
        return name;
    }
    format!("uid {}", rustix::process::geteuid().as_raw())
}

/// A receiver of webhooks with a secret of its own.
async fn start_receiver() -> Result<(Receiver, String), Failure> {
    let secret = webhook_signature::new_secret();
    let receiver = Receiver::start(ReceiverSettings::new(secret.clone())).await;
    Ok((
        receiver.map_err(|error| Failure::new(format!("cannot start the receiver: {error}")))?,
        secret,
    ))
}

/// Apps are served whatever the configuration says, and their mail is caught where it has no relay.
async fn serve_apps(config: &mut Config, json: bool) -> Result<Option<MailCatcher>, Failure> {
    let triggers = &mut config.triggers;
    triggers.enabled = true;
    if triggers.http_listen == "off" {
        ANY_PORT.clone_into(&mut triggers.http_listen);
    }
    if triggers.email.has_relay() {
        return Ok(None);
    }
    let tell = move |count, mail: &CaughtMail| {
        // Caught it is, whether or not it can be shown.
        drop(if json {
            output::json_line(&json!({ "mail_caught": count, "subject": mail.subject }))
        } else {
            output::print(&format!("mail {count}: {}\n", output::plain(&mail.subject)))
        });
    };
    let catcher = MailCatcher::start(Box::new(tell)).await?;
    triggers.email.relay_to(catcher.address());
    Ok(Some(catcher))
}

/// Where the sandbox keeps its record: beside the private PostgreSQL.
fn data_folder(global: &Global, server: &Server) -> Result<PathBuf, Failure> {
    if let Some(private) = server.private() {
        return Ok(private.data_folder().to_owned());
    }
    let folder =
        global.data_folder.clone().unwrap_or_else(private_postgres::Settings::default_data_folder);
    fs::create_dir_all(&folder)
        .map_err(|error| Failure::new(format!("cannot make {}: {error}", folder.display())))?;
    Ok(folder)
}

async fn start_sandbox(listen: &str, folder: &Path) -> Result<Option<Sandbox>, Failure> {
    if listen == "off" {
        return Ok(None);
    }
    let address: Option<SocketAddr> = listen.parse().ok();
    let address = address.filter(|address| address.ip().is_loopback()).ok_or_else(|| {
        Failure::new(format!(
            "--sandbox is {listen}: it must be a loopback address such as 127.0.0.1:8089, or off"
        ))
    })?;
    let settings = sandbox::Settings {
        listen: address,
        ..sandbox::Settings::new(folder.join("sandbox.jsonl"))
    };
    Sandbox::start(settings).await.map(Some).map_err(|error| match error {
        sandbox::SandboxError::Listen { .. } => {
            Failure::new(format!("{error}; choose another address with --sandbox, or off"))
        }
        other => Failure::new(other.to_string()),
    })
}

/// What is up, for people and for scripts.
struct RunningServices<'a> {
    global: &'a Global,
    server: &'a Server,
    api: Option<&'a Api>,
    sign_in: Option<&'a str>,
    sandbox: Option<&'a Sandbox>,
    receiver: Option<&'a Receiver>,
    apps: Option<SocketAddr>,
    mail: Option<SocketAddr>,
    rails: &'a [String],
    folder: &'a Path,
}

impl RunningServices<'_> {
    fn announce(&self) -> Result<(), Failure> {
        if self.global.json {
            let document = json!({
                "database": self.server.asked().document(),
                "api": self.api.map(Api::url),
                "console": self.sign_in.map(str::to_owned).or_else(|| self.api.map(Api::console)),
                "sandbox": self.sandbox.map(|sandbox| format!("http://{}", sandbox.address())),
                "record": self.sandbox.map(Sandbox::record_path),
                "receiver": self.receiver.map(Receiver::url),
                "apps": self.apps.map(|apps| format!("http://{apps}")),
                "mail": self.mail.map(|mail| format!("smtp://{mail}")),
                "rails": self.rails,
                "data_folder": self.folder,
                "database_port": self.server.private().map(private_postgres::PrivatePostgres::port),
            });
            return output::json_line(&document);
        }
        output::print_verbatim(&self.text())
    }

    fn text(&self) -> String {
        let symphony = self.command();
        // The address first: it is what a newcomer opens, and the lines below are many.
        let (address, first) = match (self.sign_in, self.api) {
            (Some(link), _) => {
                (link.to_owned(), "That address is its console: it signs you in, once.\n")
            }
            (None, Some(api)) => (api.console(), "That address is its console.\n"),
            (None, None) => (String::new(), ""),
        };
        let mut text = format!("{address}\n\nSymphony is up. {first}In another shell:\n\n");
        let mut copy = |command: &str| text.push_str(&output::copyable("  ", command));
        if let Some(rail) =
            self.rails.iter().find(|rail| *rail == SANDBOX_RAIL).or(self.rails.first())
        {
            copy(&format!(
                "{symphony} enqueue payment --instruction inv-1 --participant acme --key 1 --rail {rail} \
                 --payload '{{\"amount\": {{\"value\": \"10.00\", \"currency\": \"EUR\"}}}}'"
            ));
        }
        // Lines may be broken inside JSON.
        copy(&format!(
            "{symphony} enqueue event --event '{{\"envelope\": {{\"v\": 1,\n        \
             \"eventId\": \"{}\",\n        \
             \"occurredAt\": \"{}\",\n        \
             \"tenantId\": \"acme\", \"type\": \"events.invoices.paid\"}},\n        \
             \"key\": {{\"invoice\": \"inv-1\"}}, \"payload\": {{}}}}'",
            uuid::Uuid::new_v4(),
            chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
        ));
        if let Some(apps) = self.apps {
            copy(&format!("{symphony} app push examples/apps/orders"));
            copy(&format!(
                "curl -i http://{apps}/apps/orders/orders -H 'content-type: application/json' \
                 -d '{{\"id\": \"o-1\", \"email\": \"ann@example.com\", \"item\": \"tea\"}}'"
            ));
            copy(&format!("{symphony} app executions"));
        }
        for command in ["show inv-1", "status --watch", "dlq list"] {
            copy(&format!("{symphony} {command}"));
        }
        text.push('\n');
        let lead = |name: &str| format!("{name:<10}");
        let mut line =
            |name: &str, value: &str| text.push_str(&output::hanging(&lead(name), value));
        line("rails", &self.rails.join(", "));
        if let Some(api) = self.api {
            let token = format!("{symphony} token create --help");
            line("console", &format!("{}, with a token of `{token}`", api.console()));
            line("metrics", &format!("{}/metrics, /healthz, /readyz", api.url()));
        }
        if let Some(sandbox) = self.sandbox {
            let record = sandbox.record_path().display();
            line("sandbox", &format!("http://{}, its record in {record}", sandbox.address()));
        }
        match self.receiver {
            Some(receiver) => {
                line("events", &format!("webhooks to {}, a receiver of ours", receiver.url()));
            }
            None => line("events", "as the routes in the configuration say"),
        }
        if let Some(apps) = self.apps {
            line("apps", &format!("http://{apps}/apps/NAME/…, /executions/ID"));
        }
        line(
            "mail",
            match self.mail {
                Some(_) => "of apps is caught and not sent on: its subjects appear below",
                None => "of apps goes out as the configuration says",
            },
        );
        match self.server.private() {
            Some(private) => {
                let folder = private.data_folder().display();
                line(
                    "database",
                    &format!("PostgreSQL {}, data in {folder}", private.server_version()),
                );
            }
            None => line("database", &format!("yours: {}", self.server.asked().text())),
        }
        if let Some(sandbox) = self.sandbox {
            text.push_str("\nTo make the sandbox fail:\n\n");
            text.push_str(&output::copyable(
                "  ",
                &format!(
                    "curl -X PUT http://{}/faults -d '{{\"per_mille\": {{\"reset_after\": 300}}}}'",
                    sandbox.address()
                ),
            ));
        }
        if let Some(private) = self.server.private() {
            text.push_str("\nTo look into the database:\n\n");
            text.push_str(&output::copyable(
                "  ",
                &format!(
                    "PGPASSWORD=$(cat {}) psql -h 127.0.0.1 -p {} -U postgres symphony",
                    private.data_folder().join("password").display(),
                    private.port()
                ),
            ));
        }
        text.push_str("\nCtrl-C stops it: what is in flight may end, nothing is lost.\n");
        text
    }

    /// As this one was called, so that the lines can be copied. Another shell may have other variables.
    fn command(&self) -> String {
        let name = std::env::args_os()
            .next()
            .map_or_else(|| "symphony".to_owned(), |name| name.to_string_lossy().into_owned());
        let mut command = quoted(&name) + suggested_command::options();
        let mut add = |name: &str, value: &str| {
            if !command.contains(name) {
                command.push_str(&format!(" {name}{value}"));
            }
        };
        if self.server.private().is_some() {
            add("--private", "");
            let usual = private_postgres::Settings::default_data_folder();
            if self.global.data_folder.as_ref().is_some_and(|folder| *folder != usual) {
                add("--data-folder", &format!(" {}", quoted(&self.folder.to_string_lossy())));
            }
        }
        if *self.server.schema() != Schema::default() {
            add("--schema", &format!(" {}", self.server.schema()));
        }
        command
    }
}
