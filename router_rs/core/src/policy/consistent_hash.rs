//! Calls of one session to one replica, within bounds.

use super::{Candidates, Least, Policy};
use crate::demand::Demand;
use crate::rng::{SplitMix64, mix};

/// For a moment a replica may have so many standard deviations more than what it may have of late, as
/// calls come that know nothing of each other (Poisson's law). With fewer, calls leave for bursts that
/// are chance: with none half of the misses were such (scenario `l7_prefixes_loop`).
const BURST_DEVIATIONS: f64 = 3.0;
/// A replica at its bound draws sessions as one of `1 / (1 + YIELD)` times the size: about as many of
/// them move as it takes. Tuned with the scenarios `l7_prefixes…`; half as much leaves it with more than
/// its bound there.
const YIELD: f64 = 0.5;
/// The first part of the way from the mean to the bound is chance: there nothing moves.
const CHANCE: f64 = 0.25;
/// As if each replica had had one call more all the time, and so many one after the other: where few
/// calls are, in flight or at all, nothing moves. Arbitrary.
const CALLS_GUESS: f64 = 32.0;

/// Takes the candidate that the session hashes to. A replica that has more than the mean of the calls
/// in flight *of late* draws fewer sessions: those that were nearly at home elsewhere are there from
/// then on. A call without session goes where [`Least`] says.
///
/// Sessions move once and then find what is kept for them, so balance costs few misses. Beside that
/// nobody has far more than its share at any moment: calls go to the next in the order of their
/// session (Mirrokni, Thorup and Zadimoghaddam, "Consistent hashing with bounded loads", SODA 2018).
/// That bound alone, near enough to the mean to balance, breaks sessions up at every burst.
///
/// The order is that of rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to
/// increase hit rates", 1998): a replica that comes or goes moves only its own sessions, as on a
/// ring, but evenly without virtual nodes, and what overflows spreads over all others instead of
/// running to one neighbour. It needs no table, only a scan.
#[derive(Clone, Copy, Debug)]
pub struct ConsistentHash {
    load_bound: f64,
}

/// A candidate in the order of a session: the greatest comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    has_room: bool,
    weight: u64,
    index: usize,
}

impl ConsistentHash {
    /// A replica may have `load_bound` times the mean of late, which is above 1.
    pub fn new(load_bound: f64) -> Self {
        Self { load_bound }
    }

    /// The one of the candidates to which the session belongs; those with `bound` calls and more come
    /// last.
    #[inline]
    fn first(self, candidates: Candidates<'_>, bound: u64) -> usize {
        let (mut first, mut second) = (Place::default(), Place::default());
        for index in 0..candidates.len() {
            let has_room = u64::from(candidates.in_flight(index)) < bound;
            let place = Place { has_room, weight: weight(candidates, index), index };
            if place > first {
                (first, second) = (place, first);
            } else if place > second {
                second = place;
            }
        }
        let may_yield = first.has_room == second.has_room;
        let yields =
            may_yield && self.distance(candidates, second) < self.distance(candidates, first);
        if yields { second.index } else { first.index }
    }

    /// How far the replica is from the session: farther if it had more of late.
    fn distance(self, candidates: Candidates<'_>, place: Place) -> f64 {
        let guess = Demand::of(1) as f64 + CALLS_GUESS * candidates.alone_ns();
        let mean = candidates.fleet_demand() as f64 / f64::from(candidates.fleet_len().max(1));
        let load = (candidates.demand(place.index) as f64 + guess) / (mean + guess);
        let way_to_bound = (load - 1.0) / (self.load_bound - 1.0);
        let beyond = ((way_to_bound - CHANCE) / (1.0 - CHANCE)).max(0.0);
        (u64::MAX - place.weight) as f64 * (1.0 + YIELD * beyond)
    }
}

impl Policy for ConsistentHash {
    #[inline]
    fn pick(&mut self, candidates: Candidates<'_>, rng: &mut SplitMix64) -> usize {
        if candidates.session() == 0 {
            return Least.pick(candidates, rng);
        }
        let (in_flight, replicas) = (candidates.fleet_in_flight(), candidates.fleet_len());
        self.first(candidates, bound(self.load_bound, in_flight, replicas))
    }

    fn home(&self, candidates: Candidates<'_>) -> Option<usize> {
        let has_home = candidates.session() != 0 && !candidates.is_empty();
        has_home.then(|| self.first(candidates, u64::MAX))
    }

    fn rule(&self) -> &'static str {
        "consistent_hash: by session, within load_bound times the mean in flight of late; else the \
         fewest calls"
    }
}

/// The greatest comes first in the order of the session.
#[inline]
fn weight(candidates: Candidates<'_>, index: usize) -> u64 {
    mix(candidates.session() ^ mix(candidates.id(index).0))
}

