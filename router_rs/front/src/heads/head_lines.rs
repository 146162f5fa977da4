//! Follows the bytes of an HTTP/1.1 connection to find requests that hyper accepts but others may
//! parse differently: see [`Unclear`].
//!
//! A proxy in front that parses such bytes differently sees other requests than we do, so the mesh
//! accepts none of them. Bodies are delimited here as in hyper. A length that is not understood
//! here is refused, because the next request could not be found.

/// Enough of a line to recognise a length or a coding; longer ones are refused.
const LINE_BYTES_MAX: usize = 64;

/// The number of hexadecimal digits that 64 bits can hold.
const SIZE_DIGITS_MAX: usize = 16;

const CONTENT_LENGTH: &[u8] = b"content-length:";
const TRANSFER_ENCODING: &[u8] = b"transfer-encoding:";
const UPGRADE: &[u8] = b"upgrade:";
const WEBSOCKET: &[u8] = b"websocket";

/// The position of the parser in a connection's bytes.
#[derive(Debug, Default)]
pub(crate) struct HeadLines {
    place: Place,
    /// The beginning of a line that has not ended yet, and its last byte.
    line: Vec<u8>,
    last: u8,
    /// The body length and encoding that the head announces.
    length: Option<u64>,
    is_chunked: bool,
    /// The head asks to become a WebSocket. No other request follows it: what is refused closes the
    /// connection.
    asks_for_socket: bool,
    /// The request line has a `#`.
    has_fragment: bool,
}

/// Why a request is ambiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unclear {
    /// A line that ends without a carriage return; RFC 9112 (2.2) lets a server accept it.
    LineFeed,
    /// The target has a fragment, which hyper cuts off (RFC 9112, 3.2 allows none).
    Fragment,
    /// `content-length` together with `transfer-encoding`, of which readers use one or the other
    /// (RFC 9112, 6.1 lets a server refuse it).
    TwoLengths,
    /// A `content-length` that is not a number, or is very long.
    Length,
    /// A chunk's size with anything after its digits, or with very many of them.
    ChunkSize,
}

impl Unclear {
    /// For the client.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::LineFeed => "a line feed without a carriage return before it",
            Self::Fragment => "its target has a #, which belongs to no request: write %23",
            Self::TwoLengths => "content-length and transfer-encoding are both there: send one",
            Self::Length => "content-length may be one decimal number, and nothing else",
            Self::ChunkSize => "a chunk's size may be hexadecimal digits, and nothing else",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Before a request line.
    #[default]
    Between,
    /// Before a line of a head.
    Head,
    /// Before the line that says how long a chunk is.
    Size,
    /// Inside a body, or a chunk if `is_chunk`.
    Body { left: u64, is_chunk: bool },
    /// After the last chunk.
    Trailers,
    /// After a request for a WebSocket: its frames.
    Frames,
    /// Not understood: hyper ends the connection.
    Lost,
}

// === impl HeadLines ===

