//! Sending a part of a file in an answer, in place of pieces that Python writes.

use std::io;
use std::task::{Context, Poll, ready};

use router_io::Readers;
use router_protocol::grpc::{Framed, Message};

use super::call::CallTask;
use super::outlet::Outlet;
use crate::file_part::{FilePart, FilePiece, worth_reading};
use crate::link::{CREDIT_BYTES, Command};

/// Counts as unsent besides the bytes of a file, until the last of them was sent and the file is
/// closed: so its writer waits for that, however short it is.
pub const FILE_EXTRA_BYTES: usize = CREDIT_BYTES;

impl CallTask {
    /// Sends more of the file that is the oldest command; false when it has to wait.
    ///
    /// If the file fails, Python learns why, and ends the answer.
    pub(super) fn send_file(&mut self, context: &mut Context<'_>) -> bool {
        let Self { waiting, outlet, connection, served_call, said, .. } = self;
        let Some(Command::File(part)) = waiting.front_mut() else { return false };
        loop {
            match poll_piece(part, outlet, &connection.server.readers, context) {
                Poll::Pending => return false,
                Poll::Ready(Ok(Some(piece))) => {
                    let bytes = piece.len();
                    if let Some(guest) = &connection.guest {
                        guest.front.earn_by_answer(bytes);
                    }
                    said.response_bytes += bytes;
                    outlet.send_file_piece(piece);
                    served_call.link.sent(bytes);
                }
                Poll::Ready(Ok(None)) => break,
                Poll::Ready(Err(error)) => {
                    let _first_is_kept = served_call.file_error.set(error);
                    break;
                }
            }
        }
        let unsent = part.left();
        waiting.pop_front(); // which closes it
        served_call.link.sent(unsent + FILE_EXTRA_BYTES);
        self.notice_cancelled();
        true
    }
}

/// Returns the next piece, for which there is room; `None` after the last one.
///
/// # Errors
/// The file has become shorter, or cannot be read.
fn poll_piece(
    part: &mut FilePart,
    outlet: &mut Outlet,
    readers: &Readers,
    context: &mut Context<'_>,
) -> Poll<io::Result<Option<FilePiece>>> {
    if part.left() == 0 || outlet.is_closed() {
        return Poll::Ready(Ok(None));
    }
    let wanted = part.wanted();
    if wanted > 0 {
        let room = ready!(outlet.poll_room_bytes(wanted, context));
        let bytes = worth_reading(wanted, room);
        if let Err(error) = part.begin(bytes, outlet.reserve(bytes), readers) {
            return Poll::Ready(Err(error));
        }
    }
    part.poll_read(context).map_ok(Some)
}

// === impl Outlet ===

impl Outlet {
    fn send_file_piece(&mut self, piece: FilePiece) {
        match piece {
            FilePiece::Lent(reserved) => self.send_reserved(reserved),
            FilePiece::Own(bytes) => self.send_data(Framed::raw(Message::from(bytes))),
        }
    }
}
