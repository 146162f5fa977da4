//! Recognises hyper's answer to an HTTP/1.1 request that it could not read, which is not sent
//! (`unreadable` has the answer that the client gets instead).

use http::StatusCode;
use router_protocol::names::REQUEST_ID;

use crate::heads::head_lines::Unclear;

/// hyper's verdict on a request that it could not read. The client gets another text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unread {
    pub status: StatusCode,
    /// The part that can be read in two ways.
    pub unclear: Option<Unclear>,
}

/// The status of an answer that hyper generated, if what is written is all of it. All other answers
/// carry their request's id.
pub(super) fn status_of_hypers(written: &[u8]) -> Option<StatusCode> {
    let rest = written.strip_prefix(b"HTTP/1.1 ")?;
    if rest.first() != Some(&b'4') || !rest.ends_with(b"\r\n\r\n") {
        return None;
    }
    let is_named = rest.split(|byte| *byte == b'\n').any(|line| {
        let name = line.get(..REQUEST_ID.as_str().len());
        name.is_some_and(|name| name.eq_ignore_ascii_case(REQUEST_ID.as_str().as_bytes()))
    });
    if is_named { None } else { StatusCode::from_bytes(rest.get(..3)?).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_a_name_is_hypers() {
        for (written, expected) in [
            ("HTTP/1.1 431 Too Large\r\ncontent-length: 0\r\n\r\n", Some(431)),
            (
                "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
                Some(400),
            ),
            ("HTTP/1.1 404 Not Found\r\nX-Request-Id: a\r\n\r\n", None),
            ("HTTP/1.1 200 OK\r\n\r\n", None),
            // An incomplete one, or more than one.
            ("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n", None),
            ("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\nx", None),
            ("4", None),
        ] {
            let status = status_of_hypers(written.as_bytes()).map(|status| status.as_u16());
            assert_eq!(expected, status, "{written:?}");
        }
    }
}
