//! Listening and dialling sockets. Binding is synchronous, so that a taken port is an error of
//! the call that asked for it.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::TcpStream;

use super::{between_forks, note_opened};

/// Connections that wait for `accept`; the kernel's own default bound (somaxconn) since 5.4.
const BACKLOG: i32 = 4096;

/// A bound socket: the data with which a forked child finds it again.
#[derive(Clone, Debug)]
pub struct Bound {
    pub descriptor: RawFd,
    pub address: SockAddr,
}

impl Bound {
    /// # Errors
    /// When the socket has no address, although a bound one has.
    pub fn of<S: AsFd>(socket: &S) -> io::Result<Self> {
        let address = SockRef::from(socket).local_addr()?;
        Ok(Self { descriptor: socket.as_fd().as_raw_fd(), address })
    }

    /// 0 for a Unix socket.
    pub fn port(&self) -> u16 {
        self.address.as_socket().map_or(0, |address| address.port())
    }

    /// `host:port` or the path.
    pub fn name(&self) -> String {
        match (self.address.as_socket(), self.address.as_pathname()) {
            (Some(address), _) => address.to_string(),
            (None, Some(path)) => path.display().to_string(),
            (None, None) => String::new(),
        }
    }
}

/// Binds `host:port` (port 0: any). A host with several addresses binds the first that works.
///
/// # Errors
/// The last address's error, or `InvalidInput` when the text names no address.
pub fn bind_tcp(address: &str, reuse_port: bool) -> io::Result<TcpListener> {
    let mut last = io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{address:?} names no address to listen on, write host:port"),
    );
    for candidate in address.to_socket_addrs()? {
        match bind_one(candidate, reuse_port) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn bind_one(address: SocketAddr, reuse_port: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() && !address.ip().is_unspecified() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    if reuse_port {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Listens on a TCP socket that is already bound. Other holders may keep it: connections that
/// arrive after this process has closed it wait there for the next listener.
///
/// # Errors
/// It is not such a socket, or another one listens at its address.
pub fn listen_at(socket: OwnedFd) -> io::Result<TcpListener> {
    let socket = Socket::from(socket);
    socket.set_cloexec(true)?;
    socket.set_nonblocking(true)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Binds a Unix socket that only this user can open; a leftover socket without a listener is
/// replaced.
///
/// # Errors
/// `AddrInUse` when another process listens there, or the path is not a socket.
pub fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    // Does not follow a link, which may point to anything.
    let is_socket = |path: &Path| {
        std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
    };
    if is_socket(path) && std::os::unix::net::UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// How many connections are accepted in one turn of a thread: half a millisecond. Arbitrary;
/// earlier work has its turn in between.
const ACCEPTED_PER_TURN: u64 = 16;

/// Accepts connections and passes each to `take`, then pauses for the time that it returns; ends
/// when it returns `None`. `make_room` is called when no descriptor is left for a connection, and
/// frees some.
pub async fn accept_each(
    listener: TcpListener,
    mut take: impl FnMut(TcpStream, SocketAddr) -> Option<Duration>,
    make_room: impl Fn(),
) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    for count in 1_u64.. {
        let accepting = async {
            let (stream, peer) = listener.accept().await?;
            // A socket for both families gives the addresses of IPv4 clients as IPv6 ones.
            let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
            Ok((note_opened(stream)?, peer))
        };
        match between_forks(accepting).await {
            Ok((stream, peer)) => {
                let Some(pause) = take(stream, peer) else { return };
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
            }
            Err(error) => {
                if is_out_of_descriptors(&error) {
                    make_room();
                }
                pause_accepting(&error).await;
            }
        }
        if count % ACCEPTED_PER_TURN == 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// Of the process or of the machine: EMFILE and ENFILE, which are the same numbers on every Unix.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24))
}

/// The pause when out of descriptors: accepting again at once would spin. Arbitrary.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Pauses after a failed `accept`: either a connection died before it was accepted, which delays
/// the next one for a moment, or no descriptor is left, and others may close some.
pub async fn pause_accepting(_error: &io::Error) {
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// A peer that answers nothing for this long, and then not to this many probes, is gone: calls
/// without a deadline end about a minute and a half after their client's machine did. Arbitrary;
/// far above what a mobile network loses, far below the kernel's two hours.
const SILENCE: Duration = Duration::from_secs(60);
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;

/// The bytes that the kernel buffers for a peer, in addition to those in flight. Without a bound, a
/// peer that reads nothing has up to 4 MiB there, which were made and copied in vain. Arbitrary:
/// four milliseconds' worth at 1 Gbit/s, and two windows of a stream.
#[cfg(any(target_os = "android", target_os = "linux"))]
const UNSENT_BYTES_MAX: u32 = 512 * 1024;

/// Small answers must not wait for the peer's delayed acknowledgement, and a peer whose machine
/// has vanished must be noticed.
pub fn tune(stream: &TcpStream) {
    #[cfg(any(target_os = "android", target_os = "linux"))]
    let _ = SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    // A socket that refuses an option still works, only less well.
    let _ = stream.set_nodelay(true);
    let keepalive =
        TcpKeepalive::new().with_time(SILENCE).with_interval(PROBE_INTERVAL).with_retries(PROBES);
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_wait_for_the_next_one_who_listens() {
        let address: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let held = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).expect("a socket");
        held.bind(&address.into()).expect("a free port");
        let copy = || OwnedFd::from(held.try_clone().expect("a descriptor"));
        let first = listen_at(copy()).expect("it is bound");
        let address = first.local_addr().expect("bound");
        drop(first);
        let client = std::net::TcpStream::connect(address).expect("somebody holds the socket");
        let next = listen_at(copy()).expect("it is bound");
        next.set_nonblocking(false).expect("an option");
        let (_, peer) = next.accept().expect("one waits");
        assert_eq!(client.local_addr().expect("connected"), peer);
    }

    #[tokio::test]
    async fn a_tuned_socket_probes_a_silent_peer() {
        let listener = bind_tcp("127.0.0.1:0", false).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let stream = TcpStream::connect(address).await.expect("listening");
        tune(&stream);
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().expect("an option") && stream.nodelay().expect("an option"));
        assert_eq!(SILENCE, socket.tcp_keepalive_time().expect("an option"));
    }
}
