//! The answer to an HTTP/1.1 client whose request could not be parsed.
//!
//! hyper's own answer, which is only a status, is not sent (`hypers_answer`); once hyper has
//! reported the error, an answer with a sentence replaces it.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue, StatusCode};
use router_protocol::grpc::HttpFailure;
use router_protocol::names::REQUEST_ID;

use crate::connection::ConnectionState;
use crate::heads::date;
use crate::heads::request_id;
use crate::hypers_answer::Unread;

/// hyper's own bound; more is also "too large".
const FIELDS_MAX: usize = 100;

/// The answer instead of hyper's.
pub(super) fn answer(unread: Unread, error: &hyper::Error, connection: &ConnectionState) -> Bytes {
    let text = match unread.status {
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            let limit = connection.front.limits().header_bytes_max;
            let variable = connection.lookup.variable("MAX_HEADER_BYTES");
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
