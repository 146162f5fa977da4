//! Pieces that their sender puts into the arena itself, where they would otherwise be copied to.

use router_arena::Reserved;

use super::Session;
use crate::frame::{CallId, LENT_BYTES_MIN, Place};

impl Session {
    /// Room in the arena for a piece of `bytes`; `None` if it is short, if nothing is shared, or if
    /// so much is not free.
    pub fn reserve(&mut self, bytes: usize) -> Option<Reserved> {
        if bytes < LENT_BYTES_MIN {
            return None;
        }
        self.memory.shared()?.reserve(bytes)
    }

    /// Sends what was put there: no more than [`Session::poll_room`] has said since the last piece.
    pub fn send_reserved(&mut self, id: CallId, reserved: Reserved) {
        let Some(call) = self.answering(id) else { return };
        let bytes = reserved.bytes();
        debug_assert!(bytes <= call.outbound.credit, "a piece is sent when there is credit for it");
        call.outbound.credit = call.outbound.credit.saturating_sub(bytes);
        let place = Place { first_block: reserved.finish(), bytes: bytes as u32 };
        self.outgoing.put_lent(id, place, false);
        self.wake_driver();
    }
}
