//! Follows the bytes of an HTTP/1.1 connection to find line feeds that end a line of a request's head
//! without a carriage return before them.
//!
//! RFC 9112 (2.2) lets a server take them, and hyper does. Somebody in front of us who does not sees
//! another request than we do, so the mesh takes none. Where bodies are is read here as hyper reads
//! it; what hyper refuses ends the connection anyway.

/// Enough of a line to know a length or a coding by; longer lines say nothing that matters here.
const LINE_BYTES_MAX: usize = 64;

const CONTENT_LENGTH: &[u8] = b"content-length:";
const TRANSFER_ENCODING: &[u8] = b"transfer-encoding:";

/// Where in a connection's bytes we are.
#[derive(Debug, Default)]
pub(super) struct HeadLines {
    place: Place,
    /// The beginning of a line that has not ended yet, and its last byte.
    line: Vec<u8>,
    last: u8,
    /// What the head says about its body.
    length: u64,
    is_chunked: bool,
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
    /// Inside a body or a chunk, which `is_chunk` says.
    Body { left: u64, is_chunk: bool },
    /// Behind the last chunk.
    Trailers,
    /// Beyond what is understood: hyper ends the connection.
    Lost,
}

// === impl HeadLines ===

impl HeadLines {
    /// Takes what has come next; returns where in it is a line feed that may not be there. What
    /// follows that is not looked at any more.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match self.place {
                Place::Lost => return None,
                Place::Body { left, is_chunk } => {
                    let taken = left.min(rest.len() as u64);
                    self.on_body(left - taken, is_chunk);
                    at += taken as usize;
                }
                Place::Between | Place::Head | Place::Size | Place::Trailers => {
                    let Some(length) = rest.iter().position(|byte| *byte == b'\n') else {
                        self.keep(rest);
                        return None;
                    };
                    let before = length.checked_sub(1).map_or(self.last, |index| rest[index]);
                    let is_bare = before != b'\r';
                    if is_bare && matches!(self.place, Place::Between | Place::Head) {
                        self.place = Place::Lost;
                        return Some(at + length);
                    }
                    self.end_line(&rest[..length]);
                    at += length + 1;
                }
            }
        }
        None
    }

    /// Whether a head has begun and not ended.
    pub(super) fn is_in_head(&self) -> bool {
        self.place == Place::Head || (self.place == Place::Between && !self.line.is_empty())
    }

    fn keep(&mut self, part: &[u8]) {
        let room = LINE_BYTES_MAX.saturating_sub(self.line.len()).min(part.len());
        self.line.extend_from_slice(&part[..room]);
        self.last = part.last().copied().unwrap_or(self.last);
    }

    /// `part` is what the line has got last, without its line feed.
    fn end_line(&mut self, part: &[u8]) {
        if self.line.is_empty() {
            self.on_line(part);
        } else {
            self.keep(part);
            let line = std::mem::take(&mut self.line);
            self.on_line(&line);
        }
        self.last = 0;
    }

    fn on_line(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match self.place {
            // Empty lines before a request are allowed (RFC 9112, 2.2).
            Place::Between if line.is_empty() => {}
            Place::Between => {
                (self.length, self.is_chunked) = (0, false);
                self.place = Place::Head;
            }
            Place::Head if line.is_empty() && self.is_chunked => self.place = Place::Size,
            Place::Head if line.is_empty() => self.on_body(self.length, false),
            Place::Head => self.on_field(line),
            Place::Size => match chunk_size(line) {
                Some(0) => self.place = Place::Trailers,
                // The line's end behind the chunk is counted with it.
                Some(size) => self.on_body(size.saturating_add(2), true),
                None => self.place = Place::Lost,
            },
            Place::Trailers if line.is_empty() => self.place = Place::Between,
            Place::Trailers | Place::Body { .. } | Place::Lost => {}
        }
    }

    fn on_field(&mut self, line: &[u8]) {
        if starts_with(line, TRANSFER_ENCODING) {
            self.is_chunked = true;
        } else if starts_with(line, CONTENT_LENGTH) {
            let value = line[CONTENT_LENGTH.len()..].trim_ascii();
            match std::str::from_utf8(value).ok().and_then(|value| value.parse().ok()) {
                Some(length) => self.length = length,
                None => self.place = Place::Lost,
            }
        }
    }

    fn on_body(&mut self, left: u64, is_chunk: bool) {
        self.place = match (left, is_chunk) {
            (0, false) => Place::Between,
            (0, true) => Place::Size,
            _ => Place::Body { left, is_chunk },
        };
    }
}

fn starts_with(line: &[u8], name: &[u8]) -> bool {
    line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
}

/// Of a chunk, as its line says; extensions count for nothing.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| matches!(byte, b';' | b' ' | b'\t')).next()?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "GET / HTTP/1.1\r\nhost: h\r\n\r\n";

    /// Where the bare line feed is, however the bytes come.
    #[track_caller]
    fn check(text: &str, expected: Option<usize>) {
        for size in [1, 2, 3, 7, 64, 4096] {
            let mut lines = HeadLines::default();
            let mut at = 0;
            let found = text.as_bytes().chunks(size).find_map(|piece| {
                let found = lines.read(piece).map(|index| at + index);
                at += piece.len();
                found
            });
            assert_eq!(expected, found, "{text:?} in pieces of {size}");
        }
    }

    /// That the line feed behind `text` is found, and so that `text` has ended where it should.
    #[track_caller]
    fn check_end(text: &str) {
        check(&format!("{text}{GET}"), None);
        check(&format!("{text}GET / HTTP/1.1\n"), Some(text.len() + 14));
    }

    #[test]
    fn a_line_feed_alone_in_a_head_is_found() {
        check("GET / HTTP/1.1\nhost: h\r\n\r\n", Some(14));
        check("GET / HTTP/1.1\r\nhost: h\n\r\n", Some(23));
        check("GET / HTTP/1.1\r\nhost: h\r\n\n", Some(25));
        check("\nGET / HTTP/1.1\r\n", Some(0));
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

    #[test]
    fn what_hyper_refuses_is_not_looked_at() {
        let head = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
        check(&format!("{head}x\r\nGET / HTTP/1.1\n"), None);
        check("POST / HTTP/1.1\r\ncontent-length: x\r\n\r\nGET / HTTP/1.1\n", None);
    }
}