impl HeadLines {
    /// Parses the next bytes. Returns what in them is ambiguous, and the position of the line feed
    /// that ends that line. The bytes after it are not parsed.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Option<(usize, Unclear)> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match self.place {
                Place::Frames | Place::Lost => return None,
                Place::Body { left, is_chunk } => {
                    let taken = left.min(rest.len() as u64);
                    self.on_body(left - taken, is_chunk);
                    at += taken as usize;
                }
                Place::Between | Place::Head | Place::Size | Place::Trailers => {
                    let end = rest.iter().position(|byte| *byte == b'\n');
                    let part = &rest[..end.unwrap_or(rest.len())];
                    self.has_fragment |= self.place == Place::Between && part.contains(&b'#');
                    if end.is_none() {
                        self.keep(part);
                        return None;
                    }
                    at += part.len();
                    if let Err(unclear) = self.end_line(part) {
                        self.place = Place::Lost;
                        return Some((at, unclear));
                    }
                    at += 1;
                }
            }
        }
        None
    }

    /// Whether a head has begun but not ended.
    pub(crate) fn is_in_head(&self) -> bool {
        self.place == Place::Head || (self.place == Place::Between && !self.line.is_empty())
    }

    fn keep(&mut self, part: &[u8]) {
        let room = LINE_BYTES_MAX.saturating_sub(self.line.len()).min(part.len());
        self.line.extend_from_slice(&part[..room]);
        self.last = part.last().copied().unwrap_or(self.last);
    }

    /// `part` is the last part of the line, without its line feed.
    fn end_line(&mut self, part: &[u8]) -> Result<(), Unclear> {
        if part.last().copied().unwrap_or(self.last) != b'\r' {
            return Err(Unclear::LineFeed);
        }
        if self.line.is_empty() {
            self.last = 0;
            return self.on_line(part);
        }
        self.keep(part);
        self.last = 0;
        let line = std::mem::take(&mut self.line);
        self.on_line(&line)
    }

    fn on_line(&mut self, line: &[u8]) -> Result<(), Unclear> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match self.place {
            // Empty lines before a request are allowed (RFC 9112, 2.2).
            Place::Between if line.is_empty() => {}
            Place::Between if self.has_fragment => return Err(Unclear::Fragment),
            Place::Between => {
                (self.length, self.is_chunked) = (None, false);
                self.asks_for_socket = false;
                self.place = Place::Head;
            }
            Place::Head if line.is_empty() && self.is_chunked => self.place = Place::Size,
            Place::Head if line.is_empty() => self.on_body(self.length.unwrap_or(0), false),
            Place::Head => return self.on_field(line),
            Place::Size => match chunk_size(line).ok_or(Unclear::ChunkSize)? {
                0 => self.place = Place::Trailers,
                // The line end after the chunk is counted with it.
                size => self.on_body(size.saturating_add(2), true),
            },
            Place::Trailers if line.is_empty() => self.place = self.after_request(),
            Place::Trailers | Place::Body { .. } | Place::Frames | Place::Lost => {}
        }
        Ok(())
    }

    fn on_field(&mut self, line: &[u8]) -> Result<(), Unclear> {
        if starts_with(line, TRANSFER_ENCODING) {
            self.is_chunked = true;
        } else if starts_with(line, CONTENT_LENGTH) {
            let value = line[CONTENT_LENGTH.len()..].trim_ascii();
            let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            // The part cut off a long line could be more digits.
            let is_whole = line.len() < LINE_BYTES_MAX;
            let text = std::str::from_utf8(value).ok().filter(|_| is_number && is_whole);
            let length = text.and_then(|text| text.parse().ok());
            self.length = Some(length.ok_or(Unclear::Length)?);
        } else if starts_with(line, UPGRADE) {
            let mut parts = line.windows(WEBSOCKET.len());
            self.asks_for_socket |= parts.any(|part| part.eq_ignore_ascii_case(WEBSOCKET));
        }
        if self.is_chunked && self.length.is_some() {
            return Err(Unclear::TwoLengths);
        }
        Ok(())
    }

    fn on_body(&mut self, left: u64, is_chunk: bool) {
        self.place = match (left, is_chunk) {
            (0, false) => self.after_request(),
            (0, true) => Place::Size,
            _ => Place::Body { left, is_chunk },
        };
    }

    fn after_request(&self) -> Place {
        if self.asks_for_socket { Place::Frames } else { Place::Between }
    }
}

fn starts_with(line: &[u8], name: &[u8]) -> bool {
    line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
}

