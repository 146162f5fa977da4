//! Decides when an external policy, which may hang, is asked: not for a while once it delays calls.
//!
//! Each call that asks waits for its answer, so a policy that does not answer costs every call that
//! time. After [`LATE_MAX`] missing answers in a row, it is not asked for a round; then one call
//! asks again, while the others still do not. Each round is twice as long as the one before. Any
//! answer in time ends the rounds.

use crate::backoff::{Backoff, BackoffRule};
use crate::time::Nanos;

/// The number of missing answers in a row. Arbitrary: one pause of the process may delay a few
/// calls that came together, and the first round is short.
const LATE_MAX: u32 = 3;
/// Arbitrary: the call that asks at a round's end waits in vain, so at worst one does every 8 s,
/// and a policy that was only delayed is back within the second.
const ROUNDS: BackoffRule =
    BackoffRule { initial: Nanos::from_millis(500), multiplier: 2.0, max: Nanos::from_secs(8) };

/// The history of the policy's answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Adviser {
    late_in_row: u32,
    /// Begun by the last of the row.
    rounds: Backoff,
    is_probed: bool,
}

/// How a call asks; the end of each is recorded once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Like every call.
    AsUsual,
    /// To find out whether the policy answers again.
    Probe,
}

/// The result of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// An answer in time, with any content.
    Answer,
    /// No answer, for as long as a call waits.
    Nothing,
    /// The question was rejected: too many are waiting there.
    TurnedAway,
    /// The call left before an answer came.
    Unknown,
}

impl Adviser {
    /// How a call that comes now asks; `None`: it does not ask.
    pub fn ask(&mut self, now: Nanos) -> Option<Asked> {
        if self.late_in_row < LATE_MAX {
            return Some(Asked::AsUsual);
        }
        let is_resting = self.rounds.until().is_some_and(|until| now < until);
        if is_resting || self.is_probed {
            return None;
        }
        self.is_probed = true;
        Some(Asked::Probe)
    }

    /// The call has stopped waiting for the answer.
    pub fn on_heard(&mut self, asked: Asked, heard: Heard, now: Nanos) {
        match (asked, heard) {
            (_, Heard::Answer) => *self = Self::default(),
            (Asked::AsUsual, Heard::Nothing) => self.on_late(now),
            // Earlier questions still fill the queue, so it answers none of them.
            (Asked::Probe, Heard::Nothing | Heard::TurnedAway) => {
                self.is_probed = false;
                self.rounds.on_passed();
                self.rounds.on_failure(ROUNDS, now);
            }
            // The next call probes.
            (Asked::Probe, Heard::Unknown) => self.is_probed = false,
            (Asked::AsUsual, Heard::TurnedAway | Heard::Unknown) => {}
        }
    }

    fn on_late(&mut self, now: Nanos) {
        self.late_in_row = self.late_in_row.saturating_add(1);
        // Later ones were asked before the round began, and prove nothing new.
        if self.late_in_row == LATE_MAX {
            self.rounds.on_failure(ROUNDS, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a call waits for an answer.
    const WAIT: Nanos = Nanos::from_millis(100);

    /// A call every 10 ms, none of which is answered; returns how many asked as usual, and when the
    /// others did.
    fn calls_in_vain(adviser: &mut Adviser, millis: u64) -> (u32, Vec<u64>) {
        let (mut usual, mut probes, mut open) = (0, Vec::new(), Vec::new());
        for at in (0..millis).step_by(10) {
            let now = Nanos::from_millis(at);
            open.retain(|(asked, until)| {
                if *until <= now {
                    adviser.on_heard(*asked, Heard::Nothing, now);
                }
                *until > now
            });
            let Some(asked) = adviser.ask(now) else { continue };
            match asked {
                Asked::AsUsual => usual += 1,
                Asked::Probe => probes.push(at),
            }
            open.push((asked, now.saturating_add(WAIT)));
        }
        (usual, probes)
    }

    fn silent() -> Adviser {
        let mut adviser = Adviser::default();
        for _ in 0..LATE_MAX {
            assert_eq!(Some(Asked::AsUsual), adviser.ask(Nanos::ZERO));
            adviser.on_heard(Asked::AsUsual, Heard::Nothing, Nanos::ZERO);
        }
        adviser
    }

    #[test]
    fn one_that_hangs_is_asked_by_one_call_a_round_which_doubles() {
        let (usual, probes) = calls_in_vain(&mut Adviser::default(), 40_000);
        // Those that came in the time of the first answer, and of two more.
        assert_eq!(12, usual);
        // Each waits its 100 ms before the next round begins.
        assert_eq!(vec![620, 1_720, 3_820, 7_920, 16_020, 24_120, 32_220], probes);
    }

    #[test]
    fn an_answer_in_time_ends_it() {
        let mut adviser = silent();
        assert_eq!(None, adviser.ask(Nanos::from_millis(499)));
        let now = Nanos::from_millis(500);
        assert_eq!(Some(Asked::Probe), adviser.ask(now));
        assert_eq!(None, adviser.ask(now));
        adviser.on_heard(Asked::Probe, Heard::Answer, now);
        assert_eq!(Some(Asked::AsUsual), adviser.ask(now));
        assert_eq!(Some(Asked::AsUsual), adviser.ask(now));
    }

    #[test]
    fn late_answers_count_in_a_row_only() {
        let mut adviser = Adviser::default();
        for heard in [Heard::Nothing, Heard::Nothing, Heard::Answer].repeat(5) {
            assert_eq!(Some(Asked::AsUsual), adviser.ask(Nanos::ZERO));
            adviser.on_heard(Asked::AsUsual, heard, Nanos::ZERO);
        }
    }

    #[test]
    fn calls_that_leave_and_calls_turned_away_say_nothing_of_it() {
        let mut adviser = Adviser::default();
        for heard in [Heard::Unknown, Heard::TurnedAway].repeat(5) {
            assert_eq!(Some(Asked::AsUsual), adviser.ask(Nanos::ZERO));
            adviser.on_heard(Asked::AsUsual, heard, Nanos::ZERO);
        }
    }

    #[test]
    fn a_probe_that_leaves_makes_room_for_the_next_and_one_turned_away_begins_a_round() {
        let mut adviser = silent();
        let now = Nanos::from_millis(500);
        assert_eq!(Some(Asked::Probe), adviser.ask(now));
        adviser.on_heard(Asked::Probe, Heard::Unknown, now);
        assert_eq!(Some(Asked::Probe), adviser.ask(now));
        adviser.on_heard(Asked::Probe, Heard::TurnedAway, now);
        assert_eq!(None, adviser.ask(now.saturating_add(Nanos::from_millis(999))));
        assert_eq!(Some(Asked::Probe), adviser.ask(now.saturating_add(Nanos::from_secs(1))));
    }
}
