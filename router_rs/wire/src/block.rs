//! Heads and trailers in frames.

use std::sync::LazyLock;

use bytes::Bytes;
use http::uri::{Authority, Parts as UriParts, PathAndQuery, Scheme};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
    header, request, response,
};

use router_protocol::grpc::{
    GRPC_ACCEPT_ENCODING, GRPC_ENCODING, GRPC_MESSAGE, GRPC_STATUS, GRPC_TIMEOUT,
};
use router_protocol::names;

use crate::errors::{Malformed, TooLong};

/// For a text whose length follows in four more bytes.
const LONG_TEXT: u8 = u8::MAX;

/// Names that most heads have, which are sent as their index: neither end encodes or decodes them.
/// A change needs a new version of the frames.
static NAMES: [HeaderName; 51] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::ACCEPT_LANGUAGE,
    header::ACCEPT_RANGES,
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
    header::ALLOW,
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
    header::CONTENT_DISPOSITION,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::COOKIE,
    header::DATE,
    header::ETAG,
    header::EXPIRES,
    header::FORWARDED,
    header::HOST,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::LAST_MODIFIED,
    header::LOCATION,
    header::ORIGIN,
    header::PRAGMA,
    header::REFERER,
    header::RETRY_AFTER,
    header::SERVER,
    header::SET_COOKIE,
    header::TE,
    header::USER_AGENT,
    header::VARY,
    header::VIA,
    GRPC_ACCEPT_ENCODING,
    GRPC_ENCODING,
    GRPC_MESSAGE,
    GRPC_STATUS,
    GRPC_TIMEOUT,
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-request-id"),
    names::ANSWERED_BY,
    names::ASKER,
    names::BROKEN,
    names::FRAMING,
    names::HTTP,
    names::LOAD,
    names::MODEL_ID,
    names::SESSION_ID,
];

/// For a name that is written out.
const SPELLED: u8 = 0;

/// Buckets of the names, by properties that are quick to read. Each has room for one.
const BUCKETS: usize = 256;

static BY_LOOK: LazyLock<[u8; BUCKETS]> = LazyLock::new(|| {
    let mut buckets = [SPELLED; BUCKETS];
    for (name, index) in NAMES.iter().zip(1..) {
        buckets[look(name.as_str().as_bytes())] = index;
    }
    buckets
});

/// No two of [`NAMES`] share a bucket: the factors were searched for, and a test checks it.
fn look(name: &[u8]) -> usize {
    let at = |index: usize| usize::from(name.get(index).copied().unwrap_or_default());
    let middle = at(name.len() / 2);
    (name.len() * 246 + at(0) * 187 + middle * 2 + at(name.len().wrapping_sub(2)) * 99) % BUCKETS
}

// === writing ===

pub(super) fn put_call(block: &mut Vec<u8>, head: &request::Parts) -> Result<(), TooLong> {
    put_text(block, head.method.as_str().as_bytes())?;
    put_target(block, head.uri.path_and_query())?;
    let authority = head.uri.authority().map_or("", Authority::as_str);
    put_text(block, authority.as_bytes())?;
    put_pairs(block, &head.headers)
}

/// A target that begins with its query has the path `/` (RFC 9110, 4.2.3).
fn put_target(block: &mut Vec<u8>, target: Option<&PathAndQuery>) -> Result<(), TooLong> {
    let target = target.map_or("/", PathAndQuery::as_str);
    if target.starts_with('?') {
        return put_text(block, format!("/{target}").as_bytes());
    }
    put_text(block, target.as_bytes())
}