/// The most calls that a replica may have after it got the one in question.
fn bound(load_bound: f64, in_flight: u64, replicas: u32) -> u64 {
    let share = load_bound * (in_flight + 1) as f64 / f64::from(replicas.max(1));
    (share + BURST_DEVIATIONS * share.sqrt()).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::Fleet;
    use crate::time::Nanos;

    fn pick(fleet: &Fleet, open: &[u32], session: u64) -> u32 {
        let mut policy = ConsistentHash::new(1.25);
        open[policy.pick(fleet.candidates(open, session), &mut SplitMix64::new(1))]
    }

    fn all(fleet: &Fleet) -> Vec<u32> {
        (0..fleet.len()).collect()
    }

    #[test]
    fn a_session_stays_and_only_those_of_a_replica_that_goes_move() {
        let fleet = Fleet::with_in_flight(&[2; 10]);
        let without_third: Vec<u32> = all(&fleet).into_iter().filter(|slot| *slot != 3).collect();
        let mut counts = [0_u32; 10];
        for session in 1..=10_000 {
            let before = pick(&fleet, &all(&fleet), session);
            counts[before as usize] += 1;
            let after = pick(&fleet, &without_third, session);
            assert!(before == 3 || before == after, "session {session}: {before}, then {after}");
        }
        // Six standard deviations of a binomial with mean 1 000.
        assert!(counts.iter().all(|count| count.abs_diff(1_000) < 180), "{counts:?}");
    }

    #[test]
    fn a_replica_above_its_bound_passes_sessions_on() {
        let idle = Fleet::with_in_flight(&[0; 4]);
        let home = pick(&idle, &all(&idle), 7);
        // 14 in flight and the new one: ceil(s + 3 √s) of s = 1.25 × 15 / 4 is 12.
        let mut in_flight = [1; 4];
        in_flight[home as usize] = 11;
        let below = Fleet::with_in_flight(&in_flight);
        assert_eq!(home, pick(&below, &all(&below), 7));
        in_flight[home as usize] = 14;
        let above = Fleet::with_in_flight(&in_flight);
        assert_ne!(home, pick(&above, &all(&above), 7));
        assert_eq!(home, pick(&above, &[home], 7), "who alone has room takes it");
    }

    #[test]
    fn who_is_above_its_bound_is_home_all_the_same() {
        let fleet = Fleet::with_in_flight(&[0; 4]);
        let open = all(&fleet);
        let home = pick(&fleet, &open, 7);
        let mut in_flight = [2; 4];
        in_flight[home as usize] = 99;
        let full = Fleet::with_in_flight(&in_flight);
        let (policy, candidates) = (ConsistentHash::new(1.25), full.candidates(&open, 7));
        assert_eq!(Some(home as usize), policy.home(candidates));
        // Calls that it cannot take all go to the same next one.
        let next = pick(&full, &open, 7);
        let others: Vec<u32> = open.iter().copied().filter(|slot| *slot != home).collect();
        assert_eq!(next, pick(&fleet, &others, 7));
        assert_eq!(None, policy.home(full.candidates(&open, 0)));
    }

    #[test]
    fn without_session_the_least_loaded_wins() {
        let fleet = Fleet::with_in_flight(&[2, 0, 1]);
        assert_eq!(1, pick(&fleet, &all(&fleet), 0));
    }

    #[test]
    fn a_replica_that_had_more_of_late_keeps_most_sessions_and_the_others_stay_elsewhere() {
        let idle = Fleet::with_in_flight(&[0; 4]);
        let open = all(&idle);
        let moved_at = |calls_of_late: u32| {
            let calls = [calls_of_late, 40, 40, 40];
            let busy = Fleet::with_in_flight(&[0; 4]).with_demand(&calls, Nanos::from_secs(15));
            let moves =
                |session: &u64| pick(&idle, &open, *session) != pick(&busy, &open, *session);
            let moved: Vec<u64> = (1..=4_000).filter(moves).collect();
            assert!(moved.iter().all(|session| pick(&idle, &open, *session) == 0));
            moved
        };
        assert_eq!(0, moved_at(40).len());
        assert_eq!(0, moved_at(42).len(), "a small difference is chance");
        let [some, more] = [60, 90].map(moved_at);
        // Of about 1 000.
        assert!((100..400).contains(&some.len()), "{}", some.len());
        assert!(more.len() > some.len());
        assert!(some.iter().all(|session| more.contains(session)), "who has moved stays there");
    }

    #[test]
    fn few_calls_say_nothing_of_who_has_more() {
        let idle = Fleet::with_in_flight(&[0; 4]);
        let quiet = Fleet::with_in_flight(&[0; 4]).with_demand(&[1, 0, 0, 0], Nanos::from_secs(1));
        let open = all(&idle);
        let stays = |session| pick(&idle, &open, session) == pick(&quiet, &open, session);
        assert!((1..=4_000).all(stays));
    }

    #[test]
    fn the_bound_is_three_deviations_above_the_share_and_lets_two_calls_be_together() {
        let of = |(calls, replicas)| bound(1.25, calls, replicas);
        assert_eq!([2, 8, 20, 87], [(0, 4), (7, 4), (31, 4), (199, 4)].map(of));
        assert_eq!(2, of((1, 16)));
    }
}
