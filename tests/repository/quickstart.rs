//! The README's quickstart, line by line, on a server that is nobody's: what it says is all that a newcomer needs.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use sqlx::{AssertSqlSafe, ConnectOptions as _, PgConnection};

use crate::support::folder::Folder;
use crate::support::processes::kill_group;
use crate::support::{run, start_server, until};

const README: &str = include_str!("../../README.md");

/// The first block of this language under a heading.
fn block(heading: &str, language: &str) -> &'static str {
    let (_, section) = README.split_once(heading).unwrap();
    let (_, block) = section.split_once(&format!("```{language}\n")).unwrap();
    block.split_once("```").unwrap().0
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A shell with all that it has started: gone when the test ends, however it ends.
struct Shell(Child);

impl Drop for Shell {
    fn drop(&mut self) {
        kill_group(self.0.id());
        self.0.wait().ok();
    }
}

async fn dispatched(connection: &mut PgConnection) -> i64 {
    let sql = "SELECT count(*) FROM symphony.payment_outbox_attempts WHERE state = 'DISPATCHED' AND instruction_id = 'inv-1'";
    // Not there before the quickstart has installed it.
    sqlx::query_scalar(sql).fetch_one(connection).await.unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quickstart_followed_to_the_letter_pays_the_payment_that_the_readme_asks_for() {
    if !std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .any(|folder| folder.join("psql").is_file())
    {
        println!("passed over: psql is not here");
        return;
    }
    // What somebody has who begins: a database, a login that may install, a service's login with a table.
    let server = start_server("quickstart", &[]).await;
    let mut superuser = server.connect().await.unwrap();
    for statement in [
        "CREATE ROLE admin LOGIN CREATEROLE",
        "CREATE ROLE shop LOGIN",
        "CREATE DATABASE app",
        "GRANT CREATE ON DATABASE app TO admin",
    ] {
        run(&mut superuser, statement).await.unwrap();
    }
    let app = server.clone().database("app");
    let mut superuser = app.connect().await.unwrap();
    run(
        &mut superuser,
        "CREATE TABLE public.invoices (id TEXT, state TEXT); INSERT INTO public.invoices VALUES ('inv-1', 'new'); \
         GRANT SELECT, UPDATE ON public.invoices TO shop",
    )
    .await
    .unwrap();

    let (build, rest) = block("## Quickstart", "sh").split_once('\n').unwrap();
    assert!(build.starts_with("cargo build --release && export PATH="), "{build}");
    let named = "postgres://admin@db.internal/app";
    let url = format!("postgres://admin@127.0.0.1:{}/app", server.get_port());
    assert!(rest.contains(named) && rest.contains("127.0.0.1:8089"), "{rest}");
    let sandbox = format!("127.0.0.1:{}", free_port());
    let script = rest.replace(named, &url).replace("127.0.0.1:8089", &sandbox);
    let binary = Path::new(env!("CARGO_BIN_EXE_symphony")).parent().unwrap();
    let folder = Folder::new();
    let log = std::fs::File::create(folder.0.join("log")).unwrap();
    let mut shell = Command::new("bash");
    shell
        .args(["-e", "-c", &script])
        .current_dir(&folder.0)
        .env("PATH", format!("{}:{}", binary.display(), std::env::var("PATH").unwrap()))
        .env("USER", "newcomer")
        // Others listen here, too.
        .env("SYMPHONY__API__LISTEN", "127.0.0.1:0")
        .env_remove("SYMPHONY_PRIVATE")
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .process_group(0);
    let mut shell = Shell(shell.spawn().unwrap());
    let said = || std::fs::read_to_string(folder.0.join("log")).unwrap();
    until("the worker runs", async || {
        let ended = shell.0.try_wait().unwrap();
        assert!(ended.is_none(), "{ended:?}: {}", said());
        said().contains(" working ")
    })
    .await;

    let mut shop = app.username("shop").connect().await.unwrap();
    let payment = block("## A payment", "sql");
    sqlx::raw_sql(AssertSqlSafe(payment)).execute(&mut shop).await.unwrap();
    until("it is paid", async || dispatched(&mut superuser).await == 1).await;
}
