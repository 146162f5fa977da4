//! How fast the replicas of a deployment are beside each other, by how long each worked on its calls.
//!
//! One number for the calls of the moment and one for each replica explain the logarithm of a call's
//! time: `log2 time = usual + slowness(replica) + chance`. Whatever makes all calls longer or
//! shorter, as a change of the mix, moves the first; only what sets a replica apart moves the other.
//!
//! Only times that a replica worked on one call alone tell: other times depend on what else was
//! there. What follows from them are whole octaves, and only those that are beyond doubt, so that
//! chance among equal replicas decides nothing.

use crate::time::Nanos;

/// The weight of one answer in what is usual: a change of the mix is followed within so many.
const USUAL_WEIGHT: f32 = 1.0 / 8.0;
/// The weight of one answer in what differs by chance.
const CHANCE_WEIGHT: f32 = 1.0 / 64.0;
/// What differs by chance is a quarter of an octave at least, also where all calls are equal.
const CHANCE_MIN: f32 = 0.25;
/// So many answers of a replica count; earlier ones fade.
const ANSWERS_MAX: f32 = 64.0;
/// As many answers as the guess that a replica is like the others weighs.
const GUESS: f32 = 2.0;
/// A replica is so many standard deviations of its mean faster than it seems, and the fastest one
/// slower.
const DOUBT: f32 = 0.75;
/// One answer differs by so many standard deviations at most. If it takes longer, the replica may
/// have changed, and what it answered before counts half.
const DIFFERS_MAX: f32 = 2.5;
const OCTAVES_MAX: f32 = 15.0;
/// What a replica has answered fades to 1/e while each of them could answer so many calls, so that a
/// slow one is tried again.
const FADES: f32 = 512.0;
/// Replicas are compared after so many answers.
const COMPARED_AFTER: u32 = 8;

/// What one replica's answers say of its speed.
#[derive(Clone, Copy, Debug, Default)]
struct Speed {
    /// How many octaves its answers took longer than usual, together, and how many they are.
    octaves: f32,
    answers: f32,
}

/// Those of all replicas, by slot.
#[derive(Debug, Default)]
pub(crate) struct Speeds {
    each: Vec<Speed>,
    /// The binary logarithm of a call's nanoseconds at a replica of no slowness; 0: unknown.
    usual: f32,
    /// The mean square of what is chance.
    chance: f32,
    answers: u32,
}

impl Speed {
    #[inline]
    fn slowness(self) -> f32 {
        self.octaves / (self.answers + GUESS)
    }

    fn keep(&mut self, part: f32) {
        self.octaves *= part;
        self.answers *= part;
    }
}

impl Speeds {
    /// Another replica is in this slot.
    pub(crate) fn forget(&mut self, slot: u32) {
        if let Some(speed) = self.each.get_mut(slot as usize) {
            *speed = Speed::default();
        }
    }

    /// What is usual for a call that is sent now; [`Speeds::on_answer`] wants to know.
    #[inline]
    pub(crate) fn usual(&self) -> f32 {
        self.usual
    }

    /// The replica in `slot` worked for so long on a call, and `usual` was usual when it was sent: so
    /// long calls of an earlier mix that end among short ones are not held against it. Returns
    /// whether it is time to compare the replicas.
    #[inline]
    pub(crate) fn on_answer(&mut self, slot: u32, work: Nanos, usual: f32) -> bool {
        let octaves = log2(work);
        if slot as usize >= self.each.len() {
            self.each.resize(slot as usize + 1, Speed::default());
        }
        if self.usual == 0.0 {
            (self.usual, self.chance) = (octaves, 1.0);
        }
        let speed = &mut self.each[slot as usize];
        let slowness = speed.slowness();
        self.usual += (octaves - slowness - self.usual) * USUAL_WEIGHT;
        if usual != 0.0 {
            let differs = octaves - usual - slowness;
            self.chance += (differs * differs - self.chance) * CHANCE_WEIGHT;
            let most = deviation(self.chance) * DIFFERS_MAX;
            if differs > most {
                speed.keep(0.5);
            }
            speed.octaves += slowness + differs.clamp(-most, most);
            speed.answers += 1.0;
            if speed.answers > ANSWERS_MAX {
                speed.keep(ANSWERS_MAX / speed.answers);
            }
        }
        self.answers = self.answers.wrapping_add(1);
        self.answers.is_multiple_of(COMPARED_AFTER)
    }

    /// Compares the replicas: the most that the slowness of the fastest member can be. What was not
    /// said again fades.
    pub(crate) fn compare(&mut self, members: u32, is_member: impl Fn(u32) -> bool) -> f32 {
        let kept = 1.0 - COMPARED_AFTER as f32 / (FADES * members.max(1) as f32);
        self.each.iter_mut().for_each(|speed| speed.keep(kept));
        let speeds = (0..).zip(&self.each).filter(|(slot, _)| is_member(*slot));
        let most = speeds.map(|(_, speed)| speed.slowness() + self.doubt(*speed));
        most.fold(f32::INFINITY, f32::min)
    }