pub(super) fn put_answer(
    block: &mut Vec<u8>,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<(), TooLong> {
    block.extend_from_slice(&status.as_u16().to_be_bytes());
    put_pairs(block, headers)
}

/// For an answer sent whole.
pub(super) fn put_whole(
    block: &mut Vec<u8>,
    (status, headers): (StatusCode, &HeaderMap),
    trailers: &HeaderMap,
) -> Result<(), TooLong> {
    put_answer(block, status, headers)?;
    put_pairs(block, trailers)
}

pub(super) fn put_pairs(block: &mut Vec<u8>, headers: &HeaderMap) -> Result<(), TooLong> {
    block.extend_from_slice(&u16::try_from(headers.len()).map_err(|_| TooLong)?.to_be_bytes());
    for (name, value) in headers {
        let spelling = name.as_str().as_bytes();
        let index = BY_LOOK[look(spelling)];
        let is_known = index != SPELLED && NAMES[usize::from(index) - 1] == name;
        if is_known {
            block.push(index);
        } else {
            block.push(SPELLED);
            put_text(block, spelling)?;
        }
        put_text(block, value.as_bytes())?;
    }
    Ok(())
}

fn put_text(block: &mut Vec<u8>, text: &[u8]) -> Result<(), TooLong> {
    match u8::try_from(text.len()) {
        Ok(length) if length != LONG_TEXT => block.push(length),
        _ => {
            block.push(LONG_TEXT);
            let length = u32::try_from(text.len()).map_err(|_| TooLong)?;
            block.extend_from_slice(&length.to_be_bytes());
        }
    }
    block.extend_from_slice(text);
    Ok(())
}

/// The size of a head as HTTP/2 counts it (RFC 9113, 6.5.2), including the target, so that a limit
/// holds for the same heads over both protocols.
pub fn head_bytes(head: &request::Parts) -> usize {
    /// The overhead that is counted for each line.
    const LINE_BYTES: usize = 32;
    /// `:method`, `:scheme`, `:authority` and `:path`, with their lines.
    const PSEUDO_BYTES: usize = 4 * LINE_BYTES + 7 + 7 + 10 + 5 + "https".len();
    let target = head.uri.path_and_query().map_or(1, |target| target.as_str().len());
    let authority = head.uri.authority().map_or(0, |authority| authority.as_str().len());
    let lines = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
    PSEUDO_BYTES
        + head.method.as_str().len()
        + target
        + authority
        + lines.map(|bytes| bytes + LINE_BYTES).sum::<usize>()
}

// === reading ===

/// A call's head and body.
pub fn read_call(payload: Bytes) -> Result<(request::Parts, Bytes), Malformed> {
    let mut reader = Reader { bytes: payload, at: 0 };
    let (mut head, ()) = Request::new(()).into_parts();
    head.version = Version::HTTP_2;
    head.method = Method::from_bytes(reader.text()?).map_err(|_| Malformed("no method"))?;
    let target = reader.shared()?;
    let authority = reader.shared()?;
    head.uri = uri(target, authority)?;
    head.headers = reader.pairs()?;
    Ok((head, reader.rest()))
}

/// The head of an answer whose rest follows.
pub fn read_answer(payload: Bytes) -> Result<response::Parts, Malformed> {
    let mut reader = Reader { bytes: payload, at: 0 };
    let head = reader.answer()?;
    if reader.rest().is_empty() { Ok(head) } else { Err(Malformed("more than a head")) }
}

/// Head, trailers and body of an answer sent whole.
pub fn read_whole(payload: Bytes) -> Result<(response::Parts, HeaderMap, Bytes), Malformed> {
    let mut reader = Reader { bytes: payload, at: 0 };
    Ok((reader.answer()?, reader.pairs()?, reader.rest()))
}

pub fn read_trailers(payload: Bytes) -> Result<HeaderMap, Malformed> {
    let mut reader = Reader { bytes: payload, at: 0 };
    let trailers = reader.pairs()?;
    if reader.rest().is_empty() { Ok(trailers) } else { Err(Malformed("more than trailers")) }
}

fn uri(target: Bytes, authority: Bytes) -> Result<Uri, Malformed> {
    let malformed = Malformed("no target");
    let mut parts = UriParts::default();
    if !authority.is_empty() {
        let authority = Authority::from_maybe_shared(authority).map_err(|_| malformed)?;
        parts.authority = Some(authority);
        parts.scheme = Some(Scheme::HTTP);
    }
    // Anything but a path, such as a lone fragment, would be parsed as no path at all.
    if !target.starts_with(b"/") && target != "*" {
        return Err(malformed);
    }
    let target = PathAndQuery::from_maybe_shared(target).map_err(|_| malformed)?;
    parts.path_and_query = Some(target);
    Uri::from_parts(parts).map_err(|_| malformed)
}

/// Reads a payload from its beginning.
struct Reader {
    bytes: Bytes,
    at: usize,
}

impl Reader {
    fn take(&mut self, length: usize) -> Result<std::ops::Range<usize>, Malformed> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or(Malformed("it ends inside of a head"))?;
        Ok(std::mem::replace(&mut self.at, end)..end)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        let range = self.take(1)?;
        Ok(self.bytes[range.start])
    }

    fn number(&mut self) -> Result<u16, Malformed> {
        let range = self.take(2)?;
        Ok(u16::from_be_bytes([self.bytes[range.start], self.bytes[range.start + 1]]))
    }

    fn text(&mut self) -> Result<&[u8], Malformed> {
        let range = self.text_range()?;
        Ok(&self.bytes[range])
    }

    fn shared(&mut self) -> Result<Bytes, Malformed> {
        let range = self.text_range()?;
        Ok(self.bytes.slice(range))
    }

    fn text_range(&mut self) -> Result<std::ops::Range<usize>, Malformed> {
        let length = match self.byte()? {
            LONG_TEXT => {
                let long = [self.byte()?, self.byte()?, self.byte()?, self.byte()?];
                u32::from_be_bytes(long) as usize
            }
            length => usize::from(length),
        };
        self.take(length)
    }

    fn answer(&mut self) -> Result<response::Parts, Malformed> {
        let (mut head, ()) = Response::new(()).into_parts();
        head.version = Version::HTTP_2;
        head.status = StatusCode::from_u16(self.number()?).map_err(|_| Malformed("no status"))?;
        head.headers = self.pairs()?;
        Ok(head)
    }

    fn pairs(&mut self) -> Result<HeaderMap, Malformed> {
        /// More names than that are rare, so the count is not trusted.
        const EXPECTED_MAX: usize = 64;
        let count = usize::from(self.number()?);
        let mut headers = HeaderMap::with_capacity(count.min(EXPECTED_MAX));
        for _ in 0..count {
            let name = self.name()?;
            let value = HeaderValue::from_maybe_shared(self.shared()?);
            let value = value.map_err(|_| Malformed("no header's value"))?;
            headers.try_append(name, value).map_err(|_| Malformed("too many headers"))?;
        }
        Ok(headers)
    }

    fn name(&mut self) -> Result<HeaderName, Malformed> {
        match self.byte()? {
            SPELLED => {
                HeaderName::from_bytes(self.text()?).map_err(|_| Malformed("no header's name"))
            }
            index => NAMES
                .get(usize::from(index) - 1)
                .cloned()
                .ok_or(Malformed("an unknown header's name")),
        }
    }

    fn rest(mut self) -> Bytes {
        self.bytes.split_off(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_known_name_is_found_by_its_look() {
        for (name, index) in NAMES.iter().zip(1..) {
            assert_eq!(index, BY_LOOK[look(name.as_str().as_bytes())], "{name}");
        }
    }

    #[test]
    fn a_call_without_a_path_is_malformed() {
        for (target, is_read) in [("/a?b", true), ("*", true), ("#a", false), ("a", false)] {
            let mut wire = Vec::new();
            for text in ["GET", target, ""] {
                put_text(&mut wire, text.as_bytes()).unwrap();
            }
            put_pairs(&mut wire, &HeaderMap::new()).unwrap();
            assert_eq!(is_read, read_call(wire.into()).is_ok(), "{target}");
        }
    }

    #[test]
    fn a_target_that_is_a_query_has_the_path_of_all() {
        let (head, ()) = Request::get("http://h?x=1").body(()).unwrap().into_parts();
        let mut block = Vec::new();
        put_call(&mut block, &head).unwrap();
        assert_eq!("http://h/?x=1", read_call(block.into()).unwrap().0.uri.to_string());
    }

    #[test]
    fn a_name_that_only_looks_known_is_spelled() {
        let known = names::HTTP;
        let alike = (0..=u8::MAX).filter_map(|byte| {
            let mut spelling = known.as_str().as_bytes().to_vec();
            spelling[1] = byte;
            HeaderName::from_bytes(&spelling).ok().filter(|name| *name != known)
        });
        for name in alike {
            let headers: HeaderMap = [(name, HeaderValue::from_static("v"))].into_iter().collect();
            let mut wire = Vec::new();
            put_pairs(&mut wire, &headers).unwrap();
            assert_eq!(headers, read_trailers(wire.into()).unwrap());
        }
    }
}
