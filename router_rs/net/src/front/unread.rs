//! What a client of HTTP/1.1 is told whose request could not be read.
//!
//! hyper answers such a request by itself, with a status and nothing else. Its answer is kept from
//! the wire, and one with a sentence takes its place once hyper has said what is wrong.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::connection::ConnectionState;
use super::wire::Unread;
use super::{date, request_id};
use crate::grpc::HttpFailure;
use crate::names::REQUEST_ID;

/// hyper's own bound; more is "too large" as well.
const FIELDS_MAX: usize = 100;

/// The status of an answer that hyper made: what is written then is all of it. All others name their
/// request.
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

/// The answer instead of hyper's.
pub(super) fn answer(unread: Unread, error: &hyper::Error, connection: &ConnectionState) -> Bytes {
    let text = match unread.status {
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            let limit = connection.front.limits().header_bytes_max;
            let variable = connection.directory.variable("MAX_HEADER_BYTES");
            format!(
                "the request's head is larger than {limit} bytes{variable}, or has more than \
                 {FIELDS_MAX} fields"
            )
        }
        StatusCode::URI_TOO_LONG => "the request's target is too long".to_owned(),
        _ => match unread.unclear {
            Some(unclear) => format!("the request's head is malformed: {}", unclear.text()),
            None => format!("the request's head is malformed: {error}"),
        },
    };
    write(&HttpFailure::new(unread.status, text), connection.front.config.answered_by.clone())
}

fn write(failure: &HttpFailure, answered_by: HeaderValue) -> Bytes {
    let mut headers = failure.headers(answered_by);
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    headers.insert(REQUEST_ID, request_id::of(&HeaderMap::new()));
    date::add(&mut headers);
    let mut answer = BytesMut::new();
    answer.put_slice(format!("HTTP/1.1 {}\r\n", failure.status).as_bytes());
    for (name, value) in &headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            answer.put_slice(part);
        }
    }
    answer.put_slice(b"\r\n");
    answer.put_slice(&failure.body());
    answer.freeze()
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
            // Not all of it, or more than it.
            ("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n", None),
            ("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\nx", None),
            ("4", None),
        ] {
            let status = status_of_hypers(written.as_bytes()).map(|status| status.as_u16());
            assert_eq!(expected, status, "{written:?}");
        }
    }

    #[test]
    fn an_answer_has_its_sentence_and_is_the_last() {
        let failure = HttpFailure::new(StatusCode::BAD_REQUEST, "no");
        let answer = write(&failure, HeaderValue::from_static("ingress"));
        let answer = std::str::from_utf8(&answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
        for line in ["connection: close", "content-length: 3", "pyserve-answered-by: ingress"] {
            assert!(head.split("\r\n").any(|found| found == line), "{head}");
        }
        assert!(head.contains("x-request-id: ") && head.contains("date: "), "{head}");
        assert_eq!("no\n", body);
    }
}
