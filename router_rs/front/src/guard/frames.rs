//! Inspects the frames of an HTTP/2 connection as they arrive, and counts those that do little
//! useful work (RFC 9113, 10.5), of which floods consist.

/// The preface that every client sends first. It is not a frame (RFC 9113, 3.4).
pub(crate) const PREFACE_BYTES: usize = 24;

const HEAD_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;

/// How many reset streams are remembered. Arbitrary: headers that follow their reset follow it
/// closely.
const RESETS_MAX: usize = 16;

/// DATA of at most this size is tiny: less than the prefix of one gRPC message.
const TINY_BYTES: usize = 4;

/// The points of a frame that no client needs often: PING, SETTINGS, `RST_STREAM`, empty DATA, and
/// the like.
pub(crate) const IDLE_POINTS: u64 = 4;

/// The points of a frame that slow or careless clients send by the thousand: a byte of DATA, a
/// window update.
const SMALL_POINTS: u64 = 1;

/// The counts since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// All frames that have begun.
    pub frames: usize,
    /// For frames that do little useful work.
    pub points: u64,
    /// The part of `points` that no legitimate client causes.
    pub idle_points: u64,
    /// The offset in the bytes read at which headers begin for a stream that the client had reset.
    pub closed_at: Option<usize>,
}

/// The position of the parser in a connection's bytes.
#[derive(Debug)]
pub(crate) struct Frames {
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    /// The bytes left of the preface or of a payload.
    skipped_bytes: usize,
    /// The streams that the client reset last; 0 for an unused entry.
    resets: [u32; RESETS_MAX],
    next_reset: usize,
}

// === impl Frames ===

impl Frames {
    /// At the beginning of a connection.
    pub(crate) fn new() -> Self {
        Self {
            head: [0; HEAD_BYTES],
            head_bytes: 0,
            skipped_bytes: PREFACE_BYTES,
            resets: [0; RESETS_MAX],
            next_reset: 0,
        }
    }

    /// Parses the next bytes.
    pub(crate) fn read(&mut self, mut bytes: &[u8]) -> Tally {
        let mut tally = Tally::default();
        let length = bytes.len();
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
                if self.on_head(&mut tally) {
                    let begin = (length - bytes.len()).saturating_sub(HEAD_BYTES);
                    tally.closed_at.get_or_insert(begin);
                }
            }
        }
    }

    /// Whether a frame of this kind may not follow a reset.
    fn on_head(&mut self, tally: &mut Tally) -> bool {
        let [high, middle, low, kind, flags, stream @ ..] = self.head;
        let stream = u32::from_be_bytes(stream);
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        self.skipped_bytes = length;
        tally.frames += 1;
        let is_end = flags & END_STREAM != 0;
        if kind == RST_STREAM {
            self.resets[self.next_reset] = stream;
            self.next_reset = (self.next_reset + 1) % RESETS_MAX;
        }
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
        kind == HEADERS && self.resets.contains(&stream)
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
        let expected = Tally { frames: frames.len(), points, idle_points, closed_at: None };
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
        const SETTINGS: u8 = 4;
        const PING: u8 = 6;
        check(&[(PING, 0, 8), (SETTINGS, 0, 6), (RST_STREAM, 0, 4), (DATA, 0, 0)], 16, 16);
    }

    #[test]
    fn headers_after_a_reset_are_told_with_their_place() {
        let bytes = connection(&[(HEADERS, 4, 7), (DATA, 0, 9), (RST_STREAM, 0, 4)]);
        let place = bytes.len();
        let after = [bytes, frame(DATA, 0, 5), frame(HEADERS, 4, 3)].concat();
        let expected = place + HEAD_BYTES + 5;
        assert_eq!(Some(expected), Frames::new().read(&after).closed_at);
        // Its head may come in two reads.
        let mut scanner = Frames::new();
        assert_eq!(None, scanner.read(&after[..expected + 4]).closed_at);
        assert_eq!(Some(0), scanner.read(&after[expected + 4..]).closed_at);
    }

    #[test]
    fn only_the_last_resets_are_known() {
        let mut scanner = Frames::new();
        scanner.read(&[b'P'; PREFACE_BYTES]);
        let of = |kind: u8, stream: u8| {
            let mut bytes = frame(kind, 4, 4);
            bytes[HEAD_BYTES - 1] = stream;
            bytes
        };
        for stream in 1..=17 {
            scanner.read(&of(RST_STREAM, stream));
        }
        assert_eq!(None, scanner.read(&of(HEADERS, 1)).closed_at);
        assert_eq!(Some(0), scanner.read(&of(HEADERS, 2)).closed_at);
    }
}
