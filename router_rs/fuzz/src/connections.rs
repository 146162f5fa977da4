//! The ingress and a replica's server as a whole, one connection for each input.
//!
//! For any bytes that a client sends before it half-closes, its connection is closed, no call stays
//! in flight, and others are served.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};

use socket2::{Domain, Socket, Type};

use crate::http2_script;
use crate::mesh::{PATIENCE, mesh};

/// How often another client makes a request.
const NEIGHBOUR_EVERY: u32 = 16;

/// The source addresses, in 127/8: not that of the ingress, nor the last, which is not usable.
const FIRST_HOST: u32 = 2;
const HOSTS: u32 = (1 << 24) - 1 - FIRST_HOST;

/// More than any input makes the mesh answer: an echo, and errors with a sentence each.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Bytes of HTTP/1.1 at the ingress.
pub fn ingress_http1(data: &[u8]) {
    let answer = ask_ingress(data);
    let is_http2 = data.starts_with(b"PRI ");
    assert!(is_http2 || answer.is_empty() || answer.starts_with(b"HTTP/1."), "{answer:?}");
    neighbour();
}

/// Frames of HTTP/2 at the ingress.
pub fn ingress_http2(data: &[u8]) {
    ask_ingress(&http2_script::connection(data));
    neighbour();
}

/// Frames of HTTP/2 at a replica's server, which does not trust the client.
pub fn server_http2(data: &[u8]) {
    let stream = UnixStream::connect(&mesh().server_path).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    exchange(&stream, &http2_script::connection(data), |stream| stream.shutdown(Shutdown::Write));
    mesh().settle();
}

fn ask_ingress(bytes: &[u8]) -> Vec<u8> {
    let stream = connect_to_ingress();
    let answer = exchange(&stream, bytes, |stream| stream.shutdown(Shutdown::Write));
    mesh().settle();
    answer
}

/// Uses another source address each time, where the system has them: the ingress delays those that
/// sent malformed input before, and nearly all inputs are malformed.
fn connect_to_ingress() -> TcpStream {
    loop {
        match try_to_connect() {
            // By the fuzzer's alarm.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            stream => return stream.expect("the ingress listens"),
        }
    }
}

fn try_to_connect() -> io::Result<TcpStream> {
    static CONNECTIONS: AtomicU32 = AtomicU32::new(0);
    let ingress: SocketAddr = mesh().ingress_address.parse().expect("an address");
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    if cfg!(target_os = "linux") {
        let host = FIRST_HOST + CONNECTIONS.fetch_add(1, Ordering::Relaxed) % HOSTS;
        let own = Ipv4Addr::from_bits(Ipv4Addr::new(127, 0, 0, 0).to_bits() + host);
        socket.bind(&SocketAddr::from((own, 0)).into())?;
    }
    socket.connect(&ingress.into())?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket.into())
}

/// Sends everything, closes its sending side, and reads to the end.
fn exchange<S>(mut stream: &S, bytes: &[u8], shut: impl Fn(&S) -> std::io::Result<()>) -> Vec<u8>
where
    for<'a> &'a S: Read + Write,
{
    // The other side may have closed already, which the read shows.
    let sent = stream.write_all(bytes).and_then(|()| shut(stream));
    assert!(!sent.is_err_and(|error| is_timeout(error.kind())), "nobody reads");
    let mut answer = Vec::new();
    let mut piece = [0; 16 * 1024];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return answer,
            Ok(count) => answer.extend_from_slice(&piece[..count]),
            Err(error) if is_timeout(error.kind()) => panic!("the connection stays open"),
            // Closed with something unread.
            Err(_) => return answer,
        }
        assert!(answer.len() < ANSWER_BYTES_MAX, "an answer without an end");
    }
}

fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Another client, from time to time: it must get an answer.
fn neighbour() {
    static TURN: AtomicU32 = AtomicU32::new(0);
    if TURN.fetch_add(1, Ordering::Relaxed) % NEIGHBOUR_EVERY == 0 {
        let request = b"POST /app/y HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\
            content-length: 4\r\n\r\necho";
        let mut stream = connect_to_ingress();
        stream.write_all(request).expect("room for a request");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer in time");
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n") && answer.ends_with(b"echo"));
        mesh().settle();
    }
}
