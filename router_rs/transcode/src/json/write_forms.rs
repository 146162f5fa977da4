//! Messages that are a single string or value in JSON, and the parts of those that contain others:
//! from protobuf's binary form.

use prost_reflect::Kind;

use super::any::{TYPE_URL_NUMBER, VALUE_NUMBER};
use super::forms::{NANOS, ONLY, SECONDS};
use super::raw::{Raw, Reader, Unwritten, Written, wrong};
use super::text::write_text;
use super::times::{self, Time};
use super::write_scalars::{default_of, write_scalar};

pub(super) fn write_timestamp(bytes: &[u8], out: &mut Vec<u8>) -> Written {
    put(times::timestamp_text(time(bytes)?), out)
}

pub(super) fn write_duration(bytes: &[u8], out: &mut Vec<u8>) -> Written {
    put(times::duration_text(time(bytes)?), out)
}

pub(super) fn write_mask(bytes: &[u8], out: &mut Vec<u8>) -> Written {
    put(paths(bytes)?, out)
}

/// `kind`: the kind of the wrapped value.
pub(super) fn write_wrapper(kind: &Kind, bytes: &[u8], out: &mut Vec<u8>) -> Written {
    let mut value = default_of(kind);
    each(bytes, |number, raw| {
        if number == ONLY {
            value = raw;
        }
    })?;
    write_scalar(kind, value, out)
}

/// The type of the message in an `Any`, and the message.
pub(super) fn parts_of_any(bytes: &[u8]) -> Result<(&str, &[u8]), Unwritten> {
    let (mut type_url, mut value): (&[u8], &[u8]) = (b"", b"");
    each(bytes, |number, raw| match (number, raw) {
        (TYPE_URL_NUMBER, Raw::Bytes(bytes)) => type_url = bytes,
        (VALUE_NUMBER, Raw::Bytes(bytes)) => value = bytes,
        _ => {}
    })?;
    let type_url = std::str::from_utf8(type_url).map_err(|_| wrong("a type is not UTF-8"))?;
    Ok((type_url, value))
}

/// Calls `take` for each field present. For single values the last one counts.
fn each<'a>(bytes: &'a [u8], mut take: impl FnMut(u32, Raw<'a>)) -> Written {
    let mut reader = Reader(bytes);
    while !reader.is_empty() {
        let (number, raw) = reader.field()?;
        take(number, raw);
    }
    Ok(())
}

fn time(bytes: &[u8]) -> Result<Time, Unwritten> {
    let mut time = (0, 0);
    each(bytes, |number, raw| match (number, raw) {
        (SECONDS, Raw::Varint(seconds)) => time.0 = seconds as i64,
        (NANOS, Raw::Varint(nanos)) => time.1 = nanos as i32,
        _ => {}
    })?;
    Ok(time)
}

fn paths(bytes: &[u8]) -> Result<Result<String, String>, Unwritten> {
    let mut paths = Vec::new();
    each(bytes, |number, raw| {
        if let (ONLY, Raw::Bytes(path)) = (number, raw) {
            paths.push(path);
        }
    })?;
    let path = |path| std::str::from_utf8(path).map_err(|_| wrong("a string is not UTF-8"));
    let paths = paths.into_iter().map(path).collect::<Result<Vec<_>, _>>()?;
    let names = paths.into_iter().map(times::camel_of_snake);
    Ok(names.collect::<Result<Vec<_>, _>>().map(|names| names.join(",")))
}

fn put(text: Result<String, String>, out: &mut Vec<u8>) -> Written {
    write_text(&text.map_err(Unwritten::Wrong)?, out);
    Ok(())
}
