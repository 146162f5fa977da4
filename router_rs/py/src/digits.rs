//! A search that Python has no fast way for.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

/// See the stub.
#[pyfunction]
pub(crate) fn has_digits(text: PyBackedBytes, count: usize) -> bool {
    has_run(&text, count)
}

/// Whether there are `count` digits in a row.
///
/// Looks at every `count`-th byte first: a run that long covers one of them (the idea of Boyer and
/// Moore, "A fast string searching algorithm", 1977).
fn has_run(text: &[u8], count: usize) -> bool {
    if count == 0 {
        return true;
    }
    let is_digit = |byte: &&u8| byte.is_ascii_digit();
    let mut at = count - 1;
    while let Some(byte) = text.get(at) {
        if byte.is_ascii_digit() {
            // The bytes before `at - count` belong to a run that was too short, or to none.
            let before = text[..at].iter().rev().take(count - 1).take_while(is_digit).count();
            let after = text[at..].iter().take(count).take_while(is_digit).count();
            if before + after >= count {
                return true;
            }
        }
        at += count;
    }
    false
}

/// See the stub.
#[pyfunction]
pub(crate) fn may_have_infinity(text: PyBackedBytes) -> bool {
    has_long_exponent(&text) || has_run(&text, MANTISSA_DIGITS_MIN)
}

/// A float holds numbers of up to 309 digits: one beyond has an exponent of three digits, or so many
/// digits before it.
const MANTISSA_DIGITS_MIN: usize = 309 - 99;

/// Whether behind a digit there is an exponent with three digits, and no minus.
fn has_long_exponent(text: &[u8]) -> bool {
    let letters = text.iter().enumerate().filter(|(_, byte)| matches!(byte, b'e' | b'E'));
    letters.map(|(at, _)| text.split_at(at)).any(|(before, behind)| {
        let exponent = behind[1..].strip_prefix(b"+").unwrap_or(&behind[1..]);
        before.last().is_some_and(u8::is_ascii_digit)
            && exponent.len() >= 3
            && exponent[..3].iter().all(u8::is_ascii_digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_wherever_they_begin_and_end() {
        for (text, count, expected) in [
            ("", 1, false),
            ("", 0, true),
            ("7", 1, true),
            ("a", 1, false),
            ("123", 4, false),
            ("1234", 4, true),
            ("a1234", 4, true),
            ("123a123a123", 4, false),
            ("123a123a1234", 4, true),
            ("1.2345", 4, true),
            ("aaa12345aaa", 5, true),
            ("aaa1234aaaa", 5, false),
        ] {
            assert_eq!(expected, has_run(text.as_bytes(), count), "{text:?}, {count}");
        }
    }

    #[test]
    fn exponents_of_three_digits_are_found_behind_numbers() {
        for (text, expected) in [
            ("", false),
            ("e999", false),
            ("1e", false),
            ("1e99", false),
            ("1e999", true),
            ("1.5E+999", true),
            ("1e-999", false),
            ("name999", false),
            ("[1, 2e5, 3e308]", true),
            ("1e+99,", false),
        ] {
            assert_eq!(expected, has_long_exponent(text.as_bytes()), "{text:?}");
        }
    }

    #[test]
    fn every_place_of_a_run_is_as_good() {
        for length in 0..60_usize {
            for run in 1..=9 {
                for begin in 0..=length.saturating_sub(run) {
                    let is_in = |at: &usize| (begin..begin + run).contains(at);
                    let byte = |at: usize| if is_in(&at) { b'5' } else { b'.' };
                    let text: Vec<u8> = (0..length).map(byte).collect();
                    let longest = run.min(length);
                    for count in 1..=10 {
                        assert_eq!(longest >= count, has_run(&text, count), "{text:?}, {count}");
                    }
                }
            }
        }
    }
}
