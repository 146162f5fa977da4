//! Decides which calls belong to a recorded trace.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use http::HeaderMap;
use router_core::SplitMix64;
use router_protocol::trace_context::{SpanId, TRACESTATE, TraceContext, TraceId};

/// No call is sampled.
const OFF: u8 = 0;
/// Calls of traces that are already sampled.
const PARENTS: u8 = 1;
/// Also some of the calls that begin a trace.
const ROOTS: u8 = 2;

/// A call that belongs to a recorded trace.
#[derive(Debug)]
pub(super) struct Sampled {
    pub(super) trace: TraceId,
    /// The caller's span.
    pub(super) parent: Option<SpanId>,
    /// The call's own.
    pub(super) span: SpanId,
    pub(super) numbers: SplitMix64,
}

/// Decides once for each call, where it enters the mesh: like its caller, or else by a ratio.
#[derive(Debug)]
pub(super) struct Sampler {
    mode: AtomicU8,
    /// A trace that begins here is sampled if the low half of its id is at most this. This is the
    /// rule of OpenTelemetry's `TraceIdRatioBased`, so that others who see the id decide alike.
    low_max: AtomicU64,
    samples_roots: bool,
}

impl Sampler {
    pub(super) fn new(ratio: Option<f64>, samples_roots: bool) -> Self {
        let sampler = Self { mode: AtomicU8::new(OFF), low_max: AtomicU64::new(0), samples_roots };
        sampler.set_ratio(ratio);
        sampler
    }

    pub(super) fn set_ratio(&self, ratio: Option<f64>) {
        let (mode, low_max) = match ratio {
            None => (OFF, 0),
            Some(ratio) => match bound(ratio) {
                Some(low_max) if self.samples_roots => (ROOTS, low_max),
                _ => (PARENTS, 0),
            },
        };
        self.low_max.store(low_max, Ordering::Relaxed);
        self.mode.store(mode, Ordering::Relaxed);
    }

    /// Judges a call by its head; `draw` seeds its random numbers. If a trace begins, a malformed
    /// context loses its other headers too.
    #[inline]
    pub(super) fn judge(
        &self,
        headers: &mut HeaderMap,
        draw: impl FnOnce() -> u64,
    ) -> Option<Box<Sampled>> {
        let mode = self.mode.load(Ordering::Relaxed);
        if mode == OFF {
            return None;
        }
        if let Some(caller) = TraceContext::of(headers) {
            let begin = || Sampled::new(caller.trace, Some(caller.span), SplitMix64::new(draw()));
            return caller.is_sampled.then(|| Box::new(begin()));
        }
        if mode == PARENTS {
            return None;
        }
        let mut numbers = SplitMix64::new(draw());
        let low = numbers.next_u64();
        if low > self.low_max.load(Ordering::Relaxed) {
            return None;
        }
        headers.remove(TRACESTATE);
        let trace = TraceId::of(numbers.next_u64(), low);
        Some(Box::new(Sampled::new(trace, None, numbers)))
    }
}

/// The largest low half that is sampled; `None`: none is.
fn bound(ratio: f64) -> Option<u64> {
    const ALL: f64 = 18_446_744_073_709_551_616.0;
    // A larger value is clamped to the largest number.
    let count = (ratio * ALL).round();
    if count >= ALL { Some(u64::MAX) } else { (count as u64).checked_sub(1) }
}

impl Sampled {
    fn new(trace: TraceId, parent: Option<SpanId>, mut numbers: SplitMix64) -> Self {
        let span = SpanId::of(numbers.next_u64());
        Self { trace, parent, span, numbers }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use router_protocol::mesh::proof::to_hex;
    use router_protocol::trace_context::TRACEPARENT;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(TRACESTATE, HeaderValue::from_static("a=1"));
        for value in values {
            headers.append(TRACEPARENT, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn context(flags: &str) -> String {
        format!("00-{TRACE}-b7ad6b7169203331-{flags}")
    }

    #[test]
    fn the_caller_decides_where_there_is_one() {
        for ratio in [0.0, 1.0] {
            let sampler = Sampler::new(Some(ratio), true);
            let mut with_trace = headers(&[&context("01")]);
            let sampled = sampler.judge(&mut with_trace, || 7).expect("as its caller");
            assert_eq!("b7ad6b7169203331", to_hex(&sampled.parent.unwrap().to_bytes()));
            assert_eq!(TRACE, to_hex(&sampled.trace.to_bytes()));
            assert!(with_trace.contains_key(TRACESTATE));
            let mut unsampled = headers(&[&context("00")]);
            assert!(sampler.judge(&mut unsampled, || unreachable!("nothing to draw")).is_none());
        }
    }

    #[test]
    fn a_context_that_is_none_begins_a_trace_and_loses_its_state() {
        let sampler = Sampler::new(Some(1.0), true);
        for values in [vec![], vec!["00-x"], vec![&*context("01"), &*context("01")]] {
            let mut without = headers(&values);
            let sampled = sampler.judge(&mut without, || 7).expect("all are sampled");
            assert_eq!(None, sampled.parent);
            assert!(!without.contains_key(TRACESTATE));
        }
    }

    #[test]
    fn the_ratio_of_roots_is_kept_by_the_low_half_of_their_ids() {
        for (ratio, expected) in [(0.0, 0..=0), (0.25, 2_300..=2_700), (1.0, 10_000..=10_000)] {
            let sampler = Sampler::new(Some(ratio), true);
            let traces: Vec<_> = (0..10_000)
                .filter_map(|seed| sampler.judge(&mut HeaderMap::new(), || seed))
                .map(|sampled| sampled.trace.to_bytes())
                .collect();
            assert!(expected.contains(&traces.len()), "{} of {ratio}", traces.len());
            let low = |id: &[u8; 16]| u64::from_be_bytes(id[8..].try_into().unwrap());
            assert!(traces.iter().all(|id| low(id) as f64 <= ratio * u64::MAX as f64));
            let distinct: std::collections::HashSet<_> = traces.iter().collect();
            assert_eq!(traces.len(), distinct.len());
        }
    }

    #[test]
    fn nobody_is_sampled_where_it_is_off_or_roots_are_not_ours() {
        let off = Sampler::new(None, true);
        assert!(off.judge(&mut headers(&[&context("01")]), || 7).is_none());
        let handles = Sampler::new(Some(1.0), false);
        assert!(handles.judge(&mut HeaderMap::new(), || 7).is_none());
        assert!(handles.judge(&mut headers(&[&context("01")]), || 7).is_some());
        off.set_ratio(Some(1.0));
        assert!(off.judge(&mut HeaderMap::new(), || 7).is_some());
    }

    #[test]
    fn bounds_are_those_of_the_ratio() {
        assert_eq!(None, bound(0.0));
        assert_eq!(Some((1 << 63) - 1), bound(0.5));
        assert_eq!(Some(u64::MAX), bound(1.0));
        assert_eq!(Some(u64::MAX), bound(7.0));
        assert_eq!(None, bound(-1.0));
    }
}
