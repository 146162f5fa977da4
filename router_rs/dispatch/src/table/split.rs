//! Outside calls shared by several deployments: a part of them goes elsewhere (a canary), and a
//! part is copied elsewhere without an answer (a mirror).
//!
//! Calls of one session stay together: a hash of it decides, which is the same in every ingress.
//! For other calls the decision is random, by the table's seed.

use std::sync::atomic::{AtomicU64, Ordering};

use router_core::SplitMix64;

/// A part of the calls that lead to one deployment, for another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    pub application: String,
    pub deployment: String,
    /// Of all calls, 0 to 1.
    pub weight: f64,
}

/// The sharing of one deployment's calls, in one version of the table.
#[derive(Debug, Default)]
pub(crate) struct Split {
    traffic: Lottery,
    mirror: Lottery,
    seed: u64,
    drawn: AtomicU64,
}

/// Tickets are numbers from 0 to 1; those beyond the last end win nothing.
#[derive(Debug, Default)]
struct Lottery {
    /// The end of each winner's part, its index in the table, and the part.
    ends: Vec<(f64, usize, f64)>,
}

/// The destinations of a call, as indices in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drawn {
    /// `None`: the deployment that it led to.
    pub instead: Option<usize>,
    pub mirror: Option<usize>,
}

// === impl Split ===

impl Split {
    /// Shares as indices in the table; those of deployments that cannot serve are left out before.
    pub(crate) fn new(traffic: Vec<(f64, usize)>, mirror: Vec<(f64, usize)>, seed: u64) -> Self {
        let (traffic, mirror) = (Lottery::new(traffic), Lottery::new(mirror));
        Self { traffic, mirror, seed, drawn: AtomicU64::new(0) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.traffic.ends.is_empty() && self.mirror.ends.is_empty()
    }

    pub(crate) fn draw(&self, session: &[u8]) -> Drawn {
        let turn = self.drawn.fetch_add(1, Ordering::Relaxed);
        let mut numbers = SplitMix64::new(self.seed.wrapping_add(turn));
        let first = numbers.next_u64();
        let ticket = if session.is_empty() { first } else { hash(session) };
        Drawn {
            instead: self.traffic.winner(fraction(ticket)),
            mirror: self.mirror.winner(fraction(numbers.next_u64())),
        }
    }

    /// The part of the calls that goes to the same destination, for people; `None`: all of them.
    pub(crate) fn share(&self, drawn: Drawn) -> Option<f32> {
        self.traffic.part(drawn.instead).map(|part| part as f32)
    }
}

impl Lottery {
    fn new(shares: Vec<(f64, usize)>) -> Self {
        let mut end = 0.0;
        let ends = shares.into_iter().map(|(weight, place)| {
            end += weight;
            (end, place, weight)
        });
        Self { ends: ends.collect() }
    }

    fn winner(&self, ticket: f64) -> Option<usize> {
        self.ends.iter().find(|(end, ..)| ticket < *end).map(|(_, place, _)| *place)
    }

    /// The part at this index; without one, the part of all calls that win nothing.
    fn part(&self, winner: Option<usize>) -> Option<f64> {
        let last = self.ends.last()?;
        let found = self.ends.iter().find(|(_, place, _)| Some(*place) == winner);
        // The sum of ten tenths is not exactly one in floating point.
        Some(found.map_or((1.0 - last.0).max(0.0), |(.., weight)| *weight))
    }
}

/// From 0 to below 1, with the 53 bits that a double has.
fn fraction(number: u64) -> f64 {
    const STEPS: f64 = (1_u64 << 53) as f64;
    (number >> 11) as f64 / STEPS
}

/// FNV-1a (Fowler, Noll, Vo), followed by `SplitMix64`, because the high bits of FNV hardly differ
/// for short keys.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let fnv = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    SplitMix64::new(fnv).next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split() -> Split {
        Split::new(vec![(0.05, 1), (0.2, 2)], vec![(0.1, 3)], 7)
    }

    #[test]
    fn calls_without_a_session_are_shared_by_weight() {
        let split = split();
        let mut counts = [0_u32; 4];
        for _ in 0..20_000 {
            let Drawn { instead, mirror } = split.draw(b"");
            counts[instead.unwrap_or(0)] += 1;
            counts[3] += u32::from(mirror == Some(3));
        }
        for (count, share) in counts.into_iter().zip([0.75, 0.05, 0.2, 0.1]) {
            let expected = share * 20_000.0;
            assert!((f64::from(count) - expected).abs() < 300.0, "{count} for {expected}");
        }
    }

    #[test]
    fn a_call_knows_the_part_that_goes_where_it_does() {
        let share = |split: &Split, instead| split.share(Drawn { instead, mirror: None });
        let both = split();
        for (instead, expected) in [(None, 0.75), (Some(1), 0.05), (Some(2), 0.2)] {
            assert_eq!(Some(expected), share(&both, instead));
        }
        let tenths = Split::new((1..=10).map(|place| (0.1, place)).collect(), Vec::new(), 7);
        assert_eq!(Some(0.0), share(&tenths, None).map(|rest| (rest * 1e6).round()));
        let copied = Split::new(Vec::new(), vec![(0.1, 3)], 7);
        assert_eq!(None, share(&copied, None));
    }

    #[test]
    fn one_seed_gives_one_history() {
        let history = |split: Split| (0..100).map(|_| split.draw(b"")).collect::<Vec<_>>();
        assert_eq!(history(split()), history(split()));
    }

    #[test]
    fn sessions_stay_where_they_are_and_are_shared_by_weight() {
        let (one, other) = (split(), Split::new(vec![(0.05, 1), (0.2, 2)], Vec::new(), 99));
        let mut elsewhere = 0;
        for number in 0..20_000 {
            let session = format!("user-{number}");
            let place = one.draw(session.as_bytes()).instead;
            assert_eq!(place, one.draw(session.as_bytes()).instead, "{session}");
            assert_eq!(place, other.draw(session.as_bytes()).instead, "another ingress: {session}");
            elsewhere += u32::from(place.is_some());
        }
        assert!((4_700..=5_300).contains(&elsewhere), "{elsewhere} of 20000, a quarter is wanted");
    }

    #[test]
    fn a_larger_share_keeps_the_sessions_that_it_had() {
        let larger = Split::new(vec![(0.5, 1)], Vec::new(), 7);
        let smaller = Split::new(vec![(0.05, 1)], Vec::new(), 7);
        for number in 0..2_000 {
            let session = format!("user-{number}");
            if smaller.draw(session.as_bytes()).instead.is_some() {
                assert!(larger.draw(session.as_bytes()).instead.is_some(), "{session}");
            }
        }
    }

    #[test]
    fn the_whole_share_leaves_nothing() {
        let all = Split::new(vec![(1.0, 4)], Vec::new(), 7);
        assert!((0..1_000).all(|_| all.draw(b"").instead == Some(4)));
        assert!((0..1_000).all(|_| Split::default().draw(b"") == Drawn::default()));
    }
}
