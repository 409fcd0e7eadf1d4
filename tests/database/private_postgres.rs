//! The private PostgreSQL under what real machines do to it: kills, full disks, taken ports, races.
//!
//! Every test has a data folder of its own. A second process is this test binary again, told to run
//! one of the two ignored tests at the end.

use std::fs::{self, Permissions, TryLockError};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use sqlx::{Connection, PgConnection};
use symphony_lab::private_postgres::{
    Origin, PrivatePostgres, PrivatePostgresError, Settings, Stop,
};

use crate::support::processes::{Signal, signal};
use support::{
    Folder, HELPER_FOLDER, KilledOnDrop, OtherProcess, SmallDisk, ask, helper, helper_of,
    initdb_on_a_full_disk, is_root, kill, one_clear_line, process_that_says, wait_for, write_down,
    written,
};

mod support;

#[tokio::test]
async fn a_server_is_made_started_stopped_and_started_again() {
    let folder = Folder::new();
    let postgres = PrivatePostgres::start(&folder.settings()).await.unwrap();
    assert_eq!(postgres.origin(), Origin::Created);
    assert!((15..=18).contains(&postgres.server_major()));
    assert!(postgres.server_version().starts_with(&postgres.server_major().to_string()));
    assert_eq!(postgres.data_folder(), folder.data());
    assert!(postgres.connect_options().get_socket().is_some());
    for (setting, value) in [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("data_checksums", "on"),
        ("server_encoding", "UTF8"),
        ("listen_addresses", "127.0.0.1"),
        ("max_connections", "200"),
        ("shared_buffers", "256MB"),
        ("max_wal_size", "4GB"),
        ("password_encryption", "scram-sha-256"),
    ] {
        assert_eq!(ask(&postgres, &format!("SHOW {setting}")).await, value, "{setting}");
    }
    write_down(&postgres, "first").await;
    assert_eq!(postgres.stop().await.unwrap(), Stop::Stopped);
    assert!(!folder.pid_file().exists());

    let postgres = PrivatePostgres::start(&folder.settings()).await.unwrap();
    assert_eq!(postgres.origin(), Origin::Started);
    assert_eq!(written(&postgres).await, "first");
    assert_eq!(postgres.stop().await.unwrap(), Stop::Stopped);
}

