//! The timeouts of clients: gRPC's `grpc-timeout`, at most eight digits and a unit, and a number of
//! seconds for all others.

use std::fmt::Write;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Code, Status};
use crate::names::spelled;

pub const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The timeout header for clients of other protocols than gRPC, in seconds.
const REQUEST_TIMEOUT: HeaderName = HeaderName::from_static("x-request-timeout-seconds");

/// The timeout of a request, according to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientTimeout {
    Unsaid,
    Never,
    After(Duration),
}

/// Deadlines further away than this (about 31 years) are treated as this, so that clock
/// arithmetic cannot overflow. Arbitrary.
const TIMEOUT_MAX: Duration = Duration::from_secs(1_000_000_000);

/// Eight digits are all that the specification allows.
const DIGITS_MAX: usize = 8;

/// Parses a header value; `None` when it is malformed.
pub fn parse_timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > DIGITS_MAX || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    let timeout = match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    };
    Some(timeout.min(TIMEOUT_MAX))
}

/// Reads a request's `grpc-timeout`, `None` when it has none.
///
/// # Errors
/// `INTERNAL` for a malformed one, saying what to write.
pub fn read_timeout(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(value) = headers.get(GRPC_TIMEOUT) else { return Ok(None) };
    parse_timeout(value.as_bytes()).map(Some).ok_or_else(|| {
        let text = "malformed grpc-timeout, write at most eight digits and one of H M S m u n";
        Status::new(Code::Internal, text)
    })
}

/// Parses a request's `x-request-timeout-seconds`. 0 or less, and values too large for a duration,
/// mean no limit.
///
/// # Errors
/// `INVALID_ARGUMENT` for a malformed or infinite number: 0 means no limit.
pub fn read_timeout_seconds(headers: &HeaderMap) -> Result<ClientTimeout, Status> {
    let Some(value) = spelled(headers, &REQUEST_TIMEOUT) else { return Ok(ClientTimeout::Unsaid) };
    let seconds = value.to_str().ok().and_then(|text| text.trim().parse::<f64>().ok());
    match seconds.filter(|seconds| seconds.is_finite()) {
        Some(seconds) if seconds <= 0.0 => Ok(ClientTimeout::Never),
        Some(seconds) => {
            Ok(Duration::try_from_secs_f64(seconds)
                .map_or(ClientTimeout::Never, ClientTimeout::After))
        }
        None => {
            let text = format!(
                "{REQUEST_TIMEOUT}={value:?} is not allowed; allowed: a finite number of seconds, \
                 0 for no limit"
            );
            Err(Status::new(Code::InvalidArgument, text))
        }
    }
}

/// Writes a timeout in the finest unit that fits eight digits, rounded up so that rounding at a hop
/// never shortens it.
pub fn format_timeout(timeout: Duration) -> HeaderValue {
    const LIMIT: u128 = 99_999_999;
    let nanos = timeout.min(TIMEOUT_MAX).as_nanos();
    let units: [(u128, char); 5] =
        [(1, 'n'), (1_000, 'u'), (1_000_000, 'm'), (1_000_000_000, 'S'), (60_000_000_000, 'M')];
    let (number, unit) = units
        .iter()
        .map(|(size, unit)| (nanos.div_ceil(*size), *unit))
        .find(|(number, _)| *number <= LIMIT)
        .expect("invariant: TIMEOUT_MAX in minutes has eight digits");
    let mut text = TimeoutText::default();
    write!(text, "{number}{unit}").expect("invariant: eight digits and a unit fit");
    HeaderValue::from_bytes(&text.bytes[..text.length]).expect("invariant: digits are ASCII")
}

/// A stack buffer for `format_timeout`.
#[derive(Default)]
struct TimeoutText {
    bytes: [u8; DIGITS_MAX + 1],
    length: usize,
}

impl Write for TimeoutText {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.length + text.len();
        self.bytes
            .get_mut(self.length..end)
            .ok_or(std::fmt::Error)?
            .copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn well_formed_values_parse() {
        let cases = [
            ("1H", Duration::from_secs(3600)),
            ("2M", Duration::from_secs(120)),
            ("3S", Duration::from_secs(3)),
            ("4m", Duration::from_millis(4)),
            ("5u", Duration::from_micros(5)),
            ("6n", Duration::from_nanos(6)),
            ("0m", Duration::ZERO),
            ("99999999H", TIMEOUT_MAX),
        ];
        for (text, expected) in cases {
            assert_eq!(Some(expected), parse_timeout(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn malformed_values_are_refused() {
        for text in ["", "m", "1", "1x", "-1m", "1.5S", "123456789m", " 1m", "1m ", "+1S"] {
            assert_eq!(None, parse_timeout(text.as_bytes()), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn formatting_rounds_up_by_less_than_one_part_in_a_hundred_thousand(nanos in 1_u64..=u64::MAX / 64) {
            let timeout = Duration::from_nanos(nanos);
            let parsed = parse_timeout(format_timeout(timeout).as_bytes()).unwrap();
            prop_assert!(parsed >= timeout);
            let excess = parsed.as_nanos() - timeout.as_nanos();
            prop_assert!(excess <= u128::from(nanos) / 100_000 + 1);
        }
    }
}
