//! Other processes: signals to them without the program `kill`, which a bare machine does not have, and the Python
//! that some of them are written in.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process, kill_process_group};

/// To a process that is still there, if only as a zombie.
pub fn signal(pid: u32, signal: Signal) {
    kill_process(number(pid), signal).unwrap();
}

/// To a process that may have ended meanwhile.
pub fn signal_if_there(pid: u32, signal: Signal) {
    kill_process(number(pid), signal).ok();
}

/// A process that leads a group, and all of that group, if they are still there.
pub fn kill_group(pid: u32) {
    kill_process_group(number(pid), Signal::KILL).ok();
}

fn number(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

/// Run a shell script that outlives this process: it gets our process number and the folder, and cleans up after us.
pub fn clean_up_after_us(script: &str, folder: &Path) {
    // Not waited for: it outlives this process, that is its purpose.
    #[allow(clippy::zombie_processes)]
    let _watcher = Command::new("setsid")
        .args(["bash", "-c", script, "watch", &std::process::id().to_string()])
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("bash, to clean up after the tests");
}

/// Whether there is a `python3` that the tests' programs run on.
pub fn python_is_there() -> bool {
    static FOUND: LazyLock<bool> = LazyLock::new(|| {
        let mut python = Command::new("python3");
        python.args(["-c", "import sys; sys.exit(sys.version_info < (3, 10))"]);
        python.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    });
    *FOUND
}

/// Return from the test, saying so, unless there is a `python3`. With all brokers there is one: their Python is made by it.
macro_rules! python_or_skip {
    () => {
        if !$crate::support::processes::python_is_there() {
            assert!(std::env::var_os("SYMPHONY_REQUIRE_BROKERS").is_none(), "there is no python3");
            println!("passed over: no python3 (3.10 or later)");
            return;
        }
    };
}
pub(crate) use python_or_skip;
