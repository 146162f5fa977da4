//! What it costs a call not to find what it names, and how long calls that are at a replica already
//! keep it from beginning: both learnt from answers.
//!
//! The time of a call in a replica is taken for a sum: a part that all calls have, a part for each key
//! that it did not find, and a part of the work that was there before it. Where replicas work on one
//! call after the other that last part is all of it, and where they work on all at once it is nothing.

/// Of one answer in what is learnt. Arbitrary: models of one deployment are alike, and their prompts
/// drift.
const WEIGHT: f64 = 1.0 / 256.0;
/// Fewer answers say nothing.
const ANSWERS_MIN: u32 = 16;
/// Nor do answers that all found nearly as much, or had as much before them: the least variance, of
/// missing keys and of times relative to the mean time.
const VARIANCE_MIN: f64 = 1e-4;

/// An answer, as far as it teaches something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lesson {
    /// Keys that the call did not find.
    pub(super) missing: u32,
    /// The work of the calls that were there when it was sent.
    pub(super) ahead_ns: f64,
    /// Its time in the replica.
    pub(super) took_ns: f64,
    /// How long the replica worked on it and on nothing else, if it says so.
    pub(super) alone_ns: Option<f64>,
}

/// Least squares in two variables that forget (West, "Updating mean and variance estimates: an improved
/// method", 1979, with weights that decay).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Savings {
    answers: u32,
    missing: f64,
    ahead_ns: f64,
    took_ns: f64,
    /// Of missing keys, of the work ahead, of both; of each with the time.
    of_missing: f64,
    of_ahead: f64,
    of_both: f64,
    of_missing_took: f64,
    of_ahead_took: f64,
    /// The results, from when there was variance to learn them from.
    key_ns: Option<f64>,
    waits: Option<f64>,
}

impl Savings {
    /// A call was answered.
    pub(super) fn on_answer(&mut self, lesson: Lesson) {
        // Who works on it alone has worked off all that was there before.
        let is_alone = lesson.alone_ns.is_some();
        let ahead_ns = if is_alone { 0.0 } else { lesson.ahead_ns };
        let took_ns = lesson.alone_ns.unwrap_or(lesson.took_ns);
        self.answers = self.answers.saturating_add(1);
        let weight = WEIGHT.max(1.0 / f64::from(self.answers));
        let missing = f64::from(lesson.missing) - self.missing;
        let (ahead, took) = (ahead_ns - self.ahead_ns, took_ns - self.took_ns);
        self.missing += missing * weight;
        self.ahead_ns += ahead * weight;
        self.took_ns += took * weight;
        let add = |sum: &mut f64, product: f64| *sum = (1.0 - weight) * (*sum + weight * product);
        add(&mut self.of_missing, missing * missing);
        add(&mut self.of_ahead, ahead * ahead);
        add(&mut self.of_both, missing * ahead);
        add(&mut self.of_missing_took, missing * took);
        add(&mut self.of_ahead_took, ahead * took);
        if self.answers >= ANSWERS_MIN {
            self.solve();
            if is_alone {
                self.waits = Some(1.0);
            }
        }
    }

    /// The normal equations, as far as there is variance; a variable without any is left out.
    fn solve(&mut self) {
        let tells_missing = self.of_missing > VARIANCE_MIN;
        let tells_ahead = self.of_ahead > VARIANCE_MIN * self.took_ns * self.took_ns;
        let determinant = self.of_missing * self.of_ahead - self.of_both * self.of_both;
        let is_told_apart = determinant > self.of_missing * self.of_ahead * VARIANCE_MIN;
        if tells_missing && tells_ahead && is_told_apart {
            let waits = self.of_ahead_took * self.of_missing - self.of_missing_took * self.of_both;
            self.waits = Some((waits / determinant).clamp(0.0, 1.0));
        }
        if tells_missing {
            // With the share of the work ahead as it is taken for.
            let waits = self.waits.unwrap_or(0.0);
            let key_ns = (self.of_missing_took - waits * self.of_both) / self.of_missing;
            self.key_ns = Some(key_ns.max(0.0));
        }
    }

    /// What each key that is found saves, in nanoseconds; 0 if nothing. `None`: unknown.
    #[inline]
    pub(super) fn key_ns(&self) -> Option<f64> {
        self.key_ns
    }

    /// For which part of the work that is at a replica already a call waits, 0 to 1; `None`: unknown.
    #[inline]
    pub(super) fn waits(&self) -> Option<f64> {
        self.waits
    }

