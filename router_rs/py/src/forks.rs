//! What a forked child lets go of: the descriptors that the parent's I/O threads work with.
//!
//! A fork shares each of them with its parent. A listener that stays open keeps the port taken, a
//! connection hides the parent's death from its peer, and the poller's set is one for both. None
//! is closed: the number would be given to another file, into which the runtime's copy in the
//! child might write. `/dev/null` takes the number instead.

use std::ffi::CStr;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use pyo3::prelude::*;

use router_net::io::poller_marks;

use crate::runtime::take_listeners;

const NOTHING: &CStr = c"/dev/null";

/// Shuts what this child has of its parent's sockets; to be called in a forked child only.
///
/// The poller of an I/O thread is known by its mark or a listener in its set, and its other sockets
/// by the set. Without `/proc` the listeners alone are shut.
#[pyfunction]
pub(crate) fn shut_descriptors_after_fork() {
    let mut shut = take_listeners();
    let mut known = shut.clone();
    for mark in poller_marks() {
        known.push(mark.watched);
        // SAFETY: the thread that owns the descriptor does not exist in this process.
        unsafe { libc::close(mark.spare) };
    }
    if known.is_empty() {
        return;
    }
    for poller in pollers() {
        let watched = watched_by(poller);
        if known.iter().any(|each| watched.contains(each)) {
            shut.extend(watched);
            shut.push(poller);
        }
    }
    // SAFETY: the path is a string that ends with a zero byte.
    let opened = unsafe { libc::open(NOTHING.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if opened < 0 {
        return;
    }
    // SAFETY: it was just opened, and nobody else knows it.
    let nothing = unsafe { OwnedFd::from_raw_fd(opened) };
    for descriptor in shut {
        // SAFETY: the threads that own the descriptor do not exist in this process.
        unsafe { libc::dup3(nothing.as_raw_fd(), descriptor, libc::O_CLOEXEC) };
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

/// What a poller has in its set and this process has under the same number.
///
/// The set is the parent's, who goes on: by the time of this, a number in it may be that of
/// another file here. Their inodes tell.
fn watched_by(poller: RawFd) -> Vec<RawFd> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{poller}")).unwrap_or_default();
    let watched = |line: &str| {
        let descriptor: RawFd = word_after(line, "tfd:")?.parse().ok()?;
        let inode = u64::from_str_radix(word_after(line, "ino:")?, 16).ok()?;
        (inode_of(descriptor) == Some(inode)).then_some(descriptor)
    };
    text.lines().filter_map(watched).collect()
}

fn word_after<'line>(line: &'line str, key: &str) -> Option<&'line str> {
    line.split_once(key)?.1.split_whitespace().next()
}

fn inode_of(descriptor: RawFd) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(format!("/proc/self/fd/{descriptor}")).ok().map(|found| found.ino())
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
        assert_eq!(vec![one.as_raw_fd()], watched_by(poller.as_raw_fd()));
        drop((one, other));
        assert!(watched_by(poller.as_raw_fd()).is_empty());
    }
}
