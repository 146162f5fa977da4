//! Sending a part of a file in an answer, in place of pieces that Python writes.

use std::task::{Context, Poll};

use super::call::CallTask;
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
            match part.poll_piece(outlet, &connection.server.readers, context) {
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