/// The size of a chunk, from its line; extensions are ignored. `None`: it is ambiguous.
///
/// RFC 9112 (7.1.1) requires a reader to remove blanks before an extension, and some parse on after
/// them.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?;
    let is_number = digits.iter().all(u8::is_ascii_hexdigit);
    if !is_number || digits.len() > SIZE_DIGITS_MAX {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "GET / HTTP/1.1\r\nhost: h\r\n\r\n";
    const POST: &str = "POST / HTTP/1.1\r\n";
    const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

    /// Checks what is ambiguous and where, for any split of the bytes.
    #[track_caller]
    fn check(text: &str, expected: Option<(usize, Unclear)>) {
        for size in [1, 2, 3, 7, 64, 4096] {
            let mut lines = HeadLines::default();
            let mut at = 0;
            let found = text.as_bytes().chunks(size).find_map(|piece| {
                let found = lines.read(piece).map(|(index, unclear)| (at + index, unclear));
                at += piece.len();
                found
            });
            assert_eq!(expected, found, "{text:?} in pieces of {size}");
        }
    }

    /// Checks that the line feed after `text` is found, which means that `text` has ended where it
    /// should.
    #[track_caller]
    fn check_end(text: &str) {
        check(&format!("{text}{GET}"), None);
        check(&format!("{text}GET / HTTP/1.1\n"), Some((text.len() + 14, Unclear::LineFeed)));
    }

    #[test]
    fn frames_behind_a_handshake_are_no_lines() {
        const FRAMES: &str = "\u{1}\n\n#\r\n";
        for (fields, are_frames) in [
            ("upgrade: websocket\r\n", true),
            ("Upgrade: h2c, WebSocket\r\n", true),
            ("upgrade: websocket\r\ncontent-length: 0\r\n", true),
            ("upgrade: h2c\r\n", false),
            ("x-upgrade: websocket\r\n", false),
        ] {
            let head = format!("GET / HTTP/1.1\r\n{fields}\r\n");
            let expected = (!are_frames).then_some((head.len() + 1, Unclear::LineFeed));
            check(&format!("{head}{FRAMES}"), expected);
        }
    }

    /// Checks that the last line of `text` is refused.
    #[track_caller]
    fn check_last(text: &str, expected: Unclear) {
        check(&format!("{text}\r\n{GET}"), Some((text.len() + 1, expected)));
    }

    #[test]
    fn a_line_feed_alone_is_found() {
        for (text, place) in [
            ("GET / HTTP/1.1\nhost: h\r\n\r\n".to_owned(), 14),
            ("GET / HTTP/1.1\r\nhost: h\n\r\n".to_owned(), 23),
            ("GET / HTTP/1.1\r\nhost: h\r\n\n".to_owned(), 25),
            ("\nGET / HTTP/1.1\r\n".to_owned(), 0),
            (format!("{POST}{CHUNKED}\r\n3\nabc\r\n"), 48),
            (format!("{POST}{CHUNKED}\r\n0\r\nx: y\n\r\n{GET}"), 54),
        ] {
            check(&text, Some((place, Unclear::LineFeed)));
        }
    }

    #[test]
    fn two_lengths_are_found_in_either_order() {
        check_last(
            &format!("{POST}content-length: 5\r\ntransfer-encoding: x"),
            Unclear::TwoLengths,
        );
        check_last(&format!("{POST}{CHUNKED}x: y\r\nContent-Length:5"), Unclear::TwoLengths);
        check_end(&format!("{POST}content-length: 1\r\n\r\na{POST}{CHUNKED}\r\n0\r\n\r\n"));
    }

    #[test]
    fn a_length_is_decimal_digits() {
        for length in ["", "x", "+5", "-5", "0x5", "5,5", "5 5", "5;", "99999999999999999999"] {
            check_last(&format!("{POST}content-length: {length}"), Unclear::Length);
        }
        let padded = format!("{POST}content-length: {}", "0".repeat(LINE_BYTES_MAX) + "5");
        check_last(&padded, Unclear::Length);
    }

    #[test]
    fn a_chunks_size_is_hexadecimal_digits() {
        for size in ["5 ", "5\t", "5 ;a", " 5", "+5", "-5", "0x5", "x", "", "5_", ";a"] {
            check_last(&format!("{POST}{CHUNKED}\r\n{size}"), Unclear::ChunkSize);
        }
        let padded = "0".repeat(SIZE_DIGITS_MAX) + "5";
        check_last(&format!("{POST}{CHUNKED}\r\n{padded}"), Unclear::ChunkSize);
    }

    #[test]
    fn a_target_has_no_fragment() {
        check_last("GET /a#b HTTP/1.1", Unclear::Fragment);
        check_last(&format!("{GET}\r\nGET /{}#b HTTP/1.1", "a".repeat(100)), Unclear::Fragment);
        check_end("GET / HTTP/1.1\r\nx: a#b\r\ncontent-length: 1\r\n\r\n#");
    }

    #[test]
    fn a_head_lasts_from_its_first_byte_to_its_empty_line() {
        let text = "\r\nPOST / HTTP/1.1\r\ncontent-length: 2\r\n\r\nab";
        let mut lines = HeadLines::default();
        let is_in_head = |byte| {
            assert_eq!(None, lines.read(&[byte]));
            if lines.is_in_head() { 'h' } else { '-' }
        };
        let places: String = text.bytes().map(is_in_head).collect();
        assert_eq!(format!("h-{}---", "h".repeat(text.len() - 5)), places);
    }

    #[test]
    fn requests_follow_each_other() {
        check_end("");
        check_end(GET);
        check_end(&GET.repeat(5));
        check_end(&format!("\r\n\r\n{GET}"));
        check_end(&format!("GET /{} HTTP/1.1\r\n\r\n", "long/".repeat(100)));
    }

    #[test]
    fn bodies_may_have_any_bytes() {
        check_end("POST / HTTP/1.1\r\nContent-Length:  5 \r\n\r\n\n\na\n\n");
        check_end("POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n");
        let head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        check_end(&format!("{head}3\r\n\na\n\r\n0\r\n\r\n"));
        check_end(&format!("{head}A;ext=\"1\"\r\n0123456\n89\r\n1\r\n\n\r\n0\r\nx: y\r\n\r\n"));
        check_end(&format!("{head}0\r\n\r\n"));
    }
}
