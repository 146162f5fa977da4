//! What calls cost, in a unit of their deployment: tokens, bytes, pixels.
//!
//! Replicas that step many requests at once ([`CostLoad`]) say what they hold; an estimate of a new
//! call comes from its client, or else from what its replicas have said of calls like it.

use crate::rng::{hash, mix};
use crate::time::Nanos;

/// An amount in the unit of a deployment: finite and not negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Cost(f32);

// A cost is never NaN.
impl Eq for Cost {}

impl Cost {
    /// Nothing.
    pub const ZERO: Self = Self(0.0);
    /// What a call costs of which nothing is known.
    pub const ONE: Self = Self(1.0);
    /// A larger amount is a mistake, or an attempt to keep a replica free. Arbitrary: bytes of a
    /// terabyte.
    pub const AMOUNT_MAX: f64 = 1e12;

    /// `None` for what is no amount: negative, above [`Cost::AMOUNT_MAX`] or not a number.
    pub fn new(amount: f64) -> Option<Self> {
        (0.0..=Self::AMOUNT_MAX).contains(&amount).then_some(Self(amount as f32))
    }

    /// Reads a decimal number, as clients and replicas write it. `None`: it is not one, or see
    /// [`Cost::new`].
    pub fn parse(text: &str) -> Option<Self> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        text.parse().ok().filter(|_| is_plain).and_then(Self::new)
    }

    /// The amount.
    #[inline]
    pub fn amount(self) -> f64 {
        f64::from(self.0)
    }
}

/// The requests of a replica between two of its steps, by what they cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostLoad {
    /// Counts the states that the replica has reported, from 1: a report of a lower or of the same
    /// number brings nothing new.
    pub number: u32,
    /// What all states may cost together; 0: they are not bounded.
    pub budget: Cost,
    /// What the requests that have a state take of it.
    pub running: Cost,
    /// What those without one will take.
    pub waiting: Cost,
    /// How many requests these are, with a state and without one.
    pub calls: u32,
    /// The most that have a state at once.
    pub places: u32,
    /// The expected time of a step; 0: unknown.
    pub step: Nanos,
    /// When a new request of the mean cost would get a state, from then; 0: at once, or unknown.
    pub wait: Nanos,
    /// What the call that brings this has cost at most; 0: no call brings it, or that is unknown.
    pub own: Cost,
}

impl CostLoad {
    /// The same, with so many calls that have come since.
    ///
    /// Nothing else is known of them before the next step: they are taken to cost as much as the
    /// others in the mean. Without them, routers would send the next calls to a replica that has just
    /// got some.
    #[must_use]
    pub fn with_arrivals(self, arrivals: u32) -> Self {
        let held = self.running.amount() + self.waiting.amount();
        let mean = held / f64::from(self.calls.max(1));
        let waiting = Cost::new(mean.mul_add(arrivals.into(), self.waiting.amount()));
        let calls = self.calls.saturating_add(arrivals);
        Self { waiting: waiting.unwrap_or(self.waiting), calls, ..self }
    }
}

/// Places for what is learnt of methods and sizes, 16 KiB in all. Calls of different kinds share
/// one by chance, where there are hundreds of kinds.
const PLACES: usize = 1_024;
/// The last so many calls of a kind make its mean. Arbitrary.
const MEMORY: f32 = 32.0;
/// So many calls of a size say more than all calls of their method. Arbitrary.
const SIZE_CALLS_MIN: f32 = 2.0;

/// Mean costs by method and by the size of requests, in a table of fixed size.
#[derive(Debug, Default)]
pub(crate) struct Estimates {
    /// Empty until a replica has said what a call has cost.
    means: Vec<Mean>,
    all: Mean,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    /// Calls, up to [`MEMORY`].
    calls: f32,
    cost: f32,
    /// Of the kind that has the place; another one begins anew.
    tag: u32,
}

/// The kind of a call: its method, and how many bits its length has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kind {
    method: u64,
    sized: u64,
}

