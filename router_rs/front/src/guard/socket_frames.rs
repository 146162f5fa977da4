//! Finds where the frames of a WebSocket begin and end (RFC 6455, 5.2), so that a close frame can
//! be put after them, or they can be counted. Payloads are not inspected.

use bytes::Bytes;

/// FIN and the opcode of a close, two bytes, not masked: 1012, Service Restart (IANA's registry).
pub(crate) const RESTART: &[u8] = b"\x88\x02\x03\xf4";

/// The same for 1008, Policy Violation, with a text.
pub(crate) const TOO_MANY_SMALL_FRAMES: &[u8] = b"\x88\x17\x03\xf0too many small frames";

/// The longest head: 2 bytes, a length of 8, and a mask of 4.
const HEAD_BYTES_MAX: usize = 14;

const OPCODE: u8 = 0x0f;
const OPCODE_CONTINUATION: u8 = 0;
const OPCODE_CLOSE: u8 = 8;
const IS_LAST: u8 = 0x80;
const IS_MASKED: u8 = 0x80;
const LENGTH: u8 = 0x7f;

/// A frame whose head has passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// FIN, the reserved bits, and the opcode.
    first: u8,
    pub payload_bytes: u64,
}

impl Frame {
    pub(crate) fn is_control(self) -> bool {
        self.first & OPCODE >= OPCODE_CLOSE
    }

    /// A part of a message, be it the first or the last one.
    pub(crate) fn is_fragment(self) -> bool {
        self.first & OPCODE == OPCODE_CONTINUATION || self.first & IS_LAST == 0
    }
}

/// Follows what one side sends.
#[derive(Debug, Default)]
pub(crate) struct SocketFrames {
    head: [u8; HEAD_BYTES_MAX],
    /// How much of a head has been read; 0: none, or all of it.
    head_bytes: usize,
    /// The bytes of a frame still to come after its head.
    left_bytes: u64,
    is_closed: bool,
}

impl SocketFrames {
    /// Parses these bytes.
    pub(crate) fn pass(&mut self, mut bytes: &[u8], mut on_frame: impl FnMut(Frame)) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.left_bytes > 0 {
                let skipped = self.left_bytes.min(bytes.len() as u64);
                self.left_bytes -= skipped;
                bytes = &bytes[skipped as usize..];
                continue;
            }
            self.head[self.head_bytes] = *first;
            self.head_bytes += 1;
            bytes = rest;
            let head = &self.head[..self.head_bytes];
            if let Some(left_bytes) = payload_bytes(head) {
                self.is_closed |= head[0] & OPCODE == OPCODE_CLOSE;
                on_frame(Frame { first: head[0], payload_bytes: left_bytes });
                self.left_bytes = left_bytes;
                self.head_bytes = 0;
            }
        }
    }

    /// A close frame for the other side. `None` inside a frame, of which it would become a part,
    /// and after a close.
    pub(crate) fn close(&self, frame: &'static [u8]) -> Option<Bytes> {
        let is_between = self.head_bytes == 0 && self.left_bytes == 0;
        (is_between && !self.is_closed).then(|| Bytes::from_static(frame))
    }
}

/// Parses the head; `None`: it is incomplete.
fn payload_bytes(head: &[u8]) -> Option<u64> {
    let [_, second, rest @ ..] = head else { return None };
    let mask_bytes = if second & IS_MASKED == 0 { 0 } else { 4 };
    let length_bytes = match second & LENGTH {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    if rest.len() < length_bytes + mask_bytes {
        return None;
    }
    let short = u64::from(second & LENGTH);
    let long = rest[..length_bytes].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    Some(if length_bytes == 0 { short } else { long })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(opcode: u8, length: usize, is_masked: bool) -> Vec<u8> {
        let mask = if is_masked { IS_MASKED } else { 0 };
        let mut frame = vec![0x80 | opcode];
        match length {
            0..126 => frame.push(mask | length as u8),
            126..65_536 => {
                frame.push(mask | 0x7e);
                frame.extend((length as u16).to_be_bytes());
            }
            _ => {
                frame.push(mask | LENGTH);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend(vec![0x88; length + if is_masked { 4 } else { 0 }]);
        frame
    }

    #[test]
    fn a_close_fits_between_frames_and_nowhere_else_however_they_are_cut() {
        for length in [0, 1, 125, 126, 70_000] {
            for is_masked in [false, true] {
                let frame = frame(2, length, is_masked);
                for step in [1, 3, frame.len()] {
                    let mut frames = SocketFrames::default();
                    let mut passed = 0;
                    for piece in frame.repeat(2).chunks(step) {
                        frames.pass(piece, drop);
                        passed += piece.len();
                        let is_between = passed % frame.len() == 0;
                        assert_eq!(
                            is_between,
                            frames.close(RESTART).is_some(),
                            "{length} {passed}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn nothing_follows_a_close_and_pings_are_none() {
        let mut frames = SocketFrames::default();
        frames.pass(&frame(9, 4, false), drop);
        assert_eq!(Some(Bytes::from_static(RESTART)), frames.close(RESTART));
        frames.pass(RESTART, drop);
        assert_eq!(None, frames.close(RESTART));
    }

    #[test]
    fn a_length_without_sense_only_means_that_nothing_is_added() {
        let mut frames = SocketFrames::default();
        frames.pass(&[0x82, 0xff], drop);
        frames.pass(&[0xff; 4096], drop);
        assert_eq!(None, frames.close(RESTART));
    }
}
