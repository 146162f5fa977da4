//! The answers of the mesh itself to plain HTTP clients: the one table from codes to HTTP statuses,
//! and the answer that carries such a status.
//!
//! gRPC clients and transcoded ones get errors in their own protocols.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode, response};

use super::{Code, Status};
use crate::names::{ANSWERED_BY, ERROR, EXPLAIN};

/// The default retry delay: long enough for a burst to pass. Arbitrary.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

/// The status for a full queue, if a deployment does not set one.
pub const QUEUE_FULL_DEFAULT: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

/// 499, which nginx uses for requests whose client went away. It is only counted.
pub fn client_closed_request() -> StatusCode {
    StatusCode::from_u16(499).expect("invariant: 499 is between 100 and 999")
}

/// The status of an answer without a body of the application's; `queue_full` replaces
/// `RESOURCE_EXHAUSTED` (a deployment's `queue_full_status`).
pub fn http_status(code: Code, queue_full: StatusCode) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => {
            StatusCode::BAD_REQUEST
        }
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        // Not 504: Ray Serve answers 408, which clients may retry.
        Code::DeadlineExceeded => StatusCode::REQUEST_TIMEOUT,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::Cancelled => client_closed_request(),
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::ResourceExhausted => queue_full,
    }
}

/// The limit for a sentence in a header: proxies have little room for the headers of answers.
const ERROR_CHARS_MAX: usize = 500;

/// A failure in plain HTTP: a status and one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpFailure {
    pub status: StatusCode,
    /// One sentence, sent as text/plain with a line end.
    pub text: Cow<'static, str>,
    /// Sent unchanged in its place; the sentence goes into a header then.
    pub body: Option<Box<str>>,
    /// When the client may retry; sent in whole seconds, rounded up.
    pub retry_after: Option<Duration>,
    /// The router's explanation, for a client that asked for it.
    pub explanation: Option<Box<HeaderValue>>,
}

// === impl HttpFailure ===

impl HttpFailure {
    pub fn new(status: StatusCode, text: impl Into<Cow<'static, str>>) -> Self {
        let is_temporary =
            matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
        let retry_after = is_temporary.then_some(RETRY_AFTER_DEFAULT);
        Self { status, text: text.into(), body: None, retry_after, explanation: None }
    }

    /// A failure of the mesh, by the table.
    pub fn of(status: &Status, queue_full: StatusCode) -> Self {
        let failure = Self::new(http_status(status.code, queue_full), status.message.clone());
        let retry_after = failure.retry_after.map(|default| status.pushback.unwrap_or(default));
        Self { retry_after, ..failure }
    }

    /// The headers of the answer. `answered_by` says who made it: `ingress` or `replica`.
    pub fn headers(&self, answered_by: HeaderValue) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        let body = self.body.as_ref();
        headers.insert(CONTENT_LENGTH, body.map_or(self.text.len() + 1, |it| it.len()).into());
        if body.is_some() {
            let text: String = self.text.chars().take(ERROR_CHARS_MAX).collect();
            headers.extend(HeaderValue::from_str(&text).ok().map(|text| (ERROR, text)));
        }
        headers.insert(ANSWERED_BY, answered_by);
        if let Some(delay) = self.retry_after {
            headers.insert(RETRY_AFTER, whole_seconds(delay).into());
        }
        if let Some(explanation) = &self.explanation {
            headers.insert(EXPLAIN, HeaderValue::clone(explanation));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        headers
    }

    /// The sentence with a line end, or its replacement, as long as `content-length` says.
    pub fn body(&self) -> Bytes {
        match &self.body {
            Some(body) => Bytes::copy_from_slice(body.as_bytes()),
            None => format!("{}\n", self.text).into(),
        }
    }

    /// The head of the answer.
    pub fn head(&self, answered_by: HeaderValue) -> response::Parts {
        let mut response = Response::new(());
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers(answered_by);
        response.into_parts().0
    }
}

/// In the form of `Retry-After`, rounded up.
pub fn whole_seconds(delay: Duration) -> u64 {
    delay.as_secs() + u64::from(delay.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLICA: HeaderValue = HeaderValue::from_static("replica");

    #[test]
    fn every_code_has_the_status_of_the_table() {
        let expected: [u16; 17] =
            [200, 499, 500, 400, 408, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401];
        for (number, expected) in expected.into_iter().enumerate() {
            let code = Code::from_number(number as u32);
            let actual = http_status(code, StatusCode::TOO_MANY_REQUESTS).as_u16();
            assert_eq!(expected, actual, "{code:?}");
        }
        let actual = http_status(Code::ResourceExhausted, QUEUE_FULL_DEFAULT);
        assert_eq!(StatusCode::SERVICE_UNAVAILABLE, actual);
    }

    #[test]
    fn a_failure_is_one_sentence_with_its_length() {
        let status = Status::new(Code::NotFound, "nothing is here");
        let failure = HttpFailure::of(&status, QUEUE_FULL_DEFAULT);
        assert_eq!("nothing is here\n", failure.body());
        let head = failure.head(REPLICA);
        assert_eq!(404, head.status);
        let mut left: Vec<_> =
            head.headers.iter().map(|(k, v)| (k.as_str(), v.as_bytes())).collect();
        left.sort_unstable();
        let expected: [(&str, &[u8]); 3] = [
            ("content-length", b"16"),
            ("content-type", b"text/plain; charset=utf-8"),
            ("pyserve-answered-by", b"replica"),
        ];
        assert_eq!(&expected[..], &left[..]);
    }

    #[test]
    fn what_stands_in_for_the_sentence_is_the_body() {
        let mut failure = HttpFailure::new(StatusCode::NOT_FOUND, "none leads there");
        failure.body = Some("no such path".into());
        assert_eq!("no such path", failure.body());
        let headers = failure.headers(REPLICA);
        assert_eq!("12", headers["content-length"]);
        assert_eq!("none leads there", headers["x-pyserve-error"]);
    }

    #[test]
    fn who_may_come_again_is_told_when_in_whole_seconds() {
        let mut failure = HttpFailure::new(StatusCode::SERVICE_UNAVAILABLE, "full");
        for (millis, expected) in [(1000, "1"), (1001, "2"), (0, "0"), (2500, "3")] {
            failure.retry_after = Some(Duration::from_millis(millis));
            assert_eq!(expected, failure.headers(REPLICA)["retry-after"], "{millis}");
        }
        let retry_after = |status| HttpFailure::new(status, "").retry_after;
        assert_eq!(Some(RETRY_AFTER_DEFAULT), retry_after(StatusCode::TOO_MANY_REQUESTS));
        assert_eq!(None, retry_after(StatusCode::REQUEST_TIMEOUT));
    }

    #[test]
    fn who_is_unknown_is_told_how_to_say_who_he_is() {
        let failure = HttpFailure::new(StatusCode::UNAUTHORIZED, "who are you");
        assert_eq!("Bearer", failure.headers(REPLICA)["www-authenticate"]);
    }
}
