//! Looks at the frames of an HTTP/2 connection as they come, and says which of them are of little
//! use to anybody (RFC 9113, 10.5): what a flood is made of.

/// Every client begins with it, and it is no frame (RFC 9113, 3.4).
pub(super) const PREFACE_BYTES: usize = 24;

const HEAD_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;

/// DATA of at most this is tiny: less than the prefix of one gRPC message.
const TINY_BYTES: usize = 4;

/// What one frame counts that no client needs often: PING, SETTINGS, `RST_STREAM`, DATA with nothing
/// in it, and the like.
pub(super) const IDLE_POINTS: u64 = 4;

/// What one counts that slow or careless clients send by the thousand: a byte of DATA, a window
/// update.
const SMALL_POINTS: u64 = 1;

/// What was seen since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// All frames that have begun.
    pub frames: usize,
    /// For all that is of little use.
    pub points: u64,
    /// The part of them for which there is no excuse.
    pub idle_points: u64,
}

/// Where in a connection's bytes we are.
#[derive(Debug)]
pub(super) struct Frames {
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    /// Left of the preface or of a payload.
    skipped_bytes: usize,
}

// === impl Frames ===

impl Frames {
    /// At the beginning of a connection.
    pub(super) fn new() -> Self {
        Self { head: [0; HEAD_BYTES], head_bytes: 0, skipped_bytes: PREFACE_BYTES }
    }

    /// Takes what has come next.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Tally {
        let mut tally = Tally::default();
        loop {
            let skipped = self.skipped_bytes.min(bytes.len());
            self.skipped_bytes -= skipped;
            bytes = &bytes[skipped..];
            let wanted = (HEAD_BYTES - self.head_bytes).min(bytes.len());
            if wanted == 0 {
                return tally;
            }
            self.head[self.head_bytes..][..wanted].copy_from_slice(&bytes[..wanted]);
            self.head_bytes += wanted;
            bytes = &bytes[wanted..];
            if self.head_bytes == HEAD_BYTES {
                self.head_bytes = 0;
                self.on_head(&mut tally);
            }
        }
    }

    fn on_head(&mut self, tally: &mut Tally) {
        let [high, middle, low, kind, flags, ..] = self.head;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        self.skipped_bytes = length;
        tally.frames += 1;
        let is_end = flags & END_STREAM != 0;
        match kind {
            HEADERS => {}
            DATA if is_end || length > TINY_BYTES => {}
            DATA if length > 0 => tally.points += SMALL_POINTS,
            WINDOW_UPDATE => tally.points += SMALL_POINTS,
            _ => {
                tally.points += IDLE_POINTS;
                tally.idle_points += IDLE_POINTS;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let [_, _, _, _, _, high, middle, low] = (length as u64).to_be_bytes();
        let mut bytes = vec![high, middle, low, kind, flags, 0, 0, 0, 1];
        bytes.resize(HEAD_BYTES + length, 7);
        bytes
    }

    fn connection(frames: &[(u8, u8, usize)]) -> Vec<u8> {
        let mut bytes = vec![b'P'; PREFACE_BYTES];
        bytes.extend(frames.iter().flat_map(|(kind, flags, length)| frame(*kind, *flags, *length)));
        bytes
    }

    #[track_caller]
    fn check(frames: &[(u8, u8, usize)], points: u64, idle_points: u64) {
        let expected = Tally { frames: frames.len(), points, idle_points };
        let bytes = connection(frames);
        assert_eq!(expected, Frames::new().read(&bytes), "in one piece");
        for size in [1, 2, 8, 9, 10, 25] {
            let mut scanner = Frames::new();
            let mut sum = Tally::default();
            for piece in bytes.chunks(size) {
                let tally = scanner.read(piece);
                sum.frames += tally.frames;
                sum.points += tally.points;
                sum.idle_points += tally.idle_points;
            }
            assert_eq!(expected, sum, "in pieces of {size}");
        }
    }

    #[test]
    fn requests_and_messages_count_nothing() {
        check(&[(HEADERS, 4, 70), (DATA, 0, 5), (DATA, 0, 16_384), (DATA, END_STREAM, 0)], 0, 0);
    }

    #[test]
    fn tiny_data_and_window_updates_count_a_little() {
        check(&[(DATA, 0, 1), (DATA, 0, 4), (WINDOW_UPDATE, 0, 4)], 3, 0);
    }

    #[test]
    fn floods_count_in_full() {
        const RST_STREAM: u8 = 3;
        const SETTINGS: u8 = 4;
        const PING: u8 = 6;
        check(&[(PING, 0, 8), (SETTINGS, 0, 6), (RST_STREAM, 0, 4), (DATA, 0, 0)], 16, 16);
    }
}
