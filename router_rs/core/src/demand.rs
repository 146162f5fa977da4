//! How much has recently been placed on a replica.

use crate::time::Nanos;

/// The interval after which older demand counts half. It is long compared with the load of a model,
/// so that the replica that has just loaded one is not chosen for the next. It is short compared
/// with the time in which models become popular.
const INTERVAL: Nanos = Nanos::from_secs(16);

/// The integral of the calls that a replica has over time, older intervals halved.
///
/// Time in a replica is the cost of a call there, for whatever reason: work, the load of its model,
/// or the wait behind either. All replicas halve at the same moments, so sums can be compared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    call_ns: u64,
    counted_at: Nanos,
    interval_end: Nanos,
}

impl Demand {
    /// The sum of a replica that has had this many calls for an interval.
    #[inline]
    pub(crate) fn of(calls: u32) -> u64 {
        INTERVAL.saturating_mul(calls.into()).0
    }

    /// Counts the time up to `now`, at which the replica has `in_flight` calls. Call it before that
    /// changes.
    #[inline]
    pub(crate) fn count(&mut self, in_flight: u32, now: Nanos) {
        if now >= self.interval_end {
            self.begin_interval(now);
        }
        let time = now.saturating_sub(self.counted_at);
        self.call_ns = self.call_ns.saturating_add(time.saturating_mul(in_flight.into()).0);
        self.counted_at = self.counted_at.max(now);
    }

    /// The sum at `now`, in nanoseconds of calls. Each call in flight counts as if it would stay
    /// for an interval, since the next call waits behind it.
    pub(crate) fn at(mut self, in_flight: u32, now: Nanos) -> u64 {
        self.count(in_flight, now);
        self.call_ns.saturating_add(Self::of(in_flight))
    }

    /// The sum at `now` of past time only.
    #[inline]
    pub(crate) fn past(mut self, in_flight: u32, now: Nanos) -> u64 {
        self.count(in_flight, now);
        self.call_ns
    }

    #[cold]
    fn begin_interval(&mut self, now: Nanos) {
        let ended = 1 + now.saturating_sub(self.interval_end).0 / INTERVAL.0;
        self.call_ns = self.call_ns.checked_shr(ended as u32).unwrap_or(0);
        self.interval_end = Nanos((now.0 / INTERVAL.0 + 1).saturating_mul(INTERVAL.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_intervals_count_half_whenever_they_are_looked_at() {
        let mut demand = Demand::default();
        demand.count(0, Nanos::from_secs(6));
        demand.count(3, Nanos::from_secs(10));
        let seconds = |demand: Demand, at_s| demand.at(0, Nanos::from_secs(at_s)) / 1_000_000_000;
        assert_eq!([12, 12, 6, 3], [10, 15, 16, 47].map(|at_s| seconds(demand, at_s)));
        demand.count(0, Nanos::from_secs(40));
        assert_eq!([3, 1], [47, 48].map(|at_s| seconds(demand, at_s)));
        assert_eq!(0, seconds(demand, 100_000));
    }

    #[test]
    fn calls_in_flight_count_more_than_what_is_past() {
        let mut demand = Demand::default();
        demand.count(4, Nanos::from_secs(3));
        let idle = Demand::default();
        assert!(demand.at(0, Nanos::from_secs(4)) < idle.at(1, Nanos::from_secs(4)));
    }
}
