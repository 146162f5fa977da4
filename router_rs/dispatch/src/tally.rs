//! How a deployment's calls ended, as seen by their callers: for people.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::StatusCode;
use router_call::{Door, Refusal};
use router_protocol::grpc::{Code, QUEUE_FULL_DEFAULT, http_status};

use crate::ending::Ending;
use crate::refused::Refused;

/// An answer whose end comes this long after its first data is a stream. A unary answer is often
/// two reads as well, but those come in quick succession.
pub(super) const STREAM_MIN: Duration = Duration::from_millis(1);

/// The parts of an answer that have come, and when.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub http: Option<StatusCode>,
    /// Of gRPC.
    pub code: Option<Code>,
    pub head_at: Option<Instant>,
    pub first_data_at: Option<Instant>,
    /// Of the body, without its heads.
    pub bytes: u64,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Grpc(Code),
    Http(StatusCode),
    /// Its caller left.
    Left,
}

impl End {
    /// `refused`: sent by the caller's end instead.
    pub fn of(ending: &Ending, refused: Option<&Refusal>, seen: &Seen, door: Door) -> Self {
        if let Some(refusal) = refused {
            let of_code = Self::of_ours(refusal.status.code, door);
            return refusal.http.filter(|_| door.is_http()).map_or(of_code, Self::Http);
        }
        match ending {
            Ending::Answered => match (seen.code, seen.http) {
                (Some(code), _) => Self::Grpc(code),
                (None, Some(status)) => Self::Http(status),
                (None, None) => Self::Grpc(Code::Unknown),
            },
            Ending::Cancelled => Self::Left,
            Ending::Failed(failure) => Self::of_ours(failure.status.code, door),
        }
    }

    /// For an answer that we made.
    pub fn of_ours(code: Code, door: Door) -> Self {
        if door.is_http() {
            Self::Http(http_status(code, QUEUE_FULL_DEFAULT))
        } else {
            Self::Grpc(code)
        }
    }

    /// The HTTP status for it; `None`: no status was sent.
    pub fn http(self) -> Option<StatusCode> {
        match self {
            Self::Grpc(code) => Some(http_status(code, QUEUE_FULL_DEFAULT)),
            Self::Http(status) => Some(status),
            Self::Left => None,
        }
    }
}

/// Counts by the hundreds of HTTP's statuses, and of callers that left.
#[derive(Debug, Default)]
pub struct Classes([AtomicU64; 6]);

impl Classes {
    /// The names of the counts, in their order.
    pub const WORDS: [&'static str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "left"];

    pub fn count(&self, status: Option<StatusCode>) {
        let class = status.map_or(5, |status| usize::from(status.as_u16() / 100).clamp(1, 5) - 1);
        self.0[class].fetch_add(1, Ordering::Relaxed);
    }

    pub fn read(&self) -> Vec<(&'static str, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        Self::WORDS.into_iter().zip(counts).collect()
    }
}

/// The counts of one deployment. Relaxed, since no decision depends on them; in cache lines of
/// their own, since all threads write them.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Tally {
    /// By gRPC's number.
    codes: [AtomicU64; 17],
    http: Classes,
    left: AtomicU64,
    request_bytes: AtomicU64,
    response_bytes: AtomicU64,
    /// By [`Refused::WORDS`].
    refused: [AtomicU64; Refused::WORDS.len()],
}