impl Kind {
    pub(crate) fn of(method: &str, request_bytes: u64) -> Self {
        let method = hash(method);
        let bits = u64::from(u64::BITS - request_bytes.leading_zeros());
        Self { method, sized: mix(method.wrapping_add(bits + 1)) }
    }
}

impl Estimates {
    /// What a call of this kind will cost; `None`: no call has said what it cost.
    pub(crate) fn of(&self, kind: Kind) -> Option<Cost> {
        let of_size = self.mean(kind.sized).filter(|mean| mean.calls >= SIZE_CALLS_MIN);
        let known = of_size.or_else(|| self.mean(kind.method)).unwrap_or(self.all);
        (known.calls > 0.0).then_some(Cost(known.cost))
    }

    /// A call of this kind has cost so much.
    pub(crate) fn learn(&mut self, kind: Kind, cost: Cost) {
        if self.means.is_empty() {
            self.means.resize(PLACES, Mean::default());
        }
        self.all.add(cost);
        for key in [kind.sized, kind.method] {
            let mean = &mut self.means[place(key)];
            if mean.tag != tag(key) {
                *mean = Mean { tag: tag(key), ..Mean::default() };
            }
            mean.add(cost);
        }
    }

    fn mean(&self, key: u64) -> Option<Mean> {
        self.means.get(place(key)).copied().filter(|mean| mean.tag == tag(key))
    }
}

fn place(key: u64) -> usize {
    key as usize % PLACES
}

fn tag(key: u64) -> u32 {
    (key >> 32) as u32
}

impl Mean {
    fn add(&mut self, cost: Cost) {
        self.calls = (self.calls + 1.0).min(MEMORY);
        self.cost += (cost.0 - self.cost) / self.calls;
    }
}

/// Whether a policy chooses by what replicas have to do, in the costs of their requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostChoice {
    /// Never: not by load at all.
    Never,
    /// The least of all replicas with room.
    OfAll,
    /// The lesser of two that are drawn at random.
    OfTwo,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(amount: f64) -> Cost {
        Cost::new(amount).expect("an amount")
    }

    #[test]
    fn an_amount_is_a_plain_number_within_bounds() {
        for (text, amount) in [("0", 0.0), ("1500", 1500.0), ("0.5", 0.5), ("1000000000000", 1e12)]
        {
            assert_eq!(Some(cost(amount)), Cost::parse(text), "{text}");
        }
        for text in ["", "-1", "+1", "1e3", "nan", "inf", "1,5", " 1", "1000000100000", "."] {
            assert_eq!(None, Cost::parse(text), "{text}");
        }
    }

    #[test]
    fn an_estimate_is_that_of_the_size_else_of_the_method_else_of_all() {
        let mut estimates = Estimates::default();
        let (short, long) = (Kind::of("/m", 100), Kind::of("/m", 100_000));
        assert_eq!(None, estimates.of(short));
        for _ in 0..4 {
            estimates.learn(short, cost(10.0));
            estimates.learn(long, cost(1_000.0));
        }
        assert_eq!(Some(cost(10.0)), estimates.of(Kind::of("/m", 127)));
        assert_eq!(Some(cost(1_000.0)), estimates.of(long));
        let of_method = estimates.of(Kind::of("/m", 3)).expect("the method is known").amount();
        assert!((500.0..510.0).contains(&of_method), "{of_method}");
        assert_eq!(Some(cost(of_method)), estimates.of(Kind::of("/other", 3)));
    }

    #[test]
    fn a_mean_follows_what_calls_cost_of_late() {
        let mut estimates = Estimates::default();
        let kind = Kind::of("/m", 1);
        (0..1_000).for_each(|_| estimates.learn(kind, cost(1.0)));
        (0..100).for_each(|_| estimates.learn(kind, cost(100.0)));
        let amount = estimates.of(kind).expect("it is known").amount();
        assert!(amount > 90.0, "{amount}");
    }
}