    /// How long a call that does not find so many keys takes where nothing is before it; `None`:
    /// unknown.
    #[inline]
    pub(super) fn call_ns(&self, missing: u32) -> Option<f64> {
        let key_ns = self.key_ns?;
        Some((self.mean_ns()? + (f64::from(missing) - self.missing) * key_ns).max(0.0))
    }

    /// How long calls take on average where nothing is before them; `None`: unknown.
    #[inline]
    pub(super) fn mean_ns(&self) -> Option<f64> {
        let is_known = self.answers >= ANSWERS_MIN;
        is_known.then(|| (self.took_ns - self.waits.unwrap_or(0.0) * self.ahead_ns).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    const HIT_NS: f64 = 5e6;
    const KEY_NS: f64 = 45e6;

    /// Learns from calls of replicas that have `waits` of the work ahead done first.
    fn learn(waits: f64, noise_ns: u32, answers: u32) -> Savings {
        let (mut savings, mut rng) = (Savings::default(), SplitMix64::new(1));
        for _ in 0..answers {
            let missing = rng.below(3);
            let ahead_ns = f64::from(rng.below(4)) * 20e6;
            let noise_ns = f64::from(rng.below(noise_ns.max(1)));
            let took_ns = HIT_NS + KEY_NS * f64::from(missing) + waits * ahead_ns + noise_ns;
            savings.on_answer(Lesson { missing, ahead_ns, took_ns, alone_ns: None });
        }
        savings
    }

    fn check(savings: Savings, waits: f64, part: f64) {
        let key_ns = savings.key_ns().expect("there was enough to learn");
        assert!((key_ns - KEY_NS).abs() < KEY_NS * part, "{savings:?}");
        assert!((savings.waits().expect("the same") - waits).abs() < part, "{savings:?}");
    }

    #[test]
    fn work_and_waits_are_told_apart() {
        for waits in [0.0, 0.5, 1.0] {
            let savings = learn(waits, 0, 1_000);
            check(savings, waits, 0.001);
            assert!((savings.call_ns(0).unwrap() - HIT_NS).abs() < 1e4, "{savings:?}");
            assert!((savings.call_ns(2).unwrap() - HIT_NS - 2.0 * KEY_NS).abs() < 1e4);
        }
    }

    #[test]
    fn what_chance_adds_changes_little() {
        for waits in [0.0, 0.5, 1.0] {
            check(learn(waits, 20_000_000, 4_000), waits, 0.1);
        }
    }

    #[test]
    fn a_replica_that_says_on_what_it_worked_alone_does_one_after_the_other() {
        let mut savings = Savings::default();
        for call in 0..100_u32 {
            let alone_ns = HIT_NS + KEY_NS * f64::from(call % 2);
            let lesson = Lesson {
                missing: call % 2,
                ahead_ns: 0.0,
                took_ns: alone_ns * 9.0,
                alone_ns: Some(alone_ns),
            };
            savings.on_answer(lesson);
        }
        check(savings, 1.0, 0.001);
    }

    #[test]
    fn too_few_answers_and_those_that_are_all_alike_say_nothing() {
        let lesson = Lesson { missing: 0, ahead_ns: 0.0, took_ns: 5e6, alone_ns: None };
        let mut savings = Savings::default();
        (0..1_000).for_each(|_| savings.on_answer(lesson));
        assert_eq!((None, None), (savings.key_ns(), savings.waits()));
        let savings = learn(1.0, 0, ANSWERS_MIN - 1);
        assert_eq!((None, None, None), (savings.key_ns(), savings.waits(), savings.call_ns(0)));
    }

    #[test]
    fn what_was_learnt_is_kept_while_all_calls_hit() {
        let mut savings = learn(0.0, 0, 1_000);
        for call in 0..100_000_u32 {
            let took_ns = HIT_NS + f64::from(call % 7);
            savings.on_answer(Lesson { missing: 0, ahead_ns: 0.0, took_ns, alone_ns: None });
        }
        check(savings, 0.0, 0.01);
    }

    #[test]
    fn keys_that_save_nothing_are_worth_nothing() {
        let mut savings = Savings::default();
        for call in 0..500_u32 {
            let (missing, took_ns) = (call % 2, 7e6 - f64::from(call % 2));
            savings.on_answer(Lesson { missing, ahead_ns: 0.0, took_ns, alone_ns: None });
        }
        assert_eq!(Some(0.0), savings.key_ns());
    }
}