#[tokio::test]
async fn a_killed_server_is_recovered_with_its_data() {
    let folder = Folder::new();
    let postgres = PrivatePostgres::start(&folder.settings()).await.unwrap();
    write_down(&postgres, "committed").await;
    kill(folder.server_pid().unwrap());
    drop(postgres);

    let postgres = PrivatePostgres::start(&folder.settings()).await.unwrap();
    assert_eq!(postgres.origin(), Origin::Recovered);
    assert_eq!(written(&postgres).await, "committed");
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_killed_server_is_not_replaced_before_its_last_child_is_gone() {
    let folder = Folder::new();
    let postgres = PrivatePostgres::start(&folder.settings()).await.unwrap();
    let mut client = PgConnection::connect_with(&postgres.connect_options()).await.unwrap();
    let child = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut client).await;
    let child = u32::try_from(child.map(|pid: i32| pid).unwrap()).unwrap();
    signal(child, Signal::STOP);
    kill(folder.server_pid().unwrap());
    drop(postgres);

    // Two servers on one cluster would destroy it.
    let log = folder.log();
    let refused = tokio::task::spawn_blocking(move || {
        let refusal = "pre-existing shared memory block";
        let log = || fs::read_to_string(&log).unwrap().contains(refusal).then_some(());
        wait_for("PostgreSQL has refused to start", log);
        kill(child);
    });
    let settings = folder.settings();
    let (postgres, refused) = tokio::join!(PrivatePostgres::start(&settings), refused);
    refused.unwrap();
    let postgres = postgres.unwrap();
    assert_eq!(postgres.origin(), Origin::Recovered);
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn stopping_a_server_that_was_killed_is_no_error() {
    let folder = Folder::new();
    let postgres = PrivatePostgres::start(&folder.settings()).await.unwrap();
    kill(folder.server_pid().unwrap());
    assert_eq!(postgres.stop().await.unwrap(), Stop::Stopped);
}

#[tokio::test]
async fn a_pid_that_now_belongs_to_another_process_does_not_mislead() {
    let folder = Folder::new();
    let postgres = PrivatePostgres::start(&folder.settings()).await.unwrap();
    write_down(&postgres, "still here").await;
    kill(folder.server_pid().unwrap());
    drop(postgres);

    // A bystander of the server's user: PostgreSQL alone would refuse to start because of it.
    let owner = fs::metadata(folder.pid_file()).unwrap();
    let mut bystander = Command::new("sleep");
    bystander.arg("600").current_dir("/").stdout(Stdio::null()).stderr(Stdio::null());
    if is_root() {
        bystander.uid(owner.uid()).gid(owner.gid());
    }
    let mut bystander = KilledOnDrop(bystander.spawn().unwrap());
    let pid_file = fs::read_to_string(folder.pid_file()).unwrap();
    let rest = pid_file.split_once('\n').unwrap().1;
    fs::write(folder.pid_file(), format!("{}\n{rest}", bystander.0.id())).unwrap();

    let postgres = PrivatePostgres::start(&folder.settings()).await.unwrap();
    assert_eq!(postgres.origin(), Origin::Recovered);
    assert_eq!(written(&postgres).await, "still here");
    postgres.stop().await.unwrap();
    assert!(bystander.0.try_wait().unwrap().is_none(), "the bystander was harmed");
}

#[tokio::test]
async fn a_server_orphaned_by_a_killed_symphony_is_found_again() {
    let folder = Folder::new();
    let mut symphony = OtherProcess::start(&folder);
    let server_pid = folder.server_pid().unwrap();
    symphony.child.0.kill().unwrap();
    symphony.child.0.wait().unwrap();
    assert_eq!(folder.server_pid(), Some(server_pid), "the server outlives the process");

    let postgres = PrivatePostgres::start(&folder.settings()).await.unwrap();
    assert_eq!(postgres.origin(), Origin::Found);
    assert_eq!(folder.server_pid(), Some(server_pid));
    assert_eq!(postgres.port(), symphony.port);
    assert_eq!(ask(&postgres, "SELECT 'answers'").await, "answers");
    assert_eq!(postgres.stop().await.unwrap(), Stop::Stopped);
    assert_eq!(folder.server_pid(), None);
}

#[tokio::test]
async fn two_processes_share_one_server_and_the_last_one_stops_it() {
    let folder = Folder::new();
    let other = OtherProcess::start(&folder);
    let postgres = PrivatePostgres::start(&folder.settings()).await.unwrap();
    assert_eq!(postgres.origin(), Origin::Found);
    assert_eq!(postgres.stop().await.unwrap(), Stop::LeftRunning);

    let postgres = PrivatePostgres::start(&folder.settings()).await.unwrap();
    assert_eq!(other.stop(), "LeftRunning");
    assert_eq!(ask(&postgres, "SELECT 'answers'").await, "answers");
    assert_eq!(postgres.stop().await.unwrap(), Stop::Stopped);
    assert_eq!(folder.server_pid(), None);
}

#[tokio::test]
async fn processes_starting_at_once_agree_on_one_server() {
    let folder = Folder::new();
    let others: Vec<OtherProcess> = (0..4).map(|_| OtherProcess::spawn(&folder)).collect();
    let others: Vec<OtherProcess> = others.into_iter().map(OtherProcess::ready).collect();
    let created = others.iter().filter(|other| other.origin == "Created").count();
    let found = others.iter().filter(|other| other.origin == "Found").count();
    assert_eq!((created, found), (1, 3));
    assert!(others.iter().all(|other| Some(other.port) == others.first().map(|first| first.port)));

    let ends: Vec<String> = others.into_iter().map(OtherProcess::stop).collect();
    assert_eq!(ends, ["LeftRunning", "LeftRunning", "LeftRunning", "Stopped"]);
    assert_eq!(folder.server_pid(), None);
}

#[tokio::test]
async fn a_kill_during_initdb_leaves_nothing_half_made() {
    let folder = Folder::new();
    let mut symphony = OtherProcess::spawn(&folder);
    let initdb = wait_for("initdb is at work", || process_that_says(b"postgres.new-", &folder));
    signal(initdb, Signal::STOP);
    symphony.child.0.kill().unwrap();
    symphony.child.0.wait().unwrap();
    assert!(!folder.cluster().exists());
    // Whoever comes next must not sweep away what initdb is still working on.
    let start_lock = fs::File::open(folder.data().join("start.lock")).unwrap();
    let taken = start_lock.try_lock();
    signal(initdb, Signal::CONT);
    assert!(matches!(taken, Err(TryLockError::WouldBlock)), "{taken:?}");
    drop(start_lock);

    let postgres = PrivatePostgres::start(&folder.settings()).await.unwrap();
    assert_eq!(postgres.origin(), Origin::Created);
    assert_eq!(folder.unfinished(), Vec::<PathBuf>::new());
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn no_binaries_is_one_clear_line() {
    let folder = Folder::new();
    let nothing = Settings { binaries: Some(folder.path.clone()), ..folder.settings() };
    let error = PrivatePostgres::start(&nothing).await.unwrap_err();
    assert!(matches!(error, PrivatePostgresError::BadBinaries { .. }), "{error:?}");
    one_clear_line(&error.to_string(), &["it has no postgres", "SYMPHONY_POSTGRES_BIN"]);

    // Not as an ordinary user, and not in a chroot.
    let can_hide = Command::new("unshare").args(["--mount", "true"]).status();
    if !is_root() || !can_hide.unwrap().success() {
        eprintln!("this machine's servers cannot be hidden: the search itself was not tried");
        return;
    }
    // A process for which the places where servers are installed are empty.
    let helper = helper("helper_uses_a_server_until_told", &folder);
    let hide = "for at in /usr/lib/postgresql /var/cache/symphony; do \
                test ! -d $at || mount -t tmpfs none $at || exit 1; done; \
                PATH=/usr/bin exec \"$@\"";
    let mut hidden = Command::new("unshare");
    hidden
        .args(["--mount", "sh", "-c", hide, "sh"])
        .arg(helper.get_program())
        .args(helper.get_args());
    hidden.env(HELPER_FOLDER, folder.data()).env_remove("SYMPHONY_POSTGRES_BIN");
    let said = String::from_utf8(hidden.output().unwrap().stdout).unwrap();
    let failed = said.lines().find_map(|line| line.strip_prefix("failed ")).expect(&said);
    one_clear_line(failed, &["scripts/ensure-postgres", "`postgresql`", "DATABASE_URL"]);
}

#[tokio::test]
async fn a_taken_port_is_one_clear_line() {
    let folder = Folder::new();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let settings = Settings { port: Some(port), ..folder.settings() };
    let error = PrivatePostgres::start(&settings).await.unwrap_err();
    assert!(matches!(error, PrivatePostgresError::PortTaken { .. }), "{error:?}");
    one_clear_line(&error.to_string(), &[&port.to_string(), "another port"]);

    drop(listener);
    let postgres = PrivatePostgres::start(&settings).await.unwrap();
    assert_eq!(postgres.port(), port);
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_moves_to_the_configured_port_unless_it_is_in_use() {
    let folder = Folder::new();
    let first = PrivatePostgres::start(&folder.settings()).await.unwrap();
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let settings = Settings { port: Some(free), ..folder.settings() };
    let error = PrivatePostgres::start(&settings).await.unwrap_err();
    one_clear_line(&error.to_string(), &[&first.port().to_string(), &free.to_string()]);

    drop(first);
    let second = PrivatePostgres::start(&settings).await.unwrap();
    assert_eq!((second.origin(), second.port()), (Origin::Started, free));
    second.stop().await.unwrap();
}

#[tokio::test]
async fn a_data_folder_of_another_major_version_is_refused() {
    let folder = Folder::new();
    let postgres = PrivatePostgres::start(&folder.settings()).await.unwrap();
    write_down(&postgres, "kept").await;
    let major = postgres.server_major();
    let binaries = Some(postgres.binaries().to_path_buf());
    postgres.stop().await.unwrap();

    let other = if major == 18 { 17 } else { major + 1 };
    let version = folder.cluster().join("PG_VERSION");
    let settings = Settings { binaries, ..folder.settings() };
    fs::write(&version, format!("{other}\n")).unwrap();
    let error = PrivatePostgres::start(&settings).await.unwrap_err();
    assert!(matches!(error, PrivatePostgresError::OtherMajor { .. }), "{error:?}");
    one_clear_line(
        &error.to_string(),
        &[&major.to_string(), &other.to_string(), "install postgresql-"],
    );

    fs::write(&version, "9\n").unwrap();
    let error = PrivatePostgres::start(&settings).await.unwrap_err();
    one_clear_line(&error.to_string(), &["PostgreSQL 9", "15 to 18", "pg_upgrade"]);

    fs::write(&version, format!("{major}\n")).unwrap();
    let postgres = PrivatePostgres::start(&settings).await.unwrap();
    assert_eq!(written(&postgres).await, "kept");
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_full_disk_is_one_clear_line() {
    let folder = Folder::new();
    if !is_root() {
        // Only root can make a small disk. PostgreSQL's words for a full one are these.
        let settings =
            Settings { binaries: Some(initdb_on_a_full_disk(&folder)), ..folder.settings() };
        let error = PrivatePostgres::start(&settings).await.unwrap_err();
        assert!(matches!(error, PrivatePostgresError::NoSpace { .. }), "{error:?}");
        one_clear_line(&error.to_string(), &["no space left", "SYMPHONY_DATA"]);
        return;
    }

    // Too small for a cluster: initdb fails.
    let disk = SmallDisk::mount(&folder, "20m");
    let error = PrivatePostgres::start(&folder.settings()).await.unwrap_err();
    assert!(matches!(error, PrivatePostgresError::NoSpace { .. }), "{error:?}");
    one_clear_line(&error.to_string(), &["no space left", "SYMPHONY_DATA"]);
    assert!(!folder.cluster().exists());
    assert_eq!(folder.unfinished(), Vec::<PathBuf>::new());
    drop(disk);

    // Full later on: the server fails to start, and once there is room it has lost nothing.
    let _disk = SmallDisk::mount(&folder, "200m");
    let postgres = PrivatePostgres::start(&folder.settings()).await.unwrap();
    write_down(&postgres, "kept").await;
    postgres.stop().await.unwrap();
    let filler = folder.data().join("filler");
    fs::write(&filler, vec![0_u8; 256 * 1024 * 1024]).unwrap_err();
    let error = PrivatePostgres::start(&folder.settings()).await.unwrap_err();
    assert!(matches!(error, PrivatePostgresError::NoSpace { .. }), "{error:?}");
    fs::remove_file(&filler).unwrap();
    let postgres = PrivatePostgres::start(&folder.settings()).await.unwrap();
    assert_eq!(written(&postgres).await, "kept");
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_closed_or_unwritable_folder_is_one_clear_line() {
    let folder = Folder::new();
    let closed = folder.path.join("closed");
    fs::create_dir(&closed).unwrap();
    let settings = Settings { data_folder: closed.join("data"), ..folder.settings() };
    // Root may write anywhere, but the user who runs its server may not.
    let mode = if is_root() { 0o700 } else { 0o500 };
    fs::set_permissions(&closed, Permissions::from_mode(mode)).unwrap();
    let error = PrivatePostgres::start(&settings).await.unwrap_err();
    one_clear_line(&error.to_string(), &[closed.to_str().unwrap(), "SYMPHONY_DATA"]);
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why_in_one_line() {
    let folder = Folder::new();
    let wrong = ("shared_preload_libraries".to_owned(), "no_such_library".to_owned());
    let settings = Settings { extra_settings: vec![wrong], ..folder.settings() };
    let error = PrivatePostgres::start(&settings).await.unwrap_err();
    assert!(matches!(error, PrivatePostgresError::DidNotStart { .. }), "{error:?}");
    one_clear_line(&error.to_string(), &["no_such_library", "server.log"]);
}

#[tokio::test]
async fn extra_settings_win_over_ours() {
    let folder = Folder::new();
    let extra = [("max_connections", "33"), ("application_name", "it's")];
    let extra_settings = extra.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let settings = Settings { extra_settings, ..folder.settings() };
    let postgres = PrivatePostgres::start(&settings).await.unwrap();
    assert_eq!(ask(&postgres, "SHOW max_connections").await, "33");
    assert_eq!(ask(&postgres, "SHOW application_name").await, "it's");
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_path_too_long_for_a_socket_is_served_by_loopback() {
    let folder = Folder::new();
    let data_folder = folder.path.join("x".repeat(100));
    let settings = Settings { data_folder, ..folder.settings() };
    let postgres = PrivatePostgres::start(&settings).await.unwrap();
    assert_eq!(postgres.connect_options().get_socket(), None);
    assert_eq!(ask(&postgres, "SELECT host(inet_client_addr())").await, "127.0.0.1");
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn the_password_is_closed_to_others_and_never_shown() {
    let folder = Folder::new();
    let postgres = PrivatePostgres::start(&folder.settings()).await.unwrap();
    let path = folder.data().join("password");
    let password = fs::read_to_string(&path).unwrap().trim().to_owned();
    assert_eq!(password.len(), 64);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert!(!format!("{postgres:?}").contains(&password));
    let without = postgres.connect_options().password("wrong");
    PgConnection::connect_with(&without).await.unwrap_err();

    fs::write(&path, "wrong\n").unwrap();
    let error = PrivatePostgres::start(&folder.settings()).await.unwrap_err();
    assert!(matches!(error, PrivatePostgresError::PasswordRefused { .. }), "{error:?}");
    one_clear_line(&error.to_string(), &[path.to_str().unwrap()]);
    fs::remove_file(&path).unwrap();
    let error = PrivatePostgres::start(&folder.settings()).await.unwrap_err();
    assert!(matches!(error, PrivatePostgresError::PasswordMissing { .. }), "{error:?}");
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn the_server_holds_neither_our_locks_nor_our_secrets() {
    let folder = Folder::new();
    let postgres = PrivatePostgres::start(&folder.settings()).await.unwrap();
    let process = PathBuf::from(format!("/proc/{}", folder.server_pid().unwrap()));
    for entry in fs::read_dir(process.join("fd")).unwrap() {
        let target = fs::read_link(entry.unwrap().path()).unwrap_or_default();
        assert!(!target.ends_with("start.lock") && !target.ends_with("users.lock"), "{target:?}");
    }
    // A server that kept our output open would keep whoever waits for its end waiting.
    for (number, expected) in [("0", "/dev/null".into()), ("1", folder.log()), ("2", folder.log())]
    {
        assert_eq!(fs::read_link(process.join("fd").join(number)).unwrap(), expected);
    }
    // HOME stands for anything that we were given and the server needs not have.
    let environment = fs::read(process.join("environ")).unwrap();
    assert!(!environment.split(|byte| *byte == 0).any(|line| line.starts_with(b"HOME=")));
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn an_ordinary_user_can_run_it() {
    let folder = Folder::new();
    let mut command = helper("helper_runs_a_server_once", &folder);
    if is_root() {
        // The binary may lie where only root can read it.
        let copy = folder.path.join("test-binary");
        fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        command = helper_of(&copy, "helper_runs_a_server_once", &folder);
        let nobody = 65_534;
        std::os::unix::fs::chown(&folder.path, Some(nobody), Some(nobody)).unwrap();
        command.uid(nobody).gid(nobody);
    }
    command.env("XDG_DATA_HOME", &folder.path).env_remove("SYMPHONY_DATA");
    // Another test that starts a process at this moment holds the copy open for writing, until its exec.
    let output = loop {
        match command.output() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
            output => break output.unwrap(),
        }
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said} {}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("the server answers"), "{said}");
    assert!(folder.path.join("symphony/postgres/PG_VERSION").exists());
}

/// Not a test of its own: another Symphony process. Says so when the server runs, and stops using
/// it when its standard input ends.
#[tokio::test]
#[ignore = "run by the tests above"]
async fn helper_uses_a_server_until_told() {
    let Some(data_folder) = std::env::var_os(HELPER_FOLDER) else { return };
    let postgres = match PrivatePostgres::start(&Settings::new(data_folder)).await {
        Ok(postgres) => postgres,
        Err(error) => return println!("\nfailed {error}"),
    };
    println!("\nready {:?} {}", postgres.origin(), postgres.port());
    std::io::stdin().lines().for_each(drop);
    println!("\nended {:?}", postgres.stop().await.unwrap());
}

/// Not a test of its own: an ordinary user's Symphony, with nothing configured.
#[tokio::test]
#[ignore = "run by the tests above"]
async fn helper_runs_a_server_once() {
    if std::env::var_os(HELPER_FOLDER).is_none() {
        return;
    }
    let postgres = PrivatePostgres::start(&Settings::default()).await.unwrap();
    println!("\n{}", ask(&postgres, "SELECT 'the server answers'").await);
    assert_eq!(postgres.stop().await.unwrap(), Stop::Stopped);
}