/// The counts of a [`Tally`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// Calls by gRPC status code; codes without calls are left out.
    pub codes: Vec<(u8, u64)>,
    /// Plain HTTP requests by the hundreds of their status.
    pub http: Vec<(&'static str, u64)>,
    /// Calls whose callers left.
    pub left: u64,
    /// Bytes of the bodies that were sent to replicas, once each.
    pub request_bytes: u64,
    pub response_bytes: u64,
    /// Calls that no replica took, by the reason's word.
    pub refused: Vec<(&'static str, u64)>,
}

impl Tally {
    pub(super) fn count(&self, end: End, request_bytes: u64, response_bytes: u64) {
        match end {
            End::Grpc(code) => add(&self.codes[usize::from(code.number())], 1),
            End::Http(status) => self.http.count(Some(status)),
            End::Left => add(&self.left, 1),
        }
        add(&self.request_bytes, request_bytes);
        add(&self.response_bytes, response_bytes);
    }

    pub(super) fn refuse(&self, refused: Refused) {
        let index = Refused::WORDS.iter().position(|word| *word == refused.word());
        if let Some(index) = index {
            add(&self.refused[index], 1);
        }
    }

    pub(super) fn read(&self) -> Ends {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let codes = (0..).zip(self.codes.iter().map(get));
        let refused = Refused::WORDS.into_iter().zip(self.refused.iter().map(get));
        Ends {
            codes: codes.filter(|(_, count)| *count > 0).collect(),
            http: self.http.read().into_iter().take(5).collect(),
            left: get(&self.left),
            request_bytes: get(&self.request_bytes),
            response_bytes: get(&self.response_bytes),
            refused: refused.collect(),
        }
    }
}

fn add(count: &AtomicU64, more: u64) {
    if more > 0 {
        count.fetch_add(more, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use router_call::Failure;
    use router_protocol::grpc::Status;

    #[test]
    fn an_end_is_what_the_caller_was_told() {
        let failed = |code| Ending::Failed(Failure::new(Status::new(code, "it has failed"), false));
        let none = Seen::default();
        let told = |http, code| Seen { http: Some(http), code, ..none };
        let late = failed(Code::DeadlineExceeded);
        for (ending, seen, door, expected) in [
            (
                &Ending::Answered,
                told(StatusCode::OK, Some(Code::NotFound)),
                Door::Grpc,
                End::Grpc(Code::NotFound),
            ),
            (
                &Ending::Answered,
                told(StatusCode::FOUND, None),
                Door::Http,
                End::Http(StatusCode::FOUND),
            ),
            (&late, none, Door::Rest, End::Grpc(Code::DeadlineExceeded)),
            (&late, none, Door::Http, End::Http(StatusCode::REQUEST_TIMEOUT)),
            (&Ending::Cancelled, told(StatusCode::OK, None), Door::Http, End::Left),
        ] {
            assert_eq!(expected, End::of(ending, None, &seen, door));
        }
        let text = "the answer cannot be written as JSON";
        let refusal = Refusal::from(Status::new(Code::Internal, text));
        let answered = told(StatusCode::OK, Some(Code::Ok));
        for ending in [Ending::Answered, Ending::Cancelled] {
            let end = End::of(&ending, Some(&refusal), &answered, Door::Rest);
            assert_eq!(End::Grpc(Code::Internal), end);
        }
        let too_large = Refusal { http: Some(StatusCode::PAYLOAD_TOO_LARGE), ..refusal };
        let end = End::of(&Ending::Cancelled, Some(&too_large), &none, Door::Http);
        assert_eq!(End::Http(StatusCode::PAYLOAD_TOO_LARGE), end);
    }

    #[test]
    fn each_end_is_counted_once() {
        let tally = Tally::default();
        tally.count(End::Grpc(Code::Ok), 5, 7);
        tally.count(End::Grpc(Code::Unauthenticated), 0, 0);
        tally.count(End::Http(StatusCode::NOT_FOUND), 1, 1);
        tally.count(End::Left, 1, 0);
        tally.refuse(Refused::Spent);
        let ends = tally.read();
        assert_eq!(vec![(0, 1), (16, 1)], ends.codes);
        let http = [("1xx", 0), ("2xx", 0), ("3xx", 0), ("4xx", 1), ("5xx", 0)];
        assert_eq!((http.to_vec(), 1), (ends.http, ends.left));
        assert_eq!((7, 8), (ends.request_bytes, ends.response_bytes));
        let refused: Vec<_> = ends.refused.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(vec![("spent", 1)], refused);
    }

    #[test]
    fn odd_statuses_have_a_class_too() {
        let classes = Classes::default();
        for status in [101, 299, 399, 499, 599, 999] {
            classes.count(StatusCode::from_u16(status).ok());
        }
        classes.count(None);
        let counts: Vec<u64> = classes.read().into_iter().map(|(_, count)| count).collect();
        assert_eq!(vec![1, 1, 1, 1, 2, 1], counts);
    }
}
