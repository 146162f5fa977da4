//! Regular files, and threads that read them: a disk may let its readers wait, I/O threads must not.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};

/// So many reads wait for a disk at once, and a disk that does not answer holds up no more threads.
/// Arbitrary.
const THREADS_MAX: usize = 4;

/// A thread without work ends after this long. As tokio's do.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// An open regular file; it is closed when this is dropped.
#[derive(Debug)]
pub struct RegularFile {
    descriptor: OwnedFd,
    /// Its length when it was opened.
    pub bytes: u64,
    /// Nanoseconds since 1970.
    pub modified_ns: i64,
}

/// Threads that run what may wait, started on demand.
#[derive(Default)]
pub struct Readers {
    shared: Arc<Shared>,
}

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    has_work: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Of the threads, those that wait for work, or were woken for it and have not yet begun.
    idle: usize,
    is_over: bool,
}

// === impl RegularFile ===

impl RegularFile {
    /// Opens a file for reading. It may wait for a disk.
    ///
    /// # Errors
    /// There is none, it may not be read, or it is a directory, a pipe, a device or a socket.
    pub fn open(path: &Path) -> io::Result<Self> {
        // Opening a pipe would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let descriptor = open(path, flags, Mode::empty())?;
        let status = fstat(&descriptor)?;
        match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(io::ErrorKind::IsADirectory.into()),
            _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
        }
        let bytes = u64::try_from(status.st_size).unwrap_or_default();
        let whole_ns = status.st_mtime.saturating_mul(1_000_000_000);
        let modified_ns = whole_ns.saturating_add_unsigned(status.st_mtime_nsec);
        Ok(Self { descriptor, bytes, modified_ns })
    }
}

impl AsFd for RegularFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

// === impl Readers ===

impl Readers {
    /// Runs `job` on one of the threads; jobs begin in order.
    ///
    /// # Errors
    /// No thread runs, and no thread can be started.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        if state.idle <= state.jobs.len() && state.threads < THREADS_MAX {
            let shared = Arc::clone(&self.shared);
            match thread::Builder::new().name("files".to_owned()).spawn(move || work(&shared)) {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => return Err(error),
                Err(_) => {} // the others will come to it
            }
        }
        state.jobs.push_back(Box::new(job));
        drop(state);
        self.shared.has_work.notify_one();
        Ok(())
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.shared.state.lock().is_over = true;
        self.shared.has_work.notify_all();
    }
}

impl fmt::Debug for Readers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Readers").finish_non_exhaustive()
    }
}

fn work(shared: &Shared) {
    let mut state = shared.state.lock();
    loop {
        while let Some(job) = state.jobs.pop_front() {
            // A panic is a bug, but only of this job.
            let run = || drop(catch_unwind(AssertUnwindSafe(job)));
            MutexGuard::unlocked(&mut state, run);
        }
        if state.is_over {
            break;
        }
        state.idle += 1;
        let waited = shared.has_work.wait_for(&mut state, IDLE_TIME);
        state.idle -= 1;
        if waited.timed_out() && state.jobs.is_empty() {
            break;
        }
    }
    state.threads -= 1;
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn jobs_wait_for_each_other_beyond_the_threads() {
        let readers = Readers::default();
        let (begun, begins) = mpsc::channel();
        let (go, goes) = mpsc::channel::<()>();
        let goes = Arc::new(Mutex::new(goes));
        for index in 0..THREADS_MAX + 2 {
            let (begun, goes) = (begun.clone(), Arc::clone(&goes));
            readers
                .run(move || {
                    begun.send(index).expect("awaited");
                    let _ = goes.lock().recv();
                })
                .expect("a thread");
        }
        let first: Vec<_> = (0..THREADS_MAX).map(|_| begins.recv_timeout(PATIENCE)).collect();
        assert!(first.iter().all(Result::is_ok));
        assert!(begins.try_recv().is_err(), "the threads are taken");
        drop(go);
        for _ in 0..2 {
            begins.recv_timeout(PATIENCE).expect("the others have ended");
        }
    }

    #[test]
    fn a_panic_takes_no_thread() {
        let readers = Readers::default();
        let (done, ends) = mpsc::channel();
        for _ in 0..THREADS_MAX * 2 {
            readers.run(|| panic!("on purpose")).expect("a thread");
        }
        readers.run(move || done.send(()).expect("awaited")).expect("a thread");
        ends.recv_timeout(PATIENCE).expect("it runs");
    }

    #[test]
    fn its_threads_end_with_it() {
        let readers = Readers::default();
        let (done, ends) = mpsc::channel();
        readers.run(move || done.send(()).expect("awaited")).expect("a thread");
        ends.recv_timeout(PATIENCE).expect("it runs");
        let shared = Arc::downgrade(&readers.shared);
        drop(readers);
        let deadline = std::time::Instant::now() + PATIENCE;
        while shared.strong_count() > 0 {
            assert!(std::time::Instant::now() < deadline, "a thread stays");
            thread::yield_now();
        }
    }

    #[test]
    fn only_regular_files_are_opened() {
        let open = |path: &str| RegularFile::open(Path::new(path)).map_err(|error| error.kind());
        assert_eq!(Err(io::ErrorKind::IsADirectory), open("/").map(drop));
        assert_eq!(Err(io::ErrorKind::InvalidInput), open("/dev/null").map(drop));
        assert_eq!(Err(io::ErrorKind::NotFound), open("/none/such").map(drop));
        let own = std::env::current_exe().expect("a program");
        let opened = RegularFile::open(&own).expect("it may be read");
        assert_eq!(own.metadata().expect("it is there").len(), opened.bytes);
    }
}
