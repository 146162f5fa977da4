//! The TLS handshake of a client, and how a failed one ends.

use std::io;
use std::time::Duration;

use router_io::tls::ServerTls;
use router_io::{CountedTcp, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::Front;

/// How long a refused client has to read the reason. Arbitrary.
const LINGER: Duration = Duration::from_secs(2);

/// How much is read from such a client: a request that it sent after its certificate. Arbitrary.
const UNREAD_BYTES_MAX: usize = 64 * 1024;

/// `None`: it failed, and the client has been notified.
pub(super) async fn accept(front: &Front, tls: &ServerTls, stream: CountedTcp) -> Option<Stream> {
    let accepting = TlsAcceptor::from(tls.current()).accept(stream).into_fallible();
    let (error, stream) = match front.in_time(async { Some(accepting.await) }).await? {
        Ok(stream) => return Some(Stream::Tls(Box::new(stream.into()))),
        Err(failed) => failed,
    };
    // A client that leaves during the handshake, as probes do, does not count as a failure.
    if error.kind() == io::ErrorKind::InvalidData {
        front.counters.tls_failures.count();
        part(stream).await;
    }
    None
}

/// Closes so that the alert arrives: closing a socket with unread bytes resets the connection, and
/// its peer may discard data that it has not read itself. In TLS 1.3 a client sends its request
/// before it knows whether its certificate is accepted.
async fn part(mut stream: CountedTcp) {
    let ending = async {
        stream.shutdown().await?;
        let mut unread = [0; 1024];
        let mut left = UNREAD_BYTES_MAX;
        loop {
            let read = stream.read(&mut unread).await?;
            left = left.saturating_sub(read);
            if read == 0 || left == 0 {
                return io::Result::Ok(());
            }
        }
    };
    // The client has closed as well, or is gone, or does not read: nothing more can be sent to it.
    let _parted = timeout(LINGER, ending).await;
}
