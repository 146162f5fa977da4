//! Time, which callers pass in.

use std::fmt;

/// Nanoseconds: a duration, or the time since a start chosen by the driver.
///
/// All arithmetic saturates, so a far deadline is `Nanos::MAX` and never wraps into the past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The start of time.
    pub const ZERO: Self = Self(0);
    /// The end of time, about 584 years after the start.
    pub const MAX: Self = Self(u64::MAX);

    /// `micros` microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// `millis` milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// `secs` seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// `self + other`, at most [`Nanos::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// `self - other`, at least [`Nanos::ZERO`].
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// `self × factor`, at most [`Nanos::MAX`].
    #[must_use]
    pub const fn saturating_mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }

    /// `self + other`, or `None` if it exceeds [`Nanos::MAX`].
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// `self - other`, or `None` if `other` is later.
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(difference) => Some(Self(difference)),
            None => None,
        }
    }

    /// Whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }
}

impl fmt::Display for Nanos {
    /// Milliseconds, with as many decimals as the value needs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = self.0 % 1_000_000;
        if fraction == 0 {
            return write!(f, "{}ms", self.as_millis());
        }
        let digits = format!("{fraction:06}");
        write!(f, "{}.{}ms", self.as_millis(), digits.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constructors_agree_on_the_unit_and_saturate() {
        assert_eq!(Nanos(1_500_000), Nanos::from_micros(1_500));
        assert_eq!(Nanos::from_secs(2), Nanos::from_millis(2_000));
        assert_eq!(Nanos::MAX, Nanos::from_secs(u64::MAX));
    }

    #[test]
    fn arithmetic_never_wraps() {
        assert_eq!(Nanos::MAX, Nanos::MAX.saturating_add(Nanos(1)));
        assert_eq!(Nanos::ZERO, Nanos(1).saturating_sub(Nanos(2)));
        assert_eq!(Nanos::MAX, Nanos(u64::MAX / 2).saturating_mul(3));
        assert_eq!(None, Nanos::MAX.checked_add(Nanos(1)));
        assert_eq!(None, Nanos(1).checked_sub(Nanos(2)));
        assert_eq!(Some(Nanos(1)), Nanos(3).checked_sub(Nanos(2)));
    }

    #[test]
    fn display_is_in_milliseconds() {
        fn check(expected: &str, nanos: u64) {
            assert_eq!(expected, Nanos(nanos).to_string());
        }
        check("0ms", 0);
        check("25ms", 25_000_000);
        check("0.05ms", 50_000);
        check("1.000001ms", 1_000_001);
    }
}
