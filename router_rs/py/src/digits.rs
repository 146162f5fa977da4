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
