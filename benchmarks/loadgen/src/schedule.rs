//! When the calls of an open loop start. Pure: seeded, no clock.

use std::fmt;

/// How arrivals are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Arrival {
    /// Equal gaps.
    Fixed,
    /// Exponential gaps: independent callers.
    Poisson,
}

/// An endless series of start times in nanoseconds since the beginning of the run, ascending.
#[derive(Clone)]
pub struct Schedule {
    arrival: Arrival,
    gap_ns: f64,
    next_ns: f64,
    random: SplitMix64,
}

impl fmt::Debug for Schedule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Schedule")
            .field("arrival", &self.arrival)
            .field("gap_ns", &self.gap_ns)
            .field("next_ns", &self.next_ns)
            .finish_non_exhaustive()
    }
}

impl Schedule {
    /// `rate_per_s` must be finite and above zero; the same seed gives the same series.
    pub fn new(arrival: Arrival, rate_per_s: f64, seed: u64) -> Self {
        assert!(rate_per_s.is_finite() && rate_per_s > 0.0, "rate must be above 0: {rate_per_s}");
        Self { arrival, gap_ns: 1e9 / rate_per_s, next_ns: 0.0, random: SplitMix64(seed) }
    }
}

impl Iterator for Schedule {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let start_ns = self.next_ns.round() as u64;
        // The sum is kept in floating point, so that the rate does not drift by rounded gaps.
        self.next_ns += match self.arrival {
            Arrival::Fixed => self.gap_ns,
            Arrival::Poisson => -self.random.unit_open().ln() * self.gap_ns,
        };
        Some(start_ns)
    }
}

/// `SplitMix64` (Steele, Lea, Flood 2014): small, seedable, good enough to space arrivals.
#[derive(Clone)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in (0, 1]: its logarithm is finite.
    fn unit_open(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_arrivals_keep_the_rate_without_drift() {
        let starts: Vec<u64> = Schedule::new(Arrival::Fixed, 3.0, 0).take(7).collect();
        assert_eq!(&[0, 333_333_333, 666_666_667][..], &starts[..3]);
        assert_eq!(2_000_000_000, starts[6]);
    }

    #[test]
    fn poisson_arrivals_have_the_mean_and_the_spread_of_the_exponential_law() {
        let count = 100_000;
        let starts: Vec<u64> =
            Schedule::new(Arrival::Poisson, 1_000.0, 7).take(count + 1).collect();
        let gaps: Vec<f64> = starts.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / count as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count as f64;
        // Mean and standard deviation are both 1 ms; the bounds are five standard errors wide.
        assert!((mean - 1e6).abs() < 16e3, "mean {mean}");
        assert!((variance.sqrt() - 1e6).abs() < 32e3, "deviation {}", variance.sqrt());
    }

    #[test]
    fn one_seed_gives_one_series() {
        let series =
            |seed| Schedule::new(Arrival::Poisson, 50.0, seed).take(20).collect::<Vec<_>>();
        assert_eq!(series(1), series(1));
        assert_ne!(series(1), series(2));
    }

    #[test]
    #[should_panic(expected = "rate must be above 0")]
    fn a_rate_of_zero_is_refused() {
        let _ = Schedule::new(Arrival::Fixed, 0.0, 0);
    }
}