    /// How many octaves the replica in `slot` is slower than one of slowness `fastest`, beyond doubt.
    pub(crate) fn octaves(&self, slot: u32, fastest: f32) -> u8 {
        let Some(speed) = self.each.get(slot as usize) else { return 0 };
        let octaves = (speed.slowness() - self.doubt(*speed) - fastest).round();
        octaves.clamp(0.0, OCTAVES_MAX) as u8
    }

    /// The standard deviation of a replica's slowness, so many times.
    fn doubt(&self, speed: Speed) -> f32 {
        if speed.answers <= 0.0 {
            return f32::INFINITY;
        }
        deviation(self.chance) * DOUBT / speed.answers.sqrt()
    }

    /// The usual time of a call at the replica in `slot`, in nanoseconds.
    pub(crate) fn call_ns(&self, slot: u32) -> f64 {
        let slowness = self.each.get(slot as usize).map_or(0.0, |speed| speed.slowness());
        f64::from(self.usual + slowness).exp2()
    }
}

#[inline]
fn deviation(chance: f32) -> f32 {
    chance.sqrt().max(CHANCE_MIN)
}

/// The binary logarithm of the nanoseconds, within a twelfth: exponent and mantissa as they stand.
#[inline]
fn log2(time: Nanos) -> f32 {
    (time.0.max(2) as f32).to_bits() as f32 / (1 << 23) as f32 - 127.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    /// Each replica answers a call that was sent just now, of so many milliseconds.
    fn answer(speeds: &mut Speeds, works_ms: &[f64]) {
        for (slot, work_ms) in (0..).zip(works_ms) {
            let usual = speeds.usual();
            speeds.on_answer(slot, Nanos((work_ms * 1e6) as u64), usual);
        }
    }

    fn octaves(speeds: &mut Speeds, replicas: u32) -> Vec<u8> {
        let fastest = speeds.compare(replicas, |_| true);
        (0..replicas).map(|slot| speeds.octaves(slot, fastest)).collect()
    }

    #[test]
    fn a_slow_replica_is_found_and_what_it_is_slower_is_cut_to_octaves() {
        let mut speeds = Speeds::default();
        (0..32).for_each(|_| answer(&mut speeds, &[10.0, 11.0, 12.0, 80.0]));
        assert_eq!(vec![0, 0, 0, 3], octaves(&mut speeds, 4));
        speeds.forget(3);
        assert_eq!(vec![0; 4], octaves(&mut speeds, 4), "another one is there");
    }

    #[test]
    fn chance_among_equal_replicas_is_no_slowness() {
        let (mut speeds, mut rng) = (Speeds::default(), SplitMix64::new(7));
        let mut slow = 0;
        for _ in 0..2_000 {
            // Evenly by the logarithm, from 1 to 16 ms.
            let works: Vec<f64> =
                (0..8).map(|_| (f64::from(rng.below(4_000)) / 1e3).exp2()).collect();
            answer(&mut speeds, &works);
            slow += octaves(&mut speeds, 8).iter().filter(|octaves| **octaves > 1).count();
        }
        assert!(slow <= 32, "{slow} of 16 000");
    }

    #[test]
    fn long_calls_of_an_earlier_mix_are_not_held_against_who_ends_them() {
        let mut speeds = Speeds::default();
        (0..32).for_each(|_| answer(&mut speeds, &[1_000.0; 4]));
        let usual = speeds.usual();
        for _ in 0..32 {
            answer(&mut speeds, &[1.0; 3]);
        }
        speeds.on_answer(3, Nanos::from_secs(2), usual);
        assert_eq!(vec![0; 4], octaves(&mut speeds, 4));
    }

    #[test]
    fn a_replica_that_turns_slow_is_found_within_a_few_calls() {
        let (mut speeds, mut rng) = (Speeds::default(), SplitMix64::new(7));
        let mut works = |slowness: f64| {
            let mut work = || (f64::from(rng.below(2_000)) / 1e3).exp2();
            [work(), work(), work(), work() * slowness]
        };
        for _ in 0..200 {
            answer(&mut speeds, &works(1.0));
        }
        assert_eq!(vec![0; 4], octaves(&mut speeds, 4));
        let mut calls = 0;
        while octaves(&mut speeds, 4)[3] < 2 {
            answer(&mut speeds, &works(10.0));
            calls += 1;
            assert!(calls < 24, "{speeds:?}");
        }
    }

    #[test]
    fn what_is_not_said_again_fades() {
        let mut speeds = Speeds::default();
        (0..32).for_each(|_| answer(&mut speeds, &[10.0, 80.0]));
        let mut compared = 0;
        while octaves(&mut speeds, 2)[1] > 0 {
            answer(&mut speeds, &[10.0]);
            compared += 1;
            assert!(compared < 10_000, "it is never tried again");
        }
        assert!(compared > 128, "{compared}");
    }
}
