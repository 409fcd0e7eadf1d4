//! `app dev` as a process: it pushes, pushes again, goes on after a mistake, and ends when it is told to.

use std::process::Stdio;

use sqlx::ConnectOptions as _;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::{Folder, end, post};
use crate::support::TestDb;
use serde_json::json;
use symphony::db::TriggerState;

struct Dev {
    child: Child,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Dev {
    fn start(db: &TestDb, folder: &Folder) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_symphony"))
            .args(["app", "dev", folder.path()])
            .env("DATABASE_URL", db.options.to_url_lossy().as_str())
            .env("COLUMNS", "1000")
            .env("USER", "dana")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (sender, lines) = mpsc::unbounded_channel();
        read(BufReader::new(child.stdout.take().unwrap()).lines(), sender.clone());
        read(BufReader::new(child.stderr.take().unwrap()).lines(), sender);
        Self { child, lines }
    }

    /// The next line that says so; what it says before may be anything.
    async fn says(&mut self, expected: &str) {
        let mut said = Vec::new();
        let found = tokio::time::timeout(std::time::Duration::from_mins(1), async {
            while let Some(line) = self.lines.recv().await {
                if line.contains(expected) {
                    return true;
                }
                said.push(line);
            }
            false
        });
        assert!(found.await.unwrap_or(false), "{expected}: {said:?}");
    }
}

fn read<R: tokio::io::AsyncRead + Unpin + Send + 'static>(
    mut lines: Lines<BufReader<R>>,
    sender: mpsc::UnboundedSender<String>,
) {
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            drop(sender.send(line));
        }
    });
}

#[tokio::test]
async fn a_folder_is_pushed_whenever_it_changes_and_its_logs_are_shown() {
    let db = TestDb::new().await;
    let folder = Folder::orders();
    let mut dev = Dev::start(&db, &folder);
    dev.says("created app orders: 6 scripts, 2 routes, 4 triggers, 1 queue").await;
    folder.rewrite("scripts/show-order.js", |text| format!("const = 1;\n{text}"));
    dev.says("scripts/show-order.js:1:").await;
    assert_eq!(db.count("app_pushes").await, 1, "a mistake changes nothing");
    folder.rewrite("scripts/show-order.js", |text| text.replace("const = 1;", "const one = 1;"));
    dev.says("changed script show-order, version 2").await;
    post(&db, "o-1").await;
    end(&db, TriggerState::Dispatched, json!([]), None).await;
    dev.says("orders take-order info: kept").await;
    let id = i32::try_from(dev.child.id().unwrap()).unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(id).unwrap(),
        rustix::process::Signal::INT,
    )
    .unwrap();
    let ended = dev.child.wait().await.unwrap();
    assert!(ended.success(), "{ended:?}");
}
