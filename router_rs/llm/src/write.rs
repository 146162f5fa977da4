//! JSON and server-sent events, written in place.
//!
//! Only values that are unknown at compile time are escaped. Nothing but the output is allocated.

use std::fmt::Write;

use bytes::{BufMut, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::{Head, Output};

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Tells nginx and compatible proxies to forward each event at once.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// A log probability of minus infinity, which JSON cannot express; as in OpenAI's documentation.
pub(crate) const LOGPROB_MIN: f32 = -9999.0;

pub(crate) fn put(out: &mut BytesMut, text: &str) {
    out.put_slice(text.as_bytes());
}

/// A JSON string.
pub(crate) fn put_text(out: &mut BytesMut, text: &str) {
    serde_json::to_writer(out.writer(), text).expect("invariant: memory takes all");
}

pub(crate) fn put_text_or_null(out: &mut BytesMut, text: Option<&str>) {
    match text {
        Some(text) => put_text(out, text),
        None => put(out, "null"),
    }
}

pub(crate) fn put_integer(out: &mut BytesMut, number: u64) {
    // Nearly all are indexes of choices.
    if number < 10 {
        out.put_u8(b'0' + number as u8);
    } else {
        write!(out, "{number}").expect("invariant: memory takes all");
    }
}

/// A number that JSON has; others become `otherwise`.
pub(crate) fn put_float(out: &mut BytesMut, number: f32, otherwise: f32) {
    let number = if number.is_finite() { number } else { otherwise };
    serde_json::to_writer(out.writer(), &number).expect("invariant: memory takes all");
}

pub(crate) fn put_logprob(out: &mut BytesMut, logprob: f32) {
    put_float(out, logprob.max(LOGPROB_MIN), LOGPROB_MIN);
}

/// The items with commas between them.
pub(crate) fn put_list<T>(
    out: &mut BytesMut,
    items: impl IntoIterator<Item = T>,
    mut each: impl FnMut(&mut BytesMut, T),
) {
    put(out, "[");
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            put(out, ",");
        }
        each(out, item);
    }
    put(out, "]");
}

/// The head of an answer in JSON, whose body is complete.
pub(crate) fn end_json(output: &mut Output) {
    let length = output.body.len().into();
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, JSON), (CONTENT_LENGTH, length)]);
    output.head = Some(Head { status: StatusCode::OK, headers });
    output.is_ended = true;
}

/// The head of a stream of events.
pub(crate) fn stream_head() -> Head {
    let headers = HeaderMap::from_iter([
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8")),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (ACCEL_BUFFERING, HeaderValue::from_static("no")),
    ]);
    Head { status: StatusCode::OK, headers }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl Fn(&mut BytesMut)) -> String {
        let mut out = BytesMut::new();
        write(&mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn what_is_written_is_json() {
        assert_eq!(r#""a\"\n\\é""#, written(|out| put_text(out, "a\"\n\\é")));
        assert_eq!("null", written(|out| put_text_or_null(out, None)));
        assert_eq!(
            "0 9 10",
            written(|out| {
                for (text, number) in [("", 0), (" ", 9), (" ", 10)] {
                    put(out, text);
                    put_integer(out, number);
                }
            })
        );
        assert_eq!("[1,2]", written(|out| put_list(out, [1, 2], put_integer)));
    }

    #[test]
    fn a_logprob_is_a_number() {
        for (logprob, expected) in [
            (-0.5, "-0.5"),
            (0.0, "0.0"),
            (f32::NEG_INFINITY, "-9999.0"),
            (f32::NAN, "-9999.0"),
            (f32::INFINITY, "-9999.0"),
        ] {
            assert_eq!(expected, written(|out| put_logprob(out, logprob)), "{logprob}");
        }
    }
}
