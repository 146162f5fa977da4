//! Numbers in JSON, also as strings.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, Error, Visitor};

/// Reads the next number.
pub(super) fn number<'de, T: Number, D: Deserializer<'de>>(json: D) -> Result<T, D::Error> {
    json.deserialize_any(NumberVisitor(PhantomData))
}

/// A type into which a number in JSON, or its string form, can be converted.
///
/// # Errors
/// A sentence with the reason.
pub(super) trait Number: Sized {
    const EXPECTED: &'static str;
    fn of_signed(value: i64) -> Result<Self, String>;
    fn of_unsigned(value: u64) -> Result<Self, String>;
    fn of_float(value: f64) -> Result<Self, String>;
    fn of_text(text: &str) -> Result<Self, String>;
}

const OUT_OF_RANGE: &str = "number out of range";
const NO_WHOLE: &str = "expected integer value";

macro_rules! whole_numbers {
    ($($number:ty, $expected:literal;)*) => {$(
        impl Number for $number {
            const EXPECTED: &'static str = $expected;

            fn of_signed(value: i64) -> Result<Self, String> {
                value.try_into().map_err(|_| OUT_OF_RANGE.into())
            }

            fn of_unsigned(value: u64) -> Result<Self, String> {
                value.try_into().map_err(|_| OUT_OF_RANGE.into())
            }

            fn of_float(value: f64) -> Result<Self, String> {
                if value.fract() != 0.0 {
                    return Err(NO_WHOLE.into());
                }
                // A number that saturates here is too large for all of them.
                (value as i128).try_into().map_err(|_| OUT_OF_RANGE.into())
            }

            fn of_text(text: &str) -> Result<Self, String> {
                let plain = text.parse();
                plain.or_else(|_| whole(text)?.try_into().map_err(|_| OUT_OF_RANGE.into()))
            }
        }
    )*};
}

whole_numbers! {
    i32, "a 32-bit signed integer";
    i64, "a 64-bit signed integer or decimal string";
    u32, "a 32-bit unsigned integer or decimal string";
    u64, "a 64-bit unsigned integer or decimal string";
}

/// A whole number with a fraction of zeros or an exponent, exactly.
fn whole(text: &str) -> Result<i128, String> {
    let no_number = || format!("{text:?} is no number");
    let (is_negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (before, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [before, behind].concat();
    let exponent_digits = exponent.trim_start_matches(['+', '-']);
    let is_number = is_digits(&digits)
        && is_digits(exponent_digits)
        && exponent.len() - exponent_digits.len() <= 1;
    if !is_number {
        return Err(no_number());
    }
    let significant = digits.trim_end_matches('0');
    if significant.trim_start_matches('0').is_empty() {
        return Ok(0);
    }
    // An exponent too large for `i128` is out of every range.
    let exponent: i128 = exponent.parse().map_err(|_| OUT_OF_RANGE)?;
    let zeros = (digits.len() - significant.len()) as i128 - behind.len() as i128;
    match zeros.saturating_add(exponent) {
        ..0 => Err(NO_WHOLE.into()),
        // More digits than any of these numbers has.
        zeros @ 0..20 => {
            let value: i128 = significant.parse().map_err(|_| OUT_OF_RANGE)?;
            let value = value.checked_mul(10_i128.pow(zeros as u32)).ok_or(OUT_OF_RANGE)?;
            Ok(if is_negative { -value } else { value })
        }
        _ => Err(OUT_OF_RANGE.into()),
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

macro_rules! floating_numbers {
    ($($number:ident, $expected:literal;)*) => {$(
        impl Number for $number {
            const EXPECTED: &'static str = $expected;

            fn of_signed(value: i64) -> Result<Self, String> {
                Ok(value as $number)
            }

            fn of_unsigned(value: u64) -> Result<Self, String> {
                Ok(value as $number)
            }

            fn of_float(value: f64) -> Result<Self, String> {
                let rounded = value as $number;
                if rounded.is_infinite() {
                    return Err("float value out of range".into());
                }
                Ok(rounded)
            }

            fn of_text(text: &str) -> Result<Self, String> {
                match text {
                    "Infinity" => Ok($number::INFINITY),
                    "-Infinity" => Ok($number::NEG_INFINITY),
                    "NaN" => Ok($number::NAN),
                    _ => Self::of_float(float(text)?),
                }
            }
        }
    )*};
}

floating_numbers! {
    f32, "a 32-bit floating point value";
    f64, "a 64-bit floating point value";
}

/// A number in decimal digits; Rust's own parser accepts words too.
fn float(text: &str) -> Result<f64, String> {
    let is_word =
        text.bytes().any(|byte| byte.is_ascii_alphabetic() && !matches!(byte, b'e' | b'E'));
    let parsed = text.parse().ok().filter(|_| !is_word);
    parsed.ok_or_else(|| format!("{text:?} is no number"))
}

struct NumberVisitor<T>(PhantomData<T>);

impl<T: Number> Visitor<'_> for NumberVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(T::EXPECTED)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        T::of_signed(value).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
        T::of_unsigned(value).map_err(E::custom)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
        T::of_float(value).map_err(E::custom)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::of_text(text).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_whole_numbers_are_exact() {
        for (text, expected) in [
            ("0", 0),
            ("-0", 0),
            ("0e99999", 0),
            ("0.000", 0),
            ("1e18", 1_000_000_000_000_000_000),
            ("9223372036854775807.000", i64::MAX),
            ("-9.223372036854775808E+18", i64::MIN),
            ("90071992547409930e-1", 9_007_199_254_740_993),
            ("1200e-2", 12),
            ("007", 7),
        ] {
            assert_eq!(Ok(expected), i64::of_text(text), "{text}");
        }
        assert_eq!(Ok(u64::MAX), u64::of_text("1.8446744073709551615e19"));
        assert_eq!(Ok(100), i32::of_text("1e2"));
    }

    #[test]
    fn what_is_no_whole_number_of_the_range_is_refused() {
        for text in [
            "",
            "-",
            "e1",
            "1e",
            "1e+",
            "1e+-1",
            ".",
            "1.5",
            "1e-1",
            "9.223372036854775808e18",
            "1e99",
            "1e99999999999999999999999999999999999999999",
            " 1",
            "1 ",
            "1_0",
            "0x1",
            "1e1.0",
            "é",
            "100000000000000000000000000000000000000000000",
            "NaN",
            "٣",
        ] {
            assert!(i64::of_text(text).is_err(), "{text}");
        }
        assert!(u32::of_text("-1").is_err() && u32::of_text("4294967296.0").is_err());
        for float in [9_223_372_036_854_775_808.0, -9_223_372_036_854_777_856.0, 0.5, 1e300] {
            assert!(i64::of_float(float).is_err(), "{float}");
        }
        assert_eq!(Ok(i64::MIN), i64::of_float(-9_223_372_036_854_775_808.0));
    }

    #[test]
    fn floats_have_three_words_and_an_end() {
        assert_eq!(Ok(f32::NEG_INFINITY), f32::of_text("-Infinity"));
        assert_eq!(Ok(1e-5), f64::of_text("1E-5"));
        assert!(f64::of_text("NaN").is_ok_and(f64::is_nan));
        for text in
            ["inf", "nan", "infinity", "+Infinity", "1e999", "-1e999", "", "1d", " 1", "0x1"]
        {
            assert!(f64::of_text(text).is_err(), "{text}");
        }
        assert!(f32::of_text("1e39").is_err());
        // The largest one in its decimal form: as a double it is a bit larger.
        assert_eq!(Ok(f32::MAX), f32::of_text("3.4028235e+38"));
    }
}
