//! The TLS handshake of a client, and how one that fails ends.

use std::io;
use std::time::Duration;

use router_io::tls::ServerTls;
use router_io::{CountedTcp, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::Front;

/// A client that is refused gets so long to read why. Arbitrary.
const LINGER: Duration = Duration::from_secs(2);

/// What is read of such a client: a request that it has sent behind its certificate. Arbitrary.
const UNREAD_BYTES_MAX: usize = 64 * 1024;

/// `None`: it came to nothing, and the client knows why.
pub(super) async fn accept(front: &Front, tls: &ServerTls, stream: CountedTcp) -> Option<Stream> {
    let accepting = TlsAcceptor::from(tls.current()).accept(stream).into_fallible();
    let (error, stream) = match front.in_time(async { Some(accepting.await) }).await? {
        Ok(stream) => return Some(Stream::Tls(Box::new(stream.into()))),
        Err(failed) => failed,
    };
    // One that leaves amid a handshake, as probes do, has failed at nothing.
    if error.kind() == io::ErrorKind::InvalidData {
        front.counters.tls_failures.count();
        part(stream).await;
    }
    None
}

/// Closes so that the alert arrives: a socket that is closed with bytes unread resets the connection,
/// and its peer may throw away what it has not read itself. In TLS 1.3 a client sends its request
/// before it knows what becomes of its certificate.
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
