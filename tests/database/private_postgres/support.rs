//! What the tests of the private PostgreSQL share: folders, other processes, small disks.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection};
use symphony_lab::private_postgres::{PrivatePostgres, Settings};
use uuid::Uuid;

use crate::support::processes::{Signal, signal};

/// Tells a helper that it is one, and which data folder to use.
pub(super) const HELPER_FOLDER: &str = "SYMPHONY_TEST_HELPER_FOLDER";

pub(super) fn helper(name: &str, folder: &Folder) -> Command {
    helper_of(&std::env::current_exe().unwrap(), name, folder)
}

pub(super) fn helper_of(binary: &Path, name: &str, folder: &Folder) -> Command {
    // The test's name has this module's path without the crate, and without this file.
    let module = module_path!().split_once("::").unwrap().1.rsplit_once("::").unwrap().0;
    let mut command = Command::new(binary);
    command
        .args(["--exact", "--ignored", "--nocapture"])
        .arg(format!("{module}::{name}"))
        .env(HELPER_FOLDER, folder.data())
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// A process that uses the server of a folder.
pub(super) struct OtherProcess {
    pub(super) child: KilledOnDrop,
    stdin: Option<ChildStdin>,
    said: BufReader<std::process::ChildStdout>,
    pub(super) origin: String,
    pub(super) port: u16,
}

impl OtherProcess {
    pub(super) fn spawn(folder: &Folder) -> Self {
        let mut child = helper("helper_uses_a_server_until_told", folder).spawn().unwrap();
        let stdin = child.stdin.take();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child: KilledOnDrop(child), stdin, said, origin: String::new(), port: 0 }
    }

    pub(super) fn ready(mut self) -> Self {
        let said = self.next_line("ready ");
        let (origin, port) = said.split_once(' ').unwrap();
        origin.clone_into(&mut self.origin);
        self.port = port.parse().unwrap();
        self
    }

    pub(super) fn start(folder: &Folder) -> Self {
        Self::spawn(folder).ready()
    }

    /// How its stop ended.
    pub(super) fn stop(mut self) -> String {
        self.stdin = None;
        let said = self.next_line("ended ");
        assert!(self.child.0.wait().unwrap().success());
        said
    }

    pub(super) fn next_line(&mut self, prefix: &str) -> String {
        self.said
            .by_ref()
            .lines()
            .map(Result::unwrap)
            .find_map(|line| line.strip_prefix(prefix).map(str::to_owned))
            .unwrap_or_else(|| panic!("the other process ended without a line {prefix:?}"))
    }
}

/// A process that does not outlive its test, however that ends.
pub(super) struct KilledOnDrop(pub(super) Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A folder of one test. Its server, if one is left, is killed with it.
pub(super) struct Folder {
    pub(super) path: PathBuf,
}

impl Folder {
    pub(super) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("symphony-{}", Uuid::new_v4().simple()));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        Self { path: path.canonicalize().unwrap() }
    }

    pub(super) fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    pub(super) fn settings(&self) -> Settings {
        Settings::new(self.data())
    }

    pub(super) fn cluster(&self) -> PathBuf {
        self.data().join("postgres")
    }

    pub(super) fn pid_file(&self) -> PathBuf {
        self.cluster().join("postmaster.pid")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.data().join("server.log")
    }

    pub(super) fn server_pid(&self) -> Option<u32> {
        fs::read_to_string(self.pid_file()).ok()?.lines().next()?.parse().ok()
    }

    pub(super) fn unfinished(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.data()).into_iter().flatten().flatten();
        let unfinished = |path: &PathBuf| path.to_string_lossy().contains("postgres.new-");
        entries.map(|entry| entry.path()).filter(unfinished).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Some(pid) = self.server_pid() {
            let cluster = self.cluster().into_os_string().into_encoded_bytes();
            if command_line(pid).split(|byte| *byte == 0).any(|word| word == cluster) {
                kill(pid);
            }
        }
        fs::set_permissions(self.path.join("closed"), Permissions::from_mode(0o700)).ok();
        // A killed server's children write until they notice.
        let deadline = Instant::now() + Duration::from_secs(10);
        while fs::remove_dir_all(&self.path).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A disk of the given size in the place of the data folder.
pub(super) struct SmallDisk {
    at: PathBuf,
}

impl SmallDisk {
    pub(super) fn mount(folder: &Folder, size: &str) -> Self {
        let at = folder.data();
        fs::create_dir_all(&at).unwrap();
        let options = format!("size={size},mode=755");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &options, "symphony-test"]).arg(&at);
        assert!(command.status().unwrap().success(), "this test needs root's right to mount");
        Self { at }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg("--lazy").arg(&self.at).status().ok();
    }
}

/// Server programs of which initdb fails as it does on a full disk.
pub(super) fn initdb_on_a_full_disk(folder: &Folder) -> PathBuf {
    let programs = folder.path.join("bin");
    fs::create_dir(&programs).unwrap();
    for name in ["postgres", "initdb", "pg_ctl"] {
        let script = "test \"$1\" = --version && exec echo 'x (PostgreSQL) 17.0'\n\
                      echo 'error: could not write: No space left on device' >&2; exit 1";
        let path = programs.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }
    programs
}

pub(super) async fn ask(postgres: &PrivatePostgres, sql: &str) -> String {
    let mut connection = PgConnection::connect_with(&postgres.connect_options()).await.unwrap();
    let sql = sqlx::AssertSqlSafe(sql.to_owned());
    let answer = sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    answer
}

pub(super) async fn write_down(postgres: &PrivatePostgres, word: &str) {
    let mut connection = PgConnection::connect_with(&postgres.connect_options()).await.unwrap();
    sqlx::query("CREATE TABLE written (word text)").execute(&mut connection).await.unwrap();
    let insert = sqlx::query("INSERT INTO written VALUES ($1)").bind(word);
    insert.execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

pub(super) async fn written(postgres: &PrivatePostgres) -> String {
    ask(postgres, "SELECT string_agg(word, ',') FROM written").await
}

pub(super) fn one_clear_line(line: &str, expected: &[&str]) {
    assert!(!line.contains('\n') && !line.contains("  "), "{line}");
    for words in expected {
        assert!(line.contains(words), "{words:?} is not in {line:?}");
    }
}

pub(super) fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

pub(super) fn kill(pid: u32) {
    signal(pid, Signal::KILL);
    // Dead, or a zombie where nobody reaps orphans.
    let gone = || command_line(pid).is_empty().then_some(());
    wait_for("the process is dead", gone);
}

/// A process with these words, and the folder's path, on its command line.
pub(super) fn process_that_says(words: &[u8], folder: &Folder) -> Option<u32> {
    let path = folder.data().into_os_string().into_encoded_bytes();
    let says = |line: &[u8], words: &[u8]| line.windows(words.len()).any(|part| part == words);
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .find(|pid| says(&command_line(*pid), words) && says(&command_line(*pid), &path))
}

/// Polls until there is something.
pub(super) fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited a minute until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn command_line(pid: u32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}
