//! The W3C trace context (<https://www.w3.org/TR/trace-context/>): which trace a call belongs to.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Names the trace and the caller's span.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The vendor-specific part of the trace context.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// Properties that the caller propagates to all calls below it.
pub const BAGGAGE: HeaderName = HeaderName::from_static("baggage");

/// For version 00.
const TEXT_BYTES: usize = 55;
const SAMPLED: u8 = 1;

/// The id of a trace; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(u128);

/// The id of a span in a trace; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(u64);

/// The content of a `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    pub trace: TraceId,
    /// The caller's span.
    pub span: SpanId,
    /// Whether the caller records the trace.
    pub is_sampled: bool,
}

// === impl TraceId, SpanId ===

impl TraceId {
    /// A trace with these random bits.
    pub fn of(high: u64, low: u64) -> Self {
        let number = (u128::from(high) << 64) | u128::from(low);
        Self(number.max(1))
    }

    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

impl SpanId {
    /// A span with these random bits.
    pub fn of(number: u64) -> Self {
        Self(number.max(1))
    }

    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

// === impl TraceContext ===

impl TraceContext {
    /// The context of a request; `None` if it has none, several, or a malformed one.
    #[inline]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let value = values.next()?;
        if values.next().is_some() {
            return None;
        }
        Self::parse(value.as_bytes())
    }

    /// Parses a value: version 00, or the part that later versions share with it.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (fields, rest) = value.split_at_checked(TEXT_BYTES)?;
        let version = number(&fields[..2])?;
        let is_whole = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.first().is_none_or(|byte| *byte == b'-'),
        };
        let is_parted = [2, 35, 52].iter().all(|place| fields[*place] == b'-');
        if !is_whole || !is_parted {
            return None;
        }
        let trace = number(&fields[3..35]).filter(|trace| *trace != 0)?;
        let span = number(&fields[36..52]).filter(|span| *span != 0)?;
        let flags = number(&fields[53..])?;
        Some(Self {
            trace: TraceId(trace),
            span: SpanId(span as u64),
            is_sampled: flags as u8 & SAMPLED != 0,
        })
    }

    /// The value of version 00.
    pub fn header(self) -> HeaderValue {
        let mut text = [b'-'; TEXT_BYTES];
        write_hex(&mut text[..2], &[0]);
        write_hex(&mut text[3..35], &self.trace.to_bytes());
        write_hex(&mut text[36..52], &self.span.to_bytes());
        write_hex(&mut text[53..], &[u8::from(self.is_sampled)]);
        let mut value = HeaderValue::from_bytes(&text).expect("invariant: hex is visible ASCII");
        // Each value is different: in HPACK's table it would displace headers that are repeated.
        value.set_sensitive(true);
        value
    }
}

/// A number of lower case digits, as the specification wants them.
fn number(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some((number << 4) | u128::from(digit))
    })
}

fn write_hex(text: &mut [u8], bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 0xf)];
    }
}

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing {
    use super::{TEXT_BYTES, TraceContext};

    /// Any bytes are parsed or refused, and what was parsed has the same meaning when it is
    /// written.
    ///
    /// # Panics
    /// Where they do not.
    pub fn trace_context(bytes: &[u8]) {
        let Some(context) = TraceContext::parse(bytes) else { return };
        assert!(bytes.len() >= TEXT_BYTES, "it is too short");
        let written = context.header();
        assert_eq!(Some(context), TraceContext::parse(written.as_bytes()));
        assert_eq!(bytes[3..52], written.as_bytes()[3..52]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    fn read(text: &str) -> Option<TraceContext> {
        fuzzing::trace_context(text.as_bytes());
        TraceContext::parse(text.as_bytes())
    }

    #[test]
    fn a_context_is_read_and_written() {
        for (flags, is_sampled) in [("00", false), ("01", true), ("03", true), ("fe", false)] {
            let context = read(&format!("00-{TRACE}-{SPAN}-{flags}")).expect("it is well-formed");
            assert_eq!(is_sampled, context.is_sampled, "{flags}");
            let written = format!("00-{TRACE}-{SPAN}-0{}", u8::from(is_sampled));
            assert_eq!(written, context.header().to_str().unwrap());
        }
        let context = read(&format!("00-{TRACE}-{SPAN}-01")).unwrap();
        assert_eq!(TraceId::of(0x0af7_6519_16cd_43dd, 0x8448_eb21_1c80_319c), context.trace);
        assert_eq!(0xb7ad_6b71_6920_3331_u64.to_be_bytes(), context.span.to_bytes());
    }

    #[test]
    fn later_versions_are_read_as_far_as_they_are_known() {
        for (version, rest, is_read) in [
            ("01", "", true),
            ("cc", "-what-comes", true),
            ("cc", ".what-comes", false),
            ("01", "-", true),
            ("ff", "", false),
            ("00", "-more", false),
            ("0g", "", false),
        ] {
            let text = format!("{version}-{TRACE}-{SPAN}-01{rest}");
            assert_eq!(is_read, read(&text).is_some(), "{text}");
        }
    }

    #[test]
    fn a_malformed_context_is_none() {
        let good = format!("00-{TRACE}-{SPAN}-01");
        let zeros = "0".repeat(32);
        for text in [
            String::new(),
            good[..54].to_owned(),
            format!(" {good}"),
            good.to_uppercase(),
            good.replace('-', "_"),
            format!("00-{zeros}-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", &zeros[..16]),
            format!("00-{TRACE}-{SPAN}-0x"),
            format!("00-{TRACE}-{SPAN}01-"),
            good.replace('0', "ä"),
        ] {
            assert_eq!(None, read(&text), "{text}");
        }
    }

    #[test]
    fn of_two_contexts_none_counts() {
        let value = HeaderValue::try_from(format!("00-{TRACE}-{SPAN}-01")).unwrap();
        let mut headers = HeaderMap::new();
        assert_eq!(None, TraceContext::of(&headers));
        headers.insert(TRACEPARENT, value.clone());
        assert!(TraceContext::of(&headers).is_some_and(|context| context.is_sampled));
        headers.append(TRACEPARENT, value);
        assert_eq!(None, TraceContext::of(&headers));
    }

    #[test]
    fn no_drawn_number_makes_an_id_of_zeros() {
        assert_ne!([0; 16], TraceId::of(0, 0).to_bytes());
        assert_ne!([0; 8], SpanId::of(0).to_bytes());
    }
}
