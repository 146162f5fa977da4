//! The sampler's generator: small, seeded, the same on every machine.

/// `SplitMix64`: a 64-bit counter behind a mixing function.
///
/// Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014;
/// the constants are those of Vigna's public-domain `splitmix64.c`. Good enough to sample replicas,
/// not for secrets.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// A generator whose whole output is determined by `seed`; every seed is a good one.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 uniform bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// A number in `0..bound`; 0 when `bound` is 0.
    ///
    /// Multiply-shift (Lemire 2019) without the rejection step: the bias is below
    /// `bound / 2^32`, which no fleet can notice.
    #[inline]
    pub fn below(&mut self, bound: u32) -> u32 {
        scale(self.next_u64() as u32, bound)
    }

    /// A number from 0 to below 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Two distinct numbers in `0..bound`, each ordered pair equally likely, from one draw.
    ///
    /// `bound` must be at least 2.
    #[inline]
    pub fn distinct_pair_below(&mut self, bound: u32) -> (u32, u32) {
        debug_assert!(bound >= 2, "a pair needs two numbers, the bound is {bound}");
        let bits = self.next_u64();
        let first = scale(bits as u32, bound);
        let second = scale((bits >> 32) as u32, bound - 1);
        // The second is drawn from the numbers without the first; step over the gap.
        (first, second + u32::from(second >= first))
    }
}

/// Spreads the bits of `value` over all 64; different values give different results.
#[inline]
pub(crate) const fn mix(value: u64) -> u64 {
    let mut mixed = value;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// A number for `text` that is not 0; 0 for the empty text.
///
/// FNV-1a (Fowler, Noll and Vo; RFC 9923) followed by [`mix`], so that similar texts get very
/// different numbers. Not for tables with keys from outside.
pub(crate) fn hash(text: &str) -> u64 {
    if text.is_empty() { 0 } else { cache_key(text.as_bytes()) }
}

/// The key of a cache entry that is known by these bytes; it is not 0.
pub fn cache_key(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    mix(bytes.iter().copied().fold(0xCBF2_9CE4_8422_2325, step)).max(1)
}

#[inline]
fn scale(bits: u32, bound: u32) -> u32 {
    ((u64::from(bits) * u64::from(bound)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_matches_the_reference_implementation() {
        // First outputs of splitmix64.c for seed 1234567.
        let mut rng = SplitMix64::new(1_234_567);
        let outputs = [rng.next_u64(), rng.next_u64(), rng.next_u64()];
        assert_eq!(
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423],
            outputs
        );
    }

    #[test]
    fn below_stays_below_and_reaches_every_number() {
        let mut rng = SplitMix64::new(7);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[rng.below(5) as usize] = true;
        }
        assert_eq!([true; 5], seen);
        assert_eq!(0, rng.below(0));
    }

    #[test]
    fn pairs_are_distinct_and_uniform() {
        for bound in 2..6_u32 {
            let mut rng = SplitMix64::new(u64::from(bound));
            let pairs = (bound * (bound - 1)) as usize;
            let mut counts = vec![0_u32; (bound * bound) as usize];
            let draws_per_pair = 2_000;
            for _ in 0..pairs * draws_per_pair {
                let (first, second) = rng.distinct_pair_below(bound);
                assert_ne!(first, second);
                counts[(first * bound + second) as usize] += 1;
            }
            let seen: Vec<u32> = counts.into_iter().filter(|count| *count > 0).collect();
            assert_eq!(pairs, seen.len());
            // Six standard deviations of a binomial with mean 2 000.
            assert!(seen.iter().all(|count| count.abs_diff(2_000) < 270), "{seen:?}");
        }
    }
}
