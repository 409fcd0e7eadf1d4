//! Threads for runs: one each while it lasts, and kept for the next. Starting one costs as much as a short script.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use rustix::process::Pid;

/// A run. Answers whether its thread can be used again.
pub(super) type Task = Box<dyn FnOnce() -> bool + Send>;
/// Where those that wait can be told; gone with the executor, and so are they then.
type Waiting = Mutex<Vec<SyncSender<Task>>>;

thread_local! {
    /// Which thread of the process this is, looked up once.
    static CURRENT: Option<Pid> = {
        let link = std::fs::read_link("/proc/thread-self").ok();
        let number = link.and_then(|link| link.file_name()?.to_str()?.parse().ok());
        number.and_then(Pid::from_raw)
    };
}

/// The calling thread, as the kernel numbers it; `None` where it does not say.
pub(super) fn current_thread() -> Option<Pid> {
    CURRENT.with(|current| *current)
}

/// As many as there ever were runs at once.
#[derive(Debug)]
pub(super) struct Threads {
    waiting: Arc<Waiting>,
    stack_bytes: usize,
}

impl Threads {
    pub(super) fn new(stack_bytes: usize) -> Self {
        Self { waiting: Arc::default(), stack_bytes }
    }

    /// Run it on a thread that waits, or on a new one.
    pub(super) fn start(&self, task: Task) -> io::Result<()> {
        // The last one to wait is the one whose memory is still warm.
        let idle = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let task = match idle {
            None => task,
            // It waits for nothing else.
            Some(idle) => match idle.send(task) {
                Ok(()) => return Ok(()),
                Err(back) => back.0,
            },
        };
        let waiting = Arc::downgrade(&self.waiting);
        let thread = thread::Builder::new().name("script".to_owned()).stack_size(self.stack_bytes);
        thread.spawn(move || live(task, &waiting)).map(drop)
    }
}

fn live(first: Task, waiting: &Weak<Waiting>) {
    let mut task = first;
    loop {
        if !task() {
            return;
        }
        let Some(waiting) = waiting.upgrade() else { return };
        let (sender, receiver) = sync_channel(1);
        waiting.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        drop(waiting);
        task = match receiver.recv() {
            Ok(task) => task,
            Err(_ended) => return,
        };
    }
}
