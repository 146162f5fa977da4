//! Metrics per method: the number of calls, how they ended and how long they took.

use std::time::Duration;

use http::StatusCode;
use router_call::Door;
use router_core::{Histogram, Nanos};
use router_dispatch::End;
use router_protocol::grpc::{Code, Status};

/// The counts of one method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MethodMeasures {
    /// Indexed by gRPC's status code.
    pub codes: [u64; 17],
    /// Plain HTTP requests by the hundreds of their status, from 1 on.
    pub http: [u64; 5],
    /// Calls whose clients left before they had an answer.
    pub left: u64,
    /// From the head of an answered call to the end of its answer.
    pub latency: Histogram,
    /// Bytes of messages, or of bodies.
    pub request_bytes: u64,
    pub response_bytes: u64,
}

/// The facts about one call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said {
    end: Option<(End, Duration)>,
    /// The status of a plain HTTP answer that has begun.
    pub(super) http: Option<StatusCode>,
    pub(super) request_bytes: usize,
    pub(super) response_bytes: usize,
}

/// Indexed by method number, which begins at -1.
#[derive(Debug, Default)]
pub(super) struct Measures(Vec<MethodMeasures>);

// === impl Said ===

impl Said {
    /// Records the time at which the answer was complete; the first call counts.
    pub(super) fn conclude(&mut self, end: End, took: Duration) {
        self.end.get_or_insert((end, took));
    }

    /// The end of a call with this status.
    pub(super) fn end_by(&self, status: &Status, is_http: bool) -> End {
        match self.http {
            Some(http) if is_http && status.code == Code::Ok => End::Http(http),
            _ => End::of_ours(status.code, if is_http { Door::Http } else { Door::Grpc }),
        }
    }

    /// How long the call took, if its answer is complete.
    pub(super) fn took(&self) -> Option<Duration> {
        self.end.map(|(_, took)| took)
    }
}

// === impl Measures ===

impl Measures {
    /// Allocates memory only for the first call of a method.
    pub(super) fn count(&mut self, method: i32, said: &Said) {
        let place = (method + 1) as usize;
        if place >= self.0.len() {
            self.0.resize(place + 1, MethodMeasures::default());
        }
        let measures = &mut self.0[place];
        measures.request_bytes += said.request_bytes as u64;
        measures.response_bytes += said.response_bytes as u64;
        let Some((end, took)) = said.end else {
            measures.left += 1;
            return;
        };
        match end {
            End::Grpc(code) => measures.codes[usize::from(code.number())] += 1,
            End::Http(status) => {
                measures.http[usize::from(status.as_u16() / 100).clamp(1, 5) - 1] += 1;
            }
            End::Left => measures.left += 1,
        }
        measures.latency.add(Nanos(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)));
    }

    /// `None`: it was never called.
    pub(super) fn of(&self, method: i32) -> Option<MethodMeasures> {
        let measures = self.0.get((method + 1) as usize).copied();
        measures.filter(|measures| *measures != MethodMeasures::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_counted_with_its_method_by_how_it_ended_first() {
        let mut said = Said { request_bytes: 3, response_bytes: 5, ..Said::default() };
        said.conclude(End::Grpc(Code::Ok), Duration::from_millis(2));
        said.conclude(End::Grpc(Code::Internal), Duration::from_secs(9));
        let mut measures = Measures::default();
        measures.count(1, &said);
        measures.count(1, &Said::default());
        assert_eq!(None, measures.of(2));
        assert_eq!(None, measures.of(0), "it has no call");
        let counted = measures.of(1).expect("it was called");
        assert_eq!((1, 0, 1), (counted.codes[0], counted.codes[13], counted.left));
        assert_eq!((3, 5), (counted.request_bytes, counted.response_bytes));
        assert_eq!((1, Nanos::from_millis(2)), (counted.latency.count(), counted.latency.sum()));
        measures.count(-1, &said);
        assert_eq!(1, measures.of(-1).expect("a path that nobody knows").codes[0]);
    }

    #[test]
    fn plain_http_ends_with_the_status_that_began_it_or_tells_why_not() {
        let status = |code| Status::new(code, "");
        let mut said = Said { http: Some(StatusCode::ACCEPTED), ..Said::default() };
        assert_eq!(End::Http(StatusCode::ACCEPTED), said.end_by(&status(Code::Ok), true));
        let broken = End::Http(StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(broken, said.end_by(&status(Code::Internal), true));
        said.http = None;
        assert_eq!(End::Grpc(Code::Internal), said.end_by(&status(Code::Internal), false));
        said.conclude(broken, Duration::ZERO);
        let mut measures = Measures::default();
        measures.count(0, &said);
        assert_eq!([0, 0, 0, 0, 1], measures.of(0).expect("it was called").http);
    }
}
