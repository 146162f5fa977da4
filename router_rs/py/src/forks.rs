//! Releases the descriptors of the parent's I/O threads in a forked child.
//!
//! A fork shares each of them with its parent. A listener that stays open keeps the port taken, a
//! connection hides the parent's death from its peer, and the poller's set is shared by both. None
//! is closed: its number would be reused for another file, into which the runtime's copy in the
//! child might write. `/dev/null` takes the number instead.

use std::cell::RefCell;
use std::ffi::CStr;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use pyo3::prelude::*;

use router_net::io::{self, File, poller_marks};

use crate::runtime::listeners;

const NOTHING: &CStr = c"/dev/null";

thread_local! {
    /// The descriptors that a fork shares, while this thread forks.
    static SHARED: RefCell<Vec<Shared>> = const { RefCell::new(Vec::new()) };
}

/// A descriptor, and the file that it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shared {
    descriptor: RawFd,
    inode: u64,
}

/// See the stub.
#[pyfunction]
pub(crate) fn before_fork() {
    io::lock_for_fork();
    // Done by the parent, since its threads continue: by the time a child looks, the parent may
    // have closed a connection of which the child has a copy, and it is in no set any more.
    SHARED.set(shared());
}

/// See the stub.
#[pyfunction]
pub(crate) fn after_fork_in_parent() {
    SHARED.take();
    io::unlock_after_fork();
}

/// See the stub.
#[pyfunction]
pub(crate) fn after_fork_in_child() {
    io::unlock_after_fork();
    for mark in poller_marks() {
        // SAFETY: the thread that owns the descriptor does not exist in this process.
        unsafe { libc::close(mark.spare) };
    }
    let mut found = SHARED.take();
    if found.is_empty() {
        // The parent had no free descriptor to look with; now there is one.
        found = shared();
    }
    // SAFETY: the path is a string that ends with a zero byte.
    let opened = unsafe { libc::open(NOTHING.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if opened < 0 {
        return;
    }
    // SAFETY: it was just opened, and nobody else knows it.
    let nothing = unsafe { OwnedFd::from_raw_fd(opened) };
    for Shared { descriptor, inode } in found {
        if inode_of(descriptor) == Some(inode) {
            // SAFETY: the threads that own the descriptor do not exist in this process.
            unsafe { libc::dup3(nothing.as_raw_fd(), descriptor, libc::O_CLOEXEC) };
        }
    }
}

/// The listeners, the pollers of the I/O threads, each of which has a mark or a listener in its
/// set, and their other sockets. Empty without `/proc`, which lists the sets.
fn shared() -> Vec<Shared> {
    let mut known = listeners();
    let mut found: Vec<Shared> = known.iter().copied().filter_map(Shared::of).collect();
    found.extend(sockets());
    known.extend(poller_marks().iter().map(|mark| mark.watched));
    if known.is_empty() {
        return found;
    }
    for poller in pollers() {
        let watched = watched_by(poller);
        if watched.iter().any(|each| known.contains(&each.descriptor)) {
            found.extend(watched);
            found.extend(Shared::of(poller));
        }
    }
    found
}

/// The noted sockets that are still open.
fn sockets() -> impl Iterator<Item = Shared> {
    let shared = |(descriptor, noted): (RawFd, File)| {
        let is_same = file_of(descriptor) == Some(noted);
        is_same.then_some(Shared { descriptor, inode: noted.inode })
    };
    io::opened_sockets().into_iter().filter_map(shared)
}

impl Shared {
    fn of(descriptor: RawFd) -> Option<Self> {
        inode_of(descriptor).map(|inode| Self { descriptor, inode })
    }
}

fn pollers() -> Vec<RawFd> {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let is_poller = |entry: &fs::DirEntry| {
        fs::read_link(entry.path())
            .is_ok_and(|target| target.as_os_str() == "anon_inode:[eventpoll]")
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.flatten().filter(is_poller).filter_map(number).collect()
}

/// The descriptors in a poller's set.
fn watched_by(poller: RawFd) -> Vec<Shared> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{poller}")).unwrap_or_default();
    let watched = |line: &str| {
        let descriptor = word_after(line, "tfd:")?.parse().ok()?;
        let inode = u64::from_str_radix(word_after(line, "ino:")?, 16).ok()?;
        Some(Shared { descriptor, inode })
    };
    text.lines().filter_map(watched).collect()
}

fn word_after<'line>(line: &'line str, key: &str) -> Option<&'line str> {
    line.split_once(key)?.1.split_whitespace().next()
}

fn inode_of(descriptor: RawFd) -> Option<u64> {
    file_of(descriptor).map(|file| file.inode)
}

fn file_of(descriptor: RawFd) -> Option<File> {
    use std::os::unix::fs::MetadataExt;
    let found = fs::metadata(format!("/proc/self/fd/{descriptor}")).ok()?;
    Some(File { device: found.dev(), inode: found.ino() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_set_are_read_by_their_keys() {
        let line = "tfd:       57 events:       19 data:  7f  pos:0 ino:2b1 sdev:8";
        assert_eq!(Some("57"), word_after(line, "tfd:"));
        assert_eq!(Some("2b1"), word_after(line, "ino:"));
        assert_eq!(None, word_after("pos:\t0", "tfd:"));
    }

    #[test]
    fn a_poller_tells_what_it_watches() {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let poller = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)
            .expect("a poller");
        let data = rustix::event::epoll::EventData::new_u64(0);
        let flags = rustix::event::epoll::EventFlags::IN;
        rustix::event::epoll::add(&poller, &one, data, flags).unwrap();
        assert!(pollers().contains(&poller.as_raw_fd()));
        let watched = Shared::of(one.as_raw_fd()).expect("an open socket");
        assert_eq!(vec![watched], watched_by(poller.as_raw_fd()));
        drop((one, other));
        assert!(watched_by(poller.as_raw_fd()).is_empty());
    }
}
