//! Decides which answers count against the replica that gave them, and which calls may be retried.
//!
//! A failure counts against a replica when it can be the replica's fault: `UNAVAILABLE`,
//! `RESOURCE_EXHAUSTED`, `INTERNAL`, `DATA_LOSS` and `UNKNOWN` (the code of a Python exception),
//! `DEADLINE_EXCEEDED` before any answer began, and HTTP 500, 502, 503 and 504. Often the request
//! is at fault all the same. The router compares replicas, so that only those stand out that fail
//! where others succeed. All other codes are answers about the request.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use router_protocol::grpc::{Code, CodeSet, GRPC_STATUS, RETRY_PUSHBACK};

/// Whether the end of an answer counts against its replica. `end` holds the gRPC status if there is
/// one; `is_whole`: no answer had begun before.
pub(super) fn is_failure(http: StatusCode, end: &HeaderMap, is_whole: bool) -> bool {
    match end.get(GRPC_STATUS).map(|value| Code::from_header(value.as_bytes())) {
        Some(Code::DeadlineExceeded) => is_whole,
        Some(code) => matches!(
            code,
            Code::Unavailable
                | Code::ResourceExhausted
                | Code::Internal
                | Code::DataLoss
                | Code::Unknown
        ),
        None => matches!(http.as_u16(), 500 | 502 | 503 | 504),
    }
}

/// When a failed call that may be repeated may be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    Never,
    /// When the router chooses.
    Soon,
    After(Duration),
}

/// The codes that ask for another attempt where the deployment names none: these are transient,
/// other failures would recur.
pub(super) const PASSING: CodeSet = CodeSet::of(&[Code::Unavailable, Code::ResourceExhausted]);

/// When an answer without a body may be retried; `codes` are those that ask for another attempt.
///
/// A pushback that is negative or not a number forbids retries (gRPC A6).
pub(super) fn repeats(end: &HeaderMap, codes: CodeSet) -> Repeat {
    let code = end.get(GRPC_STATUS).map(|value| Code::from_header(value.as_bytes()));
    if !code.is_some_and(|code| codes.has(code)) {
        return Repeat::Never;
    }
    let Some(value) = end.get(RETRY_PUSHBACK) else { return Repeat::Soon };
    let millis = value.to_str().ok().and_then(|text| text.parse().ok());
    millis.map_or(Repeat::Never, |millis| Repeat::After(Duration::from_millis(millis)))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn end(code: Code) -> HeaderMap {
        HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static(code.as_str()))])
    }

    #[test]
    fn codes_that_can_be_the_replicas_fault_count_against_it() {
        let blamed: Vec<u32> = (0..17)
            .filter(|code| is_failure(StatusCode::OK, &end(Code::from_number(*code)), false))
            .collect();
        assert_eq!(vec![2, 8, 13, 14, 15], blamed);
        assert!(is_failure(StatusCode::OK, &end(Code::DeadlineExceeded), true));
    }

    #[test]
    fn plain_http_counts_server_errors_of_the_moment() {
        let is_blamed = |status: &u16| {
            is_failure(StatusCode::from_u16(*status).unwrap(), &HeaderMap::new(), false)
        };
        let blamed: Vec<u16> = (200..600).filter(is_blamed).collect();
        assert_eq!(vec![500, 502, 503, 504], blamed);
    }

    #[test]
    fn an_answer_asks_again_unless_its_pushback_says_never() {
        assert_eq!(Repeat::Soon, repeats(&end(Code::Unavailable), PASSING));
        assert_eq!(Repeat::Never, repeats(&end(Code::Internal), PASSING));
        assert_eq!(Repeat::Never, repeats(&HeaderMap::new(), PASSING));
        let codes = CodeSet::of(&[Code::Internal, Code::Unauthenticated]);
        assert_eq!(Repeat::Soon, repeats(&end(Code::Internal), codes));
        assert_eq!(Repeat::Soon, repeats(&end(Code::Unauthenticated), codes));
        assert_eq!(Repeat::Never, repeats(&end(Code::Unavailable), codes));
        assert_eq!(Repeat::Never, repeats(&end(Code::Unavailable), CodeSet::NONE));
        for (pushback, expected) in
            [("0", Some(0)), ("1500", Some(1500)), ("-1", None), ("soon", None), ("", None)]
        {
            let mut end = end(Code::ResourceExhausted);
            end.insert(RETRY_PUSHBACK, HeaderValue::from_static(pushback));
            let after = |millis| Repeat::After(Duration::from_millis(millis));
            let expected = expected.map_or(Repeat::Never, after);
            assert_eq!(expected, repeats(&end, PASSING), "{pushback:?}");
        }
    }
}
